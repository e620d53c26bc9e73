"""REDUCE over loops that its value does not depend on, and factors and conditions moved out."""

from __future__ import annotations

from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, bools, integers, values
from opgraft.ir.uop import UOp

# Combining one value with itself any number of times gives the value.
_IDEMPOTENT: Final = frozenset({Ops.MAX, Ops.MIN, Ops.AND, Ops.OR})


def _without_ranges(x: UOp, value: UOp, kept: list[UOp]) -> UOp:
    return value.reduce(x.arg, *kept)


def invariant_ranges(x: UOp) -> UOp | None:
    """Ranges that the value does not depend on: n of them add up to n times the value."""
    value, ranges = x.src[0], x.src[1:]
    inside = value.ranges
    kept = [r for r in ranges if r in inside]
    gone = [r for r in ranges if r not in inside]
    # the size of one range may be the index of another that is closed here too
    if not gone or any(r in s.ranges for s in (g.src[0] for g in gone) for r in ranges):
        return None
    if x.dtype.is_bool or x.arg in _IDEMPOTENT:
        if any(g.src[0].vmin < 1 for g in gone):
            return None  # nothing at all gives the neutral element
        return _without_ranges(x, value, kept)
    if x.arg is not Ops.ADD or not x.dtype.is_int:
        return None
    count = gone[0].src[0]
    for g in gone[1:]:
        count = count * g.src[0]
    if count.vmin < 0 or not (count.op is Ops.CONST or x.dtype.count == 1):
        return None
    times = x.const_like(count.arg) if count.op is Ops.CONST else count.cast(x.dtype)
    return _without_ranges(x, value, kept) * times


def factor_outward(x: UOp, y: UOp, c: UOp) -> UOp:
    return _without_ranges(x, y, list(x.src[1:])) * c


def condition_outward(x: UOp, c: UOp, a: UOp, b: UOp) -> UOp | None:
    """c ? a : b with c and b the same in every turn."""
    ranges = x.src[1:]
    if any(r in ranges for r in c.ranges) or any(r in ranges for r in b.ranges):
        return None
    inner = _without_ranges(x, a, list(ranges))
    if x.arg is Ops.ADD and b.const_value == 0 and str(b.const_value) != "-0.0":
        return c.where(inner, b)
    if x.arg in _IDEMPOTENT and all(r.src[0].vmin >= 1 for r in ranges):
        return c.where(inner, b)
    return None


RULES: Final = EqualitySet(
    [
        # sum over r of y = n*y, max over r of y = y, where y does not depend on r of n turns
        (UPat(Ops.REDUCE, values, name="x"), invariant_ranges),
        # sum of y*c = c * sum of y, of integers
        (
            UPat(
                Ops.REDUCE,
                integers,
                src=(UPat.var("y") * UPat.cvar("c"),),
                arg=Ops.ADD,
                name="x",
                allow_any_len=True,
            ),
            factor_outward,
        ),
        # sum of (c ? a : 0) = c ? sum of a : 0 where c does not depend on the loops
        (
            UPat(
                Ops.REDUCE,
                values,
                src=(UPat.var("c", bools).where(UPat.var("a"), UPat.var("b")),),
                name="x",
                allow_any_len=True,
            ),
            condition_outward,
        ),
    ]
)
