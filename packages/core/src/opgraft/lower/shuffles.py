"""Lanes that lie apart in memory: by whole vectors and exchanges of lanes between them.

Before: a kernel graph without VECTOR and UNROLL ranges; a vector whose lanes lie apart is a STACK
of as many LOADs. After: where it pays, it is a STACK of lanes EXTRACTed from vectors that were
loaded whole, which renderers print as shuffles:

- n STACKs of n lanes whose k-th lanes are neighbours, a transpose: n vectors, one along each row,
  and log2(n) rounds of exchanges;
- one STACK whose lanes lie within a few vectors (every second element, backwards): these vectors.

What a vector covers was loaded anyway, or lies between elements that were, so it is there.
"""

from __future__ import annotations

from typing import Final

from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.axes import target_of
from opgraft.rules.simplify import tidy
from opgraft.target import Target

SPREAD: Final = 4
"""The most vectors that one STACK is gathered from."""
_BLOCK: Final = 16
"""Bytes of the part of a register within which machines interleave two registers."""

Offsets = tuple[int, ...]


def shuffle_lanes(sink: UOp, target: Target) -> UOp:
    """The kernel with STACKs of LOADs that lie together loaded as vectors."""
    if not target.vector_bytes:
        return sink
    if not _stacks(sink, target):
        return sink
    # the places of lanes are seen to be neighbours in their normal form
    sink = tidy(sink)
    stacks = _stacks(sink, target)
    written = _written(sink)
    changes: dict[UOp, UOp] = {}
    groups: dict[tuple[object, ...], dict[int, UOp]] = {}
    for stack in stacks:
        buffer = stack.src[0].src[0]
        if buffer.op is not Ops.PARAM or buffer in written:
            continue
        bases, offsets = zip(*(_split(s.src[1]) for s in stack.src), strict=True)
        apart = tuple(o - offsets[0] for o in offsets)
        key = (buffer, stack.dtype, bases, apart)
        groups.setdefault(key, {})[offsets[0]] = stack
    for group in groups.values():
        changes.update(_transposes(group))
    for group in groups.values():
        for stack in group.values():
            if stack not in changes and (near := _from_near(stack)) is not None:
                changes[stack] = near
    return sink.substitute(changes) if changes else sink


def _stacks(sink: UOp, target: Target) -> list[UOp]:
    return [n for n in sink.toposort() if n.op is Ops.STACK and _is_apt(n, target)]


def _written(sink: UOp) -> frozenset[UOp]:
    return frozenset(target_of(n) for n in sink.toposort() if n.op is Ops.STORE)


def _is_apt(stack: UOp, target: Target) -> bool:
    """Whether a STACK has plain LOADs of one buffer as lanes, and fills at most one register."""
    dtype, count = stack.dtype, stack.dtype.count
    scalar = dtype.scalar
    if count & (count - 1) or scalar.is_bool or count * scalar.itemsize > target.vector_bytes:
        return False
    if scalar.is_int and scalar.bits > 32 and scalar not in target.compute:
        return False  # two words, which don't lie side by side
    first = stack.src[0]
    return all(
        s.op is Ops.LOAD and len(s.src) == 2 and s.src[0] is first.src[0] and s.dtype.count == 1
        for s in stack.src
    )


def _split(index: UOp) -> tuple[UOp | None, int]:
    """An index as something and a constant."""
    if index.op is Ops.CONST:
        return None, int(index.arg)
    if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
        return index.src[0], int(index.src[1].arg)
    return index, 0


# ---- transposes


def _transposes(group: dict[int, UOp]) -> dict[UOp, UOp]:
    """What takes the place of STACKs, by the place of their first lane: n neighbours at a time."""
    changes: dict[UOp, UOp] = {}
    count = next(iter(group.values())).dtype.count
    for first in sorted(group):
        run = [group.get(first + j) for j in range(count)]
        square = [s for s in run if s is not None and s not in changes]
        if len(square) < count or _is_row(square[0]):
            continue
        rows = [_whole(lane, square[0].dtype) for lane in square[0].src]
        changes.update(zip(square, transpose(rows), strict=True))
    return changes


def _is_row(stack: UOp) -> bool:
    """Whether the lanes are neighbours themselves."""
    places = [_split(s.src[1]) for s in stack.src]
    return all(p == (places[0][0], places[0][1] + k) for k, p in enumerate(places))


def _whole(load: UOp, dtype: DType) -> UOp:
    """The vector that begins with what a LOAD loads."""
    return UOp(Ops.LOAD, dtype, load.src)


def transpose(rows: list[UOp]) -> list[UOp]:
    """The columns of a square of n vectors of n lanes, as vectors, by exchanges of two vectors.

    First within blocks of 16 bytes, where neighbours are interleaved (by one lane, by two, ...),
    then whole blocks: for each of these steps machines have one instruction.
    """
    count, item = rows[0].dtype.count, rows[0].dtype.scalar.itemsize
    block = min(count, max(1, _BLOCK // item))
    parts = [_interleaved(rows[at : at + block], block) for at in range(0, count, block)]
    # parts[r][c]: lane c of each block, of the rows from r * block on
    vectors = [v for part in parts for v in part]
    step = block
    while step < count:
        merged = list(vectors)
        for at in range(count):
            if at & step == 0:
                one, two = vectors[at], vectors[at + step]
                low = [i if i & step == 0 else count + i - step for i in range(count)]
                high = [i + step if i & step == 0 else count + i for i in range(count)]
                merged[at], merged[at + step] = shuffle(one, two, low), shuffle(one, two, high)
        vectors, step = merged, step * 2
    return vectors


def _interleaved(rows: list[UOp], block: int) -> list[UOp]:
    """The transpose within each block: vector c has lane c of the blocks of all rows."""
    count, size = rows[0].dtype.count, 1
    groups = [[row] for row in rows]
    while size < block:
        joined: list[list[UOp]] = []
        for one, two in zip(groups[::2], groups[1::2], strict=True):
            pairs: list[UOp] = []
            for a, b in zip(one, two, strict=True):
                for half in (0, block // 2):
                    lanes = []
                    for begin in range(0, count, block):
                        for at in range(begin + half, begin + half + block // 2, size):
                            lanes += [*range(at, at + size), *range(count + at, count + at + size)]
                    pairs.append(shuffle(a, b, lanes))
            joined.append(pairs)
        groups, size = joined, size * 2
    return groups[0]


def shuffle(one: UOp, two: UOp, lanes: list[int]) -> UOp:
    """A vector of lanes of two: those of the second count on from those of the first."""
    count, scalar = one.dtype.count, one.dtype.scalar
    chosen = [UOp(Ops.EXTRACT, scalar, (one if i < count else two,), i % count) for i in lanes]
    return UOp(Ops.STACK, scalar.vec(len(lanes)), tuple(chosen))


# ---- lanes near each other


def _from_near(stack: UOp) -> UOp | None:
    """A STACK of lanes that lie within a few vectors, from these; None of others."""
    places = [_split(s.src[1]) for s in stack.src]
    base, count = places[0][0], stack.dtype.count
    if any(b is not base for b, _ in places):
        return None
    offsets = [o for _, o in places]
    least, end = min(offsets), max(offsets) + 1
    if not count <= end - least <= SPREAD * count:
        return None
    load = stack.src[offsets.index(least)]
    # the last vector ends with the last element that is read: nothing beyond it need be there
    begins = [min(least + k * count, end - count) for k in range(-(-(end - least) // count))]
    index = load.src[1]
    vectors = [
        UOp(Ops.LOAD, stack.dtype, (load.src[0], index + (at - least) if at > least else index))
        for at in begins
    ]
    lanes = [(offset - least) // count for offset in offsets]
    found = vectors[0]
    if len(vectors) == 1:
        return shuffle(found, found, [o - least for o in offsets])
    picked = [o - begins[0] if v == 0 else 0 for o, v in zip(offsets, lanes, strict=True)]
    for number, vector in enumerate(vectors[1:], 1):
        order = [
            count + offset - begins[number] if v == number else (k if number > 1 else picked[k])
            for k, (offset, v) in enumerate(zip(offsets, lanes, strict=True))
        ]
        found = shuffle(found, vector, order)
    return found


__all__ = ["shuffle", "shuffle_lanes", "transpose"]
