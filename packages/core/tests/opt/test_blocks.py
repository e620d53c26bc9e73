"""Loops in blocks of any size, and sums that are carried on from block to block."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.opt.actions import Action, Parallel, Refused, Split, apply_all
from opgraft.opt.axes import Kernel, constant_extent
from opgraft.opt.blocks import Blocks, SumInBlocks
from opgraft.opt.pack import Pack
from opgraft.opt.tile import Outermost, Tile


def same(before: UOp, after: UOp) -> None:
    memory = fill(before)
    assert expected(after, memory) == expected(before, memory)


def product(rows: int, columns: int, depth: int) -> UOp:
    i, j, k = kernels.loop(rows, "i"), kernels.loop(columns, "j"), kernels.over(depth, "k")
    out = kernels.param(0, rows * columns)
    one, two = kernels.param(1, rows * depth), kernels.param(2, depth * columns)
    total = (one.load(i * depth + k) * two.load(k * columns + j)).reduce(Ops.ADD, k)
    return kernels.kernel("product", out.store(i * columns + j, total + 1.0).end(i, j))


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_blocks_cover_a_loop_once_whatever_their_size(size: int) -> None:
    for name in ("i", "j", "k"):
        sink = product(7, 7, 7)
        made = Blocks(name, size).apply(sink)
        same(sink, made)
        inner = [constant_extent(r) for r in Kernel(made).ranges if r.arg[0] == f"{name}.i"]
        assert inner == ([] if size == 1 else [None])


def test_blocks_of_a_parallel_loop_are_parallel() -> None:
    made = Blocks("i", 3).apply(Parallel("i").apply(product(7, 4, 5)))
    kinds = {r.arg[0]: r.arg[1] for r in Kernel(made).ranges}
    assert kinds["i.o"] is AxisKind.PARALLEL
    assert kinds["i.i"] is AxisKind.LOOP


def test_blocks_are_refused_with_a_reason() -> None:
    for size in (0, 7, 9):
        with pytest.raises(Refused, match="no blocks of"):
            Blocks("i", size).apply(product(7, 7, 7))
    with pytest.raises(Refused, match="at once"):
        Blocks("i.v", 2).apply(Split("i", 4, AxisKind.VECTOR).apply(product(8, 4, 4)))
    with pytest.raises(Refused, match="scanned"):
        Blocks("j", 2).apply(kernels.cumulative())


def test_a_tile_alone_in_its_block_keeps_no_other_loop_in_order() -> None:
    """Five tiles of columns, of which the last reaches into the one before, in blocks of two."""
    sink = product(6, 19, 5)
    made = Blocks("j.o", 2).apply(Tile((("j", 1, 4),)).apply(sink))
    with pytest.raises(Refused, match="enclose"):
        Parallel("j.o.o").apply(made)
    same(sink, Outermost(("i",)).apply(Parallel("i").apply(made)))
    same(sink, Parallel("j.o.o").apply(Blocks("j.o", 3).apply(Tile((("j", 1, 4),)).apply(sink))))


def test_blocks_of_rows_that_fill_a_buffer_each() -> None:
    rows = kernels.normalised_rows()
    same(rows, Blocks("i", 3).apply(rows))


STEPS: dict[str, tuple[Action, ...]] = {
    "a block": (Blocks("k", 4), SumInBlocks("k.o", ("i", "j"))),
    "blocks that don't divide": (Blocks("k", 5), SumInBlocks("k.o", ("i", "j"))),
    "columns alone": (Blocks("k", 4), SumInBlocks("k.o", ("j",))),
    "of tiles": (
        Tile((("i", 3, 1), ("j", 2, 4))),
        Blocks("k", 5),
        SumInBlocks("k.o", ("i.o", "i.u", "j.u", "j.v")),
    ),
    "of tiles with packed factors": (
        Outermost(("j", "i")),
        Tile((("j", 1, 4), ("i", 3, 1))),
        Blocks("j.o", 2),
        Blocks("k", 5),
        SumInBlocks("k.o", ("i.o", "j.o.i", "i.u", "j.v")),
        Pack(("sums0.j.v",), ("j.o.o", "sums0.k.o")),
        Pack(("sums0.i.u",), ("j.o.o", "sums0.k.o", "sums0.i.o")),
    ),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_sum_in_blocks_is_the_sum(steps: tuple[Action, ...]) -> None:
    sink = product(4, 9, 7)
    made = apply_all(sink, steps)
    assert any(n.op is Ops.LOCAL and n.arg[0] == "sums0" for n in made.toposort())
    same(sink, made)


def test_sums_begin_with_the_first_block() -> None:
    """Nothing clears the buffer: what is in it is not read then."""
    made = apply_all(product(4, 9, 7), STEPS["blocks that don't divide"])
    stores = [n for n in made.toposort() if n.op is Ops.STORE and n.src[0].op is Ops.LOCAL]
    (so_far,) = [n for n in stores[0].toposort() if n.op is Ops.LOAD and n.src[0].op is Ops.LOCAL]
    assert len(stores) == 1
    assert [r.arg[0] for r in so_far.src[2].ranges] == ["sums0.k.o"]


def test_sums_in_blocks_are_refused_with_a_reason() -> None:
    sink = product(7, 11, 12)
    i, empty = kernels.loop(7, "i"), UOp.range(UOp.variable("n", 0, 5), "k", AxisKind.REDUCE)
    inner = kernels.over(4, "m")
    total = kernels.param(1, 20).load(empty * 4 + inner).reduce(Ops.ADD, empty, inner)
    maybe = kernels.kernel("maybe", kernels.param(0, 7).store(i, total).end(i))
    with pytest.raises(Refused, match="may have no iteration"):
        SumInBlocks("k", ("i",)).apply(maybe)
    with pytest.raises(Refused, match="nothing is left"):
        SumInBlocks("k", ("i",)).apply(sink)
    with pytest.raises(Refused, match="no single REDUCE"):
        SumInBlocks("q", ("i",)).apply(sink)
    with pytest.raises(Refused, match="not all loops around"):
        SumInBlocks("k.o", ("q",)).apply(Blocks("k", 4).apply(sink))
    assert eval(repr(Blocks("k", 4)), {"Blocks": Blocks}) == Blocks("k", 4)
