"""What a device must offer for memory, and the count of what is in use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from typing import Any, Final

from opgraft.forking import ForkLock, renewed_in_children


class Usage:
    """Bytes and buffers in use on one device.

    A buffer may be dropped by the garbage collector in the middle of any statement, so nobody
    waits here: what comes and goes is put in a queue, and counted when somebody looks, or when
    the queue is long.
    """

    LONG: Final = 1024

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._bytes = 0
        self._live = 0
        self._peak = 0
        self._settling = False
        self.queue: Final[deque[int]] = deque()
        """In order: the bytes of a new buffer, or those of one that is gone inverted (~bytes)."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Count on where another thread was counting as the process forked."""
        self._settling = False

    def settle(self) -> None:
        """Count what is in the queue; whoever puts many buffers into it calls this."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        if self._settling:  # the garbage collector has run something that asks, amid this
            return
        self._settling = True
        change, held, live, peak = self.queue.popleft, self._bytes, self._live, self._peak
        try:
            with suppress(IndexError):  # the queue is empty
                while True:
                    nbytes = change()
                    if nbytes >= 0:
                        held += nbytes
                        live += 1
                        if held > peak:
                            peak = held
                    else:
                        held -= ~nbytes
                        live -= 1
        finally:
            self._bytes, self._live, self._peak = held, live, peak
            self._settling = False

    @property
    def bytes(self) -> int:
        """Bytes that live buffers hold (not what the allocator keeps for reuse)."""
        with self._lock:
            self._settle()
            return self._bytes

    @property
    def live(self) -> int:
        """Buffers alive, views not counted."""
        with self._lock:
            self._settle()
            return self._live

    @property
    def peak(self) -> int:
        """The most bytes that were in use at one time."""
        with self._lock:
            self._settle()
            return self._peak


class Allocator(ABC):
    """The memory of one device. A handle is whatever the device's kernels take for a buffer.

    Sizes and offsets are in bytes. `alloc` is never asked for 0 bytes. Errors: `alloc` raises
    `DeviceMemoryError` where there is not enough, and leaves the device usable. `free` is called
    once per `alloc`, perhaps from the garbage collector in any thread and at interpreter exit: it
    must not raise and must not take a lock that Python code holds elsewhere.
    """

    def __init__(self) -> None:
        self.usage = Usage()

    @abstractmethod
    def alloc(self, nbytes: int) -> Any:
        """A handle of new memory of `nbytes`; what it holds is not defined."""

    @abstractmethod
    def free(self, handle: Any, nbytes: int) -> None:
        """Take the memory back. Kernels that are still running on it finish first."""

    @abstractmethod
    def copy_in(self, handle: Any, source: memoryview) -> None:
        """Host to device: the bytes of `source` (flat, contiguous) to the start of `handle`.

        Returns when `source` may be changed again.
        """

    @abstractmethod
    def copy_out(self, handle: Any, target: memoryview) -> None:
        """Device to host: as many bytes as `target` holds; returns when they are there."""

    @abstractmethod
    def copy(self, target: Any, source: Any, nbytes: int) -> None:
        """Inside the device, in order with launches. The two may not overlap."""

    @abstractmethod
    def view(self, handle: Any, offset: int, nbytes: int) -> Any:
        """A handle of a part of `handle`. The caller keeps the whole alive; it is never freed."""

    def memory(self, handle: Any, nbytes: int, owner: object) -> memoryview | None:
        """The memory itself as a writable flat view, where the host can address it; else None.

        The view (and what is made from it) keeps `owner` alive.
        """
        return None

    def trim(self) -> None:
        """Give memory that is kept for reuse back to the system."""
        return
