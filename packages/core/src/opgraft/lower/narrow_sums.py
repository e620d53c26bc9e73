"""Sums of small integers in the narrowest integers that hold them.

Before: REDUCEs of any dtype. After: a sum of integers whose bounds and number say that it fits into
int16 or int32 is added up there, and widened once. The result is the same; a vector has two, four
or eight times the lanes.
"""

from __future__ import annotations

from typing import Final

from opgraft.dtype import dtypes
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp

_NARROW: Final = (dtypes.int16, dtypes.int32)


def narrow_sums(sink: UOp) -> UOp:
    """The kernel with sums of small integers in narrow accumulators."""
    done: dict[UOp, UOp] = {}
    for n in sink.toposort():
        src = tuple([done[s] for s in n.src])
        made = n if src == n.src else n.with_src(src)
        narrow = _narrow(made) if made.op is Ops.REDUCE and made.arg is Ops.ADD else None
        done[n] = made if narrow is None else narrow
    return done[sink]


def _narrow(n: UOp) -> UOp | None:
    """A sum of widened integers in an accumulator that holds all partial sums; None if there is
    no narrower one."""
    if not n.dtype.is_int or n.dtype.is_index or n.src[0].op is not Ops.CAST:
        return None
    value = n.src[0].src[0]
    if value.op in (Ops.MUL, Ops.MULACC) or not (value.dtype.is_int or value.dtype.is_bool):
        return None
    count = 1
    for loop in n.src[1:]:
        if loop.arg[1] is AxisKind.THREAD:
            return None
        count *= max(0, int(loop.src[0].vmax))
    low, high = min(0, int(value.vmin)) * count, max(0, int(value.vmax)) * count
    for dtype in _NARROW:
        if dtype.bits >= n.dtype.bits or dtype.bits <= value.dtype.bits:
            continue
        if dtype.min <= low and high <= dtype.max:
            wide = value.cast(dtype.vec(n.dtype.count))
            return wide.reduce(Ops.ADD, *n.src[1:]).cast(n.dtype)
    return None
