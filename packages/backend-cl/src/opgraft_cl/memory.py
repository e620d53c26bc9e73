"""Memory of an OpenCL device: allocations, and parts of them at any offset.

A view is an offset into its root's cl_mem, which kernels add to the pointer themselves. OpenCL's
own sub-buffers would have to begin at a multiple of CL_DEVICE_MEM_BASE_ADDR_ALIGN (128 bytes to
4 KiB), and may not be used in one kernel with an overlapping one.

Freed allocations are kept for the next of their size: what was queued before still finds them.
"""

from __future__ import annotations

import gc
from collections import deque
from typing import Any, Final

from opgraft.api import Allocator, ForkLock, errors
from opgraft_cl import driver
from opgraft_cl._abi import ffi
from opgraft_cl.context import Context

_GRAIN: Final = 256
"""Sizes of allocations are rounded up to this, so that more of them fit again."""

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


class ClAllocator(Allocator):
    """Handles are `Memory`."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context
        ask, device = context.library.clGetDeviceInfo, context.found.device
        self.largest = driver.number(ask, device, 0x1010)
        self.limit = driver.number(ask, device, 0x101F)
        self._release: Any = context.library.clReleaseMemObject
        self._freed: deque[tuple[int, Memory]] = deque()
        self._kept: dict[int, list[Memory]] = {}
        self._kept_bytes = 0
        self._lock = ForkLock()

    def alloc(self, nbytes: int) -> Memory:
        self._context.check()
        size = -(-nbytes // _GRAIN) * _GRAIN
        if nbytes > self.largest:
            raise errors.DeviceMemoryError(
                f"CL: a buffer of {nbytes} bytes is more than {self._context.found.label} allows "
                f"for one: {self.largest} (CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
                remedy="Work on smaller parts.",
            )
        with self._lock:
            self._settle()
            kept = self._kept.get(size)
            if kept:
                self._kept_bytes -= size
                return kept.pop()
        found = self._create(size)
        if found is None:
            gc.collect()  # buffers may hang in a cycle of dead objects
            self.trim()
            found = self._create(size)
        if found is None:
            raise errors.DeviceMemoryError(
                f"CL: a buffer of {nbytes} bytes does not fit: {self.usage.bytes} of the "
                f"{self.limit} bytes of {self._context.found.label} are in use",
                remedy="Let go of arrays that are no longer needed, or work on smaller parts.",
            )
        return found

    def _create(self, size: int) -> Memory | None:
        if self.usage.bytes + self._kept_bytes + size > self.limit:
            return None  # some drivers promise more than there is
        create, handle = self._context.library.clCreateBuffer, self._context.handle
        try:
            return Memory(driver.made(create, "a buffer", handle, 1, size, ffi.NULL))
        except errors.DeviceMemoryError:
            return None

    def free(self, handle: Memory, nbytes: int) -> None:
        if self.limit:
            self._freed.append((-(-nbytes // _GRAIN) * _GRAIN, handle))
        else:
            self._give_back(handle)

    def _settle(self) -> None:
        """Sort what was freed; beyond a quarter of the memory it goes back to the driver."""
        while self._freed:
            size, memory = self._freed.popleft()
            if self._kept_bytes + size > self.limit // 4:
                self._give_back(memory)
            else:
                self._kept.setdefault(size, []).append(memory)
                self._kept_bytes += size

    def _give_back(self, memory: Memory) -> None:
        self._context.release(self._release, memory.mem)  # once what was queued is done with it

    def trim(self) -> None:
        with self._lock:
            self._settle()
            for kept in self._kept.values():
                for memory in kept:
                    self._give_back(memory)
            self._kept.clear()
            self._kept_bytes = 0

    def close(self) -> None:
        """From here on nothing is kept."""
        self.trim()
        self.limit = 0

    # ---- copies

    def _queue(self, memory: Memory) -> Any:
        """The queue for a copy that is waited for: not behind kernels that do not use it."""
        context = self._context
        context.check()
        return context.side if memory.root.used <= context.done else context.queue

    def copy_in(self, handle: Memory, source: memoryview) -> None:
        if source.nbytes <= _SMALL:
            self._send(handle, bytes(source))
            return
        write, data = self._context.library.clEnqueueWriteBuffer, ffi.from_buffer(source)
        queue, size, none = self._queue(handle), source.nbytes, ffi.NULL
        code = write(queue, handle.mem, 1, handle.offset, size, data, 0, none, none)
        driver.check(code, "copying to the device")

    def _send(self, handle: Memory, data: bytes) -> None:
        """A copy that is not waited for."""
        context, none = self._context, ffi.NULL
        context.check()
        write, size, source = context.library.clEnqueueWriteBuffer, len(data), ffi.from_buffer(data)
        with context.lock:
            handle.root.used = context.launched + 1
            code = write(context.queue, handle.mem, 0, handle.offset, size, source, 0, none, none)
            context.launched += 1
            context.stage(data)
        driver.check(code, "copying to the device")

    def copy_out(self, handle: Memory, target: memoryview) -> None:
        read, none = self._context.library.clEnqueueReadBuffer, ffi.NULL
        queue, data, size = self._queue(handle), ffi.from_buffer(target), target.nbytes
        launched = self._context.launched
        code = read(queue, handle.mem, 1, handle.offset, size, data, 0, none, none)
        driver.check(code, "copying from the device")
        if queue is self._context.queue:
            self._context.done = max(self._context.done, launched)

    def copy(self, target: Memory, source: Memory, nbytes: int) -> None:
        context = self._context
        context.check()
        with context.lock:
            target.root.used = source.root.used = context.launched + 1
            code = context.library.clEnqueueCopyBuffer(
                context.queue, source.mem, target.mem, source.offset, target.offset, nbytes,
                0, ffi.NULL, ffi.NULL,
            )  # fmt: skip
            context.launched += 1
        driver.check(code, "copying within the device")
        context.library.clFlush(context.queue)

    def view(self, handle: Memory, offset: int, nbytes: int) -> Memory:
        return Memory(handle.mem, handle.offset + offset, handle.root)
