"""Products keep tiles in registers and a packed factor in the cache, and stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.execute import execute
from kernel_forms.memory import expected, fill
from opgraft import DType, dtypes
from opgraft.catalog import Device
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.opt.accumulate import Accumulate
from opgraft.opt.actions import Refused, Split
from opgraft.opt.axes import Kernel
from opgraft.opt.distribute import Distribute
from opgraft.opt.pack import Pack, by_sum
from opgraft.opt.products import block_rows, tile_products
from opgraft.opt.tile import Outermost, Tile
from opgraft.opt.tile_shape import Extents, tile_shape
from opgraft.runtime import compile_kernel
from opgraft.target import Target

TARGET = Target("test", vector_bytes=32, vector_registers=16, cores=2)


def same(before: UOp, after: UOp) -> None:
    memory = fill(before)
    assert expected(after, memory) == expected(before, memory)


def product(
    rows: int,
    columns: int,
    depth: int,
    dtype: DType = dtypes.float32,
    across_first: bool = False,
    deep_first: bool = False,
    batch: int = 1,
) -> UOp:
    """out[b, i, j] = sum over k of a * b, either factor as it lies or transposed; in float32 where
    the dtype is narrower."""
    wide = dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype
    wide = dtypes.int32 if dtype.is_int and dtype.bits < 32 else wide
    b, i, j = (kernels.loop(n, name) for n, name in ((batch, "b"), (rows, "i"), (columns, "j")))
    k = kernels.over(depth, "k")
    out = kernels.param(0, batch * rows * columns, wide)
    one = kernels.param(1, batch * rows * depth, dtype)
    two = kernels.param(2, batch * depth * columns, dtype)
    left = one.load(b * (rows * depth) + (k * rows + i if across_first else i * depth + k))
    right = two.load(b * (depth * columns) + (j * depth + k if deep_first else k * columns + j))
    total = (left.cast(wide) * right.cast(wide)).reduce(Ops.ADD, k)
    loops = (b, i, j) if batch > 1 else (i, j)
    store = out.store(b * (rows * columns) + i * columns + j, total)
    if batch == 1:
        store = store.substitute({b: UOp.const(dtypes.index, 0)})
    return kernels.kernel("product", store.end(*loops))


def run(sink: UOp, *arrays: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> Any:
    device = Device["CPU"]
    executable = compile_kernel(device, sink)
    buffers = [device.buffer(a.nbytes) for a in (out, *arrays)]
    for buffer, values in zip(buffers[1:], arrays, strict=True):
        buffer.copy_in(values)
    executable.run(buffers, (), wait=True)
    buffers[0].copy_out(out)
    return out


SHAPES = {
    "square": (48, 64, 40),
    "odd": (37, 51, 29),
    "17 columns": (40, 17, 33),
    "one more than a block": (33, 129, 64),
    "few rows": (5, 200, 60),
    "deep": (18, 24, 900),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHAPES)
def test_products_of_any_shape_and_order_are_exact(name: str) -> None:
    """Small integers in floats: every order of adding gives the same sum."""
    rows, columns, depth = SHAPES[name]
    draw = np.random.default_rng(1)
    for across_first in (False, True):
        for deep_first in (False, True):
            sink = product(rows, columns, depth, across_first=across_first, deep_first=deep_first)
            a = draw.integers(-4, 5, (rows, depth)).astype(np.float32)
            b = draw.integers(-4, 5, (depth, columns)).astype(np.float32)
            given = (a.T if across_first else a, b.T if deep_first else b)
            found = run(
                sink,
                *[np.ascontiguousarray(g) for g in given],
                out=np.full((rows, columns), np.nan, np.float32),
            )
            np.testing.assert_array_equal(found, a @ b)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int32", "uint8", "int64"])
def test_products_of_every_dtype(dtype: str) -> None:
    kind = next(d for d in dtypes.all if d.name == dtype)
    draw = np.random.default_rng(2)
    low, high = (0, 200) if dtype == "uint8" else (-100, 100)
    if kind.is_float:
        low, high = -8, 9
    a = draw.integers(low, high, (3, 20, 50)).astype(dtype)
    b = draw.integers(low, high, (3, 50, 33)).astype(dtype)
    wide = {"float16": np.float32, "int8": np.int32, "uint8": np.int32}.get(dtype, a.dtype.type)
    found = run(product(20, 33, 50, kind, batch=3), a, b, out=np.zeros((3, 20, 33), wide))
    np.testing.assert_array_equal(found, a.astype(wide) @ b.astype(wide))


def convolution(count: int, channels: int, size: int, taps: int, padding: int) -> UOp:
    loops = [kernels.loop(n, x) for n, x in ((count, "n"), (20, "c"), (size, "y"), (size, "x"))]
    n, c, y, x = loops
    r, p, q = (kernels.over(e, name) for e, name in ((channels, "r"), (taps, "p"), (taps, "q")))
    out = kernels.param(0, count * 20 * size * size)
    image = kernels.param(1, count * channels * size * size)
    weight = kernels.param(2, 20 * channels * taps * taps)
    row, column = y + p - padding, x + q - padding
    inside = (row < size) & ((row < 0) ^ True) & (column < size) & ((column < 0) ^ True)
    index = ((n * channels + r) * size + row) * size + column
    value = image.load(index, inside, UOp.const(dtypes.float32, 0.0))
    factor = weight.load(((c * channels + r) * taps + p) * taps + q)
    total = (value * factor).reduce(Ops.ADD, r, p, q)
    place = ((n * 20 + c) * size + y) * size + x
    return kernels.kernel("conv", out.store(place, total).end(*loops))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("size", "taps", "padding"), [(12, 3, 1), (17, 5, 2), (40, 1, 0)])
def test_windows_are_packed_with_their_borders(size: int, taps: int, padding: int) -> None:
    draw = np.random.default_rng(3)
    x = draw.integers(-3, 4, (2, 6, size, size)).astype(np.float32)
    w = draw.integers(-3, 4, (20, 6, taps, taps)).astype(np.float32)
    sink = convolution(2, 6, size, taps, padding)
    tiled = tile_products(sink, TARGET)
    assert tiled is not sink
    found = run(sink, x, w, out=np.zeros((2, 20, size, size), np.float32))
    around = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (taps, taps), axis=(2, 3))
    np.testing.assert_array_equal(found, np.einsum("nryxpq,crpq->ncyx", windows, w))


# ---- what is chosen


def kinds(sink: UOp) -> dict[object, AxisKind]:
    return {r.arg[0]: r.arg[1] for r in Kernel(sink).ranges}


def test_a_product_is_tiled_and_its_side_factor_packed() -> None:
    sink = product(96, 128, 64)
    tiled = tile_products(sink, TARGET)
    assert tiled is not sink
    found = kinds(tiled)
    assert found["i.u"] is AxisKind.UNROLL
    assert AxisKind.VECTOR in found.values()
    assert AxisKind.PARALLEL in found.values()
    locals_ = [n for n in tiled.toposort() if n.op is Ops.LOCAL]
    assert len(locals_) == 1
    assert locals_[0].arg[1] * 4 <= TARGET.local_bytes
    assert all(n.op is not Ops.MOD for n in tiled.toposort())


def test_nothing_larger_than_the_local_memory_is_packed() -> None:
    small = replace(TARGET, local_bytes=4096)
    for depth in (16, 64, 4096):
        tiled = tile_products(product(64, 64, depth), small)
        made = [n for n in tiled.toposort() if n.op is Ops.LOCAL]
        assert sum(n.arg[1] * 4 for n in made) <= 4096


def test_small_or_other_kernels_have_no_tiles() -> None:
    for sink in (
        product(4, 16, 8),
        kernels.row_sum(64, 512),
        kernels.elementwise(1 << 16),
        kernels.normalised_rows(),
    ):
        assert tile_products(sink, TARGET) is sink
    sink = product(96, 128, 64)
    assert tile_products(sink, replace(TARGET, vector_bytes=0)) is sink


@pytest.mark.parametrize(("registers", "lanes"), [(16, 8), (32, 16), (16, 4), (32, 4)])
def test_a_tile_fits_the_registers_and_hides_the_latency(registers: int, lanes: int) -> None:
    target = replace(TARGET, vector_registers=registers)
    for rows, columns in ((512, 512), (100, 37), (17, 1000)):
        found = tile_shape(target, lanes, Extents(rows, columns))
        copies, vectors = found.copies, found.vectors
        assert copies * vectors + vectors + 1 <= registers
        assert copies <= rows
        assert (vectors - 1) * lanes < columns
    found = tile_shape(target, lanes, Extents(512, 512))
    copies, vectors = found.copies, found.vectors
    assert copies * vectors >= 8


# ---- the actions


TILES: list[tuple[str, Callable[[], UOp], tuple[tuple[object, int, int], ...]]] = [
    ("matmul", kernels.matmul, (("i", 3, 1), ("j", 2, 4))),
    ("rows", kernels.rows, (("j", 1, 8),)),
    ("padded", kernels.padded, (("i", 3, 1), ("j", 1, 4))),
    ("transposed", kernels.transposed, (("i", 1, 4), ("j", 2, 1))),
]


@pytest.mark.parametrize(("name", "make", "parts"), TILES)
def test_tiles_over_any_extent_keep_the_meaning(
    name: str, make: Callable[[], UOp], parts: tuple[tuple[object, int, int], ...]
) -> None:
    sink = make()
    known = {r.arg[0] for r in Kernel(sink).ranges}
    chosen = tuple(p for p in parts if p[0] in known)
    assert chosen
    tiled = Tile(chosen).apply(sink)
    same(sink, tiled)
    assert eval(repr(Tile(chosen)), {"Tile": Tile}) == Tile(chosen)


def test_a_tile_is_refused_where_a_value_would_count_twice() -> None:
    with pytest.raises(Refused, match="reduced"):
        Tile((("k", 4, 1),)).apply(kernels.row_sum(5, 70))
    with pytest.raises(Refused, match="reads what it"):
        Tile((("i", 4, 1),)).apply(kernels.in_place(30))
    same(kernels.in_place(32), Tile((("i", 4, 1),)).apply(kernels.in_place(32)))
    with pytest.raises(Refused, match="no tiles of 64"):
        Tile((("i", 64, 1),)).apply(kernels.elementwise(37))
    with pytest.raises(Refused, match="no range"):
        Tile((("q", 2, 1),)).apply(kernels.elementwise(37))


def test_tiles_that_overlap_add_nothing_twice() -> None:
    """An atomic, sums so far in a buffer, and an array beside a buffer in one loop."""
    i = kernels.loop(30, "i")
    out, a = kernels.param(0, 30), kernels.param(1, 30)
    added = UOp(Ops.ATOMIC, dtypes.void, (out, i, a.load(i)), Ops.ADD)
    with pytest.raises(Refused, match="reads what it"):
        Tile((("i", 4, 1),)).apply(kernels.kernel("atomic", added.end(i)))
    sums = Accumulate("k", "j", 2).apply(kernels.column_max(9, 21))
    fills = [str(r.arg[0]) for r in Kernel(sums).ranges if str(r.arg[0]).startswith("sums")]
    for name in fills:
        try:
            same(sums, Tile(((name, 1, 8),)).apply(sums))
        except Refused:
            continue
    row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 30, Space.PRIVATE))
    filled = row.after(row.store(i, a.load(i)).end(i))
    j = kernels.loop(4, "j")
    both = kernels.kernel(
        "both",
        out.store(i, a.load(i) + out.load(i)).end(i),
        kernels.param(2, 4).store(j, filled.load(j * 7)).end(j),
    )
    with pytest.raises(Refused):
        Tile((("i", 4, 1),)).apply(both)


def test_a_fill_whose_order_counts_is_not_tiled() -> None:
    i, j = kernels.loop(32, "i"), kernels.loop(4, "j")
    row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 4, Space.PRIVATE))
    filled = row.after(row.store(i % 4, kernels.param(1, 32).load(i)).end(i))
    sink = kernels.kernel("last", kernels.param(0, 4).store(j, filled.load(j)).end(j))
    with pytest.raises(Refused, match="stay in order"):
        Tile((("i", 1, 8),)).apply(sink)
    with pytest.raises(Refused, match="at once already"):
        Tile((("j.v", 2, 1),)).apply(Split("j", 4, AxisKind.VECTOR).apply(sink))


def test_packing_keeps_the_meaning_inside_of_any_loops() -> None:
    sink = product(6, 9, 7)
    whole = (("j",), ()), (("i",), ()), (("i", "k"), ()), (("k", "j"), ())
    for names, inside in (*whole, (("j",), ("i",)), (("i",), ("j",)), (("i", "k"), ("j",))):
        packed = Pack(names, inside).apply(sink)
        same(sink, packed)
        assert sum(n.op is Ops.LOCAL for n in packed.toposort()) == 1
    both = Pack(("i",), ()).apply(Pack(("j",), ("i",)).apply(sink))
    same(sink, both)


@pytest.mark.thorough
def test_loops_that_count_by_their_sum_share_an_axis() -> None:
    sink = convolution(1, 2, 8, 3, 1)
    kernel = Kernel(sink)
    loop = {str(r.arg[0]): r for r in kernel.ranges}
    value = next(s for s in kernel.reduces[0].src[0].src if loop["x"] in s.ranges)
    assert by_sum(value, loop["x"], loop["q"])
    assert by_sum(value, loop["y"], loop["p"])
    assert not by_sum(value, loop["x"], loop["p"])
    packed = Pack(("x",), ("n", "y")).apply(sink)
    same(sink, packed)
    (memory,) = [n for n in packed.toposort() if n.op is Ops.LOCAL]
    assert memory.arg[1] == 2 * 3 * (8 + 2)


def test_packing_is_refused_with_a_reason() -> None:
    sink = product(6, 9, 7)
    with pytest.raises(Refused, match="not all of"):
        Pack(("q",)).apply(sink)
    with pytest.raises(Refused, match="filled inside of"):
        Pack(("j",), ("j",)).apply(sink)
    with pytest.raises(Refused, match="no product"):
        Pack(("i",)).apply(kernels.row_sum(5, 70))


def test_a_buffer_filled_in_parts_is_one_buffer() -> None:
    """The borders are zeros wherever the outer loop is; they belong into its body all the same."""
    sink = convolution(3, 4, 8, 3, 1)
    tiled = tile_products(sink, TARGET)
    assert tiled is not sink
    assert sum(n.op is Ops.LOCAL for n in tiled.toposort()) == 1
    draw = np.random.default_rng(5)
    x = draw.integers(-3, 4, (3, 4, 8, 8)).astype(np.float32)
    w = draw.integers(-3, 4, (20, 4, 3, 3)).astype(np.float32)
    plain = sink.replace(arg=KernelInfo("plain", schedule=()))
    wanted = run(plain, x, w, out=np.zeros(3840, np.float32))
    np.testing.assert_array_equal(run(sink, x, w, out=np.zeros(3840, np.float32)), wanted)


def test_the_order_of_loops_is_what_is_asked_for() -> None:
    sink = Outermost(("j",)).apply(kernels.matmul())
    assert [r.arg[0] for r in Kernel(sink).effects[0].src[1:]] == ["j", "i"]
    same(kernels.matmul(), sink)


# ---- products between other statements


def attention(queries: int, keys: int, width: int) -> UOp:
    """Rows of scores, less their maximum, squared, times values: two products around a row."""
    q, d = kernels.loop(queries, "q"), kernels.loop(width, "d")
    out = kernels.param(0, queries * width)
    one, two = kernels.param(1, queries * width), kernels.param(2, keys * width)
    three = kernels.param(3, keys * width)
    s, e, t = kernels.loop(keys, "s"), kernels.loop(keys, "e"), kernels.over(width, "t")
    m, r = kernels.over(keys, "m"), kernels.over(keys, "r")
    scores = UOp(Ops.LOCAL, dtypes.float32, (), ("scores", keys, Space.PRIVATE))
    product = (one.load(q * width + t) * two.load(s * width + t)).reduce(Ops.ADD, t)
    scores = scores.after(scores.store(s, product).end(s))
    weights = UOp(Ops.LOCAL, dtypes.float32, (), ("weights", keys, Space.PRIVATE))
    less = scores.load(e) + scores.load(m).reduce(Ops.MAX, m) * -1.0
    weights = weights.after(weights.store(e, less * less).end(e))
    total = (weights.load(r) * three.load(r * width + d)).reduce(Ops.ADD, r)
    return kernels.kernel("attention", out.store(q * width + d, total).end(q, d))


def test_a_distributed_loop_keeps_the_meaning() -> None:
    sink = attention(3, 5, 4)
    spread = Distribute("q").apply(sink)
    same(sink, spread)
    sizes = {n.arg[0]: n.arg[1] for n in spread.toposort() if n.op is Ops.LOCAL}
    assert sizes == {"scores": 15, "weights": 15}
    same(kernels.normalised_rows(), Distribute("i").apply(kernels.normalised_rows()))
    with pytest.raises(Refused, match="no buffer"):
        Distribute("i").apply(kernels.matmul())
    with pytest.raises(Refused, match="no buffer"):
        Distribute("e").apply(attention(3, 5, 4))


def test_a_buffer_that_is_filled_in_steps_is_distributed_whole() -> None:
    """Its first fill is the same in all iterations, but each begins with it."""
    i, j, k = kernels.loop(3, "i"), kernels.loop(5, "j"), kernels.over(4, "k")
    out, a = kernels.param(0, 15), kernels.param(1, 60)
    total = a.load((i * 4 + k) * 5 + j).reduce(Ops.ADD, k)
    sink = kernels.kernel("rows", out.store(i * 5 + j, total).end(i, j))
    steps = Accumulate("k", "j", 3).apply(sink)
    same(sink, steps)
    spread = Distribute("i").apply(steps)
    same(sink, spread)
    assert [n.arg[1] for n in spread.toposort() if n.op is Ops.LOCAL] == [15]
    draw = np.random.default_rng(6)
    values = draw.integers(-9, 9, (3, 4, 5)).astype(np.float32)
    spread = spread.replace(arg=KernelInfo("spread", schedule=()))
    found = run(spread, values, out=np.zeros((3, 5), np.float32))
    np.testing.assert_array_equal(found, values.sum(1))


def test_a_fill_that_reads_what_an_iteration_stored_is_not_distributed() -> None:
    i, j, own = kernels.loop(3, "i"), kernels.loop(4, "j"), kernels.loop(4, "l")
    out, a = kernels.param(0, 12), kernels.param(1, 12)
    other = kernels.param(2, 12)
    store = out.store(i * 4 + j, a.load(i * 4 + j) * 2.0)
    row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 4, Space.PRIVATE))
    value = out.after(store.end(j)).load(i * 4 + own)
    filled = row.after(row.store(own, value).end(own))
    read = other.store(i * 4 + j, filled.load(j * -1 + 3))
    sink = kernels.kernel("back", store.end(i, j), read.end(i, j))
    with pytest.raises(Refused, match="has stored"):
        Distribute("i").apply(sink)


def test_a_fill_reads_for_all_iterations_before_any_of_them_stores() -> None:
    """Batch norm and its update in one kernel: two stores in place, each of what fills read. In
    vectors with a rest, each waits for what the others read."""
    i, j, own, k = (kernels.loop(n, name) for n, name in ((5, "i"), (4, "j"), (4, "l"), (4, "k")))
    one, two, out = kernels.param(0, 5), kernels.param(1, 5), kernels.param(2, 20)
    row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 4, Space.PRIVATE))
    filled = row.after(row.store(own, one.load(i) * two.load(i) + own.cast("float32")).end(own))
    total = filled.load(k).reduce(Ops.ADD, k)
    stores = [one.store(i, one.load(i) + total).end(i), two.store(i, two.load(i) * total).end(i)]
    sink = kernels.kernel("update", *stores, out.store(i * 4 + j, filled.load(j)).end(i, j))
    spread = Distribute("i").apply(sink)
    same(sink, spread)
    memory = fill(spread)
    wanted = expected(sink, memory)
    assert execute(Device["CPU"], sink, memory) == wanted
    # by a schedule of the heuristic's, after this step
    assert execute(Device["CPU"], spread, memory) == wanted


def test_products_between_other_statements_see_many_rows() -> None:
    sink = attention(40, 48, 16)
    blocked = block_rows(sink, TARGET)
    assert blocked is not sink
    tiled = tile_products(blocked, TARGET)
    vectors = [r for r in Kernel(tiled).ranges if r.arg[1] is AxisKind.VECTOR]
    assert len(vectors) >= 2
    draw = np.random.default_rng(4)
    q = draw.integers(-2, 3, (40, 16)).astype(np.float32)
    k = draw.integers(-2, 3, (48, 16)).astype(np.float32)
    v = draw.integers(-2, 3, (48, 16)).astype(np.float32)
    less = q @ k.T - (q @ k.T).max(1, keepdims=True)
    found = run(sink, q, k, v, out=np.zeros((40, 16), np.float32))
    np.testing.assert_array_equal(found, (less * less) @ v)


def test_rows_are_blocked_only_as_the_cache_has_room() -> None:
    sink = attention(40, 48, 16)
    assert block_rows(sink, TARGET) is not sink
    assert block_rows(sink, replace(TARGET, local_bytes=1024)) is sink
    assert block_rows(sink, replace(TARGET, cache_bytes=(1024, 2048, 4096))) is sink
    rows = kernels.normalised_rows()
    assert block_rows(rows, TARGET) is rows
