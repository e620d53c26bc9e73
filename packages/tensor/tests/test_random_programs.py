"""Random programs give NumPy's values under every price; recompute and fusion change no bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import random_programs
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.exchange import storage_values
from opgraft_tensor.realize import realize
from oracle import evaluate_numpy
from planning import CPU, check
from tested import COMPILED, sampled

PRICES = {
    "as it is": CPU,
    "every fusion": CPU._replace(parallel=1, launch=0.0),
    "memory for nothing": CPU._replace(dram=0.01, launch=0.0),
    "memory very dear": CPU._replace(dram=1e4, launch=1e6),
    "small locals, narrow indices": CPU._replace(local_bytes=64, widest=6),
    "four buffers": CPU._replace(max_buffers=4),
}


@pytest.mark.parametrize("prices", PRICES.values(), ids=list(PRICES))
@pytest.mark.parametrize("block", sampled(range(6), 3))
def test_random_programs_equal_numpy(block: int, prices: object) -> None:
    for seed in range(block * 12, block * 12 + 12):
        outputs = random_programs.program(seed)
        buffers = [n for n in UOp.sink(*outputs).toposort() if n.op is Ops.BUFFER]
        live = [b for i, b in enumerate(buffers) if i % 2 or b in outputs]
        check(outputs, prices, live, tolerance=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", sampled(range(500, 512), 3))
def test_random_programs_run_on_the_default_device(seed: int) -> None:
    # no tensor holds the inputs: they may be overwritten, so they are no outputs here
    outputs = [o for o in random_programs.program(seed) if o.op is not Ops.BUFFER]
    expected = [evaluate_numpy(o) for o in outputs]
    for got, want in zip(realize(outputs, COMPILED), expected):
        np.testing.assert_array_equal(storage_values(got.arg), want)


@pytest.mark.thorough
def test_the_fuzzer_runs_by_itself() -> None:
    """As `nox -s fuzz` starts it: in the folder of the tests, with nothing on the path."""
    begun = subprocess.run(
        [sys.executable, "fuzz.py", "--seconds", "0.1", "--seed", "1", "--device", COMPILED],
        cwd=Path(__file__).parent,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert begun.returncode == 0, begun.stderr
    assert " programs on " in begun.stdout
