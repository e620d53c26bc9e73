"""Elementwise operations on NumPy arrays at the exact meaning of docs/meaning.md.

A register of dtype d is an array of `register_dtype(d)`: bfloat16 lives in float32 arrays that
hold bfloat16 values only. NumPy's own functions are used where they agree with the meaning,
which they do less often than one expects: each exception says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opgraft.api import DType, Ops, dtypes, errors

Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[..., Array]

_REGISTERS: Final[dict[DType, np.dtype[Any]]] = {
    **{d: np.dtype(d.name) for d in dtypes.all if d is not dtypes.bfloat16},
    dtypes.bfloat16: np.dtype(np.float32),
}
_STORAGE: Final[dict[DType, np.dtype[Any]]] = {
    **_REGISTERS,
    dtypes.bool: np.dtype(np.uint8),
    dtypes.bfloat16: np.dtype(np.uint16),
}


def register_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of a register."""
    return _REGISTERS[dtype.scalar]


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of an element in memory."""
    return _STORAGE[dtype.scalar]


def to_storage(value: Array, dtype: DType) -> Array:
    """A register as memory holds it."""
    if dtype.scalar is dtypes.bfloat16:
        bits: Array = np.ascontiguousarray(value).view(np.uint32) >> np.uint32(16)
        return bits.astype(np.uint16)
    return value.astype(np.uint8) if dtype.is_bool else value


def from_storage(stored: Array, dtype: DType) -> Array:
    """Memory as a register."""
    if dtype.scalar is dtypes.bfloat16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored != 0 if dtype.is_bool else stored


def constant(value: Any, dtype: DType) -> Array:
    """A constant, as a register of one instance and one lane."""
    return np.array([[value]], dtype=register_dtype(dtype))


# ---- rounding


def _to_bfloat16(value: Array) -> Array:
    """float32 values rounded to bfloat16, once, to nearest even."""
    bits = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    kept = (rounded & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(value), np.float32(np.nan), kept)


def _to_odd(nearest: Array, error: Array) -> Array:
    """The sum nearest + error rounded to odd: a later rounding to fewer bits is then the only one.

    `nearest` is the sum rounded to nearest. (S. Boldo and G. Melquiond, Emulation of FMA and
    correctly rounded sums, IEEE Transactions on Computers 57, 2008.)
    """
    integer: Any = np.int64 if nearest.dtype == np.float64 else np.int32
    bits = np.ascontiguousarray(nearest).view(integer)
    inexact = (error != 0) & np.isfinite(nearest) & ((bits & integer(1)) == 0)
    # beside the sign, bits are in the order of magnitudes
    outward = ((error > 0) == (nearest > 0)) | (nearest == 0)
    odd: Array = np.where(inexact, bits + np.where(outward, integer(1), integer(-1)), bits)
    return odd.view(nearest.dtype)


def _narrow(value: Array, target: DType) -> Array:
    """float64 values that were rounded to odd, or are exact, rounded to `target` once."""
    if target is dtypes.float64:
        return value
    if target is dtypes.bfloat16:
        single = value.astype(np.float32)
        # the difference is exact in float64; of two infinities it is nan and of no interest
        return _to_bfloat16(_to_odd(single, value - single.astype(np.float64)))
    return value.astype(register_dtype(target))


# ---- conversions


def _cast(source: DType, target: DType) -> Function:
    if target.is_bool:
        return lambda a: a != 0
    wanted = register_dtype(target)
    if source.is_float and target.is_float:
        if target is dtypes.bfloat16:
            if source is dtypes.float64:
                return lambda a: _narrow(a, target)
            return lambda a: _to_bfloat16(a.astype(np.float32))
        return lambda a: a.astype(wanted)  # NumPy rounds float64 -> float16 once
    if source.is_float:
        return lambda a: _saturate(a, target)
    if target.is_float and source.bits > 32 and target is not dtypes.float64:
        # NumPy goes through a wider float and rounds twice on the way to float16
        return lambda a: _narrow(_sticky(a), target)
    if target is dtypes.float16:
        return lambda a: a.astype(np.float64).astype(np.float16)
    if target is dtypes.bfloat16:
        return lambda a: _narrow(a.astype(np.float64), target)
    return lambda a: a.astype(wanted)


def _sticky(a: Array) -> Array:
    """64-bit integers in float64, rounded to odd where they do not fit."""
    negative = a < 0
    size = np.where(negative, -a.astype(np.uint64), a.astype(np.uint64))
    low = size & np.uint64(0x7FF)
    kept = (size & ~np.uint64(0x7FF)) | np.where(low != 0, np.uint64(0x800), np.uint64(0))
    size = np.where(size >> np.uint64(53), kept, size)
    value = size.astype(np.float64)
    return np.where(negative, -value, value)


def _saturate(a: Array, target: DType) -> Array:
    """Floats to integers: truncated, kept in range, nan is 0; C leaves all but the first open."""
    wide = np.trunc(a.astype(np.float64))
    least, greatest = int(target.min), int(target.max)
    high = wide >= float(greatest + 1)
    low = wide < float(least)
    inside = np.where(high | low | np.isnan(wide), 0.0, wide).astype(register_dtype(target))
    kind = register_dtype(target).type
    return np.where(high, kind(greatest), np.where(low, kind(least), inside))


def _bitcast(source: DType, target: DType) -> Function:
    wanted = storage_dtype(target)

    def run(a: Array) -> Array:
        stored = np.ascontiguousarray(to_storage(a, source))
        return from_storage(stored.view(wanted), target)

    return run


# ---- arithmetic


def _floor_divide(a: Array, b: Array) -> Array:
    # NumPy warns, and C traps, for a divisor of 0 and for INT_MIN // -1
    quotient = a // np.where((b == 0) | _is_minus_one(b), b.dtype.type(1), b)
    return np.where(b == 0, a.dtype.type(0), np.where(_is_minus_one(b), _negated(a), quotient))


def _is_minus_one(b: Array) -> Array:
    return b == -1 if b.dtype.kind == "i" else np.zeros_like(b, dtype=np.bool_)


def _negated(a: Array) -> Array:
    difference: Array = np.zeros_like(a) - a
    return difference


def _floor_modulo(a: Array, b: Array) -> Array:
    special = (b == 0) | _is_minus_one(b)
    return np.where(special, a.dtype.type(0), a % np.where(special, b.dtype.type(1), b))


def _truncating_modulo(a: Array, b: Array) -> Array:
    special = (b == 0) | _is_minus_one(b)
    return np.where(special, a.dtype.type(0), np.fmod(a, np.where(special, b.dtype.type(1), b)))


def _truncating_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "u":
        return _floor_divide(a, b)
    inexact = _floor_modulo(a, b) != 0
    up = inexact & ((a < 0) != (b < 0))
    quotient: Array = _floor_divide(a, b) + up.astype(a.dtype)
    return quotient


def _float_modulo(a: Array, b: Array) -> Array:
    """fmod is exact; one addition brings the remainder to the divisor's sign."""
    rest = np.fmod(a, b)
    turned = np.where((rest != 0) & (np.signbit(rest) != np.signbit(b)), rest + b, rest)
    return np.where(rest == 0, np.copysign(np.zeros_like(rest), b), turned)


def _maximum(a: Array, b: Array) -> Array:
    # np.maximum of 0.0 and -0.0 depends on their order
    larger = np.where(a > b, a, b)
    larger = np.where((a == b) & np.signbit(b), a, larger)
    return np.where(np.isnan(a) | np.isnan(b), larger.dtype.type(np.nan), larger)


def _minimum(a: Array, b: Array) -> Array:
    smaller = np.where(a < b, a, b)
    smaller = np.where((a == b) & np.signbit(a), a, smaller)
    return np.where(np.isnan(a) | np.isnan(b), smaller.dtype.type(np.nan), smaller)


def _shift_left(a: Array, b: Array) -> Array:
    inside = _count_inside(a, b)
    return np.where(inside, a << np.where(inside, b, b.dtype.type(0)), a.dtype.type(0))


def _shift_right(a: Array, b: Array) -> Array:
    inside = _count_inside(a, b)
    shifted = a >> np.where(inside, b, b.dtype.type(0))
    sign = np.where(a < 0, _negated(np.ones_like(a)), a.dtype.type(0)) if a.dtype.kind == "i" else 0
    return np.where(inside, shifted, a.dtype.type(0) + sign).astype(a.dtype)


def _count_inside(a: Array, b: Array) -> Array:
    return (b >= 0) & (b < a.dtype.itemsize * 8)


# ---- one rounding of a*b + c


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(s, e): s is a + b rounded, s + e is exactly a + b (D. Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """(p, e): p is a * b rounded, p + e is exactly a * b (T. Dekker, G. Veltkamp)."""
    product = a * b
    (a1, a2), (b1, b2) = _split(a), _split(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def _multiply_accumulate(dtype: DType) -> Function:
    if not dtype.is_float:
        return lambda a, b, c: a * b + c
    if dtype is dtypes.float64:
        return _fused_float64

    def run(a: Array, b: Array, c: Array) -> Array:
        # the product of two floats of up to 24 bits is exact in float64
        product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        if dtype is dtypes.float32:
            total = product + c
            if not _halfway(total):
                return total.astype(np.float32)
        total, error = _two_sum(product, c)
        return _narrow(_to_odd(total, np.where(np.isfinite(total), error, 0.0)), dtype)

    return run


def _halfway(value: Array) -> bool:
    """Whether rounding float64 values again, to float32, may differ from rounding them once: where
    one is halfway between two float32, or subnormal as one."""
    bits = np.ascontiguousarray(value).view(np.int64)
    if ((bits & 0x1FFFFFFF) == 0x10000000).any():
        return True
    return bool(((np.abs(value) < 2.0**-126) & (value != 0)).any())


_TINY, _HUGE = 2.0**-900, 2.0**900


def _fused_float64(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    upper, lower = _two_product(a, b)
    first, second = _two_sum(c, lower)
    high, low = _two_sum(upper, first)
    rest_sum, rest_error = _two_sum(second, low)
    rest = _to_odd(rest_sum, rest_error)
    result = np.where(lower == 0, upper + c, high + rest)  # signs of zero survive in the first
    size = np.abs(upper)
    plain = ((size > _TINY) & (size < _HUGE)) | (a == 0) | (b == 0)
    plain &= (np.abs(a) < _HUGE) & (np.abs(b) < _HUGE) & (np.abs(c) < _HUGE)
    exact = np.array(result)
    for place in zip(*np.nonzero(~plain)):  # rare: infinities, nan, ends of the exponent range
        exact[place] = _fused(float(a[place]), float(b[place]), float(c[place]))
    return exact


def _fused(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return math.copysign(0.0, a) * math.copysign(1.0, b) + c if c == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


# ---- random numbers

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(counter: Array, key: Array) -> Array:
    """Threefry-2x32 with 20 rounds (Salmon et al., SC 2011, table 2)."""
    counter, key = np.broadcast_arrays(counter, key)
    x0, x1 = counter.astype(np.uint32), (counter >> np.uint64(32)).astype(np.uint32)
    k0, k1 = key.astype(np.uint32), (key >> np.uint64(32)).astype(np.uint32)
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for block in range(5):
        for turn in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))) ^ x0
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0.astype(np.uint64) | (x1.astype(np.uint64) << np.uint64(32))


# ---- the table

_ALIKE: Final[dict[Ops, Function]] = {
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.WHERE: np.where,
}
_BOOL: Final[dict[Ops, Function]] = {
    Ops.ADD: np.logical_or,
    Ops.MUL: np.logical_and,
    Ops.MAX: np.logical_or,
    Ops.MIN: np.logical_and,
}
_INTEGER: Final[dict[Ops, Function]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.IDIV: _floor_divide,
    Ops.MOD: _floor_modulo,
    Ops.CDIV: _truncating_divide,
    Ops.CMOD: _truncating_modulo,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.SHL: _shift_left,
    Ops.SHR: _shift_right,
    Ops.THREEFRY: _threefry,
}
_FLOAT: Final[dict[Ops, Function]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.MOD: _float_modulo,
    Ops.MAX: _maximum,
    Ops.MIN: _minimum,
    Ops.SQRT: np.sqrt,
    Ops.TRUNC: np.trunc,
}
_ROUNDED: Final = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MOD, Ops.SQRT})

OPS: Final = frozenset({Ops.CAST, Ops.BITCAST, Ops.MULACC, *_ALIKE, *_BOOL, *_INTEGER, *_FLOAT})
"""The operations that exist here; EXP, EXP2, LOG2 and SIN are decomposed before."""


def function_of(op: Ops, dtype: DType, source: DType) -> Function:
    """The function of arrays for `op`, of a result of `dtype` and a first operand of `source`."""
    target, source = dtype.scalar, source.scalar
    if op is Ops.CAST:
        return _cast(source, target)
    if op is Ops.BITCAST:
        return _bitcast(source, target)
    if op is Ops.MULACC:
        return _multiply_accumulate(target)
    found = _ALIKE.get(op)
    if found is None:
        table = _BOOL if target.is_bool else _FLOAT if target.is_float else _INTEGER
        found = table.get(op)
    if found is None:
        raise errors.DeviceError(f"INTERP has no {op.name} of {dtype}")
    if target is dtypes.bfloat16 and op in _ROUNDED:
        # float32 has more than twice the bits of bfloat16, so that rounding twice is harmless
        plain = found
        return lambda *operands: _to_bfloat16(plain(*operands))
    return found
