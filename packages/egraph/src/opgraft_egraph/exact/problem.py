"""`Problem`: classes, nodes, prices and roots as plain arrays, and what an answer to it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from opgraft.api import errors

_MOST_DIGITS: Final = 40


@dataclass(frozen=True)
class Solution:
    """A node for every class that the roots need."""

    choice: dict[int, int]
    """Class to node: exactly the classes that the roots reach by it."""
    cost: float
    """Each chosen node once; for a tree, as often as it is used."""
    proved: bool
    """Whether no cheaper choice exists."""
    seconds: float = 0.0
    lower: float = 0.0
    """No choice costs less than this."""
    how: str = ""
    """What found the choice."""
    stop: str = ""
    """"proved", or the limit that ended the search: "steps", "seconds"."""
    steps: int = 0
    repeatable: bool = True
    """Whether no clock had a say: the same choice in every process and on every machine."""


class Problem:
    """Which node of each class to take, so that the roots have terms and they cost least.

    Classes and nodes are numbers from 0. `prices` are not negative. A child that occurs twice in a
    node counts once.

    >>> problem = Problem(classes=[0, 0, 1], children=[[], [1], []], prices=[5, 1, 2], roots=[0])
    >>> problem.price({0: 1, 1: 2})
    3
    """

    def __init__(
        self,
        classes: Sequence[int],
        children: Sequence[Sequence[int]],
        prices: Sequence[float],
        roots: Sequence[int],
    ) -> None:
        self.classes: Final = list(classes)
        self.children: Final = [tuple(dict.fromkeys(kids)) for kids in children]
        self.roots: Final = tuple(dict.fromkeys(roots))
        most = max((-1, *self.classes, *self.roots, *(k for kids in self.children for k in kids)))
        self.members: Final[list[list[int]]] = [[] for _ in range(most + 1)]
        for node, cls in enumerate(self.classes):
            self.members[cls].append(node)
        for node, price in enumerate(prices):
            if math.isnan(price) or price < 0:
                raise errors.OpgraftError(f"node {node} costs {price}: a cost is at least 0")
        self.usable: Final = [not math.isinf(price) for price in prices]
        self.prices, self.unit = _whole(prices)

    def price(self, choice: Mapping[int, int]) -> int | None:
        """What the choices cost for the roots in `unit`s, each node once.

        None: a class has no choice, or they run in a circle.
        """
        state: dict[int, bool] = {}
        total = 0
        stack = [(root, False) for root in reversed(self.roots)]
        while stack:
            cls, left = stack.pop()
            if left:
                state[cls] = True
                continue
            if cls in state:
                if not state[cls]:
                    return None
                continue
            node = choice.get(cls)
            if node is None or self.classes[node] != cls or not self.usable[node]:
                return None
            state[cls] = False
            total += self.prices[node]
            stack.append((cls, True))
            for kid in self.children[node]:
                done = state.get(kid)
                if done is None:
                    stack.append((kid, False))
                elif not done:
                    return None
        return total

    def cost(self, units: int) -> float:
        """A sum of prices as the number that it was given as."""
        try:
            return float(units * self.unit)
        except OverflowError:
            # no float is as large: what sums of floats give
            return math.inf

    def reached(self, choice: Mapping[int, int]) -> dict[int, int]:
        """The part of a choice that the roots need."""
        needed: dict[int, int] = {}
        stack = list(reversed(self.roots))
        while stack:
            cls = stack.pop()
            if cls not in needed:
                needed[cls] = choice[cls]
                stack.extend(reversed(self.children[choice[cls]]))
        return needed

    def tree_cost(
        self, choice: Mapping[int, int], repeats: Sequence[Sequence[int]] | None = None
    ) -> float:
        """What the choices cost if a term is paid as often as it is used. They are acyclic.

        `repeats`: the children with those that occur twice in a node.
        """
        children = self.children if repeats is None else repeats
        cost: dict[int, int] = {}
        stack = list(self.roots)
        while stack:
            cls = stack[-1]
            kids = children[choice[cls]]
            waiting = [k for k in kids if k not in cost]
            if waiting and cls not in cost:
                stack.extend(waiting)
                continue
            stack.pop()
            cost[cls] = self.prices[choice[cls]] + sum(cost[k] for k in kids)
        return self.cost(sum(cost[r] for r in self.roots))


def _whole(prices: Sequence[float]) -> tuple[list[int], Fraction]:
    """Prices as whole numbers of some unit, so that sums of them are exact.

    A float is read as the shortest decimal that denotes it: 0.1 + 0.2 costs as much as 0.3.
    """
    parts = {p: Fraction(0) if math.isinf(p) else Fraction(str(p)) for p in prices}
    scale = math.lcm(1, *(part.denominator for part in parts.values()))
    if scale > 10**_MOST_DIGITS:
        scale = 10**_MOST_DIGITS
    whole = {p: round(part * scale) for p, part in parts.items()}
    common = math.gcd(0, *whole.values()) or 1
    return [whole[p] // common for p in prices], Fraction(common, scale)
