"""The IR: nodes, patterns and rewriting. Light to import: it needs nothing but Python."""

from __future__ import annotations

from opgraft.ir import bounds, text  # they fill in vmin, vmax and repr
from opgraft.ir.matcher import EqualitySet, PatternMatcher
from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
from opgraft.ir.pattern import UPat
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.rule import Rule
from opgraft.ir.trace import Trace, tracing
from opgraft.ir.uop import UOp, substitute, toposort

__all__ = [
    "AxisKind",
    "EqualitySet",
    "GroupOp",
    "Ops",
    "PatternMatcher",
    "Rule",
    "Space",
    "Trace",
    "UOp",
    "UPat",
    "bounds",
    "graph_rewrite",
    "substitute",
    "text",
    "toposort",
    "tracing",
]
