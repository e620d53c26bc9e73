"""The error function, by two polynomials interpolated at Chebyshev nodes (with mpmath, 60 digits).

Below 1: erf(x) = x * P(x**2). From 1 on: erf(x) = 1 - exp(-x**2) * Q((x - 2) / (x + 2)), until
the second term rounds away. Within 2 ulp in float32 and float64.
"""

from __future__ import annotations

import math
from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.algebra import (
    absolute,
    choose,
    copy_sign,
    div,
    is_nan,
    less,
    like,
    minimum,
    mul,
    scale,
    shifted,
    sub,
)
from opgraft_tensor.graph import elementwise

# highest power first; the argument at which erf has reached 1
_SMALL: Final[dict[DType, tuple[float, ...]]] = {
    dtypes.float32: (
        7.875875062685488e-05,
        -0.000801686428716587,
        0.005189087423433974,
        -0.026854212010626412,
        0.11283594715160218,
        -0.37612626666720334,
        1.1283791658483509,
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
        1.1283791670955126,
    ),
}
_LARGE: Final[dict[DType, tuple[float, ...]]] = {
    dtypes.float32: (
        4.9876741933444445e-05,
        -0.0009395269021825955,
        -0.0008476555786712168,
        0.006993954025083926,
        0.0037329080273491746,
        -0.07897847314706918,
        0.24165819411285702,
        -0.42718584831165,
        0.25539567631050575,
    ),
    dtypes.float64: (
        -2.992083159656815e-08,
        1.0599753079203089e-07,
        8.22026259674723e-08,
        -1.5712486225792008e-07,
        -5.022472940496373e-07,
        -4.086889531377557e-07,
        1.1924348155131436e-06,
        3.7492294331455126e-06,
        1.3937647275858412e-06,
        -1.3961467042970603e-05,
        -2.758043996166221e-05,
        2.7524861673829758e-05,
        0.0001743612315319066,
        4.355563606906135e-05,
        -0.0009819770300762522,
        -0.0008471432519742267,
        0.006997461739289944,
        0.003732892404344556,
        -0.07897858101573309,
        0.24165819424246635,
        -0.4271858474139584,
        0.25539567631050575,
    ),
}
_REACHED: Final = {dtypes.float32: 4.0, dtypes.float64: 6.0}


def horner(variable: UOp, coefficients: tuple[float, ...]) -> UOp:
    """The polynomial with these coefficients, of the highest power first."""
    result = like(variable, coefficients[0])
    for coefficient in coefficients[1:]:
        result = shifted(mul(result, variable), coefficient)
    return result


def error_function(a: UOp) -> UOp:
    """erf of float32 or float64."""
    size = absolute(a)
    small = mul(size, horner(mul(size, size), _SMALL[a.dtype]))
    reached = minimum(size, like(a, _REACHED[a.dtype]))
    place = div(shifted(reached, -2), shifted(reached, 2))
    bell = elementwise(Ops.EXP2, scale(mul(reached, reached), -1 / math.log(2)))
    large = sub(like(a, 1), mul(bell, horner(place, _LARGE[a.dtype])))
    result = copy_sign(choose(less(size, like(a, 1)), small, large), a)
    return choose(is_nan(a), a, result)
