"""Loops split where indices divide them: a row of 6 blocks of 11 is two loops.

What an array program reshapes is one loop for the planner, and each read of it takes the loop apart
again, by a division and a modulo in every iteration. As loops of their own the parts need neither,
and the parts of a row are consecutive in memory, so vectors can take them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Refused, Split
from opgraft.opt.axes import Kernel, constant_extent

_OFTEN: Final = 16
"""A division that is carried out less often than once in so many iterations costs little."""


def split_at_divisors(sink: UOp) -> UOp:
    """The kernel with every loop split that is only ever taken apart at divisors of its extent."""
    kernel = Kernel(sink)
    for loop, factors in _factors(kernel).items():
        try:
            made, name = sink, loop.arg[0]
            for factor in factors:
                made = Split(name, factor).apply(made)
                name = f"{name}.o"
        except Refused:
            continue
        sink = made
    return sink


def _factors(kernel: Kernel) -> dict[UOp, list[int]]:
    """The loops to be split, and the extents of their parts from the inside outwards, the outermost
    left out."""
    points: dict[UOp, dict[int, None]] = {}
    kept: set[UOp] = set()
    for n in kernel.nodes:
        if n.op in (Ops.IDIV, Ops.MOD) and n.dtype.is_index:
            part = _part(n)
            if part is None:
                kept.update(n.src[0].ranges)
            else:
                points.setdefault(part[0], {})[part[1]] = None
        elif n.op is Ops.SCAN:
            kept.update(n.src[1:])
        elif n.op in GroupOp.COMPARISON:
            # a condition on parts is more than one on the whole
            kept.update(r for s in n.src for r in _summed(s))
    found: dict[UOp, list[int]] = {}
    for loop, cuts in points.items():
        size = constant_extent(loop)
        if loop in kept or size is None or _inside(kernel, loop) >= _OFTEN:
            continue
        if kernel.reduces and all(cut & (cut - 1) == 0 for cut in cuts):
            continue  # a shift and a mask are little beside the sum, whose tiles want long loops
        places = [1, *sorted(cuts), size]
        if all(b % a == 0 for a, b in pairwise(places)):
            factors = [b // a for a, b in pairwise(places)]
            found[loop] = [f for f in factors[:-1] if f > 1]
    return {loop: factors for loop, factors in found.items() if factors}


def _part(n: UOp) -> tuple[UOp, int] | None:
    """The loop that a division or modulo takes apart, and where; None: it is not one loop alone, at
    a constant."""
    by = n.src[1].const_value
    inner, scale = n.src[0], 1
    if inner.op is Ops.IDIV and isinstance(inner.src[1].const_value, int):
        inner, scale = inner.src[0], inner.src[1].const_value
    elif inner.op is Ops.MOD:
        inner = inner.src[0]
    if inner.op is not Ops.RANGE or not isinstance(by, int) or by < 1 or scale < 1:
        return None
    return inner, scale * by


def _summed(n: UOp) -> list[UOp]:
    """The loops that stand in a sum by themselves, not taken apart."""
    found, stack = [], [n]
    while stack:
        n = stack.pop()
        if n.op is Ops.RANGE:
            found.append(n)
        elif n.op in (Ops.ADD, Ops.MUL, Ops.CAST):
            stack += n.src
    return found


def _inside(kernel: Kernel, loop: UOp) -> int:
    """How many iterations there are within one of this loop, at the least."""
    least = 0
    for closer in kernel.closers[loop]:
        loops = closer.src[1:]
        count = 1
        for inner in loops[loops.index(loop) + 1 :]:
            count *= constant_extent(inner) or _OFTEN
        least = min(least or count, count)
    return least
