"""Memory of temporaries: arrays that live from one kernel of a plan to another share an arena.

Intervals, and greedy best fit: the largest first, each into the smallest gap that holds it
among those whose life overlaps its own. Results and inputs are never part of the arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

ALIGNMENT: Final = 128
"""Bytes that every array of the arena is aligned to."""


class Life(NamedTuple):
    """A temporary: its bytes, the first kernel that writes it, the last that reads it."""

    nbytes: int
    first: int
    last: int


def arrange(lives: Sequence[Life]) -> tuple[list[int], int]:
    """The offset of each temporary in the arena, and the arena's bytes.

    >>> arrange([Life(128, 0, 1), Life(256, 1, 2), Life(128, 2, 3)])
    ([256, 0, 256], 384)
    """
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, Life]] = []  # (begin, end, life), by begin
    total = 0
    for number in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, lives[i].first, i)):
        life = lives[number]
        nbytes = -(-max(life.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        best: tuple[int, int] | None = None  # (room, begin)
        end = 0
        for begin, stop, other in placed:
            if other.last < life.first or life.last < other.first:
                continue
            if begin - end >= nbytes and (best is None or begin - end < best[0]):
                best = (begin - end, end)
            end = max(end, stop)
        offset = end if best is None else best[1]
        offsets[number] = offset
        placed.append((offset, offset + nbytes, life))
        placed.sort(key=lambda p: (p[0], p[1]))
        total = max(total, offset + nbytes)
    return offsets, total
