"""A known expression finds its plan by its structure, and no other's."""

from __future__ import annotations

from typing import Any

import pytest

from opgraft import settings, using
from opgraft_tensor import Tensor, extents, plan


def memory(*values: float) -> Tensor:
    return Tensor(list(values), device="CPU").realize()


@pytest.fixture
def canonical_forms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each graph whose canonical form is made."""
    made: list[int] = []
    monkeypatch.setattr(extents, "_in_use", [])  # other tests have variable sizes
    original = plan.numbered
    monkeypatch.setattr(plan, "numbered", lambda *given: (made.append(1), original(*given))[1])
    return made


def test_a_known_expression_needs_no_canonical_form(canonical_forms: list[int]) -> None:
    x = memory(1, 2, 3)
    (x * 3 + 1).realize()
    known = len(canonical_forms)
    for n in range(3):
        y = memory(n, 1, 2)
        assert (y * 3 + 1).tolist() == [3 * n + 1, 4, 7]
    assert len(canonical_forms) == known


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: (x * 2 + x * y, [4, 10]),
        lambda x, y: (y * 2 + x * y, [6, 12]),
        lambda x, y: (x * 3 + x * x, [4, 10]),
        lambda x, y: (x * 2 - x * x, [1, 0]),
        lambda x, y: ((x * 2 + x * x).cast("int32"), [3, 8]),
        lambda x, y: ((x * 2 + x * x).flip(0), [8, 3]),
    ],
    ids=["operand", "first", "number", "operation", "dtype", "view"],
)
def test_another_structure_is_another_plan(other: Any) -> None:
    x, y = memory(1, 2), memory(2, 3)
    for _ in range(3):
        assert (x * 2 + x * x).tolist() == [3, 8]
        found, wanted = other(x, y)
        assert found.tolist() == wanted


def test_which_outputs_are_asked_for_is_part_of_it() -> None:
    x = memory(1, 2)
    for _ in range(2):
        one, other = x + 1, (x + 1) * 2
        other.realize()
        assert other.tolist() == [4, 6]
        one, other = x + 1, (x + 1) * 2
        one.realize(other)
        assert (one.tolist(), other.tolist()) == ([2, 3], [4, 6])


def test_what_is_written_is_planned_by_who_looks_on(canonical_forms: list[int]) -> None:
    for keep in (False, True, False, True):
        x = memory(1, 2, 3)
        old = x.detach() if keep else None
        x[1:2] = 7.0
        x.realize()
        assert x.tolist() == [1, 7, 3]
        assert old is None or old.tolist() == [1, 2, 3]
    assert len(canonical_forms) >= 4


def test_settings_are_part_of_it() -> None:
    large = memory(1e10)
    for _ in range(2):
        assert ((large + 1.0) - large).item() == 0
        with using(FLOAT="unsafe"):
            assert ((large + 1.0) - large).item() == 1
    assert settings.FLOAT == "strict"


def test_settings_of_another_thread_are_not_taken_for_one_s_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with using(FLOAT="unsafe"):
        theirs = settings.Reading(*plan._HEEDED)

    class Crossed(list[settings.Reading]):
        def __setitem__(self, at: Any, value: Any) -> None:
            super().__setitem__(at, [theirs])  # the other thread is the last to remember

    monkeypatch.setattr(plan, "_readings", Crossed())
    assert plan._chosen()[0] == "strict"
