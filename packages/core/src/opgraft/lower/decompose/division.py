"""IDIV and MOD: floor division by C's truncating division, shifts and masks.

Bounds decide what is needed. A power of two is a shift or a mask, for negative dividends too. Of
two numbers that can't be negative the truncated quotient is the floor. A division by 0 gives 0.
"""

from __future__ import annotations

from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp


def floor_quotient(n: UOp) -> UOp | None:
    """a // b of integers."""
    a, b = n.src
    if not n.dtype.is_int:
        return None
    divisor: int | None = b.const_value
    if divisor == 0:
        return n.const_like(0)
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        return a >> (divisor.bit_length() - 1)
    if a.vmin >= 0 and b.vmin >= 0:
        return truncated(a, b)
    if divisor is not None and divisor > 0:
        # of a negative a: ~(~a / b); ~a is not negative
        sign = (
            a >> (n.dtype.bits - 1)
            if not n.dtype.is_index
            else (a < 0).where(n.const_like(-1), n.const_like(0))
        )
        return truncated(a ^ sign, b) ^ sign
    safe, quotient, adjust = _parts(a, b)
    result = adjust.where(quotient - 1, quotient)
    return result if safe is b else b.eq(0).where(n.const_like(0), result)


def floor_remainder(n: UOp) -> UOp | None:
    """a % b of integers, with the sign of b."""
    a, b = n.src
    if not n.dtype.is_int:
        return None
    divisor: int | None = b.const_value
    if divisor == 0:
        return n.const_like(0)
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        return a & (divisor - 1)
    if a.vmin >= 0 and b.vmin >= 0:
        return UOp(Ops.CMOD, n.dtype, (a, b))
    if divisor is not None and divisor > 0:
        return a - (a // b) * b
    safe, quotient, adjust = _parts(a, b)
    rest = a - quotient * safe
    return adjust.where(rest + safe, rest)


def truncated(a: UOp, b: UOp) -> UOp:
    """C's quotient."""
    return UOp(Ops.CDIV, a.dtype, (a, b))


def _parts(a: UOp, b: UOp) -> tuple[UOp, UOp, UOp]:
    """A divisor that is not 0, the truncated quotient, and whether that is 1 too many."""
    safe = b if b.vmin > 0 or b.vmax < 0 else b.eq(0).where(b.const_like(1), b)
    quotient = truncated(a, safe)
    rest = a - quotient * safe
    return safe, quotient, rest.ne(0) & ((rest ^ safe) < 0)


floor_division = PatternMatcher(
    [
        (UPat(Ops.IDIV, name="n"), floor_quotient),
        (UPat(Ops.MOD, name="n"), floor_remainder),
    ]
)
"""IDIV and MOD of integers."""
