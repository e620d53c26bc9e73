"""What a launch moves, counted: how many lines of memory the threads of a core touch at once.

Threads that a core carries out in lockstep are served together: what lies in one line of memory is
one transaction, so neighbours should read neighbours. Group memory lies in banks, each of which
gives one word at a time: threads that want different words of one bank wait for each other.

    with counting() as launches:
        ...                          # any program on INTERP with a launch
    print(launches[0])

    row_sum
      slot 1            reads       4096   256 transactions, at least 256
      slot 0            writes        64     4 transactions, at least 4

"At least": were all that is moved side by side, and nothing moved twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from opgraft.devices.interp.alu import Array
from opgraft.devices.interp.frame import Frame

BANKS: Final = 32
_WORD: Final = 4
"""Bytes of a word of a bank."""


@dataclass
class Traffic:
    """What threads read of, or write to, one buffer or group memory in a launch."""

    name: str
    """As errors name it: "slot 0"; group memory by the name of its LOCAL."""
    grouped: bool
    """Whether it is group memory."""
    does: str
    """"reads", "writes" or, by atomics, "changes"."""
    elements: int = 0
    """Elements that threads moved, however many threads the same one."""
    transactions: int = 0
    """Lines of memory, or turns of the banks of group memory, that this took."""
    least: int = 0
    """... and would have taken at best, were the elements of each turn neighbours."""

    def __str__(self) -> str:
        return (
            f"{self.name:<18}{self.does:<7}{self.elements:>9}"
            f"{self.transactions:>6} transactions, at least {self.least}"
        )


@dataclass
class LaunchTraffic:
    """What one launch moved. `lanes` threads are served together, `line_bytes` at once."""

    kernel: str
    lanes: int
    line_bytes: int
    rows: dict[tuple[str, str], Traffic] = field(default_factory=dict)
    """By the memory's name and what is done: "reads", "writes" or "changes"."""

    def __str__(self) -> str:
        return "\n  ".join([self.kernel, *map(str, self.rows.values())])

    def note(
        self,
        frame: Frame,
        memory: tuple[str, bool, int],
        places: Array,
        active: Array | None,
        does: str,
    ) -> None:
        """Count an access of all threads of a frame: `memory` is its name, whether it is group
        memory, and the bytes of an element; `places` the elements, threads x lanes of a vector."""
        assert frame.grid is not None
        name, grouped, itemsize = memory
        row = self.rows.setdefault((name, does), Traffic(name, grouped, does))
        shape = np.broadcast_shapes(
            (frame.instances, 1), places.shape, () if active is None else active.shape
        )
        at = np.broadcast_to(places, shape).astype(np.int64) * itemsize
        each = frame.grid.each
        thread, blocks = np.arange(frame.instances), -(-each // self.lanes)
        block = np.broadcast_to(
            (thread // each * blocks + thread % each // self.lanes)[:, None], shape
        )
        if active is not None:
            chosen = np.broadcast_to(active, shape)
            at, block = at[chosen], block[chosen]
        at, block = at.reshape(-1), block.reshape(-1)
        if not at.size:
            return
        row.elements += at.size
        size = _WORD if grouped else self.line_bytes
        units = np.unique(np.stack([block, at // size], axis=1), axis=0)
        distinct = np.unique(np.stack([block, at], axis=1), axis=0)[:, 0]
        moved = np.unique(distinct, return_counts=True)[1] * itemsize
        if grouped:
            banks, counts = np.unique(
                np.stack([units[:, 0], units[:, 1] % BANKS], axis=1), axis=0, return_counts=True
            )
            starts = np.flatnonzero(np.diff(banks[:, 0], prepend=-1))
            row.transactions += int(np.maximum.reduceat(counts, starts).sum())
            size = _WORD * BANKS
        else:
            row.transactions += len(units)
        row.least += int((-(-moved // size)).sum())


_counted: Final[ContextVar[list[LaunchTraffic] | None]] = ContextVar("counted", default=None)


@contextmanager
def counting() -> Iterator[list[LaunchTraffic]]:
    """Counts what launches on INTERP move while the block runs: a list that each is added to.

    Kernels without a launch move nothing that is counted. It takes several times as long.
    """
    launches: list[LaunchTraffic] = []
    token = _counted.set(launches)
    try:
        yield launches
    finally:
        _counted.reset(token)


def counted() -> list[LaunchTraffic] | None:
    """Where launches are to be noted; None where nobody counts."""
    return _counted.get()
