"""The tensor graph: array nodes, each a function of its index. Shapes and checked constructors.

Nodes are UOps with the array operations of `opgraft.ir.ops`, and the ordinary elementwise ones
on operands of one shape. Scalars are CONST (shape ()), brought to a shape by RESHAPE and EXPAND
(`full`). Every constructor checks its arguments, computes the shape, and drops what means
nothing (an identity view, a view of a view of the same kind, a view of a constant).

What the planner may rely on:
- `shape(uop)` of every node; ALU operands have the node's shape and, but for casts, comparisons
  and the condition of WHERE, its dtype.
- REDUCE_AXIS: axes sorted, not empty, extents not 0; dtype is the accumulator's.
- GATHER (table, indices): integer indices into axis 0, `shape(indices) + shape(table)[1:]`; an
  index outside 0 .. n-1 gives zero (false). SCATTER (table, indices, values): values has the
  shape of that GATHER; the last of repeated indices in row-major order wins; outside: dropped.
- UNWINDOW arg (axis, size, stride, dilation, extent): from [.., o, .., size] to
  [.., extent, .., size]; out[.., p, .., k] = src[.., (p - k*dilation) / stride, .., k] where that
  divides and lies within 0 .. o-1, else zero.
- WRITE (old, value) arg region ((begin, count, step), ...): old with the region replaced.
- MATERIALIZE: arg None, or an `Identity` that makes it unlike every other (a parameter's place).
- A RESHAPE to its own shape with a tag is a mark for autograd ("detach"): the value is its
  source's. Planning may drop it.
- A node may have its value in memory already (`storage.kept`); `realize.py` puts the BUFFER in
  its place, drops marks, carries out COPY, and fills constant and empty outputs itself, before it
  calls `plan.realize(outputs: list[UOp], device: str) -> list[UOp]`, which gives the BUFFER node
  of each output. So the planner meets one device and no COPY, and no output without elements.
- Memory of an old version may be written in place only if no tensor can reach it any more:
  nothing of `storage.live_handles()` that is not an output now, and not `storage.pinned`. Then
  `old.give_to(new)`. Storages made for outputs start without buffer (`storage.buffer is None`).
- The argument of a BUFFER or an `Identity` differs from run to run: number them by first visit
  where graphs are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from opgraft.dtype import DType, Scalar, dtypes
from opgraft.ir.evaluate import alu as evaluate_alu
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.shapes import Shape
from opgraft.ir.shapes import array_shape as shape
from opgraft.ir.uop import UOp, head_of, node
from opgraft_tensor.extents import Extent, in_use, is_variable, stated, told_apart
from opgraft_tensor.storage import Identity, Storage, buffer_node

Region = tuple[tuple[int, int, int], ...]

__all__ = [
    "Identity",
    "Region",
    "Shape",
    "Storage",
    "arange",
    "broadcast_shapes",
    "broadcast_to",
    "buffer_node",
    "cast",
    "constant_of",
    "copy",
    "elementwise",
    "expand",
    "flip",
    "full",
    "gather",
    "mark",
    "materialize",
    "pad",
    "permute",
    "reduce_axis",
    "reshape",
    "scan_axis",
    "scatter",
    "shape",
    "slice_",
    "unwindow",
    "where",
    "window",
    "write",
]


def _stated(size: Shape) -> Shape:
    """A shape that may have been made of one that users see."""
    return tuple([stated(n) for n in size]) if in_use() else size


def _stated_region(region: Region) -> Region:
    return tuple([(b, stated(c), s) for b, c, s in region]) if in_use() else region


def _made(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: object) -> UOp:
    made = node(head_of(op, dtype, arg), src)
    shape(made)  # at once, when those of the sources are known
    return made


# ---- constants


def full(size: Shape, dtype: DType, value: Scalar) -> UOp:
    """An array with one value everywhere; no memory."""
    size = _stated(size)
    made = UOp.const(dtype, value)
    return _spread(made, size)


def _spread(made: UOp, size: Shape) -> UOp:
    if not size:
        return made
    ones = (1,) * len(size)
    made = _made(Ops.RESHAPE, made.dtype, (made,), ones)
    return made if size == ones else _made(Ops.EXPAND, made.dtype, (made,), size)


def constant_of(uop: UOp) -> UOp | None:
    """The CONST that `uop` holds in every place, where it was built by `full`; else None."""
    if uop.op is Ops.EXPAND:
        uop = uop.src[0]
    if uop.op is Ops.RESHAPE and uop.tag is None:
        uop = uop.src[0]
    return uop if uop.op is Ops.CONST else None


def arange(size: Shape, axis: int, dtype: DType) -> UOp:
    """The index along `axis`, as a number of `dtype`."""
    size = _stated(size)
    if not 0 <= axis < len(size):
        raise ValueError(f"arange over axis {axis} of shape {size}")
    return _made(Ops.ARANGE, dtype, (), (size, axis))


def count(extent: Extent, dtype: DType) -> UOp:
    """The number that a variable size is when a kernel runs, as a scalar."""
    return cast(reduce_axis(full((extent,), dtypes.int64, 1), Ops.ADD, (0,)), dtype)


# ---- views


def reshape(uop: UOp, to: Shape) -> UOp:
    """The same elements in row-major order under another shape."""
    to = _stated(to)
    old = shape(uop)
    if to == old:
        return uop
    if in_use() and is_variable((*old, *to)) and _between(to) != _between(old):
        raise ValueError(
            f"cannot reshape {old} to {to}: a variable size stays an axis of its own, in its place"
        )
    if math.prod(to) != math.prod(old) or any(n < 0 for n in to):
        raise ValueError(f"cannot reshape {old} ({math.prod(old)} elements) to {to}")
    constant = constant_of(uop)
    if constant is not None:
        return _spread(constant, to)
    while uop.op is Ops.RESHAPE and uop.tag is None:
        uop = uop.src[0]
        if shape(uop) == to:
            return uop
    return _made(Ops.RESHAPE, uop.dtype, (uop,), to)


def _between(size: Shape) -> list[int]:
    """The variable sizes, and the elements between them."""
    found: list[int] = [1]
    for n in size:
        if isinstance(n, Extent):
            found += [n, 1]
        else:
            found[-1] *= n
    return found


def mark(uop: UOp, tag: str) -> UOp:
    """The same value behind a mark for autograd, in the form of a reshape to its own shape."""
    size = shape(uop)
    made = node(head_of(Ops.RESHAPE, uop.dtype, size, tag), (uop,))
    shape(made)
    return made


def permute(uop: UOp, axes: tuple[int, ...]) -> UOp:
    """Axis i of the result is axis `axes[i]` of the source."""
    old = shape(uop)
    if sorted(axes) != list(range(len(old))):
        raise ValueError(f"cannot permute shape {old} by {axes}: not an order of its axes")
    if uop.op is Ops.PERMUTE:
        axes = tuple([uop.arg[a] for a in axes])
        uop = uop.src[0]
        old = shape(uop)
    if axes == tuple(range(len(old))):
        return uop
    result = tuple([old[a] for a in axes])
    constant = constant_of(uop)
    if constant is not None:
        return _spread(constant, result)
    # moving axes of extent 1 alone moves no element
    if [a for a in axes if old[a] != 1] == [a for a in range(len(old)) if old[a] != 1]:
        return reshape(uop, result)
    return _made(Ops.PERMUTE, uop.dtype, (uop,), axes)


def expand(uop: UOp, to: Shape) -> UOp:
    """Axes of extent 1 repeated to the extents of `to`; as many axes as before."""
    to = _stated(to)
    old = shape(uop)
    if to == old:
        return uop
    if len(to) != len(old) or any(a not in (1, b) for a, b in zip(old, to)):
        raise ValueError(f"cannot expand {old} to {to}: only extents of 1 can grow")
    constant = constant_of(uop)
    if constant is not None:
        return _spread(constant, to)
    if uop.op is Ops.EXPAND:
        uop = uop.src[0]
    return _made(Ops.EXPAND, uop.dtype, (uop,), to)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all these broadcast to, as NumPy does; the error names them all."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for one in shapes:
        for axis, extent in enumerate(one, rank - len(one)):
            if extent != 1:
                if result[axis] not in (1, extent):
                    listed = " and ".join(map(str, shapes))
                    why = told_apart(result[axis], extent)
                    raise ValueError(f"shapes {listed} do not broadcast: {why}")
                result[axis] = extent
    return tuple(result)


def broadcast_to(uop: UOp, to: Shape) -> UOp:
    """Leading axes of extent 1 added, then expanded."""
    to = _stated(to)
    old = shape(uop)
    if old == to:
        return uop
    if len(old) > len(to):
        raise ValueError(f"cannot broadcast {old} to {to}: it has more axes")
    return expand(reshape(uop, (1,) * (len(to) - len(old)) + old), to)


def pad(uop: UOp, widths: tuple[tuple[int, int], ...]) -> UOp:
    """Zeros (false) around: (before, after) for each axis, none negative."""
    old = shape(uop)
    if len(widths) != len(old) or any(a < 0 or b < 0 for a, b in widths):
        raise ValueError(f"cannot pad {old} by {widths}: a (before, after) >= 0 for each axis")
    if not any(a or b for a, b in widths):
        return uop
    _refuse_variable("pad", old, [axis for axis, width in enumerate(widths) if any(width)])
    constant = constant_of(uop)
    if uop.op is Ops.PAD:
        inner = uop.arg
        widths = tuple([(a + c, b + d) for (a, b), (c, d) in zip(widths, inner)])
        uop = uop.src[0]
    made = _made(Ops.PAD, uop.dtype, (uop,), widths)
    if constant is not None and repr(constant.arg) in ("0", "0.0", "False"):
        return _spread(constant, shape(made))
    return made


def _refuse_variable(what: str, size: Shape, axes: Sequence[int]) -> None:
    """Raise where one of these axes has a variable size, which the operation cannot have yet."""
    if in_use():
        for axis in axes:
            extent = size[axis]
            if isinstance(extent, Extent):
                raise ValueError(
                    f"cannot {what} shape {size} along axis {axis}, whose size is a variable, "
                    f"{extent.low} to {int(extent)}: "
                    "work on the whole array up to the greatest size, with where() for the rest"
                )


def _in_every_size(extent: int, part: tuple[int, int, int]) -> bool:
    """Whether a part of a variable axis is there whatever its size."""
    begin, count, step = part
    return (
        isinstance(extent, Extent)
        and not isinstance(count, Extent)
        and all(0 <= place < extent.low for place in (begin, begin + (count - 1) * step))
    )


def slice_(uop: UOp, region: Region) -> UOp:
    """`count` elements from `begin` on, `step` apart (negative: backwards), for each axis."""
    old = shape(uop)
    region = _stated_region(region)
    check_region(old, region)
    parts = [
        axis
        for axis, (extent, part) in enumerate(zip(old, region))
        if part != (0, extent, 1) and not _in_every_size(extent, part)
    ]
    _refuse_variable("take a part of", old, parts)
    # a step means nothing where there is no second element
    region = tuple([(b if c else 0, c, s if c > 1 else 1) for b, c, s in region])
    result = tuple([count for _, count, _ in region])
    if all(b == 0 and c == n and s == 1 for n, (b, c, s) in zip(old, region)):
        return uop
    constant = constant_of(uop)
    if constant is not None:
        return _spread(constant, result)
    if uop.op is Ops.SLICE and 0 not in result:
        region = tuple(
            [(b1 + b2 * s1, c2, s1 * s2) for (b1, _, s1), (b2, c2, s2) in zip(uop.arg, region)]
        )
        return slice_(uop.src[0], region)
    return _made(Ops.SLICE, uop.dtype, (uop,), region)


def check_region(size: Shape, region: Region) -> None:
    """Raise unless every element of the region lies within the shape, steps not 0."""
    if len(region) != len(size):
        raise ValueError(f"a region of {len(region)} axes for shape {size}")
    for extent, (begin, count, step) in zip(size, region):
        last = begin + (count - 1) * step
        inside = count == 0 or (0 <= begin < extent and 0 <= last < extent)
        if count < 0 or step == 0 or not inside:
            raise ValueError(f"region {region} leaves shape {size}")


def flip(uop: UOp, axes: Sequence[int]) -> UOp:
    """The elements in opposite order along each of the axes."""
    region = [(n - 1, n, -1) if i in axes and n else (0, n, 1) for i, n in enumerate(shape(uop))]
    return slice_(uop, tuple(region))


def window(uop: UOp, axis: int, size: int, stride: int = 1, dilation: int = 1) -> UOp:
    """Windows along an axis: out[.., o, .., k] = src[.., o*stride + k*dilation, ..]."""
    old = shape(uop)
    if size < 1 or stride < 1 or dilation < 1 or not 0 <= axis < len(old):
        raise ValueError(f"windows of {size}, stride {stride}, dilation {dilation} over {old}")
    _refuse_variable("take windows of", old, [axis])
    return _made(Ops.WINDOW, uop.dtype, (uop,), (axis, size, stride, dilation))


def unwindow(uop: UOp, axis: int, stride: int, dilation: int, extent: int) -> UOp:
    """The adjoint read of `window`, of windows in the last axis; a sum over it follows."""
    old = shape(uop)
    arg = (axis, old[-1], stride, dilation, extent)
    return _made(Ops.UNWINDOW, uop.dtype, (uop,), arg)


# ---- elementwise


def elementwise(op: Ops, *sources: UOp) -> UOp:
    """`op` on arrays, broadcast to one shape; a fold where all are constants.

    Dtypes agree already (WHERE's condition is bool); comparisons give bool.
    """
    shapes = [shape(s) for s in sources]
    constants = [constant_of(s) for s in sources]
    size = shapes[0]
    if any(s != size for s in shapes):
        size = broadcast_shapes(*shapes)
        sources = tuple(
            [
                s if have == size else broadcast_to(s, size) if c is None else _spread(c, size)
                for s, c, have in zip(sources, constants, shapes)
            ]
        )
    checked = sources[1:] if op is Ops.WHERE else sources
    if any(s.dtype is not checked[0].dtype for s in checked):
        raise TypeError(f"{op} of {', '.join(str(s.dtype) for s in sources)}: dtypes differ")
    dtype = dtypes.bool if op in GroupOp.COMPARISON else sources[-1].dtype
    if op is Ops.WHERE and constants[0] is not None:
        return sources[1] if constants[0].arg else sources[2]
    values = tuple([c.arg for c in constants if c is not None])
    if len(values) == len(sources) and op not in GroupOp.ELEMENTARY:
        folded = evaluate_alu(op, dtype, tuple([s.dtype for s in sources]), values)
        return full(size, dtype, folded)
    # times 1 is exact for every number
    if op is Ops.MUL and values and not dtype.is_bool and values[0] == 1:
        return sources[1] if constants[0] is not None else sources[0]
    return _made(op, dtype, tuple(sources), None)


def cast(uop: UOp, dtype: DType) -> UOp:
    """The values converted (docs/meaning.md); to its own dtype it is the node itself."""
    if dtype is uop.dtype:
        return uop
    constant = constant_of(uop)
    if constant is not None:
        return full(shape(uop), dtype, constant.arg)
    return _made(Ops.CAST, dtype, (uop,), None)


def where(condition: UOp, yes: UOp, no: UOp) -> UOp:
    """`yes` where the condition holds, else `no`; broadcast."""
    return elementwise(Ops.WHERE, condition, yes, no)


# ---- reductions and scans


def reduce_axis(uop: UOp, op: Ops, axes: Sequence[int]) -> UOp:
    """The values over some axes combined; the axes are gone. Accumulates in the node's dtype.

    Over no elements: the identity of ADD, MUL, AND, OR; MAX and MIN have none and refuse.
    """
    old = shape(uop)
    which = tuple(sorted(axes))
    if len(set(which)) != len(which) or any(not 0 <= a < len(old) for a in which):
        raise ValueError(f"cannot reduce shape {old} over axes {tuple(axes)}")
    if op not in GroupOp.REDUCING:
        raise ValueError(f"{op} does not reduce")
    result = tuple([n for i, n in enumerate(old) if i not in which])
    if any(old[a] == 0 for a in which):
        return full(result, uop.dtype, _identity(op, uop.dtype, old))
    # over extents of 1 nothing is combined
    kept_axes = tuple([a for a in which if old[a] != 1])
    if len(kept_axes) != len(which):
        left = tuple([n for i, n in enumerate(old) if i not in which or i in kept_axes])
        moved = [a - sum(1 for w in which if w < a and old[w] == 1) for a in kept_axes]
        return reduce_axis(reshape(uop, left), op, moved)
    if not which:
        return uop
    return _made(Ops.REDUCE_AXIS, uop.dtype, (uop,), (op, which))


def _identity(op: Ops, dtype: DType, size: Shape) -> Scalar:
    if op in (Ops.MAX, Ops.MIN):
        raise ValueError(f"the {'maximum' if op is Ops.MAX else 'minimum'} of shape {size}: empty")
    if op is Ops.AND:
        return True if dtype.is_bool else -1
    return 1 if op is Ops.MUL else 0


def scan_axis(uop: UOp, op: Ops, axis: int) -> UOp:
    """The running combination along an axis, each element included in its own."""
    size = shape(uop)
    if not 0 <= axis < len(size):
        raise ValueError(f"cannot scan shape {size} over axis {axis}")
    if size[axis] <= 1:
        return uop
    return _made(Ops.SCAN_AXIS, uop.dtype, (uop,), (op, axis))


# ---- memory


def gather(table: UOp, indices: UOp) -> UOp:
    """table[indices[i..], j..]; an index outside gives zero."""
    if not shape(table) or not indices.dtype.is_int:
        raise ValueError(f"cannot gather from {shape(table)} by {indices.dtype}")
    _refuse_variable("gather from", shape(table), [0])
    return _made(Ops.GATHER, table.dtype, (table, indices), None)


def scatter(table: UOp, indices: UOp, values: UOp) -> UOp:
    """The table with table[indices[i..], j..] = values[i.., j..]; the last of equals wins."""
    wanted = shape(indices) + shape(table)[1:]
    if shape(values) != wanted or values.dtype is not table.dtype or not indices.dtype.is_int:
        raise ValueError(
            f"cannot scatter {values.dtype} {shape(values)} at {shape(indices)} into "
            f"{table.dtype} {shape(table)}: the values must be {table.dtype} {wanted}"
        )
    _refuse_variable("scatter into", wanted, range(len(wanted)))
    return _made(Ops.SCATTER, table.dtype, (table, indices, values), None)


def write(old: UOp, region: Region, value: UOp) -> UOp:
    """The next version of `old`: the region replaced by `value`, which has its shape."""
    size = shape(old)
    region = _stated_region(region)
    check_region(size, region)
    if shape(value) != tuple([c for _, c, _ in region]) or value.dtype is not old.dtype:
        raise ValueError(
            f"cannot write {value.dtype} {shape(value)} to region {region} of {old.dtype} {size}"
        )
    if math.prod(shape(value)) == 0:
        return old
    return _made(Ops.WRITE, old.dtype, (old, value), region)


def materialize(uop: UOp, identity: Identity | None = None) -> UOp:
    """The value in memory of its own."""
    if uop.op is Ops.BUFFER and identity is None:
        return uop
    return _made(Ops.MATERIALIZE, uop.dtype, (uop,), identity)


def copy(uop: UOp, device: str) -> UOp:
    """The value in the memory of another device."""
    return _made(Ops.COPY, uop.dtype, (uop,), device)
