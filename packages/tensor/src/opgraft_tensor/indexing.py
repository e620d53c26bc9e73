"""Indexing of a tensor by NumPy's rules: reading parts, and assignment to them in program order.

A key is split in two: first slices, integers, None and Ellipsis (a region of the tensor: a view),
then integer arrays within it (a gather). Assignment makes the next version of the value and
moves this tensor's handle to it. Whatever was computed from the old version, lazily too, keeps
the old data; a tensor made by indexing is a value of its own, never a window on this one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from opgraft.dtype import dtypes
from opgraft.ir.uop import UOp
from opgraft_tensor import algebra, graph
from opgraft_tensor.base import Base, Operand, is_scalar, scalar
from opgraft_tensor.exchange import make_storage
from opgraft_tensor.extents import Sized, stated, up_to
from opgraft_tensor.graph import Region, Shape, shape
from opgraft_tensor.late import is_array, is_numpy, np
from opgraft_tensor.storage import buffer_node

if TYPE_CHECKING:
    from typing import Self


class Plan(NamedTuple):
    """A key, understood: the region; the shape with integers gone and None in; the arrays."""

    region: Region
    """Of each axis of the tensor."""
    viewed: Shape
    """The shape of the region without the axes of integers, with the new ones of None."""
    arrays: tuple[tuple[int, UOp], ...]
    """(axis of `viewed`, indices), axes rising; empty: basic indexing alone."""
    front: bool
    """The axes of the arrays are not neighbours: their result comes first."""


class Indexing(Base):
    """`x[key]`, `x[key] = value`, and selection along an axis."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        return self._new(self._read(self._understood(key)))

    def _read(self, plan: Plan) -> UOp:
        part = graph.reshape(graph.slice_(self._uop, plan.region), plan.viewed)
        if not plan.arrays:
            return part
        axes = tuple([axis for axis, _ in plan.arrays])
        rank = len(plan.viewed)
        order = (*axes, *[i for i in range(rank) if i not in axes])
        indices, table = self._flat(part, plan, order)
        found = graph.gather(table, indices)
        if plan.front:
            return found
        # the result of the arrays goes where they stood
        many = len(shape(indices))
        place = axes[0]
        back = (
            *range(many, many + place),
            *range(many),
            *range(many + place, len(shape(found))),
        )
        return graph.permute(found, back)

    def _flat(self, part: UOp, plan: Plan, order: tuple[int, ...]) -> tuple[UOp, UOp]:
        """One index into one leading axis that stands for the axes of all arrays."""
        size = shape(part)
        many = len(plan.arrays)
        moved = graph.permute(part, order)
        extents = [size[a] for a in order[:many]]
        table = graph.reshape(moved, (math.prod(extents), *shape(moved)[many:]))
        index = plan.arrays[0][1]
        for (_, more), extent in zip(plan.arrays[1:], extents[1:]):
            index = algebra.add(algebra.scale(index, extent), more)
        return index, table

    # ---- understanding a key

    def _understood(self, key: Any) -> Plan:
        entries = self._expanded(key)
        advanced = any(_is_array(e) for e in entries)
        region: list[tuple[int, int, int]] = []
        viewed: list[int] = []
        arrays: list[tuple[int, Any, int]] = []
        places: list[int] = []
        axis = 0
        for place, entry in enumerate(entries):
            if entry is None or entry is Ellipsis:
                viewed += [1] if entry is None else []
                continue
            extent = self.shape[axis]
            if isinstance(entry, slice):
                begin, count, step = _span(entry, extent)
                region.append((begin if count else 0, count, step))
                viewed.append(count)
            elif _is_array(entry):
                if isinstance(extent, Sized):
                    raise ValueError(
                        f"an array indexes axis {axis} of shape {self.shape}, whose size is a "
                        "variable and stays an axis of its own: index the whole array up to the "
                        f"greatest size, {int(extent.extent)}"
                    )
                extent = stated(extent)
                region.append((0, extent, 1))
                arrays.append((len(viewed), entry, extent))
                places.append(place)
                viewed.append(extent)
            else:
                region.append((self._index_in(entry.__index__(), axis), 1, 1))
                if advanced:  # next to arrays, an integer is an array of no axes
                    places.append(place)
            axis += 1
        nodes = [self._index_node(entry, extent) for _, entry, extent in arrays]
        if nodes:
            common = graph.broadcast_shapes(*[shape(n) for n in nodes])
            nodes = [graph.broadcast_to(n, common) for n in nodes]
        neighbours = not places or places[-1] - places[0] == len(places) - 1
        found = tuple([(a, n) for (a, _, _), n in zip(arrays, nodes)])
        return Plan(tuple(region), tuple(viewed), found, not neighbours)

    def _index_in(self, index: int, axis: int) -> int:
        """An index as counted from the front. Raises `IndexError` where there is none."""
        extent = self.shape[axis]
        if isinstance(extent, Sized):
            size = extent.extent
            if 0 <= index < size.low:
                return index
            if not -int(size) <= index < int(size):
                raise IndexError(
                    f"index {index} is outside axis {axis} of shape {self.shape}, "
                    f"whose greatest size is {int(size)}"
                )
            where = f"Tensor.arange({size.name}) == {index}"
            if index < 0:
                where = f"Tensor.arange({size.name}) + {-index} == {size.name}"
            raise IndexError(
                f"index {index} of axis {axis} of shape {self.shape}, whose size is a variable, "
                f"{size.low} to {int(size)}: not every size has the element, or has it there; "
                f"sum over the axis with ({where}).where(x, 0)"
            )
        if not -extent <= index < extent:
            raise IndexError(f"index {index} is outside axis {axis} of shape {self.shape}")
        return index % extent

    def _expanded(self, key: Any) -> list[Any]:
        """The key with an entry for each axis, besides None and Ellipsis; masks as integers.

        Ellipsis stays in front of the slices it stands for: it parts arrays, even for none.
        """
        entries = [self._entry(e, key) for e in (key if isinstance(key, tuple) else (key,))]
        used = sum(_axes_of(e) for e in entries)
        if used > self.ndim:
            raise IndexError(f"{used} indices for a tensor of shape {self.shape}")
        dots = [i for i, e in enumerate(entries) if e is Ellipsis]
        if len(dots) > 1:
            raise IndexError("an index can only have one Ellipsis")
        at = dots[0] + 1 if dots else len(entries)
        entries[at:at] = [slice(None)] * (self.ndim - used)
        result: list[Any] = []
        axis = 0
        for entry in entries:
            if is_array(entry) and entry.dtype == np.bool_:
                result.extend(self._mask(entry, axis))
            else:
                result.append(entry)
            axis += _axes_of(entry)
        return result

    def _entry(self, entry: Any, key: Any) -> Any:
        """One part of a key, sequences as arrays. Raises `IndexError` for what is no index."""
        if isinstance(entry, Base):
            if entry.dtype.is_bool:
                raise IndexError(
                    "the shape of x[mask] depends on data, which a lazy tensor does not know; "
                    "use mask.where(x, other), or mask.numpy() for a mask that is final"
                )
            return entry
        if isinstance(entry, bool) or (is_numpy(entry) and isinstance(entry, np.bool_)):
            raise IndexError("a bool is no index; use None to add an axis")
        if (
            isinstance(entry, (list, range))
            or is_array(entry)
            or (isinstance(entry, tuple) and isinstance(key, tuple))
        ):
            values = np.asarray(entry)
            empty = values.size == 0 and not is_array(entry)
            return values.astype(np.int64) if empty else values
        if entry is not None and entry is not Ellipsis and not isinstance(entry, slice):
            _check_integer(entry)
        return entry

    def _mask(self, mask: np.ndarray, axis: int) -> list[np.ndarray]:
        if mask.shape != self.shape[axis : axis + mask.ndim]:
            raise IndexError(f"a mask of shape {mask.shape} at axis {axis} of shape {self.shape}")
        return [np.ascontiguousarray(n) for n in np.nonzero(mask)]

    def _index_node(self, entry: Any, extent: int) -> UOp:
        """Indices as int64 within 0 .. extent-1; values known now are checked now."""
        if not isinstance(entry, Base):
            values = np.asarray(entry)
            if values.dtype.kind not in "iu":
                raise IndexError(f"indices are integers, not {values.dtype}")
            outside = values[(values < -extent) | (values >= extent)]
            if outside.size:
                raise IndexError(f"index {outside.flat[0]} is outside an axis of {extent}")
            wrapped = np.where(values < 0, values + extent, values)
            return buffer_node(make_storage(wrapped, dtypes.int64, self._device))
        if not entry.dtype.is_int:
            raise IndexError(f"indices are integers, not {entry.dtype}")
        node = self._as_node(entry)
        if not node.dtype.is_signed:
            return graph.cast(node, dtypes.int64)
        node = graph.cast(node, dtypes.int64)
        return wrapped_index(node, extent)

    # ---- assignment

    def __setitem__(self, key: Any, value: Operand) -> None:
        """The next version of this tensor; of repeated indices the last wins."""
        if isinstance(key, Base) and key.dtype.is_bool:
            self._assign_where(key, value)
            return
        plan = self._understood(key)
        target = self._read(plan)
        made = self._value_node(value, shape(target))
        if plan.arrays:
            made = self._scattered(plan, made)
        counts = tuple([count for _, count, _ in plan.region])
        self._move(graph.write(self._uop, plan.region, graph.reshape(made, counts)))

    def _value_node(self, value: Operand, size: Shape) -> UOp:
        if is_scalar(value):
            return graph.broadcast_to(scalar(value, self.dtype), size)
        node = graph.cast(self._as_node(value), self.dtype)
        have = shape(node)
        # leading axes of extent 1 may be left over, as in NumPy
        while len(have) > len(size) and have[0] == 1:
            have = have[1:]
        try:
            return graph.broadcast_to(graph.reshape(node, have), size)
        except ValueError as error:
            raise ValueError(f"cannot assign shape {shape(node)} to a part of {size}") from error

    def _scattered(self, plan: Plan, value: UOp) -> UOp:
        """The region with `value` (in the shape that reading gives) put in at the indices."""
        part = graph.reshape(graph.slice_(self._uop, plan.region), plan.viewed)
        axes = tuple([axis for axis, _ in plan.arrays])
        rank = len(plan.viewed)
        order = (*axes, *[i for i in range(rank) if i not in axes])
        indices, table = self._flat(part, plan, order)
        many = len(shape(indices))
        if not plan.front:
            place = axes[0]
            rest = len(shape(value)) - many
            value = graph.permute(
                value,
                (
                    *range(place, place + many),
                    *range(place),
                    *range(place + many, many + rest),
                ),
            )
        done = graph.scatter(table, indices, value)
        back = [0] * rank
        for at, axis in enumerate(order):
            back[axis] = at
        moved = graph.reshape(done, tuple([plan.viewed[a] for a in order]))
        return graph.permute(moved, tuple(back))

    def _assign_where(self, mask: Base, value: Operand) -> None:
        wanted = self.shape[: mask.ndim]
        if mask.shape != wanted:
            raise IndexError(f"a mask of shape {mask.shape} for a tensor of shape {self.shape}")
        made = self._value_node(value, ()) if is_scalar(value) else self._as_node(value)
        if math.prod(shape(made)) != 1:
            raise IndexError(
                "x[mask] = y takes one value, since the shape of x[mask] depends on data; "
                "use x.assign(mask.where(y, x)) for a y of the shape of x"
            )
        ones = (1,) * (self.ndim - mask.ndim)
        chosen = graph.reshape(self._as_node(mask), (*mask.shape, *ones))
        one = graph.cast(graph.reshape(made, ()), self.dtype)
        result = graph.where(graph.broadcast_to(chosen, self.shape), one, self._uop)
        self._move(graph.write(self._uop, whole(self.shape), result))

    def assign(self, value: Operand) -> Self:
        """Make `value` (broadcast, cast to this dtype) the next version; gives this tensor."""
        made = self._value_node(value, self.shape)
        self._move(graph.write(self._uop, whole(self.shape), made))
        return self

    def _move(self, uop: UOp) -> None:
        """Let this tensor stand for another node from now on; a leaf stays one."""
        self._stand_for(uop)

    # ---- selection along an axis

    def take(self, indices: Operand, axis: int | None = None) -> Self:
        """Entries along an axis by integers of any shape, which takes the place of the axis."""
        if axis is None:
            return self._new(graph.reshape(self._uop, (self.size,))).take(indices, 0)
        key = indices if isinstance(indices, Base) else np.asarray(indices)
        return self[(slice(None),) * self._axis(axis) + (key,)]

    def take_along_axis(self, indices: Operand, axis: int = -1) -> Self:
        """out[.., i, ..] = x[.., indices[.., i, ..], ..]: one index per element of the result."""
        place = self._axis(axis)
        found = self._index_node(
            indices if isinstance(indices, Base) else np.asarray(indices), self.shape[place]
        )
        size = shape(found)
        if len(size) != self.ndim:
            raise ValueError(f"indices of shape {size} along axis {place} of shape {self.shape}")
        whole_shape = graph.broadcast_shapes(
            tuple([1 if i == place else n for i, n in enumerate(size)]),
            tuple([1 if i == place else n for i, n in enumerate(self.shape)]),
        )
        target = tuple([size[place] if i == place else n for i, n in enumerate(whole_shape)])
        source = tuple([self.shape[place] if i == place else n for i, n in enumerate(target)])
        table = graph.broadcast_to(self._uop, source)
        return self._new(along(table, graph.broadcast_to(found, target), place))

    def gather(self, axis: int, indices: Operand) -> Self:
        """`take_along_axis` with PyTorch's order of arguments; other axes may be shorter."""
        if isinstance(indices, Base):
            place = self._axis(axis)
            bounds = [
                (0, n if i == place else m, 1)
                for i, (n, m) in enumerate(zip(self.shape, indices.shape))
            ]
            part = self._new(graph.slice_(self._uop, tuple(bounds)))
            return part.take_along_axis(indices, axis)
        values = np.asarray(indices)
        return self.gather(
            axis, self._new(buffer_node(make_storage(values, dtypes.int64, self._device)))
        )

    def one_hot(self, classes: int) -> Self:
        """Integers as rows of `classes` zeros with a one; int64. Outside: no one at all."""
        if not self.dtype.is_int:
            raise TypeError(f"one_hot is of integers, not of {self.dtype}")
        size = (*self.shape, classes)
        place = graph.arange(size, self.ndim, dtypes.int64)
        index = graph.reshape(graph.cast(self._uop, dtypes.int64), (*self.shape, 1))
        return self._new(graph.cast(algebra.equal(place, index), dtypes.int64))


def whole(size: Shape) -> Region:
    """The region that is everything."""
    return tuple([(0, n, 1) for n in size])


def wrapped_index(index: UOp, extent: int) -> UOp:
    """Negative indices counted from the end."""
    below = algebra.less(index, algebra.like(index, 0))
    return algebra.choose(below, algebra.shifted(index, extent), index)


def along(table: UOp, indices: UOp, axis: int) -> UOp:
    """table[.., indices[.., i, ..], ..] of arrays that differ along the axis alone.

    One gather from the flat table; its gradient compares along the axis only.
    """
    size = shape(table)
    index = graph.cast(indices, dtypes.int64)
    flat: UOp | None = None
    for i, extent in enumerate(size):
        here = index if i == axis else graph.arange(shape(index), i, dtypes.int64)
        flat = here if flat is None else algebra.add(algebra.scale(flat, extent), here)
    assert flat is not None
    result = graph.gather(graph.reshape(table, (math.prod(size),)), flat)
    return algebra.with_adjoint(result, (table, indices), _AlongAdjoint(axis))


class _AlongAdjoint:
    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __call__(self, n: UOp, d: UOp) -> tuple[UOp | None, ...]:
        table, indices = algebra.inputs_of(n)
        axis = self.axis
        size, taken = shape(table), shape(indices)[axis]
        # (.., extent, taken, ..): which of the taken came from which place
        square = (*size[: axis + 1], taken, *size[axis + 1 :])
        column = graph.reshape(d, (*size[:axis], 1, taken, *size[axis + 1 :]))
        wanted = graph.reshape(indices, (*size[:axis], 1, taken, *size[axis + 1 :]))
        place = graph.arange(square, axis, indices.dtype)
        chosen = algebra.equal(place, graph.broadcast_to(wanted, square))
        terms = algebra.choose(chosen, graph.broadcast_to(column, square), 0)
        return algebra.sum_of(terms, (axis + 1,)), None


def _is_array(entry: Any) -> bool:
    return isinstance(entry, Base) or is_array(entry)


def _span(entry: slice, extent: int) -> tuple[int, int, int]:
    """Begin, count and step of a slice; of variable sizes there is `[:n]`, and `[:]`."""
    plain = entry.start in (None, 0) and entry.step in (None, 1)
    if isinstance(extent, Sized) and plain and entry.stop in (None, extent):
        return 0, stated(extent), 1
    if isinstance(entry.stop, Sized) and plain:
        return 0, up_to(entry.stop, extent), 1
    begin, end, step = entry.indices(extent)
    return begin, len(range(begin, end, step)), step


def _axes_of(entry: Any) -> int:
    """How many axes a part of a key takes up."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if is_array(entry) and entry.dtype == np.bool_ else 1


def _check_integer(entry: Any) -> None:
    if not hasattr(entry, "__index__"):
        raise IndexError(
            f"an index is an integer, a slice, None, Ellipsis or an integer array, not {entry!r}"
        )
