"""Reductions of columns go row by row through memory, and stay what they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft import dtypes
from opgraft.catalog import Device
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.lower.pipeline import lower
from opgraft.opt.accumulate import Accumulate, accumulate_columns
from opgraft.opt.actions import Refused, Split, Unroll
from opgraft.opt.axes import Kernel
from opgraft.opt.heuristic import choose, schedule
from opgraft.runtime import compile_kernel
from opgraft.target import Target

TARGET = Target("test", vector_bytes=32, vector_registers=16, cores=2)


def same(before: UOp, after: UOp) -> None:
    memory = fill(before)
    assert expected(after, memory) == expected(before, memory)


@pytest.mark.parametrize("at_once", [1, 2, 4, 9])
def test_passes_of_any_height_keep_the_meaning(at_once: int) -> None:
    sink = kernels.column_max(9, 21)
    spread = Accumulate("k", "j", at_once).apply(sink)
    same(sink, spread)
    assert sum(n.op is Ops.LOCAL for n in spread.toposort()) == 1
    left = [r for n in Kernel(spread).reduces for r in n.src[1:]]
    assert all(r.arg[1] is AxisKind.UNROLL for r in left)


def test_what_cannot_be_accumulated_is_refused() -> None:
    with pytest.raises(Refused, match="not both ranges"):
        Accumulate("k", "q", 2).apply(kernels.column_max())
    with pytest.raises(Refused, match="depends on"):
        Accumulate("j", "k", 2).apply(kernels.column_max())
    with pytest.raises(Refused, match="at once"):
        Accumulate("k", "j", 10).apply(kernels.column_max(9, 21))


def test_loops_of_unknown_extent_and_rows_filled_anew_are_refused() -> None:
    n = UOp.variable("n", 0, 4)
    j, k, p = kernels.loop(8, "j"), kernels.over(4, "k"), UOp.range(n, "p", AxisKind.REDUCE)
    out, a = kernels.param(0, 8), kernels.param(1, 128)
    value = a.load((p * 4 + k) * 8 + j)
    beside = kernels.kernel("beside", out.store(j, value.reduce(Ops.ADD, p, k)).end(j))
    with pytest.raises(Refused, match="no constant extent"):
        Accumulate("k", "j", 2).apply(beside)
    own = kernels.loop(4, "l")
    row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 4, Space.PRIVATE))
    filled = row.after(row.store(own, a.load(own * 8 + j)).end(own))
    anew = kernels.kernel("anew", out.store(j, filled.load(k).reduce(Ops.ADD, k)).end(j))
    with pytest.raises(Refused, match="filled anew"):
        Accumulate("k", "j", 2).apply(anew)


def test_sums_take_no_more_than_the_local_memory() -> None:
    for room in (64, 2048, 4096):
        small = replace(TARGET, local_bytes=room)
        made = [
            n
            for n in accumulate_columns(columns(Ops.ADD, 64, 4096), small).toposort()
            if n.op is Ops.LOCAL
        ]
        assert sum(n.arg[1] * 4 for n in made) <= room


def columns(op: Ops, height: int, width: int, deep: int = 1) -> UOp:
    j = kernels.loop(width, "j")
    p, k = kernels.over(deep, "p"), kernels.over(height, "k")
    out, a = kernels.param(0, width), kernels.param(1, deep * height * width)
    loops = (p, k) if deep > 1 else (k,)
    row = p * height + k if deep > 1 else k
    value = a.load(row * width + j)
    return kernels.kernel("columns", out.store(j, value.reduce(op, *loops)).end(j))


@pytest.mark.parametrize(("op", "apply"), [(Ops.ADD, np.sum), (Ops.MAX, np.max)])
@pytest.mark.parametrize(("height", "width", "deep"), [(64, 512, 1), (37, 1024, 1), (20, 768, 3)])
def test_columns_are_exact(op: Ops, apply: object, height: int, width: int, deep: int) -> None:
    """Small integers in floats: every order of adding gives the same sum."""
    sink = columns(op, height, width, deep)
    assert any(n.op is Ops.LOCAL for n in accumulate_columns(sink, TARGET).toposort())
    device = Device["CPU"]
    values = np.random.default_rng(0).integers(-50, 50, (deep, height, width)).astype(np.float32)
    buffers = [device.buffer(width * 4), device.buffer(values.nbytes)]
    buffers[1].copy_in(values)
    compile_kernel(device, sink).run(buffers, (), wait=True)
    found = np.empty(width, np.float32)
    buffers[0].copy_out(found)
    np.testing.assert_array_equal(found, apply(values, axis=(0, 1)))  # type: ignore[operator]


def test_blocks_of_columns_go_to_the_cores() -> None:
    found = {
        r.arg[0]: r.arg[1] for r in Kernel(schedule(columns(Ops.ADD, 64, 4096), TARGET)).ranges
    }
    assert AxisKind.PARALLEL in found.values()
    program = lower(columns(Ops.ADD, 64, 4096), TARGET)
    assert program.parallel is not None
    made = [n for n in program.instructions if n.op is Ops.LOCAL and n.arg[1] > 1]
    assert len(made) == 1
    assert made[0].arg[1] * 4 <= TARGET.cache_bytes[0] // 2


def test_rows_stay_whole_where_loops_around_them_are_enough_for_the_cores() -> None:
    """The longer a walk through memory, the better a processor foresees it."""

    def side_by_side(sink: UOp, target: Target) -> int:
        made = accumulate_columns(sink, target)
        return max(n.arg[1] for n in made.toposort() if n.op is Ops.LOCAL)

    def blocks(width: int) -> UOp:
        b, j, k = kernels.loop(8, "b"), kernels.loop(width, "j"), kernels.over(64, "k")
        out, a = kernels.param(0, 8 * width), kernels.param(1, 8 * 64 * width)
        value = a.load((b * 64 + k) * width + j).reduce(Ops.ADD, k)
        return kernels.kernel("blocks", out.store(b * width + j, value).end(b, j))

    alone = columns(Ops.ADD, 64, 8192)
    assert side_by_side(blocks(8192), TARGET) == 8192
    assert side_by_side(alone, replace(TARGET, cores=1)) == 8192
    assert side_by_side(alone, TARGET) == TARGET.cache_bytes[0] // 4 // 4
    assert side_by_side(alone, replace(TARGET, cores=16)) == 8192 // 16
    assert side_by_side(blocks(8192), replace(TARGET, cores=64)) < 8192
    assert side_by_side(blocks(1 << 16), TARGET) * 4 <= TARGET.cache_bytes[1] // 4


@pytest.mark.parametrize(("width", "rows"), [(256, 1), (260, 8), (512, 8), (4096, 8)])
def test_rows_of_one_page_are_added_one_by_one(width: int, rows: int) -> None:
    """Several walks within a page are not foreseen; what is left of a row is work of each pass."""
    made = choose(columns(Ops.ADD, 64, width), replace(TARGET, cores=1))
    assert [a.at_once for a in made if isinstance(a, Accumulate)] == [rows]
    copies = [a.factor for a in made if isinstance(a, Split) and a.kind is AxisKind.UNROLL]
    assert copies == ([4] if rows == 1 else [])


def test_blocks_are_whole_lines_of_the_device() -> None:
    for line in (64, 256):
        target = replace(TARGET, line_bytes=line)
        made = accumulate_columns(columns(Ops.ADD, 64, 4100), target)
        blocks = [n.arg[1] for n in made.toposort() if n.op is Ops.LOCAL]
        assert blocks[0] * 4 % line == 0, line
    assert blocks[0] * 4 % 256 == 0


def test_a_vector_times_a_matrix_goes_in_the_order_of_the_matrix() -> None:
    sink = Unroll("i").apply(kernels.matmul(1, 512, 64))
    assert accumulate_columns(sink, TARGET) is not sink


def test_near_strides_and_few_rows_stay_in_registers() -> None:
    for sink in (
        columns(Ops.ADD, 64, 64),
        columns(Ops.ADD, 8, 4096),
        kernels.row_sum(64, 512),
        kernels.matmul(64, 512, 64),
    ):
        assert accumulate_columns(sink, TARGET) is sink
    same(kernels.column_max(), schedule(kernels.column_max(), replace(TARGET, vector_bytes=0)))
