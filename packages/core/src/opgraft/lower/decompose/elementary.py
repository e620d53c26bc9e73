"""EXP, EXP2, LOG2 and SIN by polynomials: ir/elementary.py."""

from __future__ import annotations

from opgraft.ir.elementary import expansion
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import GroupOp
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp
from opgraft.target import Target


def polynomial(n: UOp) -> UOp:
    """The graph that defines the function."""
    return expansion(n.op, n.src[0])


def elementary(target: Target) -> PatternMatcher:
    """The functions that the target does not have: the same graph on every device, so that every
    device gives the same bits. (A renderer that has one renders that graph, too.)"""
    lacking = GroupOp.ELEMENTARY - target.ops
    return PatternMatcher([(UPat(lacking, name="n"), polynomial)] if lacking else [])
