"""Random schedules keep what kernels mean; what is not legal is refused with a reason."""

from __future__ import annotations

import pytest

from kernel_forms.random_schedules import AnySchedule, compare
from opgraft import using
from opgraft.opt.actions import Action
from tested import at, sampled


@pytest.mark.thorough
def test_most_kinds_of_actions_are_legal_somewhere() -> None:
    kinds: set[type[Action]] = set()
    with using(OPTIMIZER="greedy"):
        for seed in range(60):
            given = AnySchedule(seed)
            given.draw()
            kinds.update(map(type, given.steps))
    assert len(kinds) >= 15


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", sampled(range(9), 3))
def test_a_random_schedule_keeps_the_meaning(seed: int) -> None:
    assert compare(seed) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(1000, 1000 + at(60, 60, 2000), 20))
def test_so_do_many(first: int) -> None:
    assert [told for seed in range(first, first + 20) if (told := compare(seed))] == []
