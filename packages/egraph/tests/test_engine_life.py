"""The C engine as a guest in a process: memory, threads, limits, deep congruence."""

from __future__ import annotations

import gc
import random
import threading

import pytest

from egraph_cases.workloads import AC, MATH, MATH_TERMS
from opgraft.api import EqualitySet, UOp, UPat
from opgraft_egraph import EGraph, Schedule, TermGraph, explain
from opgraft_egraph.terms import Rewrite, chain

native = pytest.importorskip(
    "opgraft_egraph.native", reason="the C engine is not built here; there is nothing to look at"
)
X, Y, Z = UPat.var("x"), UPat.var("y"), UPat.var("z")


def saturated(n: int, explained: bool = False) -> TermGraph:
    graph = TermGraph(AC, explain=explained)
    graph.add(chain("+", [f"x{i}" for i in range(n)]))
    graph.run()
    return graph


def math(rounds: int, nodes: int = 0) -> TermGraph:
    graph = TermGraph(MATH, schedule=Schedule(nodes, 0, 0.0, 0, 0))
    for term in MATH_TERMS:
        graph.add(term)
    graph.run(rounds)
    return graph


@pytest.mark.parametrize("size", [4, 8])
def test_every_byte_is_given_back_small_and_large(size: int) -> None:
    gc.collect()
    before = native.held_bytes()
    graphs = [saturated(size), saturated(min(size, 6), explained=True), math(9 if size > 4 else 4)]
    for graph in graphs:
        graph.extraction(0, cost="dag")
    held = native.held_bytes() - before
    assert held > 10_000 * size
    # arrays of more than a megabyte are the system's pages, and are counted too
    assert (held > 4 << 20) == (size > 4)
    del graph, graphs
    gc.collect()
    assert native.held_bytes() == before


def test_a_process_that_makes_large_graphs_again_and_again_does_not_grow() -> None:
    resource = pytest.importorskip("resource", reason="peak memory is a POSIX figure")

    def peak() -> int:
        math(9), saturated(8)
        size: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return size

    first = max(peak() for _ in range(2))
    # each holds some five megabytes: one array that is not unmapped would show
    assert max(peak() for _ in range(8)) < first * 1.03 + 2_000


def test_a_graph_is_freed_at_once_not_when_the_collector_comes() -> None:
    a = UOp.variable("a", 0, 9)
    rules = EqualitySet([(X + 0, lambda x: x if x.op is not None else None, "called")])
    gc.collect()
    gc.disable()
    try:
        before = native.held_bytes()
        graph = EGraph((a + 0) * 2, rules)
        assert graph.run().rules["called"].calls
        assert graph.extract() == (a * 2,)
        assert native.held_bytes() > before
        del graph
        assert native.held_bytes() == before
    finally:
        gc.enable()


def test_a_graph_that_failed_gives_its_memory_back_too() -> None:
    gc.collect()
    before = native.held_bytes()
    rules = EqualitySet([(X + 0, lambda x: x.const_like(1), "wrong")])
    zero = UOp.const(UOp.variable("a", 0, 9).dtype, 0)
    graph = EGraph(zero + zero, rules)
    with pytest.raises(Exception, match="wrong"):
        graph.run()
    assert native.held_bytes() > before
    del graph
    gc.collect()
    assert native.held_bytes() == before


@pytest.mark.parametrize("limit", [50, 51, 64, 100, 127, 333, 1_000, 4_097])
def test_the_node_limit_is_never_passed_not_by_one(limit: int) -> None:
    graph = math(30, limit)
    counts = graph.engine.counts()
    assert counts.stop == native.lib.STOP_NODES
    assert counts.live <= limit
    # what was there before the last round is never lost
    assert counts.live > limit / 4


def test_a_run_may_go_on_where_a_node_limit_stopped_it() -> None:
    """A right side that was cut off half way is made whole."""
    graph = TermGraph(AC, schedule=Schedule(20, 0, 0.0, 0, 0))
    graph.add(chain("+", [f"x{i}" for i in range(6)]))
    nodes = 20
    while graph.run(schedule=Schedule(nodes, 0, 0.0, 0, 0)).stop == "nodes":
        nodes += 7
    report = graph.run()
    assert (report.nodes, report.classes) == (3**6 - 2**7 + 1 + 6, 2**6 - 1)


def test_other_threads_run_while_the_engine_does() -> None:
    graph = TermGraph(AC)
    graph.add(chain("+", [f"x{i}" for i in range(9)]))
    started = threading.Event()

    def work() -> None:
        started.set()
        graph.run()

    worker = threading.Thread(target=work)
    worker.start()
    started.wait()
    turns = 0
    while worker.is_alive():
        turns += 1
    # had it kept the interpreter to itself, this thread would have had a turn or two
    assert turns > 100
    assert graph.engine.counts().live == 3**9 - 2**10 + 1 + 9


def test_engines_in_several_threads_do_not_mix() -> None:
    wanted = {kind: counts_of(kind) for kind in range(4)}
    found: dict[int, list[object]] = {kind: [] for kind in wanted}

    def work(kind: int) -> None:
        found[kind] += [counts_of(kind) for _ in range(3)]

    workers = [threading.Thread(target=work, args=(kind,)) for kind in wanted]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == {kind: [counts] * 3 for kind, counts in wanted.items()}


def counts_of(kind: int) -> object:
    graph = (saturated(5, explained=True) if kind else saturated(7)) if kind < 2 else math(5 + kind)
    return graph.engine.counts()._replace(bytes=0)


@pytest.mark.parametrize("length", [100, 20_000])
@pytest.mark.parametrize("explained", [False, True])
def test_a_merge_at_the_leaves_goes_all_the_way_up(length: int, explained: bool) -> None:
    graph = TermGraph([], explain=explained)
    tops = []
    for leaf in ("a", "b"):
        cls = graph.add(leaf)
        head = graph._head("f", 1)
        for _ in range(length):
            cls = graph.engine.add(head, [cls])
        tops.append(cls)
    graph.union(graph.add("a"), graph.add("b"))
    graph.engine.rebuild()
    assert graph.equal(*tops)
    assert graph.engine.counts().classes == length + 1


def test_merges_one_by_one_in_a_large_graph_close_it_each_time() -> None:
    """Few of many classes lose: their uses are followed, the arrays made anew in between."""
    graph = TermGraph([Rewrite("none", "(absent ?x)", "?x")])
    rng, count = random.Random(3), 400
    leaves = [graph.add(f"v{i}") for i in range(count)]
    pairs = {}
    for i in range(6_000):
        a, b = rng.randrange(count), rng.randrange(count)
        pairs[a, b] = graph.add(f"(g (f v{a} v{b}) v{i % 7})")
    leader = list(range(count))
    graph.run()
    for _ in range(60):
        a, b = rng.randrange(count), rng.randrange(count)
        graph.union(leaves[a], leaves[b])
        graph.engine.rebuild()
        old, new = leader[b], leader[a]
        leader = [new if x == old else x for x in leader]
    rows = graph.classes()
    nodes = [(op, kids) for group in rows.values() for op, kids in group]
    assert len(nodes) == len(set(nodes))
    inner = {(leader[a], leader[b]) for a, b in pairs}
    assert sum(op == "f" for op, _ in nodes) == len(inner)


def test_an_explained_graph_has_the_same_classes() -> None:
    for n in (4, 6):
        plain, explained = saturated(n), saturated(n, explained=True)
        assert plain.engine.counts().classes == explained.engine.counts().classes == 2**n - 1
    a = UOp.variable("a", 0, 9)
    graph = EGraph(a + 0, EqualitySet([(X + 0, lambda x: x, "zero")]), explain=True)
    graph.run()
    assert explain(graph, a + 0, a).rules == ["zero"]
