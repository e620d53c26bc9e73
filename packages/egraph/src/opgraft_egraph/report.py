"""`Report`: how a run went, and `saturate`, which drives an engine from round to round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from opgraft.api import errors
from opgraft_egraph.codes import CALLBACKS, CONFLICT, NO_MEMORY, STOPS
from opgraft_egraph.engine import Engine, Limits

_MOST: Final = 0xFFFFFFFF


class Schedule(NamedTuple):
    """How far a run may go, and how often one rule may match in a round.

    A rule over `matches` sits out for some rounds and may match twice as often when it is back
    (backoff). 0 stands for no limit. All limits are looked at within a round.
    """

    nodes: int = 10_000
    rounds: int = 30
    seconds: float = 5.0
    matches: int = 1_000
    ban_rounds: int = 5

    def limits(self, power_of_two: float = -1.0) -> Limits:
        counts = (self.nodes, self.rounds, self.matches, self.ban_rounds)
        if not all(isinstance(count, int) for count in counts):
            raise TypeError(f"{self}: limits are whole numbers, but for the seconds")
        if not isinstance(self.seconds, (int, float)):
            raise TypeError(f"{self}: seconds are a number")
        if min(counts) < 0 or not self.seconds >= 0:
            raise errors.OpgraftError(f"{self}: no limit is below 0")
        if max(counts) > _MOST:
            # more than an engine can count is no limit that anything reaches
            nodes, rounds, matches, ban_rounds = (min(count, _MOST) for count in counts)
            counts = nodes, rounds, matches, ban_rounds
        return Limits(*counts, self.seconds, power_of_two)


FAST: Final = Schedule(nodes=2_000, rounds=2, seconds=0.010, matches=64, ban_rounds=2)
"""The usual profile within a compiler: a round or two, few alternatives."""
FULL: Final = Schedule(nodes=10_000, rounds=30, seconds=5.0, matches=1_000, ban_rounds=5)
"""To saturation, or to limits that other libraries use too."""
UNLIMITED: Final = Schedule(nodes=0, rounds=0, seconds=0.0, matches=0, ban_rounds=0)
PROFILES: Final[Mapping[str, Schedule]] = {"fast": FAST, "full": FULL, "unlimited": UNLIMITED}


class RuleReport:
    """What one rule did: matches found, nodes added, classes joined, times it had to sit out.

    `calls` counts those of its function; a rule that runs inside the engine needs none.
    """

    __slots__ = ("added", "bans", "calls", "matches", "seconds", "united")

    def __init__(self) -> None:
        self.matches = self.added = self.united = self.bans = self.calls = 0
        self.seconds = 0.0


class Report(NamedTuple):
    """How a run went.

    `stop` is "saturated", or the limit that was reached: "nodes", "rounds", "seconds".
    """

    stop: str
    rounds: int
    nodes: int
    classes: int
    seconds: float
    matches: int
    bytes: int
    engine: str
    rules: Mapping[str, RuleReport]

    def __str__(self) -> str:
        """A table of the rules, those that took longest first."""
        lines = [
            f"{self.stop} after {self.rounds} rounds, {self.seconds * 1e3:.2f} ms: "
            f"{self.nodes} nodes in {self.classes} classes",
            f"{'ms':>9} {'matches':>8} {'nodes':>7} {'joined':>7} {'calls':>7} {'bans':>5}  rule",
        ]
        ranked = sorted(self.rules.items(), key=lambda item: (-item[1].seconds, item[0]))
        lines += [
            f"{r.seconds * 1e3:9.3f} {r.matches:8} {r.added:7} {r.united:7} {r.calls:7} "
            f"{r.bans:5}  {name}"
            for name, r in ranked
            if r.matches
        ]
        return "\n".join(lines)


Handle = Callable[[list[tuple[int, tuple[int, ...]]]], None]


def saturate(
    engine: Engine,
    schedule: Schedule,
    handle: Handle,
    names: Sequence[str],
    conflict: Callable[[], Exception],
    *,
    calls: Mapping[str, int] | None = None,
    power_of_two: float = -1.0,
    prepare: Callable[[], None] | None = None,
) -> Report:
    """Rounds until nothing is new or a limit is reached.

    `names`: of the rule of each way. `handle` applies the matches that wait for the caller;
    `conflict` makes the error where a class would hold what cannot be one; `prepare` is called
    whenever the engine is about to go on.
    """
    begin = time.perf_counter()
    first = engine.counts().round
    limits = schedule.limits(power_of_two)
    if first and limits.rounds:
        limits = limits._replace(rounds=min(first + limits.rounds, _MOST))
    engine.set_limits(limits)
    ready = prepare or engine.refresh
    ready()
    stop = engine.run()
    while stop == CALLBACKS:
        handle(engine.buffer())
        ready()
        stop = engine.run()
    if stop == CONFLICT:
        raise conflict()
    if stop == NO_MEMORY:
        raise MemoryError("no memory for the e-graph to grow")
    counts = engine.counts()
    rules: dict[str, RuleReport] = {}
    for way, name in enumerate(names):
        tally = engine.tally(way)
        row = rules.setdefault(name, RuleReport())
        row.matches += tally.matches
        row.added += tally.added
        row.united += tally.united
        row.bans += tally.bans
        row.seconds += tally.seconds
    for name, count in (calls or {}).items():
        rules.setdefault(name, RuleReport()).calls += count
    return Report(
        stop=STOPS[stop],
        rounds=counts.round - first,
        nodes=counts.live,
        classes=counts.classes,
        seconds=time.perf_counter() - begin,
        matches=counts.matches,
        bytes=counts.bytes,
        engine=engine.name,
        rules=rules,
    )
