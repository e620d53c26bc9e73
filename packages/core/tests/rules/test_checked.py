"""Every built-in equality is checked by machine; wrong ones are caught; random graphs agree.

The quick effort runs here; OPGRAFT_CHECK=full or long runs those (see checking/check.py).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from checking import pairs
from checking.canaries import WRONG
from checking.check import (
    LONG,
    Effort,
    Reached,
    check,
    effort_from_environment,
    summary,
    unreached,
)
from checking.fuzz import fuzz, fuzz_devices
from opgraft.catalog import Device
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError
from opgraft.ir import UOp
from opgraft.rules.sets import sym, symbolic, symbolic_simple
from tested import DEVICES, sampled

FAMILIES = sorted({Path(rule.file).stem for rule in sym.rules})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rule_has_a_record_without_a_fault(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = sampled([rule for rule in sym.rules if Path(rule.file).stem == family], 3)
    records = list(check(rules, effort_from_environment()))
    with capsys.disabled():
        print(f"\n{family}: {summary(records)}")
    refused = [record.line() for record in records if record.verdict]
    assert not refused, "\n".join(refused)
    assert [r.rule for r in records] == rules


if effort_from_environment() is LONG:

    def test_no_line_of_the_algebra_that_rules_share_stays_untried() -> None:
        reached = Reached()
        list(check(sym.rules, LONG, reached))
        assert not unreached(sym.rules, reached, LONG)


def test_names_of_rules_are_unique() -> None:
    names = [rule.name for rule in sym.rules]
    assert len(set(names)) == len(names)


def test_each_set_holds_the_one_before() -> None:
    assert set(symbolic_simple.rules) < set(symbolic.rules) < set(sym.rules)


def test_every_wrong_rule_is_caught() -> None:
    passed = [r.rule.name for r in check(WRONG.rules, Effort()) if not r.verdict]
    assert not passed
    assert len(WRONG.rules) >= 25


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
