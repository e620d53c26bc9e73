"""Sums of products: a tile of results in registers, and one factor packed beside it in the cache.

What decides is how often a value that was read is used. Along one loop of the result (`along`) the
results lie side by side in memory: it becomes vectors. Along another one (`across`) the factor that
varies with `along` (`side`) stays the same: some of its iterations share each vector that is read.
Where many do, `side` is packed for all of them; the other factor (`single`) where each value of it
costs more than a load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opgraft.ir.loops import stride_of, substitute_free
from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.overlap import distinct
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.actions import Action, Parallel, Partition, Refused, Split
from opgraft.opt.axes import Kernel, clauses, closed_by, constant_extent, store_of
from opgraft.opt.distribute import Distribute, rows_of_locals
from opgraft.opt.pack import Pack, by_sum, factors, is_pure
from opgraft.opt.tile import Outermost, Tile
from opgraft.rules.simplify import simplify
from opgraft.target import Target

_REUSE: Final = 16
"""Iterations that share a packed factor, from which packing pays."""
_WORK: Final = 1 << 12
"""Products of a kernel from which it is worth tiles."""
_LATENCY: Final = 4.0
"""Cycles until the result of a multiply-add can be added to."""
_OVERHEAD: Final = 0.5
"""Cycles of each iteration that nothing hides."""
_PER_CYCLE: Final = 2.0
"""Multiply-adds, and loads, that a core starts in a cycle."""


@dataclass(frozen=True)
class Product:
    """A REDUCE over a product, and the roles of its factors and of the loops around it."""

    reduce: UOp
    along: UOp
    across: UOp
    side: UOp
    single: UOp
    columns: int
    rows: int
    depth: int
    """Extent of `along`, of `across`, and of all that is summed over."""


def find_product(kernel: Kernel, statement: UOp) -> Product | None:
    """The product that a statement stores a value made of, and the roles of the loops around it.

    `statement` is an END: a fill of a buffer of the kernel's own, or one of its effects.
    """
    loops = closed_by(statement)
    store = store_of(statement)
    if store.op is not Ops.STORE or any(r.arg[1] is not AxisKind.LOOP for r in loops):
        return None
    if any(constant_extent(r) is None or kernel.is_scanned(r) for r in loops):
        return None
    if not distinct(store.src[1], loops):
        return None
    for reduce in _reduces_of(store.src[2]):
        pair = factors(reduce)
        if len(pair) != 2 or any(constant_extent(r) is None for r in reduce.src[1:]):
            continue
        for along in reversed(loops):
            if stride_of(store.src[1], along) != 1 or kernel.fills_locals(along):
                continue
            sides = [f for f in pair if along in f.ranges]
            if len(sides) != 1 or not is_pure(sides[0]):
                continue
            side = sides[0]
            single = pair[1] if side is pair[0] else pair[0]
            across = [r for r in loops if r in single.ranges and r not in side.ranges]
            across = [r for r in across if not kernel.fills_locals(r)]
            if across:
                widest = max(across, key=lambda r: constant_extent(r) or 0)
                return Product(
                    reduce,
                    along,
                    widest,
                    side,
                    single,
                    columns=constant_extent(along) or 1,
                    rows=constant_extent(widest) or 1,
                    depth=_extents(reduce.src[1:]),
                )
    return None


def _reduces_of(value: UOp) -> list[UOp]:
    """The REDUCEs that a value is made of, not those inside of them."""
    return [n for n in toposort((value,), lambda n: n.op is not Ops.REDUCE) if n.op is Ops.REDUCE]


def _extents(loops: tuple[UOp, ...]) -> int:
    total = 1
    for loop in loops:
        total *= constant_extent(loop) or 1
    return total


def block_rows(sink: UOp, target: Target) -> UOp:
    """Where a product is carried out row by row between other statements: several rows at once."""
    kernel = Kernel(sink)
    if not kernel.has_locals or not any(factors(r) for r in kernel.reduces):
        return sink
    loops = [r for r in kernel.spine if kernel.fills_locals(r) and constant_extent(r) is not None]
    if not loops:
        return sink
    loop = loops[-1]
    each = rows_of_locals(kernel, loop)
    room = min(_second(target) // 4, target.local_bytes // 2)
    size = constant_extent(loop) or 1
    fitting = [n for n in range(8, min(size, 48) + 1) if size % n == 0 and n * each <= room]
    if not fitting:
        return sink
    name, rows = loop.arg[0], fitting[-1]
    try:
        if rows == size:
            return Distribute(name).apply(sink)
        return Distribute(f"{name}.i").apply(Split(name, rows).apply(sink))
    except Refused:
        return sink


def tile_products(sink: UOp, target: Target) -> UOp:
    """The kernel with each of its products tiled that tiles would pay for."""
    refused: set[tuple[object, object]] = set()
    while True:
        kernel = Kernel(sink)
        for statement in _statements(kernel):
            found = find_product(kernel, statement)
            if found is None or not _pays(found, target):
                continue
            key = (found.along.arg[0], found.across.arg[0])
            if key in refused:
                continue
            try:
                sink = _Tiling(sink, kernel, statement, found, target).run()
            except Refused:
                refused.add(key)
            break
        else:
            return sink


def _statements(kernel: Kernel) -> list[UOp]:
    """Fills of buffers, then the effects of the kernel."""
    fills = [e for n in kernel.nodes if n.op is Ops.AFTER for e in n.src[1:]]
    return [e for e in dict.fromkeys((*fills, *kernel.effects)) if e.op is Ops.END]


def _pays(product: Product, target: Target) -> bool:
    lanes = _lanes(product, target)
    if lanes < 2 or product.columns < lanes or product.rows < 2:
        return False
    return product.columns * product.rows * product.depth >= _WORK


def _lanes(product: Product, target: Target) -> int:
    return max(1, target.vector_bytes // product.reduce.dtype.itemsize)


def _second(target: Target) -> int:
    """Bytes of the second cache."""
    return target.cache_bytes[min(1, len(target.cache_bytes) - 1)]


def tile_shape(registers: int, rows: int, columns: int, lanes: int) -> tuple[int, int]:
    """Copies across and vectors along of a tile: the shape of the fewest cycles for all tiles.

    The registers hold the results, one row of the side factor and one value of the other.
    """
    best: tuple[float, int] | None = None
    shape = (1, 1)
    for vectors in range(1, min(columns // lanes, 8) + 1):
        for copies in range(1, rows + 1):
            if copies * vectors + vectors + 1 > registers:
                break
            tiles = -(-rows // copies) * -(-columns // (vectors * lanes))
            busy = max(copies * vectors, copies + vectors) / _PER_CYCLE
            score = (tiles * (max(busy, _LATENCY) + _OVERHEAD), copies + vectors)
            if best is None or score < best:
                best, shape = score, (copies, vectors)
    return shape


class _Tiling:
    """The steps that tile one product; `sink` is the kernel after those done so far."""

    def __init__(
        self, sink: UOp, kernel: Kernel, statement: UOp, product: Product, target: Target
    ) -> None:
        self.sink = sink
        self.product = product
        self.target = target
        self.lanes = _lanes(product, target)
        self.is_effect = statement in kernel.effects
        self.copies, self.vectors = tile_shape(
            target.vector_registers, product.rows, product.columns, self.lanes
        )
        self.width = self.vectors * self.lanes
        loops = [r for r in closed_by(statement) if r not in (product.along, product.across)]
        enclosing = [r for r in kernel.ranges if r in statement.ranges]
        self.own: list[object] = [r.arg[0] for r in loops]
        self.outer: list[object] = [r.arg[0] for r in (*enclosing, *loops)]
        """Loops that a packed buffer is filled inside of, as far as it depends on them."""

    def do(self, action: Action) -> None:
        self.sink = action.apply(self.sink)
        if isinstance(action, Pack) and self._free_bytes() < 0:
            raise Refused("the packed factors are too large together")

    def run(self) -> UOp:
        product = self.product
        along, across = product.along.arg[0], product.across.arg[0]
        windows = self._windows()
        packs = product.rows >= _REUSE or stride_of_loads(product.side, product.along) != 1
        blocks: list[object] = [along]
        inner: list[object] = []
        if packs and windows:
            inner = self._heights(windows)
        elif packs:
            blocks = self._blocks(along)
        rows, parallel = self._shared_loop(across)
        if self.is_effect:
            self.do(Outermost((*self.outer, rows, *inner, *blocks)))
        if parallel is not None and Kernel(self.sink).find(parallel) is not None:
            # first: where tiles overlap, it no longer shows that iterations are independent
            self.do(Parallel(parallel))
        if packs and windows:
            # neighbouring tiles read the same elements: one buffer for all of them
            self.do(Pack((along,), tuple(self.outer)))
        self.do(Tile(((rows, self.copies, 1), *[(b, self.vectors, self.lanes) for b in blocks])))
        if packs and not windows:
            for name in blocks:
                copies = [f"{name}.u"] if self.vectors > 1 else []
                self.do(Pack((*copies, f"{name}.v"), tuple(self.outer)))
        again = product.columns // self.width
        if self.copies > 1 and again > 2 and _is_scattered(product) | is_costly(product.single):
            tiled = self.sink
            try:
                self.do(Pack((f"{rows}.u",), (*self.outer, f"{rows}.o")))
            except Refused:  # no room beside the other one: each value is then made anew
                self.sink = tiled
        self._fills()
        return self.sink

    def _windows(self) -> list[UOp]:
        """The loops of the REDUCE that the side factor sees as windows along its columns."""
        side = self.product.side
        return [
            r
            for r in self.product.reduce.src[1:]
            if r in side.ranges and by_sum(side, self.product.along, r)
        ]

    def _heights(self, windows: list[UOp]) -> list[object]:
        """Rows of windows that one packed buffer serves: loops inside of it, as it has room."""
        product, kernel = self.product, Kernel(self.sink)
        room = min(_second(self.target) // 2, self._free_bytes())
        span = product.columns + sum((constant_extent(r) or 1) - 1 for r in windows)
        depth = _extents(tuple(r for r in product.reduce.src[1:] if r not in windows))
        row = depth * span * product.side.dtype.itemsize
        if row > room:
            raise Refused("the packed factor is too large")
        for name in reversed(self.outer):
            loop = kernel.find(name)
            for other in product.reduce.src[1:]:
                if loop is None or other in windows or not by_sum(product.side, loop, other):
                    continue
                size, height = constant_extent(loop) or 1, constant_extent(other) or 1
                each = row // height
                fitting = [
                    n
                    for n in range(2, min(size, 16) + 1)
                    if size % n == 0 and (n + height - 1) * each <= room
                ]
                if fitting:
                    rows = fitting[-1]
                    self.outer.remove(name)
                    if rows == size:
                        return [name]
                    self.do(Split(name, rows))
                    self.outer.append(f"{name}.o")
                    return [f"{name}.i"]
        return []

    def _blocks(self, along: object) -> list[object]:
        """Blocks of columns whose packed factor fits the second cache; the last is the rest."""
        product, columns = self.product, self.product.columns
        panel = product.depth * product.side.dtype.itemsize * self.width
        room = min(_second(self.target) // 2, self._free_bytes())
        if self._is_shared() and -(-columns // self.width) * panel <= room:
            return [along]  # filled once for all that these loops do
        most = min(4, max(1, _second(self.target) // 2 // panel))
        most = min(most, self._free_bytes() // panel)
        if most < 1:
            raise Refused("not even one panel fits")
        while most > 1 and columns // (most * self.width) < 2 * self.target.cores:
            most -= 1
        sizes = [n * self.width for n in range(most, 0, -1)]
        for block in sizes:
            rest = columns % block
            panels = -(-block // self.width) + -(-rest // self.width)  # of both, side by side
            fits = panels * panel <= self._free_bytes()
            if columns > block and fits and (rest == 0 or rest >= self.width):
                self.do(Split(along, block))
                if columns // block > 1:
                    self.outer.append(f"{along}.o")
                return [f"{along}.i", f"{along}.t"] if rest else [f"{along}.i"]
        if panel * -(-columns // self.width) > self._free_bytes():
            raise Refused("the packed factor is too large")
        return [along]

    def _free_bytes(self) -> int:
        """What the buffers of the kernel leave for others."""
        buffers = [n for n in self.sink.toposort() if n.op is Ops.LOCAL]
        taken: int = sum(n.arg[1] * n.dtype.itemsize for n in buffers)
        return self.target.local_bytes - taken

    def _is_shared(self) -> bool:
        """Whether loops around give the cores enough to do, or this is no effect of its own."""
        if not self.is_effect:
            return True
        kernel = Kernel(self.sink)
        extents = [constant_extent(r) or 1 for r in map(kernel.find, self.outer) if r is not None]
        return any(n >= self.target.cores for n in extents)

    def _shared_loop(self, across: object) -> tuple[object, object]:
        """The loop over rows, and the one whose iterations go to the cores: batches, blocks of
        columns, or blocks of rows."""
        cores = self.target.cores
        if self.target.parallel is None or not self.is_effect:
            return across, None
        kernel = Kernel(self.sink)
        for name in self.outer:
            loop = kernel.find(name)
            if loop is not None and (constant_extent(loop) or 1) >= cores:
                return across, name
        tiles = self.product.rows // self.copies
        if tiles >= 2 * cores:
            self.do(Split(across, tiles // (2 * cores) * self.copies))
            self.outer.append(f"{across}.o")
            return f"{across}.i", f"{across}.o"
        return across, self.outer[0] if self.outer else None

    def _fills(self) -> None:
        """The loops that fill packed buffers: as the array lies, its neighbours in vectors."""
        kernel = Kernel(self.sink)
        fills = [
            effect
            for n in kernel.nodes
            if n.op is Ops.AFTER and str(n.src[0].arg[0]).startswith("pack")
            for effect in n.src[1:]
        ]
        for fill in dict.fromkeys(fills):
            loops = closed_by(fill)
            if any(r.arg[1] is not AxisKind.LOOP for r in loops):
                continue
            value = store_of(fill).src[2]
            strides = {r: stride_of_loads(value, r) for r in loops}
            ordered = sorted(loops, key=lambda r: -_distance(strides[r]))
            self.do(Outermost(tuple([r.arg[0] for r in ordered])))
            last = loops[-1]
            if ordered[-1] is last and strides[last] == 1:
                for part, extent in self._settled(last, value):
                    lanes = self.lanes
                    while lanes > extent:
                        lanes //= 2
                    if lanes > 1:
                        self.do(Tile(((part, 1, lanes),)))

    def _settled(self, loop: UOp, value: UOp) -> list[tuple[object, int]]:
        """The parts of a loop of a fill along which no gate changes, and their extents."""
        size = constant_extent(loop) or 1
        inside = unchanging(loop, value)
        if inside is None or inside == (0, size):
            return [] if inside is None else [(loop.arg[0], size)]
        self.do(Partition(loop.arg[0], *inside))
        return [(f"{loop.arg[0]}.m", inside[1] - inside[0])]


def _distance(stride: int | None) -> float:
    return float("inf") if stride is None else abs(stride)


def stride_of_loads(value: UOp, loop: UOp) -> int | None:
    """Elements that the loads of a value move per step of a loop; None where they differ."""
    found = {
        stride_of(n.src[1], loop) for n in value.toposort() if n.op is Ops.LOAD and loop in n.ranges
    }
    return found.pop() if len(found) == 1 else None if found else 0


def unchanging(loop: UOp, value: UOp) -> tuple[int, int] | None:
    """The middle of a loop in which the gates of a value's loads hold as far as the loop decides.

    Only few iterations at both ends may be left out; None where more are.
    """
    size = constant_extent(loop) or 1
    gates = [
        gate
        for n in value.toposort()
        if n.op is Ops.LOAD
        for gate in clauses(n.src[2:3])
        if loop in gate.ranges
    ]

    def settled(place: int) -> bool:
        at = {loop: UOp.const(loop.dtype, place)}
        return all(simplify(substitute_free(g, at)).vmin for g in gates)

    border = range(min(8, size))
    begin = next((i for i in border if settled(i)), None)
    end = next((i for i in border if settled(size - 1 - i)), None)
    if begin is None or end is None or begin + end >= size:
        return None
    return begin, size - end


def _is_scattered(product: Product) -> bool:
    """Whether the single factor takes a new line of the cache for each step of the sum."""
    innermost = product.reduce.src[-1]
    stride = stride_of_loads(product.single, innermost)
    return stride is None or abs(stride) * product.single.dtype.itemsize >= 64


def is_costly(value: UOp) -> bool:
    """Whether a value takes more than a load."""
    return any(n.op in GroupOp.ALU and not n.dtype.is_index for n in value.toposort())
