"""Memory accesses of many instances at once: which elements, which of them count, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from opgraft.api import DType
from opgraft.devices.interp.alu import (
    Array,
    Function,
    from_storage,
    register_dtype,
    storage_dtype,
    to_storage,
)
from opgraft.devices.interp.frame import Frame
from opgraft.devices.interp.place import Place
from opgraft.devices.interp.races import Watch


@dataclass
class Memory:
    """A buffer: rows of elements as they are stored, a row for each instance or one for all."""

    rows: Array
    dtype: DType
    """Of an element, scalar; a vector element is as many scalars."""
    row_of: Array | None = None
    """The row of each instance, instances x 1; None: a row each, or one for all."""
    watch: Watch | None = None
    """Of memory that the threads of a launch share and write."""
    name: str = ""
    """Of memory that threads share."""

    @staticmethod
    def over(buffer: Array, dtype: DType, size: int) -> Memory:
        """The memory of a parameter: at most `size` elements of `buffer`, one row for all."""
        flat = buffer.reshape(-1).view(np.uint8)
        width = storage_dtype(dtype).itemsize
        return Memory(flat[: size * width].view(storage_dtype(dtype)).reshape(1, -1), dtype)

    @staticmethod
    def local(instances: int, dtype: DType, size: int) -> Memory:
        """New memory for each instance, filled with values that nobody mistakes for data."""
        rows = np.empty((instances, size), dtype=storage_dtype(dtype))
        rows[...] = to_storage(poison(dtype), dtype)[0, 0]
        return Memory(rows, dtype)

    @staticmethod
    def shared(frame: Frame, name: str, dtype: DType, size: int) -> Memory:
        """New memory for each group, the same for its threads, who are neighbouring instances.

        `dtype` is an element's. Without a launch there is one group of one thread.
        """
        groups = 1 if frame.grid is None else frame.grid.count
        made = Memory.local(groups, dtype.scalar, size * dtype.count)
        made.name = name
        if groups > 1:
            made.row_of = np.repeat(np.arange(groups), frame.instances // groups)[:, None]
        if frame.grid is not None:
            made.watch = Watch.of_groups(f"the local {name!r}", groups, made.size, dtype.count)
        return made

    def read(self, frame: Frame, places: Array, active: Array | None, by: Place) -> Array:
        """The elements at `places`, as `load`; raises where a thread that is `active` may not."""
        if self.watch is not None:
            self.watch.read(frame, places, self._row_or_first(), active, by)
        self._count(frame, places, active, "reads")
        return self.load(places)

    def write(
        self, frame: Frame, places: Array, value: Array, active: Array | None, by: Place
    ) -> None:
        """As `store`; raises where a thread may not."""
        if self.watch is not None:
            self.watch.write(frame, places, self._row_or_first(), active, by)
        self._count(frame, places, active, "writes")
        self.store(places, value, active)

    def _count(self, frame: Frame, places: Array, active: Array | None, does: str) -> None:
        if frame.traffic is not None and self.name:
            grouped = self.watch is not None and self.watch.grouped
            item = (self.name, grouped, self.rows.dtype.itemsize)
            frame.traffic.note(frame, item, places, active, does)

    def _row_or_first(self) -> Array | int:
        return 0 if self.row_of is None else self.row_of

    @property
    def size(self) -> int:
        return int(self.rows.shape[1])

    def load(self, places: Array) -> Array:
        """The elements at `places`, instances x lanes, all of them in range."""
        if self.size == 0:  # then nobody wants them
            return np.zeros(places.shape, dtype=register_dtype(self.dtype))
        if self.rows.shape[0] == 1:
            found = self.rows[0][places]
        else:
            found = self.rows[self._rows(), places]
        return from_storage(found, self.dtype)

    def _rows(self) -> Array:
        return np.arange(self.rows.shape[0])[:, None] if self.row_of is None else self.row_of

    def store(self, places: Array, value: Array, active: Array | None) -> None:
        """Write `value` at `places`, where `active`; of equal places the last instance wins."""
        rows = self._rows()
        stored = to_storage(value, self.dtype)
        if active is None:
            if self.rows.shape[0] == 1:
                self.rows[0][
                    np.broadcast_to(places, np.broadcast_shapes(places.shape, stored.shape))
                ] = stored
            else:
                self.rows[rows, places] = stored
            return
        rows, places, stored, active = np.broadcast_arrays(rows, places, stored, active)
        self.rows[rows[active], places[active]] = stored[active]

    def combine(
        self,
        frame: Frame,
        places: Array,
        value: Array,
        active: Array | None,
        function: Function,
        by: Place,
    ) -> None:
        """Make each element itself combined with the values of all instances, in their order."""
        if self.watch is not None:
            self.watch.write(frame, places, self._row_or_first(), active, by, atomic=True)
        self._count(frame, places, active, "changes")
        instances = frame.instances
        rows = np.arange(1)[:, None] if self.rows.shape[0] == 1 else self._rows()
        shape = (instances, 1)
        parts = [np.broadcast_to(part, shape)[:, 0] for part in (rows, places, value)]
        if active is not None:
            chosen = np.broadcast_to(active, shape)[:, 0]
            parts = [part[chosen] for part in parts]
        row, place, item = parts
        at = row * self.size + place
        flat = self.rows.reshape(-1)
        # in rounds: in each, of the instances that want one element, the next in order
        order = np.argsort(at, kind="stable")
        at, item = at[order], item[order]
        starts = np.concatenate(([True], at[1:] != at[:-1])) if at.size else np.zeros(0, np.bool_)
        first = np.flatnonzero(starts)
        counts = np.diff(np.append(first, at.size))
        for turn in range(int(counts.max()) if counts.size else 0):
            now = first[counts > turn] + turn
            old = from_storage(flat[at[now]], self.dtype)
            flat[at[now]] = to_storage(function(old, item[now]), self.dtype)


def poison(dtype: DType) -> Array:
    """What memory that was not written yet holds: nan, or the least integer."""
    value: Any = np.nan if dtype.is_float else dtype.min
    return np.array([[value]], dtype=register_dtype(dtype))


def places_of(
    frame: Frame,
    index: Array,
    memory: Memory,
    element: int,
    lanes: int,
    active: Array | None,
    by: Place,
) -> Array:
    """The scalars that an access touches, instances x lanes, all of them in range.

    `lanes` from a scalar index on are consecutive; an index counts elements of `element` scalars
    each. An error where one that counts (is `active`) is out of range; one that does not count is
    moved into range.
    """
    size = memory.size
    places = index if index.dtype == np.int64 else index.astype(np.int64)
    if element > 1:
        places = places * element
    if lanes > 1 and places.shape[1] == 1:
        places = places + np.arange(lanes)
    if places.size and (places.min() < 0 or places.max() >= size):
        outside = (places < 0) | (places >= size)
        broken = outside if active is None else outside & active
        if broken.any():
            instance, lane = np.argwhere(broken)[0]
            place = int(np.broadcast_to(places, broken.shape)[instance, lane])
            by.fail(
                frame,
                int(instance),
                f"touches element {place // element} of a buffer of {size // element}",
                "The index is wrong, or the access lacks its gate.",
            )
        places = np.where(outside, 0, places)
    return places
