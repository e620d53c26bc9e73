"""Movement of a tensor's elements: views, joins, parts. Nothing is computed, little is copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opgraft.dtype import Scalar, dtypes, promote
from opgraft.ir.ops import Ops
from opgraft_tensor import algebra, graph
from opgraft_tensor.base import Base, check_number
from opgraft_tensor.exchange import sequence_shape
from opgraft_tensor.extents import Sized, stated, up_to

if TYPE_CHECKING:
    from typing import Self


class Movement(Base):
    """Shapes are given as separate numbers or as one tuple; -1 stands for what is left."""

    __slots__ = ()

    def reshape(self, *sizes: int | Sequence[int]) -> Self:
        """The same elements in row-major order; one extent may be -1."""
        to = sequence_shape(sizes)
        if to.count(-1) > 1 or any(n < -1 for n in to):
            raise ValueError(f"cannot reshape {self.shape} to {to}: only one extent may be -1")
        if -1 in to:
            rest = -math.prod(to)
            size = math.prod(graph.shape(self._uop))
            if rest == 0 or size % rest:
                raise ValueError(f"cannot reshape {self.shape} ({size} elements) to {to}")
            to = tuple([size // rest if n == -1 else n for n in to])
        return self._new(graph.reshape(self._uop, to))

    view = reshape

    def permute(self, *axes: int | Sequence[int]) -> Self:
        """Axis i of the result is axis `axes[i]` of this tensor."""
        order = tuple([self._axis(a) for a in sequence_shape(axes)])
        if len(order) != self.ndim or len(set(order)) != len(order):
            raise ValueError(f"cannot permute shape {self.shape} by {order}")
        return self._new(graph.permute(self._uop, order))

    permute_dims = permute

    def transpose(self, first: int = 0, second: int = 1) -> Self:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        a, b = self._axis(first), self._axis(second)
        order[a], order[b] = order[b], order[a]
        return self._new(graph.permute(self._uop, tuple(order)))

    @property
    def T(self) -> Self:
        """All axes in opposite order."""
        return self._new(graph.permute(self._uop, tuple(reversed(range(self.ndim)))))

    @property
    def mT(self) -> Self:
        """The last two axes exchanged: the transpose of each matrix."""
        if self.ndim < 2:
            raise ValueError(f"mT needs two axes, the shape is {self.shape}")
        return self.transpose(-2, -1)

    def expand(self, *sizes: int | Sequence[int]) -> Self:
        """Axes of extent 1 repeated, leading ones added; -1 keeps an extent."""
        to = sequence_shape(sizes)
        old = (1,) * (len(to) - self.ndim) + self.shape
        if len(old) != len(to):
            raise ValueError(f"cannot expand {self.shape} to {to}")
        to = tuple([stated(a) if n == -1 else n for a, n in zip(old, to)])
        return self._new(graph.broadcast_to(self._uop, to))

    broadcast_to = expand

    def pad(
        self,
        widths: int | Sequence[int | Sequence[int] | None],
        value: Scalar = 0,
    ) -> Self:
        """`value` around: for each axis (before, after), a number for both, or None.

        A single number is meant for every axis.
        """
        if isinstance(widths, int):
            widths = (widths,) * self.ndim
        pairs: list[tuple[int, int]] = []
        for width in widths:
            if width is None:
                pairs.append((0, 0))
            elif isinstance(width, int):
                pairs.append((width, width))
            else:
                before, after = width
                pairs.append((before, after))
        check_number(value, self.dtype)
        padded = graph.pad(self._uop, tuple(pairs))
        if repr(self.dtype.const(value)) in ("0", "0.0", "False"):
            return self._new(padded)
        inside = graph.pad(graph.full(self.shape, dtypes.bool, True), tuple(pairs))
        return self._new(algebra.choose(inside, padded, value))

    def shrink(self, bounds: Sequence[tuple[int, int] | None]) -> Self:
        """The part from begin up to end (not included) of each axis; None: the whole axis."""
        if len(bounds) != self.ndim:
            raise ValueError(f"shrink of {self.shape} needs a (begin, end) for each axis: {bounds}")
        region: list[tuple[int, int, int]] = []
        for extent, part in zip(self.shape, bounds):
            begin, end = (0, extent) if part is None else part
            if part is None or (begin == 0 and end == extent):
                region.append((0, stated(extent), 1))
            elif isinstance(end, Sized) and begin == 0:
                region.append((0, up_to(end, extent), 1))
            elif 0 <= begin <= end <= extent:
                region.append((begin, end - begin, 1))
            else:
                raise ValueError(f"shrink of {self.shape} to {tuple(bounds)} leaves the shape")
        return self._new(graph.slice_(self._uop, tuple(region)))

    def flip(self, axis: int | Sequence[int] | None = None) -> Self:
        """The elements in opposite order along the axes; None: along all."""
        return self._new(graph.flip(self._uop, self._axes(axis)))

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Self:
        """Without the axes of extent 1; a named axis has to be one."""
        axes = self._axes(axis)
        if axis is None:
            axes = tuple([a for a in axes if self.shape[a] == 1])
        old = graph.shape(self._uop)
        if any(old[a] != 1 for a in axes):
            raise ValueError(f"cannot squeeze axis {axis} of shape {self.shape}: not of extent 1")
        left = tuple([n for i, n in enumerate(old) if i not in axes])
        return self._new(graph.reshape(self._uop, left))

    def unsqueeze(self, axis: int) -> Self:
        """With a new axis of extent 1 at this place."""
        rank = self.ndim + 1
        if not -rank <= axis < rank:
            raise IndexError(f"axis {axis} of a tensor that will have {rank} axes")
        place = axis % rank
        old = graph.shape(self._uop)
        return self._new(graph.reshape(self._uop, (*old[:place], 1, *old[place:])))

    expand_dims = unsqueeze

    def flatten(self, first: int = 0, last: int = -1) -> Self:
        """The axes from `first` to `last` as one."""
        if self.ndim == 0:
            return self._new(graph.reshape(self._uop, (1,)))
        a, b = self._axis(first), self._axis(last)
        if a > b:
            raise ValueError(f"flatten from axis {first} to {last} of shape {self.shape}")
        joined = math.prod(self.shape[a : b + 1])
        return self._new(graph.reshape(self._uop, (*self.shape[:a], joined, *self.shape[b + 1 :])))

    def unflatten(self, axis: int, sizes: Sequence[int]) -> Self:
        """One axis as several; one of their extents may be -1."""
        a = self._axis(axis)
        return self.reshape((*self.shape[:a], *sizes, *self.shape[a + 1 :]))

    def repeat(self, *counts: int | Sequence[int]) -> Self:
        """The whole tensor side by side, `counts[i]` times along axis i (as NumPy's tile)."""
        times = sequence_shape(counts)
        if any(n < 0 for n in times):
            raise ValueError(f"cannot repeat {times} times")
        rank = max(len(times), self.ndim)
        times = (1,) * (rank - len(times)) + times
        old = (1,) * (rank - self.ndim) + self.shape
        split = [n for extent in old for n in (1, extent)]
        grown = [n for count, extent in zip(times, old) for n in (count, extent)]
        wide = graph.expand(graph.reshape(self._uop, tuple(split)), tuple(grown))
        return self._new(graph.reshape(wide, tuple([c * n for c, n in zip(times, old)])))

    tile = repeat

    def repeat_interleave(self, count: int, axis: int = 0) -> Self:
        """Each element `count` times in a row along an axis."""
        a = self._axis(axis)
        size = self.shape
        wide = graph.reshape(self._uop, (*size[: a + 1], 1, *size[a + 1 :]))
        wide = graph.expand(wide, (*size[: a + 1], count, *size[a + 1 :]))
        return self._new(graph.reshape(wide, (*size[:a], size[a] * count, *size[a + 1 :])))

    # ---- several tensors

    def cat(self, *others: Self, axis: int = 0) -> Self:
        """This tensor and others joined along an axis that they have already."""
        a = self._axis(axis)
        parts = [self, *others]
        for part in others:
            same = part.ndim == self.ndim and all(
                m == n for i, (m, n) in enumerate(zip(self.shape, part.shape)) if i != a
            )
            if not same:
                raise ValueError(f"cannot join shapes {self.shape} and {part.shape} along axis {a}")
        dtype = promote(*[p.dtype for p in parts])
        nodes = [graph.cast(self._as_node(p), dtype) for p in parts]
        total = sum(p.shape[a] for p in parts)
        rest = [(0, 0)] * self.ndim
        result = None
        begin = 0
        for part, made in zip(parts, nodes):
            extent = part.shape[a]
            if extent == 0 and len(parts) > 1 and total > 0:
                continue
            rest[a] = (begin, total - begin - extent)
            padded = graph.pad(made, tuple(rest))
            if result is None:
                result = padded
            else:
                place = graph.arange(graph.shape(padded), a, dtypes.int32)
                own = algebra.less_equal(graph.full((), dtypes.int32, begin), place)
                result = graph.where(own, padded, result)
            begin += extent
        assert result is not None
        return self._new(result)

    concat = cat

    def stack(self, *others: Self, axis: int = 0) -> Self:
        """This tensor and others of its shape joined along a new axis."""
        for part in others:
            if part.shape != self.shape:
                raise ValueError(f"cannot stack shapes {self.shape} and {part.shape}")
        first, *rest = [p.unsqueeze(axis) for p in (self, *others)]
        return first.cat(*rest, axis=axis)

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Self, ...]:
        """Parts of the given sizes along an axis; a number: of that size each, the last smaller."""
        a = self._axis(axis)
        extent = self.shape[a]
        if isinstance(sizes, int):
            if sizes < 1:
                raise ValueError(f"cannot split into parts of {sizes}")
            sizes = [min(sizes, extent - b) for b in range(0, extent, sizes)]
        if sum(sizes) != extent or any(n < 0 for n in sizes):
            raise ValueError(f"parts of {tuple(sizes)} do not fill axis {a} of shape {self.shape}")
        begin = 0
        parts = []
        for count in sizes:
            region = [(0, n, 1) for n in self.shape]
            region[a] = (begin, count, 1)
            parts.append(self._new(graph.slice_(self._uop, tuple(region))))
            begin += count
        return tuple(parts)

    def chunk(self, count: int, axis: int = 0) -> tuple[Self, ...]:
        """At most `count` parts of equal size along an axis, the last maybe smaller."""
        extent = self.shape[self._axis(axis)]
        return self.split(max(1, -(-extent // count)), axis)

    def roll(self, shifts: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Self:
        """Elements moved along axes; what leaves at the end comes in at the beginning."""
        if axis is None:
            if not isinstance(shifts, int):
                raise ValueError("roll over all elements takes one shift")
            flat = self._new(graph.reshape(self._uop, (self.size,)))
            return self._new(graph.reshape(flat.roll(shifts, 0)._uop, self.shape))
        axes = [axis] if isinstance(axis, int) else list(axis)
        counts = [shifts] * len(axes) if isinstance(shifts, int) else list(shifts)
        if len(axes) != len(counts):
            raise ValueError(f"roll by {shifts} along {axis}: as many shifts as axes")
        result = self._new(self._uop)
        for count, one in zip(counts, axes):
            extent = self.shape[self._axis(one)]
            cut = -count % extent if extent else 0
            if cut:
                head, tail = result.split((cut, extent - cut), one)
                result = tail.cat(head, axis=one)
        return result

    # ---- triangles

    def _triangle(self, offset: int, lower: bool) -> Self:
        if self.ndim < 2:
            raise ValueError(f"a triangle needs two axes, the shape is {self.shape}")
        size = self.shape
        row = graph.arange(size, len(size) - 2, dtypes.int64)
        column = graph.arange(size, len(size) - 1, dtypes.int64)
        edge = algebra.shifted(row, offset)
        inside = algebra.less_equal(column, edge) if lower else algebra.less_equal(edge, column)
        return self._new(algebra.choose(inside, self._uop, 0))

    def tril(self, offset: int = 0) -> Self:
        """The lower triangle of each matrix, up to the diagonal `offset`; zeros above."""
        return self._triangle(offset, True)

    def triu(self, offset: int = 0) -> Self:
        """The upper triangle of each matrix, from the diagonal `offset` on; zeros below."""
        return self._triangle(offset, False)

    def diagonal(self, offset: int = 0) -> Self:
        """The diagonal of the last two axes."""
        rows, columns = self.shape[-2:]
        first, second = max(-offset, 0), max(offset, 0)
        length = max(min(rows - first, columns - second), 0)
        region = [*[(0, n, 1) for n in self.shape[:-2]], (first, length, 1), (second, length, 1)]
        square = graph.slice_(self._uop, tuple(region))
        rank = self.ndim
        size = graph.shape(square)
        same = algebra.equal(
            graph.arange(size, rank - 2, dtypes.int32), graph.arange(size, rank - 1, dtypes.int32)
        )
        op = Ops.OR if self.dtype.is_bool else Ops.ADD
        return self._new(graph.reduce_axis(algebra.choose(same, square, 0), op, (rank - 1,)))
