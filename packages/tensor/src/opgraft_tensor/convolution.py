"""Convolutions and pooling of a tensor, by windows: no index arithmetic beyond p*stride + k.

Layouts are (batch, channels, *places) and (out channels, channels / groups, *kernel).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from opgraft.dtype import dtypes, promote
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import algebra, graph
from opgraft_tensor.base import Base
from opgraft_tensor.graph import shape
from opgraft_tensor.linalg import contracted
from opgraft_tensor.reductions import widened

if TYPE_CHECKING:
    from typing import Self

PerPlace: TypeAlias = int | Sequence[int]
"""A number for all places, or one for each."""


class Convolutions(Base):
    """Convolutions are correlations: the kernel is not turned."""

    __slots__ = ()

    def conv1d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: PerPlace = 1,
        padding: PerPlace | str = 0,
        dilation: PerPlace = 1,
        groups: int = 1,
    ) -> Self:
        """(n, c, w) with a weight (o, c / groups, k): (n, o, w')."""
        return self._conv(1, weight, bias, stride, padding, dilation, groups)

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: PerPlace = 1,
        padding: PerPlace | str = 0,
        dilation: PerPlace = 1,
        groups: int = 1,
    ) -> Self:
        """(n, c, h, w) with a weight (o, c / groups, kh, kw): (n, o, h', w').

        `padding` is zeros on both sides: a number, one for each place, or "valid" or "same".
        """
        return self._conv(2, weight, bias, stride, padding, dilation, groups)

    def _conv(
        self,
        places: int,
        weight: Self,
        bias: Self | None,
        stride: PerPlace,
        padding: PerPlace | str,
        dilation: PerPlace,
        groups: int,
    ) -> Self:
        size, kernel = self.shape, weight.shape
        if len(size) != places + 2 or len(kernel) != places + 2:
            raise ValueError(
                f"conv{places}d of shape {size} with a weight of shape {kernel}: "
                f"both need {places + 2} axes"
            )
        if groups < 1 or size[1] % groups or kernel[0] % groups or kernel[1] * groups != size[1]:
            raise ValueError(
                f"conv{places}d of {size[1]} channels in {groups} groups with a weight of shape "
                f"{kernel}: its second extent has to be channels / groups"
            )
        steps, spread = per_place(stride, places), per_place(dilation, places)
        if padding == "same" and any(s != 1 for s in steps):
            raise ValueError('padding "same" needs a stride of 1')
        around = _padding(padding, places, kernel[2:], spread)
        right = self._as_node(weight)
        common = promote(self.dtype, right.dtype)
        padded = graph.pad(graph.cast(self._uop, common), ((0, 0), (0, 0), *around))
        view = windows(padded, 2, kernel[2:], steps, spread)
        out = shape(view)[2 : 2 + places]
        if 0 in out:
            raise ValueError(f"conv{places}d: a kernel of {kernel[2:]} does not fit {size[2:]}")
        # (n, groups, 1, *out, c/groups, *kernel) times (groups, o/groups, 1.., c/groups, *kernel)
        each = kernel[1]
        order = (0, 1, *range(2, 2 + places), *range(2 + places, 2 + 2 * places))
        n = size[0]
        split = graph.reshape(graph.permute(view, order), (n, groups, each, *out, *kernel[2:]))
        rank = 3 + places
        turned = graph.permute(split, (0, 1, *range(3, rank), 2, *range(rank, rank + places)))
        x = graph.reshape(turned, (n, groups, 1, *out, each, *kernel[2:]))
        made = graph.cast(right, common)
        w = graph.reshape(made, (1, groups, kernel[0] // groups, *(1,) * places, each, *kernel[2:]))
        summed = contracted(x, w, tuple(range(3 + places, 4 + 2 * places)))
        result = graph.reshape(summed, (n, kernel[0], *out))
        if bias is not None:
            if bias.shape != (kernel[0],):
                raise ValueError(f"a bias of shape {bias.shape} for {kernel[0]} channels")
            lifted = graph.reshape(self._as_node(bias), (kernel[0], *(1,) * places))
            result = algebra.add(result, graph.cast(lifted, common))
        return self._new(result)

    # ---- pooling

    def max_pool2d(
        self,
        size: PerPlace = 2,
        stride: PerPlace | None = None,
        padding: PerPlace = 0,
        dilation: PerPlace = 1,
    ) -> Self:
        """The greatest of each window; the padding never wins. Stride: the size, if not given.

        A gradient goes to the first of equals in each window.
        """
        lowest = self._lowest()
        view = self._pooled(size, stride, padding, dilation, lowest)
        rank = len(shape(view))
        op = Ops.OR if self.dtype.is_bool else Ops.MAX
        return self._new(graph.reduce_axis(view, op, (rank - 2, rank - 1)))

    def avg_pool2d(
        self, size: PerPlace = 2, stride: PerPlace | None = None, padding: PerPlace = 0
    ) -> Self:
        """The mean of each window, zeros of the padding counted."""
        source = self._new(self._float())
        view = widened(source._pooled(size, stride, padding, 1, 0))
        rank = len(shape(view))
        total = graph.reduce_axis(view, Ops.ADD, (rank - 2, rank - 1))
        count = math.prod(per_place(size, 2))
        mean = algebra.div(total, algebra.like(total, count))
        return self._new(graph.cast(mean, source.dtype))

    def _lowest(self) -> int | float:
        return -math.inf if self.dtype.is_float else self.dtype.min

    def _pooled(
        self,
        size: PerPlace,
        stride: PerPlace | None,
        padding: PerPlace,
        dilation: PerPlace,
        value: int | float,
    ) -> UOp:
        """Windows over the last two axes, in two new last axes; around them `value`."""
        if self.ndim < 2:
            raise ValueError(f"pooling needs two axes, the shape is {self.shape}")
        kernel = per_place(size, 2)
        steps = kernel if stride is None else per_place(stride, 2)
        around = per_place(padding, 2)
        if any(p > k // 2 for p, k in zip(around, kernel)):
            raise ValueError(f"a padding of {around} is more than half of windows of {kernel}")
        widths = (*[(0, 0)] * (self.ndim - 2), *[(p, p) for p in around])
        padded = graph.pad(self._uop, widths)
        if value != 0 and any(around):
            inside = graph.pad(graph.full(self.shape, dtypes.bool, True), widths)
            padded = algebra.choose(inside, padded, value)
        view = windows(padded, self.ndim - 2, kernel, steps, per_place(dilation, 2))
        if 0 in shape(view):
            raise ValueError(f"windows of {kernel} do not fit {self.shape[-2:]}")
        return view


def windows(
    uop: UOp, first: int, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> UOp:
    """Windows over the axes from `first` on; their places come last, in order."""
    for i, (k, step, spread) in enumerate(zip(kernel, stride, dilation)):
        uop = graph.window(uop, first + i, k, step, spread)
    return uop


def per_place(value: PerPlace, places: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * places
    found = tuple(value)
    if len(found) != places:
        raise ValueError(f"{found}: {places} numbers are needed")
    return found


def _padding(
    padding: PerPlace | str, places: int, kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f'padding is a number, "valid" or "same", not {padding!r}')
        total = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilation)]
        return tuple([(t // 2, t - t // 2) for t in total])
    return tuple([(p, p) for p in per_place(padding, places)])
