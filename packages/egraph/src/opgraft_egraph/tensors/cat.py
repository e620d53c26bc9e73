"""How a graph says that arrays stand one after the other along an axis: the tensor's `cat`."""

from __future__ import annotations

from opgraft.api import Ops, UOp


def joined_parts(n: UOp) -> tuple[list[UOp], int] | None:
    """The parts that a WHERE of a graph puts one after the other, and the axis; None: it does not.

    The form is that of the tensor's `cat`: each part padded to the full extent, and from where it
    begins on taken instead of what is before it.
    """
    parts: list[tuple[UOp, int]] = []
    axis = -1
    while n.op is Ops.WHERE:
        condition, own, n = n.src
        begin = _begin(condition)
        if begin is None or own.op is not Ops.PAD:
            return None
        where, first = begin
        if axis not in (-1, where) or own.arg[where][0] != first:
            return None
        axis = where
        parts.append((own, first))
    if n.op is not Ops.PAD or axis < 0:
        return None
    parts.append((n, 0))
    parts.reverse()
    ends = [first for _, first in parts[1:]]
    for i, (part, first) in enumerate(parts):
        before, after = part.arg[axis]
        others = [w for j, w in enumerate(part.arg) if j != axis]
        # what a part covers begins where it is taken, and ends where the next one is
        if before != first or any(w != (0, 0) for w in others):
            return None
        if i == len(ends):
            if after:
                return None
        elif not _ends(parts[i + 1][0].arg[axis], part.arg[axis], ends[i]):
            return None
    return [part.src[0] for part, _ in parts], axis


def _ends(following: tuple[int, int], own: tuple[int, int], end: int) -> bool:
    """Whether a part ends where the next one begins: both are padded to one extent."""
    # own extent = total - own[0] - own[1]; it ends at total - own[1]; the next one begins at `end`
    return following[0] == end and own[1] > following[1]


def _begin(condition: UOp) -> tuple[int, int] | None:
    """(axis, n) of `n <= index along the axis`."""
    if condition.op is not Ops.XOR or condition.src[0].op is not Ops.CMPLT:
        return None
    place, least = condition.src[0].src
    number, true = _number(least), _number(condition.src[1])
    if place.op is not Ops.ARANGE or number is None or true is None or true.arg is not True:
        return None
    return place.arg[1], number.arg


def _number(n: UOp) -> UOp | None:
    """The constant that an array has everywhere."""
    while n.op in (Ops.EXPAND, Ops.RESHAPE):
        n = n.src[0]
    return n if n.op is Ops.CONST else None
