"""The error function, by two near-minimax polynomials (with mpmath, 60 digits).

Below 1: erf(x) = x + x * P(x**2). From 1 on: erf(x) = 1 - 2**Q(x), until the second term rounds
away: the logarithm of the rest is smooth, and what Q lacks counts the less the smaller the rest.
Within 1.2 ulp in float32 and float64: the most is just above 1, where the two meet.
"""

from __future__ import annotations

from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.algebra import (
    absolute,
    choose,
    copy_sign,
    less,
    like,
    minimum,
    mul,
    multiply_add,
    sub,
)
from opgraft_tensor.graph import elementwise

# highest power first; _REACHED: the argument at which erf has reached 1
_SMALL: Final[dict[DType, tuple[float, ...]]] = {
    dtypes.float32: (
        7.875875062685488e-05,
        -0.000801686428716587,
        0.005189087423433974,
        -0.026854212010626412,
        0.11283594715160218,
        -0.37612626666720334,
        0.1283791658483509,
    ),
    dtypes.float64: (
        5.957176147748911e-11,
        -1.1372848856791674e-09,
        1.4659775274047436e-08,
        -1.6350312701054695e-07,
        1.6461000484121368e-06,
        -1.4925595266831182e-05,
        0.0001205533111164271,
        -0.000854832698083379,
        0.0052239776248180145,
        -0.026866170645076792,
        0.11283791670954879,
        -0.3761263890318375,
        0.12837916709551257,
    ),
}
_LARGE: Final[dict[DType, tuple[float, ...]]] = {
    dtypes.float32: (
        0.00026886415435001254,
        -0.00425233319401741,
        0.03150470182299614,
        -0.14874956011772156,
        -0.9206507802009583,
        -1.626044511795044,
        -0.0004930859431624413,
    ),
    dtypes.float64: (
        -6.960342868857453e-12,
        2.891272106781778e-10,
        -5.5685172425941635e-09,
        6.576967774964922e-08,
        -5.292513659369352e-07,
        3.028464111634595e-06,
        -1.227836232676824e-05,
        3.2177337672417236e-05,
        -2.7293570730343866e-05,
        -0.00019881872726620342,
        0.001118227870366155,
        -0.002772244253694579,
        0.0006003595275903711,
        0.02739114090513113,
        -0.14816654124516185,
        -0.918483804608237,
        -1.6278994262239443,
        -7.551270717486684e-07,
    ),
}
_REACHED: Final = {dtypes.float32: 4.0, dtypes.float64: 6.0}


def horner(variable: UOp, coefficients: tuple[float, ...]) -> UOp:
    """The polynomial with these coefficients, of the highest power first; each step rounds once."""
    result = like(variable, coefficients[0])
    for coefficient in coefficients[1:]:
        result = multiply_add(result, variable, like(variable, coefficient))
    return result


def error_function(a: UOp) -> UOp:
    """erf of float32 or float64."""
    size = absolute(a)
    bend = horner(mul(size, size), _SMALL[a.dtype])
    small = multiply_add(size, bend, size)
    reached = minimum(size, like(a, _REACHED[a.dtype]))
    large = sub(like(a, 1), elementwise(Ops.EXP2, horner(reached, _LARGE[a.dtype])))
    return copy_sign(choose(less(size, like(a, 1)), small, large), a)
