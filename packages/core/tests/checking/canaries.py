"""Wrong rules. The checker must refuse every one of them, or the checker itself is wrong.

Each is a mistake that rule writers have made: its comment says which.
"""

from __future__ import annotations

from typing import Final

from opgraft.dtype import dtypes
from opgraft.ir import EqualitySet, UOp, UPat
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import bools, floats, index, integers, ints, numbers, values

_x: Final = UPat.var("x")
_y: Final = UPat.var("y")
_i: Final = UPat.var("x", integers)
_f: Final = UPat.var("x", floats)
_c: Final = UPat.cvar("c")
_d: Final = UPat.cvar("d")


def _true(like: UOp) -> UOp:
    return UOp.const(dtypes.bool.vec(like.dtype.count), True)


def congruence_off_by_one(x: UOp, c: UOp, d: UOp) -> UOp | None:
    # (x*c) // d = x*(c//d): right only if d divides c, and the test admits d = c+1 too
    a, b = c.const_value, d.const_value
    if b <= 1 or a < 0 or (a % b and a + 1 != b):
        return None
    return x * x.const_like((a + 1) // b)


def split_constant(x: UOp, c: UOp, d: UOp) -> UOp | None:
    # (x + c) // d = x//d + c//d without asking for c % d = 0
    if d.const_value <= 0:
        return None
    return x // d + x.const_like(c.const_value // d.const_value)


def split_truncating(x: UOp, c: UOp, d: UOp) -> UOp | None:
    # the law of floor division used for a truncating one
    a, b = c.const_value, d.const_value
    if b <= 0 or a % b:
        return None
    return x.alu(Ops.CDIV, d) + x.const_like(a // b)


def divide_twice(x: UOp, c: UOp, d: UOp) -> UOp | None:
    # (x // c) // d = x // (c*d) without a look at whether c*d wraps
    return x // x.const_like(c.const_value * d.const_value) if c.const_value > 0 else None


def modulo_of_modulo(x: UOp, c: UOp, d: UOp) -> UOp | None:
    # (x % c) % d = x % d needs d to divide c; this asks for c > d
    return x % d if c.const_value > d.const_value > 0 else None


def move_constant(x: UOp, c: UOp, d: UOp) -> UOp:
    # x + c < d <=> x < d - c: not where x + c wraps
    return x < x.const_like(d.const_value - c.const_value)


def drop_mask(x: UOp, c: UOp) -> UOp | None:
    # x & c = x for x <= c: only if c has all the bits
    return x if x.vmin >= 0 and x.vmax <= c.const_value else None


def shift_sum(x: UOp, c: UOp, d: UOp) -> UOp:
    # (x << c) << d = x << (c + d): the sum of the counts wraps or reaches the width
    return x << x.const_like((c.const_value + d.const_value) % max(1, x.dtype.bits))


def shift_as_division(x: UOp, c: UOp) -> UOp | None:
    # x >> c = x / 2**c truncating: not for negative x
    count = c.const_value
    if not 0 <= count < min(x.dtype.bits - 1, 5):
        return None
    return x.alu(Ops.CDIV, x.const_like(1 << count))


def less_by_bounds(x: UOp, y: UOp) -> UOp | None:
    # x < y is decided by x.vmax <= y.vmin: off by one
    return _true(x) if x.vmax <= y.vmin else None


def widening_cast(x: UOp, c: UOp, d: UOp) -> UOp | None:
    # a round trip through a narrower dtype dropped
    return x if d.dtype is x.dtype else None


def exact_float_cast(x: UOp, d: UOp) -> UOp | None:
    # int -> float -> int dropped without a look at the mantissa
    return x if d.dtype is x.dtype else None


def wrong_dtype(x: UOp) -> UOp:
    # the comparison's result has the operand's dtype
    return x.const_like(0)


def where_swapped(c: UOp, x: UOp, y: UOp) -> UOp:
    # not c ? x : y = c ? x : y
    return c.where(x, y)


def reduce_invariant(x: UOp) -> UOp | None:
    # sum over r of y = y, the number of turns forgotten
    if any(r in x.src[0].ranges for r in x.src[1:]):
        return None
    return x.src[0]


def gcd_of_modulo(x: UOp, c: UOp, d: UOp) -> UOp | None:
    # (x*c) % d = (x % (d//c)) * c, not asking that c divides d
    a, b = c.const_value, d.const_value
    return (x % x.const_like(b // a)) * c if 0 < a < b else None


def negative_divisor(x: UOp, c: UOp) -> UOp | None:
    # x // -c = -(x // c): truncation's law, not floor's
    return (x // x.const_like(-c.const_value)) * -1 if -8 <= c.const_value < -1 else None


def factor_ring(x: UOp, c: UOp) -> UOp | None:
    # (x*c) // c = x, also where x*c wraps
    return x if c.const_value > 0 else None


WRONG: Final = EqualitySet(
    [
        # x*0 = 0 for floats: nan, infinities, -0.0
        (UPat.var("x", numbers) * 0, lambda x: x.const_like(0), "float_times_zero"),
        # x - x = 0 for floats: nan, infinities
        (UPat.var("x", numbers) + _x * -1, lambda x: x.const_like(0), "float_minus_itself"),
        # x + 0 = x for floats: -0.0
        (UPat.var("x", numbers) + 0, lambda x: x, "float_plus_zero"),
        # x / x = 1 for floats: 0, nan, infinities
        (_f / _x, lambda x: x.const_like(1), "float_over_itself"),
        # x // x = 1: 0 // 0 = 0
        (_i // _x, lambda x: x.const_like(1), "quotient_of_itself"),
        # x == x for floats: nan
        (UPat.var("x", values).eq(_x), lambda x: _true(x), "float_equals_itself"),
        # x / c = x * (1/c) for every c: the last digit
        (_f / _c, lambda x, c: x * (1.0 / (c.const_value or 1.0)), "reciprocal_of_constant"),
        # (x + c) + d = x + (c + d) for floats
        ((_f + _c) + _d, lambda x, c, d: x + (c.const_value + d.const_value), "float_association"),
        # max(x, y) = x < y ? y : x for floats: nan, and the sign of zeros
        (UPat(Ops.MAX, floats, src=(_x, _y)), lambda x, y: (x < y).where(y, x), "max_as_select"),
        # not (x < y) = y <= x written as y < x or x = y, for floats: nan
        ((UPat(Ops.CMPLT, src=(_f, _y)) ^ True), lambda x, y: (y < x) | x.eq(y), "negated_float"),
        # x < x + 1, also where x + 1 wraps
        (_i < _x + 1, lambda x: _true(x), "less_than_next"),
        # 0 < x for x != 0, of unsigned as of signed
        (UPat.var("x", ints).ne(0), lambda x: x.const_like(0) < x, "positive_if_not_zero"),
        # x ^ x = x
        (UPat.var("x", integers | bools) ^ _x, lambda x: x, "xor_with_itself"),
        # bool + bool = xor
        (UPat(Ops.ADD, bools, src=(_x, _y)), lambda x, y: x ^ y, "bool_sum_is_xor"),
        # x % c >= 0, also for negative c
        (_i % _c, lambda x, c: (x % c).maximum(0) if c.const_value < 0 else None, "modulo_sign"),
        # trunc(x) = x, which holds for whole numbers only
        (UPat(Ops.TRUNC, src=(_f,)), lambda x: x, "trunc_dropped"),
        # -0.0 lost: 0 - x = x * -1
        (UPat.const(0, floats) + _x * -1, lambda x: x * -1, "zero_minus"),
        # sqrt(x*x) = max(x, -x)
        (UPat(Ops.SQRT, floats, src=(_x * _x,)), lambda x: x.maximum(x * -1.0), "root_of_square"),
        (UPat(Ops.IDIV, src=(_i * _c, _d)), congruence_off_by_one),
        (UPat(Ops.IDIV, src=(_i + _c, _d)), split_constant),
        (UPat(Ops.CDIV, src=(_i + _c, _d)), split_truncating),
        (UPat(Ops.IDIV, src=(UPat(Ops.IDIV, src=(_i, _c)), _d)), divide_twice),
        (UPat(Ops.MOD, src=(UPat(Ops.MOD, src=(_i, _c)), _d)), modulo_of_modulo),
        (UPat(Ops.CMPLT, src=(_i + _c, _d)), move_constant),
        (UPat(Ops.AND, src=(_i, _c)), drop_mask),
        (
            UPat(Ops.SHL, src=(UPat(Ops.SHL, ints, src=(_x, _c)), _d)),
            shift_sum,
        ),
        (UPat(Ops.SHR, ints, src=(_x, _c)), shift_as_division),
        (UPat(Ops.CMPLT, src=(_i, _y)), less_by_bounds),
        (
            UPat(Ops.CAST, ints, src=(UPat(Ops.CAST, ints, src=(_i,), name="c"),), name="d"),
            widening_cast,
        ),
        (
            UPat(Ops.CAST, ints, src=(UPat(Ops.CAST, floats, src=(_i,)),), name="d"),
            exact_float_cast,
        ),
        (_i < _x, wrong_dtype),
        ((UPat.var("c") ^ True).where(_x, _y), where_swapped),
        (UPat(Ops.REDUCE, integers, arg=Ops.ADD, name="x"), reduce_invariant),
        (UPat(Ops.MOD, src=(UPat(Ops.MUL, src=(_i, _c)), _d)), gcd_of_modulo),
        (UPat(Ops.IDIV, src=(_i, _c)), negative_divisor),
        (UPat(Ops.IDIV, ints, src=(_x * _c, _c)), factor_ring),
        (
            UPat(Ops.WHERE, src=(UPat.var("c"), UPat(Ops.WHERE, src=(UPat.var("c"), _x, _y)), _x)),
            lambda x, y: y,
            "where_of_where",
        ),
        # an index compared after a cast that wraps
        (
            UPat(Ops.CMPLT, src=(UPat(Ops.CAST, ints, src=(UPat.var("x", index),)), _c)),
            lambda x, c: x < c.const_value,
            "compare_through_narrowing",
        ),
        # a rule that never fires is no rule
        (UPat(GroupOp.ALU, values, name="x"), lambda x: None, "never_fires"),
    ]
)
