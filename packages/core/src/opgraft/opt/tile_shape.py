"""How many results of a product to keep in registers, and in what shape.

A tile holds `copies` rows and `vectors` vectors of columns; where the factor that varies along the
columns also varies along a loop beside them (the rows of an image), `lines` of these. Each step of
the sum reads a vector of the one factor for each column vector, and a value of the other for each
row, and multiplies all with all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opgraft.target import Target

_LATENCY: Final = 4.5
"""Cycles until the result of a multiply-add can be added to, and some to be on the safe side."""
_OVERHEAD: Final = 0.25
_LOAD: Final = 0.15
"""Cycles of each step, and of each load in it, that nothing hides."""
_PER_CYCLE: Final = 2.0
"""Multiply-adds, and loads, that a core starts in a cycle."""
_FETCH: Final = 0.5
"""Cycles of a line from the second cache that nothing hides."""
_MOST_VECTORS: Final = 8
_SINGLES: Final = 2
"""Registers for the values of the other factor: the next is read while one is still in use. (Where
nothing is left to spare, clang keeps a result in memory.)"""


@dataclass(frozen=True)
class Extents:
    """What a tile is to cover: results along three loops, and the steps of each one's sum."""

    rows: int
    columns: int
    depth: int = 1
    lines: int = 1
    """Extent of the loop beside the columns; 1 where there is none."""
    itemsize: int = 4


@dataclass(frozen=True)
class TileShape:
    """Rows, lines and vectors of a tile."""

    copies: int
    lines: int
    vectors: int


def tile_shape(target: Target, lanes: int, extents: Extents) -> TileShape:
    """The shape of the fewest cycles for all tiles.

    The registers hold the results, the vectors of one step and values of the other factor.
    """
    registers = target.vector_registers
    best: tuple[float, int] | None = None
    shape = TileShape(1, 1, 1)
    for vectors in range(1, min(-(-extents.columns // lanes), _MOST_VECTORS) + 1):
        for lines in range(1, min(extents.lines, _MOST_VECTORS // vectors) + 1):
            if extents.lines % lines:
                continue
            for copies in range(1, extents.rows + 1):
                read = lines * vectors
                if copies * read + read + _SINGLES > registers:
                    break
                score = (_cycles(target, lanes, extents, copies, lines, vectors), copies + read)
                if best is None or score < best:
                    best, shape = score, TileShape(copies, lines, vectors)
    return shape


def _cycles(
    target: Target, lanes: int, extents: Extents, copies: int, lines: int, vectors: int
) -> float:
    """Cycles of one step of all tiles."""
    read = lines * vectors
    tiles = -(-extents.rows // copies) * (extents.lines // lines)
    tiles *= -(-extents.columns // (vectors * lanes))
    busy = max(copies * read, copies + read) / _PER_CYCLE
    # the values of a tile's rows are read again by the next tile, if the first cache keeps them
    side, single = read * lanes * extents.itemsize, copies * extents.itemsize
    fetched = side
    if (side + single) * extents.depth > target.cache_bytes[0]:
        fetched += single
    lost = _OVERHEAD + (copies + read) * _LOAD + fetched / target.line_bytes * _FETCH
    return tiles * (max(busy, _LATENCY) + lost)


def second_cache(target: Target) -> int:
    """Bytes of the second cache."""
    return target.cache_bytes[min(1, len(target.cache_bytes) - 1)]
