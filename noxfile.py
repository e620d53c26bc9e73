"""What a reviewer would run. `nox` alone runs it all; `nox -l` lists the sessions."""

from __future__ import annotations

import os
import shutil
import tomllib
from ctypes.util import find_library
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.download_python = "never"
nox.options.sessions = [
    *("lint", "types", "layers", "tests", "kit", "elsewhere", "explored"),
    *("docs", "wheels", "examples"),
]

ROOT = Path(__file__).parent
PACKAGES = ("core", "tensor", "conformance", "egraph", "backend-cl")
"""The folders of packages/; each needs some that stand before it."""
TESTED_WITH = {
    "conformance": ("tensor",),
    "egraph": ("tensor",),
    "backend-cl": ("tensor", "conformance"),
}
"""What the tests of a package use beside what it needs itself."""
DEVICES = {"CPU": (), "INTERP": (), "INTERP/LANES32": (), "CL": ("backend-cl",)}
"""Devices that tests run on here (with a pair of theirs), and the packages that bring them."""
PYTHONS = ("3.11", "3.12", "3.13")
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
CODE = ("packages", "examples", "benchmarks", "conftest.py", "dev.py", "noxfile.py")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs",
    "packages/core/README.md",
    "packages/egraph/README.md",
)
PLUGIN_PAGES = ("docs/products.md",)
"""Pages whose examples are of a plugin; the others run without any."""

# pyenv's interpreters, where it has some: its own `python3.12` answers only if that one is in use
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
PATHS = [str(path) for v in PYTHONS for path in sorted(PYENV.glob(f"{v}.*/bin"))]
os.environ["PATH"] = os.pathsep.join([*PATHS, os.environ.get("PATH", "")])


def install_packages(session: nox.Session, *names: str) -> None:
    """The named packages from this checkout, editable, and the tools that build them."""
    session.install(*GROUPS["build"])
    wanted: list[str] = []
    for name in names:
        wanted += ["--editable", str(ROOT / "packages" / name)]
    # not each in an environment made for its build alone: that takes longer than the session
    session.install("--no-build-isolation", *wanted)


def with_needs(*names: str) -> list[str]:
    """The packages and all of ours that they need, each after those that it needs."""
    wanted = set(names)
    for name in reversed(PACKAGES):
        if name in wanted:
            declared = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text())
            needs = {line.partition(">")[0] for line in declared["project"]["dependencies"]}
            wanted |= {p for p in PACKAGES if distribution(p) in needs}
    return [name for name in PACKAGES if name in wanted]


def distribution(package: str) -> str:
    """The name under which a folder's package is installed."""
    return f"opgraft-{package.removeprefix('backend-')}"


def need(session: nox.Session, device: str) -> None:
    """Skip a session whose device is not on this machine; where CI is, it has to be."""
    if device == "CL" and find_library("OpenCL") is None and "CI" not in os.environ:
        session.skip("no OpenCL loader is here: apt install ocl-icd-libopencl1 pocl-opencl-icd")


def workers() -> list[str]:
    """pytest's options for as many processes as help."""
    return ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "worksteal"]


@nox.session
def lint(session: nox.Session) -> None:
    """Style: ruff, check and format; and the form of the changelog fragments."""
    session.install("ruff>=0.14", "towncrier>=24.8")
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, over every package's source."""
    install_packages(session, *PACKAGES)
    session.install("mypy>=1.15", "rich", "safetensors")
    for name in PACKAGES:
        session.run("mypy", f"packages/{name}/src")


@nox.session
def layers(session: nox.Session) -> None:
    """The layering contract of pyproject.toml. It reads imports and needs nothing installed."""
    session.install("import-linter>=2")
    sources = [str(ROOT / "packages" / name / "src") for name in PACKAGES]
    session.run("lint-imports", "--no-cache", env={"PYTHONPATH": os.pathsep.join(sources)})


@nox.session
@nox.parametrize("package", PACKAGES)
def tests(session: nox.Session, package: str) -> None:
    """The tests of one package, with what it needs and no other package of ours."""
    install_packages(session, *with_needs(package, *TESTED_WITH.get(package, ())))
    session.install(*GROUPS["test"])
    chosen = session.posargs or workers()
    session.run("pytest", *chosen, f"packages/{package}/tests", env={"OPGRAFT_CHECK": "full"})


@nox.session(python=PYTHONS)
@nox.parametrize("package", PACKAGES)
def matrix(session: nox.Session, package: str) -> None:
    """Every Python: core alone, tensor, and each plugin."""
    install_packages(session, *with_needs(package, *TESTED_WITH.get(package, ())))
    session.install(*GROUPS["test"])
    session.run("pytest", *workers(), *session.posargs, f"packages/{package}/tests")


@nox.session
@nox.parametrize("device", list(DEVICES))
def kit(session: nox.Session, device: str) -> None:
    """The conformance kit on one device: every must and should."""
    need(session, device)
    install_packages(session, *with_needs("tensor", "conformance", *DEVICES[device]))
    session.install(*GROUPS["test"])
    session.chdir(session.create_tmp())
    name, _, pair = device.partition("/")
    env = {f"OPGRAFT_{name}_CC": pair} if pair else {}
    given = session.posargs or ("-n", workers()[1])
    session.run("python", "-m", "opgraft_conformance", name, *given, env=env)


@nox.session
def intel(session: nox.Session) -> None:
    """The kit on Intel's OpenCL for processors, from its wheels: native half, subgroups."""
    install_packages(session, *with_needs("tensor", "conformance", "backend-cl"))
    session.install(*GROUPS["test"], "intel-opencl-rt", "intel-cmplr-lib-rt")
    library = Path(session.virtualenv.location).resolve() / "lib" / "libintelocl.so"
    folder = Path(session.create_tmp()).resolve() / "vendors"
    folder.mkdir(exist_ok=True)
    (folder / "intel-cpu.icd").write_text(f"{library}\n")
    env = {"OCL_ICD_VENDORS": str(folder), "LD_LIBRARY_PATH": str(library.parent)}
    known = str(ROOT / "packages" / "backend-cl" / "tests" / "intel_faults.txt")
    given = session.posargs or ("-n", workers()[1], "--expected", known)
    session.run("python", "-m", "opgraft_conformance", "CL", *given, env=env)


@nox.session
@nox.parametrize("device", [d for d, needs in DEVICES.items() if needs])
def elsewhere(session: nox.Session, device: str) -> None:
    """The tests of core and tensor that take a device, on a device of another package."""
    need(session, device)
    install_packages(session, *with_needs("tensor", *DEVICES[device]))
    session.install(*GROUPS["test"])
    tests = session.posargs or [*workers(), "packages/core/tests", "packages/tensor/tests"]
    env = {"OPGRAFT_TEST_DEVICES": device, "OPGRAFT_DEVICE": device}
    session.run("pytest", *tests, env=env)


@nox.session
def explored(session: nox.Session) -> None:
    """The tests of core and tensor, each kernel and graph through the e-graph."""
    install_packages(session, *with_needs("tensor", "egraph"))
    session.install(*GROUPS["test"])
    tests = session.posargs or [*workers(), "packages/core/tests", "packages/tensor/tests"]
    session.run("pytest", *tests, env={"OPGRAFT_EGRAPH": "1"})


@nox.session
def docs(session: nox.Session) -> None:
    """The examples in the documentation and in docstrings run and print what they say."""
    install_packages(session, *PACKAGES)
    session.install(*GROUPS["test"])
    sources = [f"packages/{name}/src" for name in PACKAGES]
    # the kit's rows are tests of a device, not examples
    rows = "--ignore=packages/conformance/src/opgraft_conformance/suite"
    # what the examples print is what a reader sees who has installed no plugin
    env = {"OPGRAFT_PLUGINS": ""}
    session.run("pytest", "-q", *workers(), "--doctest-modules", rows, *sources, env=env)
    ignored = [f"--ignore={page}" for page in PLUGIN_PAGES]
    session.run("pytest", "-q", "--doctest-glob=*.md", *ignored, *PAGES, env=env)
    session.run("pytest", "-q", "--doctest-glob=*.md", *PLUGIN_PAGES)
    # the tutorial's commands, in an environment of their own
    session.run("pytest", "-q", "packages/conformance/tests/test_tutorial.py")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every wheel and sdist, install them in a clean environment, try them elsewhere."""
    session.install("build", *GROUPS["build"])
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for name in PACKAGES:
        # the wheel is built from the sdist, so both are known to be whole
        session.run(
            *("python", "-m", "build", "--no-isolation"),
            *("--outdir", str(dist), f"packages/{name}"),
            silent=True,
        )
    built = sorted(dist.glob("*.whl"))
    check_artifacts(session, built, sorted(dist.glob("*.tar.gz")))

    outside = Path(session.create_tmp()).resolve()
    clean = outside / "clean"
    session.run("python", "-m", "venv", "--clear", str(clean))
    python, opgraft = str(clean / "bin" / "python"), str(clean / "bin" / "opgraft")
    wanted = [str(path) for path in built]
    session.run(python, "-m", "pip", "install", "-q", *wanted, "scikit-learn", external=True)
    session.chdir(outside)
    smoke = (
        "import opgraft, opgraft_tensor as t; "
        "assert 'site-packages' in opgraft.__file__, opgraft.__file__; "
        "assert (t.Tensor([1, 2, 3]) * 2 + 1).tolist() == [3, 5, 7]; print(opgraft.__version__)"
    )
    session.run(python, "-c", smoke, external=True)
    session.run(opgraft, "devices", external=True)
    session.run(opgraft, "plugins", external=True)
    for example in sorted((ROOT / "examples").glob("*.py")):
        session.run(python, str(example), external=True)


def check_artifacts(session: nox.Session, wheels: list[Path], sdists: list[Path]) -> None:
    """One wheel and one sdist per package, all of one version."""
    named = [tomllib.loads(path.read_text()) for path in project_files()]
    wanted = sorted(p["project"]["name"].replace("-", "_") for p in named)
    found = [path.name.removesuffix(".tar.gz").rsplit("-", 1) for path in sdists]
    versions = {version for _, version in found} | {path.name.split("-")[1] for path in wheels}
    if [name for name, _ in found] != wanted or [p.name.split("-")[0] for p in wheels] != wanted:
        session.error(f"built {[p.name for p in (*wheels, *sdists)]}, wanted {wanted}")
    if len(versions) != 1:
        session.error(f"the packages have different versions: {sorted(versions)}")
    session.log(f"{', '.join(wanted)}: {versions.pop()}")


def project_files() -> list[Path]:
    """The declarations of all packages."""
    return sorted((ROOT / "packages").glob("*/pyproject.toml"))


@nox.session
def examples(session: nox.Session) -> None:
    """Every example, in full."""
    install_packages(session, *PACKAGES)
    session.install("scikit-learn")
    for example in sorted((ROOT / "examples").glob("*.py")):
        session.run("python", str(example), *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Random schedules; expressions and tensor programs, a minute each or `-- --seconds 600`."""
    install_packages(session, *PACKAGES)
    session.install(*GROUPS["test"])
    given = session.posargs
    session.chdir(ROOT / "packages" / "core" / "tests")
    session.run("python", "-m", "checking.fuzz", "--devices", "INTERP,CPU", *given)
    session.run("python", "-m", "kernel_forms.random_schedules")
    session.chdir(ROOT / "packages" / "tensor" / "tests")
    session.run("python", "fuzz.py", *given)


@nox.session
def bench(session: nox.Session) -> None:
    """Our figures beside the peers', in one run (`-- NAME ...` chooses benchmarks)."""
    install_packages(session, *PACKAGES)
    session.install("numpy", "tinygrad")
    session.run("python", "benchmarks/run.py", *session.posargs)
