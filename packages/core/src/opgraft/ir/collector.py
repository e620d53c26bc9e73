"""The cyclic garbage collector stands still while graphs are made by the thousand nodes."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import ContextDecorator
from typing import Final


class Pause(ContextDecorator):
    """Keeps the cyclic garbage collector off while any thread is inside.

    Nodes hold no cycles, and the collector would look at all of them again and again: half the
    time of a rewrite.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside = max(0, self._inside - 1)  # after a fork in there it is 0 already
            if self._inside == 0 and self._was_on:
                gc.enable()

    def forked(self) -> None:
        """In a child process no other thread is inside, whatever the parent's threads did."""
        self._lock = threading.Lock()
        if self._inside and self._was_on:
            gc.enable()
        self._inside = 0


paused: Final = Pause()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=paused.forked)
