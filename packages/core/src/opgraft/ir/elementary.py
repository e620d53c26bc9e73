"""EXP2, LOG2 and SIN as graphs of additions, multiplications, comparisons and bit operations.

The graph is the definition: folding evaluates it, INTERP runs it, every device computes it, so
all give the same bits. It uses no fused multiply-add, no table, no branch and no loop, and is
the same for every lane of a vector. float16 and bfloat16 go by way of float32 and round once.

Errors, measured against mpmath (tests/ir/test_elementary.py), in units in the last place:

| | float32 | float64 |
|---|---|---|
| EXP2 | 1.07 | 1.02 |
| LOG2 | 0.82 | 0.74 |
| SIN | 1.50 | 1.40 |

Polynomials are near-minimax (weighted least squares with Lawson's iteration, in 200 bits), each
coefficient rounded before the next ones are fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from opgraft.dtype import DType, Scalar, dtypes
from opgraft.forking import ForkLock
from opgraft.ir.evaluate import evaluate
from opgraft.ir.expansions import lanes_of
from opgraft.ir.ops import Ops
from opgraft.ir.payne_hanek import reduce_huge
from opgraft.ir.uop import UOp


@dataclass(frozen=True)
class _Format:
    """The constants of the three functions for one float dtype."""

    dtype: DType
    bits: DType
    exp2: tuple[float, ...]  # (2**f - 1) / f for f in [-1/2, 1/2], lowest power first
    exp2_range: tuple[float, float]  # from here on the result is 0 or inf
    log: tuple[float, ...]
    inverse_ln2: tuple[float, float]  # 1/ln(2) in two parts; the first is short
    short: int  # how many low bits of the mantissa to clear for a product with it to be exact
    half_pi: tuple[float, ...]  # parts of pi/2; all but the last are short
    two_over_pi: float
    light: float  # up to here these parts reduce an argument exactly enough
    sin: tuple[float, ...]  # (sin(r)/r - 1) / r**2 in r**2, for |r| <= pi/4
    cos: tuple[float, ...]  # (cos(r) - 1) / r**2 in r**2

    @property
    def mantissa(self) -> int:
        return self.dtype.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.dtype.exponent - 1)) - 1

    @property
    def magic(self) -> float:
        """Added to a small number, this leaves it rounded to an integer in the lowest bits."""
        return 1.5 * 2.0**self.mantissa


_FLOAT32: Final = _Format(
    dtype=dtypes.float32,
    bits=dtypes.uint32,
    exp2=(
        0.6931471824645996,
        0.24022647738456726,
        0.05550359562039375,
        0.009618500247597694,
        0.0013390971580520272,
        0.00015328887093346566,
    ),
    exp2_range=(-151.0, 129.0),
    log=(
        0.3333333134651184,
        -0.250008225440979,
        0.2000124603509903,
        -0.16623325645923615,
        0.14201496541500092,
        -0.13160288333892822,
        0.1276262104511261,
        -0.07634885609149933,
    ),
    inverse_ln2=(1.4423828125, 0.00031222839606925845),
    short=12,
    half_pi=(1.5703125, 0.0004837512969970703, 7.549533620476723e-08, 2.5633440682570896e-12),
    two_over_pi=0.6366197466850281,
    light=4096.0,
    sin=(-0.16666655242443085, 0.008332188241183758, -0.00019518057524692267),
    cos=(-0.5, 0.04166664555668831, -0.0013887309469282627, 2.4432329155388288e-05),
)
_FLOAT64: Final = _Format(
    dtype=dtypes.float64,
    bits=dtypes.uint64,
    exp2=(
        0.6931471805599453,
        0.24022650695910108,
        0.055504108664821715,
        0.009618129107601571,
        0.0013333558146548,
        0.0001540353044909318,
        1.5252733632596202e-05,
        1.3215438804887616e-06,
        1.0178160515984547e-07,
        7.073238483666701e-09,
        4.4388053707688227e-10,
    ),
    exp2_range=(-1076.0, 1025.0),
    log=(
        0.6666666666666735,
        0.3999999999941087,
        0.28571428743097843,
        0.22222198510073282,
        0.18183567234211193,
        0.1531398341395117,
        0.14796564136521007,
    ),
    inverse_ln2=(1.4426946640014648, 3.768874985636099e-07),
    short=32,
    half_pi=(1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21),
    two_over_pi=0.6366197723675814,
    light=1048576.0,
    sin=(
        -0.1666666666666663,
        0.008333333333321879,
        -0.0001984126982940802,
        2.755731356030176e-06,
        -2.5050738351835678e-08,
        1.5895688718411314e-10,
    ),
    cos=(
        -0.5,
        0.041666666666666595,
        -0.001388888888887331,
        2.4801587288966114e-05,
        -2.7557314202988257e-07,
        2.087570306880417e-09,
        -1.1358610136923621e-11,
    ),
)
_FORMATS: Final = {dtypes.float32: _FLOAT32, dtypes.float64: _FLOAT64}


def expansion(op: Ops, x: UOp) -> UOp:
    """The graph of EXP2, LOG2 or SIN of a float, scalar or vector.

    >>> x = UOp.variable("x", 0.0, 1.0, dtypes.float32)
    >>> expansion(Ops.EXP2, x).dtype
    dtypes.float32
    """
    function = {Ops.EXP2: _exp2, Ops.LOG2: _log2, Ops.SIN: _sin}[op]
    form = _FORMATS.get(x.dtype.scalar)
    if form is not None:
        return function(x, form)
    if not x.dtype.is_float:
        raise TypeError(f"{op} takes a float, not {x.dtype}")
    return function(x.cast(lanes_of(dtypes.float32, x)), _FLOAT32).cast(x.dtype)


def _polynomial(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    result = x.const_like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def _as_bits(x: UOp, form: _Format) -> UOp:
    return x.bitcast(lanes_of(form.bits, x))


def _magic_bits(form: _Format) -> int:
    """The bits of `magic`: exponent and a leading half."""
    return ((form.bias + form.mantissa) << form.mantissa) | (1 << (form.mantissa - 1))


def _exp2(x: UOp, form: _Format) -> UOp:
    """2**k * 2**f with k an integer and |f| <= 1/2.

    2**k is applied as two factors, so that only the last multiplication rounds to a subnormal.
    """
    low, high = form.exp2_range
    # an exponential keeps its exponents within these bounds by itself
    if x.vmin < low:
        x = (x < low).where(x.const_like(low), x)
    if x.vmax > high:
        x = (x > high).where(x.const_like(high), x)
    shifted = x + form.magic
    f = x + -(shifted + -form.magic)
    power = _polynomial(f, form.exp2) * f + 1.0
    # k + 2*bias is positive: its two halves are the biased exponents of the factors
    both = _as_bits(shifted, form) + (2 * form.bias - _magic_bits(form))
    half = both >> 1
    first = (half << form.mantissa).bitcast(x.dtype)
    second = ((both - half) << form.mantissa).bitcast(x.dtype)
    return power * first * second


def _log2(x: UOp, form: _Format) -> UOp:
    """e + log2(m) with m in [sqrt(1/2), sqrt(2)), m and e from the bits.

    log(m) is f - f*f/2 + ... with f = m - 1; its leading part is cut short, so that the product
    with the short part of 1/ln(2) is exact and only small terms round (as in FreeBSD's e_log2.c).
    """
    tiny = x < 2.0 ** (1 - form.bias)
    normal = tiny.where(x * 2.0**form.mantissa, x)
    root = _root_half(form)
    # the biased exponent grows by one exactly where m would be sqrt(2) or more
    moved = _as_bits(normal, form) + ((form.bias << form.mantissa) - root)
    exponent = moved >> form.mantissa
    m = ((moved & ((1 << form.mantissa) - 1)) + root).bitcast(x.dtype)
    # a small integer in the low bits of 2**mantissa
    whole = (exponent | ((form.bias + form.mantissa) << form.mantissa)).bitcast(x.dtype)
    offset = 2.0**form.mantissa + form.bias
    e = whole + tiny.where(x.const_like(-offset - form.mantissa), x.const_like(-offset))

    f = m + -1.0
    half_square = f * f * 0.5
    if form is _FLOAT32:
        rest = _polynomial(f, form.log) * (f * f * f)
    else:
        s = f / (f + 2.0)
        z = s * s
        rest = s * (half_square + z * _polynomial(z, form.log))
    high = f - half_square
    mask = (1 << form.bits.bits) - (1 << form.short)
    high = (_as_bits(high, form) & mask).bitcast(x.dtype)
    low = (f - high) - half_square + rest
    long, short = form.inverse_ln2[1], form.inverse_ln2[0]
    leading = high * short
    small = (low + high) * long + low * short
    total = e + leading
    result = total + (((e - total) + leading) + small)

    result = (x < math.inf).where(result, x)
    at_most_0 = x.eq(0.0).where(x.const_like(-math.inf), x.const_like(math.nan))
    return (x > 0.0).where(result, at_most_0)


def _root_half(form: _Format) -> int:
    """The bits of sqrt(1/2)."""
    return {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}[form.mantissa]


def _sin(x: UOp, form: _Format) -> UOp:
    """The sine or cosine of r, by k modulo 4, with |x| = k*pi/2 + r, |r| <= pi/4."""
    size, sign = _size_and_sign(x, form)
    r, k = _light_reduction(size, form)
    huge, huge_k = reduce_huge(size)
    large = size > form.light
    return _sin_of_reduced(large.where(huge, r), large.where(huge_k, k), sign, form)


def light_sine(x: UOp) -> tuple[UOp, UOp]:
    """SIN of a float32 or float64 that is not large, and where it is: there the value is wrong.

    For renderers that can branch: the reduction of large arguments is most of the work. Where
    the second is false, the bits are those of the whole expansion.
    """
    form = _FORMATS[x.dtype.scalar]
    size, sign = _size_and_sign(x, form)
    r, k = _light_reduction(size, form)
    return _sin_of_reduced(r, k, sign, form), size > form.light


def _size_and_sign(x: UOp, form: _Format) -> tuple[UOp, UOp]:
    bits = _as_bits(x, form)
    sign = bits & (1 << (form.bits.bits - 1))
    return (bits ^ sign).bitcast(x.dtype), sign


def _sin_of_reduced(r: UOp, k: UOp, sign: UOp, form: _Format) -> UOp:
    """One polynomial for both: first + first * z * P(z) with r or 1 first, and z = r * r."""
    cosine = (k & 1).ne(0)
    z = r * r
    first = cosine.where(r.const_like(1.0), r)
    terms = len(form.cos)
    chosen = [
        cosine.where(r.const_like(c), r.const_like(s))
        for c, s in zip(form.cos, form.sin + (0.0,) * (terms - len(form.sin)), strict=True)
    ]
    polynomial = chosen[-1]
    for coefficient in reversed(chosen[:-1]):
        polynomial = polynomial * z + coefficient
    value = first + first * z * polynomial
    top = form.bits.bits - 1
    return (_as_bits(value, form) ^ ((k << (top - 1)) & (1 << top)) ^ sign).bitcast(r.dtype)


def _light_reduction(size: UOp, form: _Format) -> tuple[UOp, UOp]:
    """r, and k in the lowest bits of an integer, by Cody and Waite's parts of pi/2."""
    shifted = size * form.two_over_pi + form.magic
    k = shifted + -form.magic
    r = size
    for part in form.half_pi[:-2]:
        r = r + k * -part  # exact
    step = k * -form.half_pi[-2]
    sum_ = r + step
    lost = (r - sum_) + step
    return sum_ + (lost + k * -form.half_pi[-1]), _as_bits(shifted, form)


_folds: Final[dict[tuple[Ops, DType], tuple[UOp, UOp]]] = {}
_lock: Final = ForkLock()


def fold_elementary(op: Ops, dtype: DType, value: Scalar) -> Scalar:
    """EXP2, LOG2 or SIN of a constant: the value that the compiled graph gives.

    >>> fold_elementary(Ops.EXP2, dtypes.float32, 10.0)
    1024.0
    """
    scalar = dtype.scalar
    with _lock:
        found = _folds.get((op, scalar))
        if found is None:
            x = UOp.variable("x", -math.inf, math.inf, scalar)
            found = _folds[op, scalar] = (x, expansion(op, x))
    x, graph = found
    return evaluate(graph, {x: value})
