"""Equality saturation for opgraft: e-graphs of its IR, or of any terms.

Names are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opgraft_egraph.analysis import Analysis
    from opgraft_egraph.cost import OP_COST, node_cost
    from opgraft_egraph.exact.effort import QUICK, THOROUGH, USUAL, Effort
    from opgraft_egraph.explanation import Explanation, explain
    from opgraft_egraph.export import to_dot, to_json
    from opgraft_egraph.extraction import Extraction
    from opgraft_egraph.fingerprint import Fingerprint
    from opgraft_egraph.graph import EGraph
    from opgraft_egraph.optimizer import EGraphOptimizer
    from opgraft_egraph.report import FAST, FULL, PROFILES, UNLIMITED, Report, Schedule
    from opgraft_egraph.rewriting import (
        egraph_extract,
        egraph_rewrite,
        egraph_saturate,
        rewrite_all,
    )
    from opgraft_egraph.terms import Rewrite, TermGraph

_HOMES: Final = {
    "analysis": ("Analysis",),
    "cost": ("OP_COST", "node_cost"),
    "exact.effort": ("QUICK", "THOROUGH", "USUAL", "Effort"),
    "explanation": ("Explanation", "explain"),
    "extraction": ("Extraction",),
    "export": ("to_dot", "to_json"),
    "fingerprint": ("Fingerprint",),
    "graph": ("EGraph",),
    "optimizer": ("EGraphOptimizer",),
    "report": ("FAST", "FULL", "PROFILES", "UNLIMITED", "Report", "Schedule"),
    "rewriting": ("egraph_extract", "egraph_rewrite", "egraph_saturate", "rewrite_all"),
    "terms": ("Rewrite", "TermGraph"),
}
_home_of: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FAST",
    "FULL",
    "OP_COST",
    "PROFILES",
    "QUICK",
    "THOROUGH",
    "UNLIMITED",
    "USUAL",
    "Analysis",
    "EGraph",
    "EGraphOptimizer",
    "Effort",
    "Explanation",
    "Extraction",
    "Fingerprint",
    "Report",
    "Rewrite",
    "Schedule",
    "TermGraph",
    "egraph_extract",
    "egraph_rewrite",
    "egraph_saturate",
    "explain",
    "node_cost",
    "rewrite_all",
    "to_dot",
    "to_json",
]


def __getattr__(name: str) -> Any:
    home = _home_of.get(name)
    if home is None:
        raise AttributeError(f"module 'opgraft_egraph' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"opgraft_egraph.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
