"""A backend that a stranger could have written: `opgraft new-backend`, the kit, a program.

The first test does what a stranger does: wheels, a clean environment, nothing of the checkout in
sight. It needs a package index and a C compiler, and says how long each step took (`pytest -rP`);
on an idle machine with two cores all of it takes well under two minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import opgraft
from opgraft.cli import main

ROOT = Path(__file__).parents[3]
OURS = ("core", "tensor", "conformance")
COMPILERS = ("gcc", "clang", "cc")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
NOT_SOURCE = ("tests", "build", "dist", "__pycache__", "*.egg-info", "_version.py")

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)),
    reason=f"the template's device needs a C compiler, one of {', '.join(COMPILERS)}",
)


def environment(**variables: str) -> dict[str, str]:
    """The environment of this process without what would let the checkout, or settings, in."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPGRAFT_", "PYTHON"))}
    return {**kept, **variables}


def run(words: Sequence[str | Path], cwd: Path, **variables: str) -> str:
    """What a command prints; fails with all of it where the command does."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}"
    return done.stdout


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Says how long a step took."""
    begin = time.perf_counter()
    yield
    print(f"{time.perf_counter() - begin:6.1f} s  {step}")


def start_build(source: Path, into: Path) -> subprocess.Popen[str]:
    """Begin to build the wheel of a package, from a copy: the checkout stays clean."""
    place = into / "source" / source.name
    shutil.copytree(source, place, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(into)],
        cwd=place,
        # a copy is in no repository that it could take its version from
        env=environment(SETUPTOOLS_SCM_PRETEND_VERSION=opgraft.__version__),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish_build(process: subprocess.Popen[str]) -> None:
    """Wait for a build; fails with all that it printed where it does."""
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out


def passed(report: Path) -> dict[str, int]:
    """How often each result is in a report of the kit."""
    found: dict[str, int] = {}
    for row in json.loads(report.read_text(encoding="utf-8"))["rows"]:
        found[row["result"]] = found.get(row["result"], 0) + 1
    return found


def test_a_new_backend_passes_the_kit_and_runs_digits_from_wheels_in_a_clean_environment(
    tmp_path: Path,
) -> None:
    began = time.perf_counter()
    dist, outside, clean = (tmp_path / name for name in ("dist", "outside", "clean"))
    dist.mkdir()
    outside.mkdir()
    cache = str(tmp_path / "cache")
    python, opgraft_command = clean / "bin" / "python", clean / "bin" / "opgraft"

    with timed("a clean environment, and wheels of core, tensor and conformance beside it"):
        building = [start_build(ROOT / "packages" / name, dist) for name in OURS]
        venv.create(clean, with_pip=True)
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-compile",
            "--disable-pip-version-check",
        ]
        run([*pip, "scikit-learn", "pytest-xdist"], outside)
        for process in building:
            finish_build(process)
    with timed("the wheels installed"):
        run([*pip, *sorted(dist.glob("*.whl"))], outside)
    with timed("opgraft new-backend acme, built and installed"):
        run([opgraft_command, "new-backend", "acme"], outside)
        finish_build(start_build(outside / "opgraft-acme", dist))
        run([*pip, *dist.glob("opgraft_acme-*.whl")], outside)
        shutil.rmtree(outside / "opgraft-acme")  # what is run is what is installed
    (told,) = [
        row
        for row in json.loads(run([opgraft_command, "plugins", "--json"], outside))
        if row["name"] == "acme"
    ]
    assert (told["state"], told["distribution"]) == ("loaded", "opgraft-acme")
    with timed("python -m opgraft_conformance acme"):
        processes = str(min(4, os.cpu_count() or 1))
        kit = ["-m", "opgraft_conformance", "acme", "-n", processes, "--report", "report.json"]
        out = run([python, *kit], outside, OPGRAFT_CACHE=cache)
    assert "passes every row of must and should" in out
    counted = passed(outside / "report.json")
    assert counted.get("passed", 0) > 500, counted
    assert "failed" not in counted
    with timed("examples/digits.py on it"):
        shutil.copy(ROOT / "examples" / "digits.py", outside)
        words = ["digits.py", "--epochs", "8"]
        out = run([python, *words], outside, OPGRAFT_DEVICE="ACME", OPGRAFT_CACHE=cache)
    assert "device   ACME" in out
    assert "on the held-out fifth" in out
    where = run([python, "-c", "import opgraft; print(opgraft.__file__)"], outside)
    assert Path(where.strip()).is_relative_to(clean), where
    print(f"{time.perf_counter() - began:6.1f} s  in all")


@pytest.fixture
def laid(tmp_path: Path) -> Path:
    """A folder with a new backend of the grid flavour, as an installer would leave it."""
    assert main(["new-backend", "acme", "--grid", "--into", str(tmp_path)]) == 0
    site = tmp_path / "site"
    shutil.copytree(tmp_path / "opgraft-acme" / "src", site)
    told = site / "opgraft_acme-0.1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.4\nName: opgraft-acme\nVersion: 0.1.0\n")
    (told / "entry_points.txt").write_text("[opgraft]\nacme = opgraft_acme.plugin\n")
    return site


def test_a_new_backend_with_groups_of_threads_passes_the_kit(laid: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    out = run(
        [sys.executable, "-m", "opgraft_conformance", "acme", "-n", "2", "--report", report],
        tmp_path,
        PYTHONPATH=os.pathsep.join([str(laid), *filter(None, sys.path)]),
        OPGRAFT_CACHE=str(tmp_path / "cache"),
        OPGRAFT_PLUGINS="acme",
    )
    assert "passes every row of must and should" in out
    assert passed(report).get("passed", 0) > 500
