"""From quick to exact, until the deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opgraft.api import errors
from opgraft_egraph.exact.bottomup import cheapest_trees, greedy_dag
from opgraft_egraph.exact.branch import Incumbent, close_in, search
from opgraft_egraph.exact.local import exchange
from opgraft_egraph.exact.problem import Problem, Solution
from opgraft_egraph.exact.program import available, solve_program
from opgraft_egraph.exact.reduction import Reduced

_GREEDY_LOOKS: Final = 2_000_000


def solve(
    problem: Problem,
    deadline: float = 10.0,
    *,
    seed: Mapping[int, int] | None = None,
    branches: float = math.inf,
    program: bool = True,
    report: Callable[[int], None] | None = None,
) -> Solution:
    """The cheapest choice by DAG cost that is found within `deadline` seconds.

    Never costlier than the tree optimum or `seed`, a choice that one has already; nor than greedy
    choices, if the deadline leaves the time to make them. With `branches`, the number of branches
    to look at, and no deadline (`math.inf`) the answer is the same on every machine.

    >>> a_or_b = Problem(classes=[0, 0, 1], children=[[], [1], []], prices=[3, 1, 1.5], roots=[0])
    >>> found = solve(a_or_b)
    >>> found.choice, found.cost, found.proved
    ({0: 1, 1: 2}, 2.5, True)
    """
    begin = time.perf_counter()
    end = begin + deadline
    best = Incumbent(problem)
    if seed is not None:
        best.offer(dict(seed), "seed")
    trees = _trees(problem)
    best.offer(trees, "tree")
    reduced = Reduced(problem)
    # on what the reductions leave, all is quicker: greedy choices come later, if at all
    proved = close_in(reduced, best, begin + deadline / 2)
    if not proved:
        greedy = {**trees, **greedy_dag(problem, _GREEDY_LOOKS, end)}
        best.offer(greedy, "greedy-DAG")
        assert best.choice is not None
        best.offer(exchange(problem, best.choice), "exchange")
        stack = [reduced]
        if program and available() and math.isfinite(deadline) and branches == math.inf:
            # branches are quicker on most problems, the program on some
            now = time.perf_counter()
            proved = search(stack, best, now + (end - now) / 3, report=report) or _by_program(
                reduced, best, now + (end - now) * 2 / 3
            )
        proved = proved or search(stack, best, end, branches, report)
    assert best.choice is not None
    cost = problem.cost(best.price)
    return Solution(
        *(problem.reached(best.choice), cost, proved, time.perf_counter() - begin),
        *(cost if proved else problem.cost(reduced.bound), best.how),
    )


def _by_program(reduced: Reduced, best: Incumbent, deadline: float) -> bool:
    """Solve what is left as an integer program; whether the best choice is proved by it."""
    if not reduced.solvable():
        return True
    chosen, settled = solve_program(reduced, best.price - reduced.base, deadline)
    if chosen is not None:
        best.offer(reduced.lift(chosen), "integer program")
    return settled


def tree_optimum(problem: Problem, repeats: Sequence[Sequence[int]] | None = None) -> Solution:
    """The cheapest choice if a term is paid as often as it is used.

    `repeats`: the children of nodes with those that occur twice.
    """
    begin = time.perf_counter()
    choice = problem.reached(_trees(problem, repeats))
    cost = problem.tree_cost(choice, repeats)
    return Solution(choice, cost, True, time.perf_counter() - begin, cost, "tree")


def _trees(problem: Problem, repeats: Sequence[Sequence[int]] | None = None) -> dict[int, int]:
    """The cheapest trees; an error if a root has none."""
    trees, _ = cheapest_trees(problem, repeats)
    for root in problem.roots:
        if root not in trees:
            raise errors.OpgraftError(f"class {root} has no term: there is nothing to extract")
    return trees
