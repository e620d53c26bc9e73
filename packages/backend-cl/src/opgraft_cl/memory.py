"""Memory of an OpenCL device: allocations, and parts of them at any offset.

A view is an offset into its root's cl_mem, which kernels add to the pointer themselves. OpenCL's
own sub-buffers would have to begin at a multiple of CL_DEVICE_MEM_BASE_ADDR_ALIGN (128 bytes to
4 KiB), and may not be used in one kernel with an overlapping one.
"""

from __future__ import annotations

from typing import Any, Final

from opgraft.api import KeepingAllocator, errors
from opgraft_cl import driver
from opgraft_cl._abi import ffi
from opgraft_cl.context import Context

_SMALL: Final = 1 << 14
"""Bytes up to which a copy to the device is cheaper made twice than waited for."""


class Memory:
    """`offset` bytes into `mem`. Of the root, `used` is the launch that used it last."""

    __slots__ = ("argument", "mem", "offset", "root", "used")

    def __init__(self, mem: Any, offset: int = 0, root: Memory | None = None) -> None:
        self.mem = mem
        self.offset = offset
        self.root = self if root is None else root
        self.used = 0
        self.argument: Any = ffi.new("cl_mem *", mem) if root is None else root.argument


class ClAllocator(KeepingAllocator):
    """Handles are `Memory`."""

    def __init__(self, context: Context) -> None:
        ask, device = context.library.clGetDeviceInfo, context.found.device
        super().__init__(context.found.label, driver.number(ask, device, 0x101F))
        self._context = context
        self.largest = driver.number(ask, device, 0x1010)

    def alloc(self, nbytes: int) -> Memory:
        self._context.check()
        if nbytes > self.largest:
            raise errors.DeviceMemoryError(
                f"CL: a buffer of {nbytes} bytes is more than {self.label} allows for one: "
                f"{self.largest} (CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
                remedy="Work on smaller parts.",
            )
        found: Memory = super().alloc(nbytes)
        return found

    def create(self, nbytes: int) -> Memory | None:
        make, handle = self._context.library.clCreateBuffer, self._context.handle
        try:
            return Memory(driver.made(make, "a buffer", handle, 1, nbytes, ffi.NULL))
        except errors.DeviceMemoryError:
            return None

    def destroy(self, handle: Memory) -> None:
        # once what was queued is done with it
        self._context.release(self._context.library.clReleaseMemObject, handle.mem)

    # ---- copies

    def _copied(self, copy: Any, handle: Memory, data: Any, size: int, doing: str) -> None:
        """Copy behind what uses the memory, which may be long before all is done."""
        context, event = self._context, ffi.new("cl_event *")
        context.check()
        with context.lock:
            used = handle.root.used
            before = context.before(used)
            code = copy(
                context.side, handle.mem, 0, handle.offset, size, data, len(before),
                ffi.new("cl_event[]", before) if before else ffi.NULL, event,
            )  # fmt: skip
        driver.check(code, doing)
        context.wait(event, doing)
        context.done = max(context.done, used)

    def copy_in(self, handle: Memory, source: memoryview) -> None:
        if source.nbytes <= _SMALL:
            self._send(handle, bytes(source))
            return
        write, data = self._context.library.clEnqueueWriteBuffer, ffi.from_buffer(source)
        self._copied(write, handle, data, source.nbytes, "copying to the device")

    def _send(self, handle: Memory, data: bytes) -> None:
        """A copy that is not waited for."""
        context, none = self._context, ffi.NULL
        context.check()
        write, size, source = context.library.clEnqueueWriteBuffer, len(data), ffi.from_buffer(data)
        with context.lock:
            event = context.counted()
            handle.root.used = context.launched
            code = write(context.queue, handle.mem, 0, handle.offset, size, source, 0, none, event)
            context.stage(data)
        driver.check(code, "copying to the device")

    def copy_out(self, handle: Memory, target: memoryview) -> None:
        read, data = self._context.library.clEnqueueReadBuffer, ffi.from_buffer(target)
        self._copied(read, handle, data, target.nbytes, "copying from the device")

    def copy(self, target: Memory, source: Memory, nbytes: int) -> None:
        context = self._context
        context.check()
        with context.lock:
            event = context.counted()
            target.root.used = source.root.used = context.launched
            code = context.library.clEnqueueCopyBuffer(
                context.queue, source.mem, target.mem, source.offset, target.offset, nbytes,
                0, ffi.NULL, event,
            )  # fmt: skip
        driver.check(code, "copying within the device")
        context.flush()

    def view(self, handle: Memory, offset: int, nbytes: int) -> Memory:
        return Memory(handle.mem, handle.offset + offset, handle.root)
