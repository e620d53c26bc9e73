"""Exact numbers of nodes and classes, from closed forms and other libraries' published runs."""

from __future__ import annotations

import pytest

from egraph_cases.workloads import AC, MATH, MATH_TERMS
from opgraft.api import EqualitySet, UOp, UPat, dtypes
from opgraft_egraph import EGraph, TermGraph
from opgraft_egraph.terms import chain


@pytest.mark.parametrize("n", range(5, 11))
def test_sums_of_distinct_terms_by_commutativity_and_association(n: int) -> None:
    graph = TermGraph(AC)
    graph.add(chain("+", [f"x{i}" for i in range(n)]))
    report = graph.run()
    assert report.stop == "saturated"
    assert report.nodes == 3**n - 2 ** (n + 1) + 1 + n
    assert report.classes == 2**n - 1


@pytest.mark.parametrize("n", range(5, 11))
def test_half_the_nodes_where_operands_are_kept_sorted(n: int) -> None:
    graph = TermGraph(AC[1:], commutative=["+"])
    graph.add(chain("+", [f"x{i}" for i in range(n)]))
    report = graph.run()
    assert report.stop == "saturated"
    assert report.nodes == (3**n - 2 ** (n + 1) + 1) // 2 + n
    assert report.classes == 2**n - 1


@pytest.mark.parametrize("n", [5, 8])
def test_the_same_for_sums_of_the_ir_with_all_analyses(n: int) -> None:
    x, y, z = UPat.var("x", dtypes.int32), UPat.var("y"), UPat.var("z")
    rules = EqualitySet([(x + (y + z), lambda x, y, z: (x + y) + z, "associate")])
    root = UOp.variable("v0", 0, 9, dtypes.int32)
    for i in range(1, n):
        root = UOp.variable(f"v{i}", 0, 9, dtypes.int32) + root
    graph = EGraph(root, rules)
    report = graph.run()
    assert (report.nodes, report.classes) == ((3**n - 2 ** (n + 1) + 1) // 2 + n, 2**n - 1)
    assert graph.fact(root).high == 9 * n


MATH_COUNTS = {3: (208, 116), 7: (3_160, 1_347), 10: (136_446, 58_464)}
"""By rounds, counted as egglog does: all rules search one snapshot, then it is rebuilt."""


def test_the_math_rules_round_by_round() -> None:
    graph = TermGraph(MATH)
    for term in MATH_TERMS:
        graph.add(term)
    found = {}
    for done in range(1, 11):
        report = graph.run(rounds=1)
        found[done] = (report.nodes, report.classes)
    assert {n: found[n] for n in MATH_COUNTS} == MATH_COUNTS


def test_rounds_in_one_run_count_the_same() -> None:
    graph = TermGraph(MATH)
    for term in MATH_TERMS:
        graph.add(term)
    report = graph.run(rounds=7)
    assert (report.nodes, report.classes, report.rounds) == (3_160, 1_347, 7)
