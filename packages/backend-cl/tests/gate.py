"""A queue that is held back by an event of ours, so that order is shown without a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cffi

from opgraft.runtime import Device
from opgraft_cl import driver
from opgraft_cl._abi import ffi as own
from opgraft_cl.device import ClDevice

EVENTS = """
void *clCreateUserEvent(void *context, int32_t *code);
int32_t clSetUserEventStatus(void *event, int32_t status);
int32_t clEnqueueBarrierWithWaitList(void *queue, uint32_t count, void **before, void **event);
int32_t clGetEventInfo(void *event, uint32_t what, size_t size, void *value, size_t *needs);
int32_t clReleaseEvent(void *event);
"""
STATUS, COMPLETE = 0x11D3, 0


@contextmanager
def held(device: Device) -> Iterator[Callable[[], bool]]:
    """Nothing that is launched inside begins before the end; the function given says whether
    the last launch is still not done."""
    assert isinstance(device, ClDevice)
    context = device._context
    ffi = cffi.FFI()
    ffi.cdef(EVENTS)
    library: Any = ffi.dlopen(next(n for n in driver._NAMES if _loads(ffi, n)))

    def same(handle: Any) -> Any:
        return ffi.cast("void *", int(own.cast("intptr_t", handle)))

    code = ffi.new("int32_t *")
    gate = library.clCreateUserEvent(same(context.handle), code)
    driver.check(code[0], "making an event")
    none = ffi.NULL
    driver.check(
        library.clEnqueueBarrierWithWaitList(
            same(context.queue), 1, ffi.new("void *[]", [gate]), none
        ),
        "holding back",
    )

    def waits() -> bool:
        last = context.events[context.launched % len(context.events)]
        status = ffi.new("int32_t *")
        driver.check(library.clGetEventInfo(same(last), STATUS, 4, status, none), "a query")
        return bool(status[0] != COMPLETE)

    try:
        yield waits
    finally:
        driver.check(library.clSetUserEventStatus(gate, COMPLETE), "going on")
        device.synchronize()
        library.clReleaseEvent(gate)


def _loads(ffi: Any, name: str) -> bool:
    try:
        ffi.dlopen(name)
    except OSError:
        return False
    return True
