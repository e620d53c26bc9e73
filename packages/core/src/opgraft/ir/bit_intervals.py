"""Interval arithmetic of shifts and bit operations on integers (see intervals.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from opgraft.dtype import DType
from opgraft.ir.intervals import LARGE, Interval, fit, multiply, product


def shift_left(dtype: DType, a: Interval, b: Interval) -> Interval:
    """Counts outside 0 .. bits-1 give 0."""
    last = LARGE.bit_length() if dtype.is_index else dtype.bits - 1
    first, final = max(b[0], 0), min(b[1], last)
    parts: list[Interval] = []
    if b[0] < 0 or (b[1] > last and not dtype.is_index) or first > final:
        parts.append((0, 0))
    if dtype.is_index and b[1] > last:
        return (0 if a[0] >= 0 else -math.inf, 0 if a[1] <= 0 else math.inf)
    if first <= final:
        low, high = product(a, (1 << first, 1 << final))
        if dtype.min <= low and high <= dtype.max:
            parts.append(fit(dtype, low, high))
        else:  # each count wraps in its own way
            parts.extend(
                multiply(dtype, a, (1 << count, 1 << count)) for count in range(first, final + 1)
            )
    return min(p[0] for p in parts), max(p[1] for p in parts)


def shift_right(dtype: DType, a: Interval, b: Interval) -> Interval:
    """Counts outside 0 .. bits-1 leave the sign alone: 0, or -1 of a negative number."""
    beyond = math.inf if dtype.is_index else dtype.bits
    inside = (max(b[0], 0), min(b[1], beyond))
    parts: list[Interval] = []
    if b[0] < 0 or b[1] >= beyond:
        parts.append((-1 if a[0] < 0 else 0, -1 if a[1] < 0 else 0))
    if inside[0] <= inside[1]:
        low = _shift(a[0], inside[1] if a[0] >= 0 else inside[0])
        high = _shift(a[1], inside[0] if a[1] >= 0 else inside[1])
        parts.append((low, high))
    return min(p[0] for p in parts), max(p[1] for p in parts)


def _shift(a: Any, count: Any) -> Any:
    if math.isinf(a):
        return a
    if count > 1 << 12:
        return 0 if a >= 0 else -1
    return a >> count


# ---- bits


def bit_and(dtype: DType, a: Interval, b: Interval) -> Interval:
    if dtype.is_bool:
        return a[0] and b[0], a[1] and b[1]
    for x, y in ((a, b), (b, a)):
        mask = y[0]
        if mask == y[1] and mask >= 0 and mask & (mask + 1) == 0:
            if math.isinf(x[0]) or math.isinf(x[1]) or x[0] | mask != x[1] | mask:
                return 0, (min(mask, x[1]) if x[0] >= 0 else mask)
            return x[0] & mask, x[1] & mask
    if _unlimited(a, b):
        if a[0] >= 0 or b[0] >= 0:
            return 0, min(i[1] for i in (a, b) if i[0] >= 0)
        return -math.inf, max(a[1], b[1])
    # not (not a or not b); -1 - x is ~x, which Python 3.12 warns of where x is a bool
    low, high = bit_or(dtype, (-1 - a[1], -1 - a[0]), (-1 - b[1], -1 - b[0]))
    return -1 - high, -1 - low


def bit_or(dtype: DType, a: Interval, b: Interval) -> Interval:
    if _unlimited(a, b):
        if a[1] < 0 or b[1] < 0:
            return max(i[0] for i in (a, b) if i[1] < 0), -1
        return min(a[0], b[0]), math.inf
    return _by_sign(a, b, _least_or, _greatest_or)


def bit_xor(dtype: DType, a: Interval, b: Interval) -> Interval:
    if _unlimited(a, b):
        return (0 if a[0] >= 0 and b[0] >= 0 else -math.inf), math.inf
    return _by_sign(a, b, _least_xor, _greatest_xor, differ=True)


def _unlimited(a: Interval, b: Interval) -> bool:
    return any(math.isinf(x) for x in (*a, *b))


_Extreme: TypeAlias = Callable[[int, int, int, int, int], int]


def _by_sign(
    a: Interval, b: Interval, least: _Extreme, greatest: _Extreme, differ: bool = False
) -> Interval:
    """Solve per sign of either operand, where two's complement numbers order as unsigned ones."""
    bits = max(int(x).bit_length() for x in (*a, *b))
    top = 1 << bits
    low, high = math.inf, -math.inf
    for a_low, a_high, a_negative in _signs(a, top):
        for b_low, b_high, b_negative in _signs(b, top):
            negative = a_negative != b_negative if differ else a_negative or b_negative
            shift = top if negative else 0
            low = min(low, least(a_low, a_high, b_low, b_high, top >> 1) - shift)
            high = max(high, greatest(a_low, a_high, b_low, b_high, top >> 1) - shift)
    return low, high


def _signs(a: Interval, top: int) -> list[tuple[int, int, bool]]:
    parts = []
    if a[0] < 0:
        parts.append((a[0] + top, min(a[1], -1) + top, True))
    if a[1] >= 0:
        parts.append((max(a[0], 0), int(a[1]), False))
    return parts


# The four searches below go through the bits from the top: H. S. Warren, Hacker's Delight,
# section 4-3. Raising a lower end to the next multiple of a bit frees all bits below it;
# lowering an upper end to just under such a multiple sets them.


def _least_or(a: int, a_high: int, b: int, b_high: int, bit: int) -> int:
    while bit:
        if (a ^ b) & bit:
            if b & bit:
                raised = (a | bit) & -bit
                if raised <= a_high:
                    return raised | b
            else:
                raised = (b | bit) & -bit
                if raised <= b_high:
                    return a | raised
        bit >>= 1
    return a | b


def _greatest_or(a_low: int, a: int, b_low: int, b: int, bit: int) -> int:
    while bit:
        if a & b & bit:
            lowered = (a - bit) | (bit - 1)
            if lowered >= a_low:
                return lowered | b
            lowered = (b - bit) | (bit - 1)
            if lowered >= b_low:
                return a | lowered
        bit >>= 1
    return a | b


def _least_xor(a: int, a_high: int, b: int, b_high: int, bit: int) -> int:
    while bit:
        if (a ^ b) & bit:
            if b & bit:
                raised = (a | bit) & -bit
                if raised <= a_high:
                    a = raised
            else:
                raised = (b | bit) & -bit
                if raised <= b_high:
                    b = raised
        bit >>= 1
    return a ^ b


def _greatest_xor(a_low: int, a: int, b_low: int, b: int, bit: int) -> int:
    while bit:
        if a & b & bit:
            lowered = (a - bit) | (bit - 1)
            if lowered >= a_low:
                a = lowered
            else:
                lowered = (b - bit) | (bit - 1)
                if lowered >= b_low:
                    b = lowered
        bit >>= 1
    return a ^ b
