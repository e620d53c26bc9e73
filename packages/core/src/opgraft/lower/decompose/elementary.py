"""EXP, EXP2, LOG2 and SIN by polynomials: ir/elementary.py."""

from __future__ import annotations

from opgraft.ir.elementary import expansion, never_large
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp
from opgraft.target import Target


def polynomial(n: UOp) -> UOp:
    """The graph that defines the function."""
    return expansion(n.op, n.src[0])


def light_sine(n: UOp) -> UOp | None:
    """The graph of a sine where it is short: what bounds leave asks for no branch."""
    return expansion(n.op, n.src[0]) if never_large(n.src[0]) else None


def elementary(target: Target) -> PatternMatcher:
    """The functions that the target does not have: the same graph on every device, so that every
    device gives the same bits. (A renderer that has one renders that graph, too.)"""
    lacking = GroupOp.ELEMENTARY - target.ops
    rules = PatternMatcher([(UPat(lacking, name="n"), polynomial)] if lacking else [])
    if Ops.SIN in lacking:
        return rules
    return rules + PatternMatcher([(UPat(Ops.SIN, name="n"), light_sine)])
