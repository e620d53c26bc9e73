"""Timing: what `wait` promises. Counts and order are compared, never seconds with a limit."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from opgraft.api import Device, compile_kernel
from opgraft_conformance import Fault
from opgraft_conformance.samples import SIZE, affine, equal, put, step, take

HINT = "Executable.run with wait"


@pytest.mark.must
def test_waiting_gives_seconds(device: Device) -> None:
    """With `wait` a launch gives its seconds; without, nothing."""
    kernel = compile_kernel(device, affine())
    buffers = [device.buffer(4 * SIZE), put(device, np.arange(SIZE, dtype=np.int32))]
    without = kernel.run(buffers)
    if without is not None:
        raise Fault("a launch that does not wait gives a time", {"got": without}, hint=HINT)
    seconds = kernel.run(buffers, wait=True)
    if not isinstance(seconds, float) or not math.isfinite(seconds) or seconds < 0:
        facts = {"got": repr(seconds), "expected": "a float, 0.0 or more"}
        raise Fault("a launch that waits does not give its seconds", facts, hint=HINT)


@pytest.mark.must
def test_waiting_means_done(device: Device) -> None:
    """After a launch with `wait`, and after `synchronize`, the results are there."""
    size = 1 << 18
    kernel = compile_kernel(device, step(size))
    buffer = put(device, np.zeros(size, np.int32))
    memory = buffer.memory()
    kernel.run([buffer], wait=True)
    if memory is not None:
        what = "memory that the host addresses, after a launch with wait"
        equal(what, np.frombuffer(memory, np.int32), np.full(size, 1), kernel, HINT)
    kernel.run([buffer])
    device.synchronize()
    if memory is not None:
        what = "memory that the host addresses, after synchronize"
        equal(what, np.frombuffer(memory, np.int32), np.full(size, 4), kernel, "Device.synchronize")
    equal("a copy out", take(buffer), np.full(size, 4), kernel)


@pytest.mark.should
def test_seconds_are_more_than_none(device: Device) -> None:
    """A kernel takes some time, and no more than passes on the clock meanwhile."""
    size = 1 << 16
    kernel = compile_kernel(device, step(size))
    buffer = put(device, np.zeros(size, np.int32))
    for _ in range(10):
        begin = time.perf_counter()
        seconds = kernel.run([buffer], wait=True)
        passed = time.perf_counter() - begin
        assert seconds is not None
        if seconds <= 0:
            raise Fault("a launch takes no time", {"got": seconds}, hint=HINT)
        if seconds > passed * 1.05 + 1e-6:  # clocks of two machines may differ by some
            raise Fault(
                "a launch takes longer than the call that waits for it",
                {"says": f"{seconds * 1e6:.1f} us", "call": f"{passed * 1e6:.1f} us"},
                hint="the unit of the device's clock",
            )


@pytest.mark.should
def test_more_work_takes_longer(device: Device) -> None:
    """A thousand times the work takes longer in most of several pairs of launches."""
    small, large = 1 << 10, 1 << 20
    kernels = [compile_kernel(device, step(size)) for size in (small, large)]
    buffers = [put(device, np.zeros(size, np.int32)) for size in (small, large)]
    longer = 0
    for _ in range(9):
        times = [kernel.run([b], wait=True) for kernel, b in zip(kernels, buffers)]
        longer += (times[1] or 0.0) > (times[0] or 0.0)
    if longer < 5:
        raise Fault(
            "a thousand times the work does not take longer",
            {"got": f"longer in {longer} of 9 pairs of launches", "expected": "most"},
            hint="what is measured must be the kernel",
        )


@pytest.mark.must
def test_lists_give_seconds(device: Device) -> None:
    """A list of launches that is waited for gives the seconds of all its steps."""
    kernel = compile_kernel(device, step())
    buffer = put(device, np.zeros(SIZE, np.int32))
    steps = [(kernel, [buffer], ())] * 4
    without = device.run_list(steps)
    if without is not None:
        raise Fault("a list that is not waited for gives a time", {"got": without})
    seconds = device.run_list(steps, wait=True)
    if not isinstance(seconds, float) or not math.isfinite(seconds) or seconds < 0:
        facts = {"got": repr(seconds), "expected": "a float, 0.0 or more"}
        raise Fault("a list that is waited for does not give its seconds", facts)
    wanted = 0
    for _ in range(8):
        wanted = wanted * 3 + 1
    equal("a buffer after two lists of four", take(buffer), np.full(SIZE, wanted), kernel)
