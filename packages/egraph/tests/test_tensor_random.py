"""Random array programs through the tensor stage: same values, never costlier, always the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("opgraft_tensor", reason="the programs are written with opgraft-tensor")

from opgraft.api import Budget, UOp, dtypes, using
from opgraft_egraph.tensors import tier
from opgraft_egraph.tensors.prices import TensorPrices
from opgraft_egraph.tensors.reading import read
from opgraft_tensor import equivalents
from opgraft_tensor.facts import Prices
from opgraft_tensor.normalise import numbered
from opgraft_tensor.stage import optimized
from tensor_cases.arrays import Programs, value_of

STOPS = ("saturated", "nodes", "rounds")
LONG = os.environ.get("OPGRAFT_CHECK") == "long"
SEEDS = range(400 if LONG else 8)
WORK_ALONE = Prices(dram=0.0, cache=0.0, launch=0.0)
"""Without launches and memory, small products are worth as much thought as large ones."""
COST = equivalents.cost_model(WORK_ALONE)


def through(programs: Programs, level: str) -> tuple[bool, list[np.ndarray], list[np.ndarray]]:
    """Whether the stage changed a program; its values before and after, in float64 or int32."""
    found = numbered([t.uop for t in programs.outputs()], lambda _: False)
    with using(FLOAT=level, EGRAPH=True):
        made, _ = optimized(found.outputs, WORK_ALONE)
    inputs = {
        i: s.host.astype(np.float64) if s.host.dtype.kind == "f" else s.host
        for i, s in enumerate(found.storages)
    }
    before = [value_of(o, inputs) for o in found.outputs]
    after = [value_of(o, inputs) for o in made]
    return made != found.outputs, before, after


def test_at_reassoc_values_are_those_of_the_program() -> None:
    changed = 0
    for seed in SEEDS:
        differs, before, after = through(Programs(seed), "reassoc")
        changed += differs
        for a, b in zip(before, after, strict=True):
            assert a.shape == b.shape, seed
            np.testing.assert_allclose(
                a, b, rtol=1e-5, atol=1e-5 * np.abs(a).max(), err_msg=str(seed)
            )
    assert changed > len(SEEDS) // 4


def test_at_strict_integers_are_the_same_bits() -> None:
    changed = 0
    for seed in SEEDS:
        differs, before, after = through(Programs(seed, np.int32), "strict")
        changed += differs
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(seed))
    assert changed > len(SEEDS) // 4


def test_at_strict_floats_are_the_same_graph() -> None:
    """So they are the same kernels, and the same bits."""
    for seed in SEEDS:
        assert not through(Programs(seed), "strict")[0], seed


@pytest.mark.parametrize("seed", [2])
def test_at_strict_a_run_has_the_same_bits_as_greedy(seed: int) -> None:
    found = []
    for egraph in (False, True):
        with using(EGRAPH=egraph, FLOAT="strict"):
            first, *rest = Programs(seed).outputs()
            first.realize(*rest)
            found.append([t.numpy() for t in (first, *rest)])
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()


def test_no_graph_becomes_costlier_and_nodes_decide_when_it_ends_not_the_time() -> None:
    for seed in SEEDS:
        found = numbered([t.uop for t in Programs(seed).outputs()], lambda _: False)
        with using(FLOAT="reassoc"):
            sink = UOp.sink(*found.outputs)
            made = tier.optimize(sink, COST, Budget.of("tensor"))
        assert made.cost_after <= made.cost_before
        assert (made.sink is sink) == (made.cost_after == made.cost_before)
        assert made.stop in {*STOPS, "nothing to explore", "nothing to gain"}


_SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from opgraft.api import using
from opgraft_tensor.normalise import numbered
from opgraft_tensor.stage import optimized
from tensor_cases.arrays import Programs
from test_tensor_random import WORK_ALONE
for seed in (7, 8):
    found = numbered([t.uop for t in Programs(seed).outputs()], lambda _: False)
    with using(FLOAT="reassoc", EGRAPH=True):
        made, changes = optimized(found.outputs, WORK_ALONE)
    print(seed, made != found.outputs, *[node.key for node in made])
"""


def test_every_process_comes_to_the_same_graph() -> None:
    script = _SCRIPT.format(here=str(Path(__file__).parent))
    texts = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert "True" in texts[0]


def test_a_search_keeps_within_its_room() -> None:
    grown = []
    for seed in SEEDS:
        found = numbered([t.uop for t in Programs(seed).outputs()], lambda _: False)
        terms = read(found.outputs, (dtypes.float32,))
        search = tier._Search(terms, TensorPrices.of(COST), "reassoc")
        room = 40 + len(UOp.sink(*terms.roots).toposort())
        stop, _, _ = search.run(room, 8)
        grown.append(stop)
        assert sum(1 for _ in search.graph.nodes()) <= room + 8
    assert "nodes" in grown
