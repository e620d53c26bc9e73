"""Extraction on rows of nodes, in Python: the oracle of csrc/extract.c.

Terms are ordered by cost, then by height, so a term is always strictly above its parts and
choices never run in a circle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from opgraft_egraph.engine import NodeRow

_SLACK = 1e-9


def cheapest(
    rows: Sequence[NodeRow], price: Callable[[int], float]
) -> dict[int, tuple[float, int, int]]:
    """(cost, height, node) of the cheapest term of each class, shared terms paid each time."""
    best: dict[int, tuple[float, int, int]] = {}
    uses: dict[int, list[NodeRow]] = {}
    for row in rows:
        for kid in dict.fromkeys(row.kids):
            uses.setdefault(kid, []).append(row)
    queue = list(rows)
    while queue:
        following: list[NodeRow] = []
        for row in queue:
            if any(kid not in best for kid in row.kids):
                continue
            cost = price(row.id) + sum(best[kid][0] for kid in row.kids)
            height = 1 + max((best[kid][1] for kid in row.kids), default=-1)
            made = (min(cost, 1e300), height, row.id)
            known = best.get(row.cls)
            if known is None or made[:2] < known[:2]:
                best[row.cls] = made
                following += uses.get(row.cls, ())
        queue = following
    return best


def price_choices(
    rows: Mapping[int, NodeRow],
    price: Callable[[int], float],
    choice: Mapping[int, int],
    roots: Sequence[int],
) -> float:
    """What the chosen nodes cost for the roots, each once; inf where they run in a circle."""
    done: dict[int, bool] = {}
    total = 0.0
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        cls, left = stack.pop()
        if left:
            done[cls] = True
            continue
        if cls in done:
            if not done[cls]:
                return math.inf
            continue
        node = choice.get(cls)
        if node is None:
            return math.inf
        done[cls] = False
        total += price(node)
        stack.append((cls, True))
        for kid in rows[node].kids:
            if done.get(kid) is False:
                return math.inf
            if kid not in done:
                stack.append((kid, False))
    return total


def choose(
    rows: Sequence[NodeRow],
    price: Callable[[int], float],
    roots: Sequence[int],
    dag: bool,
) -> tuple[dict[int, int], float]:
    """A node for each class, and what they cost for the roots. See `Engine.extract`."""
    best = cheapest(rows, price)
    trees = {cls: node for cls, (_, _, node) in best.items()}
    if not dag:
        return trees, sum(best[root][0] for root in roots)
    by_id = {row.id: row for row in rows}
    cost = price_choices(by_id, price, trees, roots)
    greedy = _greedy_dag(rows, price, trees)
    found = price_choices(by_id, price, greedy, roots)
    return (greedy, found) if found < cost - _SLACK else (trees, cost)


def _total(prices: Sequence[float]) -> float:
    """Their sum; without limit where a float cannot hold it."""
    try:
        return math.fsum(prices)
    except OverflowError:
        return math.inf


def _greedy_dag(
    rows: Sequence[NodeRow], price: Callable[[int], float], otherwise: Mapping[int, int]
) -> dict[int, int]:
    """Each class takes the node whose term, shared parts counted once, is cheapest."""
    chosen: dict[int, tuple[float, int, frozenset[int]]] = {}
    uses: dict[int, list[NodeRow]] = {}
    for row in rows:
        for kid in dict.fromkeys(row.kids):
            uses.setdefault(kid, []).append(row)
    queue, steps = list(rows), 0
    while queue and steps < 64 * len(rows) + 4096:
        following: list[NodeRow] = []
        for row in queue:
            steps += 1
            if any(kid not in chosen for kid in row.kids):
                continue
            members = frozenset().union(*(chosen[kid][2] for kid in row.kids))
            if row.cls in members:
                continue
            total = price(row.id) + _total([price(chosen[cls][1]) for cls in sorted(members)])
            known = chosen.get(row.cls)
            if known is None or total < known[0] - _SLACK:
                chosen[row.cls] = total, row.id, members | {row.cls}
                following += uses.get(row.cls, ())
        queue = following
    return {**otherwise, **{cls: node for cls, (_, node, _) in chosen.items()}}
