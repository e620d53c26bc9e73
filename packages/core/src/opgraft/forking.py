"""Locks in a forked child: one that another thread held when the process forked stays locked.

That thread is not in the child, so nobody would ever release it. `ForkLock` is free in a child;
what has more to put right there is registered with `renewed_in_children`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol


class Renewed(Protocol):
    """What does not survive a fork as it is."""

    def renew(self) -> None:
        """Put it right; runs in a child that has no other thread yet."""


_owners: Final[weakref.WeakSet[Renewed]] = weakref.WeakSet()


def renewed_in_children(owner: Renewed) -> None:
    """Have `owner.renew()` called in every forked child, as long as the owner lives."""
    _owners.add(owner)


class ForkLock:
    """A reentrant lock for `with`, free in every forked child.

    `acquire` and `release` are those of the lock itself, for what has no time for `with`.
    """

    __slots__ = ("__weakref__", "_lock", "acquire", "release")

    acquire: Callable[[], bool]
    release: Callable[[], None]

    def __init__(self) -> None:
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """A new lock in place of one that a thread may hold that is gone."""
        self._lock = threading.RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *details: object) -> None:
        self.release()


def _in_child() -> None:
    for owner in list(_owners):
        owner.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
