"""Interval arithmetic on floats: the least and greatest value, and whether nan is possible.

An interval is a triple (least, greatest, nan). The two ends speak only of values that are not
nan, and compare as numbers: an end of 0.0 covers -0.0 too. Ends are rounded as the operation
rounds, which is sound because rounding to nearest never changes the order of two results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from opgraft.dtype import DType
from opgraft.ir.evaluate import alu
from opgraft.ir.intervals import Interval
from opgraft.ir.ops import Ops

FloatInterval: TypeAlias = tuple[Any, ...]  # (least, greatest, nan)

UNKNOWN: Final[FloatInterval] = (-math.inf, math.inf, True)


def constant(value: float) -> FloatInterval:
    return UNKNOWN if value != value else (value, value, False)


def union(a: FloatInterval, b: FloatInterval) -> FloatInterval:
    return min(a[0], b[0]), max(a[1], b[1]), a[2] or b[2]


def add(dtype: DType, a: FloatInterval, b: FloatInterval) -> FloatInterval:
    opposed = (a[1] == math.inf and b[0] == -math.inf) or (a[0] == -math.inf and b[1] == math.inf)
    low, high = a[0] + b[0], a[1] + b[1]
    return (
        dtype.const(low) if low == low else -math.inf,
        dtype.const(high) if high == high else math.inf,
        a[2] or b[2] or opposed,
    )


def multiply(dtype: DType, a: FloatInterval, b: FloatInterval) -> FloatInterval:
    low, high = _product(a, b)
    nan = a[2] or b[2] or (_has_zero(a) and _has_infinity(b)) or (_has_infinity(a) and _has_zero(b))
    return dtype.const(low), dtype.const(high), nan


def square(dtype: DType, a: FloatInterval) -> FloatInterval:
    """A value times itself."""
    small, large = sorted((abs(a[0]), abs(a[1])))
    low = 0.0 if _has_zero(a) else small
    return dtype.const(low * low), dtype.const(large * large), a[2]


def _product(a: FloatInterval, b: FloatInterval) -> Interval:
    # 0 times infinity is nan, and what is near it is either end: 0 stands for it
    corners = [x * y if x and y else 0.0 for x in a[:2] for y in b[:2]]
    return min(corners), max(corners)


def divide(dtype: DType, a: FloatInterval, b: FloatInterval) -> FloatInterval:
    nan = a[2] or b[2] or (_has_zero(a) and _has_zero(b)) or (_has_infinity(a) and _has_infinity(b))
    if _has_zero(b):  # of either sign
        return -math.inf, math.inf, nan
    corners: list[float] = []
    for x in a[:2]:
        for y in b[:2]:
            if math.isinf(x) and math.isinf(y):
                corners += (0.0, x if y > 0 else -x)
            else:
                corners.append(x / y)
    return dtype.const(min(corners)), dtype.const(max(corners)), nan


def modulo(dtype: DType, a: FloatInterval, b: FloatInterval) -> FloatInterval:
    """The remainder lies between 0 and the divisor, which rounding can make it reach."""
    low, high = min(b[0], 0.0), max(b[1], 0.0)
    if a[0] >= 0.0 and b[0] > 0.0:
        high = min(high, a[1])
    if a[1] <= 0.0 and b[1] < 0.0:
        low = max(low, a[0])
    return low, high, a[2] or b[2] or _has_infinity(a) or _has_zero(b)


def maximum(dtype: DType, a: FloatInterval, b: FloatInterval) -> FloatInterval:
    return max(a[0], b[0]), max(a[1], b[1]), a[2] or b[2]


def minimum(dtype: DType, a: FloatInterval, b: FloatInterval) -> FloatInterval:
    return min(a[0], b[0]), min(a[1], b[1]), a[2] or b[2]


def multiply_accumulate(
    dtype: DType, a: FloatInterval, b: FloatInterval, c: FloatInterval
) -> FloatInterval:
    if _has_infinity(a) or _has_infinity(b) or _has_infinity(c):
        return UNKNOWN
    kinds = (dtype, dtype, dtype)
    low = min(alu(Ops.MULACC, dtype, kinds, (x, y, c[0])) for x in a[:2] for y in b[:2])
    high = max(alu(Ops.MULACC, dtype, kinds, (x, y, c[1])) for x in a[:2] for y in b[:2])
    return low, high, a[2] or b[2] or c[2]


def square_root(dtype: DType, a: FloatInterval) -> FloatInterval:
    if a[1] < 0.0:
        return UNKNOWN  # nan whatever the value
    low, high = math.sqrt(max(a[0], 0.0)), math.sqrt(a[1]) if a[1] > 0.0 else 0.0
    return dtype.const(low), dtype.const(high), a[2] or a[0] < 0.0


def truncate(dtype: DType, a: FloatInterval) -> FloatInterval:
    return _whole_part(a[0]), _whole_part(a[1]), a[2]


def _whole_part(value: float) -> float:
    return value if math.isinf(value) else float(math.trunc(value))


def exponential(dtype: DType, a: FloatInterval) -> FloatInterval:
    """e**a or 2**a: the expansion is within a few units of the last place, so ends are widened."""
    high = math.inf
    if a[1] <= 0.0:
        high = 1.0 + 4.0 * _unit(dtype)
    return 0.0, high, a[2]


def logarithm(dtype: DType, a: FloatInterval) -> FloatInterval:
    return -math.inf, math.inf, a[2] or a[0] < 0.0


def sine(dtype: DType, a: FloatInterval) -> FloatInterval:
    """Within one, but for the error that docs/meaning.md allows."""
    most = 1.0 + 4.0 * _unit(dtype)
    return -most, most, a[2] or _has_infinity(a)


def _unit(dtype: DType) -> float:
    return math.ldexp(1.0, -dtype.mantissa)


def combined(dtype: DType, op: Ops, value: FloatInterval, count: Interval) -> FloatInterval:
    """The values of one interval combined by a reducing `op` in any order, `count` of them."""
    low, high, nan = value
    if op in (Ops.MAX, Ops.MIN):
        if count[0] <= 0:
            return (-math.inf, high, nan) if op is Ops.MAX else (low, math.inf, nan)
        return value
    if op is Ops.ADD:
        # the error of a sum in any order is below its length times half a unit of each partial sum
        size = max(-low, high)
        exact_enough = count[1] * _unit(dtype) < 0.5
        limit = 2.0 * size * count[1] if size and exact_enough else (math.inf if size else 0.0)
        if limit > _largest(dtype):
            limit = math.inf
        return (
            0.0 if low >= 0.0 else -limit,
            0.0 if high <= 0.0 else limit,
            nan or (low < 0.0 < high and limit == math.inf),
        )
    if op is Ops.MUL and low >= 0.0:
        return 0.0, (1.0 if high <= 1.0 else math.inf), nan or low < 1.0 < high
    if op is Ops.MUL and low >= -1.0 and high <= 1.0:
        return -1.0, 1.0, nan
    return UNKNOWN


def _largest(dtype: DType) -> float:
    return math.ldexp(1.0, 1 << (dtype.exponent - 1)) if dtype.exponent < 11 else 1.79e308


def less(a: FloatInterval, b: FloatInterval) -> Interval:
    """Comparisons with nan are false, so only a proof of true needs its absence."""
    if a[0] >= b[1]:
        return False, False
    return bool(a[1] < b[0]) and not (a[2] or b[2]), True


def equal(a: FloatInterval, b: FloatInterval) -> Interval:
    if a[1] < b[0] or b[1] < a[0]:
        return False, False
    return bool(a[0] == a[1] == b[0] == b[1]) and not (a[2] or b[2]), True


def _has_zero(a: FloatInterval) -> bool:
    return bool(a[0] <= 0.0 <= a[1])


def _has_infinity(a: FloatInterval) -> bool:
    return bool(a[0] == -math.inf or a[1] == math.inf)


BINARY: Final[dict[Ops, Callable[[DType, FloatInterval, FloatInterval], FloatInterval]]] = {
    Ops.ADD: add,
    Ops.MUL: multiply,
    Ops.FDIV: divide,
    Ops.MOD: modulo,
    Ops.MAX: maximum,
    Ops.MIN: minimum,
}
UNARY: Final[dict[Ops, Callable[[DType, FloatInterval], FloatInterval]]] = {
    Ops.SQRT: square_root,
    Ops.TRUNC: truncate,
    Ops.EXP: exponential,
    Ops.EXP2: exponential,
    Ops.LOG2: logarithm,
    Ops.SIN: sine,
}
