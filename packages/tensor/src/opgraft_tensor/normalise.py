"""From the user's graph to the canonical one: what equal programs have in common.

Before: any settled graph of array nodes (see realize.py). After, the same values, and
- every BUFFER is one of a `Slot`: a number by first visit and the facts that a plan may depend
  on. A plan holds no memory alive, and equal programs have one canonical graph, which is the key
  of the plan cache;
- marks, identities of MATERIALIZE, and reshapes of reshapes are gone;
- SCATTER is a reduction and a GATHER (the last index that hits a row decides);
- no node but an output has extent 0, and none reads one;
- full reductions over many elements go in two stages (see `split_reduction`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, NamedTuple

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, head_of, node, toposort
from opgraft_tensor import graph
from opgraft_tensor.graph import Shape, shape
from opgraft_tensor.storage import Storage

BLOCKS: Final = 64
"""Blocks that a full reduction is split into: the same for every number of cores."""
LONG: Final = 1 << 15
"""Elements per result from which on a reduction is split."""
FEW: Final = 8
"""Results up to which a reduction leaves a device without parallel loops."""
STAGE: Final = "stage"
"""The tag of a MATERIALIZE whose kernel is shared with nothing else."""
NARROW: Final = 512
"""Results up to which they are too few to be shared out, whatever is reduced to them."""
WIDE: Final = 1 << 15
"""Results side by side up to which blocks of rows are summed: a core's caches hold so many."""
ROWS: Final = 256
"""Rows of such a block, at least: the blocks are summed in the end, and should be few."""
_LEAVES: Final = frozenset(
    {Ops.BUFFER, Ops.REDUCE_AXIS, Ops.SCAN_AXIS, Ops.GATHER, Ops.MATERIALIZE, Ops.COPY, Ops.WRITE}
)
"""What is read rather than computed, most likely."""


class Slot(NamedTuple):
    """Memory that a plan is given, by number: what BUFFER.arg is in a canonical graph."""

    number: int
    shape: Shape
    dtype: DType
    device: str
    writable: bool = False
    """Nobody will want the old value once the plan has run."""


class Canonical(NamedTuple):
    """A canonical graph and the storages of its slots."""

    outputs: tuple[UOp, ...]
    storages: tuple[Storage, ...]


def canonical(outputs: list[UOp], writable: Callable[[UOp], bool]) -> Canonical:
    """The canonical graph of some outputs. `writable` says of a BUFFER whether it may be
    overwritten; it is asked only where the graph has a WRITE."""
    found = numbered(outputs, writable)
    return Canonical(in_stages(found.outputs), found.storages)


def in_stages(outputs: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The same values, full reductions over many elements in two stages."""
    found: dict[UOp, UOp] = {}
    for n in toposort(outputs):
        src = tuple([found[s] for s in n.src])
        if n.op is Ops.REDUCE_AXIS:
            found[n] = split_reduction(n.arg[0], n.arg[1], src[0])
        elif src == n.src:
            found[n] = n
        else:
            made = found[n] = node(n.head, src)
            made.remember("shape", shape(n))
    return tuple([found[n] for n in outputs])


def numbered(outputs: list[UOp], writable: Callable[[UOp], bool]) -> Canonical:
    """As `canonical`, but for the stages of full reductions: what is written is still one sum."""
    found: dict[UOp, UOp] = {}
    storages: list[Storage] = []
    order = toposort(outputs)
    writes = any(n.op is Ops.WRITE for n in order)
    for n in order:
        op = n.op
        if op is Ops.BUFFER:
            storage: Storage = n.arg
            slot = Slot(
                len(storages),
                storage.shape,
                storage.dtype,
                storage.device,
                writes and writable(n),
            )
            storages.append(storage)
            found[n] = node(head_of(Ops.BUFFER, storage.dtype, slot), ())
            continue
        src = tuple([found[s] for s in n.src])
        if op in GroupOp.ALU:
            made = found[n] = node(n.head, src)
            made.remember("shape", shape(n))
        else:
            found[n] = _rebuilt(n, src)
    return Canonical(tuple([found[n] for n in outputs]), tuple(storages))


def _rebuilt(n: UOp, src: tuple[UOp, ...]) -> UOp:
    """One node on canonical sources."""
    op = n.op
    if op is Ops.RESHAPE:
        # marks go, and so do reshapes of reshapes
        return graph.reshape(src[0], n.arg)
    if op is Ops.MATERIALIZE:
        return node(head_of(Ops.MATERIALIZE, n.dtype), src)
    if op is Ops.SCATTER:
        return _scatter(*src)
    if op is Ops.REDUCE_AXIS:
        return graph.reduce_axis(src[0], *n.arg)
    size = shape(n)
    if 0 not in size:
        if op is Ops.PAD and 0 in shape(src[0]):
            return graph.full(size, n.dtype, 0)
        if op is Ops.GATHER and 0 in shape(src[0]):
            return graph.full(size, n.dtype, 0)
    if src == n.src:
        return n
    made = node(n.head, src)
    made.remember("shape", size)
    return made


def _scatter(table: UOp, indices: UOp, values: UOp) -> UOp:
    """table[t, j] = values[last i with indices[i] == t, j], where there is one."""
    rows = shape(table)[0]
    count = prod(shape(indices))
    if count == 0 or rows == 0:
        return table
    flat = graph.reshape(indices, (1, count))
    number = dtypes.int64 if count >= 1 << 31 else dtypes.int32
    row = graph.arange((rows, count), 0, indices.dtype)
    place = graph.arange((rows, count), 1, number)
    none = graph.full((rows, count), number, -1)
    hit = graph.elementwise(Ops.CMPEQ, row, graph.expand(flat, (rows, count)))
    if indices.dtype.max < rows - 1:
        # rows that the index cannot name must not be hit by a number that wrapped
        named = graph.arange((rows, count), 0, dtypes.int64)
        most = graph.full((rows, count), dtypes.int64, int(indices.dtype.max) + 1)
        hit = graph.elementwise(Ops.AND, hit, graph.elementwise(Ops.CMPLT, named, most))
    last = (
        graph.reduce_axis(graph.where(hit, place, none), Ops.MAX, (1,))
        if count > 1
        else (graph.reshape(graph.where(hit, place, none), (rows,)))
    )
    rest = shape(table)[1:]
    chosen = graph.gather(graph.reshape(values, (count, *rest)), last)
    was_hit = graph.elementwise(Ops.CMPLT, graph.full((rows,), number, -1), last)
    was_hit = graph.expand(graph.reshape(was_hit, (rows, *(1,) * len(rest))), shape(table))
    return graph.where(was_hit, chosen, table)


def split_reduction(op: Ops, axes: tuple[int, ...], source: UOp) -> UOp:
    """A reduction; where few results take many elements each, in two stages.

    A full reduction has no outer loop, so nothing of it would run in parallel, nor share a
    kernel. The blocks depend on the shape alone: the bits are the same on any number of cores.
    """
    extents = shape(source)
    taken = prod([extents[a] for a in axes])
    results = prod(extents) // max(taken, 1)
    if (taken < LONG or results > FEW) and not _is_tall(axes, source, taken, results):
        return graph.reduce_axis(source, op, axes)
    kept = _natural_blocks(axes, extents)
    if kept:
        rest = tuple([a for a in axes if a not in kept])
        first = graph.reduce_axis(source, op, rest)
        left = tuple([a - sum(1 for r in rest if r < a) for a in kept])
        apart = results > FEW and _is_read_once(source)
        return graph.reduce_axis(_stored(first, apart), op, left)
    blocks = _divisor_near(taken, min(BLOCKS, max(1, taken // ROWS)))
    if blocks and axes == tuple(range(axes[0], axes[-1] + 1)):
        before, after = extents[: axes[0]], extents[axes[-1] + 1 :]
        split = (*before, blocks, taken // blocks, *after)
        first = graph.reduce_axis(graph.reshape(source, split), op, (axes[0] + 1,))
        return graph.reduce_axis(_stored(first, results > FEW), op, (axes[0],))
    if len(axes) == 1:
        # a few elements less can be split; they are joined at the end
        (axis,) = axes
        whole = taken - taken % BLOCKS
        most = split_reduction(op, axes, _cut(source, axis, 0, whole))
        few = graph.reduce_axis(_cut(source, axis, whole, taken - whole), op, axes)
        return graph.elementwise(op, most, few)
    return graph.reduce_axis(source, op, axes)


def _stored(partial: UOp, apart: bool) -> UOp:
    """Results of a first stage; `apart`: in a kernel of their own. Joined with the second stage,
    result by result, many results of one row would go down the columns."""
    if not apart:
        return graph.materialize(partial)
    made = node(head_of(Ops.MATERIALIZE, partial.dtype, None, STAGE), (partial,))
    made.remember("shape", shape(partial))
    return made


def _cut(source: UOp, axis: int, begin: int, count: int) -> UOp:
    """A part of one axis."""
    region = [(0, n, 1) for n in shape(source)]
    region[axis] = (begin, count, 1)
    return graph.slice_(source, tuple(region))


def _is_tall(axes: tuple[int, ...], source: UOp, taken: int, results: int) -> bool:
    """Whether many rows become few rows: cores would have to share out the columns, and each walk
    through parts of rows."""
    extents = shape(source)
    width = prod(extents[axes[-1] + 1 :])
    return (
        len(extents) - 1 not in axes
        and results <= FEW * width
        and taken >= 4 * ROWS
        and taken * results >= 8 * LONG
        and (results <= NARROW or (width <= WIDE and _is_read_once(source)))
    )


def _is_read_once(source: UOp) -> bool:
    """Whether what a value is computed from is about as large: no sum of products, for one."""
    below = toposort((source,), lambda n: n.op not in _LEAVES)
    largest = max((prod(shape(n)) for n in below if n.op in _LEAVES), default=0)
    return 2 * largest >= prod(shape(source))


def _natural_blocks(axes: tuple[int, ...], extents: Shape) -> tuple[int, ...]:
    """The first axes that make enough blocks, not too many, and leave others to sum over.

    Such a first stage asks for its source at bare ranges: it can share a kernel with others.
    """
    blocks = 1
    taken = prod([extents[a] for a in axes])
    for number, axis in enumerate(axes[:-1]):
        blocks *= extents[axis]
        if blocks > 32 * BLOCKS or blocks * 16 > taken:
            return ()
        if blocks >= BLOCKS // 4:
            return axes[: number + 1]
    return ()


def _divisor_near(n: int, wanted: int) -> int:
    """A divisor of n near `wanted` (a quarter to four times), the nearest first; 0: none."""
    for distance in range(4):
        for number in _around(wanted, distance):
            if n % number == 0:
                return number
    return 0


def _around(wanted: int, distance: int) -> list[int]:
    """Candidates: the number itself, then within an eighth, then half to twice, then further."""
    if distance == 0:
        return [wanted]
    spread = (wanted // 8, wanted // 2, wanted * 3)[distance - 1]
    low = max(wanted - spread, wanted // 4)
    return sorted(range(low, wanted + spread + 1), key=lambda m: (abs(m - wanted), m))
