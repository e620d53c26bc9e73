"""The fuzzer: random expressions, evaluated as they are and after each set of rules.

`python -m checking.fuzz --seconds 60 [--seed N] [--devices INTERP,CPU]`. A failure is shrunk,
keeping the rule that fails, and told with its seed. With devices, half of the time goes to
kernels made of such expressions (devices.py).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from opgraft.catalog import Device
from opgraft.dtype import DType, dtypes
from opgraft.errors import RewriteError
from opgraft.ir import EqualitySet, PatternMatcher, UOp, graph_rewrite
from opgraft.ir.trace import Step, tracing
from opgraft.rules.sets import sym, symbolic, symbolic_simple

from . import devices
from .generator import Pool
from .instances import FLOATS, Filler, NoInstance
from .judge import judge

_SETS: Final = (("symbolic_simple", symbolic_simple), ("symbolic", symbolic), ("sym", sym))

_INTEGERS: Final[tuple[tuple[DType, ...], ...]] = (
    (dtypes.index,),
    (dtypes.narrow(4, True), dtypes.narrow(4, False)),
    (dtypes.int8, dtypes.uint8),
    (dtypes.int8, dtypes.index),
    (dtypes.int32, dtypes.uint32),
    (dtypes.int64, dtypes.uint64),
    (dtypes.int32, dtypes.index),
)
_MIXED: Final[tuple[tuple[DType, ...], ...]] = (
    (dtypes.float16, dtypes.int8),
    (dtypes.float32, dtypes.int16, dtypes.uint8),
    FLOATS,
)


# Expressions of one kernel on a device.
_BATCH: Final = 16


@dataclass(frozen=True)
class Failure:
    """An expression that a set of rules changes, as small as it could be made."""

    expression: UOp
    result: UOp | None
    rules: str
    rule: str
    fault: str
    number: int

    def __str__(self) -> str:
        return (
            f"expression {self.number}, {self.rules}, rule {self.rule}: {self.fault}\n"
            f"  {self.expression!r}\n  became {self.result!r}"
        )


@dataclass
class Tally:
    """What was run."""

    expressions: int = 0
    comparisons: int = 0
    changed: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.expressions} expressions, {self.changed} changed by rules, "
            f"{self.comparisons} comparisons, {len(self.failures)} failures, "
            f"{self.seconds:.1f} s"
        )


def expressions(seed: int, seeded: float = 0.3) -> Iterator[UOp]:
    """Random expressions without end; a part of them grown from the patterns of rules."""
    rng = random.Random(seed)
    rules = sym.rules
    while True:
        among = rng.choice(_INTEGERS if rng.random() < 0.75 else _MIXED)
        if rng.random() < seeded:
            filler = Filler(rng, among, depth=2)
            try:
                made = filler.draw(rng.choice(rules).pattern)
            except (NoInstance, OverflowError):
                continue
            if made.dtype.kind == "void":
                continue
        else:
            pool = Pool(rng, among, rng.choice((1, 2, 3)))
            dtype = rng.choice((*among, dtypes.bool))
            made = pool.expression(dtype, rng.choice((2, 3, 3, 4, 5)))
        yield made


def fuzz(
    seed: int,
    seconds: float | None = None,
    count: int | None = None,
    sets: Sequence[tuple[str, EqualitySet]] = _SETS,
    tell: Callable[[str], None] | None = None,
    stop_at: int = 10,
) -> Tally:
    """Run for a time or a number of expressions; the tally."""
    tally, begin = Tally(), time.perf_counter()
    rng = random.Random(seed + 1)
    for number, made in enumerate(expressions(seed)):
        now = time.perf_counter() - begin
        if (count is not None and number >= count) or (seconds is not None and now >= seconds):
            break
        tally.expressions += 1
        for name, rules in sets:
            fault, result, changed, compared = _try(made, rules, rng)
            tally.changed += changed
            tally.comparisons += compared
            if fault:
                failure = shrink(Failure(made, result, name, "?", fault, number), rules)
                tally.failures.append(failure)
                if tell is not None:
                    tell(str(failure))
                break
        if len(tally.failures) >= stop_at:
            break
    tally.seconds = time.perf_counter() - begin
    return tally


def _try(made: UOp, rules: PatternMatcher, rng: random.Random) -> tuple[str, UOp | None, bool, int]:
    """(fault, result, changed, comparisons) of one expression under one set of rules."""
    try:
        result = graph_rewrite(made, rules)
    except (RewriteError, OverflowError, ArithmeticError, RecursionError) as error:
        return f"{type(error).__name__}: {error}", None, True, 0
    found = judge(made, result, rng, 256, 8)
    return found.fault, result, result is not made, found.assignments


def _steps(made: UOp, rules: PatternMatcher) -> list[Step]:
    """Each single rewrite on the way."""
    with contextlib.suppress(RewriteError), tracing() as trace:
        graph_rewrite(made, rules)
    return trace.steps


def shrink(failure: Failure, rules: PatternMatcher, rounds: int = 200) -> Failure:
    """The first single rewrite that fails, made smaller while the same rule fails."""
    rng = random.Random(failure.number)
    steps = (
        (step.rule, step.before, step.after, judge(step.before, step.after, rng, 4096, 200).fault)
        for step in _steps(failure.expression, rules)
    )
    found = next((step for step in steps if step[3]), None)
    if found is None:
        return failure
    rule, before, after, fault = found
    name, alone = rule.name, PatternMatcher([rule])
    for _ in range(rounds):
        for smaller in _smaller(before):
            try:
                made = alone.rewrite(smaller)
            except RewriteError:
                continue
            if made is None:
                continue
            worse = judge(smaller, made, rng, 4096, 200).fault
            if worse:
                before, after, fault = smaller, made, worse
                break
        else:
            break
    return Failure(before, after, failure.rules, name, fault, failure.number)


def _smaller(x: UOp) -> Iterator[UOp]:
    """Expressions with one node of x replaced by a source of it, or by a constant."""
    for n in reversed(x.toposort()):
        if n is x or not n.src:
            continue
        for by in (*n.src, *(n.const_like(v) for v in (0, 1) if n.dtype.kind != "void")):
            if by.dtype is n.dtype and by is not n:
                made = x.substitute({n: by})
                if made is not x:
                    yield made


def fuzz_devices(
    seed: int,
    names: Sequence[str],
    seconds: float | None = None,
    count: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> Tally:
    """Run expressions on devices, for a time or a number of expressions; the tally."""
    opened = [Device[name] for name in names]
    tally, begin, rng = Tally(), time.perf_counter(), random.Random(seed)
    suited = (e for e in expressions(seed) if devices.suits(e))
    while (count is None or tally.expressions < count) and (
        seconds is None or time.perf_counter() - begin < seconds
    ):
        batch = list(itertools.islice(suited, _BATCH))
        tally.expressions += len(batch)
        tally.comparisons += len(batch) * devices.ROWS * len(opened)
        for expression, fault in devices.compare(batch, opened, rng):
            failure = Failure(expression, None, ", ".join(names), "-", fault, tally.expressions)
            tally.failures.append(failure)
            if tell is not None:
                tell(str(failure))
    tally.seconds = time.perf_counter() - begin
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--devices", default="", help="names, separated by commas")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    names = [name for name in given.devices.split(",") if name]
    seconds = given.seconds / 2 if names else given.seconds
    tallies = {"rules": fuzz(seed, seconds=seconds, tell=_tell)}
    print(f"rules: {tallies['rules']}", flush=True)
    if names:
        tallies["devices"] = fuzz_devices(seed, names, seconds=seconds, tell=_tell)
        print(f"{given.devices}: {tallies['devices']}")
    return 1 if any(tally.failures for tally in tallies.values()) else 0


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
