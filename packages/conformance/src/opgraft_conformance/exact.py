"""EXP, EXP2, LOG2 and SIN to hundreds of bits, in integers: what devices' results are measured by.

Numbers are fixed-point: integers in units of 2**-bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Final

BITS: Final = 320
"""Enough for what is neither huge nor tiny: the worst argument of a sine cancels 62 bits."""


@cache
def pi(bits: int) -> int:
    """By Machin's formula: pi/4 = 4 atan(1/5) - atan(1/239)."""
    return 4 * (4 * _inverse_tangent(5, bits) - _inverse_tangent(239, bits))


def _inverse_tangent(inverse: int, bits: int) -> int:
    """atan(1/inverse)."""
    power, total, sign, odd = (1 << bits) // inverse, 0, 1, 1
    while power:
        total += sign * (power // odd)
        power //= inverse * inverse
        sign, odd = -sign, odd + 2
    return total


@cache
def ln2(bits: int) -> int:
    """The natural logarithm of 2: 2 atanh(1/3)."""
    return 2 * _atanh((1 << bits) // 3, bits)


def _atanh(x: int, bits: int) -> int:
    sign, power = (-1 if x < 0 else 1), abs(x)
    square, total, odd = (x * x) >> bits, 0, 1
    while power:
        total += power // odd
        power = (power * square) >> bits
        odd += 2
    return sign * total


def _fixed(x: Fraction, bits: int) -> int:
    return (x.numerator << bits) // x.denominator


def exp(x: float) -> Fraction:
    """e**x for a finite x of moderate size."""
    whole = math.floor(x / math.log(2))
    return _exponential(_fixed(Fraction(x), BITS) - whole * ln2(BITS)) * Fraction(2) ** whole


def exp2(x: float) -> Fraction:
    """2**x for a finite x of moderate size."""
    whole = math.floor(x)
    power = (_fixed(Fraction(x) - whole, BITS) * ln2(BITS)) >> BITS
    return _exponential(power) * Fraction(2) ** whole


def _exponential(power: int) -> Fraction:
    """e to a small power."""
    term, total, n = 1 << BITS, 0, 0
    while term:
        total += term
        n += 1
        term = ((term * power) >> BITS) // n
    return Fraction(total, 1 << BITS)


def log2(x: float) -> Fraction:
    """The logarithm to the base 2 of a finite x > 0."""
    exact = Fraction(x)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    mantissa = exact / Fraction(2) ** exponent
    if mantissa > Fraction(3, 2):  # near 1 the logarithm is small, and keeps its digits
        mantissa, exponent = mantissa / 2, exponent + 1
    elif mantissa < Fraction(3, 4):
        mantissa, exponent = mantissa * 2, exponent - 1
    natural = 2 * _atanh(_fixed((mantissa - 1) / (mantissa + 1), BITS), BITS)
    return Fraction(natural, ln2(BITS)) + exponent


def sin(x: float) -> Fraction:
    """The sine of a finite x, whatever its size."""
    # a huge argument needs as many digits of pi as it has, a tiny one as many of itself
    size = abs(math.frexp(x)[1])
    bits = BITS if size < 64 else 2 * BITS + size
    fixed = _fixed(Fraction(x), bits)
    quarter = pi(bits) >> 1
    turns = (2 * fixed + quarter) // (2 * quarter)
    rest = fixed - turns * quarter
    value = _series(1 << bits, rest, 0, bits) if turns & 1 else _series(rest, rest, 1, bits)
    return Fraction(-value if turns & 2 else value, 1 << bits)


def _series(term: int, x: int, n: int, bits: int) -> int:
    """term - term*x**2 / ((n+1)*(n+2)) + ...: the cosine of x from 1 on, the sine from x on."""
    square, total = (x * x) >> bits, 0
    sign, term = (-1 if term < 0 else 1), abs(term)
    while term:
        total += sign * term
        term = ((term * square) >> bits) // ((n + 1) * (n + 2))
        sign, n = -sign, n + 2
    return total


FUNCTIONS: Final[dict[str, Callable[[float], Fraction]]] = {
    "EXP": exp,
    "EXP2": exp2,
    "LOG2": log2,
    "SIN": sin,
}
