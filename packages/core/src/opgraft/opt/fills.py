"""The loops that fill packed buffers: in the order in which the array lies, its neighbours in
vectors."""

from __future__ import annotations

from collections.abc import Collection

from opgraft.ir.loops import stride_of, substitute_free
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Fuse, Partition
from opgraft.opt.axes import (
    Kernel,
    buffer_of,
    clauses,
    closed_by,
    constant_extent,
    in_whole,
    store_of,
)
from opgraft.opt.tile import Outermost, Tile
from opgraft.rules.simplify import tidy


def arrange_fills(sink: UOp, names: Collection[object], vector_bytes: int) -> UOp:
    """The kernel with the loops that fill these packed buffers in order, and in vectors."""
    fills = [
        effect
        for n in sink.toposort()
        if n.op is Ops.AFTER and buffer_of(n).arg[0] in names
        for effect in n.src[1:]
    ]
    for fill in dict.fromkeys(fills):
        loops = closed_by(fill)
        if any(r.arg[1] is not AxisKind.LOOP for r in loops):
            continue
        sink, loops, store = _joined(sink, loops, store_of(fill))
        value = store.src[2]
        strides = {r: stride_of_loads(value, r) for r in loops}
        ordered = sorted(loops, key=lambda r: -_distance(strides[r]))
        if ordered != list(loops):
            sink = Outermost(tuple([r.arg[0] for r in ordered])).apply(sink)
        read, written = ordered[-1], loops[-1]
        if strides[read] != 1 or constant_extent(read) is None:
            continue
        if read is written:
            sink = _in_vectors(sink, read, value, vector_bytes)
        elif stride_of(store.src[1], written) == 1 and constant_extent(written) is not None:
            sink = _in_squares(sink, read, written, value, vector_bytes)
    return sink


def _joined(sink: UOp, loops: tuple[UOp, ...], store: UOp) -> tuple[UOp, tuple[UOp, ...], UOp]:
    """The kernel with those loops of a fill joined that both arrays are walked through as one;
    the fill's loops and its STORE then."""
    for outer, inner in zip(loops[-2::-1], loops[:0:-1], strict=True):
        size, indices = constant_extent(inner), [store.src[1]]
        indices += [n.src[1] for n in store.src[2].toposort() if n.op is Ops.LOAD]
        if size is None or constant_extent(outer) is None:
            continue
        if any(outer in n.ranges or inner in n.ranges for n in _gates(store.src[2])):
            continue
        pairs = [(stride_of(i, outer), stride_of(i, inner)) for i in indices]
        if any(one is None or not two or one != two * size for one, two in pairs):
            continue
        sink = Fuse(outer.arg[0], inner.arg[0]).apply(sink)
        kernel = Kernel(sink)
        fused = kernel.find(f"{outer.arg[0]}.{inner.arg[0]}")
        assert fused is not None
        fill = kernel.closers[fused][0]
        return _joined(sink, closed_by(fill), store_of(fill))
    return sink, loops, store


def _gates(value: UOp) -> list[UOp]:
    return [gate for n in value.toposort() if n.op is Ops.LOAD for gate in n.src[2:3]]


def _in_vectors(sink: UOp, loop: UOp, value: UOp, vector_bytes: int) -> UOp:
    """The innermost loop of a fill in vectors, where no gate changes along it."""
    size = constant_extent(loop) or 1
    inside = unchanging(loop, value)
    if inside is None:
        return sink
    steps: list[Action] = []
    name = loop.arg[0]
    if inside != (0, size):
        steps.append(Partition(name, *inside))
        name, size = f"{name}.m", inside[1] - inside[0]
    lanes = max(1, vector_bytes // value.dtype.itemsize)
    while lanes > size:
        lanes //= 2
    if lanes > 1:
        steps.append(Tile(((name, 1, lanes),)))
    for step in steps:
        sink = step.apply(sink)
    return sink


def _in_squares(sink: UOp, read: UOp, written: UOp, value: UOp, vector_bytes: int) -> UOp:
    """A fill that turns the array: vectors along the one loop become vectors along the other."""
    lanes = max(1, vector_bytes // value.dtype.itemsize)
    while lanes > min(constant_extent(read) or 1, constant_extent(written) or 1):
        lanes //= 2
    if lanes < 4 or any(r in g.ranges for g in _gates(value) for r in (read, written)):
        return sink
    return Tile(((written.arg[0], 1, lanes), (read.arg[0], lanes, 1))).apply(sink)


def _distance(stride: int | None) -> float:
    return float("inf") if stride is None else abs(stride)


def stride_of_loads(value: UOp, loop: UOp) -> int | None:
    """Elements that the loads of a value move per step of a loop; None where they differ."""
    found = {
        in_whole(stride_of(n.src[1], loop), n.dtype.count)
        for n in value.toposort()
        if n.op is Ops.LOAD and loop in n.ranges
    }
    return found.pop() if len(found) == 1 else None if found else 0


def unchanging(loop: UOp, value: UOp) -> tuple[int, int] | None:
    """The middle of a loop in which the gates of a value's loads hold as far as the loop decides.

    Only few iterations at both ends may be left out; None where more are.
    """
    size = constant_extent(loop) or 1
    gates = [
        gate
        for n in value.toposort()
        if n.op is Ops.LOAD
        for gate in clauses(n.src[2:3])
        if loop in gate.ranges
    ]

    def settled(place: int) -> bool:
        at = {loop: UOp.const(loop.dtype, place)}
        return all(tidy(substitute_free(g, at)).vmin for g in gates)

    border = range(min(8, size))
    begin = next((i for i in border if settled(i)), None)
    end = next((i for i in border if settled(size - 1 - i)), None)
    if begin is None or end is None or begin + end >= size:
        return None
    return begin, size - end
