"""INTERP: kernels interpreted with NumPy, the oracle and the device of a machine without compiler.

A plugin like anyone's: it hands its device over through the hooks, and imports `opgraft.api`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opgraft.api import CompilerPair, Device, DeviceSpec, Probe

API: Final = (1, 0)


def _open(index: int) -> Device:
    from opgraft.devices.interp.device import InterpDevice  # late: loads NumPy

    return InterpDevice(index)


def opgraft_devices() -> Iterable[DeviceSpec]:
    """INTERP; the default only where nothing else opens."""
    return [
        DeviceSpec(
            name="INTERP",
            open=_open,
            probe=lambda: Probe(1),
            priority=0,
            description="interprets kernels with NumPy: slow, needs no compiler, the oracle",
        )
    ]


def opgraft_compiler_pairs(device: str) -> Iterable[CompilerPair]:
    """The text form, for INTERP."""
    if device.upper() != "INTERP":
        return []
    from opgraft.devices.interp.device import PAIRS  # late: loads NumPy

    return PAIRS
