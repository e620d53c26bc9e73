"""The power of two floats, by a logarithm that is half as long again as the dtype.

x**y = 2**(y * log2(x)), and y * log2(x) goes up to 128 (1024): the logarithm as it rounds would
cost 7 (10) bits of the result. So it is carried as a sum of two numbers, and its product with y
as one, too; sums and products that must be exact are of numbers cut short (`_short`).

    x = 2**e * m        m in [sqrt(1/2), sqrt(2)), from the bits
    b                   3/4, 1 or 5/4, whichever is near m
    s = (m-b) / (m+b)   below 0.072: log(m) = log(b) + 2 * (s + s**3/3 + s**5/5 + ...)

Its power of 2 is 2**k * (1 + w), with w as a sum of two: but for the last bits of the logarithm
only the last addition rounds, so a power that is a float comes out exact nearly always.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.algebra import (
    absolute,
    add,
    as_rounded,
    bitcast,
    bits_of,
    both,
    choose,
    div,
    either,
    equal,
    less,
    like,
    maximum,
    minimum,
    mul,
    neg,
    scale,
    shifted,
    sub,
    truncate,
    unequal,
)
from opgraft_tensor.errorfunction import horner
from opgraft_tensor.exponential import LN_2
from opgraft_tensor.graph import elementwise


class _Format(NamedTuple):
    """The constants for one dtype; pairs are a short number and the rest."""

    cut: int  # low bits of the mantissa to clear, so that products of two such numbers are exact
    root: int  # the bits of sqrt(1/2)
    low: tuple[float, float]  # log2(3/4)
    high: tuple[float, float]  # log2(5/4)
    factor: tuple[float, float]  # 2/ln(2)
    terms: int  # of the series
    ln2: tuple[float, float]
    exponents: tuple[float, float]  # of 2: from here on the power is 0 or infinite
    power: tuple[float, ...]  # (2**g - 1 - g * ln(2)) / g**2, |g| <= 1/2, highest power first
    enough: float  # no larger exponent makes a difference


_FACTOR: Final = 2.8853900817779268
_FORMATS: Final[dict[DType, _Format]] = {
    dtypes.float32: _Format(
        cut=12,
        root=0x3F3504F3,
        low=(-0.4150390625, 1.5632211561814537e-06),
        high=(0.321929931640625, -1.8367532626521296e-06),
        factor=(2.8857421875, -0.0003521057220731853),
        terms=3,
        ln2=(355 / 512, -0.00021219444005469057),
        exponents=(-151.0, 129.0),
        power=(
            0.0001532724709250033,
            0.0013390198582783341,
            0.009618503972887993,
            0.05550362169742584,
            0.24022647738456726,
        ),
        enough=2.0**40,
    ),
    dtypes.float64: _Format(
        cut=27,
        root=0x3FE6A09E667F3BCD,
        low=(-0.4150374992786965, -1.4733181985781966e-13),
        high=(0.32192809488697094, 3.914087556296025e-13),
        factor=(2.8853900730609894, 8.716937434837037e-09),
        terms=8,
        ln2=(45426 / 65536, 1.4286068203094172e-06),
        exponents=(-1076.0, 1025.0),
        power=(
            4.4378054969765635e-10,
            7.073640172087216e-09,
            1.01781746213708e-07,
            1.3215436213408604e-06,
            1.5252733570696187e-05,
            0.00015403530454973714,
            0.0013333558146662661,
            0.009618129107596133,
            0.05550410866482081,
            0.24022650695910125,
        ),
        enough=2.0**70,
    ),
}


def float_power(a: UOp, b: UOp) -> UOp:
    """a ** b of float32 or float64, with the edge values of C's pow."""
    size = absolute(a)
    one, zero = like(a, 1), like(a, 0)
    result = _of_magnitude(size, b)
    # 0 and infinity: themselves, or the other one
    endless = either(equal(size, zero), equal(size, like(a, math.inf)))
    result = choose(endless, choose(less(b, zero), div(one, size), size), result)
    whole = equal(truncate(b), b)
    half = scale(b, 0.5)
    odd = both(whole, unequal(truncate(half), half))
    bits = bits_of(a)
    result = choose(both(less(bits, like(bits, 0)), odd), neg(result), result)
    # a negative number has a power if the exponent is an integer, -inf and -0.0 have all
    below = both(both(less(a, zero), less(size, like(a, math.inf))), unequal(truncate(b), b))
    lost = either(below, either(unequal(a, a), unequal(b, b)))
    result = choose(lost, math.nan, result)
    # 1 ** anything, anything ** 0, and (-1) ** (+-inf)
    minus = both(equal(a, like(a, -1)), equal(absolute(b), like(b, math.inf)))
    certain = either(either(equal(b, zero), equal(a, one)), minus)
    return choose(certain, one, result)


def _of_magnitude(size: UOp, exponent: UOp) -> UOp:
    """size ** exponent of a positive finite number."""
    form = _FORMATS[size.dtype]
    high, low = _logarithm(size, form)
    # beyond this the result is 0, 1 or infinite, and no product overflows
    exponent = choose(less(like(size, form.enough), exponent), form.enough, exponent)
    exponent = choose(less(exponent, like(size, -form.enough)), -form.enough, exponent)
    front = _short(high, form)
    rest = add(sub(high, front), low)
    first = _short(exponent, form)
    main = mul(first, front)
    more = add(mul(sub(exponent, first), front), mul(exponent, rest))
    return _power_of_two(main, more)


def _power_of_two(high: UOp, low: UOp) -> UOp:
    """2 to the power of the sum of two finite numbers, the second much smaller than the first."""
    dtype, form = high.dtype, _FORMATS[high.dtype]
    least, most = (like(high, end) for end in form.exponents)
    inside = both(less(least, high), less(high, most))
    high, low = minimum(maximum(high, least), most), choose(inside, low, 0)
    bias, mantissa = (1 << (dtype.exponent - 1)) - 1, dtype.mantissa
    # added to a small number, this leaves in the lowest bits the nearest integer and twice the bias
    magic = 1.5 * 2.0**mantissa + 2 * bias
    moved = as_rounded(shifted(add(high, low), magic))
    f = sub(high, shifted(moved, -magic))
    g = add(f, low)
    front = _short(g, form)
    back = add(sub(g, front), add(sub(f, g), low))
    leading = scale(front, form.ln2[0])
    series = mul(mul(g, g), horner(g, form.power))
    small = add(series, add(scale(front, form.ln2[1]), scale(back, LN_2)))
    total = shifted(leading, 1)
    power = add(total, add(add(sub(like(total, 1), total), leading), small))
    # as two factors, so that only the last product rounds to a subnormal
    exponent = bits_of(moved)
    half = elementwise(Ops.SHR, exponent, like(exponent, 1))
    for part in (half, sub(exponent, half)):
        factor = elementwise(Ops.SHL, part, like(part, mantissa))
        power = mul(power, bitcast(factor, dtype))
    return power


def _short(a: UOp, form: _Format) -> UOp:
    """The number with its low bits cleared: what it loses is exactly a minus the result."""
    bits = bits_of(a)
    mask = graph.full((), bits.dtype, -(1 << form.cut))
    return bitcast(elementwise(Ops.AND, bits, mask), a.dtype)


def _logarithm(size: UOp, form: _Format) -> tuple[UOp, UOp]:
    """log2 of a positive finite number, as a sum of two."""
    dtype = size.dtype
    bias, mantissa = (1 << (dtype.exponent - 1)) - 1, dtype.mantissa
    tiny = less(size, like(size, 2.0 ** (1 - bias)))
    normal = choose(tiny, scale(size, 2.0**mantissa), size)
    # the exponent grows by one exactly where m would be sqrt(2) or more
    moved = shifted(bits_of(normal), (bias << mantissa) - form.root)
    exponent = elementwise(Ops.SHR, moved, like(moved, mantissa))
    fraction = elementwise(Ops.AND, moved, like(moved, (1 << mantissa) - 1))
    m = bitcast(shifted(fraction, form.root), dtype)
    e = shifted(graph.cast(exponent, dtype), -bias)
    e = choose(tiny, shifted(e, -mantissa), e)

    under, over = less(m, like(m, 0.866)), less(like(m, 1.118), m)
    near = choose(under, 0.75, choose(over, like(m, 1.25), like(m, 1)))
    of_near = choose(under, form.low[0], choose(over, like(m, form.high[0]), like(m, 0)))
    of_rest = choose(under, form.low[1], choose(over, like(m, form.high[1]), like(m, 0)))

    # s as front + back, of a division that only has to come close
    away, total = sub(m, near), add(m, near)
    dropped = sub(m, sub(total, near))
    inverse = div(like(m, 1), total)
    s = mul(away, inverse)
    front, divisor = _short(s, form), _short(total, form)
    remainder = sub(away, mul(front, divisor))
    remainder = sub(remainder, mul(front, add(sub(total, divisor), dropped)))
    back = mul(remainder, inverse)

    square = mul(s, s)
    series = tuple([1 / (2 * k + 1) for k in range(form.terms, 0, -1)])
    small = add(back, mul(mul(s, square), horner(square, series)))
    leading = scale(front, form.factor[0])
    trailing = add(scale(front, form.factor[1]), scale(small, _FACTOR))
    whole = add(e, of_near)
    high = add(whole, leading)
    lost = add(sub(whole, high), leading)
    return high, add(lost, add(trailing, of_rest))
