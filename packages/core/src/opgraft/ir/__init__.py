"""The IR: nodes, patterns and rewriting. Light to import: it needs nothing but Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opgraft.ir import bounds, text
    from opgraft.ir.matcher import EqualitySet, PatternMatcher
    from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
    from opgraft.ir.pattern import UPat
    from opgraft.ir.rewrite import graph_rewrite
    from opgraft.ir.rule import Rule
    from opgraft.ir.trace import Trace, tracing
    from opgraft.ir.uop import UOp, substitute, toposort

# Where each name lives. A name is imported when it is first asked for: a process that finds its
# kernels in the cache makes nodes and rewrites none.
_HOMES: Final = {
    "AxisKind": "ops",
    "EqualitySet": "matcher",
    "GroupOp": "ops",
    "Ops": "ops",
    "PatternMatcher": "matcher",
    "Rule": "rule",
    "Space": "ops",
    "Trace": "trace",
    "UOp": "uop",
    "UPat": "pattern",
    "graph_rewrite": "rewrite",
    "substitute": "uop",
    "toposort": "uop",
    "tracing": "trace",
}

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found: Any = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in ("bounds", "text"):
        found = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
