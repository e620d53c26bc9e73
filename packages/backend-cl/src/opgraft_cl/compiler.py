"""The driver's compiler: from OpenCL C to a program, and to a binary for the cache."""

from __future__ import annotations

from typing import Any

from opgraft.api import Compiler, Target, errors
from opgraft_cl import context, driver
from opgraft_cl._abi import ffi
from opgraft_cl.context import Context


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
        self.key = "\n".join((found.label, platform, *versions, self._options))

    def compile(self, source: str) -> bytes:
        program = from_source(self._context, source, self._options)
        try:
            return _binary(self._context, program)
        finally:
            self._context.library.clReleaseProgram(program)


def from_source(context: Context, source: str, options: str) -> Any:
    """A built program; raises `CompileError` with the driver's build log."""
    data = ffi.new("char[]", source.encode())
    texts = ffi.new("char *[]", [data])
    create = context.library.clCreateProgramWithSource
    program = driver.made(create, "reading a source", context.handle, 1, texts, ffi.NULL)
    return _built(context, program, options)


def from_binary(context: Context, binary: bytes, options: str) -> Any:
    """A built program; raises `DeviceError` or `CompileError` where the driver refuses it."""
    data = ffi.from_buffer("unsigned char[]", binary)
    create = context.library.clCreateProgramWithBinary
    program = driver.made(
        create, "loading a binary", context.handle, 1, ffi.new("cl_device_id[]",
        [context.found.device]), ffi.new("size_t[]", [len(binary)]),
        ffi.new("unsigned char *[]", [data]), ffi.new("cl_int *"),
    )  # fmt: skip
    return _built(context, program, options)


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
