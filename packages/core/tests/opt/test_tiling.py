"""What is packed where, in blocks of what size, and what shape a tile of results has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernel_forms import kernels
from opgraft import DType, dtypes
from opgraft.catalog import Device
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.lower.expand import expand
from opgraft.lower.pipeline import prepared, schedule_of
from opgraft.opt.actions import Action, Fuse
from opgraft.opt.axes import Kernel, closed_by, constant_extent
from opgraft.opt.blocks import Blocks, SumInBlocks
from opgraft.opt.heuristic import schedule
from opgraft.opt.join import join_loops
from opgraft.opt.pack import Pack, weighted
from opgraft.opt.product import find_product
from opgraft.opt.products import tile_products
from opgraft.opt.tile import Tile
from opgraft.opt.tile_shape import Extents, TileShape, tile_shape
from opgraft.rules.simplify import tidy
from opgraft.runtime import compile_kernel
from opgraft.target import Target
from tested import sampled

TARGET = Target("test", vector_bytes=32, vector_registers=16, cores=2)
ONE_CORE = replace(TARGET, cores=1)


def matmul(
    rows: int, columns: int, depth: int, dtype: DType = dtypes.float32, turned: bool = False
) -> UOp:
    """out[i, j] = sum over k of a[i, k] * b[k, j] + 1; a lies transposed where `turned`."""
    i, j, k = kernels.loop(rows, "i"), kernels.loop(columns, "j"), kernels.over(depth, "k")
    one, two = kernels.param(1, rows * depth, dtype), kernels.param(2, depth * columns, dtype)
    left = one.load(k * rows + i if turned else i * depth + k)
    total = (left * two.load(k * columns + j)).reduce(Ops.ADD, k)
    out = kernels.param(0, rows * columns, dtype)
    return kernels.kernel("matmul", out.store(i * columns + j, total + 1.0).end(i, j))


def convolution(size: int, taps: int, step: int = 1, apart: int = 1) -> UOp:
    """Two images of 3 channels, to 24; windows `step` apart, of pixels `apart` from each other."""
    padding = (taps - 1) * apart // 2
    height = (size + 2 * padding - (taps - 1) * apart - 1) // step + 1
    loops = [kernels.loop(n, x) for n, x in ((2, "n"), (24, "c"), (height, "y"), (height, "x"))]
    n, c, y, x = loops
    r, p, q = (kernels.over(e, name) for e, name in ((3, "r"), (taps, "p"), (taps, "q")))
    image, weight = kernels.param(1, 6 * size * size), kernels.param(2, 72 * taps * taps)
    row, column = y * step + p * apart - padding, x * step + q * apart - padding
    inside = (row < size) & ((row < 0) ^ True) & (column < size) & ((column < 0) ^ True)
    at = ((n * 3 + r) * size + row) * size + column
    value = image.load(at, inside, UOp.const(dtypes.float32, 0.0))
    factor = weight.load(((c * 3 + r) * taps + p) * taps + q)
    out = kernels.param(0, 48 * height * height)
    total = (value * factor).reduce(Ops.ADD, r, p, q)
    return kernels.kernel(
        "conv", out.store(((n * 24 + c) * height + y) * height + x, total).end(*loops)
    )


def steps(sink: UOp, target: Target, kind: type[Action]) -> list[Any]:
    return [a for a in schedule_of(sink, target) if type(a) is kind]


def run(sink: UOp, *arrays: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> Any:
    device = Device["CPU"]
    executable = compile_kernel(device, sink)
    buffers = [device.buffer(a.nbytes) for a in (out, *arrays)]
    for buffer, values in zip(buffers[1:], arrays, strict=True):
        buffer.copy_in(np.ascontiguousarray(values))
    executable.run(buffers, (), wait=True)
    buffers[0].copy_out(out)
    return out


# ---- shapes


@pytest.mark.parametrize(
    ("extents", "shape"),
    [
        (Extents(512, 512, 512), TileShape(6, 1, 2)),
        (Extents(1024, 17, 1024), TileShape(3, 1, 3)),  # 24 columns for 17, not 32
        (Extents(64, 56, 576, lines=14), TileShape(6, 2, 1)),  # two rows of seven vectors each
    ],
)
def test_a_tile_wastes_little_and_reads_little(extents: Extents, shape: TileShape) -> None:
    assert tile_shape(TARGET, 8, extents) == shape


def test_a_tile_takes_no_more_registers_than_there_are() -> None:
    for registers in (8, 16, 32):
        for lines in (1, 4, 6):
            found = tile_shape(
                replace(TARGET, vector_registers=registers), 8, Extents(100, 90, 64, lines)
            )
            read = found.lines * found.vectors
            assert found.copies * read + read + 2 <= registers
            assert lines % found.lines == 0


# ---- blocks


def test_a_long_sum_goes_in_blocks_and_a_short_one_whole() -> None:
    long, short = matmul(48, 64, 4000), matmul(48, 64, 400)
    (block,) = [b for b in steps(long, ONE_CORE, Blocks) if b.name == "k"]
    strip = 6 * block.size * 4
    assert strip <= ONE_CORE.cache_bytes[0] // 2
    assert len(steps(long, ONE_CORE, SumInBlocks)) == 1
    assert not steps(short, ONE_CORE, SumInBlocks)


def test_a_block_of_columns_hides_what_is_fetched_for_it() -> None:
    """Thirty-two vectors of columns use each value of the other factor, and take half of the second
    cache; half as many where there is little room for sums beside them."""
    sink = matmul(1000, 2048, 2048)
    for room, wide in ((2 << 20, 32), (256 << 10, 16)):
        target = replace(ONE_CORE, local_bytes=room)
        (columns,) = [b.size for b in steps(sink, target, Blocks) if b.name == "j.o"]
        (depth,) = [b.size for b in steps(sink, target, Blocks) if b.name == "k"]
        ((_, vectors, lanes),) = (p for p in steps(sink, target, Tile)[0].parts if p[0] == "j")
        assert columns * vectors == wide
        assert depth * columns * vectors * lanes * 4 <= target.cache_bytes[1] // 2
        made = [n for n in schedule(prepared(sink), target).toposort() if n.op is Ops.LOCAL]
        assert sum(n.arg[1] * 4 for n in made) <= room


def test_all_rows_share_a_block_of_columns_where_there_is_room_for_their_sums() -> None:
    """Else it would be packed for each block of rows anew."""
    roomy = replace(ONE_CORE, local_bytes=2 << 20)
    assert "i.o" not in [b.name for b in steps(matmul(1000, 2048, 2048), roomy, Blocks)]
    (rows,) = [b.size for b in steps(matmul(4000, 2048, 2048), roomy, Blocks) if b.name == "i.o"]
    assert 6 * rows >= 1000


def test_blocks_of_a_sum_are_of_one_size_where_that_is_near() -> None:
    """Loops of one extent move whole vectors."""
    for depth, block in ((1024, 256), (1536, 256), (1000, 250), (1021, 256)):
        found = steps(matmul(600, 1024, depth), replace(ONE_CORE, local_bytes=2 << 20), Blocks)
        assert [b.size for b in found if b.name == "k"] == [block]


SMALL = replace(TARGET, vector_bytes=16, cache_bytes=(1024, 8192, 1 << 20))
"""Caches so small that blocks appear in small products."""


def test_cores_share_blocks_of_rows_where_columns_are_few() -> None:
    """Else each had one or two parts, and waited for the other's last. So tall are blocks of rows
    that packing is little beside their products."""
    sink = matmul(1100, 64, 80)
    (fused,) = [f for f in steps(sink, SMALL, Fuse) if f.outer == "j.o.o"]
    assert fused == Fuse("j.o.o", "i.o.o")
    tiled = tile_products(sink, SMALL)
    (shared,) = [r for r in Kernel(tiled).ranges if r.arg[1] is AxisKind.PARALLEL]
    assert (constant_extent(shared) or 0) >= 4 * SMALL.cores
    for other in (matmul(1100, 2000, 80), matmul(900, 64, 80)):  # columns are enough; rows too few
        assert not [f for f in steps(other, SMALL, Fuse) if f.outer == "j.o.o"]
    draw = np.random.default_rng(7)
    a, b = (draw.integers(-3, 4, shape).astype(np.float32) for shape in ((1100, 80), (80, 64)))
    fixed = sink.replace(arg=KernelInfo("shared", schedule_of(sink, SMALL)))
    found = run(fixed, a, b, out=np.zeros((1100, 64), np.float32))
    np.testing.assert_array_equal(found, a @ b + 1)


@pytest.mark.parametrize(
    "extents", sampled(((1000, 777, 1301), (4096, 65, 4096), (999, 201, 700)), 2)
)
def test_no_large_product_is_left_without_tiles(extents: tuple[int, int, int]) -> None:
    """Blocks of columns with one tile left over; blocks of rows too tall for their sums."""
    for target in (TARGET, replace(TARGET, local_bytes=512 << 10)):
        assert isinstance(schedule_of(matmul(*extents), target)[0], Tile)


def test_the_loop_of_the_cores_stays_outermost_around_sums() -> None:
    """A batch of one, which is too small to share, stood around it."""
    b, i, j = kernels.loop(1, "b"), kernels.loop(64, "i"), kernels.loop(64, "j")
    k = kernels.over(80, "k")
    one, two = kernels.param(1, 64 * 80), kernels.param(2, 80 * 64)
    total = (one.load((b * 64 + i) * 80 + k) * two.load((b * 80 + k) * 64 + j)).reduce(Ops.ADD, k)
    sink = kernels.kernel(
        "batch", kernels.param(0, 64 * 64).store((b * 64 + i) * 64 + j, total).end(b, i, j)
    )
    tiled = tile_products(sink, SMALL)
    assert steps(sink, SMALL, SumInBlocks)
    assert closed_by(tiled.src[0])[0].arg[1] is AxisKind.PARALLEL


def test_what_is_packed_and_summed_fits_the_local_memory() -> None:
    for sink in (matmul(300, 900, 2500), matmul(40, 300, 9000), matmul(700, 60, 1200, turned=True)):
        made = [n for n in tile_products(sink, TARGET).toposort() if n.op is Ops.LOCAL]
        assert any(str(n.arg[0]).startswith("pack") for n in made)
        assert sum(n.arg[1] * n.dtype.itemsize for n in made) <= TARGET.local_bytes


def test_a_transposed_factor_is_packed_for_many_columns() -> None:
    names = [a.names for a in steps(matmul(300, 512, 512, turned=True), ONE_CORE, Pack)]
    assert ("i.u",) in names
    assert ("i.u",) not in [a.names for a in steps(matmul(300, 512, 512), ONE_CORE, Pack)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(25, 70, 2100), (13, 17, 1000), (90, 33, 1700)])
def test_sums_in_blocks_are_exact(shape: tuple[int, int, int], turned: bool) -> None:
    rows, columns, depth = shape
    draw = np.random.default_rng(7)
    a = draw.integers(-3, 4, (rows, depth)).astype(np.float32)
    b = draw.integers(-3, 4, (depth, columns)).astype(np.float32)
    out = np.full((rows, columns), np.nan, np.float32)
    found = run(matmul(*shape, turned=turned), a.T if turned else a, b, out=out)
    np.testing.assert_array_equal(found, a @ b + 1)


# ---- windows


@pytest.mark.parametrize(
    ("step", "apart", "weights"), [(1, 1, (1, 1)), (2, 1, (2, 1)), (1, 2, (1, 2))]
)
def test_windows_with_steps_and_gaps_share_an_axis(
    step: int, apart: int, weights: tuple[int, int]
) -> None:
    sink = prepared(convolution(20, 3, step, apart))
    kernel = Kernel(sink)
    loop = {str(r.arg[0]): r for r in kernel.ranges}
    value = next(s for s in kernel.reduces[0].src[0].src if loop["x"] in s.ranges)
    assert weighted(value, loop["x"], loop["q"]) == weights
    assert weighted(value, loop["x"], loop["p"]) is None


def test_where_windows_step_channels_are_the_vectors() -> None:
    for step, along in ((1, "x"), (2, "c")):
        kernel = Kernel(prepared(convolution(20, 3, step)))
        found = find_product(kernel, kernel.effects[0], TARGET)
        assert found is not None
        assert found.along.arg[0] == along


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("step", "apart"), [(2, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("taps", [1, 3, 5])
def test_convolutions_with_steps_and_gaps_are_exact(step: int, apart: int, taps: int) -> None:
    size, padding = 19, (taps - 1) * apart // 2
    draw = np.random.default_rng(8)
    x = draw.integers(-3, 4, (2, 3, size, size)).astype(np.float32)
    w = draw.integers(-3, 4, (24, 3, taps, taps)).astype(np.float32)
    around = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    reach = (taps - 1) * apart + 1
    seen = np.lib.stride_tricks.sliding_window_view(around, (reach, reach), axis=(2, 3))
    seen = seen[:, :, ::step, ::step, ::apart, ::apart]
    wanted = np.einsum("nryxpq,crpq->ncyx", seen, w)
    found = run(convolution(size, taps, step, apart), x, w, out=np.zeros(wanted.shape, np.float32))
    np.testing.assert_array_equal(found, wanted)


# ---- loops and their order


def test_pixels_of_an_image_are_one_loop_where_nothing_is_seen_through_windows() -> None:
    plain = join_loops(prepared(convolution(20, 1)))
    assert {"n", "c", "y.x"} <= {str(r.arg[0]) for r in Kernel(plain).ranges}
    padded = prepared(convolution(20, 3))
    assert join_loops(padded) is padded


def test_copies_of_rows_enclose_copies_of_columns() -> None:
    """Compilers keep to the order of statements: then one value of a row is in use at a time."""
    sink = Tile((("i", 3, 1), ("j", 2, 4))).apply(matmul(6, 16, 5))
    stores = [e.src[0] for e in expand(sink, TARGET, tidy).src]
    first = [str(s.src[1]) for s in stores[:2]]
    assert len(stores) == 6
    assert stores[0].src[1].vmin + 4 == stores[1].src[1].vmin, first


def test_a_tile_may_be_wider_than_its_loop() -> None:
    kinds = [r.arg for r in Kernel(schedule(prepared(matmul(64, 17, 64)), TARGET)).ranges]
    assert ("j.u", AxisKind.UNROLL) in kinds
    assert ("j.v", AxisKind.VECTOR) in kinds
    assert not any(name == "j.o" for name, _ in kinds)


def test_a_factor_that_lies_as_a_copy_would_is_not_packed_for_few_rows() -> None:
    assert not steps(matmul(40, 40, 300), ONE_CORE, Pack)
    assert steps(matmul(200, 40, 300), ONE_CORE, Pack)
    assert steps(matmul(40, 400, 300), ONE_CORE, Pack)
    # but a long sum goes in blocks all the same, whose lines stay in the second cache
    long = replace(ONE_CORE, cache_bytes=(8 << 10, 32 << 10, 1 << 20))
    assert steps(matmul(40, 40, 300), long, SumInBlocks)
