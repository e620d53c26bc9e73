"""Which iterations of loops reach which elements of a buffer, so what may be reordered."""

from __future__ import annotations

from opgraft.ir.loops import split_stride
from opgraft.ir.uop import UOp


def distinct(index: UOp, loops: tuple[UOp, ...]) -> bool:
    """Whether no two iterations of these loops have the same index; False where not proved."""
    return apart(index, index, loops)


def apart(first: UOp, second: UOp, loops: tuple[UOp, ...]) -> bool:
    """Whether the two indices never meet in different iterations of these loops.

    So it is if both move by the same strides, and each stride is greater than all that the
    smaller ones and the rest of both indices can make up.
    """
    strides: list[tuple[int, int]] = []
    one, other = first, second
    for loop in loops:
        extent = loop.src[0].vmax
        if extent <= 1:
            continue
        one, step = split_stride(one, loop)
        other, same = split_stride(other, loop)
        if step is None or step != same or step == 0:
            return False
        strides.append((abs(step), int(extent)))
    reach = max(one.vmax, other.vmax) - min(one.vmin, other.vmin)
    for step, extent in sorted(strides):
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def may_meet(first: UOp, second: UOp) -> bool:
    """Whether the two indices can ever be the same, by their bounds."""
    return bool(first.vmin <= second.vmax and second.vmin <= first.vmax)
