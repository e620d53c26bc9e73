"""The driver's compiler: from OpenCL C to a program, and to a binary for the cache."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from typing import Any, Final

from opgraft.api import Compiler, Target, errors
from opgraft_cl import context, driver
from opgraft_cl._abi import ffi
from opgraft_cl.context import Context

_SEAL: Final = 4
"""Bytes before a binary that tell whether it is whole: drivers end the process on a part of one."""
_LINKS_ITSELF: Final = (7, 2)
"""The version of PoCL from which it may need no program to link kernels; before, it ends the
process where it does not find one."""


def options(target: Target) -> str:
    """What docs/meaning.md asks of the compiler."""
    exact = dict(target.extra).get("exact_division")
    return "-cl-std=CL1.2 -w" + (" -cl-fp32-correctly-rounded-divide-sqrt" if exact else "")


class ClCompiler(Compiler):
    """The compiler of one device's driver."""

    def __init__(self, target: Target) -> None:
        self._context = context.context(int(dict(target.extra).get("index", 0)))
        self._options = options(target)
        found, ask = self._context.found, self._context.library.clGetDeviceInfo
        versions = [driver.text(ask, found.device, key) for key in (0x102D, 0x102F, 0x103D)]
        platform = driver.text(self._context.library.clGetPlatformInfo, found.platform, 0x901)
        self.key = "\n".join((found.label, platform, *versions, self._options, "sealed"))

    def compile(self, source: str) -> bytes:
        program = from_source(self._context, source, self._options)
        try:
            data = _binary(self._context, program)
            return zlib.crc32(data).to_bytes(_SEAL, "little") + data
        finally:
            self._context.library.clReleaseProgram(program)


def from_source(context: Context, source: str, options: str) -> Any:
    """A built program; raises `CompileError` with the driver's build log."""
    check_linker(context)
    data = ffi.new("char[]", source.encode())
    texts = ffi.new("char *[]", [data])
    create = context.library.clCreateProgramWithSource
    program = driver.made(create, "reading a source", context.handle, 1, texts, ffi.NULL)
    return _built(context, program, options)


def from_binary(context: Context, binary: bytes, options: str) -> Any:
    """A built program of what `ClCompiler` made; raises `DeviceError` or `CompileError` where it is
    not whole, or the driver refuses it."""
    check_linker(context)
    made = binary[_SEAL:]
    if not made or zlib.crc32(made).to_bytes(_SEAL, "little") != binary[:_SEAL]:
        raise errors.DeviceError(f"CL: a binary of {len(binary)} bytes is not whole")
    data = ffi.from_buffer("unsigned char[]", made)
    create = context.library.clCreateProgramWithBinary
    program = driver.made(
        create, "loading a binary", context.handle, 1, ffi.new("cl_device_id[]",
        [context.found.device]), ffi.new("size_t[]", [len(made)]),
        ffi.new("unsigned char *[]", [data]), ffi.new("cl_int *"),
    )  # fmt: skip
    return _built(context, program, options)


def check_linker(context: Context) -> None:
    """Raise `DeviceError` where the driver would look for a linker in vain, and end the process.

    A kernel is linked when it is built or first launched, and not again as long as the driver's
    own cache has it; whether it does cannot be asked.
    """
    ask = context.library.clGetPlatformInfo
    version = re.search(r"PoCL (\d+)\.(\d+)", driver.text(ask, context.found.platform, 0x901))
    if not version or tuple(map(int, version.groups())) >= _LINKS_ITSELF:
        return
    path = os.environ.get("PATH", "")
    folders = f"{path}{os.pathsep}{os.environ.get('COMPILER_PATH', '')}".strip(os.pathsep)
    if not any(shutil.which(name, path=folders) for name in ("ld", "ld.lld")):
        raise errors.DeviceError(
            f"CL: {context.found.label} links kernels with ld, which is not in PATH={path}",
            remedy="Install it (apt install binutils), or add its folder to PATH.",
        )


def _built(context: Context, program: Any, options: str) -> Any:
    library, device = context.library, context.found.device
    devices = ffi.new("cl_device_id[]", [device])
    code = library.clBuildProgram(program, 1, devices, options.encode(), ffi.NULL, ffi.NULL)
    if code == 0:
        return program
    log = driver.text(library.clGetProgramBuildInfo, program, device, 0x1183)
    library.clReleaseProgram(program)
    name = driver.code_name(code)
    said = log or "its build log is empty"
    raise errors.CompileError(f"the compiler of {context.found.label} says {name}:\n{said}")


def _binary(context: Context, program: Any) -> bytes:
    """What the driver made of a source for its one device."""
    ask = context.library.clGetProgramInfo
    size = driver.number(ask, program, 0x1165)
    data = ffi.new("unsigned char[]", size)
    pointers = ffi.new("unsigned char *[]", [data])
    code = ask(program, 0x1166, ffi.sizeof(pointers), pointers, ffi.NULL)
    driver.check(code, "reading a binary")
    return bytes(ffi.buffer(data))
