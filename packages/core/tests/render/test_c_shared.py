"""Vectors that a few products share are read once: gcc would read them anew for each."""

from __future__ import annotations

import pytest

from opgraft.dtype import dtypes
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.lower.pipeline import lower
from opgraft.opt.tile import Tile
from opgraft.render.c import CRenderer
from opgraft.target import Target

AVX2 = Target("cpu", vector_bytes=32, fma=frozenset({dtypes.float32}))


def source(rows: int, vectors: int, target: Target = AVX2) -> str:
    """A product in tiles of so many rows and vectors of 8 columns."""
    i, j = UOp.range(12, "i"), UOp.range(48, "j")
    k = UOp.range(100, "k", AxisKind.REDUCE)
    out, one, two = (
        UOp(Ops.PARAM, dtypes.float32, (), (slot, size))
        for slot, size in enumerate((12 * 48, 1200, 4800))
    )
    total = (one.load(i * 100 + k) * two.load(k * 48 + j)).reduce(Ops.ADD, k)
    tile = Tile((("i", rows, 1), ("j", vectors, 8)))
    info = KernelInfo("product", (tile,))
    sink = UOp.sink(out.store(i * 48 + j, total).end(i, j)).replace(arg=info)
    return CRenderer(target).render(lower(sink, target))


@pytest.mark.parametrize(("rows", "vectors", "held"), [(3, 3, 3), (4, 2, 2), (6, 2, 0), (1, 4, 0)])
def test_vectors_that_a_few_products_share_stay_in_registers(
    rows: int, vectors: int, held: int
) -> None:
    """Of more uses gcc keeps them by itself; of one there is nothing to keep."""
    assert source(rows, vectors).count("  hold(") == held


def test_vectors_of_two_registers_are_left_alone() -> None:
    narrow = Target("cpu", vector_bytes=16, fma=frozenset({dtypes.float32}))
    assert "hold(" not in source(3, 2, narrow)
