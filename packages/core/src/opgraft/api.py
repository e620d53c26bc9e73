"""What a plugin may import, and the version of that promise.

A plugin imports `opgraft.api` and nothing else of core, and says which version it was written
for: `API = (1, 0)` in the module that its entry point names. Within a major version names are
only added; a minor version is added names. A plugin for another major, or for a newer minor, is
refused when it is loaded, with the package to upgrade.

Names are imported when they are first asked for, so a plugin that only brings equalities does
not pay for the runtime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from opgraft import errors, settings
from opgraft.plugins.handshake import API
from opgraft.settings import Setting, declare, using

if TYPE_CHECKING:
    from opgraft.calibration import measured_prices
    from opgraft.dtype import DType, Scalar, dtypes
    from opgraft.forking import ForkLock, renewed_in_children
    from opgraft.ir.evaluate import evaluate, value_to_bits
    from opgraft.ir.launch import over_limits
    from opgraft.ir.linear import KernelInfo, LinearProgram
    from opgraft.ir.matcher import EqualitySet, PatternMatcher
    from opgraft.ir.matrix import DotUnit, MatrixLayout, MatrixUnit
    from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
    from opgraft.ir.pattern import UPat
    from opgraft.ir.rewrite import graph_rewrite
    from opgraft.ir.shapes import array_shape
    from opgraft.ir.text import linear_to_text, node_to_text, parse_linear
    from opgraft.ir.uop import UOp
    from opgraft.plugins.calibration import Calibration
    from opgraft.plugins.command import Command
    from opgraft.plugins.hookspecs import hookimpl
    from opgraft.render.c import CRenderer
    from opgraft.render.cstyle import CStyleRenderer
    from opgraft.render.renderer import Renderer
    from opgraft.render.vectors import VectorRenderer
    from opgraft.render.writer import Writer
    from opgraft.rules.alternatives import alternatives_at
    from opgraft.rules.loops import Loops
    from opgraft.rules.optimizer import (
        Budget,
        CostModel,
        Optimized,
        Optimizer,
        OptimizerSpec,
        Stage,
    )
    from opgraft.rules.sets import sym, symbolic, symbolic_simple
    from opgraft.rules.simplify import simplify
    from opgraft.runtime import (
        Allocator,
        Buffer,
        Compiler,
        CompilerPair,
        CompilerSet,
        Device,
        DeviceSpec,
        Executable,
        InputPlace,
        KeepingAllocator,
        LaunchList,
        Probe,
        Program,
        Step,
        check_inputs,
        compile_cache,
        compile_kernel,
        compile_kernels,
        compile_linear,
        input_places,
        is_watched,
        show_launch,
    )
    from opgraft.target import Target

_HOMES: Final[dict[str, tuple[str, ...]]] = {
    "opgraft.calibration": ("measured_prices",),
    "opgraft.dtype": ("DType", "Scalar", "dtypes"),
    "opgraft.forking": ("ForkLock", "renewed_in_children"),
    "opgraft.ir.evaluate": ("evaluate", "value_to_bits"),
    "opgraft.ir.launch": ("over_limits",),
    "opgraft.ir.linear": ("KernelInfo", "LinearProgram"),
    "opgraft.ir.matcher": ("EqualitySet", "PatternMatcher"),
    "opgraft.ir.matrix": ("DotUnit", "MatrixLayout", "MatrixUnit"),
    "opgraft.ir.ops": ("AxisKind", "GroupOp", "Ops", "Space"),
    "opgraft.ir.pattern": ("UPat",),
    "opgraft.ir.rewrite": ("graph_rewrite",),
    "opgraft.ir.shapes": ("array_shape",),
    "opgraft.ir.text": ("linear_to_text", "node_to_text", "parse_linear"),
    "opgraft.ir.uop": ("UOp",),
    "opgraft.plugins.calibration": ("Calibration",),
    "opgraft.plugins.command": ("Command",),
    "opgraft.plugins.hookspecs": ("hookimpl",),
    "opgraft.render.c": ("CRenderer",),
    "opgraft.render.cstyle": ("CStyleRenderer",),
    "opgraft.render.renderer": ("Renderer",),
    "opgraft.render.vectors": ("VectorRenderer",),
    "opgraft.render.writer": ("Writer",),
    "opgraft.rules.alternatives": ("alternatives_at",),
    "opgraft.rules.loops": ("Loops",),
    "opgraft.rules.optimizer": (
        "Budget",
        "CostModel",
        "Optimized",
        "Optimizer",
        "OptimizerSpec",
        "Stage",
    ),
    "opgraft.rules.sets": ("sym", "symbolic", "symbolic_simple"),
    "opgraft.rules.simplify": ("simplify",),
    "opgraft.runtime": (
        "Allocator",
        "Buffer",
        "Compiler",
        "CompilerPair",
        "CompilerSet",
        "Device",
        "DeviceSpec",
        "Executable",
        "InputPlace",
        "KeepingAllocator",
        "LaunchList",
        "Probe",
        "Program",
        "Step",
        "check_inputs",
        "compile_cache",
        "compile_kernel",
        "compile_kernels",
        "compile_linear",
        "input_places",
        "is_watched",
        "show_launch",
    ),
    "opgraft.target": ("Target",),
}
_home_of: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "API",
    "Allocator",
    "AxisKind",
    "Budget",
    "Buffer",
    "CRenderer",
    "CStyleRenderer",
    "Calibration",
    "Command",
    "Compiler",
    "CompilerPair",
    "CompilerSet",
    "CostModel",
    "DType",
    "Device",
    "DeviceSpec",
    "DotUnit",
    "EqualitySet",
    "Executable",
    "ForkLock",
    "GroupOp",
    "InputPlace",
    "KeepingAllocator",
    "KernelInfo",
    "LaunchList",
    "LinearProgram",
    "Loops",
    "MatrixLayout",
    "MatrixUnit",
    "Ops",
    "Optimized",
    "Optimizer",
    "OptimizerSpec",
    "PatternMatcher",
    "Probe",
    "Program",
    "Renderer",
    "Scalar",
    "Setting",
    "Space",
    "Stage",
    "Step",
    "Target",
    "UOp",
    "UPat",
    "VectorRenderer",
    "Writer",
    "alternatives_at",
    "array_shape",
    "check_inputs",
    "compile_cache",
    "compile_kernel",
    "compile_kernels",
    "compile_linear",
    "declare",
    "dtypes",
    "errors",
    "evaluate",
    "graph_rewrite",
    "hookimpl",
    "input_places",
    "is_watched",
    "linear_to_text",
    "measured_prices",
    "node_to_text",
    "over_limits",
    "parse_linear",
    "renewed_in_children",
    "settings",
    "show_launch",
    "simplify",
    "sym",
    "symbolic",
    "symbolic_simple",
    "using",
    "value_to_bits",
]


def __getattr__(name: str) -> Any:
    home = _home_of.get(name)
    if home is None:
        raise AttributeError(f"opgraft.api {API[0]}.{API[1]} has no name {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
