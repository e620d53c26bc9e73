"""An optimizer: the rules from left to right, and a stop reason of its own."""

from __future__ import annotations

from opgraft.api import Budget, CostModel, EqualitySet, Optimized, UOp, graph_rewrite


class Patient:
    """As greedy, but it says so politely."""

    name = "patient"

    def optimize(
        self, sink: UOp, equalities: EqualitySet, *, cost: CostModel, budget: Budget, stage: str
    ) -> Optimized:
        made = graph_rewrite(sink, equalities)
        return Optimized(
            made, cost.graph(sink), cost.graph(made), "had the patience", 0.0, self.name
        )
