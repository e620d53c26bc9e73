"""Products that go row by row between other statements, by matrix units: as those of attention.

A group takes as many rows at once as the unit does. What a row hands from statement to statement is
kept for all of them in group memory; the products become products of matrices, and what is between
them is shared by all threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.ir.matrix import MatrixUnit
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, Split
from opgraft.opt.axes import Kernel, closed_by, constant_extent, store_of
from opgraft.opt.distribute import Distribute, rows_of_locals
from opgraft.opt.grid_actions import Grid, Pad
from opgraft.opt.grid_matrix import USEFUL
from opgraft.opt.grid_products import group_memory
from opgraft.opt.matrix import Matrix, operands_of
from opgraft.target import Target

_BLOCKS = 4
"""The most blocks of a unit's threads in a group."""


@dataclass(frozen=True)
class _Product:
    """A statement that stores a sum of products: its loops, by name."""

    rows: object
    columns: object
    depth: object
    tiles: int
    """Tiles of columns."""


def rows_on_grid(sink: UOp, free: list[UOp], target: Target) -> UOp | None:
    """The kernel by a matrix unit, several rows at once; None where there is none for it."""
    kernel = Kernel(sink)
    loops = [r for r in free if kernel.fills_locals(r)] if kernel.has_locals else []
    if not loops or len(free) > target.group_dims:
        return None
    for unit in target.matrix_units:
        each = rows_of_locals(kernel, loops[-1]) * unit.shape[0]
        fits = target.lanes % unit.threads == 0 and unit.threads <= target.threads_per_group
        if not fits or each > target.local_bytes:
            continue
        try:
            made = _Rows(sink, unit, loops[-1], free, target).run()
        except Refused:
            continue
        if made is not None:
            return made
    return None


class _Rows:
    """Applies actions one by one."""

    def __init__(
        self, sink: UOp, unit: MatrixUnit, loop: UOp, free: list[UOp], target: Target
    ) -> None:
        self.sink, self.unit, self.target = sink, unit, target
        self.loop = loop.arg[0]
        self.size = constant_extent(loop) or 1
        self.groups = [r.arg[0] for r in free]
        self.inner: object = self.loop
        """The loop over the rows of a group; each fill has its own, named after it."""

    def apply(self, action: Action) -> None:
        self.sink = action.apply(self.sink)

    def attempt(self, action: Action) -> None:
        """The action, if it is legal."""
        try:
            self.apply(action)
        except Refused:
            return

    def run(self) -> UOp | None:
        rows = self.unit.shape[0]
        if self.size % rows:
            self.apply(Pad(self.loop, rows))
        if self.size > rows:
            self.apply(Split(self.loop, rows))
            self.inner, outer = f"{self.loop}.i", [f"{self.loop}.o"]
        else:
            self.inner, outer = self.loop, []
        self.apply(Distribute(self.inner))
        products = [p for e in self._statements() if (p := self._product(e)) is not None]
        if not products:
            return None
        for name in [*(g for g in self.groups if g != self.loop), *outer]:
            self.apply(Grid(name))
        blocks = 1
        most = min(_BLOCKS, self.target.threads_per_group // self.unit.threads)
        while 2 * blocks <= min(most, *(p.tiles for p in products)):
            blocks *= 2
        for product in products:
            self._multiply(product, blocks)
        threads = blocks * self.unit.threads
        self._share_others(threads)
        return None if group_memory(self.sink, threads) > self.target.local_bytes else self.sink

    def _statements(self) -> list[UOp]:
        """Fills of buffers and effects."""
        kernel = Kernel(self.sink)
        fills = [e for n in kernel.nodes if n.op is Ops.AFTER for e in n.src[1:]]
        return [e for e in dict.fromkeys((*fills, *kernel.effects)) if e.op is Ops.END]

    def _product(self, statement: UOp) -> _Product | None:
        """What a statement multiplies, if the unit does for it."""
        _, n, k = self.unit.shape
        for reduce in store_of(statement).src[2].toposort():
            if reduce.op is not Ops.REDUCE or len(reduce.src) != 2:
                continue
            own = [r for r in closed_by(statement) if r in reduce.ranges]
            for rows in (r for r in own if self._is_row(r)):
                for columns in reversed(own):
                    depth = reduce.src[1]
                    sizes = [constant_extent(r) or 0 for r in (columns, depth)]
                    if 0 in sizes:  # known when the kernel runs: no tiles
                        continue
                    share = 1.0
                    for size, whole in zip(sizes, (n, k), strict=True):
                        share *= size / (-(-size // whole) * whole)
                    if columns is rows or share < USEFUL:
                        continue
                    try:
                        operands_of(reduce, self.unit, rows, columns)
                    except Refused:
                        continue
                    names = (rows.arg[0], columns.arg[0], depth.arg[0])
                    return _Product(*names, -(-sizes[0] // n))
        return None

    def _is_row(self, loop: UOp) -> bool:
        name = loop.arg[0]
        return bool(name == self.inner or str(name).startswith(f"{self.inner}."))

    def _multiply(self, product: _Product, blocks: int) -> None:
        _, n, k = self.unit.shape
        for name, size in ((product.columns, n), (product.depth, k)):
            loop = Kernel(self.sink).find(name)
            if loop is not None and (constant_extent(loop) or 1) % size:
                self.apply(Pad(name, size))
        known = {r.arg[0] for r in Kernel(self.sink).ranges}
        width = min(self.target.max_lanes, self.target.vector_bytes // 4)
        names = (product.rows, product.columns, product.depth)
        self.apply(Matrix(self.unit, *names, max(1, width)))
        made = [r for r in Kernel(self.sink).ranges if r.arg[0] not in known]
        tiles = [r for r in made if r.arg[1] is AxisKind.LOOP]
        if tiles and blocks > 1:
            self.apply(Split(tiles[-1].arg[0], blocks, AxisKind.THREAD))

    def _share_others(self, threads: int) -> None:
        """The statements between the products go to all threads, and so do their sums."""
        for statement in self._statements():
            loops = closed_by(statement)
            if not any(r.arg[1] is AxisKind.THREAD for r in loops):
                self.attempt(Split(loops[-1].arg[0], threads, AxisKind.THREAD))
        for reduce in Kernel(self.sink).reduces:
            alone = not any(r.arg[1] is AxisKind.THREAD for r in reduce.ranges)
            if alone and reduce.src[0].op is not Ops.MATRIX and len(reduce.src) == 2:
                self.attempt(Split(reduce.src[1].arg[0], threads, AxisKind.THREAD))
