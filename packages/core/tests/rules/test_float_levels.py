"""The rules of the float levels: real-number laws, and nothing else is claimed of them."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from checking import reference
from checking.instances import Filler, NoInstance
from checking.judge import free_leaves
from opgraft import PatternMatcher, UOp, dtypes
from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.rule import Rule
from opgraft.rules import reassoc, unsafe
from opgraft.rules.sets import equalities_at, sym
from opgraft.rules.simplify import simplify
from opgraft.settings import using


class Leaves(Filler):
    """Draws instances whose unnamed parts are variables and plain constants."""

    def draw(self, pattern: object) -> UOp:
        made = super().draw(pattern)  # type: ignore[arg-type]
        for n in made.toposort():
            if n.op is Ops.CONST and n.dtype.is_float and not 0.25 <= abs(n.arg) <= 4:
                raise NoInstance
            if n.dtype.is_float and n.dtype is not self.among[0]:
                raise NoInstance
        return made


def instances(rule: Rule, dtype: DType) -> list[tuple[UOp, UOp]]:
    rng, matcher = random.Random(rule.name), PatternMatcher([rule])
    found: list[tuple[UOp, UOp]] = []
    filler = Leaves(rng, (dtype,), depth=0)
    for _ in range(20_000):
        if len(found) == 10:
            break
        try:
            before = filler.draw(rule.pattern)
        except NoInstance:
            continue
        after = matcher.rewrite(before)
        if after is not None:
            found.append((before, after))
    return found


@pytest.mark.parametrize("rule", reassoc.RULES.rules, ids=lambda r: r.name)
def test_reassoc_is_right_but_for_rounding(rule: Rule) -> None:
    # x + 0 and x * 0 are of the other level, so no constant of the instances is 0
    found = [pair for pair in instances(rule, dtypes.float64) if plain(pair[0])]
    assert found
    rng = random.Random(1)
    for before, after in found:
        assert after.dtype is before.dtype
        for _ in range(20):
            env = {n: value(n, rng) for n in free_leaves(before, after)}
            a, b = (reference.evaluate(x, env)[x] for x in (before, after))
            assert math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9), (before, after, env)


UNSAFE = [
    # x * 0, x + 0: their constants are 0
    r
    for r in unsafe.RULES.rules
    if r.name not in ("float_add_zero", "float_multiply_by_zero")
]


@pytest.mark.parametrize("rule", UNSAFE, ids=lambda r: r.name)
def test_unsafe_is_right_for_plain_positive_numbers(rule: Rule) -> None:
    rng = random.Random(2)
    found = [pair for pair in instances(rule, dtypes.float64) if plain(pair[0])]
    tried = 0
    for before, after in found:
        for _ in range(20):
            env = {n: value(n, rng) for n in free_leaves(before, after)}
            done = reference.evaluate(before, env)
            if any(done[n.src[0]] <= 0 for n in done if n.op in (Ops.SQRT, Ops.LOG2)):
                continue
            tried += 1
            other = reference.evaluate(after, env)[after]
            assert math.isclose(done[before], other, rel_tol=1e-9, abs_tol=1e-9), (before, after)
    assert tried


def plain(x: UOp) -> bool:
    """Whether positive leaves keep every part of x a plain positive number."""
    inner = [n for n in x.toposort() if n.dtype.is_float]
    return all(n.op in (Ops.VAR, Ops.CONST) or n.op in ARITHMETIC for n in inner)


ARITHMETIC = frozenset(
    {Ops.ADD, Ops.MUL, Ops.FDIV, Ops.SQRT, Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.REDUCE, Ops.MAX}
)


def value(n: UOp, rng: random.Random) -> float | int:
    if n.dtype.is_float:
        return rng.uniform(0.5, 2.0)
    return rng.randint(int(n.vmin), int(n.vmax))


def test_no_rule_of_a_level_is_in_the_strict_sets() -> None:
    strict = set(sym.rules)
    assert not strict & set(reassoc.RULES.rules)
    assert not strict & set(unsafe.RULES.rules)
    assert set(equalities_at("reassoc").rules) == strict | set(reassoc.RULES.rules)
    assert set(equalities_at("unsafe").rules) > set(equalities_at("reassoc").rules)


def test_every_rule_of_a_level_says_what_it_gives_up() -> None:
    for module in (reassoc, unsafe):
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert "Gives up" in text
    rules = Path(str(unsafe.__file__)).read_text(encoding="utf-8").split("RULES: Final")[1]
    assert rules.count("Gives up") >= len(unsafe.RULES.rules) - 1


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_the_natural_logarithm_undoes_the_exponential(dtype: DType) -> None:
    """The tensor library's log is log2(x) * ln(2); the constants of both steps make 1."""
    x = UOp.variable("x", -math.inf, math.inf, dtype)
    for both in (x.exp().log2() * math.log(2), (x.log2() * math.log(2)).exp()):
        with using(FLOAT="unsafe"):
            assert simplify(both) is x
        with using(FLOAT="reassoc"):
            assert simplify(both) is both
