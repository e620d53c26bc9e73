"""The tensor stage: whether a graph has anything to gain from it, and the way there.

Before: the numbered graph (`normalise.numbered`), the key of the plan cache. After: a graph of the
same values, which the chosen optimizer holds for the cheapest (see equivalents.py).

A program that has no products at its float level, or whose plan is known, pays next to nothing:
the rules are not even imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opgraft import settings
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.port import Port
from opgraft.target import Target
from opgraft_tensor.facts import Prices

_cheapest: Final[
    Port[[tuple[UOp, ...], Prices, Target | None], tuple[tuple[UOp, ...], list[str]]]
] = Port("opgraft_tensor.equivalents:cheapest")

_NEVER: Final = "greedy"
LARGEST: Final = 10_000
"""Nodes of a graph that is shown: a larger one would take long to read, and no search would end."""


def optimized(
    outputs: tuple[UOp, ...], prices: Prices, target: Target | None = None
) -> tuple[tuple[UOp, ...], list[str]]:
    """The outputs with the cheapest products, and what changed, a line each."""
    by_greedy = settings.OPTIMIZER == _NEVER if settings.EGRAPH is None else not settings.EGRAPH
    if by_greedy or not has_products(outputs):
        return outputs, []
    return _cheapest(outputs, prices, target)


def has_products(outputs: Sequence[UOp]) -> bool:
    """Whether a sum over products is there whose arithmetic the float level lets be rearranged.

    At `strict` that is the arithmetic of integers, which has no rounding.
    """
    strict = settings.FLOAT == "strict"
    order = toposort(outputs)
    if len(order) > LARGEST:
        return False
    for n in order:
        if n.op is Ops.REDUCE_AXIS and n.arg[0] is Ops.ADD:
            if n.dtype.is_int and n.src[0].op is Ops.MUL:
                return True
            if n.dtype.is_float and not strict:
                return True
        elif n.op is Ops.EXP and not strict:
            return True
    return False
