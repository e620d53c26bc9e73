"""The CPU as a device: C source, compiled by whichever C compiler is there.

A plugin like anyone's: it hands its device over through the hooks, and imports `opgraft.api`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opgraft.api import CompilerPair, Device, DeviceSpec, Probe, Target, declare, settings

API: Final = (1, 0)

declare(
    "CPU_ARCH",
    str,
    "native",
    "What CPU kernels are compiled for: native, or x86-64-v2, x86-64-v3 (AVX2), x86-64-v4 "
    "(AVX-512). Read when the device is opened.",
    convert=settings.one_of("native", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
    form="an architecture",
)


def _open(index: int) -> Device:
    from opgraft.devices.cpu.device import CpuDevice  # late: loads cffi and the C runtime

    return CpuDevice(index)


def _probe() -> Probe:
    from opgraft.devices.cpu import compilers  # late: only a listing or a choice asks

    return compilers.probe()


def _target() -> Target:
    from opgraft.devices.cpu import host  # late: reads what the system tells of the processor

    return host.detect()


def opgraft_devices() -> Iterable[DeviceSpec]:
    """The CPU."""
    return [
        DeviceSpec(
            name="CPU",
            open=_open,
            probe=_probe,
            priority=10,
            install='a C compiler: apt install gcc, or pip install "opgraft-core[cc]"',
            description="this machine's processor, through a C compiler",
            target=_target,
        )
    ]


def opgraft_compiler_pairs(device: str) -> Iterable[CompilerPair]:
    """The C compilers, for the CPU."""
    if device.upper() != "CPU":
        return []
    from opgraft.devices.cpu import compilers  # late: brings the renderer

    return compilers.PAIRS
