"""Prices of single nodes, as data or as functions; and the table that the first e-graph of this
project had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from opgraft.api import CostModel, Ops, UOp
from opgraft_egraph.arguments import a_function, a_node, a_price

Prices: TypeAlias = "Callable[[UOp], float] | CostModel | Mapping[Ops, float]"
"""What a node costs by itself: a function of it, a cost model, or a table by operation."""

OP_COST: Final[Mapping[Ops, int]] = {
    **dict.fromkeys((Ops.CONST, Ops.VAR), 0),
    **dict.fromkeys((Ops.ADD, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR), 1),
    **dict.fromkeys((Ops.MAX, Ops.MIN, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ), 1),
    **dict.fromkeys((Ops.CAST, Ops.BITCAST, Ops.TRUNC), 1),
    **dict.fromkeys((Ops.MUL, Ops.WHERE, Ops.MULACC), 2),
    Ops.FDIV: 3,
    Ops.SQRT: 4,
    **dict.fromkeys((Ops.IDIV, Ops.MOD), 5),
    **dict.fromkeys((Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN), 8),
}
OTHER: Final = 3


def seed_cost(n: UOp) -> float:
    """The price of a node's operation, whatever its sources."""
    return 0.0 if n.is_const else float(OP_COST.get(n.op, OTHER))


def node_cost(n: UOp) -> int:
    """The price of a node by itself. A constant as first operand costs one more: it is written
    last, and of two equal forms that one is to win.

    >>> x = UOp.variable("x", 0, 9)
    >>> node_cost(x + 1), node_cost(x * 2), node_cost(x // 3), node_cost(1 + x)
    (1, 2, 5, 2)
    """
    price = 0 if a_node(n, "what is priced").is_const else OP_COST.get(n.op, OTHER)
    if len(n.src) == 2 and n.src[0].is_const and not n.src[1].is_const:
        price += 1
    return price


def checked(cost: Callable[[UOp], float]) -> Callable[[UOp], float]:
    """The same function, which fails where what it gives is no price: with one below 0 the search
    for the cheapest might not end."""
    return lambda n: a_price(cost(n), n)


def price_function(prices: Prices) -> Callable[[UOp], float]:
    """The price of a node by itself.

    >>> x = UOp.variable("x", 0, 9)
    >>> price_function({Ops.ADD: 7})(x + 1), price_function(CostModel())(x // 4)
    (7.0, 1.0)
    """
    if isinstance(prices, CostModel):
        return prices.node
    if isinstance(prices, Mapping):
        table = prices
        return lambda n: 0.0 if n.is_const else float(table.get(n.op, OTHER))
    return a_function(prices, "prices: a table, a CostModel, or what gives a node's price, which")
