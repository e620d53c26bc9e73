"""The OpenCL loader: found, opened late, and asked; error names instead of numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from opgraft.api import ForkLock, errors, settings
from opgraft_cl._abi import ffi

INSTALL: Final = (
    "Install a driver: the one of your GPU, or for the CPU `apt install pocl-opencl-icd`. "
    "The setting CL_LIBRARY names a library that is elsewhere."
)
_NAMES: Final = {
    "darwin": ("/System/Library/Frameworks/OpenCL.framework/OpenCL",),
    "win32": ("OpenCL.dll",),
}.get(sys.platform, ("libOpenCL.so.1", "libOpenCL.so", "libOpenCL-1.so.1", "libOpenCL-1.so"))
# never unloaded: drivers have threads, and buffers are released until the very end
_FLAGS: Final = getattr(os, "RTLD_NOW", 2) | getattr(os, "RTLD_NODELETE", 0)

# section "Error codes" of the specification, from 0 and from -30 down
_FROM_0: Final = """SUCCESS DEVICE_NOT_FOUND DEVICE_NOT_AVAILABLE COMPILER_NOT_AVAILABLE
MEM_OBJECT_ALLOCATION_FAILURE OUT_OF_RESOURCES OUT_OF_HOST_MEMORY PROFILING_INFO_NOT_AVAILABLE
MEM_COPY_OVERLAP IMAGE_FORMAT_MISMATCH IMAGE_FORMAT_NOT_SUPPORTED BUILD_PROGRAM_FAILURE MAP_FAILURE
MISALIGNED_SUB_BUFFER_OFFSET EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST COMPILE_PROGRAM_FAILURE
LINKER_NOT_AVAILABLE LINK_PROGRAM_FAILURE DEVICE_PARTITION_FAILED KERNEL_ARG_INFO_NOT_AVAILABLE"""
_FROM_30: Final = """INVALID_VALUE INVALID_DEVICE_TYPE INVALID_PLATFORM INVALID_DEVICE
INVALID_CONTEXT INVALID_QUEUE_PROPERTIES INVALID_COMMAND_QUEUE INVALID_HOST_PTR INVALID_MEM_OBJECT
INVALID_IMAGE_FORMAT_DESCRIPTOR INVALID_IMAGE_SIZE INVALID_SAMPLER INVALID_BINARY
INVALID_BUILD_OPTIONS INVALID_PROGRAM INVALID_PROGRAM_EXECUTABLE INVALID_KERNEL_NAME
INVALID_KERNEL_DEFINITION INVALID_KERNEL INVALID_ARG_INDEX INVALID_ARG_VALUE INVALID_ARG_SIZE
INVALID_KERNEL_ARGS INVALID_WORK_DIMENSION INVALID_WORK_GROUP_SIZE INVALID_WORK_ITEM_SIZE
INVALID_GLOBAL_OFFSET INVALID_EVENT_WAIT_LIST INVALID_EVENT INVALID_OPERATION INVALID_GL_OBJECT
INVALID_BUFFER_SIZE INVALID_MIP_LEVEL INVALID_GLOBAL_WORK_SIZE INVALID_PROPERTY
INVALID_IMAGE_DESCRIPTOR INVALID_COMPILER_OPTIONS INVALID_LINKER_OPTIONS
INVALID_DEVICE_PARTITION_COUNT INVALID_PIPE_SIZE INVALID_DEVICE_QUEUE INVALID_SPEC_ID
MAX_SIZE_RESTRICTION_EXCEEDED"""
_CODES: Final = dict(enumerate(_FROM_0.split())) | dict(enumerate(_FROM_30.split(), 30))
_CODES[1001] = "PLATFORM_NOT_FOUND_KHR"
EXACT_DIVISION: Final = 128
"""CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT of CL_DEVICE_SINGLE_FP_CONFIG."""
NO_MEMORY: Final = (-4, -6, -61)
"""What drivers answer where memory is short. CL_OUT_OF_RESOURCES may be a kernel's fault too."""


def code_name(code: int) -> str:
    """The name that OpenCL's specification has for an error code."""
    return "CL_" + _CODES.get(-code, f"error {code}")


def check(code: int, doing: str) -> None:
    """Raise `DeviceError` for every code but CL_SUCCESS; where memory is short its subclass."""
    if code:
        kind = errors.DeviceMemoryError if code in NO_MEMORY else errors.DeviceError
        raise kind(f"CL: {doing} failed: {code_name(code)}")


def made(create: Callable[..., Any], doing: str, *arguments: Any) -> Any:
    """What a clCreate function gives; raises as `check`."""
    code = ffi.new("cl_int *")
    result = create(*arguments, code)
    check(code[0], doing)
    return result


def read(ask: Callable[..., int], *subject: Any) -> bytes:
    """The bytes that a clGet...Info function tells; empty where it does not know the question."""
    size = ffi.new("size_t *")
    if ask(*subject, 0, ffi.NULL, size) or not size[0]:
        return b""
    data = ffi.new("char[]", size[0])
    check(ask(*subject, size[0], data, ffi.NULL), "a query")
    return bytes(ffi.buffer(data))


def text(ask: Callable[..., int], *subject: Any) -> str:
    """As `read`, of a string."""
    return read(ask, *subject).split(b"\0")[0].decode(errors="replace").strip()


def number(ask: Callable[..., int], *subject: Any) -> int:
    """As `read`, of an integer of any width; 0 where unknown."""
    return int.from_bytes(read(ask, *subject), sys.byteorder)


_loaded: Final[dict[str, Any]] = {}
_lock: Final = ForkLock()


def library() -> Any:
    """The loader, or the library of the setting CL_LIBRARY; raises `DeviceError`."""
    chosen = settings.get("CL_LIBRARY")
    with _lock:
        if chosen not in _loaded:
            tried = []
            for name in (chosen,) if chosen else _NAMES:
                try:
                    _loaded[chosen] = ffi.dlopen(name, _FLAGS)
                    break
                except OSError as error:
                    tried.append((name, str(error)))
            else:
                message = "no OpenCL library can be loaded"
                raise errors.DeviceError(message, tried=tuple(tried), remedy=INSTALL)
        return _loaded[chosen]


class Found(NamedTuple):
    """A device of a platform."""

    library: Any
    platform: Any
    device: Any
    platform_name: str
    name: str
    kind: int
    """CL_DEVICE_TYPE: a GPU has bit 2, an accelerator bit 3, a CPU bit 1."""

    @property
    def version(self) -> tuple[int, ...]:
        """The device's, as in (1, 2)."""
        words = text(self.library.clGetDeviceInfo, self.device, 0x102F).split()
        return tuple(int(n) for n in words[1].split(".")) if len(words) > 1 else (0, 0)

    @property
    def label(self) -> str:
        """For people: "pthread-haswell (Portable Computing Language)"."""
        return f"{self.name} ({self.platform_name})"


def devices() -> list[Found]:
    """All devices that opgraft can use, in a stable order: GPUs, accelerators, CPUs; in each
    kind by platform. The settings CL_PLATFORM and CL_DEVICE choose by a part of the name.

    Raises `DeviceError` that says what is there where nothing is left.
    """
    lib = library()
    count = ffi.new("cl_uint *")
    platforms: list[Any] = []
    if lib.clGetPlatformIDs(0, ffi.NULL, count) == 0 and count[0]:
        ids = ffi.new("cl_platform_id[]", count[0])
        check(lib.clGetPlatformIDs(count[0], ids, ffi.NULL), "listing the platforms")
        platforms = list(ids)
    good: list[tuple[int, str, int, Found]] = []
    tried = []
    for platform in platforms:
        platform_name = text(lib.clGetPlatformInfo, platform, 0x902)
        if lib.clGetDeviceIDs(platform, 0xFFFFFFFF, 0, ffi.NULL, count) or not count[0]:
            tried.append((platform_name, "it has no devices"))
            continue
        handles = ffi.new("cl_device_id[]", count[0])
        check(lib.clGetDeviceIDs(platform, 0xFFFFFFFF, count[0], handles, ffi.NULL), "a listing")
        for place, device in enumerate(handles):
            name = text(lib.clGetDeviceInfo, device, 0x102B)
            kind = number(lib.clGetDeviceInfo, device, 0x1000)
            found = Found(lib, platform, device, platform_name, name, kind)
            reason = _unfit(found)
            if reason:
                tried.append((found.label, reason))
            else:
                rank = 0 if kind & 4 else 1 if kind & 8 else 2
                good.append((rank, platform_name, place, found))
    good.sort(key=lambda row: row[:3])
    if not good:
        message = "OpenCL has no device that can be used"
        raise errors.DeviceError(message, tried=tuple(tried), remedy=INSTALL)
    return [row[3] for row in good]


def _unfit(found: Found) -> str:
    """Why a device cannot be used; empty where it can."""
    ask, device = found.library.clGetDeviceInfo, found.device
    for setting, name in (("CL_PLATFORM", found.platform_name), ("CL_DEVICE", found.name)):
        wanted = settings.get(setting)
        if wanted and wanted.lower() not in name.lower():
            return f"{setting} is {wanted}"
    if found.version < (1, 2):
        return "it has OpenCL {}.{}, and 1.2 is needed".format(*found.version)
    if not (number(ask, device, 0x1027) and number(ask, device, 0x1028)):
        return "it, or its compiler, is not available"
    if text(ask, device, 0x102E) != "FULL_PROFILE" or not number(ask, device, 0x1026):
        return "it is of the embedded profile, or big-endian"
    if not (number(ask, device, 0x101B) & EXACT_DIVISION or number(ask, device, 0x1032)):
        return "it neither divides exactly nor has float64 to do so"
    return ""
