"""Operations that are plain machine instructions for some operands only: ir/expansions.py."""

from __future__ import annotations

from opgraft.ir.expansions import expand
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp


def guard(n: UOp) -> UOp | None:
    """The operation written so that it is exact for all operands."""
    return expand(n)


exact = PatternMatcher(
    [
        (
            UPat(
                {Ops.MAX, Ops.MIN, Ops.CAST, Ops.SHL, Ops.SHR, Ops.CDIV, Ops.CMOD},
                name="n",
            ),
            guard,
        )
    ]
)
"""Float MAX and MIN, float to integer, shifts, C's division."""
