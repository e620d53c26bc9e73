"""From the leaves up: the cheapest tree of every class, and greedy choices that share.

Both give every class that has a term a node, and the choices run in no circle.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Final

from opgraft_egraph.exact.effort import Effort, Meter
from opgraft_egraph.exact.problem import Problem

_ROOM: Final = 10_000_000
"""Members of all sets that greedy choices keep at most: about 600 MB."""


def cheapest_trees(
    problem: Problem, repeats: Sequence[Sequence[int]] | None = None
) -> tuple[dict[int, int], dict[int, int]]:
    """(node, cost) of the cheapest term of each class, shared parts paid each time (Knuth 1977).

    `repeats`: the children with those that occur twice in a node. Cheapest first, so each class
    is settled once; a node comes after all below it, also where prices are 0.
    """
    children = problem.children if repeats is None else repeats
    uses = uses_of(problem)
    missing = [len(kids) for kids in problem.children]
    choice: dict[int, int] = {}
    cost: dict[int, int] = {}
    ready: list[tuple[int, int]] = []
    for node, count in enumerate(missing):
        if not count and problem.usable[node]:
            heapq.heappush(ready, (problem.prices[node], node))
    while ready:
        price, node = heapq.heappop(ready)
        cls = problem.classes[node]
        if cls in choice:
            continue
        choice[cls] = node
        cost[cls] = price
        for user in uses[cls]:
            missing[user] -= 1
            if not missing[user] and problem.usable[user]:
                total = problem.prices[user] + sum(cost[k] for k in children[user])
                heapq.heappush(ready, (total, user))
    return choice, cost


def uses_of(problem: Problem) -> list[list[int]]:
    """The nodes that have a class as a child."""
    uses: list[list[int]] = [[] for _ in problem.members]
    for node, kids in enumerate(problem.children):
        for kid in kids:
            uses[kid].append(node)
    return uses


class _Shared:
    """A choice, the classes it and all below it stand for, and what their nodes cost, each once."""

    __slots__ = ("classes", "node", "total")

    def __init__(self, classes: set[int], total: int, node: int) -> None:
        self.classes, self.total, self.node = classes, total, node


def greedy_dag(problem: Problem, meter: Meter | None = None) -> dict[int, int]:
    """Each class takes the node whose term, shared parts counted once, is cheapest so far.

    What a class takes changes only while it gets cheaper. A look at a node is a step. It also stops
    where the sets of what the terms hold take too much memory.
    """
    meter = meter or Meter(Effort(math.inf, math.inf))
    uses = uses_of(problem)
    found: dict[int, _Shared] = {}
    own = [0] * len(problem.members)
    queue = [n for n, kids in enumerate(problem.children) if not kids]
    room = _ROOM
    while queue:
        following: dict[int, None] = {}
        for node in queue:
            if not meter.spend(1):
                return {cls: one.node for cls, one in found.items()}
            cls = problem.classes[node]
            if not problem.usable[node]:
                continue
            known = found.get(cls)
            made = _together(problem, found, own, node)
            if made is not None and (known is None or made.total < known.total):
                room -= len(made.classes) - (0 if known is None else len(known.classes))
                if room < 0:
                    return {cls: one.node for cls, one in found.items()}
                found[cls] = made
                own[cls] = problem.prices[node]
                following.update(dict.fromkeys(uses[cls]))
        queue = list(following)
    return {cls: one.node for cls, one in found.items()}


def _together(
    problem: Problem, found: dict[int, _Shared], own: list[int], node: int
) -> _Shared | None:
    """A node with its children's choices; None: one has none yet, or needs the class itself."""
    cls = problem.classes[node]
    parts: list[_Shared] = []
    for kid in problem.children[node]:
        part = found.get(kid)
        if part is None or cls in part.classes:
            return None
        parts.append(part)
    parts.sort(key=lambda part: -part.total)
    classes, total = {cls}, problem.prices[node]
    for part in parts:
        new = part.classes - classes
        # a sum of whole numbers: the order of a set does not matter
        total += part.total if len(new) == len(part.classes) else sum(own[c] for c in new)
        classes |= new
    return _Shared(classes, total, node)
