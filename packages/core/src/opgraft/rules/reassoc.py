"""Float level `reassoc`: real-number laws whose two sides differ by rounding alone.

What is given up: bit-exactness (errors of rounding size), and, where a sum or product
overflows in one order only, the difference between an infinity or nan and a number. Every rule
says more where it gives up more. Off by default; the setting FLOAT=reassoc turns them on.
"""

from __future__ import annotations

import math
from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, floats
from opgraft.ir.uop import UOp

_x: Final = UPat.var("x", floats)
_y: Final = UPat.var("y")
_z: Final = UPat.var("z")
_c: Final = UPat.cvar("c")
_d: Final = UPat.cvar("d")


def _sound(value: UOp) -> UOp | None:
    """The constant if it did not overflow or vanish on the way."""
    number = value.const_value
    return value if math.isfinite(number) and number != 0.0 else None


def constants_of_sum(x: UOp, c: UOp, d: UOp) -> UOp | None:
    total = c.const_value + d.const_value
    return x + total if math.isfinite(x.const_like(total).const_value) else None


def constants_of_product(x: UOp, c: UOp, d: UOp) -> UOp | None:
    product = _sound(x.const_like(c.const_value * d.const_value))
    return None if product is None else x * product


def constant_quotient(x: UOp, c: UOp, d: UOp) -> UOp | None:
    if d.const_value == 0.0:
        return None
    quotient = _sound(x.const_like(c.const_value / d.const_value))
    return None if quotient is None else x * quotient


def like_terms(x: UOp, c: UOp, d: UOp | None = None) -> UOp | None:
    total = c.const_value + (1.0 if d is None else d.const_value)
    # x*c + x*-c is left: it is 0 but for nan and infinities, which is a matter of `unsafe`
    return x * total if math.isfinite(total) and total != 0.0 else None


def outward(x: UOp, y: UOp, c: UOp, s: UOp) -> UOp | None:
    return None if y.is_const else x.alu(s.op, y).alu(s.op, c)


RULES: Final = EqualitySet(
    [
        # (x + c) + d = x + (c + d). Gives up: x + 1e8 - 1e8 loses the low digits of x or not
        ((_x + _c) + _d, constants_of_sum),
        # (x * c) * d = x * (c * d). Gives up: an overflow or underflow on the way
        ((_x * _c) * _d, constants_of_product),
        # (x * c) / d = x * (c / d)
        ((_x * _c) / _d, constant_quotient),
        # (x / y) / z = x / (y * z). Gives up: y * z may overflow or vanish
        ((_x / _y) / _z, lambda x, y, z: x / (y * z), "quotient_of_quotient"),
        # x*c + x*d = x*(c + d), x*c + x = x*(c + 1), x + x = x*2
        (
            _x * _c + UPat.var("x") * _d,
            like_terms,
        ),
        (_x * _c + UPat.var("x"), like_terms, "like_term_and_itself"),
        (_x + UPat.var("x"), lambda x: x * 2.0, "twice"),
        # x*y + x*z = x*(y + z). Gives up: inf - inf where each product is finite, and back
        (_x * _y + UPat.var("x") * _z, lambda x, y, z: x * (y + z), "factor"),
        # y/x + z/x = (y + z)/x
        (
            UPat(Ops.FDIV, src=(UPat.var("y", floats), _x))
            + UPat(Ops.FDIV, src=(_z, UPat.var("x"))),
            lambda x, y, z: (y + z) / x,
            "common_divisor",
        ),
        # (x + c) + y = (x + y) + c, (x * c) * y = (x * y) * c
        (UPat(Ops.ADD, src=[_x + _c, _y], name="s"), outward, "constant_term_outward"),
        (UPat(Ops.MUL, src=[_x * _c, _y], name="s"), outward, "constant_factor_outward"),
        # exp2(x) * exp2(y) = exp2(x + y). Gives up: an infinity times 0 on the way
        (
            UPat(Ops.EXP2, floats, src=(UPat.var("x"),)) * UPat(Ops.EXP2, src=(_y,)),
            lambda x, y: (x + y).exp2(),
            "powers_of_two_multiplied",
        ),
        # exp(x) * exp(y) = exp(x + y). Gives up: an infinity times 0 on the way
        (
            UPat(Ops.EXP, floats, src=(UPat.var("x"),)) * UPat(Ops.EXP, src=(_y,)),
            lambda x, y: (x + y).exp(),
            "exponentials_multiplied",
        ),
        # sum of y*c = c * sum of y
        (
            UPat(
                Ops.REDUCE,
                floats,
                src=(UPat.var("y") * _c,),
                arg=Ops.ADD,
                name="x",
                allow_any_len=True,
            ),
            lambda x, y, c: y.reduce(Ops.ADD, *x.src[1:]) * c,
            "factor_of_sum",
        ),
    ]
)
