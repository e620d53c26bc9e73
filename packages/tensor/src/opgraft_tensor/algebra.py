"""Arithmetic on array nodes: what is more than one operation of the IR, and its derivative.

The IR has no subtraction, negation, absolute value or rounding to an integer; here they are, on
nodes that broadcast. A composite may carry its own adjoint (`with_adjoint`): autograd then uses
it in place of the chain of its parts, which is shorter, and right where the parts have kinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from opgraft.dtype import DType, Scalar, dtypes
from opgraft.ir.evaluate import bitcast as evaluate_bitcast
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.graph import constant_of, elementwise, full, shape, where

Adjoint: TypeAlias = Callable[[UOp, UOp], Sequence[UOp | None]]
"""(the node, the gradient of its value) to the gradient of each input; None: there is none.

It must not hold the node itself: the node holds it.
"""


def with_adjoint(result: UOp, inputs: tuple[UOp, ...], adjoint: Adjoint) -> UOp:
    """Let autograd go from `result` to `inputs` (nodes below it) at once, by `adjoint`."""
    if result.op not in (Ops.CONST, Ops.BUFFER) and result not in inputs:
        result.remember("adjoint", (inputs, adjoint))
    return result


def like(uop: UOp, value: Scalar) -> UOp:
    """The number as a scalar of the node's dtype, to be broadcast."""
    return full((), uop.dtype, value)


def add(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.ADD, a, b)


def mul(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.MUL, a, b)


def multiply_add(a: UOp, b: UOp, c: UOp) -> UOp:
    """a * b + c of floats, rounded once."""
    return elementwise(Ops.MULACC, a, b, c)


def neg(a: UOp) -> UOp:
    return mul(a, like(a, -1))


def sub(a: UOp, b: UOp) -> UOp:
    return add(a, neg(b))


def div(a: UOp, b: UOp) -> UOp:
    """The correctly rounded quotient of floats."""
    return elementwise(Ops.FDIV, a, b)


def scale(a: UOp, factor: Scalar) -> UOp:
    return mul(a, like(a, factor))


def shifted(a: UOp, term: Scalar) -> UOp:
    return add(a, like(a, term))


def less(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.CMPLT, a, b)


def equal(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.CMPEQ, a, b)


def unequal(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.CMPNE, a, b)


def maximum(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.MAX, a, b)


def minimum(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.MIN, a, b)


def both(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.AND, a, b)


def either(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.OR, a, b)


def negate_bits(a: UOp) -> UOp:
    """Not, of bool; the bitwise complement of an integer."""
    return elementwise(Ops.XOR, a, like(a, True if a.dtype.is_bool else -1))


def less_equal(a: UOp, b: UOp) -> UOp:
    """Of floats `a < b or a == b`, for the sake of nan."""
    if a.dtype.is_float:
        return either(less(a, b), equal(a, b))
    return negate_bits(less(b, a))


def zeros_like(a: UOp) -> UOp:
    return full(shape(a), a.dtype, 0)


def choose(condition: UOp, yes: UOp | Scalar, no: UOp | Scalar) -> UOp:
    """WHERE with a number on one side or both sides nodes."""
    if not isinstance(yes, UOp):
        assert isinstance(no, UOp)
        yes = like(no, yes)
    elif not isinstance(no, UOp):
        no = like(yes, no)
    return where(condition, yes, no)


def sum_of(uop: UOp, axes: Sequence[int]) -> UOp:
    """The sum over axes, in the node's dtype (float16 and bfloat16: in float32, rounded once)."""
    return _accumulated(uop, Ops.ADD, axes)


def _accumulated(uop: UOp, op: Ops, axes: Sequence[int]) -> UOp:
    if uop.dtype.is_float and uop.dtype.bits < 32:
        wide = graph.cast(uop, dtypes.float32)
        return graph.cast(graph.reduce_axis(wide, op, axes), uop.dtype)
    return graph.reduce_axis(uop, op, axes)


def kept_dims(uop: UOp, before: tuple[int, ...], axes: Sequence[int]) -> UOp:
    """A reduced node with its reduced axes back, of extent 1."""
    return graph.reshape(uop, tuple([1 if i in axes else n for i, n in enumerate(before)]))


# ---- the bits of floats


def bits_of(uop: UOp) -> UOp:
    """The bits of floats, as a signed integer of their width."""
    return bitcast(uop, dtypes.narrow(uop.dtype.bits, True))


def bitcast(uop: UOp, dtype: DType) -> UOp:
    """The same bits read as another dtype of the same width."""
    if uop.dtype.bits != dtype.bits:
        raise TypeError(f"bitcast from {uop.dtype} to {dtype}: the widths differ")
    constant = constant_of(uop)
    if constant is not None:
        return full(shape(uop), dtype, evaluate_bitcast(constant.arg, uop.dtype, dtype))
    made = uop.bitcast(dtype)
    made.remember("shape", shape(uop))
    return made


def absolute(a: UOp) -> UOp:
    """The magnitude; of floats the sign bit cleared, so -0.0 gives 0.0."""
    if a.dtype.is_float:
        mask = (1 << (a.dtype.bits - 1)) - 1
        cleared = elementwise(
            Ops.AND, bits_of(a), full((), dtypes.narrow(a.dtype.bits, True), mask)
        )
        return with_adjoint(bitcast(cleared, a.dtype), (a,), _absolute_adjoint)
    if not a.dtype.is_signed:
        return a
    return choose(less(a, like(a, 0)), neg(a), a)


def _absolute_adjoint(node: UOp, upstream: UOp) -> tuple[UOp | None, ...]:
    (a,) = inputs_of(node)
    return (mul(upstream, sign(a)),)


def inputs_of(node: UOp) -> tuple[UOp, ...]:
    """The inputs that `with_adjoint` recorded."""
    assert node._memo is not None
    return node._memo["adjoint"][0]  # type: ignore[no-any-return]


def copy_sign(magnitude: UOp, sign_of: UOp) -> UOp:
    """A magnitude (sign bit clear) with the sign bit of another float."""
    dtype = magnitude.dtype
    least = full((), dtypes.narrow(dtype.bits, True), 1 << (dtype.bits - 1))
    sign_bit = elementwise(Ops.AND, bits_of(sign_of), least)
    return bitcast(elementwise(Ops.OR, bits_of(magnitude), sign_bit), dtype)


def sign(a: UOp) -> UOp:
    """-1, 0 or 1; nan of nan."""
    zero = like(a, 0)
    if a.dtype.is_bool or not a.dtype.is_signed:
        return graph.cast(unequal(a, zero), a.dtype)
    rest = choose(equal(a, zero), zero, a) if a.dtype.is_float else zero
    return choose(less(zero, a), like(a, 1), choose(less(a, zero), like(a, -1), rest))


# ---- rounding to integers


def truncate(a: UOp) -> UOp:
    return elementwise(Ops.TRUNC, a) if a.dtype.is_float else a


def floor(a: UOp) -> UOp:
    if not a.dtype.is_float:
        return a
    whole = truncate(a)
    return _stepwise(choose(less(a, whole), shifted(whole, -1), whole), a)


def ceil(a: UOp) -> UOp:
    if not a.dtype.is_float:
        return a
    whole = truncate(a)
    up = choose(less(whole, a), shifted(whole, 1), whole)
    return _stepwise(up, a)


def as_rounded(a: UOp) -> UOp:
    """A float that arithmetic on it takes as it was rounded, at every float level: laws of real
    numbers would undo what it was rounded for."""
    return bitcast(bits_of(a), a.dtype)


def round_even(a: UOp) -> UOp:
    """To the nearest integer, halves to the even one; the sign of zero is kept."""
    if not a.dtype.is_float:
        return a
    # at and above 2**mantissa every float is an integer, and adding it rounds everything below
    unit = float(1 << a.dtype.mantissa)
    size = absolute(a)
    near = shifted(as_rounded(shifted(size, unit)), -unit)
    return _stepwise(copy_sign(choose(less(size, like(a, unit)), near, size), a), a)


def _stepwise(result: UOp, a: UOp) -> UOp:
    return with_adjoint(result, (a,), _no_gradient)


def _no_gradient(node: UOp, upstream: UOp) -> tuple[UOp | None, ...]:
    return (None,)


def floor_divide(a: UOp, b: UOp) -> UOp:
    """The floor of the exact quotient; of floats as NumPy: by the remainder, so it is exact."""
    if not a.dtype.is_float:
        return elementwise(Ops.IDIV, a, b)
    if a.dtype.bits < 32:
        # a less the remainder would round here, and its quotient would miss the floor
        wide = floor_divide(graph.cast(a, dtypes.float32), graph.cast(b, dtypes.float32))
        return with_adjoint(graph.cast(wide, a.dtype), (a, b), _no_gradients)
    rest = elementwise(Ops.MOD, a, b)
    quotient = div(sub(a, rest), b)
    low = floor(quotient)
    near = choose(less(like(a, 0.5), sub(quotient, low)), shifted(low, 1), low)
    zero = like(a, 0)
    # an infinite divisor: 0 where the signs agree, else -1
    opposite = both(unequal(a, zero), unequal(less(a, zero), less(b, zero)))
    against = choose(opposite, like(a, -1), zero)
    finite = less(absolute(a), like(a, math.inf))
    endless = both(equal(absolute(b), like(b, math.inf)), finite)
    result = choose(endless, against, near)
    result = choose(equal(b, zero), div(a, b), result)
    # a quotient of zero has the sign of the exact one
    result = choose(equal(result, zero), copy_sign(absolute(result), div(a, b)), result)
    return with_adjoint(result, (a, b), _no_gradients)


def _no_gradients(node: UOp, upstream: UOp) -> tuple[UOp | None, ...]:
    return (None, None)


def is_nan(a: UOp) -> UOp:
    return unequal(a, a) if a.dtype.is_float else full(shape(a), dtypes.bool, False)


def is_inf(a: UOp) -> UOp:
    if not a.dtype.is_float:
        return full(shape(a), dtypes.bool, False)
    return equal(absolute(a), like(a, math.inf))


def is_finite(a: UOp) -> UOp:
    if not a.dtype.is_float:
        return full(shape(a), dtypes.bool, True)
    return less(absolute(a), like(a, math.inf))
