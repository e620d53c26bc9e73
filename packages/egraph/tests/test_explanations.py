"""Explanations hold when each of their steps is done again, and show what they rest on."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from egraph_cases.expressions import expression
from opgraft.api import DType, EqualitySet, UOp, UPat, dtypes, errors, sym
from opgraft_egraph import EGraph, Schedule, explain, to_dot, to_json
from opgraft_egraph.engine import EngineMaker, default_engine
from opgraft_egraph.reference import ReferenceEngine

X, Y, Z = UPat.var("x"), UPat.var("y"), UPat.var("z")
A, B = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)
L, J, K = (UOp.variable(n, 0, hi) for n, hi in (("i", 7), ("j", 3), ("k", 15)))
BUDGET = Schedule(nodes=300, rounds=4, seconds=5.0, matches=100, ban_rounds=2)
ENGINES = list(dict.fromkeys((default_engine(), ReferenceEngine)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int8, dtypes.bool, dtypes.float32], ids=str)
def test_every_step_can_be_done_again(dtype: DType, engine: EngineMaker) -> None:
    rng = random.Random(str(dtype))
    steps = 0
    for _ in range(10 if engine is not ReferenceEngine else 3):
        root = expression(rng, dtype, 4)
        graph = EGraph(root, sym, explain=True, engine=engine)
        graph.run(BUDGET)
        (made,) = graph.extract()
        shown = explain(graph, root, made)
        assert shown.check() == [], str(shown)
        steps += len(shown.steps)
    assert steps > 3


@pytest.mark.parametrize(
    ("root", "goal"),
    [
        ((L * 64 + J * 16 + K) // 16, L * 4 + J),
        ((L * 64 + J * 16 + K) // 16 % 4, J),
        ((L * 64 + J * 16 + K) // 16 // 4, L),
        ((L * 4 + J) // 4, L),
        ((L * 4 + J) % 4, J),
        (L * 4 + J < 32, UOp.const(dtypes.bool, True)),
        ((L * 4 + J) // 4 * 4 + (L * 4 + J) % 4, L * 4 + J),
    ],
)
def test_index_arithmetic_is_found_and_explained(root: UOp, goal: UOp) -> None:
    graph = EGraph(root, sym, explain=True)
    graph.run(BUDGET)
    graph.add(goal)
    assert graph.equal(root, goal)
    assert explain(graph, root, goal).check() == []


def test_the_rules_are_named_in_order_and_direction() -> None:
    rules = EqualitySet([(X + 0, lambda x: x, "add_zero"), (X * 1, lambda x: x, "times_one")])
    graph = EGraph((A + 0, A * 1), rules, explain=True)
    graph.run()
    shown = explain(graph, A + 0, A * 1)
    assert shown.rules == ["add_zero", "times_one"]
    assert [step.forward for step in shown.steps] == [True, False]
    assert str(shown) == ("a + 0\n  = a  by add_zero\n  = a*1  by times_one (from right to left)")


def test_a_step_deep_inside_is_shown_in_its_place() -> None:
    rules = EqualitySet([(X * 1, lambda x: x, "times_one")])
    root = (A * 1 + B) // 3
    graph = EGraph(root, rules, explain=True)
    graph.run()
    (step,) = explain(graph, root, (A + B) // 3).steps
    assert (step.before, step.after) == (root, (A + B) // 3)
    assert (step.left, step.right) == (A * 1, A)


def test_the_conditions_of_a_rule_are_part_of_the_step() -> None:
    rules = EqualitySet(
        [(X % UPat.cvar("c"), lambda x, c: x if x.vmin >= 0 and x.vmax < c.const_value else None)]
    )
    graph = EGraph(A % 16, rules, explain=True)
    graph.run()
    (step,) = explain(graph, A % 16, A).steps
    assert "where x in [0, 9]" in str(step)
    assert step.fault() == ""


def test_merges_by_the_caller_and_what_follows_from_them() -> None:
    graph = EGraph((A // 3 + 1, B // 3 + 1), explain=True)
    graph.merge(A, B)
    (step,) = explain(graph, A // 3 + 1, B // 3 + 1).steps
    assert (step.kind, step.left, step.right) == ("merge", A, B)


def test_a_forged_step_is_found() -> None:
    rules = EqualitySet([(X + 0, lambda x: x, "add_zero")])
    graph = EGraph(A + 0, rules, explain=True)
    graph.run()
    shown = explain(graph, A + 0, A)
    assert shown.check() == []
    (step,) = shown.steps
    assert replace(shown, steps=(replace(step, right=B, after=B),)).check()
    assert replace(shown, steps=(replace(step, forward=False),)).check()
    assert replace(shown, steps=()).check() == ["the last step does not end at the second node"]
    assert replace(shown, steps=(replace(step, before=B + 0),)).check()


def test_what_is_not_equal_or_not_kept_is_an_error() -> None:
    graph = EGraph((A, B), explain=True)
    with pytest.raises(errors.OpgraftError, match="are not equal"):
        explain(graph, A, B)
    with pytest.raises(errors.OpgraftError, match="keeps no proofs"):
        explain(EGraph(A), A, A)


def test_proofs_change_neither_counts_nor_answers() -> None:
    rules = EqualitySet([(X + (Y + Z), lambda x, y, z: (x + y) + z, "associate")])
    root = A
    for i in range(6):
        root = UOp.variable(f"v{i}", 0, 3) + root
    found = []
    for proofs in (False, True):
        graph = EGraph(root, rules, explain=proofs)
        report = graph.run()
        found.append((report.nodes, report.classes, graph.extract()))
    assert found[0] == found[1]


def test_a_chain_of_20000_steps() -> None:
    root = A
    for _ in range(20_000):
        root = root + 0
    graph = EGraph(root, EqualitySet([(X + 0, lambda x: x, "add_zero")]), explain=True)
    graph.run()
    assert len(explain(graph, root, A).steps) == 20_000


def test_export_as_json_is_the_public_format_and_holds_every_node() -> None:
    graph = EGraph((A + 0) * 2, EqualitySet([(X + 0, lambda x: x, "add_zero")]))
    report = graph.run()
    data = json.loads(to_json(graph))
    nodes = data["nodes"]
    assert len(nodes) == report.nodes
    assert len({n["eclass"] for n in nodes.values()}) == report.classes
    assert all(child in nodes for n in nodes.values() for child in n["children"])
    (root,) = data["root_eclasses"]
    (product,) = [n for n in nodes.values() if n["eclass"] == root]
    assert product["op"] == "MUL:index"
    assert product["cost"] == 2.0


def test_export_as_dot_has_a_box_for_each_class() -> None:
    graph = EGraph(A * B + 1)
    text = to_dot(graph)
    assert text.startswith("digraph")
    assert text.count("subgraph cluster_") == len(graph)
    assert text.count("->") == 4
