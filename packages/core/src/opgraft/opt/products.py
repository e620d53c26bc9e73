"""Sums of products: a tile of results in registers, and one factor packed beside it in the cache.

What decides is how often a value that was read is used. Along one loop of the result (`along`) the
results lie side by side in memory: it becomes vectors. Along another one (`across`) the factor that
varies with `along` (`side`) stays the same: some of its iterations share each vector that is read.
Where many do, `side` is packed for all of them; the other factor (`single`) where each value of it
costs more than a load, or is used very often.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Refused, Split
from opgraft.opt.axes import Kernel, constant_extent
from opgraft.opt.distribute import Distribute, rows_of_locals
from opgraft.opt.pack import factors
from opgraft.opt.product import Product, find_product
from opgraft.opt.tile import Outermost
from opgraft.opt.tile_shape import second_cache
from opgraft.opt.tiling import Tiling
from opgraft.target import Target

_WORK: Final = 1 << 12
"""Products of a kernel from which it is worth tiles."""


def block_rows(sink: UOp, target: Target) -> UOp:
    """Where a product is carried out row by row between other statements: several rows at once."""
    kernel = Kernel(sink)
    if not kernel.has_locals or not any(factors(r) for r in kernel.reduces):
        return sink
    loops = [r for r in kernel.spine if kernel.fills_locals(r) and constant_extent(r) is not None]
    if not loops or not _is_shared(kernel, loops[-1]):
        return sink
    loop = loops[-1]
    size = constant_extent(loop) or 1
    rows = _fitting_rows(size, rows_of_locals(kernel, loop), target)
    if rows < 2:
        return sink
    name = loop.arg[0]
    try:
        if rows == size:
            spread = Distribute(name).apply(sink)
        else:
            spread = Distribute(f"{name}.i").apply(Split(name, rows).apply(sink))
        after = Kernel(spread)
        shared = [r for r in after.ranges if after.fills_locals(r) and r not in after.spine]
        # what is filled for all rows in each iteration of a loop is not filled again for each row
        return Outermost(tuple([r.arg[0] for r in shared])).apply(spread) if shared else spread
    except Refused:
        return sink


_FEW: Final = 4
_SOME: Final = 32
_MANY: Final = 64
"""Rows at once: no fewer, enough that a quarter of the cache is worth more, and no more."""


def _fitting_rows(size: int, each: int, target: Target) -> int:
    """Rows of so many bytes that a block of a loop has; 1 where even a few have no room."""
    best = 1
    for share, least, most in ((4, _FEW, _MANY), (2, _FEW, _SOME)):
        room = min(second_cache(target) // share, target.local_bytes // 2)
        fitting = [n for n in range(least, min(size, most) + 1) if size % n == 0]
        best = max([best, *(n for n in fitting if n * each <= room)])
        if best >= _SOME:
            break
    return best


def _is_shared(kernel: Kernel, loop: UOp) -> bool:
    """Whether the iterations of a loop have a factor of a product in common."""
    return any(
        any(loop in f.ranges for f in pair) and not all(loop in f.ranges for f in pair)
        for pair in map(factors, kernel.reduces)
    )


def tile_products(sink: UOp, target: Target) -> UOp:
    """The kernel with each of its products tiled that tiles would pay for."""
    refused: set[tuple[object, object]] = set()
    while True:
        kernel = Kernel(sink)
        for statement in _statements(kernel):
            found = find_product(kernel, statement, target) if target.vector_bytes else None
            if found is None or not _pays(found):
                continue
            key = (found.along.arg[0], found.across.arg[0])
            if key in refused:
                continue
            try:
                sink = Tiling(sink, kernel, statement, found, target).run()
            except Refused:
                refused.add(key)
            break
        else:
            return sink


def _statements(kernel: Kernel) -> list[UOp]:
    """Fills of buffers, then the effects of the kernel."""
    fills = [e for n in kernel.nodes if n.op is Ops.AFTER for e in n.src[1:]]
    return [e for e in dict.fromkeys((*fills, *kernel.effects)) if e.op is Ops.END]


def _pays(product: Product) -> bool:
    if product.lanes < 2 or product.rows < 2:
        return False
    return product.columns * product.rows * product.depth >= _WORK
