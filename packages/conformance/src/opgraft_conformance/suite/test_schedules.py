"""Kernels under every action of the scheduler, and under random schedules: the meaning stays.

What INTERP runs is the kernel without a schedule, one iteration after another.
"""

from __future__ import annotations

import pytest

from opgraft.api import Device, Target
from opgraft_conformance import schedules
from opgraft_conformance.execution import agree
from opgraft_conformance.operations import require
from opgraft_conformance.rows import not_claimed
from opgraft_conformance.schedules import Trial

pytestmark = pytest.mark.must

TABLE = [
    pytest.param(trial, id=f"{kind.__name__}-{trial.id}-{trial.dtype}")
    for kind, trials in schedules.TRIALS.items()
    for trial in trials
]
BLOCK = 4


def run(device: Device, reference: Device, target: Target, trial: Trial, **facts: object) -> None:
    require(target, trial.dtype)
    lacking = schedules.lacks(trial.actions, target)
    if lacking:
        not_claimed(lacking)
    shown = ", ".join(map(str, trial.actions)) or "none"
    agree(
        device,
        reference,
        trial.sink(),
        meaning=trial.meaning(),
        facts={"kernel": f"{trial.kernel} of {trial.dtype}", "schedule": shown, **facts},
        hint="the same kernel without a schedule is a row of memory/shapes or memory/moves",
    )


@pytest.mark.parametrize("trial", TABLE)
def test_actions(device: Device, reference: Device, capabilities: Target, trial: Trial) -> None:
    """A row of the table of schedules.py."""
    run(device, reference, capabilities, trial)


@pytest.mark.parametrize("block", range(6))
def test_random_schedules(
    device: Device, reference: Device, capabilities: Target, seed: int, effort: str, block: int
) -> None:
    """Random schedules of the kit's kernels; those that the core itself gets wrong are left out."""
    count = BLOCK * (10 if effort == "long" else 1)
    for number in range(block * count, (block + 1) * count):
        own = seed * 100_000 + number
        trial = schedules.random_trial(capabilities, own)
        if not schedules.is_sound(reference, trial, capabilities):
            continue
        run(device, reference, capabilities, trial, seed=f"schedules.random_trial(target, {own})")
