"""What is running: the values of a program's nodes, its loops, and the threads of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from opgraft.devices.interp.alu import Array

if TYPE_CHECKING:
    from opgraft.devices.interp.traffic import LaunchTraffic


@dataclass
class Loop:
    """A loop that is running."""

    index: int
    last: int
    sizes: Array
    mask: Array | None
    step: int = 1


class Grid:
    """The threads of a launch that are carried out together: whole groups, one after another."""

    def __init__(
        self, groups: tuple[int, ...], threads: tuple[int, ...], first: int, count: int
    ) -> None:
        self.groups, self.threads = groups, threads
        self.count = count
        """Groups that are carried out."""
        self.each = prod(threads)
        """Threads of a group."""
        places = np.arange(first * self.each, (first + count) * self.each)[:, None]
        self.thread = places
        """Of each instance the number of its thread in the whole launch; instances x 1."""
        self.group = places // self.each
        self.phase = np.zeros_like(places)
        """Of each instance how many barriers it has passed."""

    def index(self, name: str) -> Array:
        """What the SPECIAL of this name holds."""
        axis = int(name[-1])
        sizes, of = (
            (self.threads, self.thread % self.each)
            if name.startswith("thread")
            else (self.groups, self.group)
        )
        return of // prod(sizes[:axis]) % sizes[axis]

    def name(self, instance: int) -> str:
        """The thread of an instance, for people."""
        return self.thread_name(int(self.thread[instance, 0]))

    def thread_name(self, thread: int) -> str:
        """The thread of a number in the whole launch, for people."""
        group, own = divmod(thread, self.each)
        return f"thread {_place(own, self.threads)} of {self.group_name(group)}"

    def group_name(self, group: int) -> str:
        return f"group {_place(group, self.groups)}"


def _place(number: int, sizes: tuple[int, ...]) -> str:
    parts = []
    for size in sizes:
        number, part = divmod(number, size)
        parts.append(part)
    return str(parts[0]) if len(parts) == 1 else str(tuple(parts))


@dataclass
class Frame:
    """One run: the value of every node by its slot, and what is active."""

    values: list[Any]
    begin: int
    end: int | None
    instances: int = 1
    mask: Array | None = None
    loops: list[Loop] = field(default_factory=list)
    grid: Grid | None = None
    """Of a program with a launch."""
    traffic: LaunchTraffic | None = None
    """Of a launch that is counted."""
