"""`EGraphOptimizer`: core's optimizer protocol, kept by an e-graph.

What a stage needs is imported when it is first asked for: most kernels have nothing to explore, and
a process that meets only those never loads the engine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from opgraft.api import (
    Budget,
    CostModel,
    EqualitySet,
    Optimized,
    Stage,
    Target,
    UOp,
    alternatives_at,
    graph_rewrite,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opgraft_egraph.explanation import Explanation
    from opgraft_egraph.report import Schedule

_TIE: Final = 1e-9


class EGraphOptimizer:
    """Explores what the equalities make equal to a graph and takes the cheapest.

    The greedy result is a member of the e-graph, and what is extracted is compared with it by
    the given cost model: the answer is never costlier, and on a tie it is the greedy one.
    """

    name: str = "egraph"

    def __init__(
        self, profile: Schedule | None = None, alternatives: EqualitySet | None = None
    ) -> None:
        self.profile: Final = profile
        """How far a run by a cost model of the caller's goes; None: `FAST`."""
        self.alternatives: Final = alternatives or EqualitySet([])
        """Equalities that greedy rewriting would run in circles with: for the e-graph alone."""

    def optimize(
        self,
        sink: UOp,
        equalities: EqualitySet,
        *,
        cost: CostModel,
        budget: Budget,
        stage: Stage,
    ) -> Optimized:
        """A graph equal to `sink`, no costlier than what greedy rewriting makes of it."""
        if stage == "tensor":
            from opgraft_egraph.tensors import tier  # late, as all of them here

            return tier.optimize(graph_rewrite(sink, equalities), cost, budget)
        if cost.target is not None:
            return self._explored(sink, equalities, stage, budget, cost.target)
        return self._priced(sink, equalities, cost, budget, stage)

    def explain(
        self, before: UOp, after: UOp, equalities: EqualitySet, *, stage: Stage
    ) -> Sequence[Explanation]:
        """Why `after`, which `optimize` made of `before`, equals it: chains of rules.

        For the stages of kernels; graphs of arrays are explained as far as they are alike.
        """
        from opgraft_egraph.reasons import reasons

        further = [*alternatives_at(stage, settings.FLOAT).rules, *self.alternatives.rules]
        return reasons(before, after, equalities, EqualitySet(further))

    def _priced(
        self,
        sink: UOp,
        equalities: EqualitySet,
        cost: CostModel,
        budget: Budget,
        stage: Stage,
    ) -> Optimized:
        """Whatever the equalities make equal, by the prices that the caller states."""
        from opgraft_egraph.exact import QUICK
        from opgraft_egraph.graph import EGraph
        from opgraft_egraph.report import FAST, Schedule

        profile = self.profile or FAST
        begin = time.perf_counter()
        greedy = graph_rewrite(sink, equalities, name=f"greedy {stage}")
        greedy_cost = cost.graph(greedy)
        after_greedy = time.perf_counter()
        schedule = Schedule(
            nodes=budget.nodes,
            rounds=min(budget.rounds, profile.rounds or budget.rounds),
            seconds=budget.seconds,
            matches=profile.matches,
            ban_rounds=profile.ban_rounds,
        )
        power = cost.power_of_two if cost.weigh is None else -1.0
        graph = EGraph(
            (greedy, sink),
            equalities + self.alternatives if len(self.alternatives) else equalities,
            cost=lambda n: 0.0 if n.is_const else cost.table.get(n.op, cost.default),
            power_of_two=power,
        )
        graph.merge(greedy, sink)
        report = graph.run(schedule)
        after_run = time.perf_counter()
        prices = None if cost.weigh is None else cost
        (made,) = graph.extract(greedy, prices=prices, effort=QUICK)
        made_cost = cost.graph(made)
        if made_cost >= greedy_cost - _TIE:
            made, made_cost = greedy, greedy_cost
        end = time.perf_counter()
        return Optimized(
            *(made, cost.graph(sink), made_cost, report.stop, end - begin, self.name),
            {
                "greedy": after_greedy - begin,
                "saturate": after_run - after_greedy,
                "extract": end - after_run,
            },
        )

    def _explored(
        self, sink: UOp, equalities: EqualitySet, stage: Stage, budget: Budget, target: Target
    ) -> Optimized:
        """The tier of a kernel: with alternatives, loops, and prices of its own."""
        from opgraft_egraph.kernel.pricelist import of_target
        from opgraft_egraph.kernel.tiers import TIERS, explore

        begin = time.perf_counter()
        further = self.alternatives if len(self.alternatives) else None
        prices = of_target(target)
        found = explore(sink, equalities, TIERS[stage], budget, prices, further)
        return Optimized(
            *(found.sink, found.given, found.after, found.stop),
            *(time.perf_counter() - begin, self.name, found.times),
        )
