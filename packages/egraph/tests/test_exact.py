"""Extraction by DAG cost: right against brute force, never costlier, proved where it says so."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraft.api import errors
from opgraft_egraph.exact import QUICK, Effort, Problem, solve, tree_optimum
from opgraft_egraph.exact.ascent import ascend, surplus, violated_cut
from opgraft_egraph.exact.bottomup import cheapest_trees, greedy_dag
from opgraft_egraph.exact.effort import Meter
from opgraft_egraph.exact.program import solve_program
from opgraft_egraph.exact.reduction import Reduced

FOREVER = Effort(math.inf, math.inf)


def brute_force(problem: Problem) -> int | None:
    """The least price of all choices there are."""
    options: list[list[int | None]] = [[None, *nodes] for nodes in problem.members]
    prices = [
        problem.price({c: n for c, n in enumerate(chosen) if n is not None})
        for chosen in itertools.product(*options)
    ]
    return min((p for p in prices if p is not None), default=None)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to six classes, with circles, shared children, free nodes and several roots."""
    count = draw(st.integers(1, 6))
    cls = st.integers(0, count - 1)
    classes: list[int] = []
    children: list[list[int]] = []
    prices: list[int] = []
    for c in range(count):
        for _ in range(draw(st.integers(1, 3))):
            classes.append(c)
            children.append(draw(st.lists(cls, max_size=3)))
            prices.append(draw(st.sampled_from([0, 0, 1, 1, 2, 3, 5, 9])))
    return Problem(classes, children, prices, draw(st.lists(cls, min_size=1, max_size=2)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(problems())
def test_the_optimum_is_that_of_brute_force(problem: Problem) -> None:
    wanted = brute_force(problem)
    if wanted is None:
        with pytest.raises(errors.OpgraftError, match="has no term"):
            solve(problem)
        return
    found = solve(problem, FOREVER)
    assert found.proved
    assert problem.price(found.choice) == wanted
    assert found.cost == problem.cost(wanted) == found.lower


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problems())
def test_reductions_keep_an_optimum_and_bounds_are_bounds(problem: Problem) -> None:
    wanted = brute_force(problem)
    reduced = Reduced(problem)
    reduced.simplify()
    assert reduced.solvable() == (wanted is not None)
    if wanted is None:
        return
    left = brute_force(
        Problem(
            [reduced.classes[n] for n in reduced.nodes],
            [reduced.children[n] for n in reduced.nodes],
            [1 + reduced.prices[n] for n in reduced.nodes],
            reduced.roots,
        )
    )
    assert left is not None
    bound = ascend(reduced, reduced.roots)
    assert bound is not None
    assert reduced.base + bound.value <= wanted
    # a node that the bound rules out is in no cheaper solution
    least = surplus(reduced, bound.left)
    for node in reduced.nodes:
        if node in least and reduced.base + bound.value + least[node] > wanted:
            reduced.delete([node])
    reduced.simplify()
    assert reduced.solvable()


def hard_problem(seed: int, classes: int = 30) -> Problem:
    """Layers of nodes that share what lies below them, with circles back up."""
    draw = random.Random(seed)
    rows: list[tuple[int, list[int], int]] = []
    for c in range(classes):
        for _ in range(draw.randint(2, 4)):
            kids = [min(classes - 1, c + draw.randint(1, 12)) for _ in range(draw.randint(1, 3))]
            if draw.random() < 0.1:
                kids.append(draw.randrange(classes))
            rows.append((c, [k for k in kids if k != c], draw.randint(1, 30)))
    rows.append((classes - 1, [], 3))
    return Problem(*([list(column) for column in zip(*rows)]), roots=[0, 1, 2])


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_an_integer_program(seed: int) -> None:
    """HiGHS solves the same choice; levels of the classes forbid circles."""
    optimize = pytest.importorskip("scipy.optimize", reason="SciPy is not installed")
    numpy = pytest.importorskip("numpy")
    problem = hard_problem(seed)
    found = solve(problem, FOREVER)
    assert found.proved
    count, nodes = len(problem.members), len(problem.classes)
    rows: list[Any] = []
    lows: list[float] = []

    def at_least(terms: dict[int, float], low: float) -> None:
        row = numpy.zeros(nodes + count)
        for place, factor in terms.items():
            row[place] += factor
        rows.append(row)
        lows.append(low)

    for root in problem.roots:
        at_least(dict.fromkeys(problem.members[root], 1.0), 1)
    for node, kids in enumerate(problem.children):
        for kid in kids:
            at_least({**dict.fromkeys(problem.members[kid], 1.0), node: -1.0}, 0)
            # the level of the child is lower, where the node is chosen
            own, below = nodes + problem.classes[node], nodes + kid
            at_least({own: 1.0, below: -1.0, node: -float(count + 1)}, -float(count))
    made = optimize.milp(
        numpy.array([*problem.prices, *[0] * count], dtype=float),
        integrality=numpy.array([1] * nodes + [0] * count),
        bounds=optimize.Bounds(0, numpy.array([1] * nodes + [count] * count)),
        constraints=optimize.LinearConstraint(numpy.array(rows), numpy.array(lows), numpy.inf),
    )
    assert made.success
    assert found.cost == pytest.approx(problem.cost(round(made.fun)))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_can_be_solved_as_an_integer_program(seed: int) -> None:
    """It takes circles and all, and knows when nothing is cheaper."""
    pytest.importorskip("scipy", reason="SciPy is not installed")
    problem = hard_problem(seed)
    wanted = solve(problem, FOREVER)
    units = problem.price(wanted.choice)
    assert units is not None
    reduced = Reduced(problem)
    reduced.simplify()
    chosen, settled = solve_program(reduced, units + 1 - reduced.base, Meter(FOREVER))
    assert settled
    assert chosen is not None
    assert violated_cut(reduced, chosen) is None
    assert problem.price(reduced.lift(chosen)) == units
    assert solve_program(reduced, units - reduced.base, Meter(FOREVER)) == (None, True)


def test_a_cut_is_found_where_a_choice_runs_in_a_circle() -> None:
    reduced = Reduced(Problem([0, 0, 1, 1], [[1], [], [0], []], [0, 4, 0, 7], roots=[0]))
    cut = violated_cut(reduced, [0, 2])
    assert cut is not None
    assert sorted(cut) == [1, 3]
    assert violated_cut(reduced, [0, 3]) is None


@pytest.mark.parametrize("seed", range(5))
def test_never_costlier_than_quick_choices_and_says_how_far_off_it_may_be(seed: int) -> None:
    problem = hard_problem(seed, 50)
    trees, _ = cheapest_trees(problem)
    greedy = {**trees, **greedy_dag(problem)}
    quick = min(p for p in (problem.price(trees), problem.price(greedy)) if p is not None)
    # no branch is looked at: what is found then still is complete
    short = solve(problem, QUICK)
    full = solve(problem, FOREVER)
    assert problem.price(short.choice) is not None
    assert full.cost <= short.cost <= problem.cost(quick)
    assert short.lower <= full.cost
    assert full.proved


def test_steps_end_a_search_at_the_same_place_each_time() -> None:
    problem = hard_problem(11, 100)
    first, second = (solve(problem, Effort(20_000, math.inf)) for _ in range(2))
    assert (first.stop, first.proved, first.repeatable) == ("steps", False, True)
    assert first.steps == second.steps < 25_000
    assert (first.choice, first.how, first.lower) == (second.choice, second.how, second.lower)
    assert first.lower < first.cost


@pytest.mark.parametrize("steps", [0, 300, 3_000, 30_000, 300_000])
def test_more_steps_never_cost_more(steps: int) -> None:
    problem = hard_problem(5, 60)
    found, more = (solve(problem, Effort(n, math.inf)) for n in (steps, 10 * steps + 100))
    assert found.cost >= more.cost >= more.lower
    assert (found.stop == "proved") == found.proved


def test_a_deadline_that_has_passed_still_gives_a_complete_choice() -> None:
    problem = hard_problem(5, 200)
    found = solve(problem, Effort(seconds=1e-9))
    assert problem.price(found.choice) is not None
    assert found.lower <= found.cost
    assert (found.stop, found.repeatable) == ("seconds", False)


def test_what_is_shared_is_paid_once() -> None:
    # a root of two parts; each has its own leaf of 3, or the common one of 5
    problem = Problem(
        classes=[0, 1, 1, 2, 2, 3],
        children=[[1, 2], [], [3], [], [3], []],
        prices=[1, 3, 0, 3, 0, 5],
        roots=[0],
    )
    assert solve(problem).cost == 6
    assert tree_optimum(problem).cost == 7
    assert solve(problem).choice == {0: 0, 1: 2, 2: 4, 3: 5}


def test_no_choice_runs_in_a_circle_though_it_would_be_free() -> None:
    problem = Problem([0, 0, 1, 1], [[1], [], [0], []], [0, 4, 0, 7], roots=[0])
    found = solve(problem)
    assert (found.cost, found.choice) == (4, {0: 1})


def test_a_seed_is_kept_where_nothing_is_cheaper() -> None:
    problem = Problem([0, 0], [[], []], [2, 2], roots=[0])
    assert solve(problem, seed={0: 1}).choice == {0: 1}


def test_a_node_of_infinite_cost_is_not_taken() -> None:
    problem = Problem([0, 0], [[], []], [math.inf, 8], roots=[0])
    assert solve(problem).choice == {0: 1}


@pytest.mark.parametrize("price", [-1.0, math.nan])
def test_a_cost_below_zero_is_refused(price: float) -> None:
    with pytest.raises(errors.OpgraftError, match="at least 0"):
        Problem([0], [[]], [price], [0])


def test_sums_of_decimals_are_exact() -> None:
    # in floats 0.1 + 0.2 is above 0.3
    problem = Problem([0, 0, 1, 2], [[1, 2], [], [], []], [0.0, 0.3, 0.1, 0.2], roots=[0])
    assert solve(problem).cost == 0.3
    assert problem.price({0: 0, 1: 2, 2: 3}) == problem.price({0: 1})


def test_long_chains_need_no_recursion() -> None:
    count = 50_000
    children = [[i + 1] for i in range(count - 1)]
    problem = Problem(range(count), [*children, []], [1] * count, [0])
    assert solve(problem, FOREVER).cost == count
    assert tree_optimum(problem).cost == count
