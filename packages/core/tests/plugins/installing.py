"""Installs the sample distributions in folders of their own, without the network."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"


def install(names: Iterable[str], into: Path, work: Path) -> Path:
    """`pip install --target into` of the sample distributions; the sources stay clean."""
    sources = []
    for name in names:
        shutil.copytree(SAMPLES / name, work / name, ignore=shutil.ignore_patterns("__pycache__"))
        sources.append(str(work / name))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(into)]
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
        command += ["--no-warn-script-location", "--no-compile"]
    else:
        uv = shutil.which("uv")
        assert uv, "neither pip nor uv is here to install the sample plugins with"
        command = [uv, "pip", "install", "--python", sys.executable]
    done = subprocess.run([*command, *options, *sources], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return into


def lay(name: str, into: Path) -> Path:
    """What an installer leaves of a sample distribution, without the seconds that one takes."""
    source = SAMPLES / name
    shutil.copytree(source / "src", into, dirs_exist_ok=True)
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    told = into / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{key} = {value}" for key, value in project["entry-points"]["opgraft"].items()]
    (told / "entry_points.txt").write_text("\n".join(["[opgraft]", *lines, ""]))
    return into
