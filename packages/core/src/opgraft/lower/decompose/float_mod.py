"""MOD of floats: Python's remainder, exact but for one rounding, without a loop.

The magnitudes are integers times powers of two, mx * 2**ex and my * 2**ey. So the remainder is
(mx * 2**(ex-ey)) mod my, and 2**(ex-ey) mod my takes a fixed number of squarings. A product
modulo my is t*u - q*my in wrapping integers, with the quotient q from float arithmetic: it is off
by 1 at most, which one correction puts right.
"""

from __future__ import annotations

import math

from opgraft.dtype import DType, dtypes
from opgraft.ir.expansions import SIGNED, UNSIGNED, lanes_of
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp


def float_remainder(n: UOp) -> UOp | None:
    """a % b with the sign of b."""
    if not n.dtype.is_float:
        return None
    if n.dtype.bits < 32:
        single = lanes_of(dtypes.float32, n)
        return UOp(Ops.MOD, single, tuple(s.cast(single) for s in n.src)).cast(n.dtype)
    a, b = n.src
    unsigned = lanes_of(UNSIGNED[n.dtype.bits], n)
    top = 1 << (n.dtype.bits - 1)
    sign_a, sign_b = a.bitcast(unsigned) & top, b.bitcast(unsigned) & top
    size = (a.bitcast(unsigned) ^ sign_a).bitcast(n.dtype)
    divisor = (b.bitcast(unsigned) ^ sign_b).bitcast(n.dtype)
    rest = _magnitude(size, divisor)
    # |a| mod |b| with the sign of a; of the other sign than b: one divisor further
    signed = (rest.bitcast(unsigned) | sign_a).bitcast(n.dtype)
    moved = sign_a.ne(sign_b).where(signed + b, signed)
    zero = sign_b.bitcast(n.dtype)
    result = rest.eq(0.0).where(zero, moved)
    defined = (size < math.inf) & (divisor > 0.0)
    return defined.where(result, n.const_like(math.nan))


def _magnitude(x: UOp, y: UOp) -> UOp:
    """x mod y of floats that are not negative; x finite, y not 0 (else anything)."""
    dtype = x.dtype.scalar
    signed = lanes_of(SIGNED[dtype.bits], x)
    mx, ex = _parts(x, signed)
    my, ey = _parts(y, signed)
    shift = ex - ey
    divisor = my.cast(x.dtype)
    ring = _Ring(my, divisor, divisor.const_like(1.0) / divisor, dtype)
    # from the highest bit of the greatest possible shift
    bits = (2 * (1 << (dtype.exponent - 1)) + dtype.mantissa).bit_length()
    power = my.const_like(1)
    for place in reversed(range(bits)):
        power = ring.product(power, power)
        odd = ((shift >> place) & 1).ne(0)
        power = odd.where(ring.near(power + power), power)
    total = ring.product(ring.near((mx >= my).where(mx - my, mx)), power)
    total = (total < 0).where(total + my, total)
    # total * 2**(ey - bias - mantissa), exact; in two steps, as the power may be subnormal
    bias = (1 << (dtype.exponent - 1)) - 1
    scale = ey - (bias + dtype.mantissa)
    half = scale >> 1
    first, second = (((s + bias) << dtype.mantissa).bitcast(x.dtype) for s in (half, scale - half))
    # where the exponent of x is the lower one x is below y; y may be inf, too
    small = (shift < 0) | (y.eq(math.inf))
    return small.where(x, total.cast(x.dtype) * first * second)


def _parts(x: UOp, signed: DType) -> tuple[UOp, UOp]:
    """The integer of mantissa + 1 bits, the highest set, and the biased exponent."""
    dtype = x.dtype.scalar
    least = 2.0 ** (2 - (1 << (dtype.exponent - 1)))
    tiny = x < least
    bits = tiny.where(x * 2.0**dtype.mantissa, x).bitcast(signed)
    exponent = bits >> dtype.mantissa
    moved = tiny.where(exponent - dtype.mantissa, exponent)
    return (bits & ((1 << dtype.mantissa) - 1)) | (1 << dtype.mantissa), moved


class _Ring:
    """Integers modulo m, held between -m/2 and m/2."""

    def __init__(self, m: UOp, as_float: UOp, inverse: UOp, dtype: DType) -> None:
        self.m, self.as_float, self.inverse = m, as_float, inverse
        self.half = m >> 1
        self.magic = 1.5 * 2.0**dtype.mantissa
        bias = (1 << (dtype.exponent - 1)) - 1
        self.magic_bits = ((bias + dtype.mantissa) << dtype.mantissa) | (1 << dtype.mantissa - 1)

    def near(self, value: UOp) -> UOp:
        """A value within 3/2 m of 0, brought within m/2."""
        value = (self.half < value).where(value - self.m, value)
        return (value < -self.half).where(value + self.m, value)

    def product(self, t: UOp, u: UOp) -> UOp:
        """t * u modulo m."""
        kind = self.as_float.dtype
        quotient = t.cast(kind) * u.cast(kind) * self.inverse + self.magic
        q = quotient.bitcast(t.dtype) - self.magic_bits
        return self.near(t * u - q * self.m)


float_mod = PatternMatcher([(UPat(Ops.MOD, name="n"), float_remainder)])
"""MOD of float32 and float64; narrower floats go through float32."""
