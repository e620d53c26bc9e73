"""Tiles for sums of products on a device whose groups of threads have matrix units.

The threads that carry a unit out together keep a few of its results in their registers, so that
what they load is used several times; a group of several such makes a larger tile, whose factors all
its threads copy to group memory first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opgraft.ir.matrix import MatrixUnit
from opgraft.ir.ops import AxisKind
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Fuse, Innermost, Refused
from opgraft.opt.axes import Kernel, constant_extent
from opgraft.opt.grid_actions import Grid, Pad
from opgraft.opt.grid_products import (
    RESIDENT,
    Product,
    Tiling,
    group_bytes,
    named,
    product_in,
)
from opgraft.opt.matrix import Matrix, operands_of
from opgraft.target import Target

_SIDE: Final = 2
"""Blocks of a unit's threads along each side of a group's tile, ..."""
_RESULTS: Final = 4
"""... and the most results of each of them along each side."""
_DEPTH: Final = 32
"""Products of each result that a group has the factors of at once, or as many as the unit takes."""
USEFUL: Final = 0.25
"""The least share of a unit's products that are wanted: it does several times those of lanes."""


@dataclass(frozen=True)
class _Use:
    """A unit, and the loops that it is for."""

    unit: MatrixUnit
    found: Product
    share: float
    """Of its products those that are wanted."""


def matrix_on_grid(sink: UOp, free: list[UOp], target: Target) -> UOp | None:
    """The kernel by a matrix unit; None where there is none for it, or it would not pay."""
    found = product_in(Kernel(sink), free) if target.matrix_units else None
    if found is None:
        return None
    uses = [use for unit in target.matrix_units if (use := _use(sink, found, unit, target))]
    # of equal ones the target's first
    for use in sorted(uses, key=lambda use: -use.share / use.unit.dtype("a").bits):
        try:
            return _MatrixTiling(sink, free, use, target).run()
        except Refused:
            continue
    return None


def _use(sink: UOp, found: Product, unit: MatrixUnit, target: Target) -> _Use | None:
    """What a unit is worth here; None: nothing."""
    (reduce,) = Kernel(sink).reduces
    try:
        operands_of(reduce, unit, found.rows, found.columns)
    except Refused:
        return None
    share = 1.0
    for loop, size in zip((found.rows, found.columns, found.depth), unit.shape, strict=True):
        extent = constant_extent(loop) or 1
        share *= extent / (-(-extent // size) * size)
    fits = target.lanes % unit.threads == 0 and unit.threads <= target.threads_per_group
    return _Use(unit, found, share) if fits and share >= USEFUL else None


class _MatrixTiling(Tiling):
    """The actions one by one; see `Tiling`."""

    def __init__(self, sink: UOp, free: list[UOp], use: _Use, target: Target) -> None:
        super().__init__(sink, free, use.found, target)
        self.unit = use.unit

    def run(self) -> UOp:
        found, target, unit = self.found, self.target, self.unit
        down, across, tall, wide = self._shape()
        rows, row, i = self._blocks(found.rows.arg[0], down, tall, unit.shape[0])
        columns, column, j = self._blocks(found.columns.arg[0], across, wide, unit.shape[1])
        threads = down * across * unit.threads
        depth = self._staged(threads)
        groups = [name for name in (columns, rows) if name is not None]
        for name in groups:
            self.apply(Grid(name))
        self.spread_others(target.group_dims - len(groups))
        width = min(target.max_lanes, target.vector_bytes // found.itemsize)
        self.apply(Matrix(unit, i, j, depth, max(1, width)))
        if row is not None and column is not None:
            self.apply(Fuse(row, column))
        return self.sink

    def _shape(self) -> tuple[int, int, int, int]:
        """Blocks of threads of a group down and across, and results of each down and across.

        Fewer where there are no rows or columns for them, where cores would get no group, and
        where registers would not hold them.
        """
        found, unit, target = self.found, self.unit, self.target
        tiles = [
            -(-(constant_extent(loop) or 1) // size)
            for loop, size in zip((found.rows, found.columns), unit.shape[:2], strict=True)
        ]
        shape = [min(_RESULTS, tiles[0]), min(_RESULTS, tiles[1])]  # results of a block of threads
        blocks = [min(_SIDE, -(-tiles[0] // shape[0])), min(_SIDE, -(-tiles[1] // shape[1]))]
        while blocks[0] * blocks[1] * unit.threads > target.threads_per_group:
            blocks[blocks[0] < blocks[1]] = 1
        held = [unit.registers(o) for o in ("a", "b", "c")]
        for parts in (shape, blocks):
            while max(parts) > 1:
                taken = shape[0] * (held[0] + shape[1] * held[2]) + shape[1] * held[1]
                groups = self.batch
                for side in (0, 1):
                    groups *= -(-tiles[side] // (shape[side] * blocks[side]))
                crowded = parts is shape and 2 * taken > target.vector_registers
                if groups >= target.cores and not crowded:
                    break
                parts[parts[0] < parts[1]] //= 2
        return blocks[0], blocks[1], shape[0], shape[1]

    def _blocks(
        self, name: object, blocks: int, results: int, size: int
    ) -> tuple[object | None, object | None, object]:
        """A loop of results by groups, blocks of threads, results of a block, and one result of
        the unit: the names of groups, blocks (if there are several) and the last."""
        whole = blocks * results * size
        if (constant_extent(named(self.sink, name)) or 1) % whole:
            self.apply(Pad(name, whole))
        groups, inside = self.split(name, whole, AxisKind.LOOP)
        rest, one = self.split(inside, size, AxisKind.UNROLL)
        block = None
        if rest is not None and blocks > 1:
            rest, block = self.split(rest, blocks, AxisKind.THREAD)
        if rest is not None and results > 1:
            self.split(rest, results, AxisKind.UNROLL)
        return groups, block, one

    def _staged(self, threads: int) -> object:
        """Copies the factors' tiles to group memory, where they fit; the loop that is summed over
        inside."""
        room = self.target.local_bytes // RESIDENT
        size, name = self.unit.shape[2], self.found.depth.arg[0]
        if (constant_extent(named(self.sink, name)) or 1) % size:
            self.apply(Pad(name, size))
        self.apply(Innermost(name))
        before = self.sink
        step = max(_DEPTH, size) // size * size
        while step >= size:
            self.sink = before
            try:
                extent = constant_extent(named(self.sink, name)) or 1
                step = min(step, extent)
                if extent % step:
                    self.apply(Pad(name, step))
                outer, inner = self.split(name, step, AxisKind.LOOP)
                for slot in self.found.slots:
                    self.stage(slot, "" if outer is None else outer, threads)
                if group_bytes(self.sink) <= room:
                    return inner
            except Refused:
                break  # then each thread loads what it holds by itself
            step = step // 2 // size * size
        self.sink = before
        return name
