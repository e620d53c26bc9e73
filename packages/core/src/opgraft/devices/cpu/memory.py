"""The CPU's memory, kept by the C runtime: huge pages for large buffers, freed ones reused."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final

from opgraft.api import Allocator, errors
from opgraft.devices.cpu._abi import ffi

_SHARED: Final = 1 << 20
"""Bytes from which a copy is spread over threads."""


class CpuAllocator(Allocator):
    """Handles are addresses. `limit` is the most that all buffers may hold together.

    Of blocks up to SMALL bytes the last freed ones are kept on this side of the runtime, for the
    next of their size: EACH of a size, of SIZES sizes.
    """

    SMALL: Final = 4096
    SIZES: Final = 64
    EACH: Final = 16

    def __init__(self, library: Callable[[], Any], limit: int, threads: Callable[[], int]) -> None:
        super().__init__()
        self.limit = limit
        self._load = library
        self._threads = threads
        self._free: Any = None
        self._small: dict[int, list[int]] = {}
        """Freed blocks by their size. All that is done to it are single steps of the interpreter,
        so that no lock is held when the garbage collector frees a buffer."""

    @cached_property
    def _library(self) -> Any:
        """The C runtime: waited for when the first buffer is made."""
        found = self._load()
        found.og_keep(self.limit // 4)
        self._free = found.og_free
        return found

    def alloc(self, nbytes: int) -> int:
        try:
            return self._small[nbytes].pop()
        except LookupError:
            return self._from_runtime(nbytes)

    def _from_runtime(self, nbytes: int) -> int:
        found: int = self._library.og_alloc(nbytes) if nbytes < _SHARED else self._try(nbytes)
        if not found:
            gc.collect()  # buffers may hang in a cycle of dead objects
            self.trim()
            found = self._try(nbytes)
        if found:
            return found
        raise errors.DeviceMemoryError(
            f"CPU: a buffer of {_size(nbytes)} does not fit: {_size(self.usage.bytes)} are in use "
            f"of the {_size(self.limit)} that this process may use",
            remedy="Let go of arrays that are no longer needed, or work on smaller parts.",
        )

    def _try(self, nbytes: int) -> int:
        if nbytes >= _SHARED and self.usage.bytes + nbytes > self.limit:
            return 0
        return int(self._library.og_alloc(nbytes))

    def free(self, handle: int, nbytes: int) -> None:
        kept = self._small.get(nbytes)
        if kept is None and nbytes <= self.SMALL and len(self._small) < self.SIZES:
            kept = self._small.setdefault(nbytes, [])
        if kept is None or len(kept) >= self.EACH:
            self._free(handle, nbytes)
        else:
            kept.append(handle)

    def copy_in(self, handle: int, source: memoryview) -> None:
        if source.nbytes < _SHARED:
            ffi.memmove(ffi.cast("char *", handle), source, source.nbytes)
        else:
            data = ffi.from_buffer(source)
            self.copy(handle, int(ffi.cast("unsigned long long", data)), source.nbytes)

    def copy_out(self, handle: int, target: memoryview) -> None:
        if target.nbytes < _SHARED:
            ffi.memmove(target, ffi.cast("char *", handle), target.nbytes)
        else:
            data = ffi.from_buffer(target)
            self.copy(int(ffi.cast("unsigned long long", data)), handle, target.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._library.og_copy(target, source, nbytes, self._threads())

    def view(self, handle: int, offset: int, nbytes: int) -> int:
        return handle + offset

    def memory(self, handle: int, nbytes: int, owner: object) -> memoryview:
        # cffi's buffer keeps the pointer alive, and the pointer what its destructor refers to
        pointer = ffi.gc(ffi.cast("char *", handle), partial(_let_go, owner))
        return memoryview(ffi.buffer(pointer, nbytes)).cast("B")

    def trim(self) -> None:
        for nbytes, kept in list(self._small.items()):
            with suppress(IndexError):  # another thread was faster
                while kept:
                    self._free(kept.pop(), nbytes)
        self._library.og_trim()

    @property
    def mapped(self) -> int:
        """Bytes that the runtime holds from the system."""
        return int(self._library.og_mapped())

    @property
    def kept(self) -> int:
        """Bytes of freed large blocks that are kept for reuse."""
        return int(self._library.og_kept())


def _let_go(owner: object, pointer: Any) -> None:
    """The end of a view: its reference to the owner goes."""


def _size(nbytes: int) -> str:
    amount = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"
