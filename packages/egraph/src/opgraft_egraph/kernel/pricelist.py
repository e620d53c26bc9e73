"""`PriceList`: what operations cost, as data, for the tiers of a kernel.

A price is that of one execution. A node is paid as often as the loops that it stands in have it
computed (`Loops`), and once however often it is used. Beside the plain table there are the forms
that the compiler below makes better than they look.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from opgraft.api import DType, GroupOp, Loops, Ops, Target, UOp

_FREE: Final = frozenset(
    {
        *(Ops.CONST, Ops.VAR, Ops.PARAM, Ops.LOCAL, Ops.IOTA, Ops.SPECIAL, Ops.RANGE, Ops.SINK),
        *(Ops.AFTER, Ops.END, Ops.BUFFER, Ops.BITCAST, Ops.STACK, Ops.BROADCAST, Ops.BARRIER),
    }
)


@dataclass(frozen=True)
class PriceList:
    """Prices by op, and of forms of an op."""

    name: str
    table: Mapping[Ops, float]
    """Of operations on integers, conditions and memory; and of those on floats in `floats`."""
    floats: Mapping[Ops, float]
    default: float = 1.0
    power_of_two: float = 1.0
    """A division or modulo by a power of two: a shift, a mask."""
    correction: float = 0.0
    """Besides, for a division or modulo of what may be negative: it is to round down."""
    in_vectors: float = 1.0
    """How many times as dear such a division or modulo is in vectors: few machines have the upper
    halves of products there."""
    beside: float = math.inf
    """x % c where x // c is there: the compiler below takes the rest from the quotient."""
    margin: float = 1.0
    """How many times cheaper another form has to be to be taken."""

    def one(self, op: Ops, dtype: DType, by: object = None, negative: bool = False) -> float:
        """The price of an operation: `dtype` is its result's, `by` its divisor if that is known,
        `negative` whether what is divided may be below 0."""
        if op in _FREE:
            return 0.0
        if op is Ops.IDIV or op is Ops.MOD:
            if isinstance(by, int) and by > 0 and by & (by - 1) == 0:
                return self.power_of_two
            price = self.table.get(op, self.default) + (self.correction if negative else 0.0)
            return price * self.in_vectors if dtype.count > 1 and not dtype.is_float else price
        if dtype.is_float:
            found = self.floats.get(op)
            if found is not None:
                return found
        return self.table.get(op, self.default)

    def node(self, n: UOp) -> float:
        """The price of a node by itself."""
        if n.is_const:
            return 0.0
        op = n.op
        if op is Ops.IDIV or op is Ops.MOD:
            a, c = n.src
            return self.one(op, n.dtype, c.const_value, bool(a.vmin < 0))
        return self.one(op, n.dtype)

    def graph(
        self,
        roots: Iterable[UOp],
        loops: Loops,
        inside: Callable[[UOp], bool] | None = None,
    ) -> float:
        """The price of all nodes below some roots, or of those inside of something, per innermost
        iteration."""
        total = []
        divided: dict[tuple[UOp, UOp], None] = {}
        nodes = dict.fromkeys(n for root in roots for n in root.toposort())
        loops.learn(nodes)
        beside = self.beside
        if beside != math.inf:
            divided = dict.fromkeys((n.src[0], n.src[1]) for n in nodes if n.op is Ops.IDIV)
        plain: dict[tuple[Ops, DType], float] = {}  # of what has one price wherever it stands
        for n in nodes:
            if inside is not None and not inside(n):
                continue
            op = n.op
            if op is Ops.IDIV or op is Ops.MOD:
                price = self.node(n)
                if op is Ops.MOD and (n.src[0], n.src[1]) in divided:
                    price = min(price, beside)
            else:
                key = (op, n.dtype)
                known = plain.get(key)
                price = plain[key] = self.one(*key) if known is None else known
            if price:
                total.append(price * loops.share(n))
        return math.fsum(total)


_TRANSCENDENTAL: Final = (Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN)

PLAIN: Final = PriceList(
    "plain",
    table={**dict.fromkeys(sorted(GroupOp.ALU), 1.0), Ops.IDIV: 6.0, Ops.MOD: 6.0},
    floats={},
)
"""A division costs six other operations, one by a power of two is one: for machines without an
optimizing compiler below, and to compare with figures of others."""

CPU: Final = PriceList(
    "CPU",
    table={
        **dict.fromkeys(sorted(GroupOp.ALU), 1.0),
        **dict.fromkeys((Ops.IDIV, Ops.MOD), 4.0),
        **dict.fromkeys((Ops.LOAD, Ops.STORE, Ops.REDUCE, Ops.HREDUCE), 1.0),
        Ops.THREEFRY: 100.0,
    },
    floats={
        Ops.FDIV: 4.0,
        Ops.SQRT: 5.0,
        **dict.fromkeys(_TRANSCENDENTAL, 20.0),
        Ops.MOD: 20.0,
    },
    correction=3.0,
    in_vectors=2.0,
    beside=2.0,
    margin=1.25,
)
"""A C compiler below, which makes a division by a constant a multiplication and a shift."""

_OTHERS: Final = {"power_of_two", "correction", "beside"}


@functools.lru_cache(maxsize=64)
def of_target(target: Target) -> PriceList:
    """The prices of a target: those that were measured on it, else the usual ones."""
    measured = dict(target.op_prices)
    if not measured:
        return CPU
    by_name = {op.name: op for op in GroupOp.ALU}
    table, floats = dict(CPU.table), dict(CPU.floats)
    for name, price in measured.items():
        whole, _, kind = name.partition(":")
        op = by_name.get(whole)
        if op is not None:
            (floats if kind == "float" else table)[op] = price
    others = {name: measured[name] for name in measured if name in _OTHERS}
    return replace(CPU, name=f"{target.name}, measured", table=table, floats=floats, **others)
