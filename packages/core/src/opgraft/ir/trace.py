"""Recording every rewrite: which rule, where it stands, what it saw and made, and how long.

>>> from opgraft.ir.matcher import PatternMatcher
>>> from opgraft.ir.pattern import UPat
>>> from opgraft.ir.rewrite import graph_rewrite
>>> from opgraft.ir.uop import UOp
>>> rules = PatternMatcher([(UPat.var("x") * 1, lambda x: x, "times one")])
>>> with tracing() as trace:
...     done = graph_rewrite(UOp.variable("n", 0, 9) * 1, rules, name="demo")
>>> [(step.rule.name, step.before.op.name, step.after.op.name) for step in trace.steps]
[('times one', 'MUL', 'VAR')]

While nothing records, a rewrite asks once per graph whether it is recorded, and that is all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.recording import current, recording
from opgraft.ir.rule import Rule, brief, failure
from opgraft.ir.uop import UOp

__all__ = ["Recorder", "Step", "Tally", "Trace", "recording", "tracing"]


@dataclass(frozen=True)
class Step:
    """One rewrite."""

    rule: Rule
    before: UOp
    after: UOp
    seconds: float
    """What matching and applying this rule took."""
    name: str
    """Of the `graph_rewrite` in which it happened, with those around it: "lower / index"."""

    def __str__(self) -> str:
        place = f"{self.name}: " if self.name else ""
        return f"{place}{self.rule}\n  {brief(self.before)}\n  {brief(self.after)}"


@dataclass
class Tally:
    """What one rule did in a trace."""

    fired: int = 0
    declined: int = 0
    """How often it was tried on a node with a fitting operation and made nothing."""
    seconds: float = 0.0


@dataclass
class Trace:
    """What was rewritten while `tracing` was on, in order. It keeps the nodes alive."""

    steps: list[Step] = field(default_factory=list)
    rules: dict[Rule, Tally] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def tally(self, rule: Rule) -> Tally:
        found = self.rules.get(rule)
        if found is None:
            found = self.rules[rule] = Tally()
        return found

    def table(self, most: int = 20) -> str:
        """The rules by the time that they took, as lines of text."""
        ranked = sorted(self.rules.items(), key=lambda item: -item[1].seconds)[:most]
        lines = [f"{'ms':>9} {'fired':>7} {'declined':>8}  rule"]
        lines += [
            f"{t.seconds * 1e3:9.2f} {t.fired:7} {t.declined:8}  {rule}" for rule, t in ranked
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def __len__(self) -> int:
        return len(self.steps)


@contextmanager
def tracing() -> Iterator[Trace]:
    """Record the rewrites of this thread (or task) until the block ends."""
    trace = Trace()
    token = current.set(trace)
    try:
        yield trace
    finally:
        current.reset(token)


class Recorder:
    """Stands in for a matcher's table: interprets its rules and records what they do."""

    def __init__(self, matcher: PatternMatcher, trace: Trace, name: str | None) -> None:
        self.matcher: Final = matcher
        self.trace: Final = trace
        self.name: Final = " / ".join([*trace._names, *([name] if name else [])])

    def __getitem__(self, signature: object) -> Callable[[UOp, Any], UOp | None]:
        return self.rewrite

    def rewrite(self, node: UOp, ctx: Any) -> UOp | None:
        trace = self.trace
        for rule in self.matcher.rules:
            if rule.pattern.ops is not None and node.op not in rule.pattern.ops:
                continue
            start = time.perf_counter()
            try:
                made = rule.interpret(node, ctx)
            except Exception as error:
                raise failure(rule, node, error) from error
            seconds = time.perf_counter() - start
            tally = trace.tally(rule)
            tally.seconds += seconds
            if made is not None:
                tally.fired += 1
                trace.steps.append(Step(rule, node, made, seconds, self.name))
                return made
            tally.declined += 1
        return None

    def __enter__(self) -> Recorder:
        self.trace._names.append(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        self.trace._names.pop()
