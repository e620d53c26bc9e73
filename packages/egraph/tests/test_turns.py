"""One e-graph in several threads: they wait for each other, and nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from opgraft.api import EqualitySet, UOp, UPat
from opgraft_egraph import EGraph
from opgraft_egraph.engine import EngineMaker
from opgraft_egraph.native import NativeEngine
from opgraft_egraph.reference import ReferenceEngine
from opgraft_egraph.terms import Rewrite, TermGraph, chain

ENGINES = [NativeEngine, ReferenceEngine]
AC = [
    Rewrite("commute", "(+ ?a ?b)", "(+ ?b ?a)"),
    Rewrite("associate", "(+ ?a (+ ?b ?c))", "(+ (+ ?a ?b) ?c)"),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_terms_of_eight_threads_come_into_one_graph(engine: EngineMaker) -> None:
    graph = TermGraph(AC, engine=engine)
    start = threading.Barrier(8)

    def work(number: int) -> bool:
        start.wait()
        root = graph.add(chain("+", [f"t{number}x{i}" for i in range(4)]))
        turned = graph.add(chain("+", [f"t{number}x{i}" for i in (3, 1, 0, 2)]))
        graph.run()
        return graph.equal(root, turned)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    # a sum of n terms has 2**n - 1 classes
    assert len(graph.classes()) == 8 * 15


def test_a_rule_in_python_may_ask_its_graph_while_others_wait() -> None:
    x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
    reached = threading.Event()
    asked: list[bool] = []

    def twice(a: UOp) -> UOp:
        reached.set()
        asked.append(graph.equal(a, a))
        return a * 2

    graph = EGraph(x + x, EqualitySet([(UPat.var("a") + UPat.var("a"), twice, "twice")]))
    other = threading.Thread(target=lambda: (reached.wait(), graph.merge(x, y)))
    other.start()
    graph.run()
    other.join(60)
    assert not other.is_alive()
    assert asked
    assert all(asked)
    assert graph.equal(x + x, x * 2)
    assert graph.equal(x, y)
