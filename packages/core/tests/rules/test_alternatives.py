"""Alternatives: each is checked by machine like any rule, and greedy rewriting has none of them."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from checking import reference
from checking.check import Effort, check, effort_from_environment, summary
from checking.instances import Filler, NoInstance, looped
from checking.judge import free_leaves
from checking.wrong_alternatives import WRONG_ALTERNATIVES
from opgraft import EqualitySet, Ops, PatternMatcher, UOp, UPat, dtypes
from opgraft.ir.pattern import bools, index, ints
from opgraft.ir.rule import Rule
from opgraft.rules import choice, exchange, regroup
from opgraft.rules.alternatives import alternatives_at
from opgraft.rules.sets import equalities_at
from tested import sampled

FAMILIES: Mapping[str, EqualitySet] = {
    "exchange": exchange.RULES,
    "choice": choice.RULES,
    "regroup": regroup.STRICT,
}

# Narrower patterns to draw from, where a rule's own is so wide that it would hardly ever fire.
_a, _b, _c = UPat.var("a", index), UPat.var("b"), UPat.cvar("c")
_rest = UPat.var("rest", index) % UPat.cvar("c")
_quotient = UPat.var("rest") // UPat.cvar("c")
_flipped = _a * UPat.const(-1) + UPat.cvar("d")


def _bounded(n: UPat) -> UPat:
    """n between two constants, as a gate."""
    return UPat(
        Ops.AND,
        bools,
        src=(
            UPat(Ops.CMPLT, src=(n, UPat.cvar())),
            UPat(Ops.CMPLT, src=(UPat.cvar(), n)),
        ),
    )


def _gated(op: Ops) -> UPat:
    known = UPat(Ops.MOD, index, src=(_a, UPat.cvar("d")), name="known")
    index_ = UPat(Ops.MOD, index, src=(_a + UPat.cvar(), UPat.cvar("d")))
    if op is Ops.LOAD:
        return UPat(op, src=(UPat(), index_, _bounded(known), UPat()), name="x")
    return UPat(op, src=(UPat(), index_, UPat(), _bounded(known)), name="x")


def _chain(op: Ops, dtype: object) -> UPat:
    inner = UPat(op, dtype, src=(UPat(), UPat()))  # type: ignore[arg-type]
    return UPat(op, dtype, src=(inner, UPat()), name="x")  # type: ignore[arg-type]


SHAPES: Mapping[str, Sequence[UPat]] = {
    "sum_without_modulos": [_rest * UPat.cvar() + _b],
    "sum_without_any_modulo": [_rest + _rest * UPat.cvar() + _b],
    "sum_by_known_quotients": [_quotient * UPat.cvar() + _rest * UPat.cvar()],
    "sum_by_modulos": [_quotient * UPat.cvar("c") + _b],
    "sum_by_comparison": [_rest * UPat.cvar() + _b, _quotient * UPat.cvar() + _b],
    "division_flipped": [UPat(Ops.IDIV, index, src=(_flipped, _c), name="x")],
    "modulo_flipped": [UPat(Ops.MOD, index, src=(_flipped, _c), name="x")],
    "congruent_under_gate": [_gated(Ops.LOAD)],
    "congruent_store_under_gate": [_gated(Ops.STORE)],
    "outer_integers_first": [_chain(op, ints) for op in (Ops.ADD, Ops.MUL, Ops.XOR)],
    "outer_clauses_first": [_chain(Ops.AND, bools)],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_alternative_has_a_record_without_a_fault(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    effort = replace(effort_from_environment(), loops=True)
    rules = sampled(FAMILIES[family].rules, 3)
    records = list(check(rules, effort, shapes=SHAPES))
    with capsys.disabled():
        print(f"\n{family}: {summary(records)}")
    refused = [record.line() for record in records if record.verdict]
    assert not refused, "\n".join(refused)
    assert [r.rule for r in records] == rules


def test_every_wrong_alternative_is_caught() -> None:
    passed = [r.rule.name for r in check(WRONG_ALTERNATIVES.rules, Effort()) if not r.verdict]
    assert not passed
    assert len(WRONG_ALTERNATIVES.rules) >= 12


class Looped(Filler):
    """Draws instances of plain numbers whose variables depend on one of two loops."""

    def draw(self, pattern: UPat) -> UOp:
        made = super().draw(pattern)
        for n in made.toposort():
            if n.op is Ops.CONST and not 0.25 <= abs(n.arg) <= 4:
                raise NoInstance
            if n.op in (Ops.RANGE, Ops.CAST, Ops.LOG2) or n.dtype is not dtypes.float64:
                raise NoInstance
        places = [n for n in made.toposort() if n.op is Ops.VAR]
        loops = [UOp.range(5, 0), UOp.range(7, 1)]
        return made.substitute(
            {n: loops[k % 2].cast(n.dtype) * 0.25 + n for k, n in enumerate(places)}
        )


@pytest.mark.parametrize(
    "rule", [*regroup.REASSOC.rules, *regroup.UNSAFE.rules], ids=lambda r: r.name
)
def test_alternatives_of_float_levels_are_right_but_for_rounding(rule: Rule) -> None:
    rng, matcher = random.Random(rule.name), PatternMatcher([rule])
    filler = Looped(rng, (dtypes.float64,), depth=0)
    fired = 0
    for _ in range(3_000):
        try:
            before = filler.draw(rule.pattern)
        except NoInstance:
            continue
        after = matcher.rewrite(before)
        if after is None:
            continue
        fired += 1
        assert after.dtype is before.dtype
        for _ in range(5):
            env = {
                n: rng.randrange(5) if n.op is Ops.RANGE else rng.uniform(0.5, 2.0)
                for n in free_leaves(before, after)
            }
            a, b = (reference.evaluate(x, env)[x] for x in (before, after))
            assert math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9), (before, after, env)
        if fired == 10:
            break
    assert fired


def test_greedy_rewriting_has_no_alternatives() -> None:
    for level in ("strict", "reassoc", "unsafe"):
        greedy = {rule.name for rule in equalities_at(level).rules}  # type: ignore[arg-type]
        for stage in ("index", "scalar"):
            others = alternatives_at(stage, level).rules  # type: ignore[arg-type]
            assert len({rule.name for rule in others}) == len(others) > 10
            assert not greedy & {rule.name for rule in others}


def test_a_float_level_adds_alternatives_to_the_one_before() -> None:
    strict, reassoc, unsafe = (
        set(alternatives_at("scalar", level).rules)  # type: ignore[arg-type]
        for level in ("strict", "reassoc", "unsafe")
    )
    assert strict < reassoc < unsafe
    assert not any(rule in strict for rule in regroup.REASSOC.rules)
    assert not alternatives_at("tensor", "unsafe").rules


def test_looped_instances_keep_dtypes_and_bounds() -> None:
    x = UOp.variable("x", 3, 6, dtypes.int8)
    made = [looped(x + 1, random.Random(seed)) for seed in range(8)]
    assert any(n.ranges for n in made)
    for n in made:
        assert n.dtype is dtypes.int8
        assert 4 <= n.vmin <= n.vmax <= 7
