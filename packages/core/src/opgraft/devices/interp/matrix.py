"""DOT, and MATRIX: what several threads hold of two matrices is put together, multiplied, and taken
apart.

Float sums are added up product by product in the order of k, in the dtype of the sums: products of
two 16-bit floats are exact there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opgraft.api import DType, MatrixLayout, MatrixUnit, UOp
from opgraft.devices.interp.alu import Array, from_storage, register_dtype, storage_dtype
from opgraft.devices.interp.frame import Frame
from opgraft.devices.interp.place import Place


def matrix_action(n: UOp, slot_of: Callable[[UOp], int], by: Place) -> Callable[[Frame], None]:
    """The action of a MATRIX."""
    unit: MatrixUnit = n.arg
    slot, (a, b, c) = slot_of(n), (slot_of(s) for s in n.src)
    m, size, depth = unit.shape
    left = _Spread(unit.a, unit.threads, ("m", "k"), (m, depth))
    right = _Spread(unit.b, unit.threads, ("k", "n"), (depth, size))
    sums = _Spread(unit.c, unit.threads, ("m", "n"), (m, size))
    kind = register_dtype(n.dtype)

    def matrix(frame: Frame) -> None:
        _all_there(frame, unit, by)
        values = frame.values
        # what is the same in all instances is so in all blocks of threads
        x = left.gathered(values[a], frame, by, "a").astype(kind)
        y = right.gathered(values[b], frame, by, "b").astype(kind)
        total = sums.gathered(values[c], frame, by, "c")
        for k in range(depth):
            total = total + x[:, :, k, None] * y[:, k, None, :]
        values[slot] = sums.scattered(total)

    return matrix


def dot_action(n: UOp, slot_of: Callable[[UOp], int], by: Place) -> Callable[[Frame], None]:
    """The action of a DOT."""
    slot, (a, b, c) = slot_of(n), (slot_of(s) for s in n.src)
    unit, kind = n.arg, register_dtype(n.dtype)

    def parts(words: Array, dtype: DType) -> Array:
        """Lanes and their parts, as the last two axes."""
        held = storage_dtype(dtype).newbyteorder("<")
        bits = np.ascontiguousarray(words).astype("<i4").view(held)
        return from_storage(bits.reshape(*words.shape, unit.depth), dtype).astype(kind)

    def dot(frame: Frame) -> None:
        values = frame.values
        x, y = parts(values[a], unit.dtypes[0]), parts(values[b], unit.dtypes[1])
        total = values[c]
        for k in range(unit.depth):
            total = total + x[:, :, k] * y[:, :, k]
        values[slot] = total

    return dot


class _Spread:
    """Where the elements of an operand are, as arrays of indices."""

    def __init__(
        self,
        layout: MatrixLayout,
        threads: int,
        sides: tuple[str, str],
        shape: tuple[int, int],
    ) -> None:
        self.layout, self.threads, self.shape = layout, threads, shape
        places = [
            [layout.at(lane, register) for register in range(layout.size)]
            for lane in range(threads)
        ]
        self.rows, self.columns = (
            np.array([[place.get(side, 0) for place in row] for row in places]) for side in sides
        )

    def gathered(self, held: Array, frame: Frame, by: Place, operand: str) -> Array:
        """The matrices, one for each block of threads, of what each thread holds."""
        whole = np.broadcast_to(held, (frame.instances, held.shape[1]))
        blocks = whole.reshape(-1, self.threads, self.layout.size)
        made = np.empty((blocks.shape[0], *self.shape), dtype=held.dtype)
        made[:, self.rows, self.columns] = blocks
        if self.layout.repeats > 1:
            again = made[:, self.rows, self.columns]
            apart = (again != blocks) & ~((again != again) & (blocks != blocks))
            if apart.any():
                block, lane, register = (int(i) for i in np.argwhere(apart)[0])
                by.fail(
                    frame,
                    block * self.threads + lane,
                    f"holds another value in register {register} of {operand} than the thread "
                    "that is to hold the same",
                    "Threads that repeat elements of a matrix load the same ones.",
                )
        return made

    def scattered(self, matrices: Array) -> Array:
        """What each thread holds of the matrices."""
        held = matrices[:, self.rows, self.columns]
        return np.ascontiguousarray(held).reshape(-1, self.layout.size)


def _all_there(frame: Frame, unit: MatrixUnit, by: Place) -> None:
    """An error where not all threads of a block carry out the instruction."""
    if unit.threads == 1:
        return
    each = 1 if frame.grid is None else frame.grid.each
    if each % unit.threads:
        by.fail(
            frame,
            0,
            f"takes {unit.threads} threads together, of groups of {each}",
            "Threads of a group are a multiple of those of a matrix unit.",
        )
    if frame.mask is None:
        return
    here = np.broadcast_to(frame.mask[:, :1], (frame.instances, 1)).reshape(-1, unit.threads)
    torn = here.any(axis=1) & ~here.all(axis=1)
    if torn.any():
        block = int(np.flatnonzero(torn)[0])
        away = block * unit.threads + int(np.flatnonzero(~here[block])[0])
        by.fail(
            frame,
            away,
            f"is not reached, though others of the {unit.threads} threads that carry it out "
            "together are there",
            "A MATRIX stands under no condition, and in no loop, that differs between them.",
        )
