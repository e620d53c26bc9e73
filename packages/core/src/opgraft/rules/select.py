"""WHERE: choices that are none, choices within choices, choices moved to where they vanish."""

from __future__ import annotations

from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat, bools, integers, values
from opgraft.ir.uop import UOp

_c: Final = UPat.var("c")
_a: Final = UPat.var("a")
_b: Final = UPat.var("b")

SIMPLE: Final = EqualitySet(
    [
        # true ? a : b = a, false ? a : b = b
        (UPat.const(True).where(_a, UPat()), lambda a: a, "where_true"),
        (UPat.const(False).where(UPat(), _b), lambda b: b, "where_false"),
        # c ? a : a = a
        (UPat(Ops.WHERE, src=(UPat(), _a, _a)), lambda a: a, "where_same"),
        # c ? true : false = c, c ? false : true = not c
        (_c.where(UPat.const(True), UPat.const(False)), lambda c: c, "where_is_condition"),
        (_c.where(UPat.const(False), UPat.const(True)), lambda c: c ^ True, "where_is_negation"),
    ]
)


def push_into_where(x: UOp, w: UOp) -> UOp | None:
    """f(c ? k : m, n) = c ? f(k, n) : f(m, n), where all of k, m, n are constants."""
    c, yes, no = w.src
    if not (yes.is_const and no.is_const) or x.dtype.count != c.dtype.count:
        return None
    if any(s is not w and not s.is_const for s in x.src) or (x.op is Ops.WHERE and x.src[0] is w):
        return None
    return UOp(
        Ops.WHERE,
        x.dtype,
        (
            c,
            x.with_src(tuple([yes if s is w else s for s in x.src])),
            x.with_src(tuple([no if s is w else s for s in x.src])),
        ),
    )


def join_wheres(x: UOp, c: UOp, a: UOp, b: UOp, d: UOp, e: UOp) -> UOp | None:
    """f(c ? a : b, c ? d : e) = c ? f(a, d) : f(b, e), where one side folds."""
    if not ((a.is_const and d.is_const) or (b.is_const and e.is_const)):
        return None
    yes, no = x.with_src((a, d)), x.with_src((b, e))
    return UOp(Ops.WHERE, x.dtype, (c, yes, no))


def extremum(c: UOp, a: UOp, b: UOp) -> UOp | None:
    left, right = c.src
    if left is a and right is b:
        return a.minimum(b)
    if left is b and right is a:
        return a.maximum(b)
    # c < x ? x : c+1 = max(x, c+1) and the like, as comparisons with constants are written
    if left.is_const and right is a and b.const_value == left.const_value + 1:
        return a.maximum(b)
    if left.is_const and right is b and a.const_value == left.const_value + 1:
        return b.minimum(a)
    if right.is_const and left is a and b.const_value == right.const_value - 1:
        return a.minimum(b)
    if right.is_const and left is b and a.const_value == right.const_value - 1:
        return b.maximum(a)
    return None


def bounded_extremum(x: UOp, a: UOp, b: UOp) -> UOp | None:
    larger = x.op is Ops.MAX
    if a.vmin >= b.vmax:
        return a if larger else b
    if b.vmin >= a.vmax:
        return b if larger else a
    return None


_BOOL_A: Final = UPat.var("a", bools)

FORMS: Final = EqualitySet(
    [
        # not c ? a : b = c ? b : a
        ((_c ^ True).where(_a, _b), lambda c, a, b: c.where(b, a), "where_not"),
        # c ? (c ? a : b) : d = c ? a : d
        (
            _c.where(UPat(Ops.WHERE, src=(_c, _a, _b)), UPat.var("d")),
            lambda c, a, b, d: c.where(a, d),
            "where_known_true",
        ),
        # c ? a : (c ? b : d) = c ? a : d
        (
            _c.where(_a, UPat(Ops.WHERE, src=(_c, _b, UPat.var("d")))),
            lambda c, a, b, d: c.where(a, d),
            "where_known_false",
        ),
        # c ? (d ? a : b) : b = c and d ? a : b
        (
            _c.where(UPat(Ops.WHERE, src=(UPat.var("d"), _a, _b)), _b),
            lambda c, d, a, b: (c & d).where(a, b),
            "where_both",
        ),
        # c ? (d ? b : a) : b = c and not d ? a : b
        (
            _c.where(UPat(Ops.WHERE, src=(UPat.var("d"), _b, _a)), _b),
            lambda c, d, a, b: (c & (d ^ True)).where(a, b),
            "where_one_and_not",
        ),
        # c ? a : (d ? a : b) = c or d ? a : b
        (
            _c.where(_a, UPat(Ops.WHERE, src=(UPat.var("d"), _a, _b))),
            lambda c, d, a, b: (c | d).where(a, b),
            "where_either",
        ),
        # c ? a : false = c and a, c ? true : b = c or b, and with the condition negated
        (_c.where(_BOOL_A, UPat.const(False)), lambda c, a: c & a, "where_is_and"),
        (
            UPat(Ops.WHERE, bools, src=(_c, UPat.const(True), _b)),
            lambda c, b: c | b,
            "where_is_or",
        ),
        (
            UPat(Ops.WHERE, bools, src=(_c, UPat.const(False), _b)),
            lambda c, b: (c ^ True) & b,
            "where_is_not_and",
        ),
        (_c.where(_BOOL_A, UPat.const(True)), lambda c, a: (c ^ True) | a, "where_is_not_or"),
        # f(c ? k : m, n) = c ? f(k, n) : f(m, n) for constants
        (
            UPat(
                GroupOp.ALU - {Ops.WHERE},
                values,
                src=(UPat(Ops.WHERE, name="w"),),
                allow_any_len=True,
                name="x",
            ),
            push_into_where,
        ),
        (
            UPat(
                GroupOp.BINARY,
                values,
                src=(UPat.cvar(), UPat(Ops.WHERE, name="w")),
                name="x",
            ),
            push_into_where,
            "push_into_second_where",
        ),
        # f(c ? a : b, c ? d : e) = c ? f(a, d) : f(b, e)
        (
            UPat(
                GroupOp.BINARY,
                values,
                src=(
                    UPat(Ops.WHERE, src=(_c, _a, _b)),
                    UPat(Ops.WHERE, src=(_c, UPat.var("d"), UPat.var("e"))),
                ),
                name="x",
            ),
            join_wheres,
        ),
        # a < b ? a : b = min(a, b), a < b ? b : a = max(a, b), for integers
        (
            UPat(
                Ops.WHERE,
                integers,
                src=(UPat(Ops.CMPLT, src=(UPat(None, integers), UPat()), name="c"), _a, _b),
            ),
            extremum,
        ),
        # max(a, b) = a where the bounds say a >= b, and the like
        (UPat((Ops.MAX, Ops.MIN), integers, src=(_a, _b), name="x"), bounded_extremum),
        # max(x, x) = x, min(x, x) = x, for nan too
        (UPat((Ops.MAX, Ops.MIN), src=(_a, _a)), lambda a: a, "extremum_of_itself"),
        # max(a, min(a, b)) = a, min(a, max(a, b)) = a, for integers
        (
            UPat(Ops.MAX, integers, src=[_a, UPat(Ops.MIN, src=[_a, _b])]),
            lambda a, b: a,
            "max_absorbs_min",
        ),
        (
            UPat(Ops.MIN, integers, src=[_a, UPat(Ops.MAX, src=[_a, _b])]),
            lambda a, b: a,
            "min_absorbs_max",
        ),
    ]
)
