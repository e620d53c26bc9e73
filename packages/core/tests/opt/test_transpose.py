"""Copies that read along one loop and store along another go by squares of both."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft.ir import Ops
from opgraft.lower.pipeline import lower
from opgraft.opt.axes import Kernel
from opgraft.opt.transpose import tile_copies
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)
SCALAR = Target("test", vector_bytes=0, max_lanes=1, cores=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("height", "width"), [(16, 8), (17, 9), (40, 33), (70, 90), (8, 64)])
def test_a_transpose_is_right_in_any_size(height: int, width: int) -> None:
    sink = kernels.transposed(height, width)
    memory = fill(sink)
    tiled = tile_copies(sink, CPU)
    assert tiled is not sink
    assert expected(tiled, memory) == expected(sink, memory)


def test_it_loads_and_stores_whole_vectors_only() -> None:
    program = lower(kernels.transposed(64, 48), CPU)
    moved = [n for n in program.instructions if n.op in (Ops.LOAD, Ops.STORE)]
    assert moved
    for n in moved:
        assert (n.dtype if n.op is Ops.LOAD else n.src[2].dtype).count == 8


def test_a_line_of_the_result_is_filled_at_once() -> None:
    """Two vectors of 32 bytes beside each other."""
    tiled = tile_copies(kernels.transposed(64, 64), CPU)
    extents = {str(r.arg[0]): int(r.src[0].const_value) for r in Kernel(tiled).ranges}
    along = {n.partition(".")[0] for n in extents if n.endswith(".v")}
    (name,) = along
    assert extents[f"{name}.v"] * extents[f"{name}.u"] * 4 == 64


def test_without_vectors_it_goes_block_by_block() -> None:
    sink = kernels.transposed(70, 90)
    tiled = tile_copies(sink, SCALAR)
    outer = [str(r.arg[0]) for r in Kernel(tiled).effects[0].src[1:]][:2]
    assert sorted(outer) == ["i.o", "j.o"]
    memory = fill(sink)
    assert expected(tiled, memory) == expected(sink, memory)
    small = kernels.transposed(9, 13)
    assert tile_copies(small, SCALAR) is small


def test_other_kernels_are_left_alone() -> None:
    for other in (kernels.elementwise(), kernels.row_sum(), kernels.rows()):
        assert tile_copies(other, CPU) is other


def test_a_last_tile_that_overlaps_does_not_read_what_was_overwritten() -> None:
    i, j = kernels.loop(20, "i"), kernels.loop(20, "j")
    a = kernels.param(0, 400)
    sink = kernels.kernel("own", a.store(i * 20 + j, a.load(j * 20 + i)).end(i, j))
    assert tile_copies(sink, CPU) is sink
