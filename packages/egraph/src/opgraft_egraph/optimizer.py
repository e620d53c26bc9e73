"""`EGraphOptimizer`: core's optimizer protocol, kept by an e-graph."""

from __future__ import annotations

import time
from typing import Final

from opgraft.api import Budget, CostModel, EqualitySet, Optimized, UOp, graph_rewrite
from opgraft_egraph.graph import EGraph
from opgraft_egraph.report import FAST, Schedule

_TIE: Final = 1e-9


class EGraphOptimizer:
    """Explores what the equalities make equal to a graph and takes the cheapest.

    The greedy result is a member of the e-graph, and what is extracted is compared with it by
    the given cost model: the answer is never costlier, and on a tie it is the greedy one.
    """

    name: str = "egraph"

    def __init__(self, profile: Schedule = FAST, alternatives: EqualitySet | None = None) -> None:
        self.profile: Final = profile
        self.alternatives: Final = alternatives or EqualitySet([])
        """Equalities that greedy rewriting would run in circles with: for the e-graph alone."""

    def optimize(
        self,
        sink: UOp,
        equalities: EqualitySet,
        *,
        cost: CostModel,
        budget: Budget,
        stage: str,
    ) -> Optimized:
        """A graph equal to `sink`, no costlier than what greedy rewriting makes of it."""
        begin = time.perf_counter()
        greedy = graph_rewrite(sink, equalities, name=f"greedy {stage}")
        greedy_cost = cost.graph(greedy)
        after_greedy = time.perf_counter()
        schedule = Schedule(
            nodes=budget.nodes,
            rounds=min(budget.rounds, self.profile.rounds or budget.rounds),
            seconds=budget.seconds,
            matches=self.profile.matches,
            ban_rounds=self.profile.ban_rounds,
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
        (made,) = graph.extract(greedy, cost=None if cost.weigh is None else cost.node)
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
