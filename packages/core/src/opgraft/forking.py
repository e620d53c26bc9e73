"""Locks in a forked child: one that another thread held when the process forked stays locked.

That thread is not in the child, so nobody would ever release it. Whatever owns a lock (and may
be used in a child) is registered here, and told in the child to make its locks anew.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Locked(Protocol):
    """What owns locks."""

    def renew_locks(self) -> None:
        """Make new locks; runs in a child that has no other thread yet."""


_owners: Final[weakref.WeakSet[Locked]] = weakref.WeakSet()


def renewed_in_children(owner: Locked) -> None:
    """Have `owner.renew_locks()` called in every forked child, as long as it lives."""
    _owners.add(owner)


def _in_child() -> None:
    for owner in list(_owners):
        owner.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
