"""The search: an array graph, what the rules make equal to it, and the cheapest of that.

The graph as it is given is a member, and each of its terms costs a fifth less than it is worth, so
what replaces it must be cheaper by a quarter, wherever in the graph it stands: prices are not known
better than that, and what was written has its reasons. Rounds and nodes end a search, at the same
place on every machine; seconds are a safety net, and said to have ended it where they did.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from opgraft.api import (
    Budget,
    CostModel,
    EqualitySet,
    Optimized,
    UOp,
    array_shape,
    dtypes,
    settings,
)
from opgraft_egraph.exact import Effort, Problem, solve
from opgraft_egraph.graph import EGraph
from opgraft_egraph.language import children, key_of
from opgraft_egraph.report import Schedule
from opgraft_egraph.tensors import exponents, joins, picks, products, sums, views
from opgraft_egraph.tensors.prices import TensorPrices
from opgraft_egraph.tensors.reading import Terms, read
from opgraft_egraph.tensors.writing import Found, write

HANDICAP: Final = 0.8
"""What a term of the given graph counts: others must gain a quarter to replace it."""
LEAST_GAIN: Final = 0.95
"""What the whole must cost of what it did, for a graph to be changed at all."""
LEAST_LAUNCHES: Final = 5
"""A graph that takes no longer than so many launches of kernels is not worth a search."""
ROUNDS: Final = 8
NODES_PER_TERM: Final = 3
NODES_AT_LEAST: Final = 256
MOST_TERMS: Final = 2_000
"""Terms from which on a graph is left as it is."""
SAFETY: Final = 10.0
"""Seconds: a safety net, far above what nodes and rounds allow."""
MOST_EXACT: Final = 500
"""Nodes of an e-graph up to which the best choice is looked for to the end."""
_EXACT: Final = Effort(steps=200_000, seconds=SAFETY)
_LARGE: Final = Effort(steps=20_000, seconds=SAFETY)

_INTEGERS: Final = tuple(t for t in dtypes.all if t.is_int)
_FLOATS: Final = (dtypes.float32, dtypes.float64)


@functools.cache
def equalities(level: str) -> EqualitySet:
    """The rules that a float level allows. Greedy rewriting would run in circles with them, so
    they are alternatives, for an e-graph alone."""
    found = list(views.RULES.rules)
    numbers = _INTEGERS if level == "strict" else (*_INTEGERS, *_FLOATS)
    more = [
        *products.rules(numbers),
        *sums.rules(_INTEGERS if level != "unsafe" else numbers, squares=True),
        *joins.rules(numbers),
        *picks.rules(numbers),
    ]
    if level == "reassoc":
        more += sums.rules(_FLOATS, squares=False)
    if level != "strict":
        more += exponents.rules(_FLOATS)
    if level == "unsafe":
        more += exponents.unguarded(_FLOATS)
    return EqualitySet([*found, *more])


def optimize(sink: UOp, cost: CostModel, budget: Budget, level: str | None = None) -> Optimized:
    """The cheapest graph equal to `sink`, whose sources are arrays, at a float level."""
    begin = time.perf_counter()
    level = level or settings.FLOAT
    prices = TensorPrices.of(cost)
    numbers = _INTEGERS if level == "strict" else (*_INTEGERS, *_FLOATS)
    terms = read(sink.src, numbers)
    if not terms.products:
        return _unchanged(sink, 0.0, "nothing to explore", begin)
    before = prices.total(terms.roots)
    if before < LEAST_LAUNCHES * prices.launch:
        return _unchanged(sink, before, "nothing to gain", begin)
    count = len(UOp.sink(*terms.roots).toposort()) - 1
    if count > min(MOST_TERMS, budget.nodes):
        return _unchanged(sink, before, "nodes", begin)
    search = _Search(terms, prices, level)
    room = min(budget.nodes, NODES_AT_LEAST + NODES_PER_TERM * count)
    stop, found, times = search.run(room, min(budget.rounds, ROUNDS))
    after = prices.total(found.roots)
    if found.roots == terms.roots or after > LEAST_GAIN * before:
        return _unchanged(sink, before, stop, begin, times)
    begun = time.perf_counter()
    made = UOp.sink(*write(found, [array_shape(s) for s in sink.src], terms), arg=sink.arg)
    end = time.perf_counter()
    times = {**times, "write": end - begun}
    return Optimized(made, before, after, stop, end - begin, "egraph", times)


def _unchanged(
    sink: UOp, cost: float, stop: str, begin: float, times: Mapping[str, float] | None = None
) -> Optimized:
    return Optimized(sink, cost, cost, stop, time.perf_counter() - begin, "egraph", times or {})


class _Search:
    """One graph's e-graph."""

    def __init__(self, terms: Terms, prices: TensorPrices, level: str) -> None:
        self.terms: Final = terms
        self.prices: Final = prices
        self.graph: Final = EGraph(terms.roots, equalities(level), cost=prices.node)

    def run(self, nodes: int, rounds: int) -> tuple[str, Found, dict[str, float]]:
        """Why it stopped, the cheapest terms of the roots, the times."""
        begin = time.perf_counter()
        report = self.graph.run(Schedule(nodes, rounds, seconds=SAFETY, matches=0))
        after_run = time.perf_counter()
        found, repeatable = self._extract()
        times = {"saturate": after_run - begin, "extract": time.perf_counter() - after_run}
        return report.stop if repeatable else "seconds", found, times

    def _extract(self) -> tuple[Found, bool]:
        """The cheapest terms, and whether no clock had a say in it."""
        graph = self.graph
        graph.engine.rebuild()
        given = self._given()
        rows = list(graph.engine.dump())
        prices = []
        for row in rows:
            price = self.prices.node(graph._node(row))
            prices.append(price * HANDICAP if _key(row.head, row.kids) in given else price)
        roots = [graph.class_id(root) for root in self.terms.roots]
        problem = Problem([row.cls for row in rows], [row.kids for row in rows], prices, roots)
        seed: dict[int, int] = {}
        for number, row in enumerate(rows):
            if not row.kids or _key(row.head, row.kids) in given:
                seed.setdefault(row.cls, number)
        effort = _EXACT if len(rows) <= MOST_EXACT else _LARGE
        found = solve(problem, effort, seed=seed)
        done: dict[int, UOp] = {}
        same: dict[UOp, UOp] = {}
        stack = list(roots)
        while stack:
            cls = stack[-1]
            row = rows[found.choice[cls]]
            missing = [kid for kid in row.kids if kid not in done]
            if missing:
                stack += missing
                continue
            stack.pop()
            made = done[cls] = graph.built(row, [done[kid] for kid in row.kids])
            known = given.get(_key(row.head, row.kids))
            if known is not None:
                same[made] = known
        instead = {}
        for term in self._all_given():
            cls = graph.class_id(term)
            if cls in done:
                instead[term] = done[cls]
        return Found(tuple([done[cls] for cls in roots]), same, instead), found.repeatable

    def _all_given(self) -> list[UOp]:
        return UOp.sink(*self.terms.roots).toposort()[:-1]

    def _given(self) -> dict[_Key, UOp]:
        """The terms that were given, by what the engine calls them."""
        graph, found = self.graph, dict[_Key, UOp]()
        for term in self._all_given():
            if not term.is_const:
                kids = [graph.class_id(s) for s in children(term)]
                found.setdefault(_key(graph._heads[key_of(term)], kids), term)
        return found


_Key: TypeAlias = tuple[int, tuple[int, ...]]


def _key(head: int, kids: Sequence[int]) -> _Key:
    return head, tuple(sorted(kids))
