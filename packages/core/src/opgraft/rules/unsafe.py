"""Float level `unsafe`: identities of real numbers that lose digits, nan, infinities or signs.

Each rule says what it gives up. Off by default; the setting FLOAT=unsafe turns them on, with
those of the level `reassoc`.
"""

from __future__ import annotations

import math
from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, floats
from opgraft.ir.uop import UOp

_x: Final = UPat.var("x", floats)
_same: Final = UPat.var("x")
_y: Final = UPat.var("y")


def reciprocal(x: UOp, c: UOp) -> UOp | None:
    by = c.const_value
    if by == 0.0 or not math.isfinite(by):
        return None
    inverse = c.const_like(1.0 / by)
    value = inverse.const_value
    return x * inverse if value != 0.0 and math.isfinite(value) else None


RULES: Final = EqualitySet(
    [
        # x + 0 = x. Gives up: the sign of -0.0 + 0.0
        (_x + 0, lambda x: x, "float_add_zero"),
        # x * 0 = 0. Gives up: nan for nan and infinities, -0.0 for negative x
        (_x * 0, lambda x: x.const_like(0.0), "float_multiply_by_zero"),
        # x - x = 0. Gives up: nan for nan and infinities
        (_x + _same * -1, lambda x: x.const_like(0.0), "float_subtract_itself"),
        # x / x = 1. Gives up: nan for 0, nan and infinities
        (_x / _same, lambda x: x.const_like(1.0), "float_divide_by_itself"),
        # x / c = x * (1/c). Gives up: the last digit (7/49 is not 7*(1/49))
        (_x / UPat.cvar("c"), reciprocal),
        # (x + y) - x = y. Gives up: all digits of y where x is much larger
        (
            (_x + _y) + _same * -1,
            lambda x, y: y,
            "cancellation",
        ),
        # (x * y) / x = y. Gives up: x = 0, infinities, and overflow of x * y
        (UPat(Ops.FDIV, src=(_x * _y, _same)), lambda x, y: y, "factor_cancelled"),
        # sqrt(x) * sqrt(x) = x. Gives up: nan for negative x
        (
            UPat(Ops.SQRT, floats, src=(_same,)) * UPat(Ops.SQRT, src=(_same,)),
            lambda x: x,
            "square_of_root",
        ),
        # sqrt(x * x) = max(x, -x). Gives up: overflow and underflow of x * x
        (
            UPat(Ops.SQRT, floats, src=(UPat(Ops.MUL, src=(_same, _same)),)),
            lambda x: x.maximum(x * -1.0),
            "root_of_square",
        ),
        # log2(exp2(x)) = x, exp2(log2(x)) = x. Gives up: saturation at large |x|; nan for x < 0
        (UPat(Ops.LOG2, floats, src=(UPat(Ops.EXP2, src=(_same,)),)), lambda x: x, "log2_of_exp2"),
        (UPat(Ops.EXP2, floats, src=(UPat(Ops.LOG2, src=(_same,)),)), lambda x: x, "exp2_of_log2"),
        # log2(exp(x)) = x / ln(2). Gives up: saturation at large |x|
        (
            UPat(Ops.LOG2, floats, src=(UPat(Ops.EXP, src=(_same,)),)),
            lambda x: x * (1 / math.log(2)),
            "log2_of_exp",
        ),
        # exp(log2(x) * c) = exp2(log2(x) * (c / ln(2))). Gives up: the last digits
        (
            UPat(Ops.EXP, floats, src=(UPat(Ops.LOG2, name="y") * UPat.cvar("c"),)),
            lambda y, c: (y * (c.const_value / math.log(2))).exp2(),
            "exp_of_log2",
        ),
    ]
)
