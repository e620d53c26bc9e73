"""EXP2, LOG2 and SIN by polynomials: ir/elementary.py."""

from __future__ import annotations

from opgraft.ir.elementary import expansion
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import GroupOp
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp


def polynomial(n: UOp) -> UOp:
    """The graph that defines the function."""
    return expansion(n.op, n.src[0])


elementary = PatternMatcher([(UPat(set(GroupOp.ELEMENTARY), name="n"), polynomial)])
"""The same graph on every device, so that every device gives the same bits."""
