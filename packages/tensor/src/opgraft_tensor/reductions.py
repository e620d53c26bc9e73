"""Reductions and scans of a tensor: sums, extremes, means, softmax, running sums.

Accumulators (docs/meaning.md): sums and products of integers in NumPy's promoted dtype, of
float16 and bfloat16 in float32, rounded once at the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from opgraft.dtype import DType, accumulator, dtypes, to_dtype
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import algebra, functions, graph
from opgraft_tensor.algebra import choose, equal, like, mul, shifted, sub
from opgraft_tensor.base import Axis, Base
from opgraft_tensor.extents import is_variable
from opgraft_tensor.graph import shape

if TYPE_CHECKING:
    from typing import Self


def widened(uop: UOp) -> UOp:
    """A float16 or bfloat16 node in float32; any other as it is."""
    narrow = uop.dtype.is_float and uop.dtype.bits < 32
    return graph.cast(uop, dtypes.float32) if narrow else uop


class Reductions(Base):
    """`axis`: one, several, or None for all; with `keepdims` reduced axes stay, of extent 1."""

    __slots__ = ()

    def _reduced(self, uop: UOp, op: Ops, axes: tuple[int, ...], keepdims: bool) -> UOp:
        result = graph.reduce_axis(uop, op, axes)
        return algebra.kept_dims(result, shape(uop), axes) if keepdims else result

    def _folded(self, op: Ops, axis: Axis, keepdims: bool, dtype: DType | str | None) -> Self:
        axes = self._axes(axis)
        if dtype is not None:
            target = to_dtype(dtype)
            wide = graph.cast(self._uop, target)
            result = self._reduced(widened(wide), op, axes, keepdims)
            return self._new(graph.cast(result, target))
        wide = graph.cast(self._uop, accumulator(self.dtype))
        result = self._reduced(wide, op, axes, keepdims)
        return self._new(graph.cast(result, self.dtype) if self.dtype.is_float else result)

    def sum(
        self, axis: Axis = None, keepdims: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The sum; of bool the count. `dtype`: sum in (and give) this dtype."""
        return self._folded(Ops.ADD, axis, keepdims, dtype)

    def prod(
        self, axis: Axis = None, keepdims: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The product."""
        return self._folded(Ops.MUL, axis, keepdims, dtype)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The greatest, nan if any is; a gradient goes to the first of equals, as `argmax`."""
        return self._new(
            self._reduced(self._uop, self._extreme(Ops.MAX), self._axes(axis), keepdims)
        )

    def min(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The least, nan if any is; a gradient goes to the first of equals, as `argmin`."""
        return self._new(
            self._reduced(self._uop, self._extreme(Ops.MIN), self._axes(axis), keepdims)
        )

    def _extreme(self, op: Ops) -> Ops:
        if not self.dtype.is_bool:
            return op
        return Ops.OR if op is Ops.MAX else Ops.AND

    def any(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """Whether any element is not 0 (nan is not 0)."""
        truth = graph.cast(self._uop, dtypes.bool)
        return self._new(self._reduced(truth, Ops.OR, self._axes(axis), keepdims))

    def all(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """Whether no element is 0."""
        truth = graph.cast(self._uop, dtypes.bool)
        return self._new(self._reduced(truth, Ops.AND, self._axes(axis), keepdims))

    def count_nonzero(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """How many elements are not 0; int64."""
        return self._new(graph.cast(self._uop, dtypes.bool)).sum(axis, keepdims)

    # ---- means

    def _divisor(self, total: UOp, axes: tuple[int, ...], less: float = 0) -> UOp:
        """How many elements a mean is of, less `less`; at least 0."""
        extents = tuple([shape(self._uop)[a] for a in axes])
        if is_variable(extents):  # counted when the kernel runs
            ones = graph.full(extents, total.dtype, 1)
            count = graph.reduce_axis(ones, Ops.ADD, range(len(extents)))
            return algebra.maximum(algebra.add(count, like(count, -less)), like(count, 0))
        return like(total, max(math.prod(extents) - less, 0))

    def _mean(self, uop: UOp, axes: tuple[int, ...], keepdims: bool, less: float = 0) -> UOp:
        """The sum over the axes divided by their extent less `less`; `uop` is wide already."""
        total = self._reduced(uop, Ops.ADD, axes, keepdims)
        return algebra.div(total, self._divisor(total, axes, less))

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The mean; of integers and bool their sum (see `sum`: int64 wraps) divided in floats."""
        axes = self._axes(axis)
        total = self._reduced(
            graph.cast(self._uop, accumulator(self.dtype)), Ops.ADD, axes, keepdims
        )
        target = self.dtype if self.dtype.is_float else dtypes.default_float
        total = total if total.dtype.is_float else graph.cast(total, target)
        mean = algebra.div(total, self._divisor(total, axes))
        return self._new(graph.cast(mean, target))

    def var(self, axis: Axis = None, keepdims: bool = False, correction: float = 0) -> Self:
        """The mean of squared distances to the mean; divided by the count less `correction`."""
        axes = self._axes(axis)
        wide = widened(self._float())
        away = sub(wide, self._mean(wide, axes, True))
        result = self._mean(mul(away, away), axes, keepdims, correction)
        return self._new(graph.cast(result, self._float().dtype))

    def std(self, axis: Axis = None, keepdims: bool = False, correction: float = 0) -> Self:
        """The root of `var`."""
        axes = self._axes(axis)
        wide = widened(self._float())
        away = sub(wide, self._mean(wide, axes, True))
        result = functions.sqrt(self._mean(mul(away, away), axes, keepdims, correction))
        return self._new(graph.cast(result, self._float().dtype))

    # ---- places

    def _place(self, axis: int | None, keepdims: bool, op: Ops) -> Self:
        if axis is None:
            flat = self._new(graph.reshape(self._uop, (self.size,)))
            result = flat._place(0, False, op)
            return self._new(graph.reshape(result._uop, (1,) * self.ndim)) if keepdims else result
        place = self._axis(axis)
        size = shape(self._uop)
        best = self._reduced(self._uop, self._extreme(op), (place,), True)
        hit = algebra.either(equal(self._uop, best), algebra.is_nan(self._uop))
        index = graph.arange(size, place, dtypes.int64)
        found = choose(hit, index, int(size[place]))
        return self._new(self._reduced(found, Ops.MIN, (place,), keepdims))

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Where the greatest stands, the first of equals, the first nan if there is one; int64."""
        return self._place(axis, keepdims, Ops.MAX)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Where the least stands, the first of equals, the first nan if there is one; int64."""
        return self._place(axis, keepdims, Ops.MIN)

    # ---- sums of exponentials

    def logsumexp(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """log(sum(exp(x))), without overflow."""
        axes = self._axes(axis)
        source = self._float()
        wide = widened(source)
        result = algebra.kept_dims(log_sum_exp(wide, axes), shape(wide), axes)
        if not keepdims:
            size = tuple([n for i, n in enumerate(self.shape) if i not in axes])
            result = graph.reshape(result, size)
        return self._new(graph.cast(result, source.dtype))

    def softmax(self, axis: Axis = -1) -> Self:
        """exp(x) / sum(exp(x)) along the axis, without overflow."""
        source = self._float()
        result = softmax(widened(source), self._axes(axis))
        return self._new(graph.cast(result, source.dtype))

    def log_softmax(self, axis: Axis = -1) -> Self:
        """log(softmax(x)), accurate where softmax is tiny."""
        source = self._float()
        result = log_softmax(widened(source), self._axes(axis))
        return self._new(graph.cast(result, source.dtype))

    def layernorm(self, axis: Axis = -1, eps: float = 1e-5) -> Self:
        """(x - mean) / sqrt(variance + eps) over the axes."""
        axes = self._axes(axis)
        source = self._float()
        wide = widened(source)
        away = sub(wide, self._mean(wide, axes, True))
        spread = shifted(self._mean(mul(away, away), axes, True), eps)
        return self._new(graph.cast(mul(away, functions.rsqrt(spread)), source.dtype))

    # ---- scans

    def _scanned(self, op: Ops, axis: int, wide: UOp) -> Self:
        result = graph.scan_axis(wide, op, self._axis(axis))
        return self._new(graph.cast(result, self.dtype) if self.dtype.is_float else result)

    def cumsum(self, axis: int = 0) -> Self:
        """Running sums along an axis, in the dtype of `sum`."""
        return self._scanned(Ops.ADD, axis, graph.cast(self._uop, accumulator(self.dtype)))

    def cumprod(self, axis: int = 0) -> Self:
        """Running products along an axis, in the dtype of `prod`; its gradient is quadratic."""
        return self._scanned(Ops.MUL, axis, graph.cast(self._uop, accumulator(self.dtype)))

    cumulative_sum, cumulative_prod = cumsum, cumprod

    def cummax(self, axis: int = 0) -> Self:
        """Running maxima along an axis; its gradient is quadratic."""
        return self._scanned(self._extreme(Ops.MAX), axis, self._uop)

    def cummin(self, axis: int = 0) -> Self:
        """Running minima along an axis; its gradient is quadratic."""
        return self._scanned(self._extreme(Ops.MIN), axis, self._uop)


# ---- composites with gradients of their own


def _greatest(uop: UOp, axes: tuple[int, ...]) -> UOp:
    return algebra.kept_dims(graph.reduce_axis(uop, Ops.MAX, axes), shape(uop), axes)


def log_sum_exp(a: UOp, axes: tuple[int, ...]) -> UOp:
    """The reduced axes are gone; all -inf gives -inf, any inf gives inf."""
    top = _greatest(a, axes)
    top = choose(algebra.is_finite(top), top, 0)
    total = graph.reduce_axis(functions.exp(sub(a, top)), Ops.ADD, axes)
    result = algebra.add(functions.log(total), graph.reshape(top, shape(total)))
    return algebra.with_adjoint(result, (a,), _LogSumExpAdjoint(axes))


class _LogSumExpAdjoint:
    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def __call__(self, n: UOp, d: UOp) -> tuple[UOp]:
        (a,) = algebra.inputs_of(n)
        size = shape(a)
        total = algebra.kept_dims(n, size, self.axes)
        share = functions.exp(sub(a, choose(algebra.is_finite(total), total, 0)))
        return (mul(algebra.kept_dims(d, size, self.axes), share),)


def softmax(a: UOp, axes: tuple[int, ...]) -> UOp:
    power = _exponential_of_at_most_0(sub(a, _greatest(a, axes)))
    total = algebra.kept_dims(graph.reduce_axis(power, Ops.ADD, axes), shape(a), axes)
    result = mul(power, algebra.div(like(total, 1), total))
    return algebra.with_adjoint(result, (a,), _SoftmaxAdjoint(axes))


class _SoftmaxAdjoint:
    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def __call__(self, n: UOp, d: UOp) -> tuple[UOp]:
        inner = graph.reduce_axis(mul(d, n), Ops.ADD, self.axes)
        return (mul(n, sub(d, algebra.kept_dims(inner, shape(n), self.axes))),)


def _exponential_of_at_most_0(a: UOp) -> UOp:
    """The exponential of what is not positive, told so: it is a third cheaper."""
    return functions.exp(algebra.minimum(a, like(a, 0)))


def log_softmax(a: UOp, axes: tuple[int, ...]) -> UOp:
    below = sub(a, _greatest(a, axes))
    total = graph.reduce_axis(_exponential_of_at_most_0(below), Ops.ADD, axes)
    result = sub(below, algebra.kept_dims(functions.log(total), shape(a), axes))
    return algebra.with_adjoint(result, (a,), _LogSoftmaxAdjoint(axes))


class _LogSoftmaxAdjoint:
    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def __call__(self, n: UOp, d: UOp) -> tuple[UOp]:
        total = graph.reduce_axis(d, Ops.ADD, self.axes)
        spread = algebra.kept_dims(total, shape(n), self.axes)
        return (sub(d, mul(functions.exp(n), spread)),)
