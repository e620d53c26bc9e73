"""The tiers of a kernel: where they look, with which rules, at what prices, and how far.

`index`: divisions, modulos, choices and gates of indices. `scalar`: all that a kernel computes, in
the order and the loops in which it is computed cheapest.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opgraft.api import (
    Budget,
    EqualitySet,
    GroupOp,
    Loops,
    Ops,
    Stage,
    UOp,
    alternatives_at,
    graph_rewrite,
    settings,
    sym,
)
from opgraft_egraph.kernel.pricelist import CPU, PriceList
from opgraft_egraph.kernel.region import Region

if TYPE_CHECKING:
    from opgraft_egraph.analysis import Analysis
    from opgraft_egraph.graph import EGraph

_PATIENCE: Final = 100.0
"""How many times a budget's seconds may pass until the e-graph is given up. So long that only a
machine that hardly runs gets there: what is found does not depend on the time."""
_CALLS: Final = 80
"""Functions that may have been called when another round begins."""
_POINTS: Final = 12
"""Random points at which all members of a class must agree, where the setting SPEC is on."""
_MATCHES: Final = 64
_BAN: Final = 2


@dataclass(frozen=True)
class Tier:
    """Where a tier looks and when."""

    stage: Stage
    inside: Callable[[UOp], bool]
    """Whether a node belongs to what it looks at."""
    worth: Callable[[UOp], bool] | None
    """Whether a node is a reason to look; None: where an alternative to it is known."""

    def computes(self, n: UOp) -> bool:
        """Whether a node is an operation that might be done otherwise: an access stays one."""
        return n.op in GroupOp.ALU and self.inside(n)


class Found(NamedTuple):
    """What a tier made of a graph."""

    sink: UOp
    given: float
    """The price of the graph as it was given."""
    before: float
    """The price of the greedy result, or of the graph as it was given if that is less."""
    after: float
    stop: str
    times: dict[str, float]


_ACCESSES: Final = frozenset({Ops.LOAD, Ops.STORE})


def _is_index(n: UOp) -> bool:
    if n.op in GroupOp.ALU:
        return n.dtype.is_index or (n.dtype.is_bool and bool(n.src))
    return n.op in _ACCESSES and len(n.src) > (2 if n.op is Ops.LOAD else 3)


def _is_division(n: UOp) -> bool:
    op = n.op
    if op is Ops.IDIV or op is Ops.MOD:
        by = n.src[1].const_value
        return n.dtype.is_index and isinstance(by, int) and by & (by - 1) != 0
    if op is Ops.WHERE:
        return n.dtype.is_index or n.dtype.is_bool
    if op in _ACCESSES and n.src[-1].op is not Ops.CONST:
        gate = n.src[2] if op is Ops.LOAD and len(n.src) > 2 else n.src[-1]
        return gate.dtype.is_bool and gate.op in (Ops.AND, Ops.OR)
    return False


def _is_value(n: UOp) -> bool:
    return n.op in GroupOp.ALU and not n.dtype.is_index


INDEX: Final = Tier("index", _is_index, _is_division)
SCALAR: Final = Tier("scalar", _is_value, None)
TIERS: Final = {tier.stage: tier for tier in (INDEX, SCALAR)}


@functools.lru_cache(maxsize=32)
def _further(equalities: EqualitySet) -> tuple[Any, ...]:
    """Rules that come from elsewhere: greedy rewriting has been through the built-in ones, and
    its result is their fixed point."""
    own = frozenset(sym.rules)
    return tuple(rule for rule in equalities.rules if rule not in own)


@functools.lru_cache(maxsize=32)
def _rules(
    equalities: EqualitySet, alternatives: EqualitySet, further: EqualitySet | None
) -> EqualitySet:
    return EqualitySet(
        [*alternatives.rules, *_further(equalities), *(() if further is None else further.rules)]
    )


def explore(
    sink: UOp,
    equalities: EqualitySet,
    tier: Tier,
    budget: Budget,
    prices: PriceList = CPU,
    further: EqualitySet | None = None,
) -> Found:
    """The graph at its cheapest by these prices, or the greedy result: never costlier than that."""
    begin = time.perf_counter()
    greedy = graph_rewrite(sink, equalities, name=f"greedy {tier.stage}")
    after_greedy = time.perf_counter()
    times = {"greedy": after_greedy - begin}
    loops = Loops(greedy) if sink is greedy else Loops(sink, greedy)
    cost = prices.graph((greedy,), loops)
    given = cost if sink is greedy else prices.graph((sink,), loops)
    if given < cost:
        # what an earlier tier has chosen is not to be undone
        greedy, cost = sink, given

    def declined(stop: str) -> Found:
        return Found(greedy, given, cost, cost, stop, times)

    alternatives = alternatives_at(tier.stage, settings.FLOAT)
    if not _worth(greedy, tier, alternatives):
        return declined("nothing to explore")
    if cost - prices.graph((greedy,), loops, tier.computes) > cost / prices.margin:
        return declined("little to gain")  # not even if all that the tier computes were free
    region = Region(greedy, tier.inside)
    if len(region) * 2 > budget.nodes:
        return declined("nodes")
    # late: most kernels have nothing to explore, and need no engine
    from opgraft_egraph.graph import EGraph
    from opgraft_egraph.kernel.choosing import cheapest

    graph = EGraph(region.roots, _rules(equalities, alternatives, further))
    stop = _saturate(graph, budget)
    after_run = time.perf_counter()
    times["saturate"] = after_run - after_greedy
    if stop == "seconds":
        return declined(stop)
    choice = cheapest(graph, region.roots, prices, loops)
    made = region.restored(choice.roots)
    times["extract"] = time.perf_counter() - after_run
    if made is None or not choice.repeatable:
        return declined(stop if choice.repeatable else "seconds")
    price = prices.graph((made,), loops)
    if price * prices.margin >= cost or price >= cost:
        return declined(stop)
    return Found(made, given, cost, price, stop, times)


def _worth(sink: UOp, tier: Tier, alternatives: EqualitySet) -> bool:
    """Whether there is anything to choose from."""
    if tier.worth is not None:
        return any(tier.worth(n) for n in sink.toposort())
    inside, rewrite = tier.inside, alternatives.rewrite
    return any(rewrite(n) is not None for n in sink.toposort() if inside(n))


def _fingerprint() -> Analysis:
    from opgraft_egraph.fingerprint import Fingerprint  # late, as above

    return Fingerprint(_POINTS, floats=settings.FLOAT == "strict")


def _saturate(graph: EGraph, budget: Budget) -> str:
    """Rounds while functions are called rarely. What stops it are counts, but for a safety net."""
    from opgraft_egraph.report import Schedule  # late, as above

    limit = budget.seconds * _PATIENCE
    once = Schedule(budget.nodes, 1, limit, _MATCHES, _BAN)
    calls, begin = 0, time.perf_counter()
    values = _fingerprint() if settings.SPEC else None
    for _ in range(budget.rounds):
        report = graph.run(once)
        if values is not None:
            graph.check("values", values)
            begin = time.perf_counter()  # what checks take is not the rules'
        calls = sum(row.calls for row in report.rules.values())
        if report.stop != "rounds":
            return report.stop
        if calls > _CALLS:
            return "calls"
        if time.perf_counter() - begin > limit:
            return "seconds"
    return "rounds"
