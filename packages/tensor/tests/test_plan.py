"""Plans compute what NumPy computes, under every price; limits are kept; constants are free."""

from __future__ import annotations

import numpy as np
import pytest

import programs
from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import Tensor, graph
from opgraft_tensor.cost import Place
from opgraft_tensor.facts import Prices
from opgraft_tensor.normalise import canonical, split_reduction
from opgraft_tensor.plan import schedule
from opgraft_tensor.steps import Fill
from opgraft_tensor.storage import Storage, buffer_node
from planning import CPU, array, check, plan_of

RNG = np.random.default_rng(11)


def rand(*size: int) -> UOp:
    return array(RNG.standard_normal(size))


def add(*xs: UOp) -> UOp:
    total = xs[0]
    for x in xs[1:]:
        total = graph.elementwise(Ops.ADD, total, x)
    return total


SETTINGS = {
    "as it is": {},
    "every fusion": {"parallel": 1, "launch": 0.0},
    "memory for nothing": {"dram": 0.01, "launch": 0.0},
    "memory very dear": {"dram": 1e3},
    "no locals": {"cache": 1e9},
    "tiles for nothing": {"product": 0.0},
    "four buffers": {"max_buffers": 4},
}


# the largest program is planned at the usual prices alone: the others try all of them
TRIED = [
    pytest.param(program, prices, id=f"{program.__name__}-{name}")
    for program in programs.ALL
    for name, prices in SETTINGS.items()
    if program is not programs.block_train or not prices
]


@pytest.mark.parametrize(("program", "prices"), TRIED)
def test_programs_equal_numpy(program: object, prices: dict[str, float]) -> None:
    outputs = [o.uop for o in program(programs.SmallNodes)]  # type: ignore[operator]
    check(outputs, CPU._replace(**prices), tolerance=1e-4)  # type: ignore[arg-type]


# ---- the buffer limit (E01)


@pytest.mark.parametrize("limit", [31, 8, 4])
def test_a_sum_of_forty_arrays_is_cut(limit: int) -> None:
    arrays = [array(np.full(5, float(k))) for k in range(40)]
    made = check([add(*arrays)], CPU._replace(max_buffers=limit))
    assert all(len(k.memory) <= limit for k in made.kernels)
    assert len(made.kernels) == -(-39 // (limit - 2))


@pytest.mark.parametrize("limit", [31, 8, 4])
def test_a_concatenation_of_forty_arrays_is_cut(limit: int) -> None:
    arrays = [array(np.full(5, float(k))) for k in range(40)]
    padded = [graph.pad(x, ((5 * k, 195 - 5 * k),)) for k, x in enumerate(arrays)]
    made = check([add(*padded)], CPU._replace(max_buffers=limit))
    assert all(len(k.memory) <= limit for k in made.kernels)


def test_views_of_one_buffer_count_once() -> None:
    x = rand(400)
    parts = [graph.slice_(x, ((10 * k, 10, 1),)) for k in range(40)]
    made = check([add(*parts)], CPU._replace(max_buffers=4))
    assert len(made.kernels) == 1


def test_many_results_of_one_kernel_are_taken_apart() -> None:
    x = rand(64, 64)
    outputs = [
        graph.elementwise(Ops.MUL, x, graph.full((), x.dtype, float(k))) for k in range(3, 20)
    ]
    outputs = [add(o, rand(64, 64)) for o in outputs]
    made = check(outputs, CPU._replace(max_buffers=8))
    assert all(len(k.memory) <= 8 for k in made.kernels)


def test_an_operation_over_the_limit_is_an_error() -> None:
    with pytest.raises(LoweringError, match="the device takes"):
        plan_of([add(rand(4), rand(4))], CPU._replace(max_buffers=2))


# ---- constants and empty arrays


def test_a_constant_chain_gives_no_kernel() -> None:
    a = graph.full((8,), dtypes.float32, 1.0)
    for _ in range(24):
        a = add(a, a)
    plan = schedule(canonical([a], lambda _: False).outputs, CPU)
    assert plan.kernels == []
    assert isinstance(plan.steps[0], Fill)
    check([a])


def test_arrays_without_elements_take_part_in_nothing() -> None:
    empty = array(np.zeros((0, 3)))
    check([graph.pad(empty, ((2, 1), (0, 0)))])
    check([add(graph.pad(empty, ((4, 0), (0, 0))), graph.pad(rand(3, 3), ((0, 1), (0, 0))))])


# ---- equal graphs


def some_program() -> list[UOp]:
    x, y = rand(16, 32), rand(32)
    return [
        graph.reduce_axis(add(x, graph.expand(graph.reshape(y, (1, 32)), (16, 32))), Ops.MAX, (1,))
    ]


def test_equal_programs_have_one_canonical_graph_and_one_kernel() -> None:
    first, second = (canonical(some_program(), lambda _: False) for _ in range(2))
    assert first.outputs == second.outputs
    a, b = (schedule(g.outputs, CPU) for g in (first, second))
    assert [k.sink for k in a.kernels] == [k.sink for k in b.kernels]
    assert all(x is y for x, y in zip(a.kernels[0].sink.src, b.kernels[0].sink.src))


def test_like_parts_of_one_program_are_one_kernel_run_twice() -> None:
    outputs = [*some_program(), *some_program()]
    plan = schedule(canonical(outputs, lambda _: False).outputs, CPU)
    assert len({k.sink for k in plan.kernels}) == 1


def test_ranges_and_parameters_are_numbered_by_first_visit() -> None:
    for kernel in plan_of(some_program()).kernels:
        nodes = kernel.sink.toposort()
        slots = [n.arg[0] for n in nodes if n.op is Ops.PARAM]
        names = [n.arg[0] for n in nodes if n.op is Ops.RANGE]
        assert sorted(slots) == list(range(len(slots)))
        assert sorted(names) == list(range(len(names)))


# ---- placements


def test_softmax_keeps_the_row_of_exponentials() -> None:
    made = plan_of([o.uop for o in programs.softmax(programs.Nodes)])
    assert [d.place for d in made.walk.decisions if d.node.op is Ops.EXP2] == [Place.LOCAL]


def test_a_float_sum_is_never_computed_twice() -> None:
    """Two readers at different indices: comparing the sum with itself must be exact."""
    x = rand(48, 7)
    total = graph.reduce_axis(x, Ops.ADD, (1,))
    turned = graph.flip(graph.flip(total, (0,)), (0,))
    other = graph.reshape(graph.reshape(graph.flip(total, (0,)), (6, 8)), (48,))
    same = graph.elementwise(Ops.CMPEQ, total, turned)
    for prices in (CPU, Prices(dram=1e9, cache=1e9), Prices(parallel=1, launch=0)):
        made = check([same, graph.elementwise(Ops.CMPEQ, graph.flip(other, (0,)), total)], prices)
        reduces = [n for k in made.kernels for n in k.sink.toposort() if n.op is Ops.REDUCE]
        assert len(reduces) == 1


def test_integer_sums_may_be_computed_again() -> None:
    x = array(RNG.integers(0, 9, (64, 4)), dtypes.int32)
    total = graph.reduce_axis(x, Ops.ADD, (1,))
    made = check([add(total, graph.flip(total, (0,)))], Prices(dram=1e3))
    assert len(made.kernels) == 1


def test_two_scans_along_different_axes_are_two_kernels() -> None:
    x = rand(40, 30)
    first = graph.scan_axis(x, Ops.ADD, 1)
    for prices in (CPU, Prices(parallel=1, launch=0), Prices(dram=1e3)):
        made = check([graph.scan_axis(first, Ops.ADD, 0)], prices)
        assert len(made.kernels) == 2
        check([first, graph.scan_axis(x, Ops.ADD, 0), add(x, x)], prices)


def test_a_sum_over_a_scan_and_a_scan_over_a_sum() -> None:
    x = rand(20, 30, 4)
    sums = graph.reduce_axis(x, Ops.ADD, (2,))
    scan = graph.scan_axis(sums, Ops.MAX, 1)
    for prices in (CPU, Prices(parallel=1, launch=0), Prices(dram=1e3)):
        check([graph.reduce_axis(scan, Ops.ADD, (1,)), scan], prices)
        check([graph.reduce_axis(scan, Ops.ADD, (0,))], prices)


def test_gather_from_a_computed_table_and_by_a_computed_index() -> None:
    table = programs.Node(rand(24, 6))
    rows = array(RNG.integers(-3, 30, (5, 4)), dtypes.int32)
    wrapped = graph.elementwise(Ops.MOD, rows, graph.full((5, 4), dtypes.int32, 24))
    for prices in (CPU, Prices(dram=0.01, launch=0), Prices(dram=1e3)):
        soft = programs.Nodes.softmax(table).uop
        check([graph.gather(soft, rows), graph.gather(table.uop, wrapped)], prices)
        picked = graph.gather(soft, wrapped)
        check([graph.pad(graph.reduce_axis(picked, Ops.ADD, (2,)), ((1, 1), (0, 2)))], prices)


def test_gather_by_a_gathered_index() -> None:
    table = rand(24, 3)
    via = array(RNG.integers(0, 24, 40), dtypes.int64)
    rows = array(RNG.integers(-5, 45, 7), dtypes.int16)
    check([graph.gather(table, graph.gather(via, rows))])


def test_arange_is_computed_not_stored() -> None:
    made = check(
        [add(graph.arange((6, 5), 1, dtypes.int32), graph.arange((6, 5), 0, dtypes.int32))]
    )
    assert len(made.kernels[0].memory) == 1


# ---- full reductions


def test_a_full_reduction_goes_in_blocks() -> None:
    x = rand(300, 1024)
    made = check([graph.reduce_axis(x, Ops.ADD, (0, 1))], tolerance=1e-3)
    assert len(made.kernels) == 2
    assert made.kernels[0].spine


def test_blocks_depend_on_the_shape_alone() -> None:
    x = rand(1 << 16)
    for cores in (1, 2, 64):
        graph_ = canonical([graph.reduce_axis(x, Ops.ADD, (0,))], lambda _: False)
        made = schedule(graph_.outputs, CPU._replace(parallel=4 * cores))
        assert len(made.kernels) == 2
        assert made.arrays[made.kernels[0].arrays[1]].shape == (64,)


@pytest.mark.parametrize(
    "size", [(1 << 15,), (40009,), (33, 1001), (2, 50000), (7, 5, 3001), (20011, 17)]
)
def test_split_reductions_have_the_same_value(size: tuple[int, ...]) -> None:
    values = RNG.integers(-50, 50, size)
    x = array(values, dtypes.int64)
    for axes in {tuple(range(len(size))), (len(size) - 1,), (0,)}:
        found = split_reduction(Ops.ADD, axes, x)
        assert graph.shape(found) == tuple(n for a, n in enumerate(size) if a not in axes)
        check([found])


@pytest.mark.parametrize(("size", "axes"), [((1_000_003,), (0,)), ((20_011, 17), (0,))])
def test_few_results_of_many_elements_are_shared_out(
    size: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    """Also where no number of blocks divides them, and where the results are a narrow row."""
    found = canonical([graph.reduce_axis(rand(*size), Ops.ADD, axes)], lambda _: False)
    made = schedule(found.outputs, CPU)
    stored = [made.arrays[a].shape for kernel in made.kernels for a in kernel.arrays]
    assert any(16 <= s[0] <= 256 and s[1:] == size[1:] for s in stored if len(s) == len(size))


@pytest.mark.parametrize(
    ("size", "axes", "first"),
    [
        ((4096, 4096), (0,), (16, 4096)),
        ((3, 2048, 700), (1,), (3, 8, 700)),
        ((64, 64, 4096), (0, 1), (64, 4096)),
        ((1000, 4, 2048), (0, 1), (16, 2048)),  # not of 1000 blocks, 4 rows each
        ((512, 4096), (0,), None),
        ((100, 4096, 64), (1,), None),  # cores share out the 100
        ((2048, 100_000), (0,), None),
    ],
)
def test_columns_are_summed_in_blocks_of_whole_rows(
    size: tuple[int, ...], axes: tuple[int, ...], first: tuple[int, ...] | None
) -> None:
    """A core that has a part of each row would walk through memory in short pieces."""
    x = buffer_node(Storage(size, dtypes.float32, "CPU"))
    found = canonical([graph.reduce_axis(x, Ops.MAX, axes)], lambda _: False)
    parts = [n for n in found.outputs[0].toposort() if n.op is Ops.MATERIALIZE]
    assert [graph.shape(n) for n in parts] == ([first] if first else [])
    assert len(schedule(found.outputs, CPU).kernels) == (2 if first else 1)


def test_sums_of_products_stay_whole() -> None:
    """They have tiles of their own, and read nothing past the caches twice."""
    left = graph.expand(buffer_node(Storage((2048, 4, 1), dtypes.float32, "CPU")), (2048, 4, 256))
    right = graph.expand(
        buffer_node(Storage((2048, 1, 256), dtypes.float32, "CPU")), (2048, 4, 256)
    )
    product = graph.elementwise(Ops.MUL, left, right)
    whole = graph.reduce_axis(product, Ops.ADD, (0,))
    assert split_reduction(Ops.ADD, (0,), product) is whole


def test_what_a_row_has_in_common_costs_nothing_for_each_element() -> None:
    """The distance to a row's mean is subtracted anew, rather than kept for a second use."""
    (kernel,) = plan_of([Tensor(np.ones((64, 512), np.float32)).layernorm().uop]).kernels
    assert not any(n.op is Ops.LOCAL for n in kernel.sink.toposort())
    for kept in (
        Tensor(np.ones((64, 512), np.float32)).softmax(),  # exponentials are dear
        Tensor(np.ones((512, 8), np.float32)).layernorm(),  # each row will be in a lane
    ):
        (kernel,) = plan_of([kept.uop]).kernels
        assert any(n.op is Ops.LOCAL for n in kernel.sink.toposort())


def test_a_local_is_filled_outside_of_loops_that_it_does_not_depend_on() -> None:
    """Windows put together and rolled back: a row was computed anew for each of its elements."""
    windows = Tensor(np.zeros((128, 49, 96), np.float32))
    picture = windows.reshape(2, 8, 8, 7, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(2, 56, 56, 96)
    (kernel,) = plan_of([picture.roll((3, 3), (1, 2)).uop]).kernels
    (filled,) = [
        n for n in kernel.sink.toposort() if n.op is Ops.AFTER and n.src[0].op is Ops.LOCAL
    ]
    (store,) = kernel.sink.src
    outer = store.src[1 : 1 + len(filled.ranges)]
    assert set(outer) == set(filled.ranges)


def test_a_position_beyond_32_bits_is_exact() -> None:
    """A05 of the cases: element [2, 5] of shape (3, 2**30)."""
    x = buffer_node(Storage((3, 1 << 30), dtypes.uint8, "CPU"))
    made = plan_of([graph.slice_(x, ((2, 1, 1), (5, 1, 1)))])
    (load,) = [n for n in made.kernels[0].sink.toposort() if n.op is Ops.LOAD]
    assert load.src[1].arg == 2147483653
    last = plan_of([graph.slice_(x, ((0, 3, 1), (5, 7, 1)))])
    (load,) = [n for n in last.kernels[0].sink.toposort() if n.op is Ops.LOAD]
    assert load.src[1].vmax == 2 * (1 << 30) + 11


def test_a_scan_does_not_stand_outside_of_its_other_loops() -> None:
    """Found by random programs: a third statement shared the scan's loop alone."""
    x = array(RNG.integers(-4, 5, (4, 5)), dtypes.int32)
    scan = graph.reshape(graph.scan_axis(x, Ops.ADD, 1), (1, 4, 5))
    rows = graph.gather(x, array([[3], [-1], [0], [2]], dtypes.int32))
    less = graph.elementwise(Ops.CMPLT, scan, graph.expand(rows, (4, 4, 5)))
    for prices in (CPU, Prices(parallel=1, launch=0), Prices(dram=1e3)):
        check([less, rows], prices)


@pytest.mark.parametrize("groups", [1, 4])
def test_narrow_integers_are_widened_where_they_are_read(groups: int) -> None:
    """Stored wider, they would be more to move, and no quicker to load."""
    x = Tensor(np.ones((1, 17, 19, 23), np.int8)).cast("int32")
    w = Tensor(np.ones((13, 17, 3, 5), np.int8)).cast("int32")
    if groups > 1:
        x, w = x.reshape(17, 1, 19, 23).expand(17, groups, 19, 23), w[:groups, :1]
    (kernel,) = plan_of([x.conv2d(w, padding=1, groups=groups).uop]).kernels
    assert not any(n.op is Ops.LOCAL for n in kernel.sink.toposort())
