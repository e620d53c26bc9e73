"""The cheapest terms of an e-graph: optimal where proved, with prices as data and as functions."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest

from egraph_cases.expressions import expression
from opgraft.api import CostModel, EqualitySet, Ops, UOp, UPat, dtypes, errors
from opgraft_egraph import QUICK, THOROUGH, Effort, EGraph, Rewrite, Schedule, TermGraph
from opgraft_egraph.engine import EngineMaker, NodeRow, default_engine
from opgraft_egraph.exact import Problem
from opgraft_egraph.reference import ReferenceEngine

ENGINES = list(dict.fromkeys((default_engine(), ReferenceEngine)))
each_engine = pytest.mark.parametrize("engine", ENGINES)
A, B, C, D = (UOp.variable(n, 0, 9) for n in "abcd")
X, Y, Z = UPat.var("x"), UPat.var("y"), UPat.var("z")
RULES = EqualitySet(
    [
        (X + (Y + Z), lambda x, y, z: (x + y) + z, "associate"),
        (X * Y + X * Z, lambda x, y, z: x * (y + z), "factor"),
        (X * (Y + Z), lambda x, y, z: x * y + x * z, "distribute"),
    ]
)


def cost_of(*roots: UOp) -> int:
    """What distinct nodes cost by the seed's table, worked out from the terms alone."""
    price = {Ops.ADD: 1, Ops.MUL: 2}
    return sum(price.get(n.op, 0) for n in dict.fromkeys(n for r in roots for n in r.toposort()))


def shared_square() -> EGraph:
    """(a + b)(c + d) and its parts: factored or spread out, one root or several."""
    graph = EGraph((A * C + A * D) + (B * C + B * D), RULES)
    assert graph.run().stop == "saturated"
    return graph


def test_the_cheapest_term_is_found_and_proved() -> None:
    found = shared_square().extraction()
    assert found.terms == ((A + B) * (C + D),) or cost_of(*found.terms) == 4
    assert (found.cost, found.lower, found.proved, found.stop) == (4.0, 4.0, True, "proved")
    assert found.repeatable


def test_several_roots_are_paid_together() -> None:
    graph = shared_square()
    product, spread = (A + B) * (C + D), A * C
    graph.add(spread)
    alone = [graph.extraction(root).cost for root in (product, spread)]
    both = graph.extraction(product, spread)
    assert alone == [4.0, 2.0]
    assert both.cost == cost_of(*both.terms) == 6.0
    # a root that the other holds already costs nothing more
    inner = graph.extraction(product, A + B)
    assert inner.cost == 4.0
    assert inner.terms[1] in inner.terms[0].toposort()


def dear_part(engine: EngineMaker) -> tuple[EGraph, UOp]:
    """A product of two factors, each with a part of its own or a dear one that both can share."""
    graph = EGraph(engine=engine)
    dear = UOp.variable("w", 0, 9) % 7
    left, right = A // 3, B // 3
    graph.add(root := left * right)
    graph.merge(left, dear + A)
    graph.merge(right, dear + B)
    return graph, root


@each_engine
def test_a_dear_part_pays_where_it_is_shared(engine: EngineMaker) -> None:
    graph, root = dear_part(engine)
    tree, dag = graph.extraction(root, cost="tree"), graph.extraction(root)
    assert (tree.cost, tree.proved) == (2 + 5 + 5, True)
    assert (dag.cost, dag.proved) == (2 + 5 + 1 + 1, True)
    # no class alone gains by it, so neither trees nor greedy choices see it
    quick = graph.extraction(root, effort=QUICK)
    assert (quick.cost, quick.proved, quick.stop) == (12.0, False, "steps")


@each_engine
def test_prices_are_a_function_a_model_or_a_table(engine: EngineMaker) -> None:
    graph, root = dear_part(engine)
    table = {Ops.IDIV: 1.0, Ops.MOD: 20.0, Ops.MUL: 2.0, Ops.ADD: 1.0}
    table |= {Ops.VAR: 0.0, Ops.CONST: 0.0}
    by_table = graph.extraction(root, prices=table)
    by_model = graph.extraction(root, prices=CostModel(table=table, power_of_two=1.0))
    by_function = graph.extraction(root, prices=lambda n: table.get(n.op, 0.0))
    assert by_table.terms == by_model.terms == by_function.terms == (root,)
    assert by_table.cost == by_model.cost == by_function.cost == 4.0
    # a function sees the node: its dtype, argument and sources
    assert graph.extraction(root, prices=lambda n: 100.0 if A // 3 is n else 1.0).terms != (root,)
    (weighed,) = graph.extract(root, prices=CostModel(weigh=lambda n: 9.0 if B in n.src else 1.0))
    assert CostModel().graph(weighed) == 9.0


@each_engine
def test_a_root_that_only_costs_without_limit_is_an_error(engine: EngineMaker) -> None:
    graph, root = dear_part(engine)
    for cost, effort in (("tree", QUICK), ("dag", QUICK), ("dag", THOROUGH)):
        with pytest.raises(errors.OpgraftError, match="nothing to extract"):
            graph.extraction(
                root,
                cost=cost,  # type: ignore[arg-type]
                prices=lambda n: math.inf if n.op is Ops.MUL else 1.0,
                effort=effort,
            )
    with pytest.raises(errors.OpgraftError, match="at least 0"):
        graph.extraction(root, prices=lambda n: -1.0)
    with pytest.raises(errors.OpgraftError, match='"dag" or "tree"'):
        graph.extraction(root, cost="graph")  # type: ignore[arg-type]


def rows_of(graph: EGraph) -> list[NodeRow]:
    graph.engine.rebuild()
    return list(graph.engine.dump())


def problem_of(graph: EGraph, roots: Sequence[UOp]) -> Problem:
    rows = rows_of(graph)
    return Problem(
        [row.cls for row in rows],
        [list(row.kids) for row in rows],
        [graph.price(row) for row in rows],
        [graph.class_id(root) for root in roots],
    )


def brute_force(problem: Problem) -> float:
    """The least of all choices, class by class."""
    options: list[list[int | None]] = [list(nodes) or [None] for nodes in problem.members]
    prices = (
        problem.price({c: n for c, n in enumerate(chosen) if n is not None})
        for chosen in itertools.product(*options)
    )
    return problem.cost(min(p for p in prices if p is not None))


@each_engine
def test_the_proved_answer_is_that_of_brute_force(engine: EngineMaker) -> None:
    rng, compared = random.Random(5), 0
    for _ in range(60):
        roots = [expression(rng, dtypes.index, 3) for _ in range(2)]
        graph = EGraph(roots, RULES, engine=engine)
        graph.run(Schedule(nodes=40, rounds=2, seconds=0.0, matches=20))
        problem = problem_of(graph, roots)
        if math.prod(max(1, len(nodes)) for nodes in problem.members) > 3_000:
            continue
        compared += 1
        found = graph.extraction()
        assert found.proved
        assert found.cost == found.lower == brute_force(problem)
    assert compared > 20


def test_never_above_trees_and_greedy_choices_and_proved_or_not_the_same_each_time() -> None:
    rng = random.Random(8)
    for _ in range(20):
        root = expression(rng, dtypes.index, 5)
        made = []
        for _ in range(2):
            graph = EGraph(root, RULES)
            graph.run(Schedule(nodes=300, rounds=4, seconds=0.0, matches=100))
            quick = graph.extraction(effort=QUICK)
            some = graph.extraction(effort=Effort(steps=500, seconds=math.inf))
            best = graph.extraction(effort=Effort(seconds=math.inf))
            (tree,) = graph.extract(cost="tree")
            assert graph.extraction(tree).cost >= best.lower
            assert quick.cost >= some.cost >= best.cost >= best.lower >= some.lower
            made.append((quick, some, best))
        assert made[0] == made[1]


def test_a_clock_that_ends_it_is_reported() -> None:
    graph = EGraph(sum((UOp.variable(f"v{i}", 0, 9) * A for i in range(1, 7)), B), RULES)
    graph.run(Schedule(nodes=2_000, rounds=6, seconds=0.0, matches=0))
    found = graph.extraction(effort=Effort(seconds=0.0))
    assert (found.stop, found.proved, found.repeatable) == ("seconds", False, False)
    assert found.lower <= found.cost == graph.extraction(effort=QUICK).cost


def test_terms_of_any_language_are_extracted_the_same_way() -> None:
    rules = [
        Rewrite("left", "(l ?x)", "(f (dear w) ?x)"),
        Rewrite("right", "(r ?x)", "(f (dear w) ?x)"),
    ]
    graph = TermGraph(rules)
    root = graph.add("(p (l a) (r b))")
    graph.run()
    prices = {"l": 5.0, "r": 5.0, "dear": 4.0}
    found = graph.extraction(root, prices=lambda op: prices.get(op, 1.0), cost="dag")
    assert found.terms == ("(p (f (dear w) a) (f (dear w) b))",)
    assert (found.cost, found.proved) == (1 + 2 * 1 + 4 + 3, True)
    tree = graph.extraction(root, prices=lambda op: prices.get(op, 1.0))
    assert (tree.terms, tree.cost) == (("(p (l a) (r b))",), 13.0)
