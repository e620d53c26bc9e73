"""Memory: copies in and out, views, sizes of zero, lifetimes and counts."""

from __future__ import annotations

import gc
import os
import weakref
from array import array
from collections import deque

import numpy as np
import pytest

from opgraft.errors import DeviceError, DeviceMemoryError

from .host_device import LIMIT, HostAllocator, HostDevice


@pytest.fixture
def device() -> HostDevice:
    return HostDevice()


@pytest.mark.parametrize(
    "source",
    [
        b"abcdefgh",
        bytearray(b"abcdefgh"),
        memoryview(b"abcdefgh"),
        array("d", [1.5]),
        np.arange(4, dtype=np.int16).reshape(2, 2),
        np.ones(4, dtype=np.float16),
        np.array([True, False] * 4),
        np.ones((8, 1, 1), dtype=np.int8),
    ],
    ids=lambda s: f"{type(s).__name__} {getattr(s, 'dtype', '')}",
)
def test_any_contiguous_exporter_goes_in_and_comes_out(device: HostDevice, source: object) -> None:
    buffer = device.buffer(8)
    buffer.copy_in(source)
    assert buffer.bytes() == memoryview(source).tobytes()  # type: ignore[arg-type]
    target = np.zeros(8, dtype=np.uint8)
    buffer.copy_out(target)
    assert target.tobytes() == buffer.bytes()


def test_strided_memory_is_refused_and_not_copied_in_silence(device: HostDevice) -> None:
    buffer = device.buffer(8)
    for strided in (np.zeros(16, np.uint8)[::2], np.zeros(8, np.uint8)[::-1]):
        with pytest.raises(ValueError, match="strided"):
            buffer.copy_in(strided)
    with pytest.raises(ValueError, match="strided"):
        buffer.copy_in(np.zeros((4, 2), np.uint8).T)


def test_a_copy_of_another_size_is_refused(device: HostDevice) -> None:
    buffer = device.buffer(8)
    with pytest.raises(DeviceError, match="7 bytes cannot be copied into a buffer of 8"):
        buffer.copy_in(bytes(7))
    with pytest.raises(DeviceError, match="9 bytes cannot be copied out of"):
        buffer.copy_out(bytearray(9))
    with pytest.raises(ValueError, match="read-only"):
        buffer.copy_out(bytes(8))


def test_a_buffer_of_zero_bytes_is_like_any_other(device: HostDevice) -> None:
    buffer = device.buffer(0)
    buffer.copy_in(b"")
    buffer.copy_in(np.zeros((0, 3), np.float32))
    buffer.copy_out(np.zeros((3, 0), np.float32))
    assert buffer.bytes() == b""
    assert buffer.view(0, 0).nbytes == 0
    other = device.buffer(0)
    other.copy_from(buffer)
    memory = buffer.memory()
    assert memory is not None
    assert memory.nbytes == 0


def test_a_view_shares_memory_and_keeps_it_alive(device: HostDevice) -> None:
    buffer = device.buffer(8)
    buffer.copy_in(b"abcdefgh")
    view = buffer.view(2, 4)
    inner = view.view(1, 2)
    assert (inner.bytes(), inner.offset) == (b"de", 3)
    inner.copy_in(b"DE")
    assert buffer.bytes() == b"abcDEfgh"
    whole = weakref.ref(buffer)
    del buffer, view
    assert whole() is inner.base
    assert inner.bytes() == b"DE"
    del inner
    assert whole() is None


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 2), (0, 9), (8, 1), (9, 0), (0, -1)])
def test_a_view_beyond_the_buffer_is_refused(device: HostDevice, offset: int, nbytes: int) -> None:
    with pytest.raises(ValueError, match="outside a buffer of 8 bytes"):
        device.buffer(8).view(offset, nbytes)


def test_memory_is_counted_while_it_lives_and_freed_once(device: HostDevice) -> None:
    allocator = device.allocator
    assert isinstance(allocator, HostAllocator)
    buffers = [device.buffer(100) for _ in range(3)]
    views = [b.view(0, 10) for b in buffers]
    assert (allocator.usage.bytes, allocator.usage.live) == (300, 3)
    buffers.clear()
    assert allocator.usage.live == 3
    views.clear()
    assert (allocator.usage.bytes, allocator.usage.live, allocator.usage.peak) == (0, 0, 300)
    assert allocator.freed == [100, 100, 100]


def test_many_buffers_are_counted_without_being_asked(device: HostDevice) -> None:
    usage = device.allocator.usage
    kept = [device.buffer(7)]
    for _ in range(3 * usage.LONG):
        kept[:] = [device.buffer(7)]
        assert len(usage.queue) <= usage.LONG + 2
    assert (usage.bytes, usage.live, usage.peak) == (7, 1, 14)


def test_counting_goes_on_after_an_interruption(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(deque[int]):
        def popleft(self) -> int:
            raise KeyboardInterrupt

    usage = device.allocator.usage
    with monkeypatch.context() as patch:
        patch.setattr(usage, "queue", Broken())
        with pytest.raises(KeyboardInterrupt):
            usage.settle()
    kept = device.buffer(7)
    assert (usage.bytes, usage.live) == (kept.nbytes, 1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_counts_counts_on(device: HostDevice) -> None:
    usage = device.allocator.usage
    kept = device.buffer(7)
    usage._settling = True  # as the other thread has it
    child = os.fork()
    if child == 0:
        os._exit(0 if (usage.bytes, usage.live) == (kept.nbytes, 1) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_buffers_in_a_cycle_are_freed_by_the_collector_in_any_statement(device: HostDevice) -> None:
    # the collector may run while the counts are being changed: that must not lock up or miscount
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            ring: list[object] = [device.buffer(8)]
            ring.append(ring)
    finally:
        gc.set_threshold(*threshold)
    del ring
    gc.collect()
    assert device.allocator.usage.live == 0


def test_too_large_a_buffer_is_an_error_that_leaves_the_device_usable(device: HostDevice) -> None:
    with pytest.raises(DeviceMemoryError, match="too many"):
        device.buffer(LIMIT + 1)
    assert device.allocator.usage.live == 0
    device.buffer(LIMIT)
    with pytest.raises(ValueError, match="cannot have -1 bytes"):
        device.buffer(-1)


@pytest.mark.parametrize("step", [-3, -1, 0, 1, 3])
def test_overlapping_views_copy_what_was_there_before(device: HostDevice, step: int) -> None:
    whole = device.buffer(12)
    whole.copy_in(b"abcdefghijkl")
    whole.view(3 + step, 6).copy_from(whole.view(3, 6))
    expected = bytearray(b"abcdefghijkl")
    expected[3 + step : 9 + step] = b"defghi"
    assert whole.bytes() == bytes(expected)


def test_buffers_of_two_devices_copy_through_the_host(device: HostDevice) -> None:
    here, there = device.buffer(4), HostDevice(1).buffer(4)
    there.copy_in(b"wxyz")
    here.copy_from(there)
    assert here.bytes() == b"wxyz"
    with pytest.raises(DeviceError, match="cannot be copied into"):
        here.copy_from(device.buffer(5))
    assert here.memory() is None
    assert str(there) == "<Buffer of 4 bytes on HOST:1>"
