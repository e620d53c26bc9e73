"""Transposes and permuted copies: where one access walks along one loop, another along another.

Whichever loop is innermost, one side would use a few bytes of each line that it touches. A square
tile of both loops reads whole vectors along the one, exchanges their lanes in registers (see
lower/shuffles.py), and stores whole vectors along the other. Walking along the rows that are read,
with tiles that fill a line of what is stored, each line is moved once.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Refused, Split
from opgraft.opt.axes import Kernel, constant_extent
from opgraft.opt.tile import Outermost, Tile
from opgraft.target import Target

_BLOCK: Final = 16
"""Iterations from which a stride is far, and of a block without vectors."""
_SIDE: Final = 16
"""The most lanes of a square."""
_COPIES: Final = 16
"""The most elements of a tile along what is stored: each is a vector that is read."""
_STRIP: Final = 64
"""Elements of a row that is read, after which the next rows come: so many rows of what is stored
grow at a time, and the pages that hold them are few."""


def tile_copies(sink: UOp, target: Target) -> UOp:
    """The kernel in tiles of two loops, where it reads along one and stores along the other."""
    kernel = Kernel(sink)
    if kernel.reduces or kernel.has_locals or len(kernel.spine) < 2:
        return sink
    crossed = _crossed(kernel)
    if crossed is None:
        return sink
    along, across = crossed
    try:
        squares = _in_squares(kernel, along, across, target)
        return _in_blocks(kernel, along, across) if squares is None else squares
    except Refused:
        return sink


def _crossed(kernel: Kernel) -> tuple[UOp, UOp] | None:
    """(the loop that is stored along, the loop that is loaded along), where each is far from
    consecutive for the other side."""
    strides = [
        (a.node.op is Ops.STORE, {r: a.stride(r) for r in kernel.spine}) for a in kernel.accesses
    ]
    for along in kernel.spine:
        for across in kernel.spine:
            if along is across:
                continue
            stored = any(s and of[along] == 1 and _is_far(of[across]) for s, of in strides)
            loaded = any(not s and of[across] == 1 and _is_far(of[along]) for s, of in strides)
            if stored and loaded:
                return along, across
    return None


def _is_far(stride: int | None) -> bool:
    return stride is not None and abs(stride) > 1


def _in_squares(kernel: Kernel, along: UOp, across: UOp, target: Target) -> UOp | None:
    """In tiles of vectors; None where there are none, or loops too short."""
    sizes = [n.dtype.itemsize for n in kernel.nodes if n.op in GroupOp.ALU or n.op is Ops.LOAD]
    moved = [a.itemsize for a in kernel.accesses if a.node.op is Ops.STORE]
    widest = max((*(s for s in sizes), *moved))
    lanes = min(target.vector_bytes // widest, _SIDE)
    long, wide = constant_extent(along) or 0, constant_extent(across) or 0
    while lanes > min(long, wide):
        lanes //= 2
    if lanes < 4 and lanes * widest < target.vector_bytes:
        return None
    if lanes < 2:
        return None
    copies = max(1, target.line_bytes // (lanes * max(moved)))
    while copies > 1 and (copies * lanes > long or copies * lanes > _COPIES):
        copies //= 2
    tiled = Tile(((along.arg[0], copies, lanes), (across.arg[0], lanes, 1))).apply(kernel.sink)
    return _outside(tiled, kernel, along, across)


def _in_blocks(kernel: Kernel, along: UOp, across: UOp) -> UOp:
    """In blocks of both loops, so that lines of both sides are used up while a cache has them."""
    if any((constant_extent(r) or 0) < 2 * _BLOCK for r in (along, across)):
        return kernel.sink
    blocked = Split(along.arg[0], _BLOCK).apply(kernel.sink)
    return _outside(Split(across.arg[0], _BLOCK).apply(blocked), kernel, along, across)


def _outside(tiled: UOp, kernel: Kernel, along: UOp, across: UOp) -> UOp:
    """The loops over tiles outside of all else, that along what is read the innermost of them."""
    others = [r.arg[0] for r in kernel.spine if r is not along and r is not across]
    inner, outer = f"{across.arg[0]}.o", f"{along.arg[0]}.o"
    names = [outer, inner]
    found = Kernel(tiled).find(inner)
    count = 0 if found is None else constant_extent(found) or 0
    strip = max(1, _STRIP * count // max(1, constant_extent(across) or 1))
    fitting = next((n for n in range(strip, 2 * strip) if n and count % n == 0), count)
    if 1 < fitting < count:
        tiled = Split(inner, fitting).apply(tiled)
        names = [f"{inner}.o", outer, f"{inner}.i"]
    after = Kernel(tiled)
    names = [*others, *(n for n in names if after.find(n) is not None)]
    return Outermost(tuple(names)).apply(tiled)
