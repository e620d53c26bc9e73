#!/usr/bin/env python3
"""Set opgraft up in this checkout and use it; needs Python 3.11 or newer and nothing else.

    python3 dev.py digits    train the handwritten-digits classifier on this machine
    python3 dev.py test      run the tests of the core and of tensors
    python3 dev.py nox ...   run nox sessions, all that a reviewer would without arguments
    python3 dev.py shell ... run a command inside the environment, for instance `opgraft devices`

Everything is installed into .venv in this folder; the system's Python stays as it is. Where no C
compiler is found, one is installed by pip beside it (the `ziglang` wheel).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PACKAGES = ("core", "tensor")
"""What running array programs takes. The others' tests are sessions of nox."""


def fail(message: str) -> None:
    """Say what is wrong and what to do, and end."""
    print(f"dev.py: {message}", file=sys.stderr)
    raise SystemExit(1)


def step(text: str) -> None:
    print(f"==> {text}", flush=True)


def run(*command: str | Path, env: dict[str, str] | None = None) -> int:
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=env, check=False).returncode


# ---- the environment


def make_environment() -> None:
    """Create .venv, with pip in it, unless it is there and whole."""
    whole = VENV / ".whole"
    if whole.exists() and PYTHON.exists():
        return
    step(f"creating {VENV.name} with Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    make = [sys.executable, "-m", "venv", str(VENV)]
    if subprocess.run(make, capture_output=True, check=False).returncode != 0:
        # Debian and Ubuntu keep the part of venv that brings pip in a package of its own
        shutil.rmtree(VENV, ignore_errors=True)
        bare = subprocess.run([*make, "--without-pip"], capture_output=True, text=True, check=False)
        if bare.returncode != 0:
            fail(f"this Python cannot create an environment:\n{bare.stdout}{bare.stderr}")
        fetch_pip()
    whole.touch()


def fetch_pip() -> None:
    """Put pip into an environment that was made without it, from its wheel on PyPI."""
    step("fetching pip, as this Python comes without it")
    index = "https://pypi.org/simple/pip/"
    listing = urllib.request.Request(
        index, headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    try:
        with urllib.request.urlopen(listing, timeout=60) as page:
            files = json.load(page)["files"]
        wheel = max(files, key=lambda file: pip_version(file["filename"]))
        with urllib.request.urlopen(urllib.parse.urljoin(index, wheel["url"]), timeout=60) as page:
            data = page.read()
    except (urllib.error.URLError, TimeoutError) as error:
        fail(
            f"pip could not be fetched ({error}). On Debian and Ubuntu this will do:\n"
            "    sudo apt install python3-venv"
        )
    if hashlib.sha256(data).hexdigest() != wheel["hashes"]["sha256"]:
        fail("what was fetched as pip is not what PyPI says that it is")
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / wheel["filename"]
        saved.write_bytes(data)
        if run(PYTHON, f"{saved}/pip", "install", "--quiet", "--no-index", saved) != 0:
            fail("pip could not be installed; its message is above")


def pip_version(filename: str) -> tuple[int, ...]:
    """The version in the name of a wheel of pip; empty for other files and for pre-releases."""
    found = re.fullmatch(r"pip-(\d+(?:\.\d+)*)-py3-none-any\.whl", filename)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def install(*wanted: str, note: str, key: str) -> None:
    """pip install into .venv, once for each change of the packages' declarations."""
    stamp = VENV / f".installed-{key}"
    declared = sorted((ROOT / "packages").glob("*/pyproject.toml"))
    state = "\n".join([*wanted, *(p.read_text(encoding="utf-8") for p in declared)])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == state:
        return
    step(f"installing {note}")
    started = time.perf_counter()
    pip(*wanted)
    stamp.write_text(state, encoding="utf-8")
    print(f"    done in {time.perf_counter() - started:.0f} s", flush=True)


def pip(*wanted: str) -> None:
    """pip install, telling what it is at; all that it said only where it fails."""
    command = [str(PYTHON), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    process = subprocess.Popen(
        [*command, "--progress-bar", "off", *wanted],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    terminal = sys.stdout.isatty()
    for line in process.stdout:
        said.append(line)
        text = line.strip()
        if terminal:
            print(f"\r\033[K    {text[:70]}", end="", flush=True)
        elif text.startswith("Downloading ") and "metadata" not in text:
            print(f"    {text}", flush=True)
    if terminal:
        print("\r\033[K", end="", flush=True)
    if process.wait() != 0:
        sys.stdout.writelines(said)
        fail("pip could not install what is needed; its message is above")


def tools(group: str) -> list[str]:
    """What pyproject.toml lists for a group of tools."""
    import tomllib  # late: a Python too old for it is to be told so by main()

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(declared["dependency-groups"][group])


def install_packages() -> None:
    """opgraft's packages, editable, with a C compiler where the machine has none."""
    # built with these, and not each in an environment made for it alone: it saves half a minute
    install(*tools("build"), note="the build tools", key="build")
    wanted = ["--no-build-isolation"]
    for name in PACKAGES:
        wanted += ["--editable", str(ROOT / "packages" / name)]
    note = "opgraft-core and opgraft-tensor"
    if not any(shutil.which(cc) for cc in ("clang", "gcc", "cc")):
        note += ", and a C compiler, as none is here (ziglang, about 100 MB)"
        wanted.append("ziglang>=0.13")
    install(*wanted, note=note, key="packages")


# ---- the commands


def digits(arguments: list[str]) -> int:
    install_packages()
    install("scikit-learn", note="scikit-learn, for its digits", key="digits")
    step("training")
    return run(PYTHON, "examples/digits.py", *arguments)


def test(arguments: list[str]) -> int:
    install_packages()
    install(*tools("test"), note="the test tools", key="tests")
    step("running the tests")
    chosen = arguments or [f"packages/{name}/tests" for name in PACKAGES]
    workers = str(min(4, os.cpu_count() or 1))
    return run(PYTHON, "-m", "pytest", "-n", workers, "--dist", "worksteal", *chosen)


def nox(arguments: list[str]) -> int:
    install("nox>=2025.2", note="nox", key="nox")
    return run(PYTHON, "-m", "nox", *arguments)


def shell(arguments: list[str]) -> int:
    install_packages()
    path = f"{PYTHON.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return run(*(arguments or ["bash"]), env={**os.environ, "PATH": path})


COMMANDS = {"digits": digits, "test": test, "nox": nox, "shell": shell}


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever starts this may have an older one
        fail(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    make_environment()
    return COMMANDS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
