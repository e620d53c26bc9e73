"""A device in plain Python: memory is bytearrays, kernels are evaluated element by element.

It runs kernels of the form `out[i] = f(in[i], ...)` alone, which is all that the tests ask of it.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence

from opgraft.api import (
    Allocator,
    Buffer,
    CompilerSet,
    Device,
    Executable,
    Ops,
    Program,
    Target,
    UOp,
    dtypes,
    errors,
    evaluate,
)

TARGET = Target("SAMPLE", compute=frozenset(dtypes.all), vector_bytes=0, cores=1, parallel=None)


class SampleAllocator(Allocator):
    """Handles are memoryviews."""

    def alloc(self, nbytes: int) -> memoryview:
        return memoryview(bytearray(nbytes))

    def free(self, handle: memoryview, nbytes: int) -> None:
        return

    def copy_in(self, handle: memoryview, source: memoryview) -> None:
        handle[: source.nbytes] = source

    def copy_out(self, handle: memoryview, target: memoryview) -> None:
        target[:] = handle[: target.nbytes]

    def copy(self, target: memoryview, source: memoryview, nbytes: int) -> None:
        target[:nbytes] = source[:nbytes]

    def view(self, handle: memoryview, offset: int, nbytes: int) -> memoryview:
        return handle[offset : offset + nbytes]


class SampleExecutable(Executable):
    """Walks the linear program, loop by loop."""

    def __init__(self, device: SampleDevice, program: Program) -> None:
        self.device, self.program = device, program

    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[int] = (), wait: bool = False
    ) -> float | None:
        self.device.check_process()
        begin = time.perf_counter()
        linear = self.program.linear
        assert linear is not None
        memory = [b.handle.cast("i") for b in buffers]
        loops = [n for n in linear.instructions if n.op is Ops.RANGE]
        stores = [n for n in linear.instructions if n.op is Ops.STORE]
        if len(loops) != 1 or any(b.dtype is not dtypes.int32 for b in linear.params):
            raise errors.DeviceError("SAMPLE runs simple loops over int32 alone")
        for i in range(loops[0].src[0].arg):
            for store in stores:
                place = evaluate(store.src[1], {loops[0]: i})
                known: dict[UOp, object] = {loops[0]: i}
                for n in store.src[2].toposort():
                    if n.op is Ops.LOAD:
                        known[n] = memory[n.src[0].arg[0]][evaluate(n.src[1], {loops[0]: i})]
                value = evaluate(store.src[2], known)
                memory[store.src[0].arg[0]][place] = struct.unpack("i", struct.pack("i", value))[0]
        return time.perf_counter() - begin if wait else None


class SampleDevice(Device):
    """Says in the environment of its process that it was opened: tests look for that."""

    def __init__(self, index: int = 0) -> None:
        if index > 1:
            raise errors.DeviceError(f"there are 2 SAMPLE devices, not {index + 1}")
        os.environ["SAMPLE_OPENED"] = str(int(os.environ.get("SAMPLE_OPENED", "0")) + 1)
        super().__init__("SAMPLE", index, TARGET, SampleAllocator(), CompilerSet("SAMPLE", TARGET))

    def load(self, program: Program) -> Executable:
        return SampleExecutable(self, program)

    def close(self) -> None:
        super().close()
        if os.environ.get("SAMPLE_TELL"):
            print(f"closed {self.name}", flush=True)
