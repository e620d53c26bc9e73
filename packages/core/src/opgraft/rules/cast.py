"""Casts: round trips and chains, but only where no value changes on the way."""

from __future__ import annotations

from typing import Final

from opgraft.dtype import DType
from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, bools, floats, index, integers, ints
from opgraft.ir.uop import UOp
from opgraft.rules.sums import fits


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, so that the cast changes nothing."""
    if wide.scalar is narrow.scalar:
        return True
    if narrow.is_bool:
        return not wide.is_bool
    if wide.is_bool:
        return False
    if narrow.is_float:
        return wide.is_float and (
            wide.exponent >= narrow.exponent and wide.mantissa >= narrow.mantissa
        )
    if wide.is_float:
        return not narrow.is_index and holds_between(wide, int(narrow.min), int(narrow.max))
    if wide.is_index:
        return True
    return not narrow.is_index and bool(wide.min <= narrow.min and narrow.max <= wide.max)


def holds_between(dtype: DType, low: int, high: int) -> bool:
    """Whether every integer from `low` to `high` is a value of `dtype`, exactly."""
    if dtype.is_bool:
        return low >= 0 and high <= 1
    if not dtype.is_float:
        return fits(dtype, (low, high))
    # integers have no gaps up to 2**(mantissa + 1), if the exponent reaches that far
    reach = min(dtype.mantissa + 1, (1 << (dtype.exponent - 1)) - 1)
    largest = 1 << reach
    return -largest <= low and high <= largest


def keeps_value(x: UOp, dtype: DType) -> bool:
    """Whether casting x to `dtype` changes none of its values."""
    if holds_all(dtype, x.dtype):
        return True
    if not x.dtype.is_int:
        return False
    low, high = x.vmin, x.vmax
    return low > -(1 << 64) and high < 1 << 64 and holds_between(dtype, int(low), int(high))


SIMPLE: Final = EqualitySet(
    [
        # a cast to the dtype that x has = x
        (
            UPat((Ops.CAST, Ops.BITCAST), src=(UPat.var("x"),), name="c"),
            lambda x, c: x if c.dtype is x.dtype else None,
            "cast_to_itself",
        ),
        # bitcast(bitcast(x)) = bitcast(x); not through a float, which may be nan: there is one nan.
        # A float that goes through its bits and back stays so: it is taken as it was rounded, and
        # the laws of real numbers (float levels above strict) do not see what it is made of.
        (
            UPat(
                Ops.BITCAST,
                src=(UPat(Ops.BITCAST, integers | bools, src=(UPat.var("x"),)),),
                name="c",
            ),
            lambda x, c: None if x.dtype.is_float and c.dtype is x.dtype else x.bitcast(c.dtype),
            "bitcast_twice",
        ),
    ]
)


def cast_twice(x: UOp, inner: UOp, c: UOp) -> UOp | None:
    first, second, third = x.dtype, inner.dtype, c.dtype
    # out of range an integer wraps and a float saturates: then the way matters
    same_kind = first.is_float == second.is_float or not third.is_int
    if keeps_value(x, second) and (same_kind or keeps_value(x, third)):
        return x.cast(third)
    # integers that only get narrower keep their low bits either way
    if not (first.is_int and second.is_int and third.is_int):
        return None
    if second.is_index or third.is_index or third.bits > second.bits:
        return None
    return x.cast(third)


def compare_casts(x: UOp, a: UOp, b: UOp, c: UOp, d: UOp) -> UOp | None:
    if a.dtype is not b.dtype or not (keeps_value(a, c.dtype) and keeps_value(b, d.dtype)):
        return None
    return a.alu(x.op, b)


def compare_cast_constant(x: UOp, a: UOp, c: UOp, k: UOp) -> UOp | None:
    number, dtype = k.const_value, a.dtype
    if a.dtype.is_float or not keeps_value(a, c.dtype):
        return None
    if number != number or number in (float("inf"), float("-inf")) or int(number) != number:
        return None
    whole = int(number)
    if not holds_between(dtype, whole, whole):
        return None
    other = a.const_like(whole)
    return a.alu(x.op, other) if x.src[0] is c else other.alu(x.op, a)


# Ops on integers that give the same number in a wider dtype, unless they wrap.
_ARITHMETIC: Final = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.IDIV, Ops.MOD)


def cast_arithmetic(x: UOp, a: UOp, b: UOp, c: UOp) -> UOp | None:
    if not (b.is_const or a.op is Ops.CAST or b.op is Ops.CAST):
        return None  # two casts for one would not pay
    made = UOp(x.op, c.dtype, (a.cast(c.dtype), b.cast(c.dtype)))
    wide = made.vmin, made.vmax
    return made if fits(x.dtype, wide) else None


_CASTED: Final = UPat(Ops.CAST, src=(UPat.var("a"),), name="c")

FORMS: Final = EqualitySet(
    [
        # cast(cast(x)) = cast(x) where the inner one keeps every value, or both only cut bits off
        (
            UPat(
                Ops.CAST,
                src=(UPat(Ops.CAST, src=(UPat.var("x"),), name="inner"),),
                name="c",
            ),
            cast_twice,
        ),
        # cast(a) < cast(b) = a < b where the casts keep every value
        (
            UPat(
                (Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE),
                src=(_CASTED, UPat(Ops.CAST, src=(UPat.var("b"),), name="d")),
                name="x",
            ),
            compare_casts,
        ),
        # cast(a) < k = a < k where the cast keeps every value and k is one of a's dtype
        (
            UPat(
                (Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE),
                src=[
                    UPat(Ops.CAST, src=(UPat.var("a", integers | bools),), name="c"),
                    UPat.cvar("k"),
                ],
                name="x",
            ),
            compare_cast_constant,
        ),
        # cast(a + b) = cast(a) + cast(b) to index, where a + b does not wrap
        (
            UPat(
                Ops.CAST,
                index,
                src=(UPat(_ARITHMETIC, ints, src=(UPat.var("a"), UPat.var("b")), name="x"),),
                name="c",
            ),
            cast_arithmetic,
        ),
        # trunc(cast(i)) = cast(i) for integers i
        (
            UPat(
                Ops.TRUNC,
                src=(UPat(Ops.CAST, floats, src=(UPat(None, integers | bools),), name="c"),),
            ),
            lambda c: c,
            "trunc_of_integer",
        ),
    ]
)
