"""The kernels of the corpus with the e-graph in their way: never costlier, the same results.

The corpus lies in the checkout; installed alone, the package has nothing for these tests to read.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from opgraft import Device, settings
from opgraft.api import Budget, CostModel, Loops, Ops, Optimized, UOp, graph_rewrite, sym
from opgraft.lower.pipeline import lower
from opgraft.runtime import Buffer, compile_kernel
from opgraft_egraph import EGraphOptimizer
from opgraft_egraph.kernel.pricelist import CPU

FILE = Path(__file__).parents[3] / "benchmarks" / "corpus.py"
if not FILE.exists():
    pytest.skip("the corpus is part of the repository, not of a package", allow_module_level=True)

EVERY = 1 if os.environ.get("OPGRAFT_CHECK") in ("full", "long") else 9


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"opgraft_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses and tuples look themselves up
    spec.loader.exec_module(module)
    return module


corpus, corpus_kernels = load(FILE), load(FILE.with_name("corpus_kernels.py"))
KERNELS = [(name, sink) for name, sink in corpus.kernels() if not name.startswith("views/")][
    ::EVERY
]


class Recorded(EGraphOptimizer):
    """The e-graph, and what it was given and made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[UOp, Optimized]] = []

    def optimize(
        self, sink: UOp, equalities: object, *, budget: Budget, **rest: object
    ) -> Optimized:
        # counts alone decide, however little of the machine there is for the test
        endless = replace(budget, seconds=math.inf)
        found = super().optimize(sink, equalities, budget=endless, **rest)  # type: ignore[arg-type]
        self.made.append((sink, found))
        return found


@pytest.mark.parametrize("target", ["AVX2", "LANES32"])
def test_no_kernel_is_costlier(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    monkeypatch.setattr("opgraft.rules.simplify.chosen_optimizer", lambda: recorded)
    for _, sink in KERNELS:
        lower(sink, corpus.DEVICES[target].target)
    assert len(recorded.made) == 2 * len(KERNELS)
    for given, found in recorded.made:
        loops = Loops(given)
        greedy = graph_rewrite(given, sym)
        assert CPU.graph((found.sink,), loops) <= CPU.graph((greedy,), loops) * (1 + 1e-12)
        assert found.stop != "seconds"
    looked = [f for _, f in recorded.made if not f.stop.endswith(("to explore", "to gain"))]
    assert len(looked) < 0.2 * len(recorded.made), "an e-graph for a few kernels alone"


GAINS = [("rolled_flat", "AVX2", 1.1), ("pixel_unshuffle", "LANES32", 1.3)]


@pytest.mark.parametrize(("name", "target", "least"), GAINS, ids=[g[0] for g in GAINS])
def test_programs_whose_kernels_compute_indices_gain(name: str, target: str, least: float) -> None:
    """By what the whole program costs: an array rolled over its rows' ends; a picture of 192 x 195
    taken apart into squares of 3 x 3, its channels after each other."""
    sink = view(name)
    costs = []
    for optimizer in ("greedy", "egraph"):
        with settings.using(OPTIMIZER=optimizer, EGRAPH=None, PLUGINS=None, SPEC=True):
            costs.append(corpus.cost_of(lower(sink, corpus.DEVICES[target].target)))
    assert costs[0] >= least * costs[1]


@functools.cache
def view(name: str) -> UOp:
    """The kernel of one of the corpus' programs that take arrays apart and put them together."""
    with settings.using(**corpus_kernels.PLANNED):
        (sink,) = corpus_kernels.kernels_of(corpus_kernels.VIEWS[name])
    assert isinstance(sink, UOp)
    return sink


def test_a_kernel_that_changes_gives_what_it_gave() -> None:
    changed = 0
    for sink in (view("rolled_flat"), *(sink for _, sink in KERNELS)):
        programs = []
        for optimizer in ("greedy", "egraph"):
            with settings.using(OPTIMIZER=optimizer, EGRAPH=None, PLUGINS=None):
                programs.append(lower(sink, corpus.DEVICES["AVX2"].target).instructions)
        if programs[0] != programs[1]:
            changed += 1
            results = [_run(sink, optimizer) for optimizer in ("greedy", "egraph")]
            assert results[0] == results[1]
    assert changed


def _run(sink: UOp, optimizer: str) -> list[bytes]:
    """What all buffers of a kernel hold after a run on small numbers."""
    device = Device["CPU"]
    with settings.using(OPTIMIZER=optimizer, EGRAPH=None, PLUGINS=None, CACHE="off"):
        device.kernels.clear()
        executable = compile_kernel(device, sink)
        device.kernels.clear()
    params = {n.arg[0]: n for n in sink.toposort() if n.op is Ops.PARAM}
    buffers = []
    rng = np.random.default_rng(3)
    for slot in sorted(params):
        size = params[slot].arg[1] * params[slot].dtype.itemsize
        buffers.append(Buffer(device, size))
        words = rng.integers(0, 100, size // 4 + 1).astype(np.float32)
        buffers[-1].copy_in(memoryview(words.tobytes()[:size]))
    executable.run(buffers, wait=True)
    return [bytes(b.memory()) for b in buffers]


def test_prices_that_are_given_are_what_is_reckoned_with() -> None:
    """Without a target the cost model itself decides."""
    n = UOp.variable("n", 0, 99)
    cost = CostModel()
    made = EGraphOptimizer().optimize(
        UOp.sink(n // 7, n % 7), sym, cost=cost, budget=Budget(), stage="index"
    )
    assert made.cost_after == cost.graph(made.sink)
