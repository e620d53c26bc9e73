"""Alternatives to choices and conditions: what both branches do, done once; clauses in common.

They hold for every dtype, since no operation is done on other values than before: an operand is
chosen instead of a result.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat, bools, floats, index, values
from opgraft.ir.uop import UOp

_c: Final = UPat.var("c", bools)
_x: Final = UPat.var("x")
_y: Final = UPat.var("y")
_a: Final = UPat.var("a")
_b: Final = UPat.var("b")


def common_operand(x: UOp, c: UOp, a: UOp, b: UOp) -> UOp | None:
    if a.op is not b.op or a.arg != b.arg or len(a.src) != 2 or a is b:
        return None
    for kept, other in ((0, 1), (1, 0)):
        if a.src[kept] is b.src[kept]:
            return _joined(c, a, b, kept, other, other)
    if a.op in GroupOp.COMMUTATIVE:
        for kept, other in ((0, 1), (1, 0)):
            if a.src[kept] is b.src[other]:
                return _joined(c, a, b, kept, other, kept)
    return None


def _joined(c: UOp, a: UOp, b: UOp, kept: int, first: int, second: int) -> UOp | None:
    """f(k, c ? x : y), with the operand k where it stands in a."""
    one, other = a.src[first], b.src[second]
    if one.dtype is not other.dtype or one.dtype.count != c.dtype.count:
        return None
    chosen = c.where(one, other)
    return a.with_src((a.src[0], chosen) if kept == 0 else (chosen, a.src[1]))


def common_step(c: UOp, a: UOp, b: UOp, x: UOp, y: UOp) -> UOp | None:
    if a.op is not b.op or a.arg != b.arg or x.dtype is not y.dtype:
        return None
    return a.with_src((c.where(x, y),)) if x is not y else None


def into_branches(x: UOp, c: UOp, a: UOp, b: UOp, d: UOp) -> UOp | None:
    """(c ? a : b) . d = c ? a . d : b . d, for constants a and b: d may be of an outer loop."""
    if d.is_const or d.dtype.count != c.dtype.count:
        return None
    w = x.src[0] if x.src[0].op is Ops.WHERE and x.src[0].src[1:] == (a, b) else x.src[1]
    yes = x.with_src(tuple([a if s is w else s for s in x.src]))
    no = x.with_src(tuple([b if s is w else s for s in x.src]))
    return c.where(yes, no)


def clamp(x: UOp, a: UOp, k: UOp, yes: UOp, no: UOp) -> UOp | None:
    """a < k ? m : a+d = max(m, a+d), where the line meets m at k or one before it."""
    limit = k.const_value
    for constant, line, larger in ((yes, no, True), (no, yes, False)):
        if not constant.is_const:
            continue
        d = _offset(line, a)
        if d is not None and constant.const_value in (limit + d, limit - 1 + d):
            return line.maximum(constant) if larger else line.minimum(constant)
    return None


def _offset(line: UOp, a: UOp) -> int | None:
    """d where the line is a + d."""
    if line is a:
        return 0
    d = line.src[1].const_value if line.op is Ops.ADD and line.src[0] is a else None
    return d if isinstance(d, int) else None


def extremum_of_sums(x: UOp, a: UOp, b: UOp) -> UOp | None:
    """max(y + a, y + b) = y + max(a, b)."""
    for kept, other in ((0, 1), (1, 0)):
        for again, last in ((0, 1), (1, 0)):
            if a.src[kept] is b.src[again]:
                return a.src[kept] + x.with_src((a.src[other], b.src[last]))
    return None


# Integer products are left out: what is chosen is often a factor that greedy rules can use.
_EXACT: Final = GroupOp.BINARY - {Ops.MUL}

RULES: Final = EqualitySet(
    [
        # c ? f(k, x) : f(k, y) = f(k, c ? x : y)
        (
            UPat(
                Ops.WHERE,
                values,
                src=(
                    _c,
                    UPat(_EXACT, name="a"),
                    UPat(_EXACT, name="b"),
                ),
                name="x",
            ),
            common_operand,
        ),
        (
            UPat(
                Ops.WHERE,
                floats,
                src=(_c, UPat(Ops.MUL, name="a"), UPat(Ops.MUL, name="b")),
                name="x",
            ),
            common_operand,
            "common_factor_of_choice",
        ),
        # c ? f(x) : f(y) = f(c ? x : y)
        (
            UPat(
                Ops.WHERE,
                values,
                src=(
                    _c,
                    UPat(GroupOp.UNARY | {Ops.CAST}, src=(_x,), name="a"),
                    UPat(GroupOp.UNARY | {Ops.CAST}, src=(_y,), name="b"),
                ),
            ),
            common_step,
        ),
        # f(c ? a : b, d) = c ? f(a, d) : f(b, d), a and b constants
        (
            UPat(
                Ops.ADD,
                index,
                src=[UPat(Ops.WHERE, src=(_c, UPat.cvar("a"), UPat.cvar("b"))), UPat.var("d")],
                name="x",
            ),
            into_branches,
        ),
        # a < k ? m : a+d = max(a+d, m), a < k ? a+d : m = min(a+d, m)
        (
            UPat(
                Ops.WHERE,
                index,
                src=(
                    UPat(Ops.CMPLT, src=(UPat.var("a", index), UPat.cvar("k"))),
                    UPat.var("yes"),
                    UPat.var("no"),
                ),
                name="x",
            ),
            clamp,
        ),
        # max(y + a, y + b) = y + max(a, b), min(y + a, y + b) = y + min(a, b)
        (
            UPat(
                (Ops.MAX, Ops.MIN),
                index,
                src=(UPat(Ops.ADD, name="a"), UPat(Ops.ADD, name="b")),
                name="x",
            ),
            extremum_of_sums,
        ),
        # x and y or x and z = x and (y or z), (x or y) and (x or z) = x or (y and z)
        (
            UPat(
                Ops.OR,
                bools,
                src=[UPat(Ops.AND, src=[_x, _y]), UPat(Ops.AND, src=[_x, UPat.var("z")])],
            ),
            lambda x, y, z: x & (y | z),
            "common_clause",
        ),
        (
            UPat(
                Ops.AND,
                bools,
                src=[UPat(Ops.OR, src=[_x, _y]), UPat(Ops.OR, src=[_x, UPat.var("z")])],
            ),
            lambda x, y, z: x | (y & z),
            "common_alternative",
        ),
        # not x and not y = not (x or y), not x or not y = not (x and y)
        ((_c ^ True) & (_y ^ True), lambda c, y: (c | y) ^ True, "neither"),
        ((_c ^ True) | (_y ^ True), lambda c, y: (c & y) ^ True, "not_both"),
    ]
)
