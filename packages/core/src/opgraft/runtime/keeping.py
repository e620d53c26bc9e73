"""`KeepingAllocator`: freed memory is kept for the next buffer of its size.

Drivers take long to give memory out. What was launched before a buffer was freed still finds its
memory: on a device whose launches happen in order, the next owner's come after them.
"""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections import deque
from typing import Any, Final

from opgraft.errors import DeviceMemoryError
from opgraft.forking import ForkLock
from opgraft.runtime.allocator import Allocator


class KeepingAllocator(Allocator):
    """An allocator whose memory comes from `create` and goes back by `destroy`.

    `label` names the device in errors; `limit` is the most that buffers may hold together, in
    bytes, and a quarter of it the most that is kept; at 0 nothing is kept.
    """

    GRAIN: Final = 256
    """Sizes are rounded up to this, so that more of them fit again."""

    def __init__(self, label: str, limit: int) -> None:
        super().__init__()
        self.label = label
        self.limit = limit
        self._freed: deque[tuple[int, Any]] = deque()
        """What was freed, perhaps by the garbage collector in the middle of any statement."""
        self._kept: dict[int, list[Any]] = {}
        self._kept_bytes = 0
        self._lock = ForkLock()

    @abstractmethod
    def create(self, nbytes: int) -> Any:
        """A handle of new memory, or None where the driver has not so much."""

    @abstractmethod
    def destroy(self, handle: Any) -> None:
        """Give memory back to the driver. Kernels that still run on it finish first; raises
        nothing, as `free`."""

    def alloc(self, nbytes: int) -> Any:
        size = -(-nbytes // self.GRAIN) * self.GRAIN
        lock = self._lock
        lock.acquire()
        try:
            if self._freed:
                self._settle()
            kept = self._kept.get(size)
            if kept:
                self._kept_bytes -= size
                return kept.pop()
        finally:
            lock.release()
        found = self._created(size)
        if found is None:
            gc.collect()  # buffers may hang in a cycle of dead objects
            self.trim()
            found = self._created(size)
        if found is None:
            raise DeviceMemoryError(
                f"a buffer of {nbytes} bytes does not fit: {self.usage.bytes} of the "
                f"{self.limit} bytes of {self.label} are in use",
                remedy="Let go of arrays that are no longer needed, or work on smaller parts.",
            )
        return found

    def _created(self, size: int) -> Any:
        if self.usage.bytes + self._kept_bytes + size > self.limit:
            return None  # some drivers promise more than there is
        return self.create(size)

    def free(self, handle: Any, nbytes: int) -> None:
        if self.limit:
            self._freed.append((-(-nbytes // self.GRAIN) * self.GRAIN, handle))
        else:
            self.destroy(handle)

    def _settle(self) -> None:
        """Sort what was freed; beyond a quarter of the limit it goes back to the driver."""
        while self._freed:
            size, handle = self._freed.popleft()
            if self._kept_bytes + size > self.limit // 4:
                self.destroy(handle)
            else:
                self._kept.setdefault(size, []).append(handle)
                self._kept_bytes += size

    def trim(self) -> None:
        with self._lock:
            self._settle()
            for kept in self._kept.values():
                for handle in kept:
                    self.destroy(handle)
            self._kept.clear()
            self._kept_bytes = 0

    def close(self) -> None:
        """From here on nothing is kept, and nothing given out."""
        self.trim()
        self.limit = 0
