"""The steps that tile one product: what is packed where, and in blocks of what size.

A block of columns' share of the side factor stays in the second cache while all rows are done, a
tile's share of the single one in the first. A sum too long for that is carried out in blocks, its
results so far in a buffer. A factor that is seen as windows is packed once with its borders, for
all windows.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Fuse, Parallel, Refused, Split
from opgraft.opt.axes import Kernel, closed_by, constant_extent, known_most, most
from opgraft.opt.blocks import Blocks, SumInBlocks, sums_name
from opgraft.opt.fills import arrange_fills, stride_of_loads
from opgraft.opt.pack import Pack, weighted
from opgraft.opt.product import Product
from opgraft.opt.tile import Outermost, Tile
from opgraft.opt.tile_shape import Extents, second_cache, tile_shape
from opgraft.target import Target

_REUSE: Final = 16
"""Rows that share the side factor, from which packing it pays."""
_REUSE_DENSE: Final = 96
"""... and where it lies nearly as a copy would."""
_DENSE: Final = 512
"""Bytes of a line of columns that the first cache takes as it takes a panel."""
_WIDE: Final = 16
"""Vectors of columns of a block: what is read of the single factor serves all of them, so the time
to fetch a value of it from afar is hidden by so many multiplications."""
_WIDER: Final = 32
"""... where a sum goes in blocks, and its sums so far have room outside of the second cache."""
_MORE_PANELS: Final = 16
"""... where the single factor is packed for them."""
_PARTS: Final = 4
"""Parts of a kernel for each core, from which none is waited for long."""
_TALL: Final = 512
"""Rows of a block for which packing the side factor costs little beside its products."""
_PAGE: Final = 4096
"""Bytes from line to line that one place of the first cache takes in turn, of most processors: rows
at multiples of it drive each other out."""
_AGAIN: Final = 2
"""Tiles that share a single factor's values that are costly, from which packing them pays; ..."""
_OFTEN: Final = 24
"""... and those that share any."""
_SMALL: Final = 0.25
"""The share of the first cache in which such values lie well as they are."""
_SHORT: Final = 0.6
"""The share of the first cache that the rows of a tile may take for a sum in one piece, ..."""
_BLOCK: Final = 0.375
"""... and for each block of it."""


class Tiling:
    """`sink` is the kernel after the steps done so far."""

    def __init__(
        self, sink: UOp, kernel: Kernel, statement: UOp, product: Product, target: Target
    ) -> None:
        self.sink, self._kernel = sink, kernel
        self.product = product
        self.target = target
        self.is_effect = statement in kernel.effects
        loops = [r for r in closed_by(statement) if r not in (product.along, product.across)]
        enclosing = [r for r in kernel.ranges if r in statement.ranges]
        self.around: list[object] = [r.arg[0] for r in (*enclosing, *loops)]
        """Loops that a packed buffer is filled inside of, as far as it depends on them."""
        self.inner: list[object] = []
        """Loops around the columns that a packed buffer serves all of."""
        self.joined: list[object] = []
        self.prefix = ""
        self.known = [n.arg[0] for n in kernel.nodes if n.op is Ops.LOCAL]

    # ---- what is there

    def do(self, action: Action) -> None:
        self.sink = action.apply(self.sink)
        if isinstance(action, (Pack, SumInBlocks)) and self.free_bytes() < 0:
            raise Refused("the packed factors are too large together")

    @property
    def kernel(self) -> Kernel:
        """The facts of the kernel as it is now."""
        if self._kernel.sink is not self.sink:
            self._kernel = Kernel(self.sink)
        return self._kernel

    def free_bytes(self) -> int:
        """What the buffers of the kernel leave for others."""
        buffers = [n for n in self.kernel.nodes if n.op is Ops.LOCAL]
        taken: int = sum(n.arg[1] * n.dtype.itemsize for n in buffers)
        return self.target.local_bytes - taken

    def room(self) -> int:
        """Bytes of the second cache for a packed factor."""
        return min(second_cache(self.target) // 2, self.free_bytes())

    def extent(self, name: object) -> int:
        """Iterations of a loop; 1 where there is none of the name."""
        loop = self.kernel.find(name)
        return 1 if loop is None else most(loop)

    def has(self, name: object) -> bool:
        return self.kernel.find(name) is not None

    # ---- the steps

    def run(self) -> UOp:
        product = self.product
        along, across = product.along.arg[0], product.across.arg[0]
        side_windows = windows_of(product, product.side, product.along)
        single_windows = windows_of(product, product.single, product.across)
        lines: object | None = None
        if side_windows:
            lines = self._open_windows(product.side, product.along, side_windows)
        elif single_windows:
            lines = self._open_windows(product.single, product.across, single_windows)
        packs = not side_windows and packing_pays(product)
        height = self.extent(lines) if lines is not None and side_windows else 1
        shape = tile_shape(
            self.target,
            product.lanes,
            Extents(product.rows, product.columns, product.depth, height, product.itemsize),
        )
        self.copies, self.vectors = shape.copies, shape.vectors
        parts = [(across, shape.copies, 1), (along, shape.vectors, product.lanes)]
        if shape.lines > 1:
            parts.insert(1, (lines, shape.lines, 1))
        if self.is_effect:
            self.do(Outermost((*self.around, across, *self.inner, along)))
        if side_windows:
            self.do(Pack((along,), tuple(self.around)))
        elif single_windows:
            self.do(Pack((across,), tuple(self.around)))
        self.do(Tile(tuple(parts)))
        tiles = f"{across}.o", f"{along}.o"
        if packs:
            blocked = self._blocks(*tiles, single_windows != [])
        else:
            deep = self._depth_as_it_lies() if not side_windows and not single_windows else 0
            summed = 0 < deep < product.depth
            width = self.vectors * product.lanes * self.extent(tiles[1])
            rows = self._share(tiles[0], self._tiles_of_sums(deep, width) if summed else 0)
            if summed:
                self._sum_in_blocks(rows, tiles[1], deep, width)
            blocked = self._again(tiles[1]) * self._again(f"{lines}.o" if height > 1 else None)
        if not single_windows:
            self._pack_single(blocked)
        packed = [n.arg[0] for n in self.kernel.nodes if n.op is Ops.LOCAL]
        new = [n for n in packed if str(n).startswith("pack") and n not in self.known]
        return arrange_fills(self.sink, new, self.target.vector_bytes)

    def _again(self, name: object) -> int:
        return self.extent(self.prefix + str(name))

    def _open_windows(self, factor: UOp, loop: UOp, windows: list[UOp]) -> object | None:
        """Rows of windows that one packed buffer serves become loops inside of it, as it has room.
        The loop of these rows; None where there is none."""
        product, kernel = self.product, self.kernel
        room = self.room()
        depth = 1
        for r in product.reduce.src[1:]:
            if r not in windows and r in factor.ranges:
                depth *= constant_extent(r) or 1
        row = depth * _span(factor, loop, windows) * factor.dtype.itemsize
        if row > room:
            raise Refused("the packed factor is too large")
        for name in reversed(self.around):
            high = kernel.find(name)
            for other in product.reduce.src[1:]:
                if high is None or other in windows:
                    continue
                pair = weighted(factor, high, other)
                if pair is None:
                    continue
                size, taps = constant_extent(high) or 1, constant_extent(other) or 1
                each = row // taps
                fitting = [
                    n
                    for n in range(2, min(size, 16) + 1)
                    if size % n == 0
                    and (pair[0] * (n - 1) + pair[1] * (taps - 1) + 1) * each <= room
                ]
                if fitting:
                    return self._high(name, size, fitting[-1])
        return None

    def _high(self, name: object, size: int, rows: int) -> object:
        place = self.around.index(name)
        if rows == size:
            del self.around[place]
            inner = name
        else:
            self.do(Split(name, rows))
            self.around[place] = f"{name}.o"
            inner = f"{name}.i"
        self.inner = [inner]
        return inner

    def _blocks(self, rows: str, panels: str, windowed: bool) -> int:
        """Pack the side factor, block by block; the tiles that share a single factor's values."""
        product = self.product
        width = self.vectors * product.lanes
        item = product.side.dtype.itemsize
        scattered = is_scattered(product) or is_costly(product.single)
        deep = self._depth_of_block(width, scattered and not windowed)
        panel = deep * item * width
        count = self.extent(panels)
        strip = self.copies * deep * product.itemsize if scattered else 0
        fitting = max(1, (self.room() - strip) // panel)
        summed = deep < product.depth
        at_once = min(count, _MORE_PANELS if scattered else self._panels(summed), fitting)
        if panel > self.free_bytes():
            raise Refused("not even one panel fits")
        alone = self._is_spread()
        if alone and count * panel <= self.room():
            at_once = count  # filled once for all that these loops do
        elif not alone:
            whole = deep == product.depth  # else cores may share blocks of rows as well
            at_once = self._fewer(at_once, 1, 2 * self.target.cores, count)
            least = self._panels() // 2 if whole else at_once
            at_once = self._fewer(at_once, least, 4 * self.target.cores, count)
            at_once = -(-count // -(-count // at_once))
        at_once = self._whole(panels, count, at_once, product.columns % width > 0)
        if at_once < count:
            self.do(Blocks(panels, at_once))
            self.around.append(f"{panels}.o")
            if not self.is_effect:
                self.do(Outermost((f"{panels}.o",)))
            panels = f"{panels}.i"
        rows = self._share(rows, self._tiles_of_sums(deep, at_once * width) if summed else 0)
        if summed:
            self._sum_in_blocks(rows, panels, deep, at_once * width)
        along = f"{self.prefix}{product.along.arg[0]}"
        names = [n for n in (f"{along}.u", f"{along}.v") if self.has(n)]
        self.do(Pack(tuple(names), tuple(self.around)))
        if summed and not scattered:
            self._copy_strips()
        return at_once

    def _panels(self, summed: bool = False) -> int:
        """Panels of columns of a block."""
        wide = summed and self.target.local_bytes >= 2 * second_cache(self.target)
        return max(1, (_WIDER if wide else _WIDE) // self.vectors)

    def _fewer(self, at_once: int, least: int, parts: int, count: int) -> int:
        """Panels of a block, no fewer than the least, so that there are so many blocks, if there
        are as many panels."""
        while at_once > least and -(-count // at_once) < parts <= count:
            at_once -= 1
        return at_once

    def _depth_of_block(self, width: int, packs_single: bool) -> int:
        """Steps of the sum that are carried out before the next tile's."""
        product = self.product
        if not self._may_be_blocked():
            return product.depth
        first = self.target.cache_bytes[0]
        strip = self.copies * product.itemsize
        panel = width * product.side.dtype.itemsize
        count = self.extent(f"{product.along.arg[0]}.o")
        blocks = 1
        if strip * product.depth > _SHORT * first:
            # beside the side factor of a block there is room for what passes by: strips, and sums
            together = min(count, self._panels(summed=True)) * panel
            blocks = max(
                -(-strip * product.depth // int(_BLOCK * first)),
                -(-together * product.depth // self._share_of_block()),
            )
            blocks = _even(product.depth, blocks)
        panels = min(count, 8 if packs_single else 2)
        while blocks < product.depth and -(-product.depth // blocks) * panel * panels > self.room():
            blocks += 1
        return -(-product.depth // blocks)

    def _share_of_block(self) -> int:
        """Bytes for the side factor of a block: there must be more for sums."""
        return max(1, min(second_cache(self.target) // 2, self.free_bytes() // 4))

    def _depth_as_it_lies(self) -> int:
        """Steps of the sum in a block whose side factor stays in the second cache, unpacked."""
        product = self.product
        size = product.depth * product.columns * product.side.dtype.itemsize
        if not self._may_be_blocked() or size <= second_cache(self.target) // 2:
            return product.depth
        return -(-product.depth // -(-size // (second_cache(self.target) // 4)))

    def _may_be_blocked(self) -> bool:
        reduce = self.product.reduce
        return self.is_effect and len(reduce.src) == 2 and known_most(reduce.src[-1]) is not None

    def _sum_in_blocks(self, rows: str, panels: str, deep: int, width: int) -> None:
        product = self.product
        fitting = self._tiles_of_sums(deep, width)
        if fitting < 1:
            raise Refused("there is no room for sums")
        tiles = self.extent(rows)
        blocks = max(-(-tiles // fitting), self._wanted_blocks(tiles))
        if blocks > 1:
            overlap = self._overlaps()
            even = -(-tiles // blocks)
            self.do(Blocks(rows, self._whole(rows, tiles, even, overlap)))
            self.around.append(f"{rows}.o")
            self.do(Outermost(tuple(self.around)))
            self._share_blocks(f"{rows}.o")
            rows = f"{rows}.i"
        depth = product.reduce.src[-1].arg[0]
        self.do(Blocks(depth, deep))
        along, across = product.along.arg[0], product.across.arg[0]
        over = (rows, panels, f"{across}.u", f"{along}.u", f"{along}.v")
        name = sums_name(self.kernel)
        self.do(SumInBlocks(f"{depth}.o", tuple([n for n in over if self.has(n)])))
        self.prefix = f"{name}."
        self.around.append(f"{self.prefix}{depth}.o")

    def _wanted_blocks(self, tiles: int) -> int:
        """Blocks of so many tiles of rows that give the cores parts enough, none of them short."""
        shared = next((n for n in self.around if self._is_parallel(n)), None)
        if shared is None or not self._is_constant(shared) or self.product.varies:
            return 1
        wanted = -(-_PARTS * self.target.cores // self.extent(shared))
        return max(1, min(wanted, tiles * self.copies // _TALL))

    def _copy_strips(self) -> None:
        """Copy the rows of a tile next to each other where they lie a number of pages apart."""
        product = self.product
        stride = stride_of_loads(product.single, product.across)
        if self.copies > 1 and stride and stride * product.itemsize % _PAGE == 0:
            self._pack_rows()

    def _tiles_of_sums(self, deep: int, width: int) -> int:
        """Tiles of rows whose sums there is room for, beside the packed factors of a block."""
        product = self.product
        room = self.free_bytes() - deep * width * product.side.dtype.itemsize
        if is_scattered(product) or is_costly(product.single):
            room -= self.copies * deep * product.itemsize  # which will be packed as well
        return room // (self.copies * width * product.reduce.dtype.itemsize)

    def _whole(self, tiles: str, count: int, size: int, overlap: bool) -> int:
        """A number of tiles, that wanted or a smaller one, for blocks no two of which store to one
        element: the last tile overlaps the one before, so both are to be in one block. Where there
        is none, the loop over blocks is `joined`: it stays with one core."""
        if not overlap or size >= count:
            return size
        fitting = next((n for n in range(size, 1, -1) if count % n != 1), None)
        if fitting is None:
            self.joined.append(f"{tiles}.o")
        return size if fitting is None else fitting

    def _overlaps(self) -> bool:
        """Whether the last tile of rows reaches into the one before."""
        return not self.product.varies and self.product.rows % self.copies > 0

    def _is_spread(self) -> bool:
        """Whether loops around give the cores enough to do, or this is no effect of its own."""
        if not self.is_effect:
            return True
        return any(self.extent(name) >= self.target.cores for name in self.around)

    def _share(self, rows: str, fitting: int) -> str:
        """Give the cores a loop: batches, blocks of columns, or blocks of rows, of no more tiles
        than are `fitting` (0: any number). The loop over the rows of tiles that is left."""
        cores = self.target.cores
        if self.target.parallel is None or not self.is_effect:
            return rows
        free = [n for n in self.around if n not in self.joined]
        chosen = next((n for n in free if self.extent(n) >= cores), None)
        tiles = self.extent(rows)
        overlap = self._overlaps()
        wanted = max(1, tiles // (2 * cores))
        block = self._whole(rows, tiles, min(wanted, fitting) if fitting > 0 else wanted, overlap)
        if chosen is None and tiles >= 2 * cores and f"{rows}.o" not in self.joined:
            self.do(Blocks(rows, block))
            chosen, rows = f"{rows}.o", f"{rows}.i"
        elif chosen is None:
            chosen = next((n for n in free if self.has(n)), None)
        if chosen is not None:
            self.around = [chosen, *[n for n in self.around if n != chosen]]
            self.do(Parallel(chosen))
            self.do(Outermost(tuple(self.around)))
        return rows

    def _share_blocks(self, blocks: str) -> None:
        """Have the cores share blocks of rows, too, where else each has a few large parts: one that
        is late would keep all waiting for long."""
        shared = next((n for n in self.around if self._is_parallel(n)), None)
        if shared is None or blocks in self.joined:
            return
        if self.extent(shared) >= _PARTS * self.target.cores or not self._is_constant(blocks):
            return
        self.do(Fuse(shared, blocks))
        self.around[self.around.index(shared)] = f"{shared}.{blocks}"
        self.around.remove(blocks)

    def _is_parallel(self, name: object) -> bool:
        loop = self.kernel.find(name)
        return loop is not None and loop.arg[1] is AxisKind.PARALLEL

    def _is_constant(self, name: object) -> bool:
        loop = self.kernel.find(name)
        return loop is not None and constant_extent(loop) is not None

    def _pack_single(self, again: int) -> None:
        """Pack the values of a tile's rows, where each is used often, or costs more than a load."""
        product = self.product
        costly = is_scattered(product) or is_costly(product.single)
        strip = self.copies * product.depth * product.itemsize
        if self.copies < 2 or again <= (_AGAIN if costly else _OFTEN):
            return
        if not costly and strip <= _SMALL * self.target.cache_bytes[0]:
            return
        # where it is the same whatever the loops around, it is packed once for all of them
        kernel, varies = self.kernel, product.single.ranges
        alone = all(r not in varies for r in map(kernel.find, self.around))
        bytes_of_all = product.rows * product.depth * product.itemsize
        self._pack_rows(alone and not self.prefix and bytes_of_all <= self.room())

    def _pack_rows(self, whole: bool = False) -> None:
        """Pack the values of a tile's rows, anew for each tile or all of them at once."""
        name = f"{self.prefix}{self.product.across.arg[0]}"
        rows = [n for n in (f"{name}.o", f"{name}.o.o", f"{name}.o.i") if self.has(n)]
        before = self.sink
        try:
            self.do(Pack(self._along_single(name), (*self.around, *(() if whole else rows))))
        except Refused:  # no room beside the other one: each value is then read or made as before
            self.sink = before

    def _along_single(self, name: str) -> tuple[object, ...]:
        """The loops that the single factor is packed along: where the values of a sum are
        neighbours in memory, they stay so."""
        loops = self.product.reduce.src[1:]
        if len(loops) > 1 or stride_of_loads(self.product.single, loops[0]) != 1:
            return (f"{name}.u",)
        depth = loops[0].arg[0]
        inner = f"{depth}.i"  # of a block
        return (f"{name}.u", inner if self.has(inner) else depth)


def _even(size: int, blocks: int) -> int:
    """About so many blocks, all of one size where that is near: loops in them have one extent."""
    near = range(-(-3 * blocks // 4), 3 * blocks // 2 + 1)
    return min((n for n in near if size % n == 0), key=lambda n: abs(n - blocks), default=blocks)


def windows_of(product: Product, factor: UOp, loop: UOp) -> list[UOp]:
    """The loops of the REDUCE that a factor sees as windows along a loop."""
    return [r for r in product.reduce.src[1:] if r in factor.ranges and weighted(factor, loop, r)]


def _span(factor: UOp, loop: UOp, windows: list[UOp]) -> int:
    """Elements along a loop and the windows on it."""
    span = 1
    for r in windows:
        pair = weighted(factor, loop, r)
        assert pair is not None
        if span == 1:
            span += pair[0] * (most(loop) - 1)
        span += pair[1] * (most(r) - 1)
    return span


def packing_pays(product: Product) -> bool:
    """Whether the side factor is worth a copy: where its columns do not lie side by side, or many
    rows share it; more, if its lines are short and follow each other as they are."""
    if stride_of_loads(product.side, product.along) != 1 or is_costly(product.side):
        return True
    line = product.columns * product.side.dtype.itemsize
    step = stride_of_loads(product.side, product.reduce.src[-1])
    dense = step == product.columns and line <= _DENSE and len(product.reduce.src) == 2
    return product.rows >= (_REUSE_DENSE if dense else _REUSE)


def is_scattered(product: Product) -> bool:
    """Whether the single factor takes a new line of the cache for each step of the sum."""
    innermost = product.reduce.src[-1]
    stride = stride_of_loads(product.single, innermost)
    return stride is None or abs(stride) * product.single.dtype.itemsize >= 64


def is_costly(value: UOp) -> bool:
    """Whether a value takes more than a load."""
    return any(n.op in GroupOp.ALU and not n.dtype.is_index for n in value.toposort())
