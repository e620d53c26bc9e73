"""Freed memory that is kept for the next buffer of its size."""

from __future__ import annotations

import gc

import pytest

from opgraft.errors import DeviceMemoryError
from opgraft.runtime import Buffer, KeepingAllocator

from .host_device import HostDevice


class Pool(KeepingAllocator):
    """Of bytearrays; what the driver is asked for is written down."""

    def __init__(self, limit: int, there: int = 1 << 30) -> None:
        super().__init__("a pool", limit)
        self.there = there
        self.made: list[int] = []
        self.gone: list[int] = []

    def create(self, nbytes: int) -> bytearray | None:
        if sum(self.made) - sum(self.gone) + nbytes > self.there:
            return None
        self.made.append(nbytes)
        return bytearray(nbytes)

    def destroy(self, handle: bytearray) -> None:
        self.gone.append(len(handle))

    def copy_in(self, handle: bytearray, source: memoryview) -> None:
        handle[: source.nbytes] = source

    def copy_out(self, handle: bytearray, target: memoryview) -> None:
        target[:] = handle[: target.nbytes]

    def copy(self, target: bytearray, source: bytearray, nbytes: int) -> None:
        target[:nbytes] = source[:nbytes]

    def view(self, handle: bytearray, offset: int, nbytes: int) -> memoryview:
        return memoryview(handle)[offset : offset + nbytes]


def device_with(pool: Pool) -> HostDevice:
    device = HostDevice()
    device.allocator = pool  # type: ignore[assignment]
    return device


def test_memory_is_used_again_by_the_next_of_its_size() -> None:
    pool = Pool(1 << 20)
    device = device_with(pool)
    handle = Buffer(device, 100).handle
    assert Buffer(device, 200).handle is handle  # both are 256 bytes of the driver's
    assert Buffer(device, 300).handle is not handle
    assert (pool.made, pool.gone) == ([256, 512], [])
    pool.trim()
    assert sorted(pool.gone) == [256, 512]


def test_a_quarter_of_the_limit_is_kept_at_most() -> None:
    pool = Pool(4096)
    device = device_with(pool)
    several = [Buffer(device, 256) for _ in range(6)]
    assert len({id(b.handle) for b in several}) == 6
    del several
    another = Buffer(device, 512)
    assert (len(pool.made), pool.gone) == (7, [256, 256])
    del another
    pool.close()
    assert sum(pool.gone) == sum(pool.made)
    pool.free(bytearray(256), 256)  # after the end of the device: nothing is kept
    assert pool.gone[-1] == 256


def test_what_is_kept_makes_room_for_what_fits_no_longer() -> None:
    pool = Pool(1 << 20, there=1024)
    device = device_with(pool)
    Buffer(device, 512)
    cycle = [Buffer(device, 256)]
    cycle.append(cycle)  # type: ignore[arg-type]  # only the collector finds it
    del cycle
    gc.disable()
    try:
        assert len(Buffer(device, 1024).handle) == 1024
    finally:
        gc.enable()
    assert sorted(pool.gone) == [256, 512]


@pytest.mark.parametrize(("limit", "there"), [(1024, 1 << 20), (1 << 20, 1024)])
def test_what_does_not_fit_is_an_error_that_leaves_the_allocator_usable(
    limit: int, there: int
) -> None:
    pool = Pool(limit, there)
    device = device_with(pool)
    held = Buffer(device, 768)
    with pytest.raises(DeviceMemoryError, match=f"512 bytes does not fit: 768 of the {limit}"):
        Buffer(device, 512)
    assert len(Buffer(device, 256).handle) == 256
    assert held.bytes() == bytes(768)
