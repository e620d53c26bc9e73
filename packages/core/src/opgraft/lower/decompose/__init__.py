"""Rewrite what a target lacks into what it has.

Before: any operation in any dtype. After: only operations and dtypes of the target, each at its
exact meaning. One file per concern; every rewrite works on vectors as on scalars.
"""

from __future__ import annotations

from functools import lru_cache

from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.lower.decompose.division import floor_division
from opgraft.lower.decompose.elementary import elementary
from opgraft.lower.decompose.exact import exact
from opgraft.lower.decompose.float_mod import float_mod
from opgraft.lower.decompose.matrix import products
from opgraft.lower.decompose.narrow_float import narrow_floats
from opgraft.lower.decompose.threefry import threefry
from opgraft.lower.decompose.truncation import truncation
from opgraft.lower.decompose.wide_int import split_wide_integers
from opgraft.target import Target

__all__ = ["decompositions", "split_wide_integers"]


@lru_cache(maxsize=64)
def decompositions(target: Target) -> PatternMatcher:
    """The rules that bring a graph to what `target` honours natively."""
    rules = elementary(target)
    if Ops.THREEFRY not in target.ops:
        rules = rules + threefry
    if Ops.TRUNC not in target.ops:
        rules = rules + truncation
    rules = rules + products(target) + floor_division + float_mod
    return rules + narrow_floats(target) + exact
