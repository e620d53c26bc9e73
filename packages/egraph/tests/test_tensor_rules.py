"""The rules of the tensor tier hold: both sides of each are computed, and wrong ones are found."""

from __future__ import annotations

import os
from random import Random

import pytest

from opgraft.api import EqualitySet, Ops, UOp, UPat, dtypes, errors
from opgraft_egraph import EGraph, Schedule
from opgraft_egraph.tensors import forms, tier
from opgraft_egraph.tensors.forms import Contraction, Leaf
from opgraft_egraph.tensors.law import contraction, law
from tensor_cases.canaries import CANARIES
from tensor_cases.checking import check
from tensor_cases.terms import Maker
from tensor_cases.values import Values, same

LONG = os.environ.get("OPGRAFT_CHECK") == "long"
ROUNDS = 2_000 if LONG else 180


@pytest.fixture(scope="module")
def checked() -> dict[bool, tuple[dict[str, int], list[str]]]:
    """By whether there are exponentials: how often each rule fired, and what was wrong."""
    rules = EqualitySet([*tier.equalities("unsafe").rules, *_of_reassoc().rules])
    return {powers: check(rules, ROUNDS, powers) for powers in (False, True)}


def _of_reassoc() -> EqualitySet:
    known = {rule.name for rule in tier.equalities("unsafe").rules}
    return EqualitySet([r for r in tier.equalities("reassoc").rules if r.name not in known])


def test_both_sides_of_every_rule_have_the_same_values(checked) -> None:
    exact, floats = checked[False][1], checked[True][1]
    assert exact == []
    assert floats == []


def test_every_rule_was_seen_to_fire(checked) -> None:
    fired = {name: n + checked[True][0][name] for name, n in checked[False][0].items()}
    assert {"associate_first", "distribute", "distribute_square", "split_guarded"} <= set(fired)
    assert [name for name, count in fired.items() if count == 0] == []


@pytest.mark.parametrize("rule", CANARIES.rules, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_found(rule) -> None:
    wrong: list[str] = []
    for powers in (False, True):
        for seed in range(3):
            wrong = wrong or check(EqualitySet([rule]), 60, powers, seed)[1]
    assert wrong
    assert rule.name in wrong[0]


def leaf(number: int, *size: int, dtype=dtypes.float32) -> UOp:
    return UOp(Ops.BUFFER, dtype, (), Leaf(number, size))


def matmul(a: UOp, b: UOp) -> UOp:
    (m, k), (_, n) = forms.extents(a), forms.extents(b)
    return forms.contract([a, b], [[0, 1], [1, 2]], [m, k, n], [0, 2])


def test_a_rule_that_breaks_a_shape_is_an_error_that_names_it() -> None:
    def lose_an_axis(root: UOp, a: UOp) -> UOp:
        return a

    rules = EqualitySet([law(contraction(UPat.var("a")), lose_an_axis)])
    total = forms.contract([leaf(0, 3, 4)], [[0, 1]], [3, 4], [0])
    with pytest.raises(errors.RewriteError, match=r"lose_an_axis.*shape \(3, 4\).*shape \(3,\)"):
        EGraph(total, rules).run(Schedule(rounds=2))


def test_a_rule_that_breaks_a_dtype_is_an_error_that_names_it() -> None:
    def to_double(root: UOp, a: UOp) -> UOp:
        arg: Contraction = root.arg
        return UOp(root.op, dtypes.float64, root.src, arg)

    rules = EqualitySet([law(contraction(UPat.var("a")), to_double)])
    total = forms.contract([leaf(0, 3, 4)], [[0, 1]], [3, 4], [0])
    with pytest.raises(errors.RewriteError, match=r"to_double.*float64"):
        EGraph(total, rules).run(Schedule(rounds=2))


@pytest.mark.parametrize("powers", [False, True])
def test_all_members_of_a_class_have_the_same_values(powers: bool) -> None:
    """What rules do one after another, and congruence with them."""
    rng = Random(7)
    several = 0
    for _ in range(60 if LONG else 6):
        maker = Maker(rng, powers)
        term = maker.term((2, 3), 2)
        graph = EGraph(term, tier.equalities("unsafe"))
        graph.run(Schedule(nodes=120, rounds=3, seconds=0, matches=0))
        values = Values(maker.leaves(), exact=not powers)
        first: dict[int, object] = {}
        for row, node in graph.nodes():
            try:
                value = values.of(node)
            except ZeroDivisionError:
                continue
            known = first.setdefault(row.cls, value)
            several += known is not value
            assert same(known, value, values.exact), (node.op, node.arg)
    assert several > 30


def test_at_strict_nothing_but_views_moves_for_floats() -> None:
    a, b, c = (leaf(i, 4, 4) for i in range(3))
    product = matmul(matmul(a, b), c)
    graph = EGraph(product, tier.equalities("strict"))
    report = graph.run(Schedule())
    assert report.stop == "saturated"
    assert len(graph.classes) == len(product.toposort())
    a, b, c = (leaf(i, 4, 4, dtype=dtypes.int32) for i in range(3))
    product = matmul(matmul(a, b), c)
    graph = EGraph(product, tier.equalities("strict"))
    assert graph.run(Schedule()).stop == "saturated"
    assert len(graph.classes) > len(product.toposort())


def test_bool_has_no_ring() -> None:
    """OR and AND are no sum and product: 1 + 1 is 1."""
    a = leaf(0, 3, 4, dtype=dtypes.bool)
    assert not forms.is_number(dtypes.bool)
    total = UOp(Ops.ADD, dtypes.bool, (a, a), None, (3, 4))
    for level in ("strict", "reassoc", "unsafe"):
        graph = EGraph(total, tier.equalities(level))
        graph.run(Schedule())
        assert len(graph.classes) == 2


def test_the_square_of_a_difference_is_multiplied_out_at_unsafe_alone() -> None:
    x, m = leaf(0, 4, 8), forms.view(leaf(1, 4), [0, -1], (4, 8))
    d = forms.plus(x, m)
    total = forms.contract([d, d], [[0, 1], [0, 1]], [4, 8], [0])
    square = forms.contract([x, x], [[0, 1], [0, 1]], [4, 8], [0])
    for level, there in (("reassoc", False), ("unsafe", True)):
        graph = EGraph(total, tier.equalities(level))
        graph.run(Schedule(rounds=4, nodes=2000, matches=0))
        made = [n for _, n in graph.nodes() if n is square]
        assert bool(made) is there
