"""Lower bounds by dual ascent, as for Steiner trees (Wong 1984).

A cut is a set of nodes of which every solution holds at least one: follow, from a class that must
be there, a child of each node that is not in the set; a solution runs in no circle, so it cannot
follow for ever. Each cut takes as much as it can from the prices of its nodes. What has been taken
in all is a lower bound, and what is left of the prices of a solution's nodes is what it costs more
than the bound, at least.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from opgraft_egraph.exact.effort import Effort, Meter
from opgraft_egraph.exact.reduction import Reduced


class Bound(NamedTuple):
    """A lower bound for what is left to choose, and what is left of each node's price."""

    value: int
    left: dict[int, int]


def ascend(reduced: Reduced, targets: Sequence[int], meter: Meter | None = None) -> Bound | None:
    """A lower bound on the price of a solution in which the `targets` have terms.

    The earlier a target stands, the earlier its cuts take. None: a target has no term. Where the
    meter runs out the bound is what has been taken until then.
    """
    meter = meter or Meter(Effort(math.inf, math.inf))
    return _Ascent(reduced, {n: reduced.prices[n] for n in reduced.nodes}).run(targets, meter)


class _Ascent:
    def __init__(self, reduced: Reduced, left: dict[int, int]) -> None:
        self.members = reduced.members
        self.children = reduced.children
        self.classes = reduced.classes
        nodes = reduced.nodes
        self.left = left
        self.users: list[list[int]] = [[] for _ in self.members]
        self.missing: dict[int, int] = {}
        for n in nodes:
            self.missing[n] = len(self.children[n])
            for kid in self.children[n]:
                self.users[kid].append(n)
        self.free = [False] * len(self.members)
        """Whether a class has a term of which nothing is left to pay."""
        self._settle([n for n in nodes if not self.left[n] and not self.missing[n]])

    def run(self, targets: Sequence[int], meter: Meter) -> Bound | None:
        value = 0
        for target in targets:
            while not self.free[target]:
                taken = self._take(target, meter)
                if taken is None:
                    return None
                value += taken
                if meter.over:
                    return Bound(value, self.left)
        return Bound(value, self.left)

    def _take(self, target: int, meter: Meter) -> int | None:
        """What cuts for a target take, until a class has a term for nothing.

        As long as none has, a cut only moves on from the one before.
        """
        inside: dict[int, None] = {target: None}
        cut: list[int] = []
        waiting = list(self.members[target])
        value = 0
        while True:
            meter.spend(1 + (len(waiting) + len(cut)) // 4)
            cut += self._follow(waiting, inside)
            cut = [n for n in cut if not any(kid in inside for kid in self.children[n])]
            if not cut:
                return None
            taken = min(self.left[n] for n in cut)
            value += taken
            for n in cut:
                self.left[n] -= taken
            waiting = [n for n in cut if not self.left[n]]
            settled = [n for n in waiting if not self.missing[n]]
            if settled:
                self._settle(settled)
                return value
            cut = [n for n in cut if self.left[n]]

    def _settle(self, nodes: list[int]) -> None:
        while nodes:
            cls = self.classes[nodes.pop()]
            if self.free[cls]:
                continue
            self.free[cls] = True
            for user in self.users[cls]:
                self.missing[user] -= 1
                if not self.missing[user] and not self.left[user]:
                    nodes.append(user)

    def cut(self, target: int) -> list[int]:
        """Nodes with something left to pay, of which every term of the target holds one."""
        inside: dict[int, None] = {target: None}
        outer = self._follow(list(self.members[target]), inside)
        return [n for n in outer if not any(kid in inside for kid in self.children[n])]

    def _follow(self, nodes: list[int], inside: dict[int, None]) -> list[int]:
        """Go into a child of each node of which nothing is left; the nodes where that ends."""
        outer: list[int] = []
        children, free, left, members = self.children, self.free, self.left, self.members
        while nodes:
            n = nodes.pop()
            if left[n]:
                outer.append(n)
                continue
            into = -1
            for kid in children[n]:
                if kid in inside:
                    into = -1
                    break
                if not free[kid] and (into < 0 or len(members[kid]) < len(members[into])):
                    into = kid
            if into >= 0:
                inside[into] = None
                nodes += members[into]
        return outer


def violated_cut(reduced: Reduced, chosen: Iterable[int]) -> list[int] | None:
    """A cut that holds none of the chosen nodes; None: they are a solution."""
    taken = set(chosen)
    ascent = _Ascent(reduced, {n: 0 if n in taken else 1 for n in reduced.nodes})
    for root in reduced.roots:
        if not ascent.free[root]:
            return ascent.cut(root)
    return None


def surplus(reduced: Reduced, left: Mapping[int, int]) -> dict[int, int]:
    """What a solution with a node costs more than the bound that left `left`, at least.

    Such a solution holds the nodes on a way from a root down to the node, and those on a way from
    there to a leaf. Nodes that no solution can hold are missing.
    """
    below = _heights(reduced, left)
    best: dict[int, int] = {}
    for node, height in below.items():
        cls = reduced.classes[node]
        if cls not in best or height < best[cls]:
            best[cls] = height
    above: dict[int, int] = {}
    found: dict[int, int] = {}
    ready = [(0, root) for root in reduced.roots]
    heapq.heapify(ready)
    while ready:
        depth, cls = heapq.heappop(ready)
        if cls in above:
            continue
        above[cls] = depth
        for node in reduced.members[cls]:
            if node not in below:
                continue
            found[node] = depth + below[node]
            for kid in reduced.children[node]:
                if kid not in above:
                    heapq.heappush(ready, (depth + left[node], kid))
    return found


def _heights(reduced: Reduced, left: Mapping[int, int]) -> dict[int, int]:
    """What is left of a node and of the dearest way below it, each class at its cheapest."""
    users: list[list[int]] = [[] for _ in reduced.members]
    missing: dict[int, int] = {}
    for node in reduced.nodes:
        missing[node] = len(reduced.children[node])
        for kid in reduced.children[node]:
            users[kid].append(node)
    height: dict[int, int] = {}
    settled: dict[int, int] = {}
    ready = [(left[n], n) for n, count in missing.items() if not count]
    heapq.heapify(ready)
    while ready:
        value, node = heapq.heappop(ready)
        height[node] = value
        cls = reduced.classes[node]
        if cls in settled:
            continue
        settled[cls] = value
        for user in users[cls]:
            missing[user] -= 1
            if not missing[user]:
                # the class that is settled last is the dearest
                heapq.heappush(ready, (left[user] + value, user))
    return height
