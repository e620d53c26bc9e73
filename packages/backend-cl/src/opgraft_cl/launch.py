"""Launches: a kernel of a program with its arguments."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Sequence
from functools import partial
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
        release = library.clReleaseKernel
        weakref.finalize(self, context.release, release, self._kernel).atexit = False
        self._set: list[object] = [None] * (2 * len(program.params) + len(program.variables))
        self._given: list[tuple[int, int]] | None = None
        """Id and size of each memory of the last launch, where these are all its arguments."""
        self._handles: list[Memory] = []
        self._offset = ffi.new("cl_ulong *")
        self._launch: partial[int] | None = None
        """Queues the kernel, given where to put its event; None: it has no groups."""
        self._varies = any(not isinstance(count, int) for count in program.launch[0])
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
        given = [(id(buffer.handle), buffer.nbytes) for buffer in buffers]
        context = self._context
        lock = context.lock
        lock.acquire()
        try:
            if given != self._given or variables or context.forked:
                self._prepare(buffers, variables)
                self._given = None if variables else given
            launch = self._launch
            if wait or launch is None:
                return self._timed() if wait else None
            event = context.counted()
            number = context.launched
            for handle in self._handles:
                handle.root.used = number
            code = launch(event)
            if code:
                driver.check(code, f"launching {self.program.name}")
            context.flush()
        finally:
            lock.release()
        return None

    def _timed(self) -> float:
        """A launch on the queue that takes times, once all before it is done."""
        context, launch, event = self._context, self._launch, ffi.new("cl_event *")
        context.finish()
        if launch is None:
            return 0.0
        doing = f"launching {self.program.name}"
        driver.check(launch.func(context.side, *launch.args[1:], event), doing)
        begin, end = context.wait(event, doing, 0x1282, 0x1283)
        return (end - begin) * 1e-9

    def _prepare(self, buffers: Sequence[Buffer], variables: Sequence[Scalar]) -> None:
        """Check arguments that are not those of the last launch, and give them to the kernel."""
        self._context.check()
        program, self._given = self.program, None
        program.check_arguments(buffers, variables)
        handles = [buffer.handle for buffer in buffers]
        for slot, handle in enumerate(handles):
            if type(handle) is not Memory:
                there = buffers[slot].device.name
                raise errors.DeviceError(f"{program.name}: buffer {slot} is on {there}")
        self._bind(handles, variables)
        if self._varies or not self._handles:
            groups, threads = program.grid(variables)
            total = ffi.new("size_t[3]", [g * t for g, t in zip(groups, threads)] or [1])
            local, none = ffi.new("size_t[3]", list(threads) or [1]), ffi.NULL
            self._launch = None if 0 in groups else partial(
                self._context.library.clEnqueueNDRangeKernel, self._context.queue, self._kernel,
                max(1, len(groups)), none, total, local, 0, none,
            )  # fmt: skip
        self._handles = handles

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
