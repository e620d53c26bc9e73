"""How much one run of a program computes."""

from __future__ import annotations

from collections.abc import Iterable

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp


def count_operations(instructions: Iterable[UOp]) -> int:
    """Elementwise operations of one run, lanes counted, loops by their greatest extent; those of
    a matrix unit by its products."""
    total = 0
    times = [1]
    for n in instructions:
        if n.op is Ops.RANGE:
            times.append(times[-1] * max(1, int(min(n.src[0].vmax, 1 << 40))))
        elif n.op is Ops.END and n.src[0].op is Ops.RANGE:
            times.pop()
        elif n.op is Ops.MATRIX:
            total += times[-1] * (2 * n.arg.products // n.arg.threads)
        elif n.op is Ops.DOT:
            total += times[-1] * (2 * n.arg.depth * n.dtype.count)
        elif n.op in GroupOp.ALU or n.op in (Ops.LOAD, Ops.STORE):
            lanes = n.dtype.count if n.op is not Ops.STORE else n.src[2].dtype.count
            total += times[-1] * lanes
    return total
