"""Elementary functions on array nodes, of the IR's EXP, EXP2, LOG2, SIN and SQRT, with derivatives.

float16 and bfloat16 are computed in float32 and rounded once. The comment of each function says
what keeps it accurate. A derivative that is infinite somewhere (sqrt, log, a quotient) leaves an
upstream gradient of zero at zero (`guarded`): so a branch that `where` did not take cannot send
nan back through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.algebra import (
    Adjoint,
    absolute,
    add,
    as_rounded,
    choose,
    copy_sign,
    div,
    equal,
    inputs_of,
    less,
    less_equal,
    like,
    maximum,
    minimum,
    mul,
    multiply_add,
    neg,
    scale,
    shifted,
    sub,
    unequal,
    with_adjoint,
)
from opgraft_tensor.errorfunction import error_function, horner
from opgraft_tensor.exponential import LN_2, LOG2_E, half_exponential
from opgraft_tensor.exponential import exponential as _exp
from opgraft_tensor.graph import elementwise, full, shape
from opgraft_tensor.powers import float_power


def guarded(upstream: UOp, product: UOp) -> UOp:
    """A gradient `product`, but zero where `upstream` is: 0 times infinity means "not used"."""
    return choose(equal(upstream, like(upstream, 0)), like(product, 0), product)


def _in_float32(compute: Callable[[UOp], UOp], adjoint: Adjoint | None) -> Callable[[UOp], UOp]:
    """The function with narrow floats widened, and its derivative attached."""

    def function(a: UOp) -> UOp:
        if not a.dtype.is_float:
            raise TypeError(f"a function of floats was given {a.dtype}")
        if a.dtype.bits < 32:
            result = graph.cast(compute(graph.cast(a, dtypes.float32)), a.dtype)
        else:
            result = compute(a)
        return result if adjoint is None else with_adjoint(result, (a,), adjoint)

    function.__doc__ = compute.__doc__
    return function


# ---- exponentials and logarithms


def _exp2(a: UOp) -> UOp:
    """2 to the power of a."""
    return elementwise(Ops.EXP2, a)


def _log2(a: UOp) -> UOp:
    return elementwise(Ops.LOG2, a)


def _log(a: UOp) -> UOp:
    return scale(elementwise(Ops.LOG2, a), LN_2)


def _log10(a: UOp) -> UOp:
    return scale(elementwise(Ops.LOG2, a), math.log10(2.0))


def _expm1(a: UOp) -> UOp:
    """exp(a) - 1 without cancellation: below 1 by the series of (exp(a) - 1) / a, times a."""
    terms = 11 if a.dtype is dtypes.float32 else 18
    series = tuple([1 / math.factorial(n) for n in range(terms, 0, -1)])
    near = mul(a, horner(a, series))
    return choose(less(absolute(a), like(a, 1.0)), near, shifted(_exp(a), -1))


def _log1p(a: UOp) -> UOp:
    """log(1 + a) without the loss of small a: the rounding of u = 1 + a divides out."""
    moved = as_rounded(shifted(a, 1))
    careful = div(mul(_log(moved), a), shifted(moved, -1))
    result = choose(equal(moved, like(a, 1)), a, careful)
    return choose(less(like(a, 1.0), a), _log(moved), result)


def _exp2_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, mul(upstream, scale(node, LN_2))),)


def _exp_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, mul(upstream, node)),)


def _expm1_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, mul(upstream, shifted(node, 1))),)


def _log_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, div(upstream, inputs_of(node)[0])),)


def _log2_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, div(scale(upstream, LOG2_E), inputs_of(node)[0])),)


def _log10_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, div(scale(upstream, math.log10(math.e)), inputs_of(node)[0])),)


def _log1p_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, div(upstream, shifted(inputs_of(node)[0], 1))),)


exp2: Final = _in_float32(_exp2, _exp2_adjoint)
exp: Final = _in_float32(_exp, _exp_adjoint)
expm1: Final = _in_float32(_expm1, _expm1_adjoint)
log2: Final = _in_float32(_log2, _log2_adjoint)
log: Final = _in_float32(_log, _log_adjoint)
log10: Final = _in_float32(_log10, _log10_adjoint)
log1p: Final = _in_float32(_log1p, _log1p_adjoint)


# ---- roots


def _sqrt(a: UOp) -> UOp:
    return elementwise(Ops.SQRT, a)


def _rsqrt(a: UOp) -> UOp:
    return div(like(a, 1), elementwise(Ops.SQRT, a))


def _sqrt_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, div(scale(upstream, 0.5), node)),)


def _rsqrt_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    cube = mul(mul(node, node), node)
    return (guarded(upstream, mul(scale(upstream, -0.5), cube)),)


sqrt: Final = _in_float32(_sqrt, _sqrt_adjoint)
rsqrt: Final = _in_float32(_rsqrt, _rsqrt_adjoint)


# ---- circular functions


def _sin(a: UOp) -> UOp:
    return elementwise(Ops.SIN, a)


def _cos(a: UOp) -> UOp:
    """Below 4 by the sine of pi/2 - |a|, exact near the first zeros; beyond by 1 - 2 sin(a/2)**2.

    Both take the sine's exact reduction of large arguments; a + pi/2 would round first.
    """
    size = absolute(a)
    near = less(size, like(a, 4.0))
    # pi/2 in two parts: what the dtype holds, and the rest
    high = float(a.dtype.const(math.pi / 2))
    rest = (math.pi / 2 - high) if a.dtype is not dtypes.float64 else 6.123233995736766e-17
    shift = shifted(shifted(neg(size), high), rest)
    wave = elementwise(Ops.SIN, choose(near, shift, scale(a, 0.5)))
    return choose(near, wave, multiply_add(scale(wave, -2), wave, like(a, 1)))


def _tan(a: UOp) -> UOp:
    return div(elementwise(Ops.SIN, a), _cos(a))


def _sin_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (mul(upstream, cos(inputs_of(node)[0])),)


def _cos_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (mul(upstream, neg(sin(inputs_of(node)[0]))),)


def _tan_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (mul(upstream, shifted(mul(node, node), 1)),)


sin: Final = _in_float32(_sin, _sin_adjoint)
cos: Final = _in_float32(_cos, _cos_adjoint)
tan: Final = _in_float32(_tan, _tan_adjoint)


# ---- sigmoids


def _sigmoid(a: UOp) -> UOp:
    """1 / (1 + exp(-a)); where exp(-a) overflows the result is 0, below the least normal."""
    return div(like(a, 1), shifted(_exp(neg(a)), 1))


_TANH: Final[dict[DType, tuple[float, ...]]] = {
    dtypes.float32: (
        -0.005897808354347944,
        0.020798539742827415,
        -0.05378470569849014,
        0.13331936299800873,
        -0.33333298563957214,
    ),
    dtypes.float64: (
        -1.7176689113134035e-05,
        7.931043310578242e-05,
        -0.00023039426817567573,
        0.0005871874170809371,
        -0.001455215144621524,
        0.003592037353896471,
        -0.008863226776663506,
        0.02186948800271586,
        -0.053968253949314406,
        0.1333333333329974,
        -0.33333333333333126,
    ),
}
"""(tanh(x) - x) / x**3 in x**2, for x up to 0.6; the highest power first."""


def _tanh(a: UOp) -> UOp:
    """1 - 2 / (exp(2|a|) + 1) with the sign of a; below 0.6, where that cancels, a polynomial."""
    size = absolute(a)
    # beyond these the result is 1
    reached = minimum(size, like(a, 10.0 if a.dtype is dtypes.float32 else 20.0))
    far = sub(like(a, 1), div(like(a, 2), shifted(_exp(scale(reached, 2)), 1)))
    square = mul(a, a)
    near = add(size, mul(mul(size, square), horner(square, _TANH[a.dtype])))
    return copy_sign(choose(less(size, like(a, 0.6)), near, far), a)


def _sigmoid_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (mul(upstream, mul(node, sub(like(node, 1), node))),)


def _tanh_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (mul(upstream, sub(like(node, 1), mul(node, node))),)


sigmoid: Final = _in_float32(_sigmoid, _sigmoid_adjoint)
tanh: Final = _in_float32(_tanh, _tanh_adjoint)


def _sinh(a: UOp) -> UOp:
    """Below 1 the series; beyond, where nothing cancels, h - 1 / (4 * h) with h = exp(|a|) / 2."""
    terms = 6 if a.dtype is dtypes.float32 else 10
    series = tuple([1 / math.factorial(2 * n + 1) for n in range(terms - 1, -1, -1)])
    size = absolute(a)
    half = half_exponential(size)
    far = sub(half, div(like(a, 0.25), half))
    near = mul(size, horner(mul(size, size), series))
    return copy_sign(choose(less(size, like(a, 1.0)), near, far), a)


def _cosh(a: UOp) -> UOp:
    """h + 1 / (4 * h) with h = exp(|a|) / 2."""
    half = half_exponential(absolute(a))
    return add(half, div(like(a, 0.25), half))


def _sinh_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, mul(upstream, cosh(inputs_of(node)[0]))),)


def _cosh_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (guarded(upstream, mul(upstream, sinh(inputs_of(node)[0]))),)


sinh: Final = _in_float32(_sinh, _sinh_adjoint)
cosh: Final = _in_float32(_cosh, _cosh_adjoint)


def log_add_exp(a: UOp, b: UOp) -> UOp:
    """log(exp(a) + exp(b)): the greater, and log1p of the exponential of minus the distance."""
    top = maximum(a, b)
    gap = absolute(sub(a, b))
    # of two equal infinities the distance is nan, the sum the infinity itself
    near = choose(equal(a, b), 0, gap)
    return with_adjoint(add(top, log1p(exp(neg(near)))), (a, b), _log_add_exp_adjoint)


def _log_add_exp_adjoint(node: UOp, upstream: UOp) -> tuple[UOp, UOp]:
    a, b = inputs_of(node)
    share = sigmoid(sub(a, b))
    return mul(upstream, share), mul(upstream, sub(like(a, 1), share))


def relu(a: UOp) -> UOp:
    """max(a, 0); the derivative at 0 is 0."""
    return with_adjoint(maximum(a, like(a, 0)), (a,), _relu_adjoint)


def _relu_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    (a,) = inputs_of(node)
    return (choose(less(like(a, 0), a), upstream, 0),)


# ---- powers


def power(a: UOp, b: UOp) -> UOp:
    """a ** b elementwise, of floats as C's pow, of integers wrapping (a negative exponent: 0).

    Floats by a whole constant up to 16 are products, by 1/2 a root; others are in powers.py.
    """
    if not a.dtype.is_float:
        return _integer_power(a, b)
    constant = graph.constant_of(b)
    if constant is not None:
        exponent = float(constant.arg)
        if exponent == 0.5:
            # as C's pow, unlike sqrt: -inf gives inf, -0.0 gives 0.0
            root = sqrt(choose(equal(a, like(a, -math.inf)), math.inf, shifted(a, 0.0)))
            return graph.broadcast_to(root, graph.broadcast_shapes(shape(a), shape(b)))
        if exponent.is_integer() and abs(exponent) <= 16:
            result = _repeated(a, int(abs(exponent)))
            result = div(like(a, 1), result) if exponent < 0 else result
            result = graph.broadcast_to(result, graph.broadcast_shapes(shape(a), shape(b)))
            return with_adjoint(result, (a, b), _power_adjoint) if exponent != 1 else result
    if a.dtype.bits < 32:
        wide = float_power(graph.cast(a, dtypes.float32), graph.cast(b, dtypes.float32))
        return with_adjoint(graph.cast(wide, a.dtype), (a, b), _power_adjoint)
    return with_adjoint(float_power(a, b), (a, b), _power_adjoint)


def _repeated(a: UOp, exponent: int) -> UOp:
    result: UOp | None = None
    square = a
    while exponent:
        if exponent & 1:
            result = square if result is None else mul(result, square)
        exponent >>= 1
        if exponent:
            square = mul(square, square)
    return full(shape(a), a.dtype, 1) if result is None else result


def _power_adjoint(node: UOp, upstream: UOp) -> tuple[UOp | None, ...]:
    a, b = inputs_of(node)
    slope = mul(b, power(a, shifted(b, -1)))
    to_a = guarded(upstream, mul(upstream, choose(equal(b, like(b, 0)), 0, slope)))
    # of the exponent: 0 where the base is 0 and the power too, as the limit says
    growth = mul(node, log(choose(equal(a, like(a, 0)), 1, a)))
    return (to_a, guarded(upstream, mul(upstream, growth)))


def _integer_power(a: UOp, b: UOp) -> UOp:
    constant = graph.constant_of(b)
    if constant is not None:
        if constant.arg < 0:
            raise ValueError("an integer to a negative power is no integer; cast to a float first")
        result = _repeated(a, int(constant.arg))
        return graph.broadcast_to(result, graph.broadcast_shapes(shape(a), shape(b)))
    one, zero = like(a, 1), like(b, 0)
    result = choose(less_equal(zero, b), one, 0) if b.dtype.is_signed else one
    square = a
    for bit in range(b.dtype.bits - int(b.dtype.is_signed)):
        taken = unequal(elementwise(Ops.AND, b, like(b, 1 << bit)), zero)
        result = choose(taken, mul(result, square), result)
        square = mul(square, square)
    return result


# ---- the error function


def _erf_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    (a,) = inputs_of(node)
    bell = scale(exp(neg(mul(a, a))), 2 / math.sqrt(math.pi))
    return (mul(upstream, bell),)


erf: Final = _in_float32(error_function, _erf_adjoint)


def _gelu(a: UOp) -> UOp:
    """a times the normal distribution function of a, exact (by erf, not by tanh)."""
    inner = shifted(erf(scale(a, math.sqrt(0.5))), 1)
    return mul(scale(a, 0.5), inner)


def _silu(a: UOp) -> UOp:
    """a times sigmoid(a)."""
    return mul(a, sigmoid(a))


def _softplus(a: UOp) -> UOp:
    """log(1 + exp(a)), without overflow."""
    return add(relu(a), log1p(exp(neg(absolute(a)))))


def _softplus_adjoint(node: UOp, upstream: UOp) -> tuple[UOp]:
    return (mul(upstream, sigmoid(inputs_of(node)[0])),)


gelu: Final = _in_float32(_gelu, None)
silu: Final = _in_float32(_silu, None)
softplus: Final = _in_float32(_softplus, _softplus_adjoint)
