"""EXP, EXP2, LOG2 and SIN as graphs of additions, multiplications, comparisons and bit operations.

The graph is the definition: folding evaluates it, INTERP runs it, every device computes it, so
all give the same bits. It uses no table, no branch and no loop, and is the same for every lane of
a vector; what bounds exclude costs nothing. float16 and bfloat16 go by way of float32 and round
once. Products are added up by MULACC, which every target has: with one rounding the polynomials
are shorter and more exact.

Errors, measured against mpmath (tests/ir/test_elementary.py), in units in the last place; that
of SIN in float32 on every number. Sines go to 1 and not beyond:

| | float32 | float64 |
|---|---|---|
| EXP | 1.04 | 0.98 |
| EXP2 | 0.88 | 0.81 |
| LOG2 | 1.00 | 0.88 |
| SIN | 1.58 | 1.41 |

Polynomials are near-minimax (weighted least squares with Lawson's iteration, in 200 bits), each
coefficient rounded before the next ones are fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from opgraft.dtype import DType, Scalar, dtypes
from opgraft.forking import ForkLock
from opgraft.ir.bounds import may_be_nan
from opgraft.ir.evaluate import evaluate
from opgraft.ir.expansions import lanes_of
from opgraft.ir.ops import Ops
from opgraft.ir.payne_hanek import reduce_huge
from opgraft.ir.uop import UOp


@dataclass(frozen=True)
class _Format:
    """The constants of the functions for one float dtype."""

    dtype: DType
    bits: DType
    exp2: tuple[float, ...]  # (2**f - 1) / f for f in [-1/2, 1/2], lowest power first
    exp2_range: tuple[float, float]  # from here on the result is 0 or inf
    exp: tuple[float, ...]  # (e**r - 1 - r) / r**2 for |r| <= ln(2)/2
    exp_range: tuple[float, float]
    ln2: tuple[float, float]  # in two parts; the product of the first with any exponent is exact
    log: tuple[float, ...]
    inverse_ln2: tuple[float, float]  # 1/ln(2), and the rest of it
    pi: tuple[float, float, float]  # in parts as long as a mantissa, cut: all of one sign
    inverse_pi: float
    light: float  # up to here these parts reduce an argument exactly enough
    sin: tuple[float, ...]  # (sin(r)/r - 1) / r**2 in r**2, for |r| a little above pi/2

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
    exp=(
        0.4999999403953552,
        0.1666652113199234,
        0.04166825860738754,
        0.008368671871721745,
        0.0013821374159306288,
    ),
    exp_range=(-104.0, 89.0),
    ln2=(355 / 512, -0.00021219444005469057),
    log=(  # (log2(1 + f) - f / ln(2)) / f**2
        -0.7213473320007324,
        0.4808982014656067,
        -0.3606978952884674,
        0.2885701060295105,
        -0.23959535360336304,
        0.20454435050487518,
        -0.19116529822349548,
        0.18653053045272827,
        -0.11014536768198013,
    ),
    inverse_ln2=(1.4426950216293335, 1.925962991126617e-08),
    pi=(3.141592502593994, 1.5099578831723193e-07, 1.078060505991553e-14),
    inverse_pi=0.31830987334251404,
    light=262144.0,
    sin=(
        -0.16666661202907562,
        0.008333069272339344,
        -0.00019808301294688135,
        2.600928837637184e-06,
    ),
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
    exp=(
        0.5000000000000011,
        0.16666666666666433,
        0.04166666666652696,
        0.008333333333482022,
        0.0013888888944349766,
        0.00019841269532906304,
        2.4801492437182884e-05,
        2.7557563256165746e-06,
        2.763046287688752e-07,
        2.500728285462453e-08,
    ),
    exp_range=(-746.0, 710.0),
    ln2=(45426 / 65536, 1.4286068203094172e-06),
    log=(  # 2 * (atanh(s) - s) / s**3 in s**2, s = f / (f + 2)
        0.6666666666666735,
        0.3999999999941087,
        0.28571428743097843,
        0.22222198510073282,
        0.18183567234211193,
        0.1531398341395117,
        0.14796564136521007,
    ),
    inverse_ln2=(1.4426950408889634, 2.0355273740931033e-17),
    pi=(3.141592653589793, 1.224646799147353e-16, 2.1657133478438278e-32),
    inverse_pi=0.3183098861837907,
    light=1073741824.0,
    sin=(
        -0.16666666666666666,
        0.008333333333333207,
        -0.0001984126984121253,
        2.7557319211588845e-06,
        -2.5052106907140184e-08,
        1.6058941182810404e-10,
        -7.643025106086551e-13,
        2.721489779427036e-15,
    ),
)
_FORMATS: Final = {dtypes.float32: _FLOAT32, dtypes.float64: _FLOAT64}


def expansion(op: Ops, x: UOp) -> UOp:
    """The graph of EXP, EXP2, LOG2 or SIN of a float, scalar or vector.

    >>> x = UOp.variable("x", 0.0, 1.0, dtypes.float32)
    >>> expansion(Ops.EXP2, x).dtype
    dtypes.float32
    """
    function = {Ops.EXP: _exp, Ops.EXP2: _exp2, Ops.LOG2: _log2, Ops.SIN: _sin}[op]
    form = _FORMATS.get(x.dtype.scalar)
    if form is not None:
        return function(x, form)
    if not x.dtype.is_float:
        raise TypeError(f"{op} takes a float, not {x.dtype}")
    return function(x.cast(lanes_of(dtypes.float32, x)), _FLOAT32).cast(x.dtype)


def _add_product(a: UOp, b: UOp | float, c: UOp | float) -> UOp:
    """a * b + c, rounded once."""
    operands = [v if isinstance(v, UOp) else a.const_like(v) for v in (b, c)]
    return UOp(Ops.MULACC, a.dtype, (a, *operands))


def _polynomial(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """The lowest power first; by Estrin's scheme, in which few steps wait for one another."""
    terms: list[UOp | float] = list(coefficients)
    while len(terms) > 3:
        pairs = zip(terms[0::2], terms[1::2])
        terms = [*(_add_product(x, b, a) for a, b in pairs), *terms[len(terms) & ~1 :]]
        x = x * x
    result = terms[-1]
    for term in reversed(terms[:-1]):
        result = _add_product(x, result, term)
    assert isinstance(result, UOp)
    return result


def _as_bits(x: UOp, form: _Format) -> UOp:
    return x.bitcast(lanes_of(form.bits, x))


class _Exponent:
    """2**k for the integers next to the numbers from `low` to `high`, as a number is scaled by it.

    One factor where all are floats; or where they are once they are moved, and a constant factor
    that moves the result back, with the only rounding to a subnormal; else two of about the root.
    """

    def __init__(self, form: _Format, low: float, high: float, halves: bool) -> None:
        self.form = form
        least, most = math.floor(low - 0.5), math.ceil(high + 0.5)
        # what is scaled may be a little below 1, and is to stay normal until it is moved back
        room = (2 - form.bias, form.bias)
        moved = max(room[0] - least, 0) or min(room[1] - most, 0)
        # halfway between two integers the even one is taken, k + offset: it has to be even always
        if halves and moved % 2 == 0:
            moved += 1 if moved >= 0 else -1
        self.twice = least + moved < room[0] or most + moved > room[1]
        self.moved = moved
        # added to a small number, this leaves in the lowest bits the integer next to it + offset
        self.magic = 1.5 * 2.0**form.mantissa + form.bias + (form.bias if self.twice else moved)

    def scaled(self, power: UOp, shifted: UOp) -> UOp:
        """A number near 1 times 2**k, where k + magic is given."""
        mantissa, bits = self.form.mantissa, _as_bits(shifted, self.form)
        if not self.twice:
            result = power * (bits << mantissa).bitcast(power.dtype)
            return result * 2.0**-self.moved if self.moved else result
        half = bits >> 1
        for exponent in (half, bits - half):
            power = power * (exponent << mantissa).bitcast(power.dtype)
        return power


def _within(x: UOp, ends: tuple[float, float]) -> tuple[UOp, float, float]:
    """A number or the end that it is beyond, and its bounds; nan stays."""
    low, high = ends
    if x.vmin < low:
        x = (x < low).where(x.const_like(low), x)
    if x.vmax > high:
        x = (x > high).where(x.const_like(high), x)
    return x, max(x.vmin, low), min(x.vmax, high)


def _exp(x: UOp, form: _Format) -> UOp:
    """2**k * e**r with k an integer and r = x - k * ln(2), |r| <= ln(2)/2."""
    x, low, high = _within(x, form.exp_range)
    log2_e = form.inverse_ln2[0]
    exponent = _Exponent(form, low * log2_e, high * log2_e, halves=False)
    shifted = _add_product(x, log2_e, exponent.magic)
    k = shifted + -exponent.magic
    r = _add_product(k, -form.ln2[0], x)  # exact
    r = _add_product(k, -form.ln2[1], r)
    power = _add_product(r * r, _polynomial(r, form.exp), r) + 1.0
    return exponent.scaled(power, shifted)


def _exp2(x: UOp, form: _Format) -> UOp:
    """2**k * 2**f with k an integer and |f| <= 1/2."""
    x, low, high = _within(x, form.exp2_range)
    exponent = _Exponent(form, low, high, halves=True)
    shifted = x + exponent.magic
    f = x + -(shifted + -exponent.magic)
    # the coefficient of f last, by itself: its rounding is the one that is seen
    slope = _add_product(f, _polynomial(f, form.exp2[1:]), form.exp2[0])
    power = _add_product(f, slope, 1.0)
    return exponent.scaled(power, shifted)


def _log2(x: UOp, form: _Format) -> UOp:
    """e + log2(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), it and e from the bits."""
    least = 2.0 ** (1 - form.bias)
    offset = x.const_like(-(2.0**form.mantissa) - form.bias)
    normal = x
    if x.vmin < least:
        tiny = x < least
        normal = tiny.where(x * 2.0**form.mantissa, x)
        offset = tiny.where(offset + float(-form.mantissa), offset)
    root = _root_half(form)
    # the biased exponent grows by one exactly where 1 + f would be sqrt(2) or more
    moved = _as_bits(normal, form) + ((form.bias << form.mantissa) - root)
    m = ((moved & ((1 << form.mantissa) - 1)) + root).bitcast(x.dtype)
    # a small integer in the low bits of 2**mantissa
    whole = (moved >> form.mantissa) | ((form.bias + form.mantissa) << form.mantissa)
    e = whole.bitcast(x.dtype) + offset

    f = m + -1.0
    square = f * f
    first, second = form.inverse_ln2
    rest = f * second
    if form is _FLOAT32:
        curve = _add_product(f, _polynomial(f, form.log[1:]), form.log[0])
        rest = _add_product(square, curve, rest)
    else:  # log(1 + f) = f - half + s * (half + ...)
        half = square * 0.5
        s = f / (f + 2.0)
        z = s * s
        series = _add_product(z, _polynomial(z, form.log), half)
        rest = _add_product(_add_product(s, series, half * -1.0), first, rest)
    result = e + _add_product(f, first, rest)

    if x.vmax == math.inf or may_be_nan(x):
        result = (x < math.inf).where(result, x)
    if x.vmin > 0.0:
        return result
    at_most_0 = x.eq(0.0).where(x.const_like(-math.inf), x.const_like(math.nan))
    return (x > 0.0).where(result, at_most_0)


def _root_half(form: _Format) -> int:
    """The bits of sqrt(1/2)."""
    return {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}[form.mantissa]


def _sin(x: UOp, form: _Format) -> UOp:
    """The sine of r, negative for odd k, with x = k*pi + r, |r| <= pi/2."""
    r, k = _light_reduction(x, form)
    if never_large(x):
        return _sin_of_reduced(r, k, form)
    sign = _as_bits(x, form) & (1 << (form.bits.bits - 1))
    huge, huge_k = reduce_huge(_size(x, form))
    huge = (_as_bits(huge, form) ^ sign).bitcast(x.dtype)
    large = _is_large(x, form)
    return _sin_of_reduced(large.where(huge, r), large.where(huge_k, k), form)


def light_sine(x: UOp) -> tuple[UOp, UOp]:
    """SIN of a float32 or float64 that is not large, and where it is: there the value is wrong.

    For renderers that can branch: the reduction of large arguments is most of the work. Where
    the second is false, the bits are those of the whole expansion.
    """
    form = _FORMATS[x.dtype.scalar]
    return _sin_of_reduced(*_light_reduction(x, form), form), _is_large(x, form)


def never_large(x: UOp) -> bool:
    """Whether SIN of this float needs no reduction of large arguments (of inf it is nan anyway)."""
    if x.op is Ops.CAST and x.src[0].dtype.scalar is dtypes.float16:
        return True  # at most 65504
    light = _FORMATS.get(x.dtype.scalar, _FLOAT32).light
    return bool(-light <= x.vmin and x.vmax <= light)


def _size(x: UOp, form: _Format) -> UOp:
    return (_as_bits(x, form) & ((1 << (form.bits.bits - 1)) - 1)).bitcast(x.dtype)


def _is_large(x: UOp, form: _Format) -> UOp:
    return _size(x, form) > form.light


def _sin_of_reduced(r: UOp, k: UOp, form: _Format) -> UOp:
    """r + r * (first * z + z**2 * P(z)) with z = r * r; of -0.0 it is -0.0.

    Up to pi/2 the cosine is not needed: what the coefficients after the first give is small, so
    that few roundings are seen.
    """
    z = r * r
    bend = _add_product(z, form.sin[0], z * z * _polynomial(z, form.sin[1:]))
    value = _add_product(r, bend, r)
    return (_as_bits(value, form) ^ (k << (form.bits.bits - 1))).bitcast(r.dtype)


def _light_reduction(x: UOp, form: _Format) -> tuple[UOp, UOp]:
    """r, and k in the lowest bits of an integer, by Cody and Waite's parts of pi.

    The first step is exact: r is below 2, and a multiple of the last bits of x and of the first
    part. Of -0.0 k is 0.0, and what positive parts leave is -0.0.
    """
    shifted = _add_product(x, form.inverse_pi, form.magic)
    k = shifted + -form.magic
    r = x
    for part in form.pi:
        r = _add_product(k, -part, r)
    return r, _as_bits(shifted, form)


_folds: Final[dict[tuple[Ops, DType], tuple[UOp, UOp]]] = {}
_lock: Final = ForkLock()


def fold_elementary(op: Ops, dtype: DType, value: Scalar) -> Scalar:
    """EXP, EXP2, LOG2 or SIN of a constant: the value that the compiled graph gives.

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
