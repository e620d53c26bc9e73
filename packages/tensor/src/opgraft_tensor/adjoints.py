"""The adjoint of each array operation: from the gradient of a value to those of its sources.

Every rule is `(node, upstream) -> a gradient or None for each source`, of nodes to nodes, so a
gradient can be differentiated again. Views have views as adjoints (docs: kernels.md 5.9); nothing
needs atomic additions. The gradient of a maximum over axes goes to where `argmax` finds it, the
first of equals; two equal operands of an elementwise one get half of it each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from opgraft.dtype import dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import functions, graph
from opgraft_tensor.algebra import (
    add,
    both,
    choose,
    div,
    equal,
    floor,
    is_nan,
    kept_dims,
    less,
    less_equal,
    like,
    mul,
    neg,
    negate_bits,
    scale,
    sum_of,
    zeros_like,
)
from opgraft_tensor.exponential import LN_2, LOG2_E
from opgraft_tensor.extents import Extent
from opgraft_tensor.functions import guarded
from opgraft_tensor.graph import shape

Gradients: TypeAlias = Sequence[UOp | None]
Rule: TypeAlias = Callable[[UOp, UOp], Gradients]


# ---- elementwise


def _add(n: UOp, d: UOp) -> Gradients:
    return d, d


def _mul(n: UOp, d: UOp) -> Gradients:
    return mul(d, n.src[1]), mul(d, n.src[0])


def _fdiv(n: UOp, d: UOp) -> Gradients:
    below = n.src[1]
    constant = graph.constant_of(below)
    if constant is not None and constant.arg != 0:
        return div(d, below), None
    to_first = guarded(d, div(d, below))
    return to_first, guarded(d, neg(mul(to_first, n)))


def _mod(n: UOp, d: UOp) -> Gradients:
    a, b = n.src
    return d, guarded(d, neg(mul(d, floor(div(a, b)))))


def _extreme(n: UOp, d: UOp) -> Gradients:
    a, b = n.src
    first, second = (less(b, a), less(a, b)) if n.op is Ops.MAX else (less(a, b), less(b, a))
    half = choose(equal(a, b), scale(d, 0.5), 0)
    return choose(first, d, half), choose(second, d, half)


def _where(n: UOp, d: UOp) -> Gradients:
    return None, choose(n.src[0], d, 0), choose(n.src[0], 0, d)


def _cast(n: UOp, d: UOp) -> Gradients:
    source = n.src[0].dtype
    return (graph.cast(d, source) if source.is_float else None,)


def _sqrt(n: UOp, d: UOp) -> Gradients:
    return (guarded(d, div(scale(d, 0.5), n)),)


def _exp(n: UOp, d: UOp) -> Gradients:
    return (guarded(d, mul(d, n)),)


def _exp2(n: UOp, d: UOp) -> Gradients:
    return (guarded(d, mul(d, scale(n, LN_2))),)


def _log2(n: UOp, d: UOp) -> Gradients:
    return (guarded(d, div(scale(d, LOG2_E), n.src[0])),)


def _multiply_accumulate(n: UOp, d: UOp) -> Gradients:
    a, b, _ = n.src
    return mul(d, b), mul(d, a), d


def _sin(n: UOp, d: UOp) -> Gradients:
    return (mul(d, functions.cos(n.src[0])),)


# ---- views


def _reshape(n: UOp, d: UOp) -> Gradients:
    return (graph.reshape(d, shape(n.src[0])),) if n.tag is None else (None,)


def _permute(n: UOp, d: UOp) -> Gradients:
    back = [0] * len(n.arg)
    for place, axis in enumerate(n.arg):
        back[axis] = place
    return (graph.permute(d, tuple(back)),)


def _expand(n: UOp, d: UOp) -> Gradients:
    old = shape(n.src[0])
    axes = [i for i, (a, b) in enumerate(zip(old, n.arg)) if a != b]
    return (graph.reshape(sum_of(d, axes), old),)


def _pad(n: UOp, d: UOp) -> Gradients:
    old = shape(n.src[0])
    return (graph.slice_(d, tuple([(a, k, 1) for (a, _), k in zip(n.arg, old)])),)


def _slice(n: UOp, d: UOp) -> Gradients:
    return (unslice(d, n.arg, shape(n.src[0])),)


def unslice(d: UOp, region: graph.Region, whole: graph.Shape) -> UOp:
    """Zeros of shape `whole` with `d` in the region."""
    if 0 in shape(d):
        return graph.full(whole, d.dtype, 0)
    if any(isinstance(c, Extent) and c != n for (_, c, _), n in zip(region, whole)):
        return graph.write(graph.full(whole, d.dtype, 0), region, d)
    d = graph.flip(d, [i for i, (_, _, step) in enumerate(region) if step < 0])
    widths = []
    for axis, (begin, count, step) in enumerate(region):
        size, stride = shape(d), abs(step)
        first = begin if step > 0 else begin + (count - 1) * step
        span = (count - 1) * stride + 1
        if stride > 1:
            spread = graph.unwindow(graph.reshape(d, (*size, 1)), axis, stride, 1, span)
            d = graph.reshape(spread, (*size[:axis], span, *size[axis + 1 :]))
        widths.append((first, whole[axis] - first - span))
    return graph.pad(d, tuple(widths))


def _window(n: UOp, d: UOp) -> Gradients:
    axis, _, stride, dilation = n.arg
    spread = graph.unwindow(d, axis, stride, dilation, shape(n.src[0])[axis])
    return (sum_of(spread, (len(shape(spread)) - 1,)),)


def _unwindow(n: UOp, d: UOp) -> Gradients:
    axis, size, stride, dilation, _ = n.arg
    # d[.., o*stride + k*dilation, .., k]: of windows over d those whose place is the same k
    pairs = graph.window(d, axis, size, stride, dilation)
    last = len(shape(pairs)) - 1
    place = graph.arange(shape(pairs), last, dtypes.int32)
    own = graph.arange(shape(pairs), last - 1, dtypes.int32)
    gradient = sum_of(choose(equal(place, own), pairs, 0), (last - 1,))
    count = shape(n.src[0])[axis]
    region = [(0, k, 1) for k in shape(gradient)]
    region[axis] = (0, count, 1)
    return (graph.slice_(gradient, tuple(region)),)


# ---- reductions and scans


def _reduce(n: UOp, d: UOp) -> Gradients:
    op, axes = n.arg
    (a,) = n.src
    wide = graph.expand(kept_dims(d, shape(a), axes), shape(a))
    if op is Ops.ADD:
        return (wide,)
    if op is Ops.MUL:
        return (mul(wide, others_product(a, axes)),)
    return (choose(_is_first_extreme(n, a, axes), wide, 0),)


def _is_first_extreme(n: UOp, a: UOp, axes: Sequence[int]) -> UOp:
    """Where along the axes the maximum (minimum) `n` of `a` stands, as `argmax` says.

    The first place of its least position, and not a share of equal ones: their number is a sum
    that every element would ask for, and dividing by it rounds.
    """
    size = shape(a)
    count = math.prod([size[axis] for axis in axes])
    integer = dtypes.int32 if count <= dtypes.int32.max else dtypes.int64
    position, stride = graph.full((), integer, 0), 1
    for axis in reversed(axes):
        position = add(position, scale(graph.arange(size, axis, integer), stride))
        stride *= size[axis]
    found = equal(a, graph.expand(kept_dims(n, size, axes), size))
    if a.dtype.is_float:
        found = graph.elementwise(Ops.OR, found, is_nan(a))
    first = graph.reduce_axis(choose(found, position, count), Ops.MIN, axes)
    return equal(position, graph.expand(kept_dims(first, size, axes), size))


def others_product(a: UOp, axes: Sequence[int]) -> UOp:
    """For each element the product of all the others along the axes; right with zeros, too."""
    size = shape(a)
    rest = [i for i in range(len(size)) if i not in axes]
    order = (*rest, *axes)
    lines = graph.permute(a, order)
    kept_shape = tuple([size[i] for i in rest])
    length = 1
    for axis in axes:
        length *= size[axis]
    flat = graph.reshape(lines, (*kept_shape, length))
    before = _exclusive(flat, Ops.MUL, 1)
    last = len(kept_shape)
    after = graph.flip(_exclusive(graph.flip(flat, (last,)), Ops.MUL, 1), (last,))
    product = graph.reshape(mul(before, after), tuple([size[i] for i in order]))
    back = [0] * len(order)
    for place, axis in enumerate(order):
        back[axis] = place
    return graph.permute(product, tuple(back))


def _exclusive(a: UOp, op: Ops, identity: int) -> UOp:
    """The scan over the last axis without each own element."""
    size = shape(a)
    rank, length = len(size), size[-1]
    scanned = graph.scan_axis(a, op, rank - 1)
    head = graph.slice_(scanned, (*[(0, n, 1) for n in size[:-1]], (0, length - 1, 1)))
    moved = graph.pad(head, (*[(0, 0)] * (rank - 1), (1, 0)))
    first = equal(graph.arange(size, rank - 1, dtypes.int64), graph.full((), dtypes.int64, 0))
    return choose(first, identity, moved)


def _scan(n: UOp, d: UOp) -> Gradients:
    op, axis = n.arg
    (a,) = n.src
    if op is Ops.ADD:
        back = graph.scan_axis(graph.flip(d, (axis,)), Ops.ADD, axis)
        return (graph.flip(back, (axis,)),)
    return (_product_scan(a, d, axis) if op is Ops.MUL else _extreme_scan(n, d, axis),)


def _pairwise(a: UOp, axis: int, place: int) -> UOp:
    """`a` with its axis last, as rows or columns of a square: (.., 1, n) or (.., n, 1)."""
    size = shape(a)
    order = tuple([i for i in range(len(size)) if i != axis] + [axis])
    lines = graph.permute(a, order)
    rest = shape(lines)[:-1]
    square = (*rest, size[axis], size[axis])
    kept_shape = (*rest, 1, size[axis]) if place == 1 else (*rest, size[axis], 1)
    return graph.expand(graph.reshape(lines, kept_shape), square)


def _from_last(a: UOp, axis: int) -> UOp:
    rank = len(shape(a))
    order = list(range(rank - 1))
    order.insert(axis, rank - 1)
    return graph.permute(a, tuple(order))


def _product_scan(a: UOp, d: UOp, axis: int) -> UOp:
    """grad[i] = sum over k >= i of d[k] * product of a[j], j <= k, j != i; quadratic, exact."""
    rows = _pairwise(a, axis, 1)
    size = shape(rows)
    own, other = len(size) - 2, len(size) - 1
    i = graph.arange(size, own, dtypes.int32)
    j = graph.arange(size, other, dtypes.int32)
    products = graph.scan_axis(choose(equal(i, j), 1, rows), Ops.MUL, other)
    terms = choose(less_equal(i, j), mul(products, _pairwise(d, axis, 1)), 0)
    return _from_last(sum_of(terms, (other,)), axis)


def _extreme_scan(n: UOp, d: UOp, axis: int) -> UOp:
    """Each d[k] goes to where the running maximum (minimum) at k was first reached."""
    op = n.arg[0]
    a = n.src[0]
    size = shape(a)
    before = _shifted_along(n, axis)
    i = graph.arange(size, axis, dtypes.int32)
    reached = less(before, a) if op is Ops.MAX else less(a, before)
    # a nan ends the comparison: the first one is reached, and everything after is its
    reached = graph.elementwise(Ops.OR, reached, both(is_nan(a), negate_bits(is_nan(before))))
    first = equal(i, like(i, 0))
    starts = choose(graph.elementwise(Ops.OR, reached, first), i, -1)
    owner = graph.scan_axis(starts, Ops.MAX, axis)
    owners = _pairwise(owner, axis, 1)
    own = graph.arange(shape(owners), len(size) - 1, dtypes.int32)
    terms = choose(equal(owners, own), _pairwise(d, axis, 1), 0)
    return _from_last(sum_of(terms, (len(size),)), axis)


def _shifted_along(a: UOp, axis: int) -> UOp:
    size = shape(a)
    region = tuple([(0, k - 1 if i == axis else k, 1) for i, k in enumerate(size)])
    widths = tuple([(1 if i == axis else 0, 0) for i in range(len(size))])
    return graph.pad(graph.slice_(a, region), widths)


# ---- memory


def _gather(n: UOp, d: UOp) -> Gradients:
    table, indices = n.src
    return scatter_sum(d, indices, shape(table)), None


def _totals_by_place(values: UOp, indices: UOp, size: graph.Shape, count: int) -> UOp:
    """As `scatter_sum`: every place gets the total of all places of its row, the last is kept."""
    rest = size[1:]
    ones = (1,) * len(rest)
    column = graph.reshape(indices, (count, 1, *ones))
    line = graph.reshape(indices, (1, count, *ones))
    whole = (count, count, *rest)
    same = graph.broadcast_to(equal(column, line), whole)
    flat = graph.broadcast_to(graph.reshape(values, (1, count, *rest)), whole)
    totals = sum_of(choose(same, flat, 0), (1,))
    zeros = graph.full(size, values.dtype, 0)
    return graph.scatter(zeros, graph.reshape(indices, (count,)), graph.cast(totals, values.dtype))


def scatter_sum(values: UOp, indices: UOp, size: graph.Shape) -> UOp:
    """Zeros of shape `size` with each values[i.., j..] added at [indices[i..], j..].

    A sum over a one-hot selection: quadratic work, but no order of additions to keep. Of the
    two selections, places by rows and places by places, the smaller.
    """
    rest = size[1:]
    count = 1
    for extent in shape(indices):
        count *= extent
    if 0 < count < size[0]:
        return _totals_by_place(values, indices, size, count)
    whole = (size[0], count, *rest)
    flat = graph.reshape(values, (1, count, *rest))
    ones = (1,) * len(rest)
    wanted = graph.reshape(indices, (1, count, *ones))
    place = graph.arange((size[0], 1, *ones), 0, indices.dtype)
    chosen = graph.broadcast_to(equal(place, wanted), whole)
    return sum_of(choose(chosen, graph.broadcast_to(flat, whole), 0), (1,))


def _scatter(n: UOp, d: UOp) -> Gradients:
    table, indices, values = n.src
    to_table = graph.scatter(d, indices, zeros_like(values))
    # a value counts only where it was the last one written to its place
    flat = graph.reshape(indices, (_count(indices),))
    order = graph.arange(shape(flat), 0, dtypes.int64)
    nobody = graph.full((shape(table)[0],), dtypes.int64, -1)
    winner = graph.gather(graph.scatter(nobody, flat, order), flat)
    won = graph.reshape(equal(winner, order), shape(indices) + (1,) * (len(shape(table)) - 1))
    picked = graph.gather(d, indices)
    return to_table, None, choose(graph.broadcast_to(won, shape(values)), picked, 0)


def _count(uop: UOp) -> int:
    count = 1
    for extent in shape(uop):
        count *= extent
    return count


def _write(n: UOp, d: UOp) -> Gradients:
    value = n.src[1]
    return graph.write(d, n.arg, zeros_like(value)), graph.slice_(d, n.arg)


def _same(n: UOp, d: UOp) -> Gradients:
    return (d,)


RULES: Final[dict[Ops, Rule]] = {
    Ops.ADD: _add,
    Ops.MUL: _mul,
    Ops.FDIV: _fdiv,
    Ops.MOD: _mod,
    Ops.MAX: _extreme,
    Ops.MIN: _extreme,
    Ops.WHERE: _where,
    Ops.CAST: _cast,
    Ops.SQRT: _sqrt,
    Ops.EXP: _exp,
    Ops.EXP2: _exp2,
    Ops.LOG2: _log2,
    Ops.SIN: _sin,
    Ops.MULACC: _multiply_accumulate,
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SLICE: _slice,
    Ops.WINDOW: _window,
    Ops.UNWINDOW: _unwindow,
    Ops.REDUCE_AXIS: _reduce,
    Ops.SCAN_AXIS: _scan,
    Ops.GATHER: _gather,
    Ops.SCATTER: _scatter,
    Ops.WRITE: _write,
    Ops.MATERIALIZE: _same,
}
"""COPY, which has to know the device it came from, is `autograd`'s own."""
