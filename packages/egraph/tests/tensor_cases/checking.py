"""The check of a rule: both sides of it, on random terms, have the same values."""

from __future__ import annotations

from random import Random

from opgraft.api import EqualitySet, UOp
from opgraft_egraph.tensors.forms import extents
from tensor_cases.terms import Maker
from tensor_cases.values import Values, same


def check(
    rules: EqualitySet, rounds: int, powers: bool, seed: int = 0
) -> tuple[dict[str, int], list[str]]:
    """How often each rule fired, and what was wrong, on so many random terms."""
    rng = Random(seed)
    fired = {rule.name: 0 for rule in rules.rules}
    wrong: list[str] = []
    for _ in range(rounds):
        maker = Maker(rng, powers)
        term = maker.term(maker.size(), rng.choice((2, 2, 3)))
        values = Values(maker.leaves(), exact=not powers)
        for n in term.toposort():
            for rule in rules.rules:
                for captures in rule.pattern.matches(n):
                    _check_one(rule, n, captures, values, fired, wrong)
    return fired, wrong


def _check_one(
    rule, n: UOp, captures, values: Values, fired: dict[str, int], wrong: list[str]
) -> None:
    try:
        made = rule.apply(captures, None)
    except Exception as error:  # a rule that raises is one that does not hold
        wrong.append(f"{rule}: {type(error).__name__}: {error}")
        return
    if made is None or made is n:
        return
    fired[rule.name] += 1
    try:
        equal = same(values.of(n), values.of(made), values.exact)
    except ZeroDivisionError:
        return
    except (AssertionError, ValueError) as error:
        # NumPy finds that it is no term at all
        wrong.append(f"{rule}: {error}")
        return
    if not equal or made.dtype is not n.dtype or extents(made) != extents(n):
        wrong.append(f"{rule} on {n.op} {n.arg} of {[(s.op, s.arg) for s in n.src]}")
