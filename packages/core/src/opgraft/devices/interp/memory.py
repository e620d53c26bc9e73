"""Memory accesses of many instances at once: which elements, which of them count, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from opgraft.api import DType, errors
from opgraft.devices.interp.alu import (
    Array,
    from_storage,
    register_dtype,
    storage_dtype,
    to_storage,
)


@dataclass
class Memory:
    """A buffer: rows of elements as they are stored, a row for each instance or one for all."""

    rows: Array
    dtype: DType
    """Of an element, scalar; a vector element is as many scalars."""

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
            found = self.rows[np.arange(self.rows.shape[0])[:, None], places]
        return from_storage(found, self.dtype)

    def store(self, places: Array, value: Array, active: Array | None) -> None:
        """Write `value` at `places`, where `active`; of equal places the last instance wins."""
        rows: Array = np.arange(self.rows.shape[0])[:, None]
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


def poison(dtype: DType) -> Array:
    """What memory that was not written yet holds: nan, or the least integer."""
    value: Any = np.nan if dtype.is_float else dtype.min
    return np.array([[value]], dtype=register_dtype(dtype))


class Fail:
    """Raises the error of one access; it names the kernel and the instruction."""

    def __init__(self, kernel: str, instruction: str) -> None:
        self.kernel, self.instruction = kernel, instruction

    def __call__(self, element: int, size: int) -> NoReturn:
        raise errors.DeviceError(
            f"kernel {self.kernel!r}: {self.instruction} touches element {element} "
            f"of a buffer of {size}",
            remedy="The index is wrong, or the access lacks its gate.",
        )


def places_of(
    index: Array, element: int, lanes: int, size: int, active: Array | None, fail: Fail
) -> Array:
    """The scalars that an access touches, instances x lanes, all of them in range.

    `lanes` from a scalar index on are consecutive; an index counts elements of `element` scalars
    each. `fail` is called where one that counts (is `active`) is out of range; one that does not
    count is moved into range.
    """
    places = index if index.dtype == np.int64 else index.astype(np.int64)
    if element > 1:
        places = places * element
    if lanes > 1 and places.shape[1] == 1:
        places = places + np.arange(lanes)
    if places.size and (places.min() < 0 or places.max() >= size):
        outside = (places < 0) | (places >= size)
        broken = outside if active is None else outside & active
        if broken.any():
            fail(int(np.broadcast_to(places, broken.shape)[broken][0]) // element, size // element)
        places = np.where(outside, 0, places)
    return places
