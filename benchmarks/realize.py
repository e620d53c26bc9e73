"""What stands between an expression and its values, beside tinygrad and NumPy in one run.

    python benchmarks/realize.py [--quick]

A known expression is built anew and realized: its plan and its kernel are there already. The
stages of a kernel are those of its first appearance: planning, lowering and rendering (the
signatures that the matchers met for the first time are counted), and the C compiler; then
the kernel of a shape that is new, while the matcher knows its rules. Times are seconds of this
thread on the processor but for the C compiler, which is another process, and is timed by the
clock.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# before opgraft reads it: no kernel of an earlier run may be found
_folder = tempfile.TemporaryDirectory()
os.environ["OPGRAFT_CACHE"] = _folder.name

from opgraft.ir.codegen import Generator  # noqa: E402
from opgraft.runtime import kernels  # noqa: E402
from opgraft_tensor import Tensor, plan  # noqa: E402

tiny: Any = None
with contextlib.suppress(ImportError, RuntimeError):  # not installed; no device that it can use
    found = importlib.import_module("tinygrad")
    (found.Tensor([1.0]) + 1.0).realize()
    tiny = found


def microseconds(work: Callable[[], object], runs: int) -> tuple[float, float]:
    """Least and median of one call."""
    taken = []
    for _ in range(runs):
        begin = time.thread_time()
        work()
        taken.append((time.thread_time() - begin) * 1e6)
    return min(taken), statistics.median(taken)


def known(runs: int) -> None:
    values = np.arange(16, dtype=np.float32)
    ours = Tensor(values).realize()
    rows: list[tuple[str, Callable[[], object]]] = [
        ("opgraft  x + 1", lambda: (ours + 1.0).realize()),
        ("opgraft  (x * 2 + 1).sum()", lambda: (ours * 2.0 + 1.0).sum().realize()),
        ("numpy    x + 1", lambda: values + 1.0),
        ("numpy    (x * 2 + 1).sum()", lambda: (values * 2.0 + 1.0).sum()),
    ]
    if tiny is not None:
        theirs = tiny.Tensor(values).realize()
        rows[2:2] = [
            ("tinygrad x + 1", lambda: (theirs + 1.0).realize()),
            ("tinygrad (x * 2 + 1).sum()", lambda: (theirs * 2.0 + 1.0).sum().realize()),
        ]
    print(f"{'realize of a known expression':<32}{'min us':>10}{'median us':>12}")
    for title, work in rows:
        work()
        work()
        least, median = microseconds(work, runs)
        print(f"{title:<32}{least:>10.1f}{median:>12.1f}", flush=True)


class Stages:
    """Seconds of each stage, and signatures compiled, since `clear`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.planning = self.lowering = self.compiling = 0.0
        self.signatures = self.kernels = 0


@contextlib.contextmanager
def watched() -> Iterator[Stages]:
    """Stages as they happen: the functions that do them, wrapped while the block runs."""
    found = Stages()
    originals = (plan.schedule, kernels.lower_and_render, kernels.compiled, Generator.steps)

    def planning(*arguments: Any, **named: Any) -> Any:
        begin = time.thread_time()
        made = originals[0](*arguments, **named)
        found.planning += time.thread_time() - begin
        return made

    def lowering(*arguments: Any) -> Any:
        begin = time.thread_time()
        made = originals[1](*arguments)
        found.lowering += time.thread_time() - begin
        found.kernels += 1
        return made

    def compiling(*arguments: Any) -> Any:
        begin = time.perf_counter()
        made = originals[2](*arguments)
        found.compiling += time.perf_counter() - begin
        return made

    def steps(*arguments: Any) -> Any:
        found.signatures += 1
        return originals[3](*arguments)

    plan.schedule, kernels.lower_and_render = planning, lowering  # type: ignore[assignment]
    kernels.compiled, Generator.steps = compiling, steps  # type: ignore[assignment, method-assign]
    try:
        yield found
    finally:
        plan.schedule, kernels.lower_and_render = originals[:2]
        kernels.compiled, Generator.steps = originals[2:]  # type: ignore[method-assign]


def array(*size: int) -> Tensor:
    return Tensor(np.random.default_rng(0).random(size, np.float32))


def attention(length: int) -> Tensor:
    query, key, value = [array(2, 4, length, 64) for _ in range(3)]
    return ((query @ key.transpose(-1, -2)) * 0.125).softmax(axis=-1) @ value


PROGRAMS: dict[str, Callable[[int], Tensor]] = {
    "add": lambda n: array(40 + n) + 1.0,
    "row sum": lambda n: array(40 + n, 300).sum(axis=1),
    "softmax": lambda n: array(40 + n, 100).softmax(axis=1),
    "matmul": lambda n: array(64 + 16 * n, 64) @ array(64, 64),
    "convolution": lambda n: array(2, 8, 16 + n, 16).conv2d(array(8, 8, 3, 3)),
    "attention": lambda n: attention(64 + 16 * n),
}


def stages(shapes: int) -> None:
    print(
        f"\n{'a new kernel, ms':<20}{'kernels':>8}{'plan':>8}{'lower':>8}{'signatures':>11}", end=""
    )
    print(f"{'C compiler':>12}{'next shape: plan':>18}{'lower':>8}")
    with watched() as found:
        for title, program in PROGRAMS.items():
            found.clear()
            program(0).realize()
            first = (found.planning, found.lowering, found.compiling)
            line = f"{title:<20}{found.kernels:>8}{first[0] * 1e3:>8.1f}{first[1] * 1e3:>8.1f}"
            line += f"{found.signatures:>11}{first[2] * 1e3:>12.1f}"
            later = []
            for n in range(1, 1 + shapes):
                found.clear()
                program(n).realize()
                later.append((found.planning, found.lowering))
            line += f"{min(p for p, _ in later) * 1e3:>18.1f}{min(s for _, s in later) * 1e3:>8.1f}"
            print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    quick = parser.parse_args().quick
    known(50 if quick else 400)
    stages(1 if quick else 3)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
