"""From quick to exact, until the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opgraft.api import errors
from opgraft_egraph.exact.bottomup import cheapest_trees, greedy_dag
from opgraft_egraph.exact.branch import Incumbent, close_in, search
from opgraft_egraph.exact.effort import USUAL, Effort, Meter
from opgraft_egraph.exact.local import exchange
from opgraft_egraph.exact.problem import Problem, Solution
from opgraft_egraph.exact.program import available, solve_program
from opgraft_egraph.exact.reduction import Reduced

_GREEDY_LOOKS: Final = 2_000_000


def solve(
    problem: Problem,
    effort: Effort = USUAL,
    *,
    seed: Mapping[int, int] | None = None,
    report: Callable[[int], None] | None = None,
) -> Solution:
    """The cheapest choice by DAG cost that is found with such an effort.

    Never costlier than the tree optimum or `seed`, a choice that one has already; nor than greedy
    choices, if there is room to make them. `report` is told the number of branches.

    >>> a_or_b = Problem(classes=[0, 0, 1], children=[[], [1], []], prices=[3, 1, 1.5], roots=[0])
    >>> found = solve(a_or_b)
    >>> found.choice, found.cost, found.proved
    ({0: 1, 1: 2}, 2.5, True)
    """
    meter = Meter(effort)
    best = Incumbent(problem)
    if seed is not None:
        best.offer(dict(seed), "seed")
    trees = _trees(problem)
    meter.spend(len(problem.classes))
    best.offer(trees, "tree")
    reduced = Reduced(problem)
    # on what the reductions leave, all is quicker: greedy choices come later, if at all
    with meter.part(1 / 2):
        proved = close_in(reduced, best, meter)
    if not proved:
        best.offer({**trees, **_greedy(problem, meter)}, "greedy-DAG")
        assert best.choice is not None
        best.offer(exchange(problem, best.choice, meter), "exchange")
        proved = _exactly(reduced, best, meter, effort, report)
    assert best.choice is not None
    cost = problem.cost(best.price)
    return Solution(
        choice=problem.reached(best.choice),
        cost=cost,
        proved=proved,
        seconds=meter.seconds,
        lower=cost if proved else problem.cost(max(reduced.bound, 0)),
        how=best.how,
        stop="proved" if proved else "seconds" if meter.late else "steps",
        steps=meter.spent,
        repeatable=not meter.late,
    )


def _greedy(problem: Problem, meter: Meter) -> dict[int, int]:
    """Greedy choices: some looks at them are had however few steps there are."""
    with meter.room(max(min(meter.left, _GREEDY_LOOKS), 8 * len(problem.classes))):
        return greedy_dag(problem, meter)


def _exactly(
    reduced: Reduced,
    best: Incumbent,
    meter: Meter,
    effort: Effort,
    report: Callable[[int], None] | None,
) -> bool:
    """Branches, and an integer program where that is wanted; whether the optimum is proved."""
    stack = [reduced]
    if effort.program and available():
        # branches are quicker on most problems, the program on some
        with meter.part(1 / 3):
            if search(stack, best, meter, report):
                return True
        with meter.part(1 / 2):
            if _by_program(reduced, best, meter):
                return True
    return search(stack, best, meter, report)


def _by_program(reduced: Reduced, best: Incumbent, meter: Meter) -> bool:
    """Solve what is left as an integer program; whether the best choice is proved by it."""
    if not reduced.solvable():
        return True
    chosen, settled = solve_program(reduced, best.price - reduced.base, meter)
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
