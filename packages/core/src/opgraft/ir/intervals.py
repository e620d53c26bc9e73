"""Interval arithmetic on integers: what an operation can give, from what its operands can be.

An interval is a pair (least, greatest) of Python integers, or -inf / inf where an `index` value
is not limited. Every function is sound: no value that the operation can give lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from opgraft.dtype import DType
from opgraft.ir.ops import Ops

Interval: TypeAlias = tuple[Any, Any]

ANY: Final[Interval] = (-math.inf, math.inf)
# Bounds of an index beyond this are not kept: they mix with infinities, which are floats.
LARGE: Final = 1 << 128


def whole(dtype: DType) -> Interval:
    """Everything that `dtype` can hold."""
    return (False, True) if dtype.is_bool else (dtype.min, dtype.max)


def fit(dtype: DType, low: Any, high: Any) -> Interval:
    """The unbounded result [low, high] as `dtype` holds it.

    Where all of it wraps by the same amount the interval moves; where it wraps in part, the
    result can be anything.
    """
    least, greatest = dtype.min, dtype.max
    if least <= low and high <= greatest:
        if dtype.is_index:
            if low < -LARGE:
                low = -math.inf
            elif low > LARGE:
                low = LARGE
            if high > LARGE:
                high = math.inf
            elif high < -LARGE:
                high = -LARGE
        return low, high
    if low == -math.inf or high == math.inf:
        return least, greatest
    turns = (low - least) >> dtype.bits
    if turns == (high - least) >> dtype.bits:
        shift = int(turns) << dtype.bits
        return low - shift, high - shift
    return least, greatest


def union(a: Interval, b: Interval) -> Interval:
    return (a[0] if a[0] <= b[0] else b[0], a[1] if a[1] >= b[1] else b[1])


def add(dtype: DType, a: Interval, b: Interval) -> Interval:
    return fit(dtype, a[0] + b[0], a[1] + b[1])


def multiply(dtype: DType, a: Interval, b: Interval) -> Interval:
    if dtype.kind == "uint":
        # modulo 2**bits, a number near the top is a small negative one
        half = 1 << (dtype.bits - 1)
        if b[0] >= half:
            b = (b[0] - 2 * half, b[1] - 2 * half)
        if a[0] >= half:
            a = (a[0] - 2 * half, a[1] - 2 * half)
    low, high = fit(dtype, *product(a, b))
    if dtype.is_index:
        return low, high
    if a[0] == a[1] or b[0] == b[1]:
        factor = a[0] if a[0] == a[1] else b[0]
        return _on_multiples(dtype, low, high, factor)
    return low, high


def _on_multiples(dtype: DType, low: Any, high: Any, factor: Any) -> Interval:
    """The interval without what is above its last multiple of `factor`'s power of two.

    Wrapping keeps such multiples.
    """
    return low, (high & -(factor & -factor) if high == dtype.max else high)


def square(dtype: DType, a: Interval) -> Interval:
    """A value times itself."""
    small, large = sorted((abs(a[0]), abs(a[1])))
    return fit(dtype, 0 if a[0] <= 0 <= a[1] else small * small, large * large)


def product(a: Interval, b: Interval) -> Interval:
    """The unbounded product."""
    if b[0] == b[1]:
        return _scale(a, b[0])
    if a[0] == a[1]:
        return _scale(b, a[0])
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _scale(a: Interval, by: Any) -> Interval:
    if by > 0:
        return a[0] * by, a[1] * by
    return (a[1] * by, a[0] * by) if by else (0, 0)


def _times(x: Any, y: Any) -> Any:
    return x * y if x and y else 0


def floor_divide(dtype: DType, a: Interval, b: Interval) -> Interval:
    by = b[0]
    if by == b[1] and by > 0 and a[0] >= -LARGE and a[1] <= LARGE:  # the usual case
        return a[0] // by, a[1] // by
    return _divide(dtype, a, b, _floor_by_positive)


def truncating_divide(dtype: DType, a: Interval, b: Interval) -> Interval:
    return _divide(dtype, a, b, _truncate_by_positive)


_ByPositive: TypeAlias = Callable[[Interval, Interval], Interval]


def _divide(dtype: DType, a: Interval, b: Interval, by_positive: _ByPositive) -> Interval:
    least = dtype.min
    if a[0] != least or not b[0] <= -1 <= b[1] or dtype.is_index:
        return _divide_exactly(a, b, by_positive)
    # INT_MIN // -1 wraps to INT_MIN: all else is divided without it
    found: Interval = (least, least)
    if a[1] > least:
        found = union(found, _divide_exactly((least + 1, a[1]), b, by_positive))
    if b[0] < -1:
        found = union(found, _divide_exactly((least, least), (b[0], -2), by_positive))
    if b[1] > -1:
        found = union(found, _divide_exactly((least, least), (0, b[1]), by_positive))
    return found


def _divide_exactly(a: Interval, b: Interval, by_positive: _ByPositive) -> Interval:
    """The unbounded quotient; by 0 it is 0."""
    parts: list[Interval] = []
    if b[1] > 0:
        parts.append(by_positive(a, (max(b[0], 1), b[1])))
    if b[0] < 0:
        parts.append(by_positive((-a[1], -a[0]), (max(-b[1], 1), -b[0])))
    if b[0] <= 0 <= b[1]:
        parts.append((0, 0))
    return min(p[0] for p in parts), max(p[1] for p in parts)


def _floor_by_positive(a: Interval, b: Interval) -> Interval:
    low = _floor(a[0], b[1] if a[0] >= 0 else b[0])
    high = _floor(a[1], b[0] if a[1] >= 0 else b[1])
    return low, high


def _truncate_by_positive(a: Interval, b: Interval) -> Interval:
    low = _floor(a[0], b[1]) if a[0] >= 0 else -_floor(-a[0], b[0])
    high = _floor(a[1], b[0]) if a[1] >= 0 else -_floor(-a[1], b[1])
    return low, high


def _floor(a: Any, b: Any) -> Any:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a // b


def floor_modulo(dtype: DType, a: Interval, b: Interval) -> Interval:
    if b[0] == b[1] and b[0] > 0:  # the usual case
        return _modulo_positive(a, b)
    parts: list[Interval] = []
    if b[1] > 0:
        parts.append(_modulo_positive(a, (max(b[0], 1), b[1])))
    if b[0] < 0:
        low, high = _modulo_positive((-a[1], -a[0]), (max(-b[1], 1), -b[0]))
        parts.append((-high, -low))
    if b[0] <= 0 <= b[1]:
        parts.append((0, 0))
    return min(p[0] for p in parts), max(p[1] for p in parts)


def _modulo_positive(a: Interval, b: Interval) -> Interval:
    low, high = a
    if low >= 0 and high < b[0]:
        return a
    if b[0] == b[1] and not (math.isinf(low) or math.isinf(high)):
        by = b[0]
        if low // by == high // by:
            return low % by, high % by
    top = b[1] - 1
    return 0, (min(top, high) if low >= 0 else top)


def truncating_modulo(dtype: DType, a: Interval, b: Interval) -> Interval:
    """The remainder with the sign of the dividend; the sign of the divisor does not matter."""
    largest = max(abs(b[0]), abs(b[1]))
    least = 1 if b[0] <= 0 <= b[1] else min(abs(b[0]), abs(b[1]))
    size = (max(least, 1), max(largest, 1))
    parts: list[Interval] = []
    if a[1] >= 0:
        parts.append(_modulo_positive((max(a[0], 0), a[1]), size))
    if a[0] < 0:
        low, high = _modulo_positive((max(-a[1], 1), -a[0]), size)
        parts.append((-high, -low))
    if b[0] <= 0 <= b[1]:
        parts.append((0, 0))
    return min(p[0] for p in parts), max(p[1] for p in parts)


def maximum(dtype: DType, a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), max(a[1], b[1])


def minimum(dtype: DType, a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), min(a[1], b[1])


# ---- many values of one interval


def combined(dtype: DType, op: Ops, value: Interval, count: Interval) -> Interval:
    """The values of one interval combined by a reducing `op`, `count` of them (an interval).

    Of no values at all the result is the neutral element.
    """
    some = max(count[0], 1)
    low, high = value
    if not dtype.is_bool:
        low, high = _COMBINED[op](dtype, value, (some, max(count[1], some)))
    if count[0] <= 0:
        neutral = _NEUTRAL[op](dtype)
        return union((low, high), (neutral, neutral))
    return low, high


def _sum(dtype: DType, value: Interval, count: Interval) -> Interval:
    if dtype.kind == "uint" and value[0] >= 1 << (dtype.bits - 1):
        value = (value[0] - (1 << dtype.bits), value[1] - (1 << dtype.bits))
    return fit(dtype, *product(value, count))


def _power(dtype: DType, value: Interval, count: Interval) -> Interval:
    low, high = value
    if count == (1, 1) or (low >= 0 and high <= 1):
        return value
    largest = max(abs(low), abs(high))
    if largest <= 1:
        return -1, 1
    if count[1] * math.log2(min(largest, LARGE)) > 256:
        return whole(dtype)
    top = largest ** count[1]
    if low >= 0:
        return fit(dtype, low ** (count[0] if low > 1 else 1), top)
    return fit(dtype, -top, top)


def _all_bits(dtype: DType, value: Interval, count: Interval) -> Interval:
    low, high = value
    if low >= 0:
        return 0, high
    if math.isinf(low):
        return value
    return -(1 << max(int(~low).bit_length(), int(max(high, 0)).bit_length())), high


def _any_bits(dtype: DType, value: Interval, count: Interval) -> Interval:
    low, high = value
    if high < 0:
        return low, -1
    if math.isinf(high):
        return low, high
    return low, (1 << max(int(high).bit_length(), int(~min(low, -1)).bit_length())) - 1


_COMBINED: Final[dict[Ops, Callable[[DType, Interval, Interval], Interval]]] = {
    Ops.ADD: _sum,
    Ops.MUL: _power,
    Ops.MAX: lambda dtype, value, count: value,
    Ops.MIN: lambda dtype, value, count: value,
    Ops.AND: _all_bits,
    Ops.OR: _any_bits,
}
_NEUTRAL: Final[dict[Ops, Callable[[DType], Any]]] = {
    Ops.ADD: lambda dtype: 0,
    Ops.MUL: lambda dtype: 1,
    Ops.MAX: lambda dtype: dtype.min,
    Ops.MIN: lambda dtype: dtype.max,
    Ops.AND: lambda dtype: -1 if dtype.is_signed else dtype.max,
    Ops.OR: lambda dtype: 0,
}
