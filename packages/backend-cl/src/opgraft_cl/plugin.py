"""What opgraft-cl offers: the device CL and its compiler pairs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from opgraft.api import CompilerPair, Device, DeviceSpec, Probe, Target, declare, errors

if TYPE_CHECKING:
    from opgraft.api import Compiler, Renderer

API: Final = (1, 0)
HOOKS: Final = ("opgraft_devices", "opgraft_compiler_pairs")

declare("CL_LIBRARY", str, "", "The OpenCL library to load: a name or a path; empty: the system's.")
declare("CL_PLATFORM", str, "", "Part of the name of the OpenCL platform to use; empty: all.")
declare("CL_DEVICE", str, "", "Part of the name of the OpenCL devices to use; empty: all.")
declare(
    "CL_LANES",
    int,
    0,
    "Threads in lockstep that schedules are made for; 0: what the driver says, 1 on processors.",
)

_VENDORS: Final = "/etc/OpenCL/vendors"
_CPU_DRIVERS: Final = ("pocl", "oclgrind", "intel-cpu", "intel-fpga", "intel64", "intelocl")
_GPU_NODES: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128", "/dev/mali0")


def _drivers() -> list[str]:
    """The names of the drivers that are installed, where the system keeps a list of them."""
    folder = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH") or _VENDORS
    try:
        return sorted(n for n in os.listdir(folder) if n.endswith(".icd"))
    except OSError:
        return [folder] if os.path.exists(folder) and folder != _VENDORS else []


def _probe() -> Probe:
    from opgraft_cl import driver  # late: brings cffi

    try:
        driver.library()
    except errors.OpgraftError as error:
        return Probe(0, str(error))
    if sys.platform.startswith("linux") and not _drivers():
        return Probe(0, f"the OpenCL loader is there, but no driver is registered in {_VENDORS}")
    return Probe(max(1, len(_drivers())))


def _priority() -> int:
    """Above the CPU's 10 where a GPU seems to have a driver: else OpenCL runs on the CPU as well,
    where plain C does better."""
    gpu = sys.platform == "darwin" or (
        any(map(os.path.exists, _GPU_NODES))
        and any(not name.startswith(_CPU_DRIVERS) for name in _drivers())
    )
    return 20 if gpu else 5


def _open(index: int) -> Device:
    from opgraft_cl.device import ClDevice  # late: loads the driver

    return ClDevice(index)


def _target() -> Target:
    from opgraft_cl import hardware  # late, as above

    return hardware.FALLBACK


def opgraft_devices() -> Iterable[DeviceSpec]:
    """Every device with an OpenCL driver."""
    return [
        DeviceSpec(
            name="CL",
            open=_open,
            probe=_probe,
            priority=_priority(),
            install="an OpenCL driver: your GPU's, or `apt install pocl-opencl-icd` for the CPU",
            description="GPUs, CPUs and accelerators through OpenCL 1.2 or later",
            target=_target,
        )
    ]


def _compiler(target: Target) -> Compiler:
    from opgraft_cl.compiler import ClCompiler  # late: asks the driver

    return ClCompiler(target)


def _matrix_compiler(target: Target) -> Compiler:
    if not dict(target.extra).get("subgroup_matrix"):
        raise errors.DeviceError(
            f"{target.arch} lacks cl_intel_subgroup_matrix_multiply_accumulate",
            remedy="The pair CL serves every device.",
        )
    return _compiler(target)


def _renderer(target: Target) -> Renderer:
    from opgraft_cl.renderer import renderer  # late: most processes find their kernels cached

    return renderer(target)


def _matrix_renderer(target: Target) -> Renderer:
    from opgraft_cl.renderer import SubgroupRenderer  # late, as above

    return SubgroupRenderer(target)


_PAIRS: Final = (
    CompilerPair("CL", "CL", _renderer, _compiler, 10, "the driver's own compiler"),
    CompilerPair(
        "INTEL", "CL", _matrix_renderer, _matrix_compiler, 0,
        "the same in subgroups, for devices with Intel's matrix units; not run on one yet",
    ),
)  # fmt: skip


def opgraft_compiler_pairs(device: str) -> Iterable[CompilerPair]:
    """The driver's compiler, in two ways."""
    return _PAIRS if device.upper() == "CL" else ()
