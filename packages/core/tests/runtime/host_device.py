"""A device in a few lines, on bytearrays: what a backend author has to write, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opgraft.dtype import Scalar, dtypes
from opgraft.errors import DeviceError, DeviceMemoryError
from opgraft.runtime import Allocator, Buffer, CompilerSet, Device, Executable, Program
from opgraft.target import Target

LIMIT = 1 << 20


class HostAllocator(Allocator):
    """A handle is a memoryview of a bytearray; at most LIMIT bytes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.freed: list[int] = []

    def alloc(self, nbytes: int) -> memoryview:
        if nbytes > LIMIT:
            raise DeviceMemoryError(f"HOST: {nbytes} bytes are too many")
        return memoryview(bytearray(nbytes))

    def free(self, handle: memoryview, nbytes: int) -> None:
        self.freed.append(nbytes)

    def copy_in(self, handle: memoryview, source: memoryview) -> None:
        handle[: source.nbytes] = source

    def copy_out(self, handle: memoryview, target: memoryview) -> None:
        target[:] = handle[: target.nbytes]

    def copy(self, target: memoryview, source: memoryview, nbytes: int) -> None:
        target[:nbytes] = source[:nbytes]

    def view(self, handle: memoryview, offset: int, nbytes: int) -> memoryview:
        return handle[offset : offset + nbytes]


class HostExecutable(Executable):
    """A Python function of the handles and the variables."""

    def __init__(self, function: Callable[..., None], program: Program) -> None:
        self.program = program
        self.function = function

    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[Scalar] = (), wait: bool = False
    ) -> float | None:
        self.function(*(buffer.handle for buffer in buffers), *variables)
        return 0.5 if wait else None


class HostDevice(Device):
    """Loads nothing: its kernels are made by `kernel`."""

    def __init__(self, index: int = 0) -> None:
        target = Target("HOST")
        super().__init__("HOST", index, target, HostAllocator(), CompilerSet("HOST", target))

    def load(self, program: Program) -> Executable:
        raise DeviceError("HOST runs Python functions only")

    def kernel(self, function: Callable[..., None], slots: int, **facts: object) -> Executable:
        program = Program(function.__name__, params=((dtypes.uint8, 1),) * slots, **facts)  # type: ignore[arg-type]
        return HostExecutable(function, program)
