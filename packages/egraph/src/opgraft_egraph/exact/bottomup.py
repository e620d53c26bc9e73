"""From the leaves up: the cheapest tree of every class, and greedy choices that share.

Both give every class that has a term a node, and the choices run in no circle.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from opgraft_egraph.exact.problem import Problem

_UNKNOWN: Final = -1


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
    """The classes below a choice as the bits of a number, and what their nodes cost, each once."""

    __slots__ = ("bits", "node", "total")

    def __init__(self, bits: int, total: int, node: int) -> None:
        self.bits, self.total, self.node = bits, total, node


def greedy_dag(problem: Problem, steps: int = 0) -> dict[int, int]:
    """Each class takes the node whose term, shared parts counted once, is cheapest so far.

    What a class takes changes only while it gets cheaper. `steps`: how many looks at a node to
    make at most; 0: no limit.
    """
    uses = uses_of(problem)
    found: dict[int, _Shared] = {}
    queue = [n for n, kids in enumerate(problem.children) if not kids]
    looks = 0
    while queue:
        following: dict[int, None] = {}
        for node in queue:
            looks += 1
            cls = problem.classes[node]
            if not problem.usable[node]:
                continue
            made = _together(problem, found, node, cls)
            known = found.get(cls)
            if made is not None and (known is None or made.total < known.total):
                found[cls] = made
                following.update(dict.fromkeys(uses[cls]))
        queue = list(following)
        if steps and looks > steps:
            break
    return {cls: one.node for cls, one in found.items()}


def _together(problem: Problem, found: dict[int, _Shared], node: int, cls: int) -> _Shared | None:
    """A node with its children's choices; None: one has none yet, or needs the class itself."""
    kids = problem.children[node]
    parts: list[_Shared] = []
    for kid in kids:
        part = found.get(kid)
        if part is None or part.bits >> cls & 1:
            return None
        parts.append(part)
    parts.sort(key=lambda part: -part.total)
    bits, total = 1 << cls, problem.prices[node]
    for part in parts:
        new = part.bits & ~bits
        if new == part.bits:
            total += part.total
        else:
            total += sum_of(new, problem, found)
        bits |= part.bits
    return _Shared(bits, total, node)


def sum_of(bits: int, problem: Problem, found: dict[int, _Shared]) -> int:
    """What the nodes that the classes in `bits` have taken cost."""
    total = 0
    while bits:
        low = bits & -bits
        total += problem.prices[found[low.bit_length() - 1].node]
        bits ^= low
    return total
