"""Small shapes in Oclgrind, a simulator that sees races between threads and accesses beyond.

It writes what it finds to a log: a right kernel leaves it empty, a planted fault does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARIES = [
    Path("/usr/lib/oclgrind/liboclgrind-rt.so"),
    Path("/usr/lib/x86_64-linux-gnu/oclgrind/liboclgrind-rt.so"),
    Path("/usr/local/lib/liboclgrind-rt.so"),
]

PROGRAMS = """
import numpy as np
from opgraft_tensor import Tensor, nn
rng = np.random.default_rng(0)
x, y = rng.normal(size=(5, 40)).astype(np.float32), rng.normal(size=(40, 7)).astype(np.float32)
a, b = Tensor(x, device="CL"), Tensor(y, device="CL")
e = np.exp(x - x.max(1, keepdims=True))
checks = [
    ((a * 2 + 1) / (a * a + 1), (x * 2 + 1) / (x * x + 1)),
    (a @ b, x @ y),
    (a.softmax(1), e / e.sum(1, keepdims=True)),
    (a.sum(), x.sum()), (a.sum(0), x.sum(0)), (a.max(1), x.max(1)), (a.argmax(1), x.argmax(1)),
    (a.cumsum(1), x.cumsum(1)), (a.T.contiguous(), x.T), (a[:, ::-3], x[:, ::-3]),
    ((a - a.mean(1, keepdims=True)).exp(), np.exp(x - x.mean(1, keepdims=True))),
    (a.cast("float16") + 1, x.astype(np.float16) + np.float16(1)),
]
for number, (found, meant) in enumerate(checks):
    np.testing.assert_allclose(found.numpy(), meant, rtol=2e-3 if number == 11 else 2e-5,
                               atol=1e-5, err_msg=str(number))
z = Tensor(np.zeros(8, np.float32), device="CL")
z[2:5] = 3.0
z[[7, 7, 1]] = Tensor([1.0, 2.0, 4.0], device="CL")
assert z.tolist() == [0, 4, 3, 3, 3, 0, 0, 2]
"""

PLANTED = """
import numpy as np
from opgraft import Device
from opgraft.api import Ops, Space, UOp, compile_linear, dtypes, parse_linear, linear_to_text
import sys
sys.path.insert(0, {tests!r})
import tests_of_cl.programs as p, tests_of_cl.test_groups as g
made = g.reversed_in_groups(2)
broken = type(made)(made.name, tuple(n for n in made.instructions if n.op is not Ops.BARRIER),
                    made.params, (), None, made.launch, made.written)
p.run(Device["CL"], {which}, [np.ones(64, np.float32), np.zeros(64, np.float32)])
"""


@pytest.fixture(scope="module")
def oclgrind() -> Path:
    found = next((p for p in LIBRARIES if p.exists()), None)
    if found is None:
        pytest.skip("Oclgrind is not installed: apt install oclgrind")
    return found


def log_of(code: str, oclgrind: Path, folder: Path, lanes: int) -> str:
    """What Oclgrind has to say of a process."""
    log = folder / "log"
    environment = {
        **os.environ,
        "OPGRAFT_CL_LIBRARY": str(oclgrind),
        "OPGRAFT_CL_LANES": str(lanes),
        "OCLGRIND_LOG": str(log),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_CHECK_API": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("lanes", [1, 32])
def test_programs_of_arrays_race_nowhere(oclgrind: Path, tmp_path: Path, lanes: int) -> None:
    assert log_of(PROGRAMS, oclgrind, tmp_path, lanes) == ""


def test_a_missing_barrier_is_seen(oclgrind: Path, tmp_path: Path) -> None:
    """The same kernel with its barrier and without."""
    package = tmp_path / "tests_of_cl"
    package.symlink_to(Path(__file__).parent)
    for which, found in (("made", False), ("broken", True)):
        code = PLANTED.format(tests=str(tmp_path), which=which)
        log = log_of(code, oclgrind, tmp_path, 0)
        assert ("data race" in log) is found, log
