"""The door to optimizers: which one is asked, what it is told, what comes back."""

from __future__ import annotations

import pytest

from opgraft import EqualitySet, Ops, PatternMatcher, UOp, UPat, dtypes, simplify, using
from opgraft.errors import OpgraftError
from opgraft.rules.optimizer import Budget, CostModel, Optimized, Optimizer, Stage, greedy
from opgraft.rules.simplify import chosen_optimizer, optimize

X, Y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 99)


class Recorder:
    """An optimizer that changes nothing and remembers what it was asked."""

    name = "recorder"

    def __init__(self) -> None:
        self.asked: list[tuple[int, Budget, Stage]] = []

    def optimize(
        self,
        sink: UOp,
        equalities: EqualitySet,
        *,
        cost: CostModel,
        budget: Budget,
        stage: Stage,
    ) -> Optimized:
        self.asked.append((len(equalities), budget, stage))
        price = cost.graph(sink)
        return Optimized(sink, price, price, "nothing to do", 0.0, self.name)


def test_greedy_is_an_optimizer_and_reports() -> None:
    assert isinstance(greedy, Optimizer)
    found = optimize((X * 4 + 2) // 4, optimizer=greedy)
    assert found.sink is X
    assert found.cost_after < found.cost_before
    assert found.stop == "fixed point"


def test_an_optimizer_that_is_handed_in_is_asked() -> None:
    recorder = Recorder()
    expression = X + 0
    assert simplify(expression, stage="tensor", optimizer=recorder) is expression
    ((_, budget, stage),) = recorder.asked
    assert stage == "tensor"
    assert budget == Budget.of("tensor")


def test_a_lowering_is_applied_after_and_never_given_to_the_optimizer() -> None:
    recorder = Recorder()
    lowering = PatternMatcher([(UPat.var("x") % 8, lambda ctx, x: ctx.append(x) or x & 7, "mask")])
    seen: list[UOp] = []
    rules = EqualitySet([(UPat.var("x") + 0, lambda x: x, "add_zero")])
    made = simplify((X + 0) % 8, rules, lowering, ctx=seen, optimizer=recorder)
    assert made is X & 7
    assert seen == [X]
    assert recorder.asked[0][0] == 1


def test_the_setting_chooses() -> None:
    with using(OPTIMIZER="greedy", EGRAPH=None):
        assert chosen_optimizer() is greedy
    with using(EGRAPH=False):
        assert chosen_optimizer() is greedy
    with (
        using(OPTIMIZER="no_such_optimizer", EGRAPH=None),
        pytest.raises(OpgraftError, match="no_such"),
    ):
        chosen_optimizer()


def test_costs_count_each_node_once() -> None:
    cost = CostModel()
    assert cost.node(X + Y) == 1
    assert cost.node(UOp.const(dtypes.index, 3)) == 0
    shared = X * Y
    assert cost.graph(shared + shared) == cost.node(shared) + cost.node(shared + shared)
    assert cost.node(X // 8) < cost.node(X // 7)
    assert cost.node(X % 8) < cost.node(X % 7)


def test_costs_can_be_weighed_by_loops() -> None:
    outer, inner = UOp.range(10, "i"), UOp.range(20, "j")
    turns = {outer: 10.0, inner: 20.0}

    def weigh(n: UOp) -> float:
        product = 1.0
        for r in n.ranges:
            product *= turns[r]
        return product

    cost = CostModel(weigh=weigh)
    assert cost.node(outer + 1) == 10
    assert cost.node(outer + inner) == 200


def test_the_table_of_costs_names_every_elementwise_operation() -> None:
    from opgraft.ir.ops import GroupOp

    cost = CostModel()
    assert all(op in cost.table for op in sorted(GroupOp.ALU))


def test_only_equalities_are_equalities() -> None:
    from opgraft.errors import RewriteError

    with pytest.raises(RewriteError, match="ctx"):
        EqualitySet([(UPat(Ops.ADD, name="x"), lambda ctx, x: None, "with_context")])
