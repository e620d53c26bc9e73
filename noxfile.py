"""What a reviewer would run. `nox` alone runs it all; `nox -l` lists the sessions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "layers", "tests", "docs", "wheels", "examples"]

ROOT = Path(__file__).parent
PACKAGES = ("core", "tensor")
PYTHONS = ("3.11", "3.12", "3.13")
TEST_TOOLS = (
    "pytest>=8.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "z3-solver>=4.13",
    "mpmath>=1.3",
    "ml_dtypes>=0.5",
    "rich>=13",
    "setuptools>=80",
    "setuptools-scm>=10.2,<11",
    "wheel",
)
CODE = ("packages", "examples", "benchmarks", "docs", "dev.py", "noxfile.py")


def install_packages(session: nox.Session, *names: str, editable: bool = True) -> None:
    """The named packages from this checkout, in one call so that pip can see them together."""
    wanted: list[str] = []
    for name in names:
        wanted += ["-e"] if editable else []
        wanted.append(str(ROOT / "packages" / name))
    session.install(*wanted)


@nox.session
def lint(session: nox.Session) -> None:
    """Style: ruff's checks and its format."""
    session.install("ruff>=0.14")
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, over every package's source."""
    install_packages(session, *PACKAGES)
    session.install("mypy>=1.15", "rich", "platformdirs", "safetensors")
    for name in PACKAGES:
        session.run("mypy", f"packages/{name}/src")


@nox.session
def layers(session: nox.Session) -> None:
    """The layering contract of pyproject.toml, and no file too long."""
    install_packages(session, *PACKAGES)
    session.install("import-linter>=2")
    session.run("lint-imports")


@nox.session
@nox.parametrize("package", PACKAGES)
def tests(session: nox.Session, package: str) -> None:
    """The tests of one package."""
    install_packages(session, *PACKAGES[: PACKAGES.index(package) + 1])
    session.install(*TEST_TOOLS)
    arguments = session.posargs or ["-n", str(min(4, os.cpu_count() or 1))]
    session.run("pytest", *arguments, f"packages/{package}/tests")


@nox.session(python=PYTHONS)
@nox.parametrize("with_packages", ["core", "core+tensor"])
def matrix(session: nox.Session, with_packages: str) -> None:
    """Every Python with core alone, with tensor, and with each plugin as it comes."""
    names = with_packages.split("+")
    install_packages(session, *names)
    session.install(*TEST_TOOLS)
    paths = [f"packages/{name}/tests" for name in names]
    session.run("pytest", "-n", str(min(4, os.cpu_count() or 1)), *session.posargs, *paths)


@nox.session
def docs(session: nox.Session) -> None:
    """The examples in the documentation and in docstrings run and print what they say."""
    install_packages(session, *PACKAGES)
    session.install("pytest>=8.3", "rich")
    session.run("pytest", "-q", "--doctest-modules", "packages/core/src", "packages/tensor/src")
    session.run("pytest", "-q", "--doctest-glob=*.md", "docs", "README.md")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every wheel and sdist, install them in a clean environment, try them elsewhere."""
    session.install("build", "setuptools>=80", "setuptools-scm>=10.2,<11")
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for name in PACKAGES:
        session.run("python", "-m", "build", "--outdir", str(dist), f"packages/{name}")
    clean = Path(session.create_tmp()) / "clean"
    session.run("python", "-m", "venv", "--clear", str(clean))
    python = str(clean / "bin" / "python")
    built = [str(path) for path in sorted(dist.glob("*.whl"))]
    session.run(python, "-m", "pip", "install", "-q", *built, "scikit-learn", external=True)
    outside = Path(session.create_tmp())
    session.chdir(outside)
    smoke = (
        "import opgraft, opgraft_tensor as t; "
        "assert (t.Tensor([1, 2, 3]) * 2 + 1).tolist() == [3, 5, 7]; print(opgraft.__version__)"
    )
    session.run(python, "-c", smoke, external=True)
    session.run(str(clean / "bin" / "opgraft"), "devices", external=True)
    for example in sorted((ROOT / "examples").glob("*.py")):
        session.run(python, str(example), *example_arguments(example), external=True)


def example_arguments(example: Path) -> list[str]:
    """Arguments that make an example short."""
    return ["--epochs", "3"] if example.stem == "digits" else []


@nox.session
def examples(session: nox.Session) -> None:
    """Every example, in full."""
    install_packages(session, *PACKAGES)
    session.install("scikit-learn")
    for example in sorted((ROOT / "examples").glob("*.py")):
        session.run("python", str(example))


@nox.session
def fuzz(session: nox.Session) -> None:
    """Random expressions and tensor programs until the time given (`-- --seconds 600`) is up."""
    install_packages(session, *PACKAGES)
    session.install(*TEST_TOOLS)
    arguments = session.posargs or ["--seconds", "60"]
    session.run("python", "packages/core/tests/checking/fuzz.py", *arguments)
    session.run("python", "packages/tensor/tests/fuzz.py", *arguments)


@nox.session
def bench(session: nox.Session) -> None:
    """Our figures beside the peers', in one run (`-- NAME ...` chooses benchmarks)."""
    install_packages(session, *PACKAGES)
    session.install("numpy", "tinygrad")
    session.run("python", "benchmarks/run.py", *session.posargs)
