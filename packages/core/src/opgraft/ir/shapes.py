"""The shapes of array nodes (`GroupOp.ARRAY`, and elementwise operations on them).

A rule for every array operation whose shape is not that of its first source; here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, toposort

Shape: TypeAlias = tuple[int, ...]

_KEY: Final = "shape"


def array_shape(node: UOp) -> tuple[int, ...]:
    """The shape of an array node; kept with it. ValueError for what is no array.

    >>> from opgraft.dtype import dtypes
    >>> row = UOp(Ops.RESHAPE, dtypes.int32, (UOp.const(dtypes.int32, 7),), (1, 1))
    >>> array_shape(UOp(Ops.EXPAND, dtypes.int32, (row,), (2, 3)))
    (2, 3)
    """
    memo = node._memo
    if memo is not None:
        known = memo.get(_KEY)
        if known is not None:
            return known  # type: ignore[no-any-return]
    for below in toposort((node,), lambda n: not (n._memo and _KEY in n._memo)):
        if not (below._memo and _KEY in below._memo):
            below.remember(_KEY, _shape(below))
    assert node._memo is not None
    return node._memo[_KEY]  # type: ignore[no-any-return]


def _shape(node: UOp) -> Shape:
    """The shape by the shapes of the sources, which are known."""
    op = node.op
    leaf = _LEAVES.get(op)
    if leaf is not None:
        return leaf(node.arg)
    if not node.src or op not in _WITH_SOURCES:
        raise ValueError(f"{op} is not an operation on arrays")
    first = array_shape(node.src[0])
    if op is Ops.GATHER:
        return array_shape(node.src[1]) + first[1:]
    rule = _RULES.get(op)
    return first if rule is None else rule(first, node.arg)


def _padded(first: Shape, widths: tuple[tuple[int, int], ...]) -> Shape:
    # an extent without any is itself: it may be more than a number
    return tuple([n + a + b if a or b else n for n, (a, b) in zip(first, widths)])


def _windowed(first: Shape, arg: tuple[int, int, int, int]) -> Shape:
    axis, size, stride, dilation = arg
    count = (first[axis] - dilation * (size - 1) - 1) // stride + 1
    return (*first[:axis], max(count, 0), *first[axis + 1 :], size)


def _unwindowed(first: Shape, arg: tuple[int, int, int, int, int]) -> Shape:
    axis, extent = arg[0], arg[4]
    return (*first[:axis], extent, *first[axis + 1 :])


def _reduced(first: Shape, arg: tuple[Ops, tuple[int, ...]]) -> Shape:
    return tuple([n for axis, n in enumerate(first) if axis not in arg[1]])


_LEAVES: Final[Mapping[Ops, Callable[[Any], Shape]]] = {
    Ops.CONST: lambda arg: (),
    Ops.VAR: lambda arg: (),
    Ops.BUFFER: lambda arg: tuple(arg.shape),
    Ops.ARANGE: lambda arg: tuple(arg[0]),
}
_RULES: Final[Mapping[Ops, Callable[[Shape, Any], Shape]]] = {
    Ops.RESHAPE: lambda first, arg: tuple(arg),
    Ops.EXPAND: lambda first, arg: tuple(arg),
    Ops.PERMUTE: lambda first, arg: tuple([first[axis] for axis in arg]),
    Ops.PAD: _padded,
    Ops.SLICE: lambda first, arg: tuple([count for _, count, _ in arg]),
    Ops.WINDOW: _windowed,
    Ops.UNWINDOW: _unwindowed,
    Ops.REDUCE_AXIS: _reduced,
}
_WITH_SOURCES: Final = GroupOp.ARRAY | GroupOp.ALU
