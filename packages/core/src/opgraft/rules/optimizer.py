"""Optimizers: what one is, what it is told, what it hands back; and `greedy`, the built-in one.

An optimizer takes equalities, which it may use in any direction and any order, and looks for a
cheaper graph of the same meaning. `greedy` uses each from left to right wherever it fires.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.uop import UOp, toposort
from opgraft.target import Target

Stage: TypeAlias = Literal["index", "scalar", "tensor"]

# What one execution of an op costs, in the time of an integer addition; the rest costs OTHER.
_OP_COST: Final[Mapping[Ops, float]] = {
    **dict.fromkeys(
        (Ops.CONST, Ops.VAR, Ops.PARAM, Ops.LOCAL, Ops.IOTA, Ops.SPECIAL, Ops.RANGE, Ops.SINK), 0
    ),
    **dict.fromkeys((Ops.AFTER, Ops.END, Ops.BUFFER, Ops.BITCAST, Ops.STACK, Ops.BROADCAST), 0),
    **dict.fromkeys((Ops.ADD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR), 1),
    **dict.fromkeys((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.MAX, Ops.MIN), 1),
    **dict.fromkeys((Ops.CAST, Ops.TRUNC, Ops.EXTRACT), 1),
    **dict.fromkeys((Ops.MUL, Ops.MULACC, Ops.WHERE), 2),
    **dict.fromkeys((Ops.FDIV, Ops.LOAD, Ops.STORE), 3),
    Ops.SQRT: 4,
    **dict.fromkeys((Ops.IDIV, Ops.MOD, Ops.CDIV, Ops.CMOD), 5),
    **dict.fromkeys((Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN), 8),
    Ops.THREEFRY: 100,
}
OTHER: Final = 3.0


@dataclass(frozen=True)
class CostModel:
    """The price of a graph: the sum over its distinct nodes, as a compiler shares them.

    `table` gives the price of an op, `default` that of an op it does not name. A division or
    modulo by a constant power of two costs `power_of_two`: it becomes a shift or a mask.
    `weigh`, if given, multiplies a node's price, say by the trip count of the loops it stands in.
    `target`, if given, is the machine that is meant: an optimizer may have better prices for it.
    """

    table: Mapping[Ops, float] = field(default_factory=lambda: _OP_COST)
    default: float = OTHER
    power_of_two: float = 1.0
    weigh: Callable[[UOp], float] | None = None
    target: Target | None = None

    def node(self, n: UOp) -> float:
        """The price of this node alone, its sources not counted."""
        price = self.table.get(n.op, self.default)
        if n.op in (Ops.IDIV, Ops.MOD):
            by = n.src[1].const_value
            if isinstance(by, int) and by > 0 and by & (by - 1) == 0:
                price = min(price, self.power_of_two)
        return price if self.weigh is None else price * self.weigh(n)

    def graph(self, *roots: UOp) -> float:
        """The price of all distinct nodes below the roots, and the roots."""
        return math.fsum(self.node(n) for n in toposort(roots))


USUAL_COST: Final = CostModel(target=Target("any"))
"""What an optimizer is told by callers who have no prices in mind."""


@dataclass(frozen=True)
class Budget:
    """How far an optimizer may go. It stops at the first limit, within a round too."""

    nodes: int = 2_000
    rounds: int = 30
    seconds: float = 0.010

    def __post_init__(self) -> None:
        # a comparison with a number that is none is false
        if not (self.nodes >= 0 and self.rounds >= 0 and self.seconds >= 0):
            raise ValueError(f"{self}: each limit is a number that is at least 0")

    @staticmethod
    def of(stage: Stage) -> Budget:
        """The usual budget of a stage: small per kernel, larger per tensor graph."""
        return Budget(nodes=5_000, seconds=0.050) if stage == "tensor" else Budget()


@dataclass(frozen=True)
class Optimized:
    """What an optimizer made of a graph, and how it went."""

    sink: UOp
    cost_before: float
    cost_after: float
    stop: str
    """Why it stopped: "fixed point", "saturated", or the limit that was reached."""
    seconds: float
    optimizer: str = "greedy"
    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, for those that have phases."""


@runtime_checkable
class Optimizer(Protocol):
    """A search for a cheaper graph of the same meaning. Stateless: called from several threads."""

    name: str

    def optimize(
        self,
        sink: UOp,
        equalities: EqualitySet,
        *,
        cost: CostModel,
        budget: Budget,
        stage: Stage,
    ) -> Optimized:
        """A graph equal to `sink` by `equalities`. Deterministic apart from the times."""
        ...


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer that can be had: its name, how to make it, and its rank under `auto`."""

    name: str
    make: Callable[[], Optimizer]
    priority: int = 0
    description: str = ""


class Greedy:
    """Every equality from left to right, wherever it fires, until none does."""

    name: str = "greedy"

    def optimize(
        self,
        sink: UOp,
        equalities: EqualitySet,
        *,
        cost: CostModel,
        budget: Budget,
        stage: Stage,
    ) -> Optimized:
        """The fixed point of the rules. The budget does not limit it: it only goes downhill."""
        begin = time.perf_counter()
        made = graph_rewrite(sink, equalities, name=f"greedy {stage}")
        seconds = time.perf_counter() - begin
        return Optimized(made, cost.graph(sink), cost.graph(made), "fixed point", seconds)


greedy: Final = Greedy()
