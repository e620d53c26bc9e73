"""Every built-in equality is checked by machine; wrong ones are caught; random graphs agree.

The quick effort runs here; OPGRAFT_CHECK=full or long runs those (see checking/check.py).
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from checking import pairs, reference, vectors
from checking.canaries import WRONG
from checking.check import (
    LONG,
    Effort,
    Reached,
    Record,
    check,
    effort_from_environment,
    summary,
    unreached,
)
from checking.fuzz import expressions, fuzz, fuzz_devices
from checking.generator import assignments
from checking.judge import free_leaves, judge
from checking.vectors import held
from opgraft.catalog import Device
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError
from opgraft.ir import EqualitySet, Ops, UOp, UPat
from opgraft.ir.pattern import ints
from opgraft.ir.uop import exact_key
from opgraft.rules.sets import sym, symbolic, symbolic_simple
from tested import DEVICES, at, sampled

FAMILIES = sorted({Path(rule.file).stem for rule in sym.rules})


REACHED = Reached()


@cache
def records_of(family: str) -> list[Record]:
    rules = sampled([rule for rule in sym.rules if Path(rule.file).stem == family], 3)
    return list(check(rules, effort_from_environment(), REACHED))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rule_has_a_record_without_a_fault(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    records = records_of(family)
    with capsys.disabled():
        print(f"\n{family}: {summary(records)}")
    refused = [record.line() for record in records if record.verdict]
    assert not refused, "\n".join(refused)
    assert records


if effort_from_environment() is LONG:

    def test_no_line_of_the_algebra_that_rules_share_stays_untried() -> None:
        for family in FAMILIES:
            records_of(family)
        assert not unreached(sym.rules, REACHED, LONG)


def test_names_of_rules_are_unique() -> None:
    names = [rule.name for rule in sym.rules]
    assert len(set(names)) == len(names)


def test_each_set_holds_the_one_before() -> None:
    assert set(symbolic_simple.rules) < set(symbolic.rules) < set(sym.rules)


def test_every_wrong_rule_is_caught() -> None:
    passed = [r.rule.name for r in check(WRONG.rules, Effort()) if not r.verdict]
    assert not passed
    assert len(WRONG.rules) >= 25


def test_a_rule_that_is_wrong_on_vectors_alone_is_caught() -> None:
    zero = (UPat.var("x", ints) * 0, lambda x: UOp.const(x.dtype.scalar, 0), "scalar_zero")
    (record,) = check(EqualitySet([zero]).rules, Effort(instances=20))
    assert "int4x2 became int4" in record.verdict or "uint4x2 became uint4" in record.verdict


def test_arrays_of_values_are_what_the_definition_gives_one_by_one() -> None:
    rng, seen = random.Random(3), set()
    for expression in itertools.islice(expressions(7, 0.4), at(100, 2000)):
        leaves = free_leaves(expression)
        if not vectors.suits(expression) or any(n.op is Ops.RANGE for n in leaves):
            continue
        drawn = assignments(leaves, rng, 8)
        rows = [tuple(n.dtype.const(v) for n, v in zip(leaves, row)) for row in drawn]
        env = {n: np.array([row[i] for row in rows], held(n.dtype)) for i, n in enumerate(leaves)}
        found = vectors.evaluate((expression,), env)[expression]
        seen.add(expression.dtype)
        for row, have in zip(rows, np.broadcast_to(found, (len(rows),)).tolist()):
            want = reference.evaluate(expression, dict(zip(leaves, row)))[expression]
            assert exact_key(have) == exact_key(want), (expression, row)
    assert len(seen) > 10


def test_integers_at_the_ends_of_64_bits_wrap_in_arrays() -> None:
    x, y = (UOp.variable(n, 2**64 - 3, 2**64 - 1, dtypes.uint64) for n in "xy")
    judged = judge(x * y + x, x * (y + 1), random.Random(1), 64, 0)
    assert (judged.fault, judged.complete, judged.assignments) == ("", True, 9)
    assert judge(x + y, x.maximum(y), random.Random(1), 64, 0).fault


def test_two_floats_of_16_bits_meet_everything_that_there_is() -> None:
    x, y = (UOp.variable(n, -math.inf, math.inf, dtypes.float16) for n in "xy")
    fault, tried = pairs.compare(x.maximum(y), y.maximum(x), 3)
    assert (fault, tried) == ("", 2 * 3 * 65_536)
    # they differ in nan and in the sign of zero alone
    fault, _ = pairs.compare(x.maximum(y), (x < y).where(y, x), 3)
    assert "x=" in fault
    # of one value in 65,536 one is told from the next: 1 + 2**-10
    step = UOp.const(dtypes.float16, 1 + 2**-10)
    fault, _ = pairs.compare(x.eq(step) & y.eq(step), x.ne(x) & y.ne(y), 512)
    assert fault
    values = pairs.edges(dtypes.float16, 512)
    assert len(values) == 512
    assert {0.0, math.inf, -math.inf, 65504.0, 2**-24, 1 + 2**-10} <= set(values.tolist())
    assert np.isnan(values).any()


def test_random_expressions_keep_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    tally = fuzz(seed=20, count=400)
    with capsys.disabled():
        print(f"\nfuzz: {tally}")
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert tally.changed > tally.expressions


@pytest.mark.parametrize("device", DEVICES)
def test_devices_agree(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not opens(device):
        pytest.skip(f"{device} does not open here: see `opgraft devices`")
    tally = fuzz_devices(20, [device], count=64)
    with capsys.disabled():
        print(f"\nfuzz on {device}: {tally}")
    assert not tally.failures, "\n".join(map(str, tally.failures))


def opens(device: str) -> bool:
    try:
        return bool(Device[device])
    except DeviceError:
        return False


def test_the_fuzzer_names_the_rule_that_fails() -> None:
    tally = fuzz(seed=3, count=4000, sets=[("wrong", WRONG)], stop_at=3)
    wrong = {rule.name for rule in WRONG.rules}
    assert tally.failures
    for failure in tally.failures:
        # a circle names its rules in the error
        assert failure.rule in wrong or "run in a circle" in failure.fault
