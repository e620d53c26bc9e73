"""Programs whose cost lies in the order of their products: time as written, and by the e-graph.

    python benchmarks/tensor_stage.py [NAME ...] [--level reassoc|unsafe] [--runs N]
    python benchmarks/tensor_stage.py --corpus

One process, one thread, the two taking turns; the least processor time of each counts, and the time
to plan apart from it. The examples are those of the measurements that the tier is built on (7 to
12), the traps among them, and programs of the tests. `=`: the stage left it as it is written.
`--corpus`: what the stage adds to planning and lowering of the corpus of tensor programs, the C
compiler's time apart.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "packages/core/tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/tensor/tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/egraph/tests"))

import programs
import test_tensor_gains as gains
import test_tensor_stage as stage
from opgraft import Device
from opgraft.api import using
from opgraft.lower.pipeline import lower
from opgraft_tensor import Tensor
from opgraft_tensor.assemble import schedule
from opgraft_tensor.facts import Prices
from opgraft_tensor.normalise import in_stages, numbered
from opgraft_tensor.stage import optimized
from tensor_cases.programs import Case

N = 512
CASES: dict[str, Case] = {
    "7 two chains": Case(gains.two_chains, *[(N, N)] * 4),
    "7 three of one": Case(gains.three_of_one, *[(N, N)] * 5),
    "8 six short queries": Case(gains.short_queries, (2048, 64), (2048, 64), *[(16, 64)] * 6),
    "9 five that use a product": Case(gains.many_columns, *[(1024, 1024)] * 2, *[(1024, 256)] * 5),
    "10 rank 32": Case(gains.gradient_twice, *[(1024, 32)] * 2, *[(1024, 64)] * 2),
    "10 rank 512": Case(gains.gradient_twice, *[(256, 512)] * 2, *[(256, 256)] * 2),
    "11 gram times vector": Case(gains.gram_times_vector, (4096, 256), (256, 256), (256,)),
    "12 exp of a broadcast sum": Case(gains.weights_of_a_sum, (2048,), (2048,), (2048, 2048)),
    "12 exp times exp": Case(gains.product_of_two, *[(2048, 1024)] * 2),
    "12 exp used elsewhere": Case(gains.used_elsewhere, *[(2048, 1024)] * 3),
    "trap: QKV of 16 rows": Case(gains.queries_keys_values, (16, 512), *[(512, 512)] * 3),
    "trap: low rank at 1 row": Case(
        gains.low_rank_update, (1, 1024), (1024, 1024), (1024, 32), (32, 1024)
    ),
    "trap: layernorm": Case(gains.layernorm, (4096, 1024), (1024,), (1024,)),
    "low rank at 4096 rows": Case(
        gains.low_rank_update, (4096, 512), (512, 512), (512, 128), (128, 512)
    ),
    "four narrow products joined": Case(gains.narrow_ones, (65536, 16), *[(16, 16)] * 4),
    "gradient of three": Case(stage.gradient_of_three, (512, 256), *[(256, 256)] * 3),
    "softmax @ v": Case(gains.softmax_of, (1024, 1024), (1024, 64)),
}


class Runner:
    """A case on inputs that stay, planned under one setting."""

    def __init__(self, case: Case, egraph: bool, level: str) -> None:
        self.case, self.egraph, self.level = case, egraph, level
        self.inputs = [Tensor(x) for x in case.inputs]
        for one in self.inputs:
            one.realize()
        begin = time.perf_counter()
        self.run()
        self.first = time.perf_counter() - begin
        self.least = float("inf")

    def run(self) -> None:
        with using(EGRAPH=self.egraph, FLOAT=self.level, CPU_THREADS=1):
            made = self.case.program(*self.inputs)
            first, *rest = [made] if isinstance(made, Tensor) else made
            first.realize(*rest)
            first.memory().buffer.device.synchronize()

    def time(self) -> None:
        # what other processes do meanwhile is not counted
        begin = time.process_time()
        self.run()
        self.least = min(self.least, time.process_time() - begin)


def planning(case: Case, level: str) -> tuple[float, bool]:
    """Seconds in the stage, once its rules are known; whether it changed the program."""
    least, changed = float("inf"), False
    for _ in range(3):
        with using(EGRAPH=True, FLOAT=level):
            found = numbered([t.uop for t in case.outputs()], lambda _: False)
            begin = time.perf_counter()
            made, _ = optimized(found.outputs, Prices())
            least = min(least, time.perf_counter() - begin)
            changed = made != found.outputs
    return least, changed


def corpus(level: str) -> None:
    """Processor time of the stage beside that of planning and lowering by greedy."""
    target = Device["CPU"].target
    everything = [0.0, 0.0]
    for make in programs.ALL:
        graph = numbered([o.uop for o in make(programs.Nodes)], lambda _: False)
        least = [float("inf"), float("inf")]
        for _ in range(3):
            with using(FLOAT=level, EGRAPH=True):
                begin = time.process_time()
                _, changes = optimized(graph.outputs, Prices())
                least[0] = min(least[0], time.process_time() - begin)
            with using(FLOAT=level, EGRAPH=False):
                begin = time.process_time()
                for kernel in schedule(in_stages(graph.outputs), Prices(), "CPU").kernels:
                    lower(kernel.sink, target)
                least[1] = min(least[1], time.process_time() - begin)
        everything = [a + b for a, b in zip(everything, least)]
        print(
            f"{make.__name__:16s} greedy {least[1] * 1e3:8.1f}ms  stage {least[0] * 1e3:7.1f}ms  "
            f"{1 + least[0] / least[1]:5.2f}  {changes[0] if changes else ''}",
            flush=True,
        )
    print(f"together {1 + everything[0] / everything[1]:.2f}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the names of the programs to run")
    parser.add_argument("--level", default="reassoc", choices=("strict", "reassoc", "unsafe"))
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--corpus", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.corpus:
        corpus(chosen.level)
        return
    print(f"{'program':28s} {'written':>10s} {'e-graph':>10s} {'times':>6s} {'planning':>10s}")
    for name, case in CASES.items():
        if chosen.names and not any(part in name for part in chosen.names):
            continue
        pair = [Runner(case, egraph, chosen.level) for egraph in (False, True)]
        for _ in range(chosen.runs):
            for one in pair:
                one.time()
        written, found = (one.least * 1e3 for one in pair)
        seconds, changed = planning(case, chosen.level)
        print(
            f"{name:28s} {written:8.3f}ms {found:8.3f}ms {written / found:6.2f} "
            f"{seconds * 1e3:8.1f}ms {'' if changed else '='}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
