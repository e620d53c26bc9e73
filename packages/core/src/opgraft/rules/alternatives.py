"""Equalities without a direction, by stage and float level: for optimizers that keep both sides.

Greedy rewriting takes whatever a rule makes; so it has only rules of which one side is the better
in every place. Those here are for optimizers that look at a graph as a whole.
"""

from __future__ import annotations

import functools
from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.rules import choice, exchange, regroup
from opgraft.rules.optimizer import Stage
from opgraft.rules.sets import FloatLevel, joined

_EMPTY: Final = EqualitySet([])


@functools.cache
def alternatives_at(stage: Stage, level: FloatLevel) -> EqualitySet:
    """The alternatives of a stage that this float level allows (the setting FLOAT)."""
    if stage == "index":
        return joined(exchange.RULES, choice.RULES)
    if stage == "scalar":
        found = joined(choice.RULES, exchange.FIXED, regroup.STRICT)
        if level != "strict":
            found = joined(found, regroup.REASSOC)
        return joined(found, regroup.UNSAFE) if level == "unsafe" else found
    return _EMPTY
