"""opgraft: an array-kernel compiler that you assemble with pip. The public face: names alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from opgraft import errors, port, settings
from opgraft.settings import using

if TYPE_CHECKING:
    from opgraft.catalog import Device
    from opgraft.dtype import DType, dtypes
    from opgraft.ir.matcher import EqualitySet, PatternMatcher
    from opgraft.ir.ops import GroupOp, Ops
    from opgraft.ir.pattern import UPat
    from opgraft.ir.rewrite import graph_rewrite
    from opgraft.ir.uop import UOp
    from opgraft.rules.sets import sym, symbolic, symbolic_simple
    from opgraft.rules.simplify import simplify

    __version__: str

# Where each name lives. A name is imported when it is first asked for.
_HOMES: Final = {
    "DType": "opgraft.dtype",
    "Device": "opgraft.catalog",
    "EqualitySet": "opgraft.ir.matcher",
    "GroupOp": "opgraft.ir.ops",
    "Ops": "opgraft.ir.ops",
    "PatternMatcher": "opgraft.ir.matcher",
    "UOp": "opgraft.ir.uop",
    "UPat": "opgraft.ir.pattern",
    "dtypes": "opgraft.dtype",
    "graph_rewrite": "opgraft.ir.rewrite",
    "simplify": "opgraft.rules.simplify",
    "sym": "opgraft.rules.sets",
    "symbolic": "opgraft.rules.sets",
    "symbolic_simple": "opgraft.rules.sets",
}

__all__ = [
    "DType",
    "Device",
    "EqualitySet",
    "GroupOp",
    "Ops",
    "PatternMatcher",
    "UOp",
    "UPat",
    "__version__",
    "dtypes",
    "errors",
    "graph_rewrite",
    "settings",
    "simplify",
    "sym",
    "symbolic",
    "symbolic_simple",
    "using",
]


settings.on_unknown(port.find_setting)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        found: Any = _version()
    elif name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'opgraft' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """What setuptools-scm wrote at build time; in a bare checkout, a placeholder."""
    try:
        return str(importlib.import_module("opgraft._version").__version__)
    except ModuleNotFoundError:
        return "0.1.0.dev0+checkout"
