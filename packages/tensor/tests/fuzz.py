"""Random programs on a device and in NumPy, every result equal, for as long as asked.

Two kinds by turns: array graphs (random_programs.py, which try the planner) and programs of
Tensor's methods (tensor_programs.py), cut down to what fails and printed as Python.

python packages/tensor/tests/fuzz.py [--seconds 60] [--seed N] [--device CPU]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "core" / "tests"))

import random_programs
import statements
import tensor_programs
from opgraft.ir.ops import Ops
from opgraft.ir.uop import toposort
from opgraft_tensor.exchange import storage_values
from opgraft_tensor.realize import realize
from oracle import evaluate_numpy


def differences(seed: int, device: str) -> list[str]:
    """What the array graphs of this seed give wrong; the NumPy oracle says what is right."""
    # no tensor holds the inputs: they may be overwritten, so they are no outputs here
    outputs = [o for o in random_programs.program(seed) if o.op is not Ops.BUFFER]
    for node in toposort(outputs):
        if node.op is Ops.BUFFER:  # its content is on the host yet
            node.arg.device = device
    expected = [evaluate_numpy(o) for o in outputs]
    try:
        results = [storage_values(made.arg) for made in realize(outputs, device)]
    except Exception as error:  # whatever it is, it is a finding, and the seed is wanted
        return [f"graph of seed {seed} on {device}: {type(error).__name__}: {error}"]
    return [
        f"graph of seed {seed} on {device}: output {number} differs"
        for number, (got, want) in enumerate(zip(results, expected))
        if not np.array_equal(got, want, equal_nan=want.dtype.kind == "f")
    ]


def tensor_differences(seed: int, device: str) -> list[str]:
    """What the tensor program of this seed gives wrong, with a shrunk program to try."""
    made = tensor_programs.program(seed)
    if statements.failure(made, device) is None:
        return []
    small = statements.shrunk(made, device)
    why = statements.failure(small, device)
    return [f"program of seed {seed} on {device}: {why}\n{small.source(device)}\n"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first program")
    parser.add_argument("--device", default="CPU", help="such as CPU or INTERP")
    given = parser.parse_args(arguments)
    first = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    print(f"seed {first}", flush=True)
    begin, count, failures = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < given.seconds:
        for found in (differences, tensor_differences):
            for text in found(first + count // 2, given.device):
                print(text, flush=True)
                failures += 1
            count += 1
    print(f"{count} programs on {given.device}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
