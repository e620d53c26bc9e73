"""Assignment keeps program order, and takes the old memory only where nobody can see it."""

from __future__ import annotations

import numpy as np
import pytest

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.facts import Prices
from planning import CPU, array, check, in_place, plan_of

N = 20
WHOLE = ((0, N, 1),)


def x_of(seed: int, size: int = N) -> UOp:
    return array(np.random.default_rng(seed).standard_normal(size))


def part(x: UOp, begin: int, count: int, step: int = 1) -> UOp:
    return graph.slice_(x, ((begin, count, step),))


def const(value: float, size: int) -> UOp:
    return graph.full((size,), graph.dtypes.float32, value)


def add(x: UOp, value: UOp | float) -> UOp:
    other = value if isinstance(value, UOp) else const(value, graph.shape(x)[0])
    return graph.elementwise(Ops.ADD, x, other)


def mul(x: UOp, value: float) -> UOp:
    return graph.elementwise(Ops.MUL, x, const(value, graph.shape(x)[0]))


def test_shift_by_one_reads_the_old_values_and_is_fresh() -> None:
    x = x_of(0)
    made = check([graph.write(x, ((1, N - 1, 1),), part(x, 0, N - 1))])
    assert in_place(made) == [False]


def test_reversal_of_itself_is_fresh() -> None:
    x = x_of(1)
    made = check([graph.write(x, ((N - 1, N, -1),), x)])
    assert in_place(made) == [False]


def test_a_constant_slice_is_in_place() -> None:
    x = x_of(2)
    made = check([graph.write(x, ((2, 3, 1),), const(7.0, 3))])
    assert in_place(made) == [True]


def test_two_increments_are_one_kernel_in_place() -> None:
    x = x_of(3)
    y = graph.write(x, WHOLE, add(x, 1.0))
    made = check([graph.write(y, WHOLE, add(y, 1.0))])
    assert len(made.kernels) == 1
    assert in_place(made) == [False] or in_place(made) == [True]


def test_one_increment_is_in_place() -> None:
    x = x_of(3)
    made = check([graph.write(x, WHOLE, add(x, 1.0))])
    assert in_place(made) == [True]


def test_swap_of_halves_is_one_kernel() -> None:
    x = x_of(4)
    first = graph.write(x, ((0, 10, 1),), part(x, 10, 10))
    made = check([graph.write(first, ((10, 10, 1),), part(x, 0, 10))])
    assert len(made.kernels) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_a_lazy_reader_gets_the_values_before_the_write(reverse: bool) -> None:
    x = x_of(5)
    outputs = [mul(x, 2.0), graph.write(x, ((0, 5, 1),), const(0.0, 5))]
    made = check(outputs[::-1] if reverse else outputs)
    assert in_place(made) == [True]
    assert len(made.kernels) == 1


def test_the_old_version_is_kept_while_a_live_tensor_wants_it() -> None:
    x = x_of(6)
    made = check([graph.write(x, ((0, 5, 1),), const(0.0, 5))], live=[x])
    assert in_place(made) == [False]


def test_reading_the_old_version_reduced_beside_the_new_one() -> None:
    x = x_of(7)
    new = graph.write(x, ((0, 5, 1),), const(0.0, 5))
    total = graph.reshape(graph.reduce_axis(x, Ops.ADD, (0,)), (1,))
    check([new, graph.elementwise(Ops.ADD, graph.expand(total, (N,)), new)])


def test_subtracting_the_maximum_of_itself() -> None:
    x = x_of(8)
    most = graph.reshape(graph.reduce_axis(x, Ops.MAX, (0,)), (1,))
    lowered = graph.elementwise(Ops.ADD, x, graph.expand(mul(most, -1.0), (N,)))
    check([graph.write(x, WHOLE, lowered)])


def test_overlapping_writes_happen_in_order() -> None:
    x = x_of(9)
    first = graph.write(x, ((0, 10, 1),), part(x, 5, 10))
    check([graph.write(first, ((5, 10, 1),), part(first, 0, 10))])


def test_six_dependent_slice_writes() -> None:
    x = v = x_of(10)
    for i in range(6):
        v = graph.write(v, ((i * 3, 3, 1),), add(part(v, 1, 3), float(i)))
    made = check([v])
    assert len(made.kernels) <= 6
    assert x is not v


def test_two_arrays_updated_from_each_other_point_by_point() -> None:
    x, y = x_of(11), x_of(12)
    new_x = graph.write(x, WHOLE, mul(y, 2.0))
    new_y = graph.write(y, WHOLE, add(x, 1.0))
    check([new_x, new_y])


def test_two_arrays_updated_from_each_other_reversed_need_fresh_memory() -> None:
    x, y = x_of(13), x_of(14)
    new_x = graph.write(x, WHOLE, graph.flip(y, (0,)))
    new_y = graph.write(y, WHOLE, graph.flip(x, (0,)))
    made = check([new_x, new_y])
    assert in_place(made) != [True, True]


def test_a_strided_and_a_backward_region() -> None:
    x = x_of(15)
    check([graph.write(x, ((1, 6, 3),), const(5.0, 6))])
    check([graph.write(x, ((18, 6, -3),), array(np.arange(6.0)))])


# ---- regions of large arrays: the kernel stores the region alone


LARGE = 1 << 18


def test_a_small_region_of_a_large_array_costs_its_own_bytes() -> None:
    x = x_of(20, LARGE)
    made = check([graph.write(x, ((100, 50, 2),), array(np.arange(50.0)))])
    assert in_place(made) == [True]
    (kernel,) = made.kernels
    stores = [n for n in kernel.sink.toposort() if n.op is Ops.END]
    assert [r.src[0].arg for e in stores for r in e.src[1:]] == [50]


def test_a_region_that_reads_its_neighbours_is_made_fresh() -> None:
    x = x_of(21, LARGE)
    made = check([graph.write(x, ((1, 50, 1),), part(x, 0, 50))])
    assert in_place(made) == [False]
    assert made.rounds == 2


def test_a_region_that_reads_others_of_the_same_array_is_stored_in_place() -> None:
    """What is read lies where nothing is written, so no order matters."""
    x = x_of(33, LARGE)
    made = check([graph.write(x, ((0, 50, 1),), part(x, 50, 50))])
    assert in_place(made) == [True]
    v = x_of(34, LARGE)
    for i in range(3):
        v = graph.write(v, ((i * 100, 50, 1),), part(v, i * 100 + 50, 50))
    assert in_place(check([v])) == [True] * 3


def test_half_of_an_array_is_stored_alone() -> None:
    x = x_of(35, LARGE)
    made = check([graph.write(x, ((0, LARGE // 2, 1),), add(part(x, 0, LARGE // 2), 1.0))])
    assert in_place(made) == [True]
    ((_, ranges),) = [(n, n.src[1:]) for n in made.kernels[0].sink.toposort() if n.op is Ops.END]
    assert [r.src[0].arg for r in ranges] == [LARGE // 2]


def test_a_region_that_reads_its_own_elements_stays_in_place() -> None:
    x = x_of(22, LARGE)
    made = check([graph.write(x, ((1, 50, 1),), mul(part(x, 1, 50), 10.0))])
    assert in_place(made) == [True]


def test_readers_of_the_old_version_run_before_a_region_is_stored() -> None:
    x = x_of(23, LARGE)
    new = graph.write(x, ((0, 50, 1),), const(0.0, 50))
    made = check([new, graph.reduce_axis(x, Ops.MAX, (0,))])
    assert in_place(made) == [True]


def test_a_chain_of_regions_is_stored_in_order_in_one_memory() -> None:
    v = x_of(24, LARGE)
    for i in range(4):
        v = graph.write(v, ((i * 20, 40, 1),), const(float(i), 40))
    made = check([v])
    assert in_place(made) == [True] * 4


def test_readers_of_a_middle_version_see_it() -> None:
    x = x_of(25, LARGE)
    first = graph.write(x, ((0, 50, 1),), const(1.0, 50))
    total = graph.reduce_axis(first, Ops.MIN, (0,))
    second = graph.write(first, ((10, 50, 1),), const(-9.0, 50))
    check([total, second])


def test_a_live_large_array_is_copied() -> None:
    x = x_of(26, LARGE)
    made = check([graph.write(x, ((0, 50, 1),), const(1.0, 50))], live=[x])
    assert in_place(made) == [False]


# ---- repeated indices


@pytest.mark.parametrize("values", [[9.0, 0.0], [9.0, np.nan]])
def test_the_last_of_repeated_indices_wins(values: list[float]) -> None:
    table = array([5.0, 6.0, 7.0])
    made = check([graph.scatter(table, array([1, 1], graph.dtypes.int64), array(values))])
    assert len(made.kernels) == 1


def test_scatter_of_rows_drops_indices_outside() -> None:
    rng = np.random.default_rng(1)
    table = array(rng.standard_normal((6, 4)))
    rows = array([[5, 0, 9], [-1, 5, 2]], graph.dtypes.int32)
    check([graph.scatter(table, rows, array(rng.standard_normal((2, 3, 4))))])


def test_scatter_by_a_narrow_index_never_wraps_around() -> None:
    table = array(np.zeros(300))
    rows = array([200, 3, 200], graph.dtypes.uint8)
    check([graph.scatter(table, rows, array([1.0, 2.0, 3.0]))])


@pytest.mark.parametrize(
    "prices",
    [
        CPU,
        Prices(launch=0.0, parting=0.0),
        Prices(dram=1e3),
        Prices(dram=1e3, launch=0.0, parting=0.0),
        Prices(dram=0.01, launch=0.0),
    ],
)
def test_random_programs_of_assignments(prices: Prices) -> None:
    """Slices of two arrays assigned from each other, with lazy readers in between."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        first = [x_of(100 + seed, 12), x_of(200 + seed, 12)]
        now = list(first)
        readers: list[UOp] = []
        for _ in range(int(rng.integers(1, 6))):
            target, source = rng.integers(0, 2, 2)
            count = int(rng.integers(1, 8))
            step = int(rng.choice([1, 1, 1, -1, 2]))
            reach = (count - 1) * abs(step)
            if reach > 11:
                step, reach = 1, count - 1
            begin = int(rng.integers(0, 12 - reach))
            begin = begin + reach if step < 0 else begin
            taken = part(now[source], int(rng.integers(0, 12 - count + 1)), count)
            if rng.random() < 0.3:
                readers.append(graph.reduce_axis(now[target], Ops.ADD, (0,)))
            if rng.random() < 0.3:
                readers.append(mul(now[target], 3.0))
            value = add(taken, float(rng.integers(0, 3)))
            now[target] = graph.write(now[target], ((begin, count, step),), value)
        outputs = [*readers, *[v for v in now if v.op is Ops.WRITE]]
        live = [x for x in first if rng.random() < 0.3 or x in now]
        check(outputs, prices, live)


def test_no_program_plans_an_in_place_write_of_a_result() -> None:
    x = x_of(30)
    first = graph.write(x, WHOLE, add(x, 1.0))
    second = graph.write(first, WHOLE, mul(first, 2.0))
    made = plan_of([first, second])
    assert in_place(made).count(True) <= 1


def test_a_result_that_is_the_old_version_itself_is_not_overwritten() -> None:
    """A reshape of the old array is a result: it is copied before anything is written in place."""
    for size in (8, LARGE):
        x = x_of(31, size)
        check([graph.reshape(x, (2, size // 2)), graph.write(x, ((0, 3, 1),), const(1.0, 3))])


def test_the_bytes_of_a_region_are_what_it_costs() -> None:
    x = x_of(32, LARGE)
    assert check([graph.write(x, ((0, 50, 1),), const(1.0, 50))]).bytes == 200
