"""Good solutions of a reduced problem, quickly: greedy choices, and exchanges of single nodes."""

from __future__ import annotations

from collections.abc import Iterator

from opgraft_egraph.exact.bottomup import cheapest_trees, greedy_dag
from opgraft_egraph.exact.effort import Meter
from opgraft_egraph.exact.problem import Problem
from opgraft_egraph.exact.reduction import Reduced

_MOST_LOOKS = 20_000


def improve(here: Reduced, meter: Meter) -> Iterator[list[int]]:
    """Sets of nodes that solve the problem, the last the best that exchanges led to."""
    nodes = here.nodes
    small = _part(here, nodes)
    meter.spend(len(nodes))
    trees, _ = cheapest_trees(small)
    with meter.room(min(meter.left, _MOST_LOOKS * 4)):
        greedy = {**trees, **greedy_dag(small, meter)}
    best, price = trees, small.price(trees)
    if price is None:
        return
    cost = small.price(greedy)
    if cost is not None and cost < price:
        best = greedy
    yield [nodes[n] for n in small.reached(best).values()]
    best = exchange(small, best, meter)
    yield [nodes[n] for n in small.reached(best).values()]


def _part(here: Reduced, nodes: list[int]) -> Problem:
    return Problem(
        [here.classes[n] for n in nodes],
        [here.children[n] for n in nodes],
        [here.prices[n] for n in nodes],
        here.roots,
    )


def exchange(
    problem: Problem, choice: dict[int, int], meter: Meter, looks: int = _MOST_LOOKS
) -> dict[int, int]:
    """Take another node in one class while that makes the whole cheaper."""
    price = problem.price(choice)
    assert price is not None
    best = dict(choice)
    again = True
    while again and looks > 0:
        again = False
        for cls, taken in list(problem.reached(best).items()):
            for node in problem.members[cls]:
                if node == taken:
                    continue
                if looks <= 0 or not meter.spend(len(best)):
                    return best
                tried = {**best, cls: node}
                made = problem.price(tried)
                looks -= len(best)
                if made is not None and made < price:
                    best, price, taken, again = tried, made, node, True
    return best
