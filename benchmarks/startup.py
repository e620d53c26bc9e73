"""Import time, and a new process to its first result: ours beside NumPy's and tinygrad's.

    python benchmarks/startup.py [--runs 7]

Every figure is a whole process, timed from outside; ours and the peers' take turns in one run.
The first kernel is timed with an empty cache (cold) and with a filled one (warm). Compiled
bytecode is always warm: it is written before anything is timed, whatever the environment says of
it. The last columns are seconds on the processor, which a busy machine disturbs least, and the
modules that the process had in the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

FIRST = (
    "from opgraft_tensor import Tensor; assert (Tensor([1.0, 2.0]) + 1.0).tolist() == [2.0, 3.0]"
)
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


def once(program: str, environment: dict[str, str]) -> tuple[float, float]:
    """Milliseconds by the clock, and on the processor with all that the process started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    taken = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return taken * 1e3, used * 1e3


def works(program: str, environment: dict[str, str]) -> bool:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


def modules(program: str, environment: dict[str, str]) -> int:
    """How many modules are imported in the end."""
    counted = f"{program}\nimport sys; print(len(sys.modules))"
    command = [sys.executable, "-c", counted]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    programs = dict(PROGRAMS)
    with tempfile.TemporaryDirectory() as warm:
        base = {**os.environ, "OPGRAFT_CACHE": warm}
        base.pop("PYTHONDONTWRITEBYTECODE", None)
        if not works(PEER, base):
            print("tinygrad is not installed, or finds no device that it can use")
            programs = {n: p for n, p in programs.items() if "tinygrad" not in n}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        for program in programs.values():
            once(program, base)  # compiled bytecode, file cache
        counts = {name: modules(program, base) for name, program in programs.items()}
        for _ in range(runs):
            for name, program in programs.items():
                if name.endswith("cold"):
                    with tempfile.TemporaryDirectory() as cold:
                        times[name].append(once(program, {**base, "OPGRAFT_CACHE": cold}))
                else:
                    times[name].append(once(program, base))
    bare = statistics.median([t for t, _ in times["python alone"]])
    print(f"{'process':24s}{'median ms':>12s}{'min ms':>10s}{'less python':>13s}", end="")
    print(f"{'processor min':>15s}{'modules':>9s}")
    for name, samples in times.items():
        median = statistics.median([t for t, _ in samples])
        least, used = min(t for t, _ in samples), min(u for _, u in samples)
        count = "" if name.endswith("cold") else counts[name]
        print(f"{name:24s}{median:12.1f}{least:10.1f}{median - bare:13.1f}{used:15.1f}{count:>9}")
    if "tinygrad, warm" in times:
        theirs, ours = (
            statistics.median([t for t, _ in times[name]])
            for name in ("tinygrad, warm", "first result, warm")
        )
        print(f"tinygrad / ours, warm: {theirs / ours:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
