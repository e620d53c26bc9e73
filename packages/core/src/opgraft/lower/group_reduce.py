"""Reduce across the threads of a group, in stages, through group memory.

Before: a REDUCE may close a THREAD range. After: none does. Each thread keeps a sum of its own
part; it stores that in group memory, and once all have (see lower/barriers.py), the parts are
added up: a few by the last few threads first where there are many, then the rest by every thread,
so that all of them have the result.
"""

from __future__ import annotations

from typing import Final

from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.reduction import identity
from opgraft.ir.uop import UOp

_AT_ONCE: Final = 16
"""The most parts that every thread adds up by itself."""


def reduce_in_groups(sink: UOp) -> UOp:
    """The kernel with REDUCEs over threads in stages."""
    nodes = sink.toposort()
    if not any(n.op is Ops.REDUCE and _threads(n) for n in nodes):
        return sink
    done: dict[UOp, UOp] = {}
    taken = {n.arg[0] for n in nodes if n.op is Ops.LOCAL}
    for n in nodes:
        src = tuple([done[s] for s in n.src])
        made = n if src == n.src else n.with_src(src)
        threads = _threads(n) if n.op is Ops.REDUCE else []
        done[n] = _staged(made, threads, taken) if threads else made
    return done[sink]


def _threads(n: UOp) -> list[UOp]:
    return [r for r in n.src[1:] if r.arg[1] is AxisKind.THREAD]


def _staged(n: UOp, threads: list[UOp], taken: set[object]) -> UOp:
    if len(threads) > 1:
        raise LoweringError("a REDUCE closes at most one THREAD range")
    (thread,) = threads
    rest = tuple(r for r in n.src[1:] if r is not thread)
    op, count = n.arg, int(thread.src[0].arg)
    # threads of other ranges have sums of their own, a row each
    others = [r for r in n.ranges if r.arg[1] is AxisKind.THREAD]
    row = UOp.const(dtypes.index, 0)
    rows = 1
    for other in others:
        size = int(other.src[0].arg)
        row, rows = row * size + other, rows * size
    value, name = n.src[0].reduce(op, *rest), str(thread.arg[0])
    total = count
    while count > _AT_ONCE:
        each = 1 << ((count - 1).bit_length() + 1) // 2
        parts = _stored(value, thread, row, rows, count, taken)
        # all threads take part, those that have no parts to add with nothing
        thread = UOp.range(total, f"{name}.s", AxisKind.THREAD)
        along = UOp.range(each, f"{name}.r", AxisKind.REDUCE)
        left = -(-count // each)
        place = along * left + thread  # neighbours read neighbours, from banks of their own
        here = (thread < left) & (place < count)
        item = parts.load(place * rows + row, here, identity(op, value.dtype))
        value, name = item.reduce(op, along), str(thread.arg[0])
        count = left
    parts = _stored(value, thread, row, rows, count, taken)
    along = UOp.range(count, f"{name}.r", AxisKind.REDUCE)
    return parts.load(along * rows + row).reduce(op, along)


def _stored(value: UOp, thread: UOp, row: UOp, rows: int, count: int, taken: set[object]) -> UOp:
    """Group memory that holds the value of each of the first threads, those of all rows side by
    side."""
    name, number = f"parts_{thread.arg[0]}", 0
    while name in taken:
        number += 1
        name = f"parts_{thread.arg[0]}_{number}"
    taken.add(name)
    memory = UOp(Ops.LOCAL, value.dtype, (), (name, rows * count, Space.GROUP))
    gate = None if count >= thread.src[0].vmax else thread < count
    return memory.after(memory.store(thread * rows + row, value, gate).end(thread))
