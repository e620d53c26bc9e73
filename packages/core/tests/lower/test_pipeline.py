"""A kernel means the same before lowering (the oracle) and after it, on every device."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kernel_forms import kernels
from kernel_forms.execute import execute, interpret
from kernel_forms.memory import expected, fill
from opgraft import Device, DType, dtypes, using
from opgraft.errors import LoweringError
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.spec import check
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Parallel, Split
from opgraft.target import Target
from tested import DEVICES, sampled


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    return Device[request.param]


def agree(device, sink: UOp, seed: int = 0) -> None:  # type: ignore[no-untyped-def]
    memory = fill(sink, seed)
    with using(SPEC=True):
        assert execute(device, sink, memory) == expected(sink, memory)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", kernels.NAMED)
def test_a_kernel_runs_as_the_oracle_says(device, name: str) -> None:  # type: ignore[no-untyped-def]
    agree(device, kernels.NAMED[name]())


@pytest.mark.parametrize("seed", sampled(range(16), 3))
def test_a_random_kernel_runs_as_the_oracle_says(device, seed: int) -> None:  # type: ignore[no-untyped-def]
    agree(device, kernels.RandomKernel(seed).make(), seed)


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN], ids=lambda op: op.name)
def test_every_dtype_reduces(device, op: Ops, dtype: DType) -> None:  # type: ignore[no-untyped-def]
    i, k = kernels.loop(3, "i"), kernels.over(19, "k")
    out, a = kernels.param(0, 3, dtype), kernels.param(1, 57, dtype)
    value = a.load(i * 19 + k)
    if op is Ops.MUL:
        # signs alone, so that no product leaves what a small float holds exactly
        one = value.const_like(1)
        value = (value < value.const_like(2)).where(
            one, value.const_like(0 if dtype.is_bool else 2)
        )
        value = (k < 3).where(value, one)
    sink = kernels.kernel("reduce", out.store(i, value.reduce(op, k)).end(i))
    agree(device, sink)


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_every_dtype_is_copied_gathered_and_gated(device, dtype: DType) -> None:  # type: ignore[no-untyped-def]
    i = kernels.loop(21, "i")
    out, a = kernels.param(0, 21, dtype), kernels.param(1, 21, dtype)
    at = i * -1 + 22
    sink = kernels.kernel("copy", out.store(i, a.load(at, (at >= 0) & (at < 21), 1)).end(i))
    agree(device, sink)


def test_a_variable_bounds_a_loop_and_shifts_an_index(device) -> None:  # type: ignore[no-untyped-def]
    n = UOp.variable("n", 1, 9)
    i, k = UOp.range(n, "i"), UOp.range(n, "k", AxisKind.REDUCE)
    out, a = kernels.param(0, 10), kernels.param(1, 20)
    total = a.load(k + n).reduce(Ops.ADD, k)
    sink = kernels.kernel("variable", out.store(i, total + a.load(i)).end(i))
    memory = fill(sink)
    for size in (1, 4, 9):
        got = execute(device, sink, memory, {"n": size})
        assert got[0][:size] == [
            sum(memory[1][size : 2 * size]) + memory[1][i] for i in range(size)
        ]
        assert got[0][size:] == memory[0][size:]


def test_a_load_is_not_moved_out_of_a_loop_that_may_be_empty(device) -> None:  # type: ignore[no-untyped-def]
    n = UOp.variable("n", 0, 4)
    k = UOp.range(n, "k", AxisKind.REDUCE)
    out, a = kernels.param(0, 1), kernels.param(1, 4)
    sink = kernels.kernel("maybe_empty", out.store(0, (a.load(n - 1) * 1.5).reduce(Ops.ADD, k)))
    memory = fill(sink)
    assert execute(device, sink, memory, {"n": 0})[0] == [0.0]
    assert execute(device, sink, memory, {"n": 2})[0] == [memory[1][1] * 3.0]


@pytest.mark.parametrize("fill_local", [False, True])
def test_nothing_is_loaded_for_a_loop_that_has_no_iterations(  # type: ignore[no-untyped-def]
    device, fill_local: bool
) -> None:
    n = UOp.variable("n", 0, 4)
    i, k, own = UOp.range(n, "i"), kernels.over(100, "k"), kernels.loop(100, "l")
    out, a = kernels.param(0, 4), kernels.param(1, 400)
    if fill_local:
        row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 100, Space.PRIVATE))
        filled = row.after(row.store(own, a.load((n - 1) * 100 + own)).end(own))
        value = filled.load(k).reduce(Ops.MAX, k)
    else:
        value = a.load((n - 1) * 100 + k).reduce(Ops.ADD, k)
    sink = kernels.kernel("empty", out.store(i, value).end(i))
    memory = fill(sink)
    assert execute(device, sink, memory, {"n": 0})[0] == memory[0]
    last = memory[1][100:200]
    want = max(last) if fill_local else sum(last)
    assert execute(device, sink, memory, {"n": 2})[0] == [want, want, *memory[0][2:]]


def test_what_stands_beside_an_empty_parallel_loop_is_done(device) -> None:  # type: ignore[no-untyped-def]
    n = UOp.variable("n", 0, 40)
    i = UOp.range(n * 2, "i")
    out, a, other = kernels.param(0, 80), kernels.param(1, 80), kernels.param(2, 1)
    sink = kernels.kernel(
        "beside", out.store(i, a.load(i) * 2.0).end(i), other.store(0, UOp.const("float32", 5.0))
    )
    memory = fill(sink)
    assert execute(device, sink, memory, {"n": 0})[2] == [5.0]
    assert execute(device, sink, memory, {"n": 40})[0] == [2 * v for v in memory[1]]


def test_a_parallel_loop_may_have_a_variable_extent(device) -> None:  # type: ignore[no-untyped-def]
    n = UOp.variable("n", 1, 9)
    i = UOp.range(n, "i")
    out, a = kernels.param(0, 9), kernels.param(1, 9)
    sink = kernels.kernel("spread", out.store(i, a.load(i) * 2.0).end(i))
    memory = fill(sink)
    got = execute(device, sink, memory, {"n": 5})[0]
    assert got == [2 * v for v in memory[1][:5]] + memory[0][5:]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int8], ids=str)
def test_a_variable_of_a_narrow_dtype_arrives_as_a_value(device, dtype: DType) -> None:  # type: ignore[no-untyped-def]
    x = UOp.variable("x", -2, 2, dtype)
    i = kernels.loop(9, "i")
    out, a = kernels.param(0, 9, dtype), kernels.param(1, 9, dtype)
    sink = kernels.kernel("scaled", out.store(i, a.load(i) * x).end(i))
    memory = fill(sink)
    assert execute(device, sink, memory, {"x": 2})[0] == [2 * v for v in memory[1]]


def test_an_index_from_memory_that_is_far_out_of_range_does_not_wrap_into_it(device) -> None:  # type: ignore[no-untyped-def]
    i = kernels.loop(4, "i")
    out, a, where = kernels.param(0, 4), kernels.param(1, 10), kernels.param(2, 4, dtypes.int64)
    at = where.load(i).cast(dtypes.index) * 4 + i
    sink = kernels.kernel("far", out.store(i, a.load(at, (at >= 0) & (at < 10), -1.0)).end(i))
    memory = fill(sink)
    memory[2] = [1, 2, 2**62, -(2**63)]
    got = execute(device, sink, memory)[0]
    assert got == [memory[1][4], memory[1][9], -1.0, -1.0]


@pytest.mark.parametrize("seed", sampled(range(60, 75), 4))
def test_the_program_of_one_target_runs_the_same_on_the_interpreter(seed: int) -> None:
    """INTERP schedules for itself elsewhere; here it carries out what the CPU would."""
    sink = kernels.RandomKernel(seed).make()
    memory = fill(sink, seed)
    assert interpret(lower(sink, CPU), memory) == expected(sink, memory)


@pytest.mark.parametrize("name", kernels.NAMED)
def test_a_kernel_means_the_same_without_64_bit_integers(name: str) -> None:
    target = replace(CPU, compute=CPU.compute - {dtypes.int64, dtypes.uint64})
    sink = kernels.NAMED[name]()
    memory = fill(sink)
    with using(SPEC=True):
        program = lower(sink, target)
    assert interpret(program, memory) == expected(sink, memory)


# ---- what the list of instructions looks like

PLAIN = Target("plain", vector_bytes=0, parallel=None)
CPU = Target("test", vector_bytes=32, cores=2, fma=frozenset({dtypes.float32}))


def ops(program: LinearProgram) -> list[Ops]:
    return [n.op for n in program.instructions]


def test_what_a_loop_does_not_change_is_computed_before_it() -> None:
    i, j = kernels.loop(4, "i"), kernels.loop(5, "j")
    out, a = kernels.param(0, 20), kernels.param(1, 4)
    value = (a.load(i) * a.load(i)).sqrt()
    program = lower(kernels.kernel("k", out.store(i * 5 + j, value).end(i, j)), PLAIN)
    inner = [n for n in program.instructions if n.op is Ops.RANGE][1]
    place = program.instructions.index(inner)
    assert Ops.SQRT in ops(program)[:place]
    assert Ops.SQRT not in ops(program)[place:]


def test_two_reductions_of_one_row_share_a_loop() -> None:
    program = lower(kernels.several_outputs(), PLAIN)
    # the row, both reductions together, the scaled row
    assert ops(program).count(Ops.RANGE) == 3


def test_a_reduction_that_needs_another_gets_a_loop_of_its_own() -> None:
    i, k = kernels.loop(4, "i"), kernels.over(5, "k")
    out, a = kernels.param(0, 4), kernels.param(1, 20)
    x = a.load(i * 5 + k)
    top = x.reduce(Ops.MAX, k)
    sink = kernels.kernel("k", out.store(i, (x - top).reduce(Ops.ADD, k)).end(i))
    assert ops(lower(sink, PLAIN)).count(Ops.RANGE) == 3


def test_a_product_accumulates_with_one_rounding_where_the_target_can() -> None:
    assert Ops.MULACC in ops(lower(kernels.matmul(), CPU))
    assert Ops.MULACC not in ops(lower(kernels.matmul(), PLAIN))


def test_a_product_outside_of_a_reduction_is_never_contracted() -> None:
    assert Ops.MULACC not in ops(lower(kernels.elementwise(), CPU))


def test_consecutive_accesses_are_vectors() -> None:
    program = lower(kernels.elementwise(64), CPU)
    loads = [n for n in program.instructions if n.op is Ops.LOAD]
    assert {n.dtype.count for n in loads} == {8}
    check(program, "linear")


def test_an_index_is_int32_where_it_fits_and_int64_where_not() -> None:
    def widths(height: int, width: int) -> set[DType]:
        i, j = kernels.loop(height, "i"), kernels.loop(width, "j")
        out = kernels.param(0, height * width, dtypes.uint8)
        one = UOp.const(dtypes.uint8, 1)
        program = lower(kernels.kernel("k", out.store(i * width + j, one).end(i, j)), PLAIN)
        return {n.src[1].dtype for n in program.instructions if n.op is Ops.STORE}

    assert widths(3, 1 << 20) == {dtypes.int32}
    assert widths(3, 1 << 30) == {dtypes.int64}


def test_the_width_comes_from_every_intermediate_not_from_the_result() -> None:
    # ((g * 2**20) * 2048) // 4096 fits 32 bits, its numerator does not (A05)
    g = UOp.variable("g", 0, 1024)
    numerator = (g * (1 << 20)) * 2048 + UOp.variable("h", 0, 4095)
    index = numerator // 4096
    out = kernels.param(0, 1 << 30, dtypes.uint8)
    program = lower(kernels.kernel("k", out.store(index, UOp.const("uint8", 1))), PLAIN)
    wide = [n for n in program.instructions if n.op in (Ops.MUL, Ops.SHL, Ops.ADD)]
    assert any(n.dtype is dtypes.int64 for n in wide) or all(
        n.vmin >= -(1 << 31) and n.vmax < 1 << 31 for n in wide
    )


def test_an_index_beyond_64_bits_is_an_error_that_gives_its_bounds() -> None:
    n = UOp.variable("n", 0, 1 << 40)
    out = kernels.param(0, 10)
    sink = kernels.kernel("k", out.store(n * n, UOp.const("float32", 1.0)))
    with pytest.raises(LoweringError, match=f"within .0, {1 << 80}. does not fit 64 bits"):
        lower(sink, PLAIN)


def test_what_stands_beside_the_parallel_loop_is_done_once() -> None:
    program = lower(kernels.elementwise(1003), CPU)
    assert program.parallel is not None
    assert ops(program).count(Ops.IF) == 1
    parallel_end = next(
        i
        for i, n in enumerate(program.instructions)
        if n.op is Ops.END and n.src[0] is program.parallel
    )
    assert ops(program).index(Ops.IF) > parallel_end


def test_a_schedule_in_the_kernel_info_is_followed() -> None:
    sink = kernels.elementwise(64)
    steps = (Split("i", 4, AxisKind.VECTOR), Parallel("i.o"))
    program = lower(sink.replace(arg=KernelInfo("k", schedule=steps)), CPU)
    assert {n.dtype.count for n in program.instructions if n.op is Ops.LOAD} == {4}


def test_the_same_kernel_is_lowered_the_same_twice() -> None:
    first = lower(kernels.matmul(), CPU)
    assert lower(kernels.matmul(), CPU).instructions == first.instructions


def test_every_target_without_vectors_gets_scalars_alone() -> None:
    target = replace(CPU, vector_bytes=0, max_lanes=1)
    for make in kernels.NAMED.values():
        program = lower(make(), target)
        assert all(n.dtype.count == 1 for n in program.instructions)


@pytest.mark.thorough
def test_a_sum_of_many_terms_is_lowered_without_recursion() -> None:
    i = kernels.loop(4, "i")
    out, a = kernels.param(0, 4), kernels.param(1, 4)
    value = a.load(i)
    for step in range(20_000):
        value = (value * float(step % 7 + 2)) + a.load(i)
    program = lower(kernels.kernel("deep", out.store(i, value).end(i)), PLAIN)
    assert len(program.instructions) >= 40_000


def test_two_scans_across_each_other_are_refused_with_a_remedy() -> None:
    i, j = kernels.loop(4, "i"), kernels.loop(5, "j")
    out, a = kernels.param(0, 20), kernels.param(1, 20)
    inner = UOp(Ops.SCAN, dtypes.float32, (a.load(i * 5 + j), j), Ops.ADD)
    outer = UOp(Ops.SCAN, dtypes.float32, (inner, i), Ops.ADD)
    sink = kernels.kernel("k", out.store(i * 5 + j, outer).end(i, j))
    with pytest.raises(LoweringError, match="materialise the inner SCAN"):
        lower(sink, PLAIN)


def test_the_estimate_of_operations_counts_loops_and_lanes() -> None:
    small, large = (lower(kernels.elementwise(n), CPU).operations for n in (64, 6400))
    assert math.isclose(large / small, 100, rel_tol=0.2)
