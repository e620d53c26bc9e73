"""Locks in a forked child: one that another thread held when the process forked stays locked.

That thread is not in the child, so nobody would ever release it. `ForkLock` is free in a child;
what has more to put right there is registered with `renewed_in_children`.
"""

from __future__ import annotations

import os
import threading
import weakref
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
    """A reentrant lock for `with`, free in every forked child."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """A new lock in place of one that a thread may hold that is gone."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *details: object) -> None:
        self._lock.release()


def _in_child() -> None:
    for owner in list(_owners):
        owner.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
