"""The e-graph in the compile path of kernels, beside greedy rewriting, in one run.

    python benchmarks/egraph_kernels.py [examples] [corpus] [random] [--count 5000] [--runs 7]

- examples: index math that greedy rewriting cannot have. Costs by the weights they were published
  with (a division 6, any other operation 1, times how often the loops have it computed), and the
  time of a kernel that loads at these indices, on this CPU, one thread: the least of several runs.
- corpus: the whole way of every kernel of the corpus to a program, its time beside greedy's (the
  least of several on the processor), how many programs are cheaper, and by how much in all.
- random: random index expressions: never costlier, equal, how many are cheaper, by how much in all.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import corpus
import numpy as np

from opgraft import Device, Ops, UOp, dtypes, settings
from opgraft.ir.linear import KernelInfo
from opgraft.lower.pipeline import lower
from opgraft.rules.loops import Loops
from opgraft.rules.optimizer import Budget
from opgraft.rules.sets import sym
from opgraft.rules.simplify import tidy
from opgraft.runtime import Buffer, compile_kernel
from opgraft_egraph.kernel.pricelist import CPU, PLAIN, PriceList
from opgraft_egraph.kernel.tiers import INDEX, SCALAR, explore

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "egraph" / "tests"))

from egraph_cases import index_math
from egraph_cases.index_math import Roots, loading_kernel, random_roots, same_values

OPTIMIZERS = ("greedy", "egraph")
VECTOR_DIVISIONS = dict.fromkeys((Ops.IDIV, Ops.MOD), CPU.in_vectors * CPU.table[Ops.IDIV])
"""Kernels of the scalar tier are in vectors when it sees them."""
REPEATS = 1_000
"""Times that a kernel of an example goes through all its indices."""


class Example(NamedTuple):
    make: Callable[[], Roots]
    known: float | None
    """The cost that was published, if any."""


EXAMPLES = {
    "1 flipped view": Example(index_math.flipped_view, 14.23),
    "2 flipped both ways": Example(index_math.flipped_both_ways, 7.00),
    "3 blocks of an image": Example(index_math.blocks_of_an_image, 18.01),
    "4 four lanes": Example(index_math.four_lanes, 13.08),
    "5 blocked layout": Example(index_math.blocked_layout, 8.00),
    "6 exclusive loads": Example(index_math.exclusive_loads, None),
    "trap: x//7 and x%7": Example(index_math.quotient_and_rest, None),
    "own: rolled picture": Example(index_math.rolled_picture, None),
}


def piecewise() -> tuple[UOp, int, int]:
    """A choice of two exponentials: one exponential of a choice. Our own, of the scalar tier."""
    size = 1 << 20
    i = UOp.range(size, 0)
    out, x, y = (UOp(Ops.PARAM, dtypes.float32, (), (slot, size)) for slot in range(3))
    a, b = x.load(i), y.load(i)
    value = (a < 0.0).where((a * 2.0).exp2(), (a + b).exp2())
    sink = UOp.sink(out.store(i, value).end(i), arg=KernelInfo("piecewise"))
    return sink, size, size


def four_digits() -> tuple[UOp, int, int]:
    """Four decimal digits of whole numbers, each in four bits. Our own, of the scalar tier."""
    size = 1 << 20
    i = UOp.range(size, 0)
    out, data = (UOp(Ops.PARAM, dtypes.int32, (), (slot, size)) for slot in range(2))
    n = data.load(i)
    value = n % 10
    for place in (1, 2, 3):
        value = value + n // 10**place % 10 * 16**place
    sink = UOp.sink(out.store(i, value).end(i), arg=KernelInfo("four_digits"))
    return sink, size, size


SCALARS = {"own: piecewise exp2": piecewise, "own: decimal digits": four_digits}


def seconds(sink: UOp, size: int, most: int, runs: int) -> tuple[float, float]:
    """Nanoseconds of an element with greedy rewriting and with the e-graph."""
    device = Device["CPU"]
    count = len({n.arg[0] for n in sink.toposort() if n.op is Ops.PARAM})
    made, results = [], []
    for optimizer in OPTIMIZERS:
        with settings.using(OPTIMIZER=optimizer, EGRAPH=None, CACHE="off", CPU_THREADS=1):
            executable = compile_kernel(device, sink)
        buffers = [Buffer(device, size * 4)] + [Buffer(device, most * 4) for _ in range(count - 1)]
        data = np.random.default_rng(1).standard_normal(most, dtype=np.float32)
        for buffer in buffers[1:]:
            buffer.copy_in(memoryview(data).cast("B"))
        made.append((executable, buffers))
    best = [float("inf")] * len(made)
    with settings.using(CPU_THREADS=1):
        for _ in range(runs):
            for place, (executable, buffers) in enumerate(made):
                begin = time.perf_counter()
                executable.run(buffers, wait=True)
                best[place] = min(best[place], time.perf_counter() - begin)
    for _, buffers in made:
        results.append(np.frombuffer(buffers[0].memory(), dtype=np.float32).copy())
    assert (results[0] == results[1]).all(), "other results"
    return best[0] / size * 1e9, best[1] / size * 1e9


def show_examples(runs: int) -> None:
    """Costs and times of the examples."""
    print(f"{'example':22} {'as given':>9} {'greedy':>7} {'egraph':>7} {'known':>7}   "
          f"{'greedy':>7} {'egraph':>7}   ns an element")  # fmt: skip
    for name, example in EXAMPLES.items():
        roots = example.make()
        sink = UOp.sink(*roots)
        found = explore(sink, sym, INDEX, Budget(), PLAIN)
        assert same_values(roots, found.sink.src), name
        given = PLAIN.graph(roots, Loops(sink))
        known = "" if example.known is None else f"{example.known:.2f}"
        greedy, egraph = seconds(*loading_kernel(roots, REPEATS), runs)
        print(f"{name:22} {given:9.2f} {found.before:7.2f} {found.after:7.2f} {known:>7}   "
              f"{greedy:7.2f} {egraph:7.2f}   {greedy / egraph:.2f} x", flush=True)  # fmt: skip
    lanes = dataclasses.replace(CPU, table={**CPU.table, **VECTOR_DIVISIONS})
    for name, make in SCALARS.items():
        sink, *sizes = make()
        found = explore(sink, sym, SCALAR, Budget(), lanes)
        greedy, egraph = seconds(sink, *sizes, runs)
        print(f"{name:22} {'':9} {found.before:7.2f} {found.after:7.2f} {'':>7}   "
              f"{greedy:7.2f} {egraph:7.2f}   {greedy / egraph:.2f} x")  # fmt: skip


def show_corpus(runs: int) -> None:
    """What the whole way of a kernel takes, and what it gains."""
    for name, device in corpus.DEVICES.items():
        spent = dict.fromkeys(OPTIMIZERS, 0.0)
        worst, better, changed, gains, count = 0.0, 0, 0, [], 0
        for _, sink in corpus.kernels():
            least, costs, programs = {}, {}, {}
            for optimizer in OPTIMIZERS:
                with settings.using(OPTIMIZER=optimizer, EGRAPH=None):
                    program = lower(sink, device.target)  # what is learnt once
                    times = []
                    for _ in range(runs):
                        begin = time.thread_time()
                        lower(sink, device.target)
                        times.append(time.thread_time() - begin)
                least[optimizer] = min(times)
                costs[optimizer] = corpus.cost_of(program)
                programs[optimizer] = program.instructions
                spent[optimizer] += least[optimizer]
            count += 1
            worst = max(worst, least["egraph"] / least["greedy"])
            if programs["egraph"] != programs["greedy"]:
                changed += 1
                gains.append(costs["greedy"] / costs["egraph"])
                better += costs["egraph"] < costs["greedy"]
        ratio = spent["egraph"] / spent["greedy"]
        gained = f", {statistics.geometric_mean(gains):.3f} x in the mean" if gains else ""
        print(f"corpus on {name}: {count} kernels, {spent['greedy'] * 1e3:.0f} ms greedy, "
              f"{spent['egraph'] * 1e3:.0f} ms egraph: {ratio:.2f} x (worst {worst:.2f} x); "
              f"{changed} other programs, {better} cheaper{gained}", flush=True)  # fmt: skip


def show_random(count: int) -> None:
    """Random index expressions by the plain weights and by those of this CPU."""
    for prices in (PLAIN, CPU):
        print(_random_line(count, prices), flush=True)


def _random_line(count: int, prices: PriceList) -> str:
    rng = random.Random(5)
    better, before, after, begin, greedy = 0, 0.0, 0.0, time.thread_time(), 0.0
    for _ in range(count):
        roots = random_roots(rng)
        sink = UOp.sink(*roots)
        start = time.thread_time()
        tidied = tidy(sink)
        greedy += time.thread_time() - start
        found = explore(sink, sym, INDEX, Budget(), prices)
        loops = Loops(sink)
        costs = [prices.graph(s.src, loops) for s in (tidied, found.sink)]
        assert costs[1] <= costs[0] + 1e-9, roots
        assert same_values(roots, found.sink.src), roots
        better += costs[1] < costs[0] - 1e-9
        before, after = before + costs[0], after + costs[1]
    spent = time.thread_time() - begin
    return (
        f"random, {prices.name}: {count} expressions, none costlier, all equal, {better} cheaper "
        f"({better / count:.0%}); cost {before:.0f} -> {after:.0f} "
        f"({1 - after / before:.1%} less); {spent / count * 1e3:.1f} ms each with the comparison, "
        f"{greedy / count * 1e3:.2f} of greedy"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="examples, corpus, random; none: all")
    parser.add_argument("--count", type=int, default=5_000, help="of random expressions")
    parser.add_argument("--runs", type=int, default=7)
    given = parser.parse_args()
    parts = given.parts or ["examples", "corpus", "random"]
    if "examples" in parts:
        show_examples(given.runs)
    if "corpus" in parts:
        show_corpus(min(given.runs, 3))
    if "random" in parts:
        show_random(given.count)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
