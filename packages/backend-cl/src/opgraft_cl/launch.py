"""Launches: a kernel of a program with its arguments."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from opgraft.api import Buffer, Executable, Program, Scalar, errors, value_to_bits
from opgraft_cl import driver
from opgraft_cl._abi import ffi
from opgraft_cl.context import Context
from opgraft_cl.memory import Memory


class ClExecutable(Executable):
    """A kernel object. Its arguments are state, so the context's lock is held while they are set
    and the kernel is queued; what has not changed since the last launch is not set again."""

    def __init__(self, context: Context, program: Program, built: Any) -> None:
        self.program = program
        self._context = context
        library = context.library
        entry = (program.entry or program.name).encode()
        try:
            self._kernel = driver.made(library.clCreateKernel, program.name, built, entry)
        finally:
            library.clReleaseProgram(built)  # the kernel keeps it
        weakref.finalize(self, _release, library, context, self._kernel).atexit = False
        self._set: list[object] = [None] * (2 * len(program.params) + len(program.variables))
        self._offset = ffi.new("cl_ulong *")
        varies = any(not isinstance(count, int) for count in program.launch[0])
        self._fixed = None if varies else self._grid(())
        threads = math.prod(program.launch[1])
        ask, device = library.clGetKernelWorkGroupInfo, context.found.device
        most = driver.number(ask, self._kernel, device, 0x11B0)
        if most and threads > most:
            raise errors.DeviceError(
                f"{program.name}: groups of {threads} threads are more than the {most} that "
                f"{context.found.label} has room for with this kernel"
            )

    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[Scalar] = (), wait: bool = False
    ) -> float | None:
        context, library = self._context, self._context.library
        context.check()
        self.program.check_arguments(buffers, variables)
        handles = [buffer.handle for buffer in buffers]
        for slot, handle in enumerate(handles):
            if type(handle) is not Memory:
                there = buffers[slot].device.name
                raise errors.DeviceError(f"{self.program.name}: buffer {slot} is on {there}")
        dimensions, total, local = self._fixed or self._grid(variables)
        if not dimensions:  # no groups
            return 0.0 if wait else None
        if wait:
            context.finish()  # the queue that takes times is another one
        with context.lock:
            self._bind(handles, variables)
            number = context.launched + 1
            for handle in handles:
                handle.root.used = number
            event = ffi.new("cl_event *") if wait else ffi.NULL
            code = library.clEnqueueNDRangeKernel(
                context.side if wait else context.queue, self._kernel, dimensions, ffi.NULL, total,
                local, 0, ffi.NULL, event,
            )  # fmt: skip
            context.launched = number
        if code:
            driver.check(code, f"launching {self.program.name}")
        if not wait:
            library.clFlush(context.queue)
            return None
        seconds = self._timed(event)
        context.done = max(context.done, number)
        return seconds

    def _grid(self, variables: Sequence[Scalar]) -> tuple[int, Any, Any]:
        """Dimensions (0: nothing to run), threads in all, threads of a group."""
        groups, threads = self.program.grid(variables) if variables else self.program.launch
        total = ffi.new("size_t[3]", [g * t for g, t in zip(groups, threads)] or [1])
        local = ffi.new("size_t[3]", list(threads) or [1])
        return 0 if 0 in groups else max(1, len(groups)), total, local

    def _bind(self, handles: Sequence[Memory], variables: Sequence[Scalar]) -> None:
        """Set the arguments, as renderer.py orders them, that differ from the last launch's."""
        place, was, offset = 0, self._set, self._offset
        for handle in handles:
            # the pointer stands for the allocation, and is kept here so that no other gets it
            if was[place] is not handle.argument:
                self._argument(place, 8, handle.argument, handle.argument)
            if was[place + 1] != handle.offset:
                offset[0] = handle.offset
                self._argument(place + 1, 8, offset, handle.offset)
            place += 2
        for variable, value in zip(self.program.variables, variables):
            size, bits = variable.dtype.itemsize, value_to_bits(value, variable.dtype)
            if was[place] != bits:
                self._argument(place, size, bits.to_bytes(size, sys.byteorder), bits)
            place += 1

    def _argument(self, place: int, size: int, data: Any, stands_for: object) -> None:
        code = self._context.library.clSetKernelArg(self._kernel, place, size, data)
        driver.check(code, f"giving {self.program.name} its argument {place}")
        self._set[place] = stands_for

    def _timed(self, event: Any) -> float:
        library = self._context.library
        try:
            driver.check(library.clWaitForEvents(1, event), f"running {self.program.name}")
            ask = library.clGetEventProfilingInfo
            begin, end = (driver.number(ask, event[0], key) for key in (0x1282, 0x1283))
        finally:
            library.clReleaseEvent(event[0])
        return (end - begin) * 1e-9


def _release(library: Any, context: Context, kernel: Any) -> None:
    context.release(library.clReleaseKernel, kernel)
