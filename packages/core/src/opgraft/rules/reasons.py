"""Why an optimizer's result equals what it was given, where the optimizer can say so.

`Optimizer` asks for no reasons, and `greedy` needs none: a trace shows its rewrites one by one. An
optimizer that explores many forms at once may have a method `explain` besides; `reasons` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.uop import UOp
from opgraft.rules.optimizer import Optimizer, Stage
from opgraft.rules.simplify import chosen_optimizer, default_equalities


class ReasonStep(Protocol):
    """One application of a rule. As text: the rule's name, its direction and its conditions."""

    @property
    def after(self) -> UOp:
        """The whole expression, once the rule has been applied in it."""
        ...


class Reason(Protocol):
    """Why one expression equals another: a chain of rule applications."""

    @property
    def start(self) -> UOp: ...

    @property
    def end(self) -> UOp: ...

    @property
    def steps(self) -> Sequence[ReasonStep]: ...

    def check(self) -> list[str]:
        """What is wrong with the chain when each rule is applied again; empty: it holds."""
        ...


@runtime_checkable
class Explainer(Protocol):
    """What an optimizer may be besides: one that can give reasons for a result of its own."""

    def explain(
        self, before: UOp, after: UOp, equalities: EqualitySet, *, stage: Stage
    ) -> Sequence[Reason]:
        """A reason for each expression of `before` in the place of which `after` has another."""
        ...


def reasons(
    before: UOp,
    after: UOp,
    equalities: EqualitySet | None = None,
    *,
    stage: Stage = "index",
    optimizer: Optimizer | None = None,
) -> Sequence[Reason] | None:
    """Why `after` may stand for `before`, of which the optimizer made it.

    Without `equalities` and `optimizer`: those that `simplify` takes. None: it gives no reasons.
    """
    chosen = chosen_optimizer() if optimizer is None else optimizer
    if not isinstance(chosen, Explainer):
        return None
    if equalities is None:
        equalities = default_equalities(stage)
    return chosen.explain(before, after, equalities, stage=stage)
