"""Branch and bound: reduce, bound, and where that leaves a choice, try each node of a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opgraft_egraph.exact.ascent import ascend, surplus
from opgraft_egraph.exact.effort import Meter
from opgraft_egraph.exact.local import improve
from opgraft_egraph.exact.problem import Problem
from opgraft_egraph.exact.reduction import Reduced

_WORTH: Final = 0.8
"""Where bounds leave a smaller part than this, they are tried again before reductions are."""
_ENOUGH: Final = 0.98
"""Where reductions and bounds leave a greater part than this, it is time to branch."""


class Incumbent:
    """The best solution of the whole problem so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem: Final = problem
        self.choice: dict[int, int] | None = None
        self.price = -1
        self.how = ""

    def offer(self, choice: dict[int, int] | None, how: str) -> bool:
        """Take a choice if it is one, and the cheapest; whether it was taken."""
        if choice is None:
            return False
        price = self.problem.price(choice)
        if price is None or (self.choice is not None and price >= self.price):
            return False
        self.choice, self.price, self.how = dict(choice), price, how
        return True


def search(
    stack: list[Reduced],
    best: Incumbent,
    meter: Meter,
    report: Callable[[int], None] | None = None,
) -> bool:
    """Find the optimum, depth first; whether it is proved.

    `stack`: the problems that are left; what remains in it is for a later call. `report` is told
    how many branches were looked at.
    """
    looked = 0
    while stack:
        if meter.over:
            return False
        here = stack.pop()
        looked += 1
        if report is not None:
            report(looked)
        # solutions are looked for in the first branches, and now and then
        if not close_in(here, best, meter, look=looked < 8 or not looked & 7):
            branches = _branches(here)
            stack.extend(reversed(branches))
            if not branches:
                # one node a class: steps ran out before it was seen that this is a solution
                best.offer(here.lift(here.nodes), "branch and bound")
    return True


def close_in(here: Reduced, best: Incumbent, meter: Meter, look: bool = True) -> bool:
    """Reduce and bound until neither helps; whether nothing better can be here.

    `look`: for solutions of what is left, too.
    """
    here.trim()
    size = len(here.nodes)
    while True:
        # bounds are quick, so they first take out what is far from any good solution
        if _out_of_reach(here, best, meter):
            return True
        left = len(here.nodes)
        if left > _WORTH * size:
            here.simplify(meter)
            if here.solvable() and here.solved:
                best.offer(here.lift(()), "branch and bound")
                return True
            if look and here.solvable() and not meter.over:
                for chosen in improve(here, meter):
                    best.offer(here.lift(chosen), "branch and bound")
            if _out_of_reach(here, best, meter):
                return True
            if len(here.nodes) > _ENOUGH * left or meter.over:
                return False
        size = left


def _out_of_reach(here: Reduced, best: Incumbent, meter: Meter) -> bool:
    """Delete the nodes that only dearer solutions hold; whether that leaves none."""
    if not here.solvable():
        return True
    for targets in _orders(here):
        # two passes over the nodes, and the cuts
        meter.spend(2 * len(here.nodes))
        bound = ascend(here, targets, meter)
        if bound is None:
            return True
        here.bound = max(here.bound, here.base + bound.value)
        room = best.price - here.base - bound.value
        if room <= 0:
            return True
        least = surplus(here, bound.left)
        if here.delete(n for n in here.nodes if least.get(n, room) >= room):
            here.trim()
            if not here.solvable():
                return True
    return False


def _orders(here: Reduced) -> list[list[int]]:
    """Orders in which classes that every solution holds take from the prices."""
    roots = list(here.roots)
    if not here.must:
        return [roots]
    needed = here.needed()
    return [roots, [cls for cls in reversed(here.sort()) if needed >> cls & 1]]


def _branches(here: Reduced) -> list[Reduced]:
    """A class that every solution holds, with each of its nodes alone: the promising first. None
    where no class has a choice."""
    needed = here.needed()
    options = [c for c, m in enumerate(here.members) if len(m) > 1 and needed >> c & 1]
    if not options:
        options = [c for c, m in enumerate(here.members) if len(m) > 1]
        if not options:
            return []
        cls = min(options, key=lambda c: (-len(here.members[c]), c))
        return _split(here, cls)
    cls = min(options, key=lambda c: (len(here.members[c]), c))
    return _split(here, cls)


def _split(here: Reduced, cls: int) -> list[Reduced]:
    nodes = sorted(here.members[cls], key=lambda n: (here.prices[n], len(here.children[n]), n))
    made = []
    for n in nodes:
        here.members[cls] = [n]
        made.append(here.copy())
    here.members[cls] = nodes
    return made
