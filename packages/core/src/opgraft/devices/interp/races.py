"""Watches memory that threads share: who wrote an element, who read it, and in which phase.

A phase is the time between two barriers of a group. Two threads race if both touch one element,
at least one of them writes it, and nothing orders the two: they are of one group and in the same
phase, or they are of different groups, which nothing ever orders. Atomics don't race with each
other. It is watched in every launch, for group memory and for the buffers that the kernel stores
to; a launch that only reads a buffer costs nothing there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from opgraft.devices.interp.alu import Array
from opgraft.devices.interp.frame import Frame, Grid
from opgraft.devices.interp.place import Place

_NOBODY: Final = -1
_SEVERAL: Final = -2


class _Past:
    """For each element the last access of a kind: its thread, group and phase.

    Of several threads in one phase, or of several groups, `_SEVERAL`.
    """

    def __init__(self, size: int) -> None:
        self.thread: Array = np.full(size, _NOBODY, np.int64)
        self.group: Array = np.full(size, _NOBODY, np.int64)
        self.phase: Array = np.zeros(size, np.int64)

    def clashes(self, at: Array, thread: Array, group: Array, phase: Array) -> Array:
        """Whether the last access to each of these elements is unordered with the one now."""
        before = self.group[at]
        other = (before != group) & (before != _NOBODY)
        same = (before == group) & (self.phase[at] == phase) & (self.thread[at] != thread)
        clash: Array = other | same
        return clash

    def note(self, at: Array, thread: Array, group: Array, phase: Array) -> None:
        """Keep accesses, any number of them to one element."""
        fresh = self.group[at] == _NOBODY
        self.group[at[fresh]] = group[fresh]
        apart = self.group[at] != group
        self.group[at[apart]] = _SEVERAL
        later = fresh | (self.phase[at] != phase)
        self.thread[at[later]] = thread[later]
        self.phase[at[later]] = phase[later]
        apart = self.thread[at] != thread
        self.thread[at[apart]] = _SEVERAL


class Watch:
    """The past of a buffer that threads share."""

    def __init__(self, name: str, size: int, element: int = 1, grouped: bool = False) -> None:
        self.name = name
        self.size = size
        """Scalars of a row; group memory has a row for each group."""
        self.element = element
        self.grouped = grouped
        rows = size
        self._written = _Past(rows)
        self._read = _Past(rows)
        self._atomic: Array = np.zeros(rows, np.bool_)

    @staticmethod
    def of_groups(name: str, groups: int, size: int, element: int) -> Watch:
        """For group memory, of which each group has its own."""
        made = Watch(name, groups * size, element, grouped=True)
        made.size = size
        return made

    # ---- accesses

    def read(
        self, frame: Frame, places: Array, rows: Array | int, active: Array | None, by: Place
    ) -> None:
        """A plain read; raises where it races, or finds group memory that nobody wrote."""
        at, who = self._flat(frame, places, rows, active)
        self._refuse_empty(frame, at, who, by)
        past = self._who(frame, who)
        self._refuse(frame, self._written, at, who, past, by, "reads", "wrote")
        self._read.note(at, *past)

    def write(
        self,
        frame: Frame,
        places: Array,
        rows: Array | int,
        active: Array | None,
        by: Place,
        atomic: bool = False,
    ) -> None:
        """A store or an atomic; raises where it races."""
        at, who = self._flat(frame, places, rows, active)
        past = self._who(frame, who)
        does = "changes" if atomic else "writes"
        if atomic:
            self._refuse_empty(frame, at, who, by)
        self._refuse(frame, self._read, at, who, past, by, does, "read")
        if atomic:
            plain = ~self._atomic[at]
            self._refuse(
                frame,
                self._written,
                at[plain],
                who[plain],
                self._who(frame, who[plain]),
                by,
                does,
                "wrote",
            )
            new = at[plain]
            self._written.group[new] = _NOBODY
            self._written.note(at, *past)
            self._atomic[at] = True
            return
        self._refuse(frame, self._written, at, who, past, by, does, "wrote")
        self._atomic[at] = False
        self._written.group[at] = _NOBODY
        self._written.note(at, *past)
        # several at once
        self._refuse(frame, self._written, at, who, past, by, does, "write as well,")

    # ---- inside

    def _flat(
        self, frame: Frame, places: Array, rows: Array | int, active: Array | None
    ) -> tuple[Array, Array]:
        """The elements that are accessed, and by which instance each."""
        whole = np.broadcast_shapes(
            (frame.instances, 1), places.shape, () if active is None else active.shape
        )
        at = np.broadcast_to(places + rows * self.size if self.grouped else places, whole)
        who = np.broadcast_to(np.arange(frame.instances)[:, None], whole)
        if active is None:
            return at.reshape(-1), who.reshape(-1)
        chosen = np.broadcast_to(active, whole)
        return at[chosen], who[chosen]

    @staticmethod
    def _who(frame: Frame, who: Array) -> tuple[Array, Array, Array]:
        grid = _grid_of(frame)
        return grid.thread[who, 0], grid.group[who, 0], grid.phase[who, 0]

    def _element(self, at: int) -> int:
        return int(at) % self.size // self.element

    def _refuse_empty(self, frame: Frame, at: Array, who: Array, by: Place) -> None:
        if not self.grouped:
            return  # a buffer holds what it held before the launch
        empty = self._written.group[at] == _NOBODY
        if empty.any():
            first = int(np.flatnonzero(empty)[0])
            by.fail(
                frame,
                int(who[first]),
                f"reads element {self._element(at[first])} of {self.name}, "
                "which nobody has written",
                "Group memory holds nothing when a group begins.",
            )

    def _refuse(
        self,
        frame: Frame,
        past: _Past,
        at: Array,
        who: Array,
        now: tuple[Array, Array, Array],
        by: Place,
        does: str,
        did: str,
    ) -> None:
        clash = past.clashes(at, *now)
        if not clash.any():
            return
        first = int(np.flatnonzero(clash)[0])
        place, grid = int(at[first]), _grid_of(frame)
        thread, group = int(past.thread[place]), int(past.group[place])
        if group == _SEVERAL:
            other = "threads of several groups"
        elif thread == _SEVERAL:
            other = f"several threads of {grid.group_name(group)}"
        else:
            other = grid.thread_name(thread)
        inside = group == int(now[1][first])
        by.fail(
            frame,
            int(who[first]),
            f"{does} element {self._element(place)} of {self.name}, which {other} {did} "
            + ("without a barrier between" if inside else "in the same launch"),
            "Put a barrier between the two, or let one thread do both."
            if inside
            else "Nothing orders two groups of a launch: use an atomic, or a second kernel.",
        )


def _grid_of(frame: Frame) -> Grid:
    assert frame.grid is not None
    return frame.grid
