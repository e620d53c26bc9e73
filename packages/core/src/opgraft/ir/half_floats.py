"""float16 and bfloat16 as bits: conversions from and to float32 by integer operations.

For devices without an instruction for them. Each rounds once, to nearest even; a nan becomes the
quiet nan without payload. Subnormals of float16 are exact in both directions, and no subnormal
float32 is touched, which some devices would take for zero.
"""

from __future__ import annotations

from opgraft.dtype import DType, dtypes
from opgraft.ir.expansions import lanes_of
from opgraft.ir.uop import UOp


def widen(bits: UOp, dtype: DType) -> UOp:
    """The float32 value of uint16 bits that hold a float16 or a bfloat16."""
    word, single = lanes_of(dtypes.uint32, bits), lanes_of(dtypes.float32, bits)
    u = bits.cast(word)
    if dtype.scalar is dtypes.bfloat16:
        return (u << 16).bitcast(single)
    size = (u & 0x7FFF) << 13
    sign = (u & 0x8000) << 16
    # exponents move by 112; those of inf and nan again, up to float32's greatest
    moved = size + (112 << 23)
    normal = (size < (0x1F << 23)).where(moved, moved + (112 << 23)).bitcast(single)
    # a subnormal is the fraction of a float in [2**-14, 2**-13)
    least = 2.0**-14
    subnormal = (size + (113 << 23)).bitcast(single) + -least
    value = (size < (1 << 23)).where(subnormal, normal)
    return (value.bitcast(word) | sign).bitcast(single)


def narrow(x: UOp, dtype: DType) -> UOp:
    """The uint16 bits of a float32 rounded to float16 or bfloat16."""
    word, half = lanes_of(dtypes.uint32, x), lanes_of(dtypes.uint16, x)
    u = x.bitcast(word)
    if dtype.scalar is dtypes.bfloat16:
        rounded = (u + ((u >> 16) & 1) + 0x7FFF) >> 16
        return x.ne(x).where(rounded.const_like(0x7FC0), rounded).cast(half)
    sign = u & 0x80000000
    size = u ^ sign
    # adding 1/2 leaves a result below 2**-14 rounded in the lowest bits
    subnormal = (size.bitcast(x.dtype) + 0.5).bitcast(word) + (-(126 << 23) & 0xFFFFFFFF)
    normal = (size + ((size >> 13) & 1) + (0xFFF - (112 << 23) & 0xFFFFFFFF)) >> 13
    value = (size < (113 << 23)).where(subnormal, normal)
    # 65536 and more; nan compares as an integer above inf
    beyond = (size > (0xFF << 23)).where(u.const_like(0x7E00), u.const_like(0x7C00))
    value = (size < (143 << 23)).where(value, beyond)
    return (value | (sign >> 16)).cast(half)


def rounded_to_bfloat16(x: UOp) -> UOp:
    """A float32 rounded to what bfloat16 holds, still a float32: no way there and back."""
    word = lanes_of(dtypes.uint32, x)
    u = x.bitcast(word)
    rounded = (u + ((u >> 16) & 1) + 0x7FFF) & 0xFFFF0000
    return x.ne(x).where(x, rounded.bitcast(x.dtype))


def to_odd32(x: UOp) -> UOp:
    """A float64 as float32, rounded to odd: rounding again to 22 bits or fewer is then exact.

    The nearest float32, but where that is not exact and its last bit is 0, its neighbour on the
    side of the value (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    single, word = lanes_of(dtypes.float32, x), lanes_of(dtypes.uint32, x)
    nearest = x.cast(single)
    back = nearest.cast(x.dtype)
    bits = nearest.bitcast(word)
    # outward where the nearest is too small in magnitude: beside the sign, bits order magnitudes
    positive = (bits >> 31).eq(0)
    outward = (back < x) ^ positive ^ True
    neighbour = outward.where(bits + 1, bits - 1)
    exact = back.eq(x) | (bits & 1).ne(0)
    return exact.where(bits, neighbour).bitcast(single)


def integer_to_bfloat16_via32(x: UOp) -> UOp:
    """A float32 that rounds to bfloat16 as the integer itself would.

    float32 holds 24 bits, bfloat16 8: what is dropped from a long integer is kept as one sticky
    bit at the end, which is enough to decide the later rounding.
    """
    width = x.dtype.bits
    unsigned = {32: dtypes.uint32, 64: dtypes.uint64}[width].vec(x.dtype.count)
    single = lanes_of(dtypes.float32, x)
    negative = x < 0 if x.dtype.is_signed else None
    size = x.cast(unsigned)
    if negative is not None:
        size = negative.where(-size, size)
    result = size.cast(single)
    for shift in (14, 28, 42):
        if 24 + shift - 14 >= width:
            break
        dropped = (size & ((1 << shift) - 1)).ne(0)
        kept = (size >> shift) | dropped.cast(unsigned)
        long = kept.cast(single) * 2.0**shift
        result = (size < (1 << (10 + shift))).where(result, long)
    return result if negative is None else negative.where(-result, result)
