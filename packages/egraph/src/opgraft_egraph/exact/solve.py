"""From quick to exact, until the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from opgraft.api import errors
from opgraft_egraph.exact.bottomup import cheapest_trees, greedy_dag
from opgraft_egraph.exact.branch import Incumbent, close_in, search
from opgraft_egraph.exact.problem import Problem, Solution
from opgraft_egraph.exact.reduction import Reduced

_GREEDY_LOOKS: Final = 2_000_000


def solve(
    problem: Problem,
    deadline: float = 10.0,
    *,
    seed: Mapping[int, int] | None = None,
    report: Callable[[int], None] | None = None,
) -> Solution:
    """The cheapest choice by DAG cost that is found within `deadline` seconds.

    Never costlier than greedy choices, the tree optimum or `seed`, a choice that one has already.
    """
    begin = time.perf_counter()
    end = begin + deadline
    best = Incumbent(problem)
    if seed is not None:
        best.offer(dict(seed), "seed")
    trees, _ = cheapest_trees(problem)
    lost = [root for root in problem.roots if root not in trees]
    if lost:
        raise errors.OpgraftError(f"class {lost[0]} has no term: there is nothing to extract")
    best.offer(trees, "tree")
    reduced = Reduced(problem)
    proved = close_in(reduced, best, end)
    if not proved:
        best.offer({**trees, **greedy_dag(problem, _GREEDY_LOOKS)}, "greedy-DAG")
        proved, _ = search(reduced, best, end, report)
    assert best.choice is not None
    choice = problem.reached(best.choice)
    cost = problem.cost(best.price)
    lower = cost if proved else problem.cost(reduced.base)
    return Solution(choice, cost, proved, time.perf_counter() - begin, lower, best.how)


def tree_optimum(problem: Problem) -> Solution:
    """The cheapest choice if a term is paid as often as it is used."""
    begin = time.perf_counter()
    trees, _ = cheapest_trees(problem)
    lost = [root for root in problem.roots if root not in trees]
    if lost:
        raise errors.OpgraftError(f"class {lost[0]} has no term: there is nothing to extract")
    choice = problem.reached(trees)
    cost = problem.tree_cost(choice)
    return Solution(choice, cost, True, time.perf_counter() - begin, cost, "tree")
