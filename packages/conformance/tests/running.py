"""Runs of the kit, and of small suites under its plugin, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 600

SUITE = """
import os
import numpy as np
import pytest
from opgraft_conformance import Fault, not_claimed

@pytest.mark.must
def test_right(device, reference, capabilities, seed, effort):
    assert reference.name == "INTERP" and effort == "short" and seed == 5
    assert capabilities.max_buffers >= 1 and device.name == "INTERP"

@pytest.mark.should
@pytest.mark.parametrize("dtype", ["int8", "a b"])
def test_also_right(dtype):
    pass

@pytest.mark.must
@pytest.mark.claims("a thousand dimensions", lambda target: target.group_dims > 1000)
def test_beyond():
    raise AssertionError("never run")

@pytest.mark.may
def test_decided_inside():
    not_claimed("a moon")
"""
FAULTY = """
@pytest.mark.{level}
def test_wrong():
    raise Fault("ADD of int8 is wrong", {{"values": "100 + 100", "got": 200, "expected": -56}},
                hint="Renderer.binary")
"""


@dataclass
class Done:
    """A run that has ended."""

    code: int
    text: str
    report: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of the report by their names."""
        found = {row["row"]: row for row in self.report["rows"]}
        assert len(found) == len(self.report["rows"])
        return found

    def results(self) -> dict[str, str]:
        """The result of each row of the report."""
        return {name: row["result"] for name, row in self.rows().items()}


def run(
    command: list[str], folder: Path, env: Mapping[str, str] | None = None, report: bool = True
) -> Done:
    """`python -m ...` in a folder; with `report`, what it wrote to report.json there."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPGRAFT_", "PYTEST_"))}
    if "OPGRAFT_CACHE" in os.environ:
        clean["OPGRAFT_CACHE"] = os.environ["OPGRAFT_CACHE"]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**clean, "COLUMNS": "100", **(env or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    written = folder / "report.json"
    content = json.loads(written.read_text()) if report and written.is_file() else {}
    return Done(done.returncode, done.stdout + done.stderr, content)


def run_suite(folder: Path, text: str, *options: str, device: str = "INTERP") -> Done:
    """A small suite under the plugin, through pytest."""
    (folder / "test_sample.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    command = ["pytest", "-p", "opgraft_conformance.plugin", f"--opgraft-device={device}"]
    command += ["--opgraft-report=report.json", "--opgraft-seed=5", *options, "test_sample.py"]
    return run(command, folder)


def run_kit(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Done:
    """The kit itself, as its users run it."""
    return run(["opgraft_conformance", *arguments, "--report", "report.json"], folder, env)
