"""Optimizers may give reasons for what they made; nobody has to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from opgraft.cli import main
from opgraft.ir import UOp
from opgraft.ir.matcher import EqualitySet
from opgraft.rules import simplify
from opgraft.rules.optimizer import Budget, CostModel, Optimized, Optimizer, Stage, greedy
from opgraft.rules.reasons import Explainer, Reason, reasons
from opgraft.rules.sets import sym

X = UOp.variable("x", 0, 9)


@dataclass(frozen=True)
class Told:
    after: UOp

    def __str__(self) -> str:
        return "hearsay"


@dataclass(frozen=True)
class Because:
    start: UOp
    end: UOp
    steps: tuple[Told, ...]
    faults: tuple[str, ...] = ()

    def check(self) -> list[str]:
        return list(self.faults)


class Talker:
    """Does what greedy does, and explains it."""

    name = "talker"

    def __init__(self, faults: tuple[str, ...] = ()) -> None:
        self.asked: list[tuple[EqualitySet, Stage]] = []
        self.faults = faults

    def optimize(
        self,
        sink: UOp,
        equalities: EqualitySet,
        *,
        cost: CostModel,
        budget: Budget,
        stage: Stage,
    ) -> Optimized:
        return greedy.optimize(sink, equalities, cost=cost, budget=budget, stage=stage)

    def explain(
        self, before: UOp, after: UOp, equalities: EqualitySet, *, stage: Stage
    ) -> Sequence[Reason]:
        self.asked.append((equalities, stage))
        return [Because(before, after, (Told(after),), self.faults)]


def test_greedy_rewriting_gives_none() -> None:
    assert not isinstance(greedy, Explainer)
    assert reasons(X + 0, X, optimizer=greedy) is None


def test_an_optimizer_with_the_method_is_asked_with_the_rules_that_it_had() -> None:
    talker = Talker()
    (reason,) = reasons(X + 0, X, optimizer=talker, stage="scalar") or ()
    assert (reason.start, reason.end, reason.check()) == (X + 0, X, [])
    assert [str(step) for step in reason.steps] == ["hearsay"]
    ((equalities, stage),) = talker.asked
    assert stage == "scalar"
    assert set(sym.rules) <= set(equalities.rules)


@pytest.mark.parametrize("faults", [(), ("step 0: no",)])
def test_the_command_prints_the_chain_and_whether_it_holds(
    faults: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(name: str) -> Optimizer:
        return Talker(faults)

    monkeypatch.setattr(simplify, "_find_optimizer", [find])
    assert main(["explain", "--egraph", "--no-source", "x + 0 where x in [0, 9]"]) == 0
    shown = capsys.readouterr().out
    assert "why x + 0 is x" in shown
    assert "= x  by hearsay" in shown
    assert ("replayed: each step holds" in shown) == (not faults)
    assert ("NOT SHOWN: step 0: no" in shown) == bool(faults)
