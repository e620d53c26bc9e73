"""Realizing an expression whose plan is known: what is done once is not done again, by counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from opgraft.catalog import Catalog
from opgraft.ir.intern import live_nodes
from opgraft.plugins.registry import Registry
from opgraft_tensor import Tensor, nn, plan


def expression(x: Tensor) -> Tensor:
    return (x * 2.0 + 1.0).sum()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the slow ways are gone from now on."""
    found: Counter[str] = Counter()

    def counted(name: str, original: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            found[name] += 1
            return original(*arguments, **named)

        return call

    monkeypatch.setattr(plan, "schedule", counted("schedule", plan.schedule))
    monkeypatch.setattr(plan, "compile_kernels", counted("compile", plan.compile_kernels))
    monkeypatch.setattr(Registry, "device", counted("registry", Registry.device))
    return found


def test_a_known_expression_asks_neither_planner_nor_compiler_nor_plugins(
    calls: Counter[str],
) -> None:
    x = Tensor([1.0, 2.0], device="CPU").realize()
    assert expression(x).item() == 8.0
    calls.clear()
    for _ in range(3):
        assert expression(x).item() == 8.0
    assert calls == Counter()


def test_a_closed_device_is_opened_anew_under_its_name() -> None:
    devices = Catalog()
    first = devices["NULL"]
    assert devices["NULL"] is first
    devices.close()
    assert devices["NULL"] is not first


def test_results_that_are_dropped_leave_no_nodes() -> None:
    x = Tensor([1.0, 2.0], device="CPU").realize()
    expression(x).item()
    before = live_nodes()
    for _ in range(20):
        expression(x).item()
    assert live_nodes() <= before


def test_parameters_share_the_numbers_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = nn.optim.host_supplied

    def noted(make: Any, places: Any) -> Any:
        made.append(places)
        return original(make, places)

    monkeypatch.setattr(nn.optim, "host_supplied", noted)
    model = nn.Linear(3, 2)
    optimizer = nn.AdamW(model.parameters(), lr=0.1)
    model(Tensor(np.ones((4, 3), np.float32))).square().sum().backward()
    optimizer.step()
    assert len(model.parameters()) == 2
    assert [len(places) for places in made] == [nn.AdamW.rate_count]
