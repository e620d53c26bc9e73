"""`Matrix` leaves the meaning as it was, or is refused with a reason; the heuristic uses it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.kernels import kernel, loop, over, param
from kernel_forms.memory import expected, fill, parameters
from kernel_forms.units import DOCUMENTED
from opgraft import DType, dtypes
from opgraft.devices.interp.executor import execute
from opgraft.devices.invented import LANES32, LANES64, TARGETS
from opgraft.errors import DeviceError
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.argument import format_value
from opgraft.ir.launch import group_bytes, over_limits
from opgraft.ir.linear import LinearProgram
from opgraft.ir.matrix import MatrixLayout, MatrixUnit
from opgraft.ir.text import linear_to_text, parse, parse_linear, to_text
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.actions import Action, Refused, Split, apply_all
from opgraft.opt.axes import Kernel
from opgraft.opt.grid_actions import Grid, Pad, Stage
from opgraft.opt.matrix import Matrix
from opgraft.target import Target

f32, i32 = dtypes.float32, dtypes.int32
TILE8, TALL16 = LANES32.matrix_units
FLAT16, WIDE32, TWICE16 = LANES64.matrix_units
TINY = MatrixUnit(
    "tiny",
    (2, 4, 2),
    (f32, f32, f32),
    4,
    MatrixLayout((("m", 2, 1), ("k", 2, 1))),
    MatrixLayout((("n", 4, 1),), (("k", 2, 1),)),
    MatrixLayout((("n", 4, 1),), (("m", 2, 1),)),
)
SMALL = replace(LANES32, matrix_units=(TINY, *LANES32.matrix_units))


def product(
    m: int, n: int, depth: int, dtype: DType = f32, sums: DType = f32, bias: bool = False
) -> UOp:
    """A product of matrices of another dtype than the sums', perhaps with a row added."""
    i, j, k = loop(m, "i"), loop(n, "j"), over(depth, "k")
    a, b = param(1, m * depth, dtype), param(2, depth * n, dtype)
    x, y = a.load(i * depth + k).cast(sums), b.load(k * n + j).cast(sums)
    total = (x * y).reduce(Ops.ADD, k)
    if bias:
        row = param(3, n, sums).load(j)
        total = (total + row).maximum(UOp.const(sums, 0))
    return kernel("product", param(0, m * n, sums).store(i * n + j, total).end(i, j))


def scheduled(sink: UOp, *actions: Action) -> UOp:
    return sink.replace(arg=replace(sink.arg, schedule=actions))


def agree(sink: UOp, *actions: Action, target: Target = SMALL) -> LinearProgram:
    """Run with these actions; the program that ran."""
    program = lower(scheduled(sink, *actions) if actions else sink, target)
    assert right(program, sink)
    return program


def right(program: LinearProgram, sink: UOp) -> bool:
    """Whether a program of a `product` gives what NumPy does, of small integers: all sums exact."""
    params = parameters(sink)
    m, n, k = (int(r.src[0].arg) for r in sorted(Kernel(sink).ranges, key=lambda r: str(r.arg[0])))
    pick = np.random.default_rng(0)
    values = {slot: pick.integers(-4, 5, p.arg[1]) for slot, p in params.items()}
    total = values[1].reshape(m, k) @ values[2].reshape(k, n)
    if 3 in values:
        total = np.maximum(total + values[3], 0)
    arrays = [stored(values[slot], p.dtype) for slot, p in params.items()]
    execute(program, arrays)
    return np.array_equal(arrays[0], stored(total.reshape(-1), params[0].dtype))


def stored(values: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype is dtypes.bfloat16:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype.name)


def units(program: LinearProgram) -> list[str]:
    return [n.arg.name for n in program.instructions if n.op is Ops.MATRIX]


# ---- the action


@pytest.mark.parametrize("unit", [TINY, TILE8, FLAT16], ids=lambda u: u.name)
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_product_goes_to_a_matrix_unit(unit: MatrixUnit, width: int) -> None:
    m, n, k = unit.shape
    target = replace(SMALL, matrix_units=(unit,), vector_bytes=16, lanes=unit.threads)
    program = agree(product(2 * m, n, 3 * k), Matrix(unit, "i", "j", "k", width), target=target)
    assert units(program) == [unit.name]
    assert program.launch[1] == (unit.threads,)


def test_what_comes_behind_the_sum_is_done_by_each_thread() -> None:
    for width in (1, 4):
        agree(product(4, 8, 4, bias=True), Matrix(TINY, "i", "j", "k", width))


def test_tiles_go_to_groups_and_blocks_of_threads() -> None:
    use = Matrix(TINY, "i.i", "j", "k", 2)
    split = Split("i", 2)
    plain = agree(product(8, 8, 4), Matrix(TINY, "i", "j", "k"), Grid("i.o"))
    assert plain.launch == ((4,), (4,))
    assert units(agree(product(8, 8, 4), split, use, Grid("i.o"), Grid("j.o"))) == ["tiny"]
    tall = [Split("i", 2, AxisKind.UNROLL), Split("i.o", 2, AxisKind.THREAD), Grid("i.o.o")]
    program = agree(product(8, 8, 4), *tall, Matrix(TINY, "i.u", "j", "k"))
    assert program.launch == ((2, 1), (4, 2))


def test_narrow_factors_are_held_as_they_are() -> None:
    program = agree(
        product(16, 8, 16, dtypes.float16), Matrix(TALL16, "i", "j", "k", 2), target=LANES32
    )
    (found,) = (n for n in program.instructions if n.op is Ops.MATRIX)
    assert [s.dtype.scalar for s in found.src] == [dtypes.float16, dtypes.float16, f32]
    agree(product(32, 32, 8, dtypes.bfloat16), Matrix(WIDE32, "i", "j", "k"), target=LANES64)


def test_integers_wrap_as_their_own_dtype_does() -> None:
    agree(product(16, 16, 32, dtypes.int8, i32), Matrix(TWICE16, "i", "j", "k"), target=LANES64)
    for sums in (dtypes.int8, dtypes.int16):
        narrow = product(16, 16, 32, dtypes.int8, sums)
        agree(narrow, Matrix(TWICE16, "i", "j", "k"), target=LANES64)


def test_a_tile_is_staged_in_group_memory() -> None:
    stages = [Split("i", 2, AxisKind.UNROLL), Split("j", 4, AxisKind.UNROLL), Split("k", 4)]
    stages += [Stage(slot, "k.o", 0, 4) for slot in (1, 2)]
    stages += [Grid("i.o"), Grid("j.o"), Matrix(TINY, "i.u", "j.u", "k.i", 2)]
    program = agree(product(6, 8, 12), *stages)
    assert group_bytes(program) == 4 * (2 * 4 + 4 * 4)
    assert sorted(program.launch[0]) == [2, 3]
    assert any(n.op is Ops.BARRIER for n in program.instructions)


ALONE = MatrixUnit(
    "alone",
    (2, 4, 2),
    (dtypes.int8, dtypes.int8, i32),
    1,
    MatrixLayout((), (("k", 2, 1), ("m", 2, 1))),
    MatrixLayout((), (("n", 4, 1), ("k", 2, 1))),
    MatrixLayout((), (("n", 4, 1), ("m", 2, 1))),
)


@pytest.mark.parametrize("width", [1, 4])
def test_a_unit_of_one_thread_needs_no_groups(width: int) -> None:
    """And where a target lacks it, plainer operations do the same."""
    sink = product(4, 8, 6, dtypes.int8, i32)
    for has in ((ALONE,), ()):
        target = Target("cpu", matrix_units=has)
        program = agree(sink, Matrix(ALONE, "i", "j", "k", width), target=target)
        assert units(program) == ["alone"] * len(has)
        assert program.launch == ((), ())


def test_padded_sides_hold_nothing() -> None:
    pads = [Pad("i", 2), Pad("j", 4), Pad("k", 2)]
    program = agree(product(5, 6, 7, bias=True), *pads, Matrix(TINY, "i", "j", "k", 4))
    assert units(program) == ["tiny"]
    agree(product(5, 6, 7, dtypes.int8), *pads, Matrix(TINY, "i", "j", "k"))


@pytest.mark.parametrize(
    ("sink", "action", "reason"),
    [
        (product(4, 8, 4), Matrix(TINY, "i", "j", "x"), "no range is named 'x'"),
        (product(5, 8, 4), Matrix(TINY, "i", "j", "k"), "range i of 5 is no multiple: pad it"),
        (product(4, 8, 3), Matrix(TINY, "i", "j", "k"), "range k of 3 is no multiple"),
        (
            product(4, 8, 4, dtypes.float64, dtypes.float64),
            Matrix(TINY, "i", "j", "k"),
            "adds up in float32, the sum is float64",
        ),
        (product(16, 8, 16), Matrix(TALL16, "i", "j", "k"), "multiplies float16 by float16"),
        (kernels.row_sum(4, 8), Matrix(TINY, "i", "k", "k"), "range k is reduced"),
        (product(4, 4, 8), Matrix(TINY, "i", "k", "j"), "no loop of sums alone"),
        (kernels.matmul(8, 8, 8), Matrix(TINY, "k", "j", "i"), "no loop of sums alone"),
    ],
)
def test_what_is_not_legal_is_refused_with_a_reason(sink: UOp, action: Action, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        action.apply(sink)


def test_a_factor_of_both_rows_and_columns_is_refused() -> None:
    i, j, k = loop(4, "i"), loop(8, "j"), over(4, "k")
    own = param(1, 128).load((i * 8 + j) * 4 + k) * param(2, 32).load(k * 8 + j)
    sink = kernel("own", param(0, 32).store(i * 8 + j, own.reduce(Ops.ADD, k)).end(i, j))
    with pytest.raises(Refused, match="varies along both rows and columns"):
        Matrix(TINY, "i", "j", "k").apply(sink)


def test_the_action_is_a_value() -> None:
    action = Matrix(TINY, "i", "j", "k", 2)
    sink = scheduled(product(4, 8, 4), action)
    assert parse(to_text(sink)) is sink
    assert apply_all(product(4, 8, 4), (action,)) is action.apply(product(4, 8, 4))


# ---- the heuristic

CASES = [
    (LANES32, f32, f32, "tile8"),
    (LANES32, dtypes.float16, f32, "tall16"),
    (LANES64, f32, f32, "flat16"),
    (LANES64, dtypes.bfloat16, f32, "wide32"),
    (LANES64, dtypes.int8, i32, "twice16"),
]


@pytest.mark.parametrize(("target", "dtype", "sums", "name"), CASES, ids=[c[3] for c in CASES])
@pytest.mark.parametrize("shape", [(33, 40, 24)])
def test_products_use_the_unit_for_their_dtypes(
    target: Target, dtype: DType, sums: DType, name: str, shape: tuple[int, int, int]
) -> None:
    sink = product(*shape, dtype, sums)
    program = agree(sink, target=target)
    assert set(units(program)) == {name}
    assert over_limits(program, target) == ()
    assert group_bytes(program) > 0
    schedule = schedule_of(sink, target)
    assert lower(scheduled(sink, *schedule), target) == program


@pytest.mark.sampled(5)
@pytest.mark.parametrize("unit", [u for u, _ in DOCUMENTED], ids=lambda u: u.name)
@pytest.mark.parametrize("shape", [(33, 40, 50)])
def test_units_of_real_devices_multiply(unit: MatrixUnit, shape: tuple[int, int, int]) -> None:
    """By the layouts of their manuals, staged and padded, within the limits of such a device."""
    device = LANES32 if unit.threads <= 32 else LANES64
    target = replace(device, lanes=unit.threads, matrix_units=(unit,), local_bytes=64 << 10)
    program = agree(product(*shape, unit.dtype("a"), unit.dtype("c"), bias=True), target=target)
    assert set(units(program)) == {unit.name}
    assert over_limits(program, target) == ()
    assert group_bytes(program) > 0


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_small_or_other_kernels_use_none(target: Target) -> None:
    for sink in (
        product(1, 64, 64),
        product(4, 4, 4),
        product(32, 32, 32, dtypes.float64, dtypes.float64),
    ):
        assert units(agree(sink, target=target)) == []
    for sink in (kernels.row_sum(64, 64), kernels.normalised_rows()):
        assert units(lower(sink, target)) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_random_shapes_stay_right(target: Target) -> None:
    pick = random.Random(f"matrix {target.name}")
    used = 0
    for _ in range(4):
        m, n, k = (pick.randint(8, 50) for _ in range(3))
        narrow = pick.choice([f32, dtypes.float16, dtypes.bfloat16, dtypes.int8])
        sums = i32 if narrow is dtypes.int8 else f32
        program = agree(product(m, n, k, narrow, sums, pick.random() < 0.5), target=target)
        assert over_limits(program, target) == ()
        used += bool(units(program))
    assert used >= 2


def test_a_unit_serves_batches() -> None:
    b, i, j, k = loop(3, "b"), loop(8, "i"), loop(9, "j"), over(8, "k")
    x = param(1, 3 * 8 * 8).load((b * 8 + i) * 8 + k)
    y = param(2, 3 * 8 * 9).load((b * 8 + k) * 9 + j)
    total = (x * y).reduce(Ops.ADD, k)
    sink = kernel("batch", param(0, 3 * 8 * 9).store((b * 8 + i) * 9 + j, total).end(b, i, j))
    program, memory = lower(sink, LANES32), fill(sink)
    assert interpret(program, memory) == expected(sink, memory)
    assert set(units(program)) == {"tile8"}
    assert np.prod(program.launch[0]) >= 3


def test_a_unit_serves_convolutions() -> None:
    """Neighbours in the image are the rows, channels the columns; windows stay loops outside."""
    c, t, ch, s = loop(8, "c"), loop(16, "t"), over(8, "ch"), over(3, "s")
    x = param(1, 8 * 18).load(ch * 18 + t + s)
    w = param(2, 8 * 8 * 3).load((c * 8 + ch) * 3 + s)
    total = (x * w).reduce(Ops.ADD, ch, s)
    sink = kernel("conv", param(0, 8 * 16).store(c * 16 + t, total).end(c, t))
    program, memory = lower(sink, LANES32), fill(sink)
    assert interpret(program, memory) == expected(sink, memory)
    assert set(units(program)) == {"tile8"}


# ---- planted faults


def staged(target: Target = LANES32) -> tuple[UOp, LinearProgram]:
    sink = product(32, 32, 64)
    return sink, lower(sink, target)


def without(program: LinearProgram, place: int) -> LinearProgram:
    kept = [n for i, n in enumerate(program.instructions) if i != place]
    return replace(program, instructions=tuple(kept))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_missing_barrier_around_a_staged_tile_is_caught(target: Target) -> None:
    sink, program = staged(target)
    places = [i for i, n in enumerate(program.instructions) if n.op is Ops.BARRIER]
    assert len(places) == 2  # before the tile is read, and before it is filled again
    for place in places:
        with pytest.raises(DeviceError, match=r"element .* of the local 'tile.*without a barrier"):
            interpret(without(program, place), fill(sink))


def test_a_tile_that_is_not_filled_is_caught() -> None:
    sink, program = staged()
    fills = [
        i
        for i, n in enumerate(program.instructions)
        if n.op is Ops.STORE
        and n.src[0].op is Ops.LOCAL
        and str(n.src[0].arg[0]).startswith("tile")
    ]
    with pytest.raises(DeviceError, match="which nobody has written"):
        interpret(without(program, fills[0]), fill(sink))


@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_a_wrong_layout_gives_a_wrong_result(operand: str) -> None:
    """What the threads hold follows the layouts: those of another instruction don't do."""
    sink, program = staged()
    layout = getattr(TILE8, operand)
    lanes = [layout.lanes[place] for place in (2, 1, 0, 3)]
    swapped = MatrixLayout(tuple(lanes), layout.registers)
    wrong = replace(TILE8, **{operand: swapped})
    text = linear_to_text(program).replace(format_value(TILE8), format_value(wrong))
    other = parse_linear(text)
    assert right(program, sink)
    assert not right(other, sink)


# ---- products between other statements


def attention_like(batch: int, rows: int, keys: int, depth: int, width: int) -> UOp:
    """(s - greatest of its row)^2 @ v with s = q @ k.T in a local row: of integers exact."""
    b, t, d = loop(batch, "b"), loop(rows, "t"), loop(width, "d")
    s, e, top, k, j = (
        loop(keys, "s"),
        loop(keys, "e"),
        over(keys, "top"),
        over(depth, "k"),
        over(keys, "j"),
    )
    q = param(1, batch * rows * depth).load((b * rows + t) * depth + k)
    x = param(2, batch * keys * depth).load((b * keys + s) * depth + k)
    scores = UOp(Ops.LOCAL, f32, (), ("scores", keys, Space.PRIVATE))
    scores = scores.after(scores.store(s, (q * x).reduce(Ops.ADD, k)).end(s))
    less = scores.load(e) - scores.load(top).reduce(Ops.MAX, top)
    weights = UOp(Ops.LOCAL, f32, (), ("weights", keys, Space.PRIVATE))
    weights = weights.after(weights.store(e, less * less).end(e))
    v = param(3, batch * keys * width).load((b * keys + j) * width + d)
    total = (weights.load(j) * v).reduce(Ops.ADD, j)
    out = param(0, batch * rows * width)
    return kernel("between", out.store((b * rows + t) * width + d, total).end(b, t, d))


def between(shape: tuple[int, ...], target: Target) -> LinearProgram:
    """The program for a shape; it gave the right result."""
    batch, rows, keys, depth, width = shape
    program = lower(attention_like(*shape), target)
    pick = np.random.default_rng(0)
    q, x, v = (
        pick.integers(-2, 3, s).astype(np.float32)
        for s in ((batch, rows, depth), (batch, keys, depth), (batch, keys, width))
    )
    out = np.zeros(batch * rows * width, np.float32)
    execute(program, [out, q.reshape(-1), x.reshape(-1), v.reshape(-1)])
    scores = q @ x.transpose(0, 2, 1)
    wanted = (scores - scores.max(-1, keepdims=True)) ** 2 @ v
    assert np.array_equal(out.reshape(wanted.shape), wanted)
    return program


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("target", "unit"), [(LANES32, "tile8"), (LANES64, "flat16")])
@pytest.mark.parametrize("shape", [(2, 32, 16, 8, 8), (1, 13, 19, 12, 10)])
def test_rows_between_other_statements_go_together(
    target: Target, unit: str, shape: tuple[int, ...]
) -> None:
    program = between(shape, target)
    assert units(program) == [unit, unit]
    assert over_limits(program, target) == ()
    sink = attention_like(*shape)
    schedule = schedule_of(sink, target)
    assert lower(scheduled(sink, *schedule), target) == program


def test_rows_that_do_not_fit_group_memory_go_one_by_one() -> None:
    small = replace(LANES32, local_bytes=1 << 10)
    assert units(between((1, 16, 24, 16, 16), small)) == []
    assert units(between((1, 16, 8, 16, 16), small)) == ["tile8", "tile8"]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_missing_barrier_between_the_statements_is_caught(target: Target) -> None:
    """Or it was not needed: in front of an iteration that never comes."""
    program = between((1, 16, 16, 8, 16), target)
    pick = np.random.default_rng(0)
    given = [pick.integers(-2, 3, n).astype(np.float32) for n in (256, 128, 128, 256)]
    right = [x.copy() for x in given]
    execute(program, right)
    places = [i for i, n in enumerate(program.instructions) if n.op is Ops.BARRIER]
    caught = 0
    for place in places:
        arrays = [x.copy() for x in given]
        try:
            execute(without(program, place), arrays)
        except DeviceError as error:
            caught += "without a barrier between" in str(error)
        else:
            assert np.array_equal(arrays[0], right[0])
    assert caught >= 3


def test_a_statement_and_a_sum_in_it_do_not_both_take_all_threads() -> None:
    """A column of one product, handed to another that no unit does for: its loop and its sum went
    to the threads, 128 each."""
    i, j, e, d, k = loop(24, "i"), loop(8, "j"), loop(56, "e"), over(16, "d"), over(56, "k")
    a, b = param(1, 24 * 56, dtypes.int8), param(2, 56 * 16, dtypes.int8)
    c = param(3, 16 * 8, dtypes.int8)
    inner = b.load(e * 16 + d).cast(i32) * c.load(d * 8 + j).cast(i32)
    column = UOp(Ops.LOCAL, i32, (), ("column", 56, Space.PRIVATE))
    column = column.after(column.store(e, inner.reduce(Ops.ADD, d)).end(e))
    total = (a.load(i * 56 + k).cast(i32) * column.load(k)).reduce(Ops.ADD, k)
    out = param(0, 24 * 8, i32)
    sink = kernel("chained", out.store(i * 8 + j, total).end(j, i))
    pick = np.random.default_rng(0)
    x, y, z = (pick.integers(-9, 9, s).astype(np.int8) for s in ((24, 56), (56, 16), (16, 8)))
    for target in TARGETS.values():
        found = np.zeros(24 * 8, np.int32)
        execute(lower(sink, target), [found, x.reshape(-1), y.reshape(-1), z.reshape(-1)])
        wanted = x.astype(np.int32) @ (y.astype(np.int32) @ z)
        assert np.array_equal(found.reshape(24, 8), wanted)
