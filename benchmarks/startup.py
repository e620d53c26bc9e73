"""Import time, and a new process to its first result: ours beside NumPy's and tinygrad's.

    python benchmarks/startup.py [--runs 7]

Every figure is a whole process, timed from outside; ours and the peers' take turns in one run.
The first kernel is timed with an empty cache (cold) and with a filled one (warm).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time

FIRST = "from opgraft_tensor import Tensor; assert (Tensor([1.0, 2.0]) + 1.0).tolist() == [2.0, 3.0]"
PEER = "from tinygrad import Tensor; assert (Tensor([1.0, 2.0]) + 1.0).tolist() == [2.0, 3.0]"
NUMPY = "import numpy as np; assert (np.array([1.0, 2.0]) + 1.0).tolist() == [2.0, 3.0]"

PROGRAMS = {
    "python alone": "pass",
    "import opgraft": "import opgraft",
    "import opgraft.ir": "import opgraft.ir",
    "first result, warm": FIRST,
    "first result, cold": FIRST,
    "numpy, first result": NUMPY,
    "tinygrad, import": "import tinygrad",
    "tinygrad, warm": PEER,
}


def once(program: str, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return (time.perf_counter() - started) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    programs = dict(PROGRAMS)
    if importlib.util.find_spec("tinygrad") is None:
        programs = {n: p for n, p in programs.items() if "tinygrad" not in n}
    times: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as warm:
        base = {**os.environ, "OPGRAFT_CACHE": warm}
        for program in programs.values():
            once(program, base)  # compiled bytecode, file cache
        for _ in range(runs):
            for name, program in programs.items():
                if name.endswith("cold"):
                    with tempfile.TemporaryDirectory() as cold:
                        times[name].append(once(program, {**base, "OPGRAFT_CACHE": cold}))
                else:
                    times[name].append(once(program, base))
    bare = statistics.median(times["python alone"])
    print(f"{'process':24s}{'median ms':>12s}{'min ms':>10s}{'less python':>13s}")
    for name, samples in times.items():
        median = statistics.median(samples)
        print(f"{name:24s}{median:12.1f}{min(samples):10.1f}{median - bare:13.1f}")
    if "tinygrad, warm" in times:
        ours = statistics.median(times["first result, warm"])
        print(f"tinygrad / ours, warm: {statistics.median(times['tinygrad, warm']) / ours:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
