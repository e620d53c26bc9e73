"""An OpenCL device in use: its context, its queues, and what has been launched."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from functools import partial
from typing import Any, Final

from opgraft.api import ForkLock, errors, renewed_in_children
from opgraft_cl import driver
from opgraft_cl._abi import ffi
from opgraft_cl.driver import Found

_PROFILED: Final = 2
"""CL_QUEUE_PROFILING_ENABLE"""

_STAGED: Final = 256
"""Copies that may be under way at a time."""
_EVENTS: Final = 64
"""Launches whose events are kept; for older ones the oldest of these stands."""
_NULL: Final = ffi.NULL


class Context:
    """Kernels go through `queue`, in order. `side` is a second queue, for launches that are timed
    and for copies, which wait for no kernel but those on their memory; whoever uses it waits until
    it is done. `launched` counts, under `lock`, what went to `queue`, and `events` has the event of
    each of the last; `done` says how much is known to be finished.
    """

    def __init__(self, found: Found) -> None:
        self.found = found
        self.library: Any = found.library
        self.process = os.getpid()
        create = self.library.clCreateContext
        devices = ffi.new("cl_device_id[]", [found.device])
        platform = ffi.new("intptr_t[]", [0x1084, int(ffi.cast("intptr_t", found.platform)), 0])
        doing = f"a context on {found.label}"
        self.handle = driver.made(create, doing, platform, 1, devices, ffi.NULL, ffi.NULL)
        self.queue, self.side = self._queue(0), self._queue(_PROFILED)
        self.flush = partial(self.library.clFlush, self.queue)
        self.launched = self.done = 0
        self.events = ffi.new("cl_event[]", _EVENTS)
        self._release = self.library.clReleaseEvent
        self._places = [self.events + place for place in range(_EVENTS)]
        self._staged: list[bytes] = []
        self.lock = threading.RLock()
        self.forked = False
        renewed_in_children(self)
        handles = (self.handle, self.events, self.queue, self.side)
        weakref.finalize(self, _close, self.library, self.process, *handles).atexit = False

    def _queue(self, properties: int) -> Any:
        create = self.library.clCreateCommandQueue
        return driver.made(create, "a queue", self.handle, self.found.device, properties)

    def renew(self) -> None:
        """In a forked child, where a thread that is gone may hold the lock."""
        self.forked, self.lock = True, threading.RLock()

    def check(self) -> None:
        """Raise `DeviceError` in a forked child; before the driver is touched."""
        if self.forked:
            raise errors.DeviceError(
                f"CL was opened in process {self.process} and cannot be used in process "
                f"{os.getpid()}, a fork of it: drivers do not survive a fork",
                remedy='Start children with multiprocessing.get_context("spawn").',
            )

    def release(self, function: Any, handle: Any) -> None:
        """Give a handle back: not from a forked child, which must not touch the driver, nor at
        the end of the process, when drivers may have taken themselves down."""
        if os.getpid() == self.process and not sys.is_finalizing():
            function(handle)

    def finish(self) -> None:
        """Wait for all launches and copies; errors of what ran come out here."""
        self.check()
        with self.lock:
            launched, staged, self._staged = self.launched, self._staged, []
        driver.check(self.library.clFinish(self.queue), "waiting for what was launched")
        self.done = max(self.done, launched)
        staged.clear()

    def counted(self) -> Any:
        """Count what goes to `queue` next, under `lock`: where its event is to be put."""
        self.launched = launched = self.launched + 1
        place, events = launched % _EVENTS, self.events
        event = events[place]
        if event:
            self._release(event)
            events[place] = _NULL
        return self._places[place]

    def before(self, used: int) -> list[Any]:
        """The event to wait for, under `lock`, so that what was launched up to `used` is done."""
        if used <= self.done:
            return []
        event = self.events[max(used, self.launched - _EVENTS + 1) % _EVENTS]
        if not event:  # that launch failed
            self.finish()
            return []
        self.flush()
        return [event]

    def wait(self, event: Any, doing: str, *asked: int) -> list[int]:
        """Wait until an event is there, and let go of it; the times that were asked of it."""
        try:
            driver.check(self.library.clWaitForEvents(1, event), doing)
            return [driver.number(self.library.clGetEventProfilingInfo, event[0], k) for k in asked]
        finally:
            self._release(event[0])

    def stage(self, data: bytes) -> None:
        """Keep what is being copied until the next `finish`, which comes when it gets much."""
        self._staged.append(data)
        if len(self._staged) >= _STAGED:
            self.finish()


def _close(library: Any, process: int, context: Any, events: Any, *queues: Any) -> None:
    if os.getpid() == process:
        for event in filter(None, events):
            library.clReleaseEvent(event)
        for queue in queues:
            library.clReleaseCommandQueue(queue)
        library.clReleaseContext(context)


_contexts: Final[weakref.WeakValueDictionary[Any, Context]] = weakref.WeakValueDictionary()
_lock: Final = ForkLock()


def context(index: int) -> Context:
    """The context of the device of this index; one per device, as long as it is in use."""
    found = driver.devices()
    if index >= len(found):
        raise errors.DeviceError(
            f"there is no CL:{index}: OpenCL has {len(found)} devices that can be used",
            tried=tuple((f"CL:{n}", one.label) for n, one in enumerate(found)),
        )
    with _lock:
        one = found[index]
        key = (os.getpid(), int(ffi.cast("intptr_t", one.device)))
        made = _contexts.get(key)
        if made is None:
            made = _contexts[key] = Context(one)
        return made
