"""`Buffer`: memory on a device, alive as long as someone refers to it or to a view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opgraft.errors import DeviceError

if TYPE_CHECKING:
    from opgraft.runtime.device import Device


def flat(exporter: Any) -> memoryview:
    """The bytes of any C-contiguous exporter of the buffer protocol, as a flat view.

    Raises `ValueError` for a strided exporter: nothing is copied here behind the caller's back.
    """
    view = memoryview(exporter)
    if not view.c_contiguous:
        raise ValueError(
            f"the memory is strided (shape {view.shape}, strides {view.strides}); "
            "make it contiguous first, e.g. with numpy.ascontiguousarray"
        )
    if view.nbytes == 0:
        return memoryview(b"")
    return view.cast("B")


class Buffer:
    """`nbytes` bytes of a device's memory; their content is not defined until written.

    `handle` is what the device's kernels take. `base` is None, or the buffer that this one is a
    view of. Raises `DeviceMemoryError` where the device has not enough memory.
    """

    __slots__ = ("__weakref__", "_owns", "base", "device", "handle", "nbytes", "offset", "owner")

    device: Device
    nbytes: int
    offset: int
    base: Buffer | None
    handle: Any
    owner: object

    def __init__(self, device: Device, nbytes: int) -> None:
        self._owns = False
        if nbytes < 0:
            raise ValueError(f"a buffer cannot have {nbytes} bytes")
        self.device = device
        self.nbytes = nbytes
        self.offset = 0
        self.base = None
        self.owner = None
        allocator = device.allocator
        self.handle = allocator.alloc(nbytes or 1)
        self._owns = True
        usage = allocator.usage
        usage.queue.append(nbytes)
        if len(usage.queue) > usage.LONG:
            usage.settle()

    @classmethod
    def external(cls, device: Device, handle: Any, nbytes: int, owner: object) -> Buffer:
        """Memory that somebody else owns; `owner` is kept alive with the buffer."""
        made = cls._bare(device, handle, nbytes)
        made.owner = owner
        return made

    @classmethod
    def _bare(cls, device: Device, handle: Any, nbytes: int) -> Buffer:
        made = object.__new__(cls)
        made._owns = False
        made.device = device
        made.nbytes = nbytes
        made.offset = 0
        made.base = None
        made.owner = None
        made.handle = handle
        return made

    def view(self, offset: int, nbytes: int) -> Buffer:
        """The part of `nbytes` from byte `offset`; it shares the memory and keeps it alive."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(
                f"bytes {offset} .. {offset + nbytes} are outside a buffer of {self.nbytes} bytes"
            )
        made = Buffer._bare(
            self.device, self.device.allocator.view(self.handle, offset, nbytes), nbytes
        )
        made.base = self.base if self.base is not None else self
        made.offset = self.offset + offset
        return made

    @property
    def root(self) -> Buffer:
        """The buffer that owns the memory: `base`, or this one."""
        return self if self.base is None else self.base

    def copy_in(self, source: Any) -> None:
        """Fill the buffer from a C-contiguous exporter of as many bytes."""
        data = flat(source)
        self._check(data.nbytes, "copied into")
        if data.nbytes:
            self.device.allocator.copy_in(self.handle, data)

    def copy_out(self, target: Any) -> None:
        """Copy the whole buffer to a writable C-contiguous exporter of as many bytes."""
        data = flat(target)
        self._check(data.nbytes, "copied out of")
        if not data.nbytes:
            return
        if data.readonly:
            raise ValueError("the memory to copy to is read-only")
        self.device.allocator.copy_out(self.handle, data)

    def copy_from(self, source: Buffer) -> None:
        """Fill the buffer from another of the same size, on this device or on another.

        The two may overlap: what is copied is what was there before.
        """
        self._check(source.nbytes, "copied into")
        if not self.nbytes:
            return
        if source.root is self.root and abs(source.offset - self.offset) < self.nbytes:
            self.copy_in(source.bytes())
            return
        if source.device is self.device:
            self.device.allocator.copy(self.handle, source.handle, self.nbytes)
            return
        here = self.memory()
        if here is not None:
            source.copy_out(here)
            return
        there = source.memory()
        self.copy_in(source.bytes() if there is None else there)

    def bytes(self) -> bytes:
        """A copy of the content."""
        target = bytearray(self.nbytes)
        self.copy_out(target)
        return bytes(target)

    def memory(self) -> memoryview | None:
        """The memory itself, flat and writable, where the host can address it; else None.

        Launches that are still running are waited for. The view keeps the memory alive.
        """
        if not self.nbytes:
            return memoryview(bytearray())
        self.device.synchronize()
        return self.device.allocator.memory(self.handle, self.nbytes, self)

    def _check(self, nbytes: int, what: str) -> None:
        if nbytes != self.nbytes:
            raise DeviceError(
                f"{nbytes} bytes cannot be {what} a buffer of {self.nbytes} bytes "
                f"on {self.device.name}"
            )

    def __del__(self) -> None:
        if self._owns:
            self._owns = False
            allocator = self.device.allocator
            allocator.free(self.handle, self.nbytes or 1)
            allocator.usage.queue.append(~self.nbytes)

    def __repr__(self) -> str:
        part = f" at {self.offset}" if self.base is not None else ""
        return f"<Buffer of {self.nbytes} bytes{part} on {self.device.name}>"
