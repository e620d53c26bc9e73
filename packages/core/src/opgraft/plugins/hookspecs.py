"""The hooks: what a plugin may offer. Their docstrings are the contract.

A plugin's module defines any of these functions, by name; the marker `hookimpl` is needed only
to pass options to pluggy. With a line `HOOKS = ("opgraft_commands",)` it says which: then it is not
imported for others. An implementation may leave out arguments that it does not use. Hooks
are called once per process and plugin (`opgraft_compiler_pairs` once per device), never inside
a rewrite loop, and must start no driver: they return descriptions whose factories do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    from opgraft.ir.matcher import EqualitySet
    from opgraft.plugins.calibration import Calibration
    from opgraft.plugins.command import Command
    from opgraft.rules.optimizer import OptimizerSpec
    from opgraft.runtime.compiler import CompilerPair
    from opgraft.runtime.device import DeviceSpec

PROJECT: Final = "opgraft"
PREFIX: Final = "opgraft_"

hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)


@hookspec
def opgraft_devices() -> Iterable[DeviceSpec]:  # type: ignore[empty-body]
    """Kinds of devices: name, factory, cheap probe, what to install when absent."""


@hookspec
def opgraft_compiler_pairs(device: str) -> Iterable[CompilerPair]:  # type: ignore[empty-body]
    """Renderer and compiler pairs for the device named `device` ("CPU"), one's own or another's.

    Return an empty list for devices that are not yours to compile for.
    """


@hookspec
def opgraft_optimizers() -> Iterable[OptimizerSpec]:  # type: ignore[empty-body]
    """Optimizers that the setting OPTIMIZER can name."""


@hookspec
def opgraft_equalities() -> Mapping[str, EqualitySet]:  # type: ignore[empty-body]
    """Further equalities by stage ("index", "scalar" or "tensor")."""


@hookspec
def opgraft_commands() -> Iterable[Command]:  # type: ignore[empty-body]
    """Subcommands of the command line."""


@hookspec
def opgraft_calibrations() -> Iterable[Calibration]:  # type: ignore[empty-body]
    """Steps of `opgraft calibrate`: what else to measure on a device, and keep with it."""


HOOKS: Final = (
    "opgraft_devices",
    "opgraft_compiler_pairs",
    "opgraft_optimizers",
    "opgraft_equalities",
    "opgraft_commands",
    "opgraft_calibrations",
)
