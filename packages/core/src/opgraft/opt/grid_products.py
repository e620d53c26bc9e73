"""Tiles for sums of products on a device that launches groups of threads.

Each thread keeps a small tile of results in registers, so that what it loads is used several
times; a group's threads make a larger tile, whose factors they copy to group memory together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from opgraft.ir.matrix import DotUnit
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Fuse, Innermost, Refused, Split
from opgraft.opt.axes import Kernel, buffer_of, closed_by, constant_extent
from opgraft.opt.dot import Dot, multiplies
from opgraft.opt.grid_actions import Grid, Pad, Stage
from opgraft.target import Target

_THREADS: Final = 256
_SIDE: Final = 16
"""Threads along each side of a group's tile."""
_DEPTH: Final = 16
"""Products of each result that a group has the factors of at once."""
_LEAST: Final = 8
"""Loops shorter than this are not worth a tile."""
_APART: Final = 16
"""Bytes between rows of a tile in group memory: vectors that are read there stay aligned."""
RESIDENT: Final = 2
"""Groups that a core is to hold at once: while one waits at a barrier, another computes."""


@dataclass
class Product:
    """A sum of products: the loops of its results, and the one that is summed over."""

    rows: UOp
    columns: UOp
    depth: UOp
    slots: tuple[int, ...]
    """Slots of what is multiplied."""
    itemsize: int


def tile_on_grid(sink: UOp, free: list[UOp], target: Target) -> UOp | None:
    """The kernel in tiles; None where it is no sum of products, or too small a one."""
    found = product_in(Kernel(sink), free)
    if found is None:
        return None
    try:
        return Tiling(sink, free, found, target).run()
    except Refused:
        return None


def product_in(kernel: Kernel, free: list[UOp]) -> Product | None:
    if len(kernel.effects) != 1 or len(kernel.reduces) != 1 or kernel.has_locals:
        return None
    (reduce,), (effect,) = kernel.reduces, kernel.effects
    loads = [n for n in reduce.src[0].toposort() if n.op is Ops.LOAD]
    if len(loads) < 2 or any(r in kernel.spine and r not in free for r in closed_by(effect)):
        return None
    store = next(a for a in kernel.accesses if a.node.op is Ops.STORE)
    known = [r for r in free if (constant_extent(r) or 0) >= _LEAST]
    # each of the two loops leaves one of the factors as it is
    columns = [r for r in known if any(r not in n.ranges for n in loads)]
    columns.sort(key=lambda r: abs(store.stride(r) or 1 << 60))
    for column in columns:
        stays = [n for n in loads if column not in n.ranges]
        rows = [r for r in known if r is not column and any(r not in n.ranges for n in loads)]
        rows = [r for r in rows if any(r in n.ranges for n in stays)]
        depths = [r for r in reduce.src[1:] if (constant_extent(r) or 0) >= _LEAST]
        if rows and depths:
            slots = dict.fromkeys(buffer_of(n.src[0]).arg[0] for n in loads)
            widest = max(n.dtype.itemsize for n in loads)
            depth = max(depths, key=lambda r: constant_extent(r) or 0)
            return Product(rows[-1], column, depth, tuple(slots), widest)
    return None


class Tiling:
    """Applies actions one by one, and knows what became of each loop."""

    def __init__(self, sink: UOp, free: list[UOp], found: Product, target: Target) -> None:
        self.sink = sink
        self.target = target
        self.found = found
        self.others = [r.arg[0] for r in free if r not in (found.rows, found.columns)]
        self.batch = prod(constant_extent(r) or 1 for r in free if r.arg[0] in self.others)

    def run(self) -> UOp:
        found, target = self.found, self.target
        height, width = constant_extent(found.rows) or 1, constant_extent(found.columns) or 1
        down, across = self._threads(height)
        tall, wide = self._registers(height, width, down, across)
        lanes = target.vector_bytes // found.itemsize
        dot = self._dot()
        vector = wide if 1 < wide <= min(lanes, target.max_lanes) and dot is None else 1
        rows, row = self.divide(found.rows.arg[0], down * tall, down, tall, AxisKind.UNROLL)
        kind = AxisKind.VECTOR if vector > 1 else AxisKind.UNROLL
        columns, column = self.divide(found.columns.arg[0], across * wide, across, wide, kind)
        groups = [name for name in (columns, rows) if name is not None]
        for name in groups:
            self.apply(Grid(name))
        self.spread_others(target.group_dims - len(groups))
        depth = self._stage()
        self.apply(Fuse(row, column))
        if dot is not None and (constant_extent(named(self.sink, depth)) or 1) % dot.depth == 0:
            self.apply(Dot(dot, depth))
        return self.sink

    def _dot(self) -> DotUnit | None:
        """The target's dot instruction for such products, if it has one."""
        (reduce,) = Kernel(self.sink).reduces
        return next((u for u in self.target.dot_units if multiplies(u, reduce)), None)

    def _threads(self, height: int) -> tuple[int, int]:
        """Threads of a group down and across; in all a multiple of the lanes."""
        most = min(_THREADS, self.target.threads_per_group)
        down = _SIDE
        while down > 1 and down >= 2 * height:
            down //= 2
        return down, max(1, most // down)

    def _registers(self, height: int, width: int, down: int, across: int) -> tuple[int, int]:
        """Results of a thread down and across: fewer where cores would get no group."""
        tall, wide = 4, 4
        while tall > 1 and down * tall >= 2 * height:
            tall //= 2
        while wide > 1 and across * wide >= 2 * width:
            wide //= 2
        while max(tall, wide) > 1:
            groups = -(-height // (down * tall)) * -(-width // (across * wide)) * self.batch
            if groups >= self.target.cores:
                break
            if tall >= wide:
                tall //= 2
            else:
                wide //= 2
        return tall, wide

    def apply(self, action: Action) -> None:
        self.sink = action.apply(self.sink)

    def split(self, name: object, factor: int, kind: AxisKind) -> tuple[object | None, object]:
        """Splits a range: the names of the outer one (if it is left) and of the inner one."""
        before = {r.arg[0] for r in Kernel(self.sink).ranges}
        self.apply(Split(name, factor, kind))
        made = [r for r in Kernel(self.sink).ranges if r.arg[0] not in before]
        inner = [r for r in made if r.arg[1] is kind and constant_extent(r) == factor]
        outer = [r for r in made if r is not inner[-1]]
        return (outer[0].arg[0] if outer else None), inner[-1].arg[0]

    def divide(
        self, name: object, block: int, threads: int, each: int, kind: AxisKind
    ) -> tuple[object | None, object]:
        """A loop of results by blocks, threads and results of a thread: the names of blocks (if
        there are several) and threads."""
        size = constant_extent(named(self.sink, name)) or 1
        if size % block:
            self.apply(Pad(name, block))
        blocks, inner = self.split(name, block, AxisKind.LOOP)
        if kind is AxisKind.VECTOR:
            # a vector's lanes are neighbours
            rest, lanes = self.split(inner, each, kind)
            self.apply(Innermost(lanes))
            inner = inner if rest is None else rest
            return blocks, self.split(inner, threads, AxisKind.THREAD)[1]
        rest, thread = self.split(inner, threads, AxisKind.THREAD)
        if rest is not None and each > 1:
            self.split(rest, each, kind)
        return blocks, thread

    def _stage(self) -> object:
        """Copy the tiles of the factors to group memory, where they fit often enough; the loop
        that is summed over inside."""
        room = self.target.local_bytes // RESIDENT
        before, name = self.sink, self.found.depth.arg[0]
        for depth in (_DEPTH, _DEPTH // 2, _DEPTH // 4):
            try:
                self.apply(Innermost(name))
                if (constant_extent(named(self.sink, name)) or 1) % depth:
                    self.apply(Pad(name, depth))
                outer, inner = self.split(name, depth, AxisKind.LOOP)
                for slot in self.found.slots:
                    self.stage(slot, "" if outer is None else outer)
                if group_bytes(self.sink) <= room:
                    return inner
            except Refused:
                pass  # then each thread loads for itself
            self.sink = before
        return name

    def stage(self, slot: int, loop: object, threads: int = 0) -> None:
        """Copies a factor's tile to group memory. Its rows are set apart, else threads that read
        one below the other would wait for one bank."""
        self.apply(Stage(slot, loop, max(1, _APART // self.found.itemsize), threads))

    def spread_others(self, dims: int) -> None:
        """The other loops of results to further groups."""
        names = self.others
        while len(names) > max(1, dims):
            before = {r.arg[0] for r in Kernel(self.sink).ranges}
            self.apply(Fuse(names[0], names[1]))
            names = [
                *(r.arg[0] for r in Kernel(self.sink).ranges if r.arg[0] not in before),
                *names[2:],
            ]
        for name in names if dims > 0 else ():
            self.apply(Grid(name))


def group_bytes(sink: UOp) -> int:
    found = (n for n in sink.toposort() if n.op is Ops.LOCAL and n.arg[2] is Space.GROUP)
    return sum(int(n.arg[1]) * n.dtype.itemsize for n in found)


def group_memory(sink: UOp, threads: int) -> int:
    """About what a kernel takes of group memory: its shared LOCALs, and parts of sums."""
    total = 0
    for n in sink.toposort():
        if n.op is Ops.LOCAL and n.arg[2] is Space.GROUP:
            total += n.arg[1] * n.dtype.itemsize
        elif n.op is Ops.REDUCE and any(r.arg[1] is AxisKind.THREAD for r in n.src[1:]):
            total += 2 * threads * n.dtype.itemsize
    return total


def named(sink: UOp, name: object) -> UOp:
    found = Kernel(sink).find(name)
    assert found is not None
    return found
