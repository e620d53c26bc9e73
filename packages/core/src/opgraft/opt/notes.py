"""Which actions made a kernel what it is: its schedule as a value, found by looking back.

Whoever chooses a schedule tries actions, and keeps some of the kernels that they give. While notes
are taken every action writes down what it made of what; so a kernel's way back to the one it was
made from is known, whatever else was tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from opgraft.errors import OpgraftError
from opgraft.ir.uop import UOp

if TYPE_CHECKING:
    from opgraft.opt.actions import Action


class Notes:
    """What each action made."""

    def __init__(self) -> None:
        self._made: dict[UOp, tuple[UOp, Action]] = {}

    def add(self, before: UOp, action: Action, after: UOp) -> None:
        """An action made `after` of `before`. The first way to a kernel is the one to keep."""
        if after is not before:
            self._made.setdefault(after, (before, action))

    def between(self, first: UOp, last: UOp) -> tuple[Action, ...]:
        """The actions that made the kernel `last` of `first`, in order."""
        steps: list[Action] = []
        while last is not first:
            found = self._made.get(last)
            if found is None:
                raise OpgraftError("a kernel was changed by something that is no action")
            last, action = found
            steps.append(action)
        return tuple(reversed(steps))


_current: Final[ContextVar[Notes | None]] = ContextVar("opgraft_notes", default=None)


def note(before: UOp, action: Action, after: UOp) -> None:
    """Write down what an action made, if notes are taken."""
    notes = _current.get()
    if notes is not None:
        notes.add(before, action, after)


@contextmanager
def noting() -> Iterator[Notes]:
    """Take notes of this thread's actions while the block runs."""
    token = _current.set(Notes())
    try:
        found = _current.get()
        assert found is not None
        yield found
    finally:
        _current.reset(token)
