#!/usr/bin/env python3
"""Set opgraft up in this checkout and use it; needs Python 3.11 or newer and nothing else.

    python3 dev.py digits    train the handwritten-digits classifier on this machine
    python3 dev.py test      run the tests of every package
    python3 dev.py nox ...   run nox sessions, all that a reviewer would without arguments
    python3 dev.py shell ... run a command inside the environment, for instance `opgraft devices`

Everything is installed into .venv in this folder; the system's Python stays as it is. Where no C
compiler is found, one is installed by pip beside it (the `ziglang` wheel).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PACKAGES = ("core", "tensor")
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


def fail(message: str) -> None:
    """Say what is wrong and what to do, and end."""
    print(f"dev.py: {message}", file=sys.stderr)
    raise SystemExit(1)


def step(text: str) -> None:
    print(f"==> {text}", flush=True)


def run(*command: str | Path, env: dict[str, str] | None = None) -> int:
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=env, check=False).returncode


def make_environment() -> None:
    """Create .venv, with pip in it, unless it is there."""
    if PYTHON.exists():
        return
    step(f"creating {VENV.name} with Python {sys.version.split()[0]}")
    if run(sys.executable, "-m", "venv", VENV) != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        fail(
            "this Python cannot create an environment. On Debian and Ubuntu install it with\n"
            "    sudo apt install python3-venv\n"
            "and run the command again."
        )


def install(*wanted: str, note: str, key: str) -> None:
    """pip install into .venv, once for each change of the packages' declarations."""
    stamp = VENV / f".installed-{key}"
    declared = [ROOT / "packages" / p / "pyproject.toml" for p in PACKAGES]
    state = "\n".join([*wanted, *(p.read_text() for p in declared)])
    if stamp.exists() and stamp.read_text() == state:
        return
    step(f"installing {note} (downloads on the first run)")
    started = time.perf_counter()
    if run(PYTHON, "-m", "pip", "install", "--quiet", *wanted) != 0:
        fail("pip could not install what is needed; its message is above")
    stamp.write_text(state)
    print(f"    done in {time.perf_counter() - started:.0f} s", flush=True)


def install_packages() -> None:
    """opgraft's packages, editable, with a C compiler where the machine has none."""
    wanted = []
    for name in PACKAGES:
        wanted += ["--editable", str(ROOT / "packages" / name)]
    if not any(shutil.which(cc) for cc in ("clang", "gcc", "cc")):
        step("no C compiler found: installing one by pip (ziglang, about 100 MB)")
        wanted.append("ziglang>=0.13")
    install(*wanted, note="opgraft-core and opgraft-tensor", key="packages")


def digits(arguments: list[str]) -> int:
    install_packages()
    install("scikit-learn", note="scikit-learn, for its digits", key="digits")
    step("training on the CPU")
    return run(PYTHON, "examples/digits.py", *arguments)


def test(arguments: list[str]) -> int:
    install_packages()
    install(*TEST_TOOLS, note="the test tools", key="tests")
    step("running the tests")
    chosen = arguments or [f"packages/{name}/tests" for name in PACKAGES]
    return run(PYTHON, "-m", "pytest", "-n", str(min(4, os.cpu_count() or 1)), *chosen)


def nox(arguments: list[str]) -> int:
    install("nox>=2025.2", note="nox", key="nox")
    return run(PYTHON, "-m", "nox", *arguments)


def shell(arguments: list[str]) -> int:
    install_packages()
    path = f"{PYTHON.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return run(*(arguments or ["bash"]), env={**os.environ, "PATH": path})


COMMANDS = {"digits": digits, "test": test, "nox": nox, "shell": shell}


def main() -> int:
    if sys.version_info < (3, 11):
        fail(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    make_environment()
    return COMMANDS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
