"""Wrong alternatives, each near a right one. The checker must refuse every one of them."""

from __future__ import annotations

from typing import Final

from opgraft.ir import EqualitySet, UOp, UPat
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import bools, floats, index, ints

_a: Final = UPat.var("a", index)
_b: Final = UPat.var("b")
_c: Final = UPat.cvar("c")
_x: Final = UPat.var("x")
_y: Final = UPat.var("y")


def modulo_by_truncation(a: UOp, c: UOp) -> UOp | None:
    # a - c*(a // c) for negative c too, where what is left has the sign of c: but with |c|
    by = c.const_value
    return a + (a // abs(by)) * -abs(by) if by else None


def flipped_off_by_one(a: UOp, c: UOp) -> UOp | None:
    # a // c = -((c - a) // c): c-1, not c
    by = c.const_value
    return ((a * -1 + by) // by) * -1 if by > 1 else None


def two_quotients_of_three(a: UOp, c: UOp) -> UOp | None:
    # a < c ? 0 : 1 for 0 <= a <= 2*c: the last is 2
    by = c.const_value
    if by < 2 or a.vmin < 0 or a.vmax > 2 * by:
        return None
    return (a < by).where(a.const_like(0), a.const_like(1))


def nested_the_other_way(a: UOp, c: UOp) -> UOp | None:
    # a // c = (a // m + k) // n, with a carry that is not there
    by = c.const_value
    return (a // (by // 2) + 1) // 2 if by > 3 and by % 2 == 0 else None


def operand_of_another_place(c: UOp, a: UOp, b: UOp) -> UOp | None:
    # c ? f(k, x) : f(y, k) = f(k, c ? x : y) for operations that do not commute
    if a.op is not b.op or a.src[0] is not b.src[1]:
        return None
    if a.src[1].dtype is not b.src[0].dtype:
        return None
    return a.with_src((a.src[0], c.where(a.src[1], b.src[0])))


def clamp_one_beyond(a: UOp, k: UOp, d: UOp, m: UOp) -> UOp | None:
    # a < k ? m : a+d = max(a+d, m) where the line meets m one after k
    if m.const_value != k.const_value + 1 + d.const_value:
        return None
    return (a + d).maximum(m)


WRONG_ALTERNATIVES: Final = EqualitySet(
    [
        (UPat(Ops.MOD, src=(_a, _c)), modulo_by_truncation),
        (UPat(Ops.IDIV, src=(_a * -1 + UPat.cvar(), _c), name="a"), lambda a: a + 1, "flip_lost"),
        (UPat(Ops.IDIV, src=(_a, _c)), flipped_off_by_one),
        (UPat(Ops.IDIV, src=(_a, _c)), two_quotients_of_three),
        (UPat(Ops.IDIV, src=(_a, _c)), nested_the_other_way),
        (
            UPat(
                Ops.WHERE,
                src=(
                    UPat.var("c", bools),
                    UPat((Ops.IDIV, Ops.MOD, Ops.CMPLT), src=(_x, _y), name="a"),
                    UPat((Ops.IDIV, Ops.MOD, Ops.CMPLT), src=(UPat(), _x), name="b"),
                ),
            ),
            operand_of_another_place,
        ),
        (
            UPat(
                Ops.WHERE,
                src=(_a < UPat.cvar("k"), UPat.cvar("m"), UPat.var("a") + UPat.cvar("d")),
            ),
            clamp_one_beyond,
        ),
        # max(y + a, y + b) = y + max(a, b), of integers that wrap
        (
            UPat(Ops.MAX, ints, src=(_x + _y, UPat.var("x") + UPat.var("z"))),
            lambda x, y, z: x + y.maximum(z),
            "extremum_of_sums_that_wrap",
        ),
        # x and y or z = x and (y or z)
        ((_x & _y) | UPat.var("z", bools), lambda x, y, z: x & (y | z), "clause_of_one"),
        # x + (y + z) = (x + y) + z, of floats
        (
            UPat(Ops.ADD, floats, src=(_x, UPat(Ops.ADD, src=(_y, UPat.var("z"))))),
            lambda x, y, z: (x + y) + z,
            "floats_regrouped",
        ),
        # max(x, y) + z = max(x + z, y + z), of floats: inf - inf
        (
            UPat(Ops.ADD, floats, src=(UPat(Ops.MAX, src=(_x, _y)), UPat.var("z"))),
            lambda x, y, z: (x + z).maximum(y + z),
            "sum_of_extremum",
        ),
        (UPat(GroupOp.ALU, index, name="x"), lambda x: None, "no_alternative"),
    ]
)
