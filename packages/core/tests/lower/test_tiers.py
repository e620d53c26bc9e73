"""Where an optimizer stands in the way of a kernel: twice, at its end, and nowhere in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import opgraft
from kernel_forms import kernels
from opgraft import EqualitySet, Ops, UOp, using
from opgraft.devices.invented import LANES32
from opgraft.ir.rewrite import graph_rewrite
from opgraft.lower.pipeline import lower
from opgraft.rules.optimizer import Budget, CostModel, Optimized, Stage
from opgraft.rules.simplify import set_optimizer_finder, tidy
from opgraft.target import Target


class Watching:
    """Greedy, and a record of what it was asked."""

    name = "watching"

    def __init__(self) -> None:
        self.asked: list[tuple[Stage, Target | None, UOp]] = []

    def optimize(
        self,
        sink: UOp,
        equalities: EqualitySet,
        *,
        cost: CostModel,
        budget: Budget,
        stage: Stage,
    ) -> Optimized:
        self.asked.append((stage, cost.target, sink))
        made = graph_rewrite(sink, equalities)
        return Optimized(made, 0.0, 0.0, "fixed point", 0.0, self.name)


@pytest.fixture
def watching() -> Iterator[Watching]:
    from opgraft import port

    found = Watching()
    set_optimizer_finder(lambda name: found)
    with using(OPTIMIZER="watching", EGRAPH=None):
        yield found
    set_optimizer_finder(port.find_optimizer)


TARGETS = {"lanes": LANES32, "vectors": replace(Target("vectors"), vector_bytes=32)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["matmul", "normalised_rows"])
def test_it_is_asked_twice_for_a_target_when_loops_are_what_they_will_be(
    watching: Watching, target: str, name: str
) -> None:
    sink = getattr(kernels, name)()
    lower(sink, TARGETS[target])
    assert [(stage, given) for stage, given, _ in watching.asked] == [
        ("scalar", TARGETS[target]),
        ("index", TARGETS[target]),
    ]
    for _, _, asked in watching.asked:
        assert asked.op is Ops.SINK
        assert tidy(asked) is asked


def test_no_pass_and_no_schedule_but_the_pipeline_asks_an_optimizer() -> None:
    rooms = Path(opgraft.__file__).parent
    asking = [
        path.name
        for room in ("opt", "lower")
        for path in sorted((rooms / room).rglob("*.py"))
        if "rules.simplify import simplify" in path.read_text(encoding="utf-8")
    ]
    assert asking == ["pipeline.py"]
