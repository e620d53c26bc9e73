"""`in_turn`: threads that use one e-graph go through its methods one after another.

An engine in C lets other threads run while it works, and is not made for two at once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Turning(Protocol):
    """What has a lock for those who want to use it."""

    @property
    def turn(self) -> threading.RLock: ...


G = TypeVar("G", bound=Turning)


def in_turn(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """A method that one thread at a time is in; it may call others of the same graph."""

    @functools.wraps(method)
    def waiting(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.turn:
            return method(self, *args, **kwargs)

    return waiting
