"""`simplify`: the one door to rewriting by equalities, with whichever optimizer is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from opgraft import port, settings
from opgraft.errors import SettingError
from opgraft.forking import ForkLock
from opgraft.ir.matcher import EqualitySet, PatternMatcher
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.uop import UOp
from opgraft.rules.optimizer import (
    USUAL_COST,
    Budget,
    CostModel,
    Optimized,
    Optimizer,
    Stage,
    greedy,
)
from opgraft.rules.sets import equalities_at

# This room knows no plugins: ports lead to their registry. The first finds an optimizer by the
# name in the setting OPTIMIZER ("auto" included), the second further equalities of a stage.
_find_optimizer: Final[list[Callable[[str], Optimizer] | None]] = [port.find_optimizer]
_find_equalities: Final[list[Callable[[str], EqualitySet | None] | None]] = [port.find_equalities]

_joined_lock: Final = ForkLock()
_joined: Final[dict[tuple[PatternMatcher, PatternMatcher], PatternMatcher]] = {}
_JOINED_LIMIT: Final = 64


def set_optimizer_finder(find: Callable[[str], Optimizer] | None) -> None:
    """Say who finds optimizers by name; None: only `greedy` is known."""
    _find_optimizer[0] = find


def set_equalities_finder(find: Callable[[str], EqualitySet | None] | None) -> None:
    """Say who knows further equalities of a stage; None: there are none."""
    _find_equalities[0] = find


def chosen_optimizer() -> Optimizer:
    """The optimizer that the settings OPTIMIZER and EGRAPH ask for."""
    name = settings.OPTIMIZER
    if settings.EGRAPH is not None:
        name = "egraph" if settings.EGRAPH else "greedy"
    if name == greedy.name:
        return greedy
    find = _find_optimizer[0]
    if find is not None:
        return find(name)
    if name == "auto":
        return greedy
    raise SettingError(
        f"no optimizer is named {name!r}; known: greedy",
        remedy="An optimizer is a plugin; `opgraft plugins` shows which are installed.",
    )


def optimize(
    sink: UOp,
    equalities: EqualitySet | None = None,
    *,
    cost: CostModel | None = None,
    budget: Budget | None = None,
    stage: Stage = "index",
    optimizer: Optimizer | None = None,
) -> Optimized:
    """As `simplify`, with the costs, the stop reason and the times beside the graph."""
    if equalities is None:
        equalities = default_equalities(stage)
    chosen = chosen_optimizer() if optimizer is None else optimizer
    return chosen.optimize(
        sink, equalities, cost=cost or USUAL_COST, budget=budget or Budget.of(stage), stage=stage
    )


def simplify(
    sink: UOp,
    equalities: EqualitySet | None = None,
    lowering: PatternMatcher | None = None,
    ctx: Any = None,
    stage: Stage = "index",
    optimizer: Optimizer | None = None,
    cost: CostModel | None = None,
) -> UOp:
    """The graph made cheaper by `equalities`, then rewritten by `lowering` along with them.

    Without `equalities`: `sym`, the rules of the float level that the setting FLOAT allows, and
    those that plugins add. `lowering` is one-way, so the optimizer never sees it; `ctx` is its
    context. Without `optimizer`: the one that the setting OPTIMIZER names. `cost` is what it is to
    reckon with.

    >>> from opgraft.ir import UOp
    >>> x = UOp.variable("x", 0, 9)
    >>> simplify((x * 4 + 2) // 4) is x
    True
    """
    if equalities is None:
        equalities = default_equalities(stage)
    chosen = chosen_optimizer() if optimizer is None else optimizer
    if chosen is greedy:
        # straight to the rewriting: the costs would be thrown away
        made = graph_rewrite(sink, equalities, name=f"greedy {stage}")
    else:
        made = optimize(sink, equalities, cost=cost, stage=stage, optimizer=chosen).sink
    if lowering is None:
        return made
    return graph_rewrite(made, _both(equalities, lowering), ctx, name=f"lowering {stage}")


_none: Final = EqualitySet([])


def tidy(sink: UOp) -> UOp:
    """The graph after greedy rewriting, whichever optimizer is chosen: for passes that need the
    normal form of indices, and are followed by others.

    >>> from opgraft.ir import UOp
    >>> x = UOp.variable("x", 0, 9)
    >>> tidy((x * 4 + 2) // 4) is x
    True
    """
    return graph_rewrite(sink, default_equalities("index"), name="greedy index")


def default_equalities(stage: Stage) -> EqualitySet:
    """The built-in rules of the float level that the setting FLOAT allows, and those of plugins."""
    # the built-in rules are of numbers: what they make of arrays would lack shapes
    own = _none if stage == "tensor" else equalities_at(settings.FLOAT)
    find = _find_equalities[0]
    further = None if find is None else find(stage)
    if further is None or not len(further):
        return own
    joined = _both(own, further)
    assert isinstance(joined, EqualitySet)
    return joined


def _both(first: PatternMatcher, second: PatternMatcher) -> PatternMatcher:
    """`first + second`, made once: a matcher keeps the code that it has compiled."""
    found = _joined.get((first, second))
    if found is None:
        with _joined_lock:
            if len(_joined) >= _JOINED_LIMIT:
                _joined.pop(next(iter(_joined)))
            found = _joined.setdefault((first, second), first + second)
    return found
