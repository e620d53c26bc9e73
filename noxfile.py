"""What a reviewer would run. `nox` alone runs it all; `nox -l` lists the sessions."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.download_python = "never"
nox.options.sessions = ["lint", "types", "layers", "tests", "docs", "wheels", "examples"]

ROOT = Path(__file__).parent
PACKAGES = ("core", "tensor")
PYTHONS = ("3.11", "3.12", "3.13")
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
CODE = ("packages", "examples", "benchmarks", "dev.py", "noxfile.py")
PAGES = ("README.md", "CONTRIBUTING.md", "docs", "packages/core/README.md")

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
    install_packages(session, *PACKAGES[: PACKAGES.index(package) + 1])
    session.install(*GROUPS["test"])
    session.run("pytest", *(session.posargs or workers()), f"packages/{package}/tests")


@nox.session(python=PYTHONS)
@nox.parametrize("with_packages", ["core", "core+tensor"])
def matrix(session: nox.Session, with_packages: str) -> None:
    """Every Python with core alone, with tensor, and with each plugin as it comes."""
    names = with_packages.split("+")
    install_packages(session, *names)
    session.install(*GROUPS["test"])
    session.run("pytest", *workers(), *session.posargs, f"packages/{names[-1]}/tests")


@nox.session
def docs(session: nox.Session) -> None:
    """The examples in the documentation and in docstrings run and print what they say."""
    install_packages(session, *PACKAGES)
    session.install(*GROUPS["test"])
    sources = [f"packages/{name}/src" for name in PACKAGES]
    session.run("pytest", "-q", *workers(), "--doctest-modules", *sources)
    session.run("pytest", "-q", "--doctest-glob=*.md", *PAGES)


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
    """Random expressions and tensor programs: a minute each, or `-- --seconds 600`."""
    install_packages(session, *PACKAGES)
    session.install(*GROUPS["test"])
    given = session.posargs
    session.chdir(ROOT / "packages" / "core" / "tests")
    session.run("python", "-m", "checking.fuzz", "--devices", "INTERP,CPU", *given)
    session.chdir(ROOT / "packages" / "tensor" / "tests")
    session.run("python", "fuzz.py", *given)


@nox.session
def bench(session: nox.Session) -> None:
    """Our figures beside the peers', in one run (`-- NAME ...` chooses benchmarks)."""
    install_packages(session, *PACKAGES)
    session.install("numpy", "tinygrad")
    session.run("python", "benchmarks/run.py", *session.posargs)
