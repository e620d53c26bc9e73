"""Kernels written for the kit, in the form in which array programs hand them to the core.

`MOVES` move data without computing much, on every dtype; `SHAPES` are what real programs are made
of, and what schedules are tried on. Each is a function of a dtype that gives the SINK.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from opgraft.dtype import DType, dtypes
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.uop import UOp

Maker: TypeAlias = Callable[[DType], UOp]


def param(slot: int, size: int, dtype: DType) -> UOp:
    """The buffer of a slot."""
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def loop(size: int | UOp, name: str) -> UOp:
    """A range of outputs."""
    return UOp.range(size, name)


def over(size: int | UOp, name: str) -> UOp:
    """A range for a REDUCE."""
    return UOp.range(size, name, AxisKind.REDUCE)


def kernel(name: str, *effects: UOp) -> UOp:
    """The SINK of these effects."""
    return UOp.sink(*effects, arg=KernelInfo(name))


# ---- moving data


def copied(dtype: DType, size: int = 67) -> UOp:
    """Element by element."""
    i = loop(size, "i")
    return kernel("copied", param(0, size, dtype).store(i, param(1, size, dtype).load(i)).end(i))


def unaligned(dtype: DType, size: int = 61) -> UOp:
    """Neighbours, from places that no vector is aligned to, to such places."""
    i = loop(size, "i")
    out, a = param(0, size + 3, dtype), param(1, size + 5, dtype)
    value = (a.load(i + 1) < a.load(i + 5)).where(a.load(i + 3), a.load(i))
    return kernel("unaligned", out.store(i + 3, value).end(i))


def gated_load(dtype: DType, size: int = 45) -> UOp:
    """Shifted both ways: out of range, the gate is false and the alternative is taken."""
    i = loop(size, "i")
    out, a = param(0, size, dtype), param(1, size, dtype)
    left = a.load(i - 7, i >= 7, dtype.const(1))
    right = a.load(i + 9, i + 9 < size)
    return kernel("gated_load", out.store(i, left.maximum(right)).end(i))


def far_gated_load(dtype: DType, size: int = 40) -> UOp:
    """Where the gate is false the index is far out of any memory."""
    i = loop(size, "i")
    out, a = param(0, size, dtype), param(1, size, dtype)
    far = i * (1 << 33) - (1 << 35)
    return kernel("far_gated_load", out.store(i, a.load(far, far.eq(0), dtype.const(1))).end(i))


def gated_store(dtype: DType, size: int = 40) -> UOp:
    """Every third element of a part; the gate of the others is false, their place out of range."""
    i = loop(size, "i")
    out, a = param(0, 50, dtype), param(1, size, dtype)
    return kernel("gated_store", out.store(i * 3, a.load(i), i * 3 < 50).end(i))


def masked_store(dtype: DType, size: int = 40) -> UOp:
    """Consecutive places, gates that differ from lane to lane."""
    i = loop(size, "i")
    out, a, mask = param(0, size, dtype), param(1, size, dtype), param(2, size, dtypes.bool)
    return kernel("masked_store", out.store(i, a.load(i), mask.load(i)).end(i))


def gathered(dtype: DType, count: int = 37, table: int = 29) -> UOp:
    """By an index from memory; where it is out of range, zero."""
    i = loop(count, "i")
    out, a = param(0, count, dtype), param(1, table, dtype)
    where = param(2, count, dtypes.int32).load(i).cast(dtypes.index) * 3
    inside = (where >= 0) & (where < table)
    return kernel("gathered", out.store(i, a.load(where, inside)).end(i))


def scattered(dtype: DType, count: int = 37, table: int = 29) -> UOp:
    """To an index from memory: of repeated ones the last wins, those out of range are dropped."""
    i = loop(count, "i")
    out, a = param(0, table, dtype), param(1, count, dtype)
    where = param(2, count, dtypes.int64).load(i).cast(dtypes.index) * 2
    inside = (where >= 0) & (where < table)
    return kernel("scattered", out.store(where, a.load(i), inside).end(i))


def wide_index(dtype: DType, rows: int = 5, width: int = 19) -> UOp:
    """A small buffer, an index whose parts need 64 bits."""
    i, j = loop(rows, "i"), loop(width, "j")
    out, a = param(0, rows * width, dtype), param(1, 97, dtype)
    offset = param(2, rows, dtypes.int64).load(i).cast(dtypes.index)
    place = (i * 5_000_000_019 + j * 3_000_000_007 + offset) % 97
    return kernel("wide_index", out.store(i * width + j, a.load(place)).end(i, j))


def reversed_and_strided(dtype: DType, size: int = 33) -> UOp:
    """Backwards, every second element: scalar accesses beside vectors."""
    i = loop(size, "i")
    out, a = param(0, 2 * size, dtype), param(1, 3 * size, dtype)
    value = a.load(i * -1 + (size - 1)).maximum(a.load(i * 3 + 1))
    return kernel("reversed_and_strided", out.store(i * 2 + 1, value).end(i))


def in_place(dtype: DType, size: int = 43) -> UOp:
    """Each element from its old value, and from another buffer that changes as well."""
    i = loop(size, "i")
    a, b = param(0, size, dtype), param(1, size, dtype)
    return kernel(
        "in_place",
        a.store(i, a.load(i).maximum(b.load(i))).end(i),
        b.store(i, a.load(i).minimum(b.load(i))).end(i),
    )


def read_before_overwritten(dtype: DType, size: int = 40) -> UOp:
    """The second output needs the old data of the first, in reverse."""
    i = loop(size, "i")
    out, other, a = (param(s, size, dtype) for s in range(3))
    return kernel(
        "read_before_overwritten",
        out.store(i, a.load(i)).end(i),
        other.store(i, out.load(i * -1 + (size - 1))).end(i),
    )


def last_store_wins(dtype: DType, size: int = 41) -> UOp:
    """Three stores to each element, one after the other, and rows that collide."""
    i, j = loop(size, "i"), loop(size, "j")
    out, a, b = (param(s, size, dtype) for s in range(3))
    both, v = param(3, 2 * 8, dtype), param(4, 64, dtype)
    k, m = loop(8, "k"), loop(8, "m")
    return kernel(
        "last_store_wins",
        out.store(i, a.load(i)).end(i),
        out.store(j * -1 + (size - 1), b.load(j), j < 30).end(j),
        both.store(k + m, v.load(k * 8 + m)).end(k, m),
    )


def truth(dtype: DType, size: int = 41) -> UOp:
    """Comparisons kept in memory as bool, and bool computed with and turned into numbers."""
    i = loop(size, "i")
    less, either, out = (
        param(0, size, dtypes.bool),
        param(1, size, dtypes.bool),
        param(2, size, dtype),
    )
    a, b, mask = param(3, size, dtype), param(4, size, dtype), param(5, size, dtypes.bool)
    held = a.load(i).cast(dtypes.bool)
    return kernel(
        "truth",
        less.store(i, a.load(i) < b.load(i)).end(i),
        either.store(i, (held ^ True) | mask.load(i)).end(i),
        out.store(i, (held + mask.load(i)).cast(dtype)).end(i),
    )


MOVES: Final[dict[str, Maker]] = {
    f.__name__: f
    for f in (
        copied,
        unaligned,
        gated_load,
        far_gated_load,
        gated_store,
        masked_store,
        gathered,
        scattered,
        wide_index,
        reversed_and_strided,
        in_place,
        read_before_overwritten,
        last_store_wins,
        truth,
    )
}

HINTS: Final = {
    "truth": "in memory a bool is one byte, 0 or 1 and nothing else",
    "unaligned": "a vector begins at any element: no aligned vector types",
    "gated_load": "where the gate is false the alternative is taken and memory is not touched",
    "far_gated_load": "where the gate is false the index is not evaluated for memory",
    "gated_store": "where the gate is false nothing is written",
    "masked_store": "where the gate is false nothing is written",
    "wide_index": "parts of this index do not fit in 32 bits",
    "last_store_wins": "stores happen in the order of the program",
}
"""Where to look when one of MOVES is wrong."""


# ---- what programs are made of


def elementwise(dtype: DType, size: int = 37) -> UOp:
    """Two inputs, one loop."""
    i = loop(size, "i")
    out, a, b = (param(s, size, dtype) for s in range(3))
    return kernel("elementwise", out.store(i, a.load(i) * b.load(i) + dtype.const(1)).end(i))


def rows(dtype: DType, height: int = 6, width: int = 19) -> UOp:
    """A row added to each row: two loops, one input that does not move with the outer one."""
    i, j = loop(height, "i"), loop(width, "j")
    at = i * width + j
    out, a, b = (
        param(0, height * width, dtype),
        param(1, height * width, dtype),
        param(2, width, dtype),
    )
    return kernel("rows", out.store(at, a.load(at) + b.load(j)).end(i, j))


def transposed(dtype: DType, height: int = 9, width: int = 13) -> UOp:
    """Consecutive on one side only."""
    i, j = loop(width, "i"), loop(height, "j")
    out, a = param(0, height * width, dtype), param(1, height * width, dtype)
    return kernel("transposed", out.store(i * height + j, a.load(j * width + i)).end(i, j))


def row_sums(dtype: DType, height: int = 7, width: int = 70) -> UOp:
    """A REDUCE along memory."""
    i, k = loop(height, "i"), over(width, "k")
    out, a = param(0, height, dtype), param(1, height * width, dtype)
    return kernel("row_sums", out.store(i, a.load(i * width + k).reduce(Ops.ADD, k)).end(i))


def column_maxima(dtype: DType, height: int = 9, width: int = 21) -> UOp:
    """A REDUCE across memory."""
    j, k = loop(width, "j"), over(height, "k")
    out, a = param(0, width, dtype), param(1, height * width, dtype)
    return kernel("column_maxima", out.store(j, a.load(k * width + j).reduce(Ops.MAX, k)).end(j))


def full_sum(dtype: DType, size: int = 100) -> UOp:
    """All to one."""
    k = over(size, "k")
    out, a = param(0, 1, dtype), param(1, size, dtype)
    return kernel("full_sum", out.store(0, a.load(k).reduce(Ops.ADD, k)))


def matmul(dtype: DType, m: int = 8, n: int = 18, depth: int = 12) -> UOp:
    """A product of matrices."""
    i, j, k = loop(m, "i"), loop(n, "j"), over(depth, "k")
    out, a, b = param(0, m * n, dtype), param(1, m * depth, dtype), param(2, depth * n, dtype)
    product = a.load(i * depth + k) * b.load(k * n + j)
    return kernel("matmul", out.store(i * n + j, product.reduce(Ops.ADD, k)).end(i, j))


def padded(dtype: DType, height: int = 4, width: int = 9) -> UOp:
    """The input with one zero around it."""
    i, j = loop(height + 2, "i"), loop(width + 2, "j")
    out, a = param(0, (height + 2) * (width + 2), dtype), param(1, height * width, dtype)
    inside = (i >= 1) & (i < height + 1) & (j >= 1) & (j < width + 1)
    value = a.load((i - 1) * width + (j - 1), inside)
    return kernel("padded", out.store(i * (width + 2) + j, value).end(i, j))


def cumulative(dtype: DType, height: int = 4, width: int = 10) -> UOp:
    """Running sums of rows."""
    i, j = loop(height, "i"), loop(width, "j")
    out, a = param(0, height * width, dtype), param(1, height * width, dtype)
    running = UOp(Ops.SCAN, dtype, (a.load(i * width + j), j), Ops.ADD)
    return kernel("cumulative", out.store(i * width + j, running).end(i, j))


def by_way_of_a_local(dtype: DType, height: int = 4, width: int = 24) -> UOp:
    """A row kept in memory of the kernel's own, summed, and read again."""
    i, j, k, own = loop(height, "i"), loop(width, "j"), over(width, "k"), loop(width, "l")
    out, a = param(0, height * width, dtype), param(1, height * width, dtype)
    top = a.load(i * width + k).reduce(Ops.MAX, k)
    row = UOp(Ops.LOCAL, dtype, (), ("row", width, Space.PRIVATE))
    filled = row.after(row.store(own, a.load(i * width + own) + top).end(own))
    total = filled.load(k).reduce(Ops.ADD, k)
    value = filled.load(j * -1 + (width - 1)) + total
    return kernel("by_way_of_a_local", out.store(i * width + j, value).end(i, j))


def by_way_of_two_locals(dtype: DType, height: int = 4, width: int = 24) -> UOp:
    """As before; then each element and the greatest of the row in a memory of its own."""
    i, j, k, own = loop(height, "i"), loop(width, "j"), over(width, "k"), loop(width, "l")
    out, a = param(0, height * width, dtype), param(1, height * width, dtype)
    row = UOp(Ops.LOCAL, dtype, (), ("row", width, Space.PRIVATE))
    filled = row.after(row.store(own, a.load(i * width + own) + 1).end(own))
    each = loop(width, "m")
    raised = UOp(Ops.LOCAL, dtype, (), ("raised", width, Space.PRIVATE))
    value = filled.load(each) + filled.load(k).reduce(Ops.MAX, k)
    raised = raised.after(raised.store(each, value).end(each))
    store = out.store(i * width + j, raised.load(j * -1 + (width - 1)))
    return kernel("by_way_of_two_locals", store.end(i, j))


def several_outputs(dtype: DType, height: int = 4, width: int = 17) -> UOp:
    """Rows, and two REDUCEs of them, in one kernel."""
    i, j, k = loop(height, "i"), loop(width, "j"), over(width, "k")
    sums, scaled, tops = (
        param(0, height, dtype),
        param(1, height * width, dtype),
        param(2, height, dtype),
    )
    a = param(3, height * width, dtype)
    total = a.load(i * width + k).reduce(Ops.ADD, k)
    return kernel(
        "several_outputs",
        sums.store(i, total).end(i),
        scaled.store(i * width + j, a.load(i * width + j) * total).end(i, j),
        tops.store(i, a.load(i * width + k).reduce(Ops.MAX, k)).end(i),
    )


def stored_and_read_back(dtype: DType, height: int = 3, width: int = 16) -> UOp:
    """A finished row of an output summed from where it was stored."""
    i, j, k = loop(height, "i"), loop(width, "j"), over(width, "k")
    out, other, a = (
        param(0, height * width, dtype),
        param(1, height, dtype),
        param(2, height * width, dtype),
    )
    store = out.store(i * width + j, a.load(i * width + j) + dtype.const(1))
    row = out.after(store.end(j)).load(i * width + k).reduce(Ops.ADD, k)
    return kernel("stored_and_read_back", store.end(i, j), other.store(i, row).end(i))


def product(kinds: tuple[DType, DType, DType], m: int, n: int, depth: int) -> UOp:
    """A product of matrices of two dtypes, added up in a third."""
    left, right, sums = kinds
    i, j, k = loop(m, "i"), loop(n, "j"), over(depth, "k")
    a, b = param(1, m * depth, left), param(2, depth * n, right)
    value = a.load(i * depth + k).cast(sums) * b.load(k * n + j).cast(sums)
    out = param(0, m * n, sums)
    return kernel("product", out.store(i * n + j, value.reduce(Ops.ADD, k)).end(i, j))


def widened(dtype: DType) -> UOp:
    """A product of narrow integers, added up in int32."""
    return product((dtype, dtypes.int8, dtypes.int32), 5, 18, 12)


def weighted_rows(dtype: DType, height: int = 3, keys: int = 24, width: int = 18) -> UOp:
    """Sums of rows, weighted by powers of two of how far scores are below their greatest."""
    i, j, e = loop(height, "i"), loop(width, "j"), loop(keys, "e")
    k, m = over(keys, "k"), over(keys, "m")
    out, a = param(0, height * width, dtype), param(1, height * keys, dtype)
    b = param(2, keys * width, dtype)

    def score(at: UOp) -> UOp:
        # few bits apart, so that all sums are exact
        return a.load(i * keys + at).minimum(UOp.const(dtype, 4)).maximum(UOp.const(dtype, -4))

    top = score(m).reduce(Ops.MAX, m)
    row = UOp(Ops.LOCAL, dtype, (), ("row", keys, Space.PRIVATE))
    filled = row.after(row.store(e, (score(e) + top * -1).exp2()).end(e))
    total = (filled.load(k) * b.load(k * width + j)).reduce(Ops.ADD, k)
    return kernel("weighted_rows", out.store(i * width + j, total).end(i, j))


def picked_rows(dtype: DType, height: int = 9, table: int = 29, width: int = 24) -> UOp:
    """Rows of a table by numbers from memory; where there is none of a number, zeros."""
    i, j = loop(height, "i"), loop(width, "j")
    out, a = param(0, height * width, dtype), param(1, table * width, dtype)
    row = param(2, height, dtypes.int32).load(i).cast(dtypes.index) * 3
    value = a.load(row * width + j, (row >= 0) & (row < table))
    return kernel("picked_rows", out.store(i * width + j, value).end(i, j))


SHAPES: Final[dict[str, Maker]] = {
    f.__name__: f
    for f in (
        elementwise,
        rows,
        transposed,
        row_sums,
        column_maxima,
        full_sum,
        matmul,
        padded,
        cumulative,
        by_way_of_a_local,
        by_way_of_two_locals,
        several_outputs,
        stored_and_read_back,
    )
}
NARROW: Final[dict[str, Maker]] = {"widened": widened}
"""Of narrow integers alone."""
FLOATS: Final[dict[str, Maker]] = {"weighted_rows": weighted_rows}
"""Of floats alone."""
LISTED: Final[dict[str, Maker]] = {"picked_rows": picked_rows}
"""With places that memory names."""
