"""The cheapest terms of an e-graph by a `PriceList`: loops, forms of operations, shared parts.

What a class depends on is the least that any of its members depends on, so a price is that of the
outermost loops that a value can stand in. A modulo beside the division of the same operands is a
node of its own, which has that division's class below it: so forms that depend on others add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from opgraft.api import Loops, Ops, UOp
from opgraft_egraph.engine import NodeRow
from opgraft_egraph.exact import Problem, solve
from opgraft_egraph.exact.effort import Effort
from opgraft_egraph.graph import EGraph
from opgraft_egraph.kernel.pricelist import PriceList

_UNIT: Final = 1 << 20
"""Prices are whole numbers of this part of one: then sums are exact."""

EFFORT: Final = Effort(steps=4_000, seconds=60.0)
"""Exact where an e-graph is small. The steps decide; the seconds are a safety net."""


class Choice(NamedTuple):
    """What was taken of an e-graph."""

    roots: tuple[UOp, ...]
    proved: bool
    """Whether nothing in the e-graph is cheaper."""
    repeatable: bool
    """Whether steps, not seconds, said when to stop."""


def cheapest(
    graph: EGraph,
    roots: Sequence[UOp],
    prices: PriceList,
    loops: Loops,
    effort: Effort = EFFORT,
) -> Choice:
    """The cheapest equals of the roots together. `roots` as they are is one choice."""
    graph.engine.rebuild()
    rows = list(graph.engine.dump())
    masks = _masks(graph, rows, loops)
    by_kids: dict[tuple[int, tuple[int, ...]], int] = {}
    entries: list[tuple[NodeRow, tuple[int, ...]]] = []
    costs: list[int] = []
    divisions: dict[tuple[int, ...], int] = {}
    shown = [graph.shown(head) for head in range(graph.engine.head_count())]
    for row in rows:
        by_kids[row.head, row.kids] = len(entries)
        entries.append((row, row.kids))
        n = shown[row.head]
        costs.append(0 if n is None else _price(graph, row, n, prices, loops, masks))
        if n is not None and n.op is Ops.IDIV:
            divisions[row.kids] = row.cls
    if prices.beside != math.inf:
        for row in rows:
            n = shown[row.head]
            quotient = divisions.get(row.kids)
            if quotient is not None and n is not None and n.op is Ops.MOD:
                price = prices.beside * loops.share_of(_mask_of(row, masks))
                price = round(price * _UNIT)
                if price < costs[by_kids[row.head, row.kids]]:
                    entries.append((row, (*row.kids, quotient)))
                    costs.append(price)
    numbers: dict[int, int] = {}
    for row, _ in entries:
        numbers.setdefault(row.cls, len(numbers))
    wanted = [numbers[graph.class_id(r)] for r in roots]
    problem = Problem(
        [numbers[row.cls] for row, _ in entries],
        [[numbers[k] for k in kids] for _, kids in entries],
        costs,
        wanted,
    )
    found = solve(problem, effort)
    choice = {entries[node][0].cls: entries[node][0] for node in found.choice.values()}
    return Choice(_built(graph, roots, choice), found.proved, found.repeatable)


def _masks(graph: EGraph, rows: Sequence[NodeRow], loops: Loops) -> dict[int, int]:
    """The loops that each class depends on, by the member that depends on the fewest."""
    own: list[tuple[int, int]] = []
    """Of each head: loops that it adds, and those that it closes."""
    for head in range(graph.engine.head_count()):
        n = graph.shown(head)
        if n is None:
            own.append((0, 0))
        elif n.op is Ops.RANGE:
            own.append((loops.mask((n,)), 0))
        elif n.op in (Ops.REDUCE, Ops.END, Ops.SCAN):
            own.append((0, 0 if n.op is Ops.SCAN else loops.mask(n.src[1:])))
        else:
            own.append((0, 0))
    everything = -1
    masks: dict[int, int] = dict.fromkeys((row.cls for row in rows), everything)
    queue: Sequence[NodeRow] = rows
    uses: dict[int, list[NodeRow]] | None = None
    while queue:
        following: dict[int, NodeRow] = {}
        for row in queue:
            adds, closes = own[row.head]
            mask = adds
            for kid in row.kids:
                mask |= masks[kid]
            if mask != everything:
                mask &= ~closes
            known = masks[row.cls]
            if known & mask != known:
                masks[row.cls] = known & mask
                if uses is None:
                    uses = {}
                    for other in rows:
                        for kid in other.kids:
                            uses.setdefault(kid, []).append(other)
                for user in uses.get(row.cls, ()):
                    following[user.id] = user
        queue = list(following.values())
    return masks


def _mask_of(row: NodeRow, masks: Mapping[int, int]) -> int:
    mask = 0
    for kid in row.kids:
        mask |= masks[kid]
    return mask


def _price(
    graph: EGraph, row: NodeRow, n: UOp, prices: PriceList, loops: Loops, masks: Mapping[int, int]
) -> int:
    if not row.kids or n.is_const:
        return 0
    by: object = None
    negative = False
    op = n.op
    if op is Ops.IDIV or op is Ops.MOD:
        fact = graph.engine.fact(row.kids[1])
        by = fact.value if fact.number else None
        negative = graph.engine.fact(row.kids[0]).low < 0
    price = prices.one(op, n.dtype, by, negative)
    if not price:
        return 0
    return round(price * loops.share_of(_mask_of(row, masks)) * _UNIT)


def _built(graph: EGraph, roots: Sequence[UOp], choice: Mapping[int, NodeRow]) -> tuple[UOp, ...]:
    wanted = [graph.class_id(r) for r in roots]
    done: dict[int, UOp] = {}
    build: Callable[[NodeRow, Sequence[UOp]], UOp] = graph.built
    stack = list(reversed(wanted))
    while stack:
        cls = stack[-1]
        if cls in done:
            stack.pop()
            continue
        row = choice[cls]
        missing = [k for k in row.kids if k not in done]
        if missing:
            stack += missing
            continue
        done[cls] = build(row, [done[k] for k in row.kids])
        stack.pop()
    return tuple([done[cls] for cls in wanted])
