"""Temporaries share memory only where their lives do not meet."""

from __future__ import annotations

import random

import numpy as np

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.facts import Prices
from opgraft_tensor.memory import ALIGNMENT, Life, arrange
from opgraft_tensor.normalise import canonical
from opgraft_tensor.plan import schedule
from planning import array, check


def test_lives_that_meet_never_overlap() -> None:
    rng = random.Random(3)
    for _ in range(200):
        lives = []
        for _ in range(rng.randrange(1, 20)):
            first = rng.randrange(20)
            lives.append(Life(rng.randrange(1, 5000), first, first + rng.randrange(6)))
        offsets, total = arrange(lives)
        for i, a in enumerate(lives):
            assert offsets[i] % ALIGNMENT == 0
            assert offsets[i] + a.nbytes <= total
            for j, b in enumerate(lives[:i]):
                apart = a.last < b.first or b.last < a.first
                beside = offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]
                assert apart or beside


def test_a_chain_takes_the_room_of_two() -> None:
    lives = [Life(1000, i, i + 1) for i in range(10)]
    assert arrange(lives)[1] == 2 * 1024


def test_nothing_takes_no_room() -> None:
    assert arrange([]) == ([], 0)


def chain(x: UOp, length: int) -> UOp:
    """Products, each in memory of its own."""
    for _ in range(length):
        x = graph.materialize(graph.elementwise(Ops.ADD, x, graph.flip(x, (0,))))
    return x


def test_a_chain_of_stored_arrays_lives_in_two_places() -> None:
    x = array(np.arange(32.0))
    plan = schedule(canonical([chain(x, 8)], lambda _: False).outputs, Prices())
    assert len(plan.kernels) == 8
    assert plan.arena == 2 * 128
    check([chain(x, 8)])


def test_results_and_inputs_are_no_part_of_the_arena() -> None:
    x = array(np.arange(32.0))
    first = graph.materialize(graph.elementwise(Ops.ADD, x, graph.flip(x, (0,))))
    second = chain(first, 3)
    graph_ = canonical([second, first], lambda _: False)
    plan = schedule(graph_.outputs, Prices())
    numbers = [a for a, _ in plan.results]
    assert len(set(numbers)) == 2
    assert all(plan.arrays[a].offset is None and plan.arrays[a].slot is None for a in numbers)
    check([second, first])


def test_two_results_of_one_value_do_not_share_memory() -> None:
    x = array(np.arange(12.0))
    y = graph.elementwise(Ops.ADD, x, x)
    outputs = [graph.reshape(y, (3, 4)), graph.reshape(y, (2, 6)), graph.reshape(x, (4, 3))]
    plan = schedule(canonical(outputs, lambda _: False).outputs, Prices())
    assert len(plan.kernels) == 1
    assert len({a for a, _ in plan.results}) == 3
    assert all(plan.arrays[a].slot is None for a, _ in plan.results)
    check(outputs)


def test_a_loop_with_an_unrelated_temporary() -> None:
    """Four steps of acc = acc*x + 1 at x = 3, G02 of the cases: 40."""
    x = array([3.0])
    acc = graph.full((1,), graph.dtypes.float32, 0.0)
    one = graph.full((1,), graph.dtypes.float32, 1.0)
    others = []
    for _ in range(4):
        acc = graph.materialize(graph.elementwise(Ops.ADD, graph.elementwise(Ops.MUL, acc, x), one))
        others.append(graph.materialize(graph.elementwise(Ops.MUL, acc, x)))
    total = others[0]
    for other in others[1:]:
        total = graph.elementwise(Ops.ADD, total, other)
    check([acc, total])
