"""benchmarks/workloads.py: libraries take turns, and each result is compared with its reference.

The benchmarks lie in the checkout; installed alone, the package has nothing for these tests to run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "workloads.py"
if not FILE.exists():
    pytest.skip("benchmarks are part of the repository", allow_module_level=True)

CASES = """
import numpy as np
from types import SimpleNamespace
def make():
    return [np.arange(4, dtype=np.float32)]
def reference(a):
    return a.astype(np.float64) * 2
C = {"double": SimpleNamespace(name="double", make=make, ref=reference, rtol=1e-6, inner=10)}
"""
ADAPTER = """
import os, time
def setup(threads):
    assert os.environ["OMP_NUM_THREADS"] == str(threads)
def to_numpy(result):
    return result
def twice(seconds, form):
    def case(a):
        def call():
            open({log!r}, "a").write(f"{{__name__}}{{form}} ")
            time.sleep(seconds)
            return a * {factor}
        return call
    return case
CASES = {{"double": twice({seconds}, ""), "double:late": twice(0.01, ":late")}}
"""


@pytest.mark.thorough
def test_libraries_take_turns_and_wrong_results_have_no_time(tmp_path: Path) -> None:
    folder, log = tmp_path / "bench", tmp_path / "log"
    (folder / "adapters").mkdir(parents=True)
    (folder / "cases.py").write_text(CASES)
    for name, factor, seconds in (("ours_", 2, 0.0), ("peer_", 2, 0.004), ("wrong_", 3, 0.0)):
        text = ADAPTER.format(log=str(log), factor=factor, seconds=seconds)
        (folder / "adapters" / f"{name}.py").write_text(text)
    (folder / "adapters" / "absent_.py").write_text("import no_such_library")
    command = [sys.executable, str(FILE), "--folder", str(folder), "--case", "double"]
    options = ["--libraries", "ours_,peer_,wrong_,absent_", "--rounds", "3"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr  # because of the wrong one
    lines = ran.stdout.splitlines()
    assert any("absent_: left out, No module named 'no_such_library'" in line for line in lines)
    (row,) = [line for line in lines if line.startswith("double ")]
    assert "wrong_double: off by" in row
    cells = row.split()
    assert cells[5] == "-", row  # a wrong result is not timed
    assert float(cells[1]) < 1 < 4 <= float(cells[3]), row  # the best form of each, in ms
    assert float(cells[6]) > 4, row  # the best peer over ours
    calls = log.read_text().split()
    turns = [name for name, after in zip(calls, [*calls[1:], ""], strict=True) if name != after]
    begin = ["ours_", "ours_:late", "peer_", "peer_:late", "wrong_", "wrong_:late"]
    assert turns == begin + begin[:4] * 3
