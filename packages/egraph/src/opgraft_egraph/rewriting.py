"""Functions for rule writers: rules in, equal nodes out.

They take a `PatternMatcher` or an `EqualitySet`. Rules that take `ctx` are called with the one
given; each is called once for each way in which it matches, and its result is remembered.
"""

from __future__ import annotations

from typing import Any

from opgraft.api import PatternMatcher, UOp, errors, graph_rewrite
from opgraft_egraph.arguments import a_count, a_node, some_rules
from opgraft_egraph.cost import node_cost
from opgraft_egraph.graph import EGraph
from opgraft_egraph.report import Schedule


def rewrite_all(pm: PatternMatcher, uop: UOp, ctx: Any = None) -> list[UOp]:
    """What every rule makes of this node itself, each distinct result once, in rule order.

    >>> from opgraft.api import UPat
    >>> pm = PatternMatcher([(UPat.var("x") + UPat.var("x"), lambda x: x * 2)])
    >>> a = UOp.variable("a", 0, 9)
    >>> rewrite_all(pm, a + a) == [a * 2]
    True
    """
    a_node(uop, "what is rewritten")
    found: dict[UOp, None] = {}
    for rule in some_rules(pm).rules:
        for captures in rule.pattern.matches(uop):
            try:
                made = rule.apply(captures, ctx)
            except Exception as error:
                raise errors.RewriteError(
                    f"rule {rule} failed on {uop!r}: {type(error).__name__}: {error}"
                ) from error
            if made is not None and made is not uop:
                found[made] = None
    return list(found)


def _run(graph: EGraph, max_iters: int) -> None:
    """So many rounds, if the graph does not grow out of all proportion before."""
    a_count(max_iters, "max_iters")
    room = 10_000 + 4 * len(graph)
    graph.run(Schedule(nodes=room, rounds=max_iters, seconds=60.0, matches=0))


def egraph_saturate(
    root: UOp, pm: PatternMatcher, max_iters: int = 10, ctx: Any = None
) -> dict[UOp, dict[UOp, None]]:
    """The classes of a graph after at most `max_iters` rounds of the rules.

    Each class's representative leads to its members, in the order in which they came.
    """
    graph = EGraph(a_node(root, "the root"), pm, ctx=ctx)
    _run(graph, max_iters)
    return graph.classes


def egraph_extract(root: UOp, pm: PatternMatcher, max_iters: int = 10, ctx: Any = None) -> UOp:
    """The cheapest node, by `node_cost`, that the rules make equal to `root`.

    A node that is used twice is paid once. See `EGraph.extraction` for other prices, several roots,
    and whether an answer is proved to be the cheapest.
    """
    graph = EGraph(a_node(root, "the root"), pm, ctx=ctx)
    _run(graph, max_iters)
    (made,) = graph.extract(prices=node_cost)
    return made


def egraph_rewrite(
    sink: UOp,
    equalities: PatternMatcher,
    lowering: PatternMatcher | None = None,
    ctx: Any = None,
    name: str | None = None,
) -> UOp:
    """The cheapest equal of a graph, then rewritten by the rules one-way.

    `lowering` is one-way by nature, so it never enters the e-graph.
    """
    if lowering is not None:
        some_rules(lowering, "lowering")
    made = egraph_extract(sink, equalities, ctx=ctx)
    rules = equalities if lowering is None else equalities + lowering
    return graph_rewrite(made, rules, ctx, name=name)
