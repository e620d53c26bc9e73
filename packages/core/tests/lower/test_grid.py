"""Kernels for devices that launch groups of threads: right on two invented ones, and in limits."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.execute import execute, interpret
from kernel_forms.kernels import kernel, loop, over, param
from kernel_forms.memory import expected, fill
from kernel_forms.oracle import Memory
from opgraft import Device, DType, dtypes, using
from opgraft.devices.interp.executor import execute as run_program
from opgraft.devices.invented import LANES32, TARGETS
from opgraft.errors import DeviceError, LoweringError
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.launch import group_bytes, over_limits, varies_in_group
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.spec import check
from opgraft.ir.text import linear_to_text, parse_linear
from opgraft.lower.barriers import place_barriers
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Action, Split
from opgraft.opt.axes import Kernel
from opgraft.opt.grid_actions import Grid, GroupReduce
from opgraft.target import Target
from tested import sampled

THREAD = AxisKind.THREAD


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]


def run(sink: UOp, target: Target, memory: Memory, **variables: int) -> Memory:
    with using(SPEC=True, INTERP_CC=target.name):
        return execute(Device["INTERP"], sink, memory, variables)


def scheduled(sink: UOp, *actions: Action) -> UOp:
    return sink.replace(arg=replace(sink.arg, schedule=actions))


def barriers_are_reached_by_all(program: LinearProgram) -> bool:
    """Whether no barrier stands where threads of a group may part, as far as can be seen."""
    opened: list[UOp] = []
    for n in program.instructions:
        if n.op in (Ops.IF, Ops.RANGE):
            opened.append(n)
        elif n.op in (Ops.END, Ops.ENDIF):
            opened.pop()
        elif n.op is Ops.BARRIER and any(varies_in_group(o.src[0]) for o in opened):
            return False
    return True


# ---- right on both targets


@pytest.mark.parametrize("name", sampled(kernels.NAMED, 2))
def test_a_kernel_runs_as_the_oracle_says(target: Target, name: str) -> None:
    sink = kernels.NAMED[name]()
    memory = fill(sink)
    assert run(sink, target, memory) == expected(sink, memory)


LARGER: list[tuple[str, tuple[int, ...]]] = [
    ("stored_and_read_back", (3, 100)),
    ("stored_across_and_read_back", (17, 40)),
    ("several_outputs", (4, 90)),
    ("rows_in_place", (4, 70)),
    ("cumulative", (40, 33)),
    ("column_cumulative", (33, 40)),
    ("last_store_wins", (150,)),
    ("read_before_overwritten", (150,)),
    ("chained_in_place", (300,)),
    ("sums_beside_rows", (70, 3)),
    ("colliding_stores", (20,)),
    ("gather", (40, 10, 33)),
    ("padded", (20, 37)),
    ("reversed_copy", (300,)),
    ("less_its_maximum", (90,)),
    ("transposed", (40, 33)),
    ("column_max", (70, 5)),
    ("convolution", (8, 16, 3)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "sizes"), LARGER, ids=[name for name, _ in LARGER])
def test_larger_than_a_group(target: Target, name: str, sizes: tuple[int, ...]) -> None:
    sink = kernels.NAMED[name](*sizes)
    memory = fill(sink)
    assert run(sink, target, memory) == expected(sink, memory)


@pytest.mark.parametrize("first", sampled(range(0, 100, 10), 4))
def test_random_kernels_run_as_the_oracle_says(first: int) -> None:
    """Ten seeds each; some read more buffers than LANES32 has."""
    for seed in range(first, first + 10):
        sink = kernels.RandomKernel(seed).make()
        memory = fill(sink, seed)
        if Kernel(sink).work() > 8_000:
            continue  # the oracle takes seconds for those
        want = expected(sink, memory)
        for name, target in TARGETS.items():
            if len(memory) > target.max_buffers:
                with pytest.raises(LoweringError, match="buffers, where 8 is the most"):
                    lower(sink, target)
                continue
            with using(INTERP_CC=name):
                assert execute(Device["INTERP"], sink, memory) == want, f"seed {seed} on {name}"


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_every_dtype_goes_through_group_memory(target: Target, dtype: DType) -> None:
    i, k, own = loop(2, "i"), over(70, "k"), loop(70, "l")
    out, a = param(0, 2, dtype), param(1, 140, dtype)
    row = UOp(Ops.LOCAL, dtype, (), ("row", 70, Space.PRIVATE))
    filled = row.after(row.store(own, a.load(i * 70 + own)).end(own))
    sink = kernel("row", out.store(i, filled.load(k).reduce(Ops.MAX, k)).end(i))
    shared = scheduled(
        sink, Grid("i"), Split("l", target.lanes, THREAD), GroupReduce("k", target.lanes)
    )
    memory = fill(sink)
    assert run(shared, target, memory) == expected(sink, memory)


def test_what_one_thread_updates_in_place_the_others_do_not_read(target: Target) -> None:
    """Beside a sum of all threads; what they read would be in a race with what that one stores."""
    i, k = loop(3, "i"), over(70, "k")
    sums, a, held = param(0, 3), param(1, 210), param(2, 3)
    sink = kernel(
        "beside",
        sums.store(i, a.load(i * 70 + k).reduce(Ops.ADD, k)).end(i),
        held.store(i, held.load(i) * 2.0).end(i),
    )
    shared = scheduled(sink, Grid("i"), GroupReduce("k", target.lanes))
    memory = fill(sink)
    assert run(shared, target, memory) == expected(sink, memory)


# ---- shapes of workloads: as NumPy says, within limits, and cooperative where that pays


def numpy_run(sink: UOp, target: Target, *arrays: np.ndarray) -> LinearProgram:
    program = lower(sink, target)
    check(program, "linear", target)
    assert not over_limits(program, target)
    assert barriers_are_reached_by_all(program)
    run_program(program, arrays)
    return program


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("m", "n", "depth"), [(64, 64, 64), (70, 130, 33), (17, 100, 40), (8, 9, 8)]
)
def test_a_product_keeps_tiles_of_its_factors_in_group_memory(
    target: Target, m: int, n: int, depth: int
) -> None:
    a, b, out = floats(m, depth), floats(depth, n), np.zeros((m, n), np.float32)
    program = numpy_run(kernels.matmul(m, n, depth), target, out, a, b)
    assert (out == a @ b).all()
    names = {n.arg[0] for n in program.instructions if n.op is Ops.LOCAL}
    assert {"tile1", "tile2"} <= names
    assert 0 < 2 * group_bytes(program) <= target.local_bytes
    assert prod(program.launch[1]) % target.lanes == 0


def test_products_of_a_batch_and_of_transposed_factors_are_tiled(target: Target) -> None:
    c, i, j, k = loop(3, "b"), loop(20, "i"), loop(24, "j"), over(18, "k")
    out, x, y = param(0, 1440), param(1, 1080), param(2, 1296)
    product = x.load((c * 20 + i) * 18 + k) * y.load((c * 24 + j) * 18 + k)
    sink = kernel(
        "batch", out.store((c * 20 + i) * 24 + j, product.reduce(Ops.ADD, k)).end(c, i, j)
    )
    a, b, got = floats(3, 20, 18), floats(3, 24, 18), np.zeros((3, 20, 24), np.float32)
    program = numpy_run(sink, target, got, a, b)
    assert (got == a @ b.transpose(0, 2, 1)).all()
    assert group_bytes(program)


def test_a_padded_convolution_is_tiled(target: Target) -> None:
    size, channels, filters = 10, 9, 12
    f, y, x = loop(filters, "f"), loop(size, "y"), loop(size, "x")
    c, u, v = over(channels, "c"), over(3, "u"), over(3, "v")
    out, a = param(0, filters * size**2), param(1, channels * size**2)
    w = param(2, filters * channels * 9)
    row, column = y + u - 1, x + v - 1
    inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    item = a.load((c * size + row) * size + column, inside)
    product = item * w.load(((f * channels + c) * 3 + u) * 3 + v)
    place = (f * size + y) * size + x
    sink = kernel("conv", out.store(place, product.reduce(Ops.ADD, c, u, v)).end(f, y, x))
    image, weights = floats(channels, size, size), floats(filters, channels, 3, 3)
    got = np.zeros((filters, size, size), np.float32)
    numpy_run(sink, target, got, image, weights)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(image, ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2)
    )
    assert (got == np.einsum("cyxuv,fcuv->fyx", windows, weights)).all()


def test_few_long_sums_are_shared_by_the_threads_of_a_group(target: Target) -> None:
    x, out = floats(5, 3001), np.zeros(5, np.float32)
    program = numpy_run(kernels.row_sum(5, 3001), target, out, x)
    assert (out == x.sum(1)).all()
    assert program.launch == ((5,), (256,))
    assert group_bytes(program)


def test_many_sums_along_columns_go_to_a_thread_each(target: Target) -> None:
    x, out = floats(40, 9000), np.zeros(9000, np.float32)
    program = numpy_run(kernels.column_max(40, 9000), target, out, x)
    assert (out == x.max(0)).all()
    assert group_bytes(program) == 0


def test_a_row_kept_in_a_local_is_filled_by_the_whole_group(target: Target) -> None:
    x, out = floats(6, 700), np.zeros((6, 700), np.float32)
    program = numpy_run(kernels.normalised_rows(6, 700), target, out, x)
    shifted = x - x.max(1, keepdims=True)
    assert (out == shifted / (shifted.sum(1, keepdims=True) - 1)).all()
    row = next(n for n in program.instructions if n.op is Ops.LOCAL and n.arg[0] == "row")
    assert row.arg[2] is Space.GROUP
    assert program.launch[0] == (6,)


def test_elementwise_kernels_use_vectors_where_the_target_has_them() -> None:
    for target in TARGETS.values():
        a, b = floats(40000), floats(40000)
        out = np.zeros(40000, np.float32)
        program = numpy_run(kernels.elementwise(40000), target, out, a, b)
        assert (out == a * b + 1).all()
        lanes = max(n.dtype.count for n in program.instructions)
        assert lanes == (4 if target.vector_bytes else 1)


def test_threads_of_a_group_that_rewrite_what_others_read_meet_at_a_barrier(target: Target) -> None:
    x = floats(2000)
    want = x - x.max()
    program = numpy_run(kernels.less_its_maximum(2000), target, x)
    assert (x == want).all()
    assert any(n.op is Ops.BARRIER for n in program.instructions)


# ---- launches


def test_groups_beyond_the_limit_are_folded() -> None:
    few = replace(LANES32, max_parallel_size=3)
    for height in (3, 4, 7, 12):
        sink = kernels.row_sum(height, 64)
        memory = fill(sink)
        program = lower(sink, few)
        assert program.launch[0][0] <= 3
        assert interpret(program, memory) == expected(sink, memory)
    sink = kernels.elementwise(1000)
    memory = fill(sink)
    program = lower(sink, few)
    assert program.launch[0][0] <= 3
    assert interpret(program, memory) == expected(sink, memory)


def test_a_variable_number_of_iterations_gives_a_variable_number_of_groups(target: Target) -> None:
    n = UOp.variable("n", 0, 1000)
    i = UOp.range(n, "i")
    out, a = param(0, 1000), param(1, 1000)
    sink = kernel("scaled", out.store(i, a.load(i) * 2.0).end(i))
    memory = fill(sink)
    for size in (0, 1, 33, 1000):
        got = run(sink, target, memory, n=size)[0]
        assert got == [2 * v for v in memory[1][:size]] + memory[0][size:]
    program = lower(sink, target)
    assert isinstance(program.launch[0][0], UOp)
    assert parse_linear(linear_to_text(program)) == program
    few = lower(sink, replace(target, max_parallel_size=2))
    assert few.launch[0][0].vmax == 2  # type: ignore[union-attr]


def test_a_kernel_comes_out_of_the_cache_with_its_variable_launch() -> None:
    n = UOp.variable("n", 1, 500)
    i = UOp.range(n, "i")
    sink = kernel("cached", param(0, 500).store(i, param(1, 500).load(i)).end(i))
    with using(INTERP_CC="LANES32"):
        for _ in range(2):
            device = Device["INTERP"]
            device.kernels.clear()
            memory = fill(sink)
            assert execute(device, sink, memory, {"n": 300})[0][:300] == memory[1][:300]


def test_a_kernel_without_loops_is_one_thread(target: Target) -> None:
    sink = kernel("one", param(0, 1).store(0, param(1, 1).load(0) + 1.0))
    assert lower(sink, target).launch == ((1,), (1,))


def test_effects_of_different_lengths_share_a_launch(target: Target) -> None:
    i, j = loop(100, "i"), loop(7, "j")
    out, other, one, a = param(0, 100), param(1, 7), param(2, 1), param(3, 100)
    sink = scheduled(
        kernel(
            "three",
            out.store(i, a.load(i)).end(i),
            other.store(j, a.load(j) * 3.0).end(j),
            one.store(0, a.load(5)),
        ),
        Grid("i", 32),
        Grid("j", 32),
    )
    memory = fill(sink)
    assert run(sink, target, memory) == expected(sink.replace(arg=KernelInfo("t")), memory)


def test_a_program_for_a_grid_is_text_that_reads_back(target: Target) -> None:
    for name in ("matmul", "normalised_rows", "less_its_maximum"):
        program = lower(kernels.NAMED[name](), target)
        assert parse_linear(linear_to_text(program)) == program


# ---- barriers


def test_per_group_sums_of_a_half_empty_group() -> None:
    """E06: 0 .. 9 in groups of 8; every barrier is reached by all threads."""
    i, k = loop(2, "i"), over(8, "k")
    out, x = param(0, 2), param(1, 10)
    at = i * 8 + k
    sink = scheduled(
        kernel("sums", out.store(i, x.load(at, at < 10).reduce(Ops.ADD, k)).end(i)),
        Grid("i"),
        GroupReduce("k", 8),
    )
    program = lower(sink, LANES32)
    assert program.launch == ((2,), (8,))
    assert barriers_are_reached_by_all(program)
    kinds = [n.op for n in program.instructions]
    assert kinds.count(Ops.BARRIER) == 1
    assert Ops.IF not in kinds
    got = np.zeros(2, np.float32)
    run_program(program, [got, np.arange(10, dtype=np.float32)])
    assert got.tolist() == [28, 17]


SOME_WRITE = """linear["even"]
%out: int32 = param[0, 8]
%t: int32 = special["thread0", 8]
params %out
body
  %s: int32 = local["s", 8, group]
  %z: int32 = mul(%t, 0)
  store(%s, %t, %z)
  %odd: int32 = and(%t, 1)
  %even: bool = cmpeq(%odd, 0)
  %if: void = if(%even)
    %v: int32 = add(%t, 100)
    store(%s, %t, %v)
    %u: int32 = add(%t, 2)
    %o: int32 = and(%u, 7)
  endif(%if)
  %p: int32 = add(%t, 2)
  %q: int32 = and(%p, 7)
  %r: int32 = load(%s, %q)
  store(%out, %t, %r)
launch[(1,), (8,)]
written[0,]
"""


def test_a_barrier_lies_between_a_write_under_a_condition_and_the_read() -> None:
    """E06: only even threads write s[t], then all read s[(t + 2) % 8]."""
    program = place_barriers(parse_linear(SOME_WRITE), frozenset())
    assert barriers_are_reached_by_all(program)
    kinds = [n.op for n in program.instructions]
    last = len(kinds) - kinds[::-1].index(Ops.ENDIF)
    assert Ops.BARRIER in kinds[last : kinds.index(Ops.LOAD)]
    out = np.zeros(8, np.int32)
    run_program(program, [out])
    assert out.tolist() == [102, 0, 104, 0, 106, 0, 100, 0]


def needed(program: LinearProgram, memory: Memory) -> list[bool]:
    """Of each barrier whether INTERP finds a race without it."""
    items, found = program.instructions, []
    for place, n in enumerate(items):
        if n.op is Ops.BARRIER:
            fewer = replace(program, instructions=(*items[:place], *items[place + 1 :]))
            try:
                interpret(fewer, memory)
                found.append(False)
            except DeviceError as error:
                found.append("without a barrier between" in error.message)
    return found


def test_a_loop_that_refills_group_memory_has_a_barrier_at_both_ends(target: Target) -> None:
    sink = kernels.matmul(20, 20, 40)
    memory = fill(sink)
    program = lower(sink, target)
    assert interpret(program, memory) == expected(sink, memory)
    assert needed(program, memory) == [True, True]


def test_a_group_that_does_row_after_row_races_without_its_barriers() -> None:
    sink = kernels.normalised_rows(4, 40)
    rows = (Split("k", 32, THREAD), Split("l", 32, THREAD), Split("j", 32, THREAD))
    program = lower(scheduled(sink, *rows), LANES32)
    assert program.launch == ((1,), (32,))
    memory = fill(sink)
    assert interpret(program, memory) == expected(sink, memory)
    # before the sum each thread happens to read what it wrote itself
    assert sorted(needed(program, memory)) == [False, True, True, True, True]


def test_values_are_not_handed_over_where_threads_part() -> None:
    text = SOME_WRITE.replace(
        "    %o: int32 = and(%u, 7)\n",
        "    %o: int32 = and(%u, 7)\n    %l: int32 = load(%s, %o)\n    store(%out, %t, %l)\n",
    )
    with pytest.raises(LoweringError, match="in a condition that differs between them"):
        place_barriers(parse_linear(text), frozenset())


def test_copies_of_one_store_need_no_barrier_between() -> None:
    text = """linear["copies"]
%out: int32 = param[0, 16]
%t: int32 = special["thread0", 8]
params %out
body
  %s: int32 = local["s", 16, group]
  %a: int32 = mul(%t, 2)
  %b: int32 = add(%a, 1)
  store(%s, %a, %t)
  store(%s, %b, %t)
  %m: int32 = mul(%t, -1)
  %c: int32 = add(%m, 15)
  %v: int32 = load(%s, %c)
  store(%out, %t, %v)
launch[(1,), (8,)]
written[0,]
"""
    program = place_barriers(parse_linear(text), frozenset())
    assert [n.op for n in program.instructions].count(Ops.BARRIER) == 1
    out = np.zeros(16, np.int32)
    run_program(program, [out])
    assert out[:8].tolist() == [7, 7, 6, 6, 5, 5, 4, 4]


# ---- what a target lacks


def test_a_kernel_over_a_limit_is_an_error_that_says_which() -> None:
    sink = kernels.row_sum(4, 5000)
    with pytest.raises(LoweringError, match="512 threads of a group; LANES32 has 256"):
        lower(scheduled(sink, Split("k", 512, THREAD)), LANES32)
    local = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 5000, Space.PRIVATE))
    own, k = loop(5000, "l"), over(5000, "k")
    filled = local.after(local.store(own, param(1, 5000).load(own)).end(own))
    big = kernel("big", param(0, 1).store(0, filled.load(k).reduce(Ops.ADD, k)))
    with pytest.raises(LoweringError, match="20000 bytes of group memory, where 16384"):
        lower(scheduled(big, Split("l", 32, THREAD)), LANES32)
    memory = fill(big)
    assert run(big, LANES32, memory) == expected(big, memory)  # the heuristic keeps off


def test_a_target_without_grids_is_left_alone() -> None:
    program = lower(kernels.elementwise(), Device["CPU"].target)
    assert program.launch == ((), ())
    assert program.parallel is not None
