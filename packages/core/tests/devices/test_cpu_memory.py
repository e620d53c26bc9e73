"""The memory of the CPU: aligned, reused, bounded, freed at once."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from opgraft.devices.cpu.device import CpuDevice
from opgraft.errors import DeviceError, DeviceMemoryError

from .c_kernels import N, floats, increment, read


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 4097, 300_000, (2 << 20) - 1, (2 << 20) + 1])
def test_memory_is_aligned_and_its_own(device: CpuDevice, nbytes: int) -> None:
    buffers = [device.buffer(nbytes) for _ in range(8)]
    for number, buffer in enumerate(buffers):
        assert buffer.handle % 64 == 0
        assert nbytes <= 2 << 20 or buffer.handle % (2 << 20) < 4096
        buffer.copy_in(bytes([number]) * nbytes)
    for number, buffer in enumerate(buffers):
        assert buffer.bytes() == bytes([number]) * nbytes


@pytest.mark.parametrize("nbytes", [9000, 100_000, 1 << 20, 3 << 20])
def test_arrays_side_by_side_do_not_begin_at_one_place_of_a_page(
    device: CpuDevice, nbytes: int
) -> None:
    """A loop over some of them would meet the same few sets of the caches with all."""
    buffers = [device.buffer(nbytes) for _ in range(5)]
    assert len({b.handle % 4096 // 64 for b in buffers}) == 5


def test_freed_memory_is_used_again(device: CpuDevice) -> None:
    for nbytes in (1000, 300_000, 5 << 20):
        address = device.buffer(nbytes).handle
        assert device.buffer(nbytes).handle == address
    before = device.allocator.mapped
    for _ in range(200):
        device.buffer(5 << 20).copy_in(bytes(5 << 20))
    assert device.allocator.mapped == before


def test_what_is_kept_for_reuse_is_bounded_and_can_be_given_back(device: CpuDevice) -> None:
    device.library.og_keep(16 << 20)
    try:
        buffers = [device.buffer(3 << 20) for _ in range(10)]
        assert device.allocator.kept == 0 or device.allocator.kept <= 16 << 20
        buffers.clear()
        assert 0 < device.allocator.kept <= 16 << 20
        device.allocator.trim()
        assert device.allocator.kept == 0
    finally:
        device.library.og_keep(device.allocator.limit // 4)


def test_more_memory_than_there_is_is_an_error_and_the_device_goes_on(device: CpuDevice) -> None:
    gc.collect()
    live = device.allocator.usage.live
    for nbytes in (1 << 46, 1 << 70, device.allocator.limit + 1):
        with pytest.raises(DeviceMemoryError, match=r"does not fit.*in use"):
            device.buffer(nbytes)
    assert device.allocator.usage.live == live
    out = floats(device, 0, size=N)
    increment(device, N).run([out])
    assert (read(out) == 1).all()


def test_memory_that_hangs_in_dead_cycles_is_found_when_it_is_needed(device: CpuDevice) -> None:
    big = device.allocator.limit * 2 // 3 // 4096 * 4096  # never touched: costs no memory
    gc.disable()
    try:
        ring: list[object] = [device.buffer(big)]
        ring.append(ring)
        del ring
        assert device.buffer(big).nbytes == big
    finally:
        gc.enable()
        device.allocator.trim()


def test_the_host_view_is_the_memory_and_keeps_it_alive(device: CpuDevice) -> None:
    buffer = floats(device, 1, 2, 3)
    memory = buffer.memory()
    assert memory is not None
    array = np.frombuffer(memory, np.float32)
    array[1] = 7
    assert read(buffer).tolist() == [1, 7, 3]
    alive = weakref.ref(buffer)
    del buffer, memory
    gc.collect()
    assert alive() is not None
    assert array.tolist() == [1, 7, 3]
    del array
    assert alive() is None


def test_live_bytes_stay_the_same_over_many_runs_without_the_collector(device: CpuDevice) -> None:
    # G06, at this level
    kernel = increment(device, 1 << 18)
    first = floats(device, 0, size=1 << 18)
    steps = device.prepare([(kernel, [first], ())], [first])
    del first
    gc.collect()
    gc.disable()
    try:
        base = device.allocator.usage.bytes
        most = 0
        for _ in range(200):
            fresh = floats(device, 0, size=1 << 18)
            steps.run([fresh])
            kernel.run([fresh])
            most = max(most, device.allocator.usage.bytes)
            with pytest.raises(DeviceError):
                kernel.run([])
        assert most <= base + (3 << 20)
        alive = weakref.ref(fresh)
        del fresh
        assert alive() is None
        assert device.allocator.usage.bytes == base
    finally:
        gc.enable()


@pytest.mark.parametrize("nbytes", [10, (1 << 20) - 1, (1 << 20) + 12345, 10_000_001])
def test_copies_of_every_size_are_exact(device: CpuDevice, nbytes: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    a, b = device.buffer(nbytes), device.buffer(nbytes)
    a.copy_in(data)
    b.copy_from(a)
    out = np.zeros(nbytes, np.uint8)
    b.copy_out(out)
    assert (out == data).all()


def test_small_memory_is_kept_by_its_size_and_no_more_than_that(device: CpuDevice) -> None:
    allocator = device.allocator
    allocator.trim()
    several = [device.buffer(48) for _ in range(40)]
    handles = {b.handle for b in several}
    assert len(handles) == 40
    del several
    kept = allocator._small[48]
    assert 0 < len(kept) < 40
    assert set(kept) <= handles
    again = [device.buffer(48) for _ in range(20)]
    assert len({b.handle for b in again}) == 20
    assert not kept
    other = device.buffer(56)  # the same to the runtime, another size here
    assert other.handle not in {b.handle for b in again}
    del again, other
    allocator.trim()
    assert not kept
