"""Random tensor programs on devices and in NumPy: every result equal, for as long as asked.

python fuzz.py [--seconds 60] [--seed N] [--devices CPU,INTERP]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

import numpy as np

import random_programs
from opgraft.ir.ops import Ops
from opgraft_tensor.exchange import storage_values
from opgraft_tensor.realize import realize
from oracle import evaluate_numpy


def differences(seed: int, devices: Sequence[str]) -> list[str]:
    """What the program of this seed gets wrong, by device; the NumPy oracle says what is right."""
    # no tensor holds the inputs: they may be overwritten, so they are no outputs here
    outputs = [o for o in random_programs.program(seed) if o.op is not Ops.BUFFER]
    expected = [evaluate_numpy(o) for o in outputs]
    found = []
    for device in devices:
        again = [o for o in random_programs.program(seed) if o.op is not Ops.BUFFER]
        try:
            results = [storage_values(made.arg) for made in realize(again, device)]
        except Exception as error:  # whatever it is, it is a finding, and the seed is wanted
            found.append(f"seed {seed} on {device}: {type(error).__name__}: {error}")
            continue
        for number, (got, want) in enumerate(zip(results, expected)):
            if not np.array_equal(got, want, equal_nan=want.dtype.kind == "f"):
                found.append(f"seed {seed} on {device}: output {number} differs")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first program")
    parser.add_argument("--devices", default="CPU", help="names, separated by commas")
    given = parser.parse_args(arguments)
    first = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    print(f"seed {first}", flush=True)
    begin, count, failures = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < given.seconds:
        for text in differences(first + count, given.devices.split(",")):
            print(text, flush=True)
            failures += 1
        count += 1
    print(f"tensor programs: {count} on {given.devices}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
