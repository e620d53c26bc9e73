"""Floats: only what holds for nan, infinities, signed zeros and every rounding.

Not here, because they do not hold: x+0 = x (x = -0.0), x*0 = 0, x-x = 0, x/x = 1, association,
distribution, x/c = x*(1/c) in general. See reassoc.py and unsafe.py for some of those.
"""

from __future__ import annotations

import math
from typing import Final

from opgraft.dtype import dtypes
from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, floats
from opgraft.ir.uop import UOp

_x: Final = UPat.var("x", floats)
_y: Final = UPat.var("y")
_nan: Final = UPat.const(math.nan, floats)

SIMPLE: Final = EqualitySet(
    [
        # x * 1 = x, x / 1 = x
        (_x * 1, lambda x: x, "float_multiply_by_one"),
        (_x / 1, lambda x: x, "float_divide_by_one"),
        # x + -0.0 = x (x + 0.0 is not x for x = -0.0)
        (_x + UPat.const(-0.0), lambda x: x, "float_add_negative_zero"),
        # an operation on nan is nan: there is one nan
        (
            UPat((Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN), src=[_nan.named("n"), UPat()]),
            lambda n: n,
            "nan_spreads",
        ),
        (UPat(Ops.FDIV, src=(_nan.named("n"), UPat())), lambda n: n, "nan_divided"),
        (UPat(Ops.FDIV, src=(UPat(), _nan.named("n"))), lambda n: n, "divided_by_nan"),
        # max(x, -inf) = x, min(x, inf) = x, for nan too
        (_x.maximum(-math.inf), lambda x: x, "max_least"),
        (_x.minimum(math.inf), lambda x: x, "min_greatest"),
    ]
)


def constant_right(x: UOp, c: UOp, y: UOp) -> UOp | None:
    return None if y.is_const else x.with_src((y, c))


def negated_factor(x: UOp, c: UOp) -> UOp:
    return x * c.const_like(-c.const_value)


def divide_exactly(x: UOp, c: UOp) -> UOp | None:
    """x / 2**k = x * 2**-k: both round the same real number once."""
    by = c.const_value
    if by == 0.0 or not math.isfinite(by):
        return None
    mantissa, _ = math.frexp(by)
    if abs(mantissa) != 0.5:
        return None
    inverse = c.const_like(1.0 / by)
    value = inverse.const_value
    return x * inverse if math.isfinite(value) and value != 0.0 and value * by == 1.0 else None


def less_negated(x: UOp, c: UOp) -> UOp:
    """x * -1 < c = -c < x."""
    return x.const_like(-c.const_value) < x


def negated_less(x: UOp, c: UOp) -> UOp:
    """c < x * -1 = x < -c."""
    return x < c.const_like(-c.const_value)


def never_less(a: UOp) -> UOp:
    return UOp.const(dtypes.bool.vec(a.dtype.count), False)


def chain_of_extrema(x: UOp, y: UOp, c: UOp, d: UOp) -> UOp | None:
    return None if y.is_const else y.alu(x.op, c.alu(x.op, d))


def _negative(pattern: UPat) -> UPat:
    return pattern * -1


FORMS: Final = EqualitySet(
    [
        # c . y = y . c for commutative operations
        (
            UPat(
                (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN),
                floats,
                src=(UPat.cvar("c"), UPat.var("y")),
                name="x",
            ),
            constant_right,
            "float_constant_right",
        ),
        (
            UPat((Ops.CMPEQ, Ops.CMPNE), src=(UPat.cvar("c", floats), UPat.var("y")), name="x"),
            constant_right,
            "float_compared_constant_right",
        ),
        # (x * -1) * c = x * -c
        (_negative(_x) * UPat.cvar("c"), negated_factor),
        # -x * -y = x * y, -x / -y = x / y
        (_negative(_x) * _negative(_y), lambda x, y: x * y, "negatives_multiplied"),
        (_negative(_x) / _negative(_y), lambda x, y: x / y, "negatives_divided"),
        # -x / c = x / -c, c / -x = -c / x
        (
            _negative(_x) / UPat.cvar("c"),
            lambda x, c: x / c.const_like(-c.const_value),
            "negative_divided_by_constant",
        ),
        (
            UPat.cvar("c", floats) / _negative(_y),
            lambda c, y: c.const_like(-c.const_value) / y,
            "constant_divided_by_negative",
        ),
        # x / 2**k = x * 2**-k where 2**-k is a value of the dtype
        (_x / UPat.cvar("c"), divide_exactly),
        # -x < -y = y < x, and against constants
        (_negative(_x) < _negative(_y), lambda x, y: y < x, "negatives_compared"),
        (_negative(_x) < UPat.cvar("c"), less_negated),
        (UPat.cvar("c") < _negative(_x), negated_less),
        # x < nan, nan < x, x < -inf and inf < x are false
        (
            UPat(
                Ops.CMPLT,
                src=(
                    UPat.var("a", floats),
                    UPat.any(UPat.const(math.nan), UPat.const(-math.inf)),
                ),
            ),
            never_less,
        ),
        (
            UPat(
                Ops.CMPLT,
                src=(UPat.any(UPat.const(math.nan), UPat.const(math.inf)), UPat.var("a", floats)),
            ),
            never_less,
            "never_greater",
        ),
        # max(max(y, c), d) = max(y, max(c, d)), min the same
        (
            UPat(
                Ops.MAX,
                floats,
                src=[UPat.var("y").maximum(UPat.cvar("c")), UPat.cvar("d")],
                name="x",
            ),
            chain_of_extrema,
            "chain_of_max",
        ),
        (
            UPat(
                Ops.MIN,
                floats,
                src=[UPat.var("y").minimum(UPat.cvar("c")), UPat.cvar("d")],
                name="x",
            ),
            chain_of_extrema,
            "chain_of_min",
        ),
        # trunc(trunc(x)) = trunc(x)
        (UPat(Ops.TRUNC, src=(UPat(Ops.TRUNC, name="t"),)), lambda t: t, "trunc_twice"),
    ]
)
