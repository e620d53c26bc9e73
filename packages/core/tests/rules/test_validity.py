"""What a condition proves about what it guards."""

from __future__ import annotations

from typing import Any

import pytest

from opgraft import UOp, dtypes
from opgraft.ir.ops import Ops
from opgraft.rules import validity
from opgraft.rules.sets import symbolic
from opgraft.rules.simplify import tidy as simplify  # greedy: the rules are meant
from opgraft.rules.validity import simplify_under

R, S = UOp.range(8, "i"), UOp.range(4, "j")
BUFFER = UOp(Ops.PARAM, dtypes.float32, (), (0, 64))


def test_a_gated_index_uses_the_bounds_of_its_gate() -> None:
    gate = (R < 3) & (S < 3)
    made = simplify(BUFFER.load((R * 4 + S) // 12, gate, 0.0))
    assert made is simplify(BUFFER.load(0, gate, 0.0))


def test_a_gate_that_bounds_say_is_true_goes() -> None:
    assert simplify(BUFFER.load(R, R < 8, 0.0)) is BUFFER.load(R)
    padded = (R - 1 < 7) & (UOp.const(dtypes.index, -2) < R - 1)
    assert simplify(BUFFER.load(R, padded, 0.0)) is BUFFER.load(R)


def test_a_vector_load_stays_a_vector_load() -> None:
    wide = UOp.const(dtypes.float32.vec(4), 0.0)
    true = UOp.const(dtypes.bool, True)
    load = UOp(Ops.LOAD, dtypes.float32.vec(4), (BUFFER, R * 4, true, wide))
    assert simplify(load) is UOp(Ops.LOAD, dtypes.float32.vec(4), (BUFFER, R * 4))


def test_a_gate_that_is_false_leaves_the_alternative() -> None:
    other = UOp.const(dtypes.float32, 7.0)
    assert simplify(BUFFER.load(R, R < 0, other)) is other
    never = (R < 3) & (UOp.const(dtypes.index, 4) < R)
    assert simplify(BUFFER.load(R, never, other)) is other


def test_a_store_is_ungated_and_its_index_simplified() -> None:
    value = UOp.const(dtypes.float32, 1.0)
    assert simplify(BUFFER.store(R, value, R < 8)) is BUFFER.store(R, value)
    made = simplify(BUFFER.store(R % 4 + S * 8, value, R < 4))
    assert made is simplify(BUFFER.store(R + S * 8, value, R < 4))


def test_a_bound_of_a_sum_is_used() -> None:
    x = R * 4 + S
    assert simplify((x < 12).where(x // 12, R)) is simplify((R < 3).where(0, R))


def test_both_branches_know_the_condition() -> None:
    x = UOp.variable("x", 0, 99)
    assert simplify((x < 10).where(x // 10, x)) is (x < 10).where(0, x)
    # in the second branch 10 <= x
    assert simplify((x < 10).where(x + 1, x.maximum(5))) is (x < 10).where(x + 1, x)
    assert simplify((x < 90).where(x, x // 10)) is (x < 90).where(x, 9)


def test_clauses_know_each_other() -> None:
    x = UOp.variable("x", 0, 99)
    assert simplify((x < 10) & (x // 10 < 1)) is (x < 10)
    assert simplify((x < 10) & (x < 20)) is (x < 10)
    assert simplify((x < 10) | (x < 20)) is (x < 20)
    assert simplify((x < 10) & (UOp.const(dtypes.index, 20) < x)).const_value is False
    assert simplify((x < 20) | (UOp.const(dtypes.index, 10) < x)).const_value is True


def test_a_load_inside_a_branch_keeps_its_index() -> None:
    # it is carried out whether the condition holds or not
    x = UOp.variable("x", 0, 99)
    guarded = (x < 10).where(BUFFER.load(x % 10), 0.0)
    loads = [n for n in simplify(guarded).toposort() if n.op is Ops.LOAD]
    assert [n.src[1] for n in loads] == [x % 10]


def test_a_reduction_inside_a_branch_keeps_its_own_range() -> None:
    r = UOp.range(8, "r")
    inner = BUFFER.load(r // 4).reduce(Ops.ADD, r)
    outer = (r < 4).where(inner, 1.0)
    assert any(n.op is Ops.IDIV for n in simplify(outer).toposort())


def test_gate_and_value_merge() -> None:
    gate = UOp.variable("x", 0, 99) < 10
    made = simplify(gate.where(BUFFER.load(R, gate, 0.0), 3.0))
    assert made is BUFFER.load(R, gate, 3.0)


def test_nothing_is_claimed_under_an_impossible_condition() -> None:
    x = UOp.variable("x", 0, 99)
    never = (x < 3) & (UOp.const(dtypes.index, 4) < x)
    assert simplify_under(never, x // 7, symbolic) is None


def test_a_known_value_is_not_written_into_the_sizes_of_ranges() -> None:
    # found by the checker: the 7 that the sum is under the gate was put back into RANGE(7) too
    b = UOp.variable("b", 0, 9)
    r = UOp.range(7, "r")
    gate = (b // 3 + r * 2 + 1).eq(7) & (UOp.const(dtypes.index, 2) < r)
    made = simplify(BUFFER.load(b // 3, gate, 0.0))
    assert [n for n in made.toposort() if n.op is Ops.RANGE] == [r]


def test_a_bound_that_decides_nothing_starts_no_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 99)
    started: list[str] = []
    kept = validity.graph_rewrite

    def counted(*args: Any, **options: Any) -> UOp:
        started.append(options["name"])
        return kept(*args, **options)

    monkeypatch.setattr(validity, "graph_rewrite", counted)
    # x below 90 still passes through all rests; y is not mentioned at all
    assert simplify_under(x < 90, x % 8, symbolic) is None
    assert simplify_under(x < 9, y // 8, symbolic) is None
    assert not started
    assert simplify_under(x < 8, x % 8, symbolic) is x
    assert started


def test_what_stands_below_a_load_is_not_rewritten_again() -> None:
    x = UOp.variable("x", 0, 99)
    load = BUFFER.load(x // 2 + x // 2).cast(dtypes.index)
    made = simplify_under(x < 8, x % 8 + load, symbolic)
    assert made is not None
    assert load in made.toposort()
