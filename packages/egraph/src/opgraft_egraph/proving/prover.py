"""`prove`: equalities first, then the search for values, then refutation of the contrary."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from opgraft.api import UOp, errors
from opgraft_egraph.exact import QUICK
from opgraft_egraph.graph import EGraph
from opgraft_egraph.proving.equalities import PROVING
from opgraft_egraph.proving.forms import FALSE, TRUE, Forms
from opgraft_egraph.proving.refuter import Refuter
from opgraft_egraph.proving.search import falsify
from opgraft_egraph.proving.values import value_of
from opgraft_egraph.report import Schedule

Verdict = Literal["true", "false", "unknown"]
SECONDS: Final = 10.0
CASES: Final = 20_000
EXPLORE: Final = Schedule(nodes=1_500, rounds=6, seconds=0.25, matches=400)
"""How far the e-graph goes: what it does not decide is left to the cases."""


@dataclass(frozen=True)
class Proof:
    """What became of a statement."""

    verdict: Verdict
    stop: str
    """What decided it: "equalities", "normal form", "values" or "cases"; or the limit that was
    reached: "seconds" or "case limit", or "opaque": it holds operations no law is known of."""
    seconds: float
    cases: int = 0
    """How many were told apart."""
    explored: str = ""
    """Why the e-graph stopped."""
    nodes: int = 0
    """Of the e-graph."""
    values: Mapping[str, int] | None = None
    """For which the statement is false."""

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "verdict": self.verdict,
            "stop": self.stop,
            "seconds": round(self.seconds, 6),
            "cases": self.cases,
            "explored": self.explored,
            "nodes": self.nodes,
        }
        if self.values is not None:
            found["values"] = dict(self.values)
        return found


def prove(
    statement: UOp,
    seconds: float = SECONDS,
    cases: int = CASES,
    explore: Schedule | None = EXPLORE,
) -> Proof:
    """Whether a statement about whole numbers is true for all values of its variables.

    `explore`: how far the e-graph goes first; None: there is none.

    >>> from opgraft_egraph.proving import parse_statement
    >>> prove(parse_statement("( <= ( * ( / v0 8 ) 8 ) v0 )")).verdict
    'true'
    """
    return _Attempt(statement, seconds, cases).run(explore)


class _Attempt:
    def __init__(self, statement: UOp, seconds: float, cases: int) -> None:
        self.statement, self.cases = statement, cases
        self.begin = time.perf_counter()
        self.end = self.begin + seconds
        self.explored, self.nodes = "", 0

    def run(self, explore: Schedule | None) -> Proof:
        if explore is not None:
            made = self._explore(explore)
            if made.is_const and made.const_value:
                return self._proof("true", "equalities")
        # few steps, and most false statements are found so
        values = falsify(self.statement)
        if values is not None:
            return self._proof("false", "values", values=values)
        forms = Forms()
        contrary = forms.condition(self.statement, holds=False)
        if contrary == FALSE:
            return self._proof("true", "normal form")
        refuter = Refuter(forms)
        found = refuter.refute(contrary, self.end, self.cases) if contrary != TRUE else {}
        if found is None:
            return self._proof("true", "cases", refuter.cases)
        if isinstance(found, bool):
            stop = "case limit" if refuter.stop == "cases" else refuter.stop
            return self._proof("unknown", stop, refuter.cases)
        return self._checked(found, refuter.cases)

    def _explore(self, schedule: Schedule) -> UOp:
        """The cheapest equal of the statement that the e-graph finds."""
        graph = EGraph(self.statement, PROVING)
        report = graph.run(schedule)
        self.explored, self.nodes = report.stop, report.nodes
        (made,) = graph.extract(effort=QUICK)
        return made

    def _checked(self, found: Mapping[str, int], cases: int) -> Proof:
        """A verdict "false" only where the statement is false for the values, worked out anew."""
        names = [n.arg[0] for n in self.statement.toposort() if n.op.name == "VAR"]
        values = {name: found.get(name, 0) for name in names}
        try:
            holds = value_of(self.statement, values)
        except errors.OpgraftError:
            holds = True
        if holds:
            return self._proof("unknown", "opaque", cases)
        return self._proof("false", "cases", cases, values)

    def _proof(
        self,
        verdict: Verdict,
        stop: str,
        cases: int = 0,
        values: Mapping[str, int] | None = None,
    ) -> Proof:
        return Proof(
            *(verdict, stop, time.perf_counter() - self.begin, cases),
            *(self.explored, self.nodes, values),
        )
