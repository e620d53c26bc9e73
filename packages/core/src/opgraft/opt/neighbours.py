"""Scalars that are computed alike, as one vector: neighbours in memory are loaded and stored at
once, and what is done to each lane is done to all."""

from __future__ import annotations

from collections.abc import Sequence

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp


def vector_of(scalars: Sequence[UOp], width: int) -> UOp:
    """The scalars as the lanes of a vector, or the one there is.

    Accesses move up to `width` elements at once; where lanes are not computed alike, they are
    computed one by one.
    """
    count = len(scalars)
    if count == 1:
        return scalars[0]
    for size in range(min(width, count), 1, -1):
        if count % size:
            continue
        parts = [together(scalars[i : i + size]) for i in range(0, count, size)]
        if size == count and parts[0] is not None:
            return parts[0]
        known = [p for p in parts if p is not None]
        if len(known) == len(parts):
            lanes = tuple(p.extract(i) for p in known for i in range(size))
            return UOp(Ops.STACK, scalars[0].dtype.vec(count), lanes)
    return UOp(Ops.STACK, scalars[0].dtype.vec(count), tuple(scalars))


def together(scalars: Sequence[UOp]) -> UOp | None:
    """The scalars as one vector, if each is computed as the first is."""
    first, count = scalars[0], len(scalars)
    if all(s is first for s in scalars):
        return first.broadcast(count)
    dtype = first.dtype.vec(count)
    if all(s.is_const for s in scalars):
        return UOp(Ops.STACK, dtype, tuple(scalars))
    same = all(
        s.op is first.op and s.dtype is first.dtype and len(s.src) == len(first.src)
        for s in scalars
    )
    if not same:
        return None
    if first.op is Ops.EXTRACT:
        lanes = [s.arg for s in scalars]
        source = first.src[0]
        whole = source.dtype.count == count and lanes == list(range(count))
        return source if whole and all(s.src[0] is source for s in scalars) else None
    if first.op is Ops.LOAD:
        return _load(scalars)
    if first.op not in GroupOp.ALU or any(s.arg != first.arg for s in scalars):
        return None
    sources = [together([s.src[i] for s in scalars]) for i in range(len(first.src))]
    known = tuple(s for s in sources if s is not None)
    return UOp(first.op, dtype, known) if len(known) == len(sources) else None


def _load(scalars: Sequence[UOp]) -> UOp | None:
    """One LOAD of neighbours that have one gate."""
    first, count = scalars[0], len(scalars)
    if any(s.src[0] is not first.src[0] or s.src[2:] != first.src[2:] for s in scalars):
        return None
    if not consecutive([s.src[1] for s in scalars]):
        return None
    tail = (*first.src[2:3], *(s.broadcast(count) for s in first.src[3:]))
    return UOp(Ops.LOAD, first.dtype.vec(count), (*first.src[:2], *tail))


def consecutive(indices: Sequence[UOp]) -> bool:
    """Whether each index is by one more than the one before it, as far as their forms tell."""
    terms, start = linear_terms(indices[0])
    return all(linear_terms(index) == (terms, start + i) for i, index in enumerate(indices))


def linear_terms(index: UOp) -> tuple[dict[UOp, int], int]:
    """An index as factors of what it is computed from, and a constant."""
    terms: dict[UOp, int] = {}
    constant = 0
    stack = [(index, 1)]
    while stack:
        n, factor = stack.pop()
        if n.op is Ops.CONST:
            constant += factor * int(n.arg)
        elif n.op is Ops.ADD:
            stack.extend((s, factor) for s in n.src)
        elif n.op is Ops.MUL and n.src[1].op is Ops.CONST:
            stack.append((n.src[0], factor * int(n.src[1].arg)))
        else:
            terms[n] = terms.get(n, 0) + factor
    return {n: f for n, f in terms.items() if f}, constant
