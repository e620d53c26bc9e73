"""The kit from its wheel, outside of any tree: it brings all that it needs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from running import run

HERE = Path(__file__).parents[1]
PACKAGE = "opgraft_conformance"
SHIPPED = (".py", ".ini", ".ir", ".in", ".typed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that nothing is left in the sources."""
    if importlib.util.find_spec("setuptools_scm") is None:
        pytest.skip("setuptools-scm, which builds the wheel, is not installed")
    work = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "_version.py", "tests", "build")
    shutil.copytree(HERE, work / "source", ignore=left_out)
    script = (
        "import sys; from setuptools import build_meta; "
        f"print(build_meta.build_wheel({str(work)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=work / "source",
        env={**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": "1.2.3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return work / done.stdout.splitlines()[-1]


def test_the_wheel_has_the_suite_and_nothing_of_the_tree(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = HERE / "src" / PACKAGE
    wanted = {
        f"{PACKAGE}/{path.relative_to(source).as_posix()}"
        for path in source.rglob("*")
        if path.suffix in (".py", ".ini", ".ir", ".in", ".typed")
        and "__pycache__" not in path.parts
    }
    assert len([name for name in wanted if "/suite/test_" in name]) >= 7
    assert len([name for name in wanted if "/programs/" in name]) >= 10
    assert wanted - {f"{PACKAGE}/_version.py"} <= names
    assert [name for name in names if "running" in name or name.startswith("tests")] == []
    (entries,) = [n for n in names if n.endswith("METADATA")]
    assert not [n for n in names if n.endswith("entry_points.txt")], "it may not load by itself"
    text = zipfile.ZipFile(wheel).read(entries).decode()
    assert "Requires-Dist: opgraft-core" in text


def test_the_kit_runs_from_the_wheel_in_both_ways(wheel: Path, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    env = {"PYTHONPATH": str(site)}
    where = run(["opgraft_conformance.where"], work, env)
    assert where.code != 0  # there is no such module: what follows is no accident
    found = subprocess.run(
        [sys.executable, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)"],
        cwd=work,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(site))
    rows = {}
    direct = ["INTERP", "--area", "timing", "--report", "report.json", "-n", "2"]
    through = ["-p", f"{PACKAGE}.plugin", "--pyargs", f"{PACKAGE}.suite.test_timing"]
    through += ["--opgraft-device=interp", "--opgraft-report=report.json"]
    for command in ([PACKAGE, *direct], ["pytest", *through]):
        done = run(command, work, env)
        assert done.code == 0, done.text
        assert done.report["versions"]["opgraft-conformance"] == "1.2.3"
        rows[command[0]] = done.results()
        (work / "report.json").unlink()
    assert rows[PACKAGE] == rows["pytest"]
    assert len(rows["pytest"]) >= 5
