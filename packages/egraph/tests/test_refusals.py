"""What is refused, in which words, and that nothing of it remains."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from opgraft.api import Budget, EqualitySet, PatternMatcher, UOp, UPat, dtypes, errors
from opgraft_egraph import (
    EGraph,
    Schedule,
    egraph_extract,
    egraph_rewrite,
    egraph_saturate,
    node_cost,
    rewrite_all,
)
from opgraft_egraph.engine import EngineMaker, default_engine
from opgraft_egraph.exact import Effort
from opgraft_egraph.explanation import explain
from opgraft_egraph.reference import ReferenceEngine
from opgraft_egraph.terms import Rewrite, TermGraph

A, B = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)
X = UPat.var("x")
RULES = EqualitySet([(X + 0, lambda x: x, "add_zero")])
both_engines = pytest.mark.parametrize(
    "engine", dict.fromkeys((default_engine(), ReferenceEngine)), ids=lambda engine: engine.__name__
)


def contents(graph: EGraph) -> object:
    """All that a graph holds: its nodes and classes, and its proofs."""
    rows = [row._replace(flags=0) for row in graph.engine.dump()]
    terms = [graph.engine.term(i) for i in range(graph.engine.counts().ids)]
    return rows, terms, [graph.engine.find(i) for i in range(len(terms))]


@both_engines
class TestMergesThatCannotBe:
    def test_of_two_dtypes_or_constants(self, engine: EngineMaker) -> None:
        graph = EGraph((A + 1, A.const_like(3), A.const_like(4)), RULES, engine=engine)
        with pytest.raises(errors.RewriteError, match=r"^the caller's merge would put two dtypes"):
            graph.merge(A, UOp.const(dtypes.int32, 3))
        with pytest.raises(errors.RewriteError, match=r"^the caller's merge would put two const"):
            graph.merge(A.const_like(3), A.const_like(4))
        with pytest.raises(errors.RewriteError, match=r"^the caller's merge would put disjoint"):
            graph.merge(A, A + 100)

    def test_is_of_the_caller_even_where_a_rule_grew_the_class(self, engine: EngineMaker) -> None:
        graph = EGraph((A + 0, A + 100), RULES, engine=engine)
        graph.run()
        with pytest.raises(errors.RewriteError, match=r"^the caller's merge would put disjoint"):
            graph.merge(A + 0, A + 100)

    def test_what_follows_by_congruence_is_said_at_once(self, engine: EngineMaker) -> None:
        """a % 2 and b % 2 are known to differ, so a and b are not the same."""
        graph = EGraph((A % 2, B % 2), RULES, engine=engine)
        graph.merge(A % 2, A.const_like(0))
        graph.merge(B % 2, B.const_like(1))
        message = (
            r"^the caller's merge of <VAR index: a> and <VAR index: b> would put two constants"
        )
        with pytest.raises(errors.RewriteError, match=message):
            graph.merge(A, B)

    def test_leaves_a_graph_that_works(self, engine: EngineMaker) -> None:
        graph = EGraph((A % 2 + 0, B % 2), RULES, engine=engine)
        graph.merge(A % 2, A.const_like(0))
        graph.merge(B % 2, B.const_like(1))
        for first, second in ((A, B), (A % 2, B % 2), (A, UOp.const(dtypes.int32, 3)), (A, B)):
            with pytest.raises(errors.RewriteError):
                graph.merge(first, second)
            assert not graph.equal(A, B)
        assert graph.run().stop == "saturated"
        assert graph.equal(A % 2 + 0, A.const_like(0))
        assert graph.merge(A, B * 1)
        graph.add(A * 3 + 5)
        assert graph.term(graph.class_id(A * 3 + 5)) is not None
        assert graph.extract(A % 2 + 0) == (A.const_like(0),)

    @pytest.mark.parametrize("other", [UOp.const(dtypes.int32, 3), A + 100], ids=str)
    def test_leaves_no_edge_among_the_proofs(self, engine: EngineMaker, other: UOp) -> None:
        graph = EGraph((A + 0, B, other), RULES, engine=engine, explain=True)
        graph.run()
        graph.engine.rebuild()
        before = contents(graph)
        for _ in range(2):
            with pytest.raises(errors.RewriteError):
                graph.merge(A, other)
        assert contents(graph) == before
        assert explain(graph, A + 0, A).check() == []

    def test_of_terms(self, engine: EngineMaker) -> None:
        graph = TermGraph([Rewrite("turn", "(f ?a ?b)", "(f ?b ?a)")], numbers=True, engine=engine)
        one, two = graph.add("(f 1 x)"), graph.add("(f 2 x)")
        graph.union(one, graph.add("3"))
        graph.union(two, graph.add("4"))
        with pytest.raises(errors.RewriteError, match="the caller's union would make two diff"):
            graph.union(one, two)
        assert graph.run().stop == "saturated"
        x, y = graph.add("(g x)"), graph.add("(g y)")
        graph.union(x, one)
        graph.union(y, two)
        graph.union(graph.add("x"), graph.add("y"))
        with pytest.raises(errors.RewriteError, match="two different numbers"):
            graph.extract(x)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: EGraph(3), TypeError, "a root is a UOp, not 3 of type int"),
        (lambda: EGraph([A, "b"]), TypeError, "a root is a UOp, not 'b' of type str"),
        (lambda: EGraph(A, [(X + 0, lambda x: x)]), TypeError, "an EqualitySet or a PatternMatch"),
        (lambda: EGraph(A, RULES, cost=3), TypeError, "cost is a function, not 3 of type int"),
        (lambda: EGraph(A).add(3), TypeError, "what is added is a UOp, not 3"),
        (lambda: EGraph(A).merge(A, 3), TypeError, "what an e-graph holds is a UOp, not 3"),
        (lambda: EGraph(A).find(None), TypeError, "what an e-graph holds is a UOp, not None"),
        (lambda: EGraph(A).extract("a"), TypeError, "what an e-graph holds is a UOp, not 'a'"),
        (lambda: EGraph(A).extract(prices=3), TypeError, "what gives a node's price.*not 3"),
        (lambda: EGraph(A).extract(effort=3), TypeError, "effort is an Effort, not 3"),
        (
            lambda: EGraph(A).extract(effort=Effort(steps=-1)),
            ValueError,
            "steps of an Effort is -1",
        ),
        (lambda: EGraph(A).extract(effort=Effort(math.nan)), ValueError, "an Effort is nan"),
        (lambda: EGraph(A).extract(effort=Effort(9, -1.0)), ValueError, "seconds of an Effort"),
        (lambda: EGraph(A).run(Schedule(nodes=1.5)), TypeError, "nodes=1.5.*whole numbers"),
        (lambda: EGraph(A).run(Schedule(seconds="1")), TypeError, "'1'.*seconds are a number"),
        (lambda: EGraph(A).run(Schedule(nodes=-1)), errors.OpgraftError, "no limit is below 0"),
        (lambda: EGraph(A).run(Schedule(seconds=math.nan)), errors.OpgraftError, "no limit is"),
        (lambda: Budget(nodes=-1), ValueError, "nodes=-1.*at least 0"),
        (lambda: Budget(seconds=math.nan), ValueError, "seconds=nan.*at least 0"),
        (lambda: rewrite_all([], A), TypeError, "an EqualitySet or a PatternMatcher, not "),
        (lambda: rewrite_all(RULES, 3), TypeError, "what is rewritten is a UOp, not 3"),
        (lambda: egraph_saturate(A, None), TypeError, "an EqualitySet or a PatternMatcher, not No"),
        (lambda: egraph_saturate(3, RULES), TypeError, "the root is a UOp, not 3"),
        (lambda: egraph_saturate([A], RULES), TypeError, "the root is a UOp, not "),
        (lambda: egraph_extract(A, RULES, -1), ValueError, "max_iters is -1: at least 0"),
        (lambda: egraph_extract(A, RULES, 1.5), TypeError, "max_iters is a whole number, not 1.5"),
        (lambda: egraph_rewrite(A, RULES, 3), TypeError, "lowering: an EqualitySet or a"),
        (lambda: node_cost(3), TypeError, "what is priced is a UOp, not 3"),
    ],
)
def test_arguments_that_are_none(
    call: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()


@both_engines
@pytest.mark.parametrize("cost", [-1.0, math.nan, -math.inf, "1", None])
def test_costs_that_are_none_end_no_search(engine: EngineMaker, cost: Any) -> None:
    """With costs below 0 the cheapest of a class that contains itself gets ever cheaper."""
    with pytest.raises((TypeError, errors.OpgraftError), match="a cost is"):
        EGraph(A + 0, RULES, engine=engine, cost=lambda n: cost).run()
    graph = EGraph(A + 0, RULES, engine=engine)
    graph.run()
    with pytest.raises((TypeError, errors.OpgraftError), match="a cost is"):
        graph.extract(prices=lambda n: cost)


@both_engines
def test_costs_beyond_a_float_have_no_limit(engine: EngineMaker) -> None:
    graph = EGraph((A + 1) * (B + 2), PatternMatcher([]), engine=engine)
    with pytest.raises(errors.OpgraftError, match="costs without limit"):
        graph.extract(prices=lambda n: 1e308)
    assert graph.extract(prices=lambda n: 1e290) == ((A + 1) * (B + 2),)


@both_engines
def test_a_run_within_a_run_is_refused_and_other_uses_are_not(engine: EngineMaker) -> None:
    graphs: list[EGraph] = []

    def grow(x: UOp, ctx: object) -> UOp:
        graphs[0].add(B * 7)
        graphs[0].merge(B * 7, B * 8)
        assert graphs[0].find(B * 8) is not None
        return x

    def run(x: UOp, ctx: object) -> UOp:
        graphs[0].run()
        return x

    graphs[:] = [EGraph((A + 0) * (B + 0), PatternMatcher([(X + 0, grow)]), engine=engine, ctx=1)]
    assert graphs[0].run().stop == "saturated"
    assert graphs[0].extract() == (A * B,)
    assert graphs[0].equal(B * 7, B * 8)
    graphs[:] = [EGraph(A + 0, PatternMatcher([(X + 0, run)]), engine=engine, ctx=1)]
    with pytest.raises(errors.RewriteError, match="being run already"):
        graphs[0].run()
