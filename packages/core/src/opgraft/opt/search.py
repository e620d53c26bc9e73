"""Search: look for a schedule that is faster than the heuristic's, by measuring.

A beam of the best schedules so far, the heuristic's first; in each round those of the beam are
changed in one place, and what comes of it is measured. What is refused, cannot be lowered, is over
a limit, hangs or crashes is a lost candidate with its reason. This room runs nothing: `make` gives
the source of a kernel with a schedule, `measure` its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from opgraft.errors import OpgraftError
from opgraft.ir.argument import format_value
from opgraft.ir.ops import AxisKind
from opgraft.ir.uop import UOp
from opgraft.opt.accumulate import Accumulate
from opgraft.opt.actions import Action, Parallel, Refused, Split
from opgraft.opt.axes import Kernel, constant_extent
from opgraft.opt.blocks import Blocks
from opgraft.opt.chunks import InChunks
from opgraft.opt.cover import Cover
from opgraft.opt.fold import Fold
from opgraft.opt.grid_actions import Grid, GroupReduce
from opgraft.opt.grid_scan import GroupScan
from opgraft.opt.partial import Partial
from opgraft.opt.prefetch import Prefetch
from opgraft.opt.tile import Tile

Steps: TypeAlias = tuple[Action, ...]
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


def search(sink: UOp, start: Steps, width: int, trials: Trials) -> Steps:
    """The best schedule found from `start` by a beam of `width`; `start` where nothing is better.

    `sink` is the kernel as the scheduler gets it. The times of single candidates decide the way,
    not the end: the winner is measured again beside the start by whoever calls this.
    """
    first = trials.look(start)
    if first is None or first.seconds is None:
        return start
    beam = [first]
    for _ in range(ROUNDS):
        before = beam[0].seconds or 0.0
        for trial in beam:
            for steps in changed(sink, trial.steps):
                trials.look(steps)
        beam = trials.running[:width]
        if (beam[0].seconds or 0.0) > (1 - GAIN) * before:
            break
    return beam[0].steps


# ---- changes


def changed(sink: UOp, steps: Steps) -> Iterator[Steps]:
    """Legal schedules that differ from this one in one place, and in what follows from it."""
    for place, step in enumerate(steps):
        for instead in (*_resized(step), *_moved(sink, steps[:place], step), None):
            chosen = steps[:place] if instead is None else (*steps[:place], instead)
            made = _legal(sink, (*chosen, *steps[place + 1 :]), len(chosen))
            if made is not None and made != steps:
                yield made
    body = tuple([step for step in steps if not step.keeps_loops])
    last = tuple([step for step in steps if step.keeps_loops])
    for step in _further(sink, body):
        yield (*body, step, *last)
    for step in () if last else _looking_ahead(sink, steps):
        yield (*steps, step)


def _legal(sink: UOp, steps: Steps, kept: int) -> Steps | None:
    """The schedule without those steps after the first `kept` that are legal no more, or have
    nothing to do."""
    chosen: list[Action] = []
    for place, step in enumerate(steps):
        try:
            after = step.apply(sink)
        except Refused:
            if place < kept:
                return None
            continue
        if after is not sink:
            chosen.append(step)
        sink = after
    return tuple(chosen)


def _resized(step: Action) -> Iterator[Action]:
    """The action with other numbers."""
    if isinstance(step, Split):
        for factor in _near(step.factor):
            yield replace(step, factor=factor)
    elif isinstance(step, Accumulate):
        for at_once in _near(step.at_once):
            yield replace(step, at_once=at_once)
    elif isinstance(step, Prefetch):
        for distance in _near(step.distance):
            yield replace(step, distance=distance)
    elif isinstance(step, InChunks):
        for most in _near(step.most):
            yield replace(step, most=most)
    elif isinstance(step, (Grid, GroupReduce, GroupScan)):
        for threads in _near(step.threads):
            yield replace(step, threads=threads)
    elif isinstance(step, (Blocks, Partial)):
        for size in _near(step.size):
            yield replace(step, size=size)
    elif isinstance(step, (Cover, Fold)):
        for copies in dict.fromkeys((1, *_near(step.copies))):
            if copies != step.copies:
                yield replace(step, copies=copies)
        for lanes in _near(step.lanes):
            yield replace(step, lanes=lanes)
    elif isinstance(step, Tile):
        for place, (name, copies, lanes) in enumerate(step.parts):
            for other in dict.fromkeys((copies - 1, copies + 1, copies // 2, copies * 2)):
                if other >= 1 and other != copies:
                    part = (name, other, lanes)
                    yield Tile((*step.parts[:place], part, *step.parts[place + 1 :]))


def _near(size: int) -> list[int]:
    return [size * 2] if size < 4 else [size // 2, size * 2]


def _moved(sink: UOp, before: Steps, step: Action) -> Iterator[Action]:
    """The cores share another loop."""
    if isinstance(step, Parallel):
        for loop in _after(sink, before).spine:
            if loop.arg[0] != step.name and loop.arg[1] is AxisKind.LOOP:
                yield Parallel(loop.arg[0])


_COPIES: Final = (2, 4, 8)
_DISTANCE: Final = 8
"""Iterations that a loop is looked ahead of, where the schedule does not."""


def _after(sink: UOp, steps: Sequence[Action]) -> Kernel:
    """The kernel after these steps."""
    for step in steps:
        sink = step.apply(sink)
    return Kernel(sink)


def _further(sink: UOp, steps: Sequence[Action]) -> Iterator[Action]:
    """Copies of a loop that is summed over, which the schedule leaves as it is."""
    kernel = _after(sink, steps)
    sink = kernel.sink
    loops = dict.fromkeys(r for reduce in kernel.reduces for r in reduce.src[1:])
    for loop in loops:
        size = constant_extent(loop)
        if size is None or loop.arg[1] is not AxisKind.REDUCE:
            continue
        for copies in _COPIES:
            step = Split(loop.arg[0], copies, AxisKind.UNROLL)
            if size % copies == 0 and size > copies and _legal(sink, (step,), 1) is not None:
                yield step


def _looking_ahead(sink: UOp, steps: Sequence[Action]) -> Iterator[Action]:
    """Fetching what a loop reads at places that memory names."""
    kernel = _after(sink, steps)
    for loop in kernel.ranges:
        step = Prefetch(loop.arg[0], _DISTANCE)
        if _legal(kernel.sink, (step,), 1) is not None:
            yield step
