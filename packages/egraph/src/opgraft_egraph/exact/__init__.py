"""Extraction by DAG cost: the cheapest terms for some classes, each chosen node paid once.

`solve` goes from quick to exact and stops where its effort ends: the tree optimum, greedy choices
that count shared parts once, local search, then branch and bound over what reductions leave, or an
integer program where SciPy is installed. Names are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opgraft_egraph.exact.effort import QUICK, THOROUGH, USUAL, Effort
    from opgraft_egraph.exact.problem import Problem, Solution
    from opgraft_egraph.exact.solver import solve, tree_optimum

_HOME_OF: Final = {
    **dict.fromkeys(("QUICK", "THOROUGH", "USUAL", "Effort"), "effort"),
    **dict.fromkeys(("Problem", "Solution"), "problem"),
    **dict.fromkeys(("solve", "tree_optimum"), "solver"),
}
__all__ = [
    "QUICK",
    "THOROUGH",
    "USUAL",
    "Effort",
    "Problem",
    "Solution",
    "solve",
    "tree_optimum",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'opgraft_egraph.exact' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"opgraft_egraph.exact.{home}"), name)
    globals()[name] = found
    return found
