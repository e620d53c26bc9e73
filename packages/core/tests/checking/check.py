"""Check rules: draw instances of each rule's pattern, run the real rule, judge what it made.

`python -m checking.check [--instances N] [--rule NAME]...` prints a record per rule.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType
from typing import Any, Final

from opgraft.dtype import DType, dtypes
from opgraft.errors import RewriteError
from opgraft.ir import PatternMatcher, UOp, UPat
from opgraft.ir.rule import Rule
from opgraft.rules.sets import sym
from tested import at

from . import lifted, pairs
from .instances import FLOATS, Filler, NoInstance, looped, widened
from .judge import judge
from .shapes import FAMILIES, SHAPES


@dataclass(frozen=True)
class Group:
    """Dtypes that are drawn together, and how what was drawn is judged."""

    name: str
    among: tuple[DType, ...]
    proof: bool = False


GROUPS: Final = (
    Group("4 bit", (dtypes.narrow(4, True), dtypes.narrow(4, False))),
    Group("8 bit", (dtypes.int8, dtypes.uint8)),
    Group("index", (dtypes.index,), proof=True),
    Group("32 bit", (dtypes.int32, dtypes.uint32), proof=True),
    Group("64 bit", (dtypes.int64, dtypes.uint64), proof=True),
    Group(
        "mixed",
        (dtypes.narrow(4, True), dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.index),
    ),
    Group("float", FLOATS),
    Group(
        "mixed with float",
        (dtypes.int8, dtypes.uint16, dtypes.index, dtypes.float16, dtypes.float32),
    ),
)


@dataclass(frozen=True)
class Effort:
    """How much is done per rule and group."""

    instances: int = 10
    attempts: int = 150
    proofs: int = 2
    assignments: int = 4096
    slow: int = 24
    steps: int = 400_000  # of z3, per proof
    pairs: int = 3  # values of 16 bits that are tried against all 65,536, per rule of two
    seed: int = 1
    loops: bool = False  # whether half of the instances have loops' indices for their variables
    lines: bool = True  # whether every line of a rule has to be reached
    vectors: int = 16  # one in so many draws is put on vectors; 0: none


QUICK: Final = Effort(
    instances=5, attempts=100, proofs=1, assignments=1024, slow=12, lines=False, vectors=0
)
LONG: Final = Effort(
    instances=200, attempts=2000, proofs=10, assignments=1 << 16, slow=64, pairs=512
)


# Files whose every line the check must reach: the algebra that rules share.
HELPERS: Final = ("quotients.py", "sums.py", "boolean.py", "compare.py", "divmod.py", "integer.py")
# Functions that make patterns, when the module is imported; classes; and what prints a fault.
_AT_IMPORT: Final = ("_not", "_negative", "_chained", "<lambda>", "Sum", "__repr__")
# How often the groups are gone through for a rule that fires in few of them.
_ROUNDS: Final = 4
# How often a rule with lines that were not reached is drawn again; and those with helpers.
_TURNS: Final = 12
_TOOL: Final = 4  # a number that sys.monitoring has reserved for nobody
_MORE: Final = 3
_MOST_INSTANCES: Final = 200
_MOST_ATTEMPTS: Final = 2000


def effort_from_environment() -> Effort:
    """The one that OPGRAFT_CHECK names (see tested.py)."""
    return at(QUICK, Effort(), LONG)


@dataclass
class Record:
    """What the check of one rule did."""

    rule: Rule
    fired: dict[str, int] = field(default_factory=dict)
    complete: int = 0
    sampled: int = 0
    assignments: int = 0
    proved: int = 0
    paired: int = 0
    undecided: list[str] = field(default_factory=list)
    unsupported: int = 0
    faults: list[str] = field(default_factory=list)
    unreached: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """Why the rule fails the check; empty if it passes."""
        if self.faults:
            return self.faults[0]
        if not self.fired:
            return "never fired"
        if self.unreached:
            return f"lines never reached: {self.unreached}"
        if self.undecided:
            return f"undecided: {self.undecided[0]}"
        return ""

    def line(self) -> str:
        fired = ", ".join(f"{k} {v}" for k, v in self.fired.items())
        return (
            f"{self.rule.name}: {self.verdict or 'ok'}; fired {fired or 'never'}; complete "
            f"{self.complete}, sampled {self.sampled}, proved {self.proved}, "
            f"pairs {self.paired}, "
            f"undecided {len(self.undecided)}, {self.seconds:.2f} s"
        )


def _is_watched(code: CodeType) -> bool:
    file = code.co_filename
    return f"{os.sep}rules{os.sep}" in file or file.endswith("canaries.py")


class Reached:
    """Which lines of the code in some files ran, recorded while it is entered.

    From Python 3.12 by `sys.monitoring`: there it costs nothing after a line's first run, and
    `sys.settrace` ten times what it did.
    """

    def __init__(self) -> None:
        self.lines: dict[str, set[int]] = {}
        self.rule = ""
        self.files: dict[str, dict[str, None]] = {}  # the rules that entered each file
        self.active = False
        self.functions: dict[str, list[CodeType]] = {}  # of a file
        if sys.version_info >= (3, 12):
            monitoring, events = sys.monitoring, sys.monitoring.events
            if monitoring.get_tool(_TOOL) is None:
                monitoring.use_tool_id(_TOOL, "opgraft's checks")
            monitoring.register_callback(_TOOL, events.PY_START, self._start)
            monitoring.register_callback(_TOOL, events.LINE, self._line)
            monitoring.set_events(_TOOL, events.PY_START)
            monitoring.restart_events()  # lines that one before this has seen, too

    def close(self) -> None:
        """Watch no longer."""
        if sys.version_info >= (3, 12) and sys.monitoring.get_tool(_TOOL) is not None:
            sys.monitoring.set_events(_TOOL, 0)
            sys.monitoring.free_tool_id(_TOOL)

    # ---- Python 3.12 and later

    def _start(self, code: CodeType, offset: int) -> Any:
        if not _is_watched(code):
            return sys.monitoring.DISABLE
        if self.active:
            sys.monitoring.set_local_events(_TOOL, code, sys.monitoring.events.LINE)
            self._entered(code).add(code.co_firstlineno)
        return None

    def _line(self, code: CodeType, line: int) -> Any:
        if not self.active:
            return None
        self.lines.setdefault(code.co_filename, set()).add(line)
        return sys.monitoring.DISABLE

    # ---- Python 3.11

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not _is_watched(code):
            return None
        seen = self._entered(code)
        seen.add(frame.f_lineno)

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            seen.add(frame.f_lineno)
            return line

        return line

    # ---- both

    def _entered(self, code: CodeType) -> set[int]:
        self.files.setdefault(code.co_filename, {})[self.rule] = None
        return self.lines.setdefault(code.co_filename, set())

    def __enter__(self) -> Reached:
        self.active = True
        if sys.version_info < (3, 12):
            self.before = sys.gettrace()
            sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        self.active = False
        if sys.version_info < (3, 12):
            sys.settrace(self.before)

    def missing(self, code: CodeType) -> list[int]:
        """The lines of a function's body that never ran."""
        lines = {number for _, _, number in code.co_lines() if number is not None}
        lines.discard(code.co_firstlineno)
        return sorted(lines - self.lines.get(code.co_filename, set()))

    def missing_in(self, file: str) -> list[int]:
        """The lines of functions of a file that never ran, but those that run at import."""
        if file not in self.functions:
            self.functions[file] = found = []
            stack = [compile(Path(file).read_text(encoding="utf-8"), file, "exec")]
            while stack:
                inner = [code for code in stack.pop().co_consts if isinstance(code, CodeType)]
                stack += inner
                found += [code for code in inner if code.co_name not in _AT_IMPORT]
        return sorted({line for code in self.functions[file] for line in self.missing(code)})


def check_rule(rule: Rule, effort: Effort, reached: Reached, shapes: Sequence[UPat] = ()) -> Record:
    """Draw, run, judge; one record. `shapes`: what to draw from besides the rule's own pattern."""
    begin = time.process_time()
    record = Record(rule)
    matcher = PatternMatcher([rule])
    groups: Sequence[Group] = GROUPS
    for turn in range(_ROUNDS * (1 + len(shapes))):
        for group in groups:
            rng = random.Random(f"{effort.seed} {rule.name} {group.name} {turn}")
            drawn = (rule.pattern, *shapes)[turn % (1 + len(shapes))]
            _check_group(record, matcher, group, effort, rng, reached, drawn)
            if record.faults:
                break
        # what fires in few groups is drawn there more often
        if turn >= len(shapes):
            groups = [group for group in GROUPS if group.name in record.fired]
        if record.faults or sum(record.fired.values()) >= 4 * effort.instances:
            break
    record.seconds = time.process_time() - begin
    return record


def _check_group(
    record: Record,
    matcher: PatternMatcher,
    group: Group,
    effort: Effort,
    rng: random.Random,
    reached: Reached,
    drawn: UPat | None = None,
) -> None:
    filler = Filler(rng, group.among)
    reached.rule = record.rule.name
    seen: set[UOp] = set()
    proofs = attempts = fruitless = 0
    while len(seen) < effort.instances and attempts < effort.attempts:
        attempts += 1
        if fruitless > 60 and not seen:
            break  # this group does not suit the rule's pattern
        try:
            before = filler.draw(record.rule.pattern if drawn is None else drawn)
        except (NoInstance, OverflowError):
            fruitless += 1
            continue
        if effort.loops and rng.random() < 0.5:
            before = looped(before, rng)
        if effort.vectors and attempts % effort.vectors == 0:
            before = widened(before)
        if before in seen:
            continue
        try:
            with reached:
                after = matcher.rewrite(before)
                if after is not None:
                    matcher.rewrite(after)  # a rule meets what it made: the lines for that run
        except RewriteError as error:
            record.faults.append(str(error))
            return
        if after is None:
            continue
        seen.add(before)
        if after is before:
            record.faults.append(f"{before!r} became itself")
            return
        found = judge(before, after, rng, effort.assignments, effort.slow)
        record.assignments += found.assignments
        if found.fault:
            record.faults.append(found.fault)
            return
        record.complete += found.complete
        record.sampled += not found.complete
        if effort.pairs and not record.paired and pairs.suits(before, after):
            fault, record.paired = pairs.compare(before, after, effort.pairs)
            if fault:
                record.faults.append(fault)
                return
        if group.proof and proofs < effort.proofs and before.dtype.count == 1:
            proofs += 1
            answer = lifted.prove(before, after, effort.steps)
            if answer == "proved":
                record.proved += 1
            elif answer == "undecided" and found.complete:
                pass  # all values of the leaves were tried: that is a proof of this instance
            elif answer == "undecided":
                record.undecided.append(f"{before!r} against {after!r}")
            elif answer == "unsupported":
                record.unsupported += 1
            else:
                record.faults.append(answer)
                return
    if seen:
        record.fired[group.name] = record.fired.get(group.name, 0) + len(seen)


def check(
    rules: Iterable[Rule],
    effort: Effort | None = None,
    reached: Reached | None = None,
    shapes: Mapping[str, Sequence[UPat]] = MappingProxyType({}),
) -> Iterator[Record]:
    """A record of each rule; those whose lines were not all reached get more draws at the end.

    `shapes`: by name of a rule, narrower patterns to draw from besides.
    """
    watch = reached or Reached()
    try:
        yield from _checked(rules, effort or effort_from_environment(), watch, shapes)
    finally:
        if reached is None:
            watch.close()


def _checked(
    rules: Iterable[Rule], effort: Effort, reached: Reached, shapes: Mapping[str, Sequence[UPat]]
) -> Iterator[Record]:
    done = [check_rule(rule, effort, reached, shapes.get(rule.name, ())) for rule in rules]
    if not effort.lines:
        yield from done
        return
    wider = _wider(effort, 8)
    for record in done:
        begin, code = time.process_time(), record.rule.function.__code__
        for turn in range(_TURNS):
            for group in GROUPS:
                # a group in which nothing fired does not suit the pattern
                if group.name in record.fired and reached.missing(code) and not record.faults:
                    rng = random.Random(f"{effort.seed} {record.rule.name} {group.name} {turn}")
                    more = (record.rule.pattern, *shapes.get(record.rule.name, ()))
                    drawn = more[turn % len(more)]
                    _check_group(
                        *(record, PatternMatcher([record.rule]), group, wider, rng, reached, drawn)
                    )
        record.unreached = reached.missing(code)
        record.seconds += time.process_time() - begin
        yield record


def _wider(effort: Effort, factor: int) -> Effort:
    """More draws, each looked at for less long: for lines that were not reached."""
    return replace(
        effort,
        instances=min(effort.instances * 4, _MOST_INSTANCES),
        attempts=min(effort.attempts * factor, _MOST_ATTEMPTS),
        assignments=effort.assignments // 8,
        proofs=0,
    )


def unreached(rules: Sequence[Rule], reached: Reached, effort: Effort) -> list[str]:
    """Lines of HELPERS that no instance reached, after more draws of the rules that go there."""
    by_name = {rule.name: rule for rule in rules}
    told: list[str] = []
    for file in sorted(reached.files):
        if Path(file).name not in HELPERS:
            continue
        for turn in range(_MORE):
            if not reached.missing_in(file):
                break
            for name in reached.files[file]:
                if not reached.missing_in(file):
                    break
                rule = by_name[name]
                record, wider = Record(rule), _wider(effort, 4)
                for group in GROUPS[:4]:
                    rng = random.Random(f"{effort.seed} more {name} {group.name} {turn}")
                    _check_group(record, PatternMatcher([rule]), group, wider, rng, reached)
                told += [f"{name}: {fault}" for fault in record.faults]
        told += [f"{Path(file).name}:{line} never reached" for line in reached.missing_in(file)]
    return told


def summary(records: Sequence[Record]) -> str:
    """One line on all of them."""
    return (
        f"{len(records)} rules, {sum(sum(r.fired.values()) for r in records)} instances "
        f"({sum(r.complete for r in records)} on all values, {sum(r.proved for r in records)} "
        f"proved by z3), {sum(r.assignments for r in records)} assignments, "
        f"{sum(bool(r.paired) for r in records)} rules on {sum(r.paired for r in records)} pairs "
        f"of 16 bits, "
        f"{sum(bool(r.verdict) for r in records)} refused, "
        f"{sum(r.seconds for r in records):.1f} s"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rule", action="append", help="check these alone")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", type=int, help="16-bit values against all; 65536: all pairs")
    given = parser.parse_args(arguments)
    effort = LONG if given.long else Effort(seed=given.seed)
    if given.pairs is not None:
        effort = replace(effort, pairs=given.pairs)
    reached = Reached()
    records: list[Record] = []
    alternatives = [rule for family in FAMILIES.values() for rule in family.rules]
    for rules, kind in ((sym.rules, effort), (alternatives, replace(effort, loops=True))):
        chosen = [rule for rule in rules if not given.rule or rule.name in given.rule]
        for record in check(chosen, kind, reached, SHAPES):
            records.append(record)
            print(record.line(), flush=True)
    left = [] if given.rule else unreached(sym.rules, reached, effort)
    print("\n".join([*left, summary(records)]))
    return 1 if left or any(record.verdict for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
