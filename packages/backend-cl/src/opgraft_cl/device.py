"""An OpenCL device, opened."""

from __future__ import annotations

from opgraft.api import CompilerSet, Device, Program, errors
from opgraft_cl import compiler, hardware
from opgraft_cl.context import Context, context
from opgraft_cl.launch import ClExecutable
from opgraft_cl.memory import ClAllocator


class ClDevice(Device):
    """`CL`, `CL:1`: the devices of all platforms in the order of `driver.devices`."""

    allocator: ClAllocator

    def __init__(self, index: int) -> None:
        self._context: Context = context(index)
        target = hardware.detect(self._context.found, index)
        pairs = CompilerSet("CL", target)  # the plugin's pairs come in when it is opened
        super().__init__("CL", index, target, ClAllocator(self._context), pairs)

    def load(self, program: Program) -> ClExecutable:
        self._context.check()
        options, here = compiler.options(self.target), self._context
        try:
            built = compiler.from_binary(here, program.binary, options)
        except errors.OpgraftError:  # made by a driver of the same name that is not the same
            built = compiler.from_source(here, program.source, options)
        return ClExecutable(here, program, built)

    def synchronize(self) -> None:
        self._context.finish()

    def close(self) -> None:
        super().close()
        self._context.finish()
        self.allocator.close()
