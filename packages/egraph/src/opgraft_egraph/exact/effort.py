"""`Effort`: how far an extraction may go, in steps that are the same on every machine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple


class Effort(NamedTuple):
    """Limits of an extraction.

    `steps`: looks at a node, about half a million in a second; where they run out the answer is the
    same in every process and on every machine. `seconds` are a safety net: where they run out first
    it may not be, and the solution says so (`stop`). `program`: also try an integer program by
    SciPy's HiGHS, where that is installed; of several optima it may take another one.
    """

    steps: float = 400_000
    seconds: float = 10.0
    program: bool = False


QUICK: Final = Effort(steps=0)
"""Cheapest trees and greedy choices, as fast as can be: for compilers."""
USUAL: Final = Effort()
THOROUGH: Final = Effort(math.inf, 60.0, True)
"""An optimum with its proof, if a minute does for it."""

_PATIENCE: Final = 64
"""Looks at the clock are further apart than this many steps."""


class Meter:
    """Counts steps, and watches the clock while they are spent."""

    def __init__(self, effort: Effort) -> None:
        self.begin: Final = time.perf_counter()
        self.spent = 0
        self.late = False
        """Whether time ever ran out before steps did: then the answer depends on the machine."""
        self._steps = effort.steps
        self._end = self.begin + effort.seconds
        self._look = 0
        self._out = False

    def spend(self, steps: int) -> bool:
        """Note so many steps; whether there is room for more."""
        self.spent += steps
        if self._out or self.spent >= self._steps:
            return False
        if self.spent >= self._look:
            self._look = self.spent + _PATIENCE
            self._out = time.perf_counter() > self._end
            self.late |= self._out
        return not self._out

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return not self.spend(0)

    @property
    def left(self) -> float:
        """Steps that are left."""
        return max(0.0, self._steps - self.spent)

    @property
    def seconds_left(self) -> float:
        return self._end - time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self.begin

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """Within it there is a share of the steps and of the time that are left."""
        before = self._end, self._out
        now = time.perf_counter()
        self._end = now + (self._end - now) * share
        with self.room(self.left * share):
            yield
        self._end, self._out = before

    @contextmanager
    def room(self, steps: float) -> Iterator[None]:
        """Within it there is room for so many steps."""
        before, self._steps = self._steps, self.spent + steps
        yield
        self._steps = before
