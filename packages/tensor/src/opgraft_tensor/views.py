"""THE table of views: from the index of an element to the index of its source, and the gates.

A view changes the argument of its source and nothing else. Where it invents elements (PAD,
UNWINDOW), gates say when the source is read at all; a gate (x, low, high) means low <= x < high.
Under the gates the source's index lies within the source's shape. WRITE and GATHER, which read
two sources, state here how the second is reached.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.extents import Extent
from opgraft_tensor.graph import Region, Shape, shape
from opgraft_tensor.index import Index, Indices, Lin

Gate: TypeAlias = tuple[Lin, int, int]


def source_index(table: Indices, view: UOp, index: Index) -> tuple[Index, tuple[Gate, ...]]:
    """Where element `index` of a view (GroupOp.VIEW) comes from; kept in the table."""
    key = (view, index)
    found: tuple[Index, tuple[Gate, ...]] | None = table.moved.get(key)
    if found is None:
        found = table.moved[key] = _source_index(table, view, index)
    return found


def _source_index(table: Indices, view: UOp, index: Index) -> tuple[Index, tuple[Gate, ...]]:
    op, arg = view.op, view.arg
    if op is Ops.RESHAPE:
        return _reshape(table, index, shape(view), shape(view.src[0])), ()
    if op is Ops.PERMUTE:
        found = list(index)
        for place, axis in enumerate(arg):
            found[axis] = index[place]
        return tuple(found), ()
    if op is Ops.EXPAND:
        old, new = shape(view.src[0]), arg
        return tuple(
            [table.zero if a == 1 and b != 1 else x for x, a, b in zip(index, old, new)]
        ), ()
    if op is Ops.SLICE:
        return tuple(
            [table.shift(table.mul(x, step), begin) for x, (begin, _, step) in zip(index, arg)]
        ), ()
    if op is Ops.PAD:
        moved = tuple([table.shift(x, -before) for x, (before, _) in zip(index, arg)])
        return moved, inside(moved, shape(view.src[0]))
    if op is Ops.WINDOW:
        axis, _, stride, dilation = arg
        at = table.add(table.mul(index[axis], stride), index[-1], dilation)
        return (*index[:axis], at, *index[axis + 1 : -1]), ()
    if op is Ops.UNWINDOW:
        axis, _, stride, dilation, _ = arg
        count = shape(view.src[0])[axis]
        offset = table.add(index[axis], index[-1], -dilation)
        at = table.div(offset, stride)
        gates = _needed((at, 0, count))
        if stride > 1:
            gates += _needed((table.mod(offset, stride), 0, 1))
        return (*index[:axis], at, *index[axis + 1 :]), gates
    raise ValueError(f"{op} is not a view")


def _reshape(table: Indices, index: Index, new: Shape, old: Shape) -> Index:
    """Groups of axes whose extents multiply to the same never meet in one division.

    Axes of extent 1 take no part: their index is 0.
    """
    wide = [axis for axis, extent in enumerate(new) if extent != 1]
    index = tuple([index[axis] for axis in wide])
    new = tuple([new[axis] for axis in wide])
    found: list[Lin] = []
    narrow = tuple([extent for extent in old if extent != 1])
    a = b = 0
    while a < len(new):
        first_new, first_old = a, b
        size_new, size_old = new[a], narrow[b]
        a, b = a + 1, b + 1
        while size_new != size_old:
            if size_new < size_old:
                size_new *= new[a]
                a += 1
            else:
                size_old *= narrow[b]
                b += 1
        flat = table.ravel(index[first_new:a], new[first_new:a])
        found += table.unravel(flat, narrow[first_old:b])
    rest = iter(found)
    return tuple([table.zero if extent == 1 else next(rest) for extent in old])


def inside(index: Index, extents: Shape) -> tuple[Gate, ...]:
    """The gates that keep `index` within the extents, where its bounds don't prove it."""
    return tuple(
        [(x, 0, n) for x, n in zip(index, extents) if x.low < 0 or x.high >= n],
    )


def is_inside(index: Index, extents: Shape) -> bool:
    """Whether the bounds alone prove the index within the extents."""
    return all(x.low >= 0 and x.high < n for x, n in zip(index, extents))


def _needed(gate: Gate) -> tuple[Gate, ...]:
    x, low, high = gate
    if isinstance(high, Extent) and (x.bare is None or x.bare.extent != high):
        return (gate,)
    return () if low <= x.low and x.high < high else (gate,)


def region_index(table: Indices, region: Region, index: Index) -> tuple[Index, tuple[Gate, ...]]:
    """Which element of the value a WRITE puts at `index`, and when it does."""
    found: list[Lin] = []
    gates: tuple[Gate, ...] = ()
    for x, (begin, count, step) in zip(index, region):
        offset = table.shift(x, -begin)
        if step < 0:
            offset = table.mul(offset, -1)
        place = table.div(offset, abs(step))
        found.append(place)
        gates += _needed((place, 0, count))
        if abs(step) > 1:
            gates += _needed((table.mod(offset, abs(step)), 0, 1))
    return tuple(found), gates


def never(gates: tuple[Gate, ...]) -> bool:
    """Whether the bounds alone prove that a gate is false."""
    return any(x.high < low or x.low >= high for x, low, high in gates)


def region_place(table: Indices, region: Region, index: Index) -> Index:
    """Where element `index` of the value of a WRITE goes."""
    return tuple(
        [table.shift(table.mul(x, step), begin) for x, (begin, _, step) in zip(index, region)]
    )


def covers(region: Region, extents: Shape) -> bool:
    """Whether a region is the whole array, in whatever order."""
    return all(count == n for (_, count, _), n in zip(region, extents))


def gather_index(table: Indices, gather: UOp, index: Index) -> tuple[Index, Index]:
    """(index into the indices, index into the table): the first axis of the table is a datum."""
    indices = gather.src[1]
    rank = len(shape(indices))
    rows = shape(gather.src[0])[0]
    return index[:rank], (table.datum(indices, index[:rank], rows), *index[rank:])


def size_of(uop: UOp) -> int:
    """Elements of an array node."""
    return prod(shape(uop))
