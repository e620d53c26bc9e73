"""Extraction by DAG cost: the cheapest terms for some classes, each chosen node paid once.

`solve` goes from quick to exact and stops at its deadline: the tree optimum, greedy choices that
count shared parts once, local search, then branch and bound over what reductions leave, or an
integer program where SciPy is installed.
"""

from __future__ import annotations

from opgraft_egraph.exact.problem import Problem, Solution
from opgraft_egraph.exact.solve import solve, tree_optimum

__all__ = ["Problem", "Solution", "solve", "tree_optimum"]
