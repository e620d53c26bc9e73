"""Search: look for a schedule that is faster than the heuristic's, by measuring.

A beam of the best schedules so far, the heuristic's first; in each round those of the beam are
changed in one place (changes.py), and what comes of it is measured. What is refused, cannot be
lowered, is over a limit, hangs or crashes is a lost candidate with its reason. This room runs
nothing: `make` gives the source of a kernel with a schedule, `measure` its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from opgraft.errors import OpgraftError
from opgraft.ir.argument import format_value
from opgraft.ir.uop import UOp
from opgraft.opt.changes import Steps, changed
from opgraft.target import Target

Make: TypeAlias = Callable[[Steps], str]
"""The source of the kernel with a schedule. Raises OpgraftError where there is none."""
Measure: TypeAlias = Callable[[Steps, float], float]
"""Seconds of a run with a schedule; it may stop early at one that takes longer than the second
argument. Raises OpgraftError where it does not run."""

ROUNDS: Final = 6
"""The most rounds: so many changes of the heuristic's schedule."""
GAIN: Final = 0.02
"""The least share of its time that a round must save for another to follow, and that a schedule
must save to be taken instead of the heuristic's."""
PATIENCE: Final = 3.0
"""Times the best time at which a measurement is broken off."""


@dataclass(frozen=True)
class Trial:
    """A candidate that was looked at."""

    steps: Steps
    seconds: float | None
    """None: it is lost."""
    reason: str = ""
    """Why."""


@dataclass
class Trials:
    """What was looked at; each source once."""

    make: Make
    measure: Measure
    done: list[Trial] = field(default_factory=list)
    watch: Callable[[int, float], None] = lambda count, best: None
    """Called after each candidate: how many there were, and the best time."""
    _sources: dict[str, None] = field(default_factory=dict)
    _seen: dict[Steps, None] = field(default_factory=dict)

    def look(self, steps: Steps) -> Trial | None:
        """Measure a candidate; None where its source was measured before."""
        if steps in self._seen:
            return None
        self._seen[steps] = None
        try:
            source = self.make(steps)
            if source in self._sources:
                return None
            self._sources[source] = None
            best = self.best
            limit = float("inf") if best is None else PATIENCE * (best.seconds or 0.0)
            trial = Trial(steps, self.measure(steps, limit))
        except OpgraftError as lost:
            trial = Trial(steps, None, str(lost))
        self.done.append(trial)
        found = self.best
        self.watch(len(self.done), float("inf") if found is None else found.seconds or 0.0)
        return trial

    @property
    def running(self) -> list[Trial]:
        """Those that ran, the fastest first; of equals the one that was tried first."""
        ran = [trial for trial in self.done if trial.seconds is not None]
        return sorted(ran, key=lambda trial: trial.seconds or 0.0)

    @property
    def best(self) -> Trial | None:
        return min(self.running, key=lambda trial: trial.seconds or 0.0, default=None)


def fastest(candidates: Iterable[Steps], trials: Trials) -> Trial:
    """The fastest of a list of schedules; those that are lost are passed over.

    Raises OpgraftError, with what each needed, where all are lost.
    """
    for steps in candidates:
        trials.look(steps)
    best = trials.best
    if best is None:
        tried = tuple([(format_value(trial.steps), trial.reason) for trial in trials.done])
        raise OpgraftError("no schedule of the list runs", tried=tried)
    return best


def search(sink: UOp, target: Target, start: Steps, width: int, trials: Trials) -> Steps:
    """The best schedule found from `start` by a beam of `width`; `start` where nothing is better.

    `sink` is the kernel as the scheduler of `target` gets it. The times of single candidates decide
    the way, not the end: the winner is measured again beside the start by whoever calls this.
    """
    first = trials.look(start)
    if first is None or first.seconds is None:
        return start
    beam = [first]
    for _ in range(ROUNDS):
        before = beam[0].seconds or 0.0
        for trial in beam:
            for steps in changed(sink, target, trial.steps):
                trials.look(steps)
        beam = trials.running[:width]
        if (beam[0].seconds or 0.0) > (1 - GAIN) * before:
            break
    return beam[0].steps
