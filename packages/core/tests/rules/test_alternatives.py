"""Alternatives: each is checked by machine like any rule, and greedy rewriting has none of them."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from checking import reference
from checking.check import Effort, check, effort_from_environment, summary
from checking.instances import Filler, NoInstance, looped
from checking.judge import free_leaves
from checking.shapes import FAMILIES, SHAPES
from checking.wrong_alternatives import WRONG_ALTERNATIVES
from opgraft import Ops, PatternMatcher, UOp, UPat, dtypes
from opgraft.ir.evaluate import evaluate
from opgraft.ir.rule import Rule
from opgraft.rules import exchange, regroup
from opgraft.rules.alternatives import alternatives_at
from opgraft.rules.sets import equalities_at
from tested import sampled


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


def test_a_quotient_that_another_took_along_is_not_replaced_again() -> None:
    """The e-graph's values at random points found it, in a rolled picture in groups of threads."""
    g, t = UOp.range(24, 0), UOp.range(128, 1)
    row = (g * 8 + t) // 30
    before = g * 128 + (g * 4 + row + 37) // 100 * -3000 + row * 30
    for rule in exchange.RULES.rules:
        after = PatternMatcher([rule]).rewrite(before)
        for place in ({g: 0, t: 0}, {g: 7, t: 40}, {g: 15, t: 99}, {g: 23, t: 127}):
            assert after is None or evaluate(after, place) == evaluate(before, place), rule


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


def test_every_alternative_is_of_a_family_that_is_checked() -> None:
    families = (*FAMILIES.values(), regroup.REASSOC, regroup.UNSAFE)
    checked = {rule for family in families for rule in family.rules}
    for stage in ("index", "scalar"):
        assert set(alternatives_at(stage, "unsafe").rules) <= checked  # type: ignore[arg-type]


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
