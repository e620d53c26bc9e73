"""Memory: copies in and out, views, alignment, sizes from nothing to large, and too large."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from opgraft.api import Device, DType, Target, compile_kernel, dtypes, errors
from opgraft_conformance import Fault, not_claimed
from opgraft_conformance.execution import execute
from opgraft_conformance.samples import (
    SIZE,
    affine,
    check_works,
    equal,
    put,
    run_affine,
    step,
    take,
    total,
)
from opgraft_conformance.values import whole_numbers, words_of

LARGE = 256 << 20
GUARD = 0xA5


def some_bytes(count: int, seed: int = 0) -> np.ndarray:
    """Bytes that are not the same at any two of several alignments."""
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


# ---- copies


@pytest.mark.must
@pytest.mark.parametrize(
    "nbytes", [0, 1, 2, 3, 5, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 65_537, (1 << 20) + 3]
)
def test_copy_in_and_out(device: Device, nbytes: int) -> None:
    """What was copied in comes out, whatever the size."""
    given = some_bytes(nbytes)
    buffer = device.buffer(nbytes)
    assert buffer.nbytes == nbytes
    buffer.copy_in(given)
    equal(f"a buffer of {nbytes} bytes, copied in and out", take(buffer, np.uint8), given)


@pytest.mark.must
def test_copy_in_has_read_its_source(device: Device) -> None:
    """When copy_in returns, its source may be changed."""
    source = bytearray(b"\1" * (4 << 20))
    buffer = device.buffer(len(source))
    buffer.copy_in(source)
    source[:] = b"\2" * len(source)
    got = take(buffer, np.uint8)
    equal("memory copied in, after its source was changed", got, np.full(len(source), 1))


@pytest.mark.must
def test_copies_from_every_kind_of_memory(device: Device) -> None:
    """Read-only bytes, arrays of several dimensions, and memory that is not aligned."""
    whole = some_bytes(256)
    sources = {
        "bytes": whole.tobytes(),
        "a bytearray": bytearray(whole.tobytes()),
        "an array of two dimensions": whole.view(np.int32).reshape(8, 8),
        "memory at an odd address": memoryview(bytearray(b"x" + whole.tobytes()))[1:],
    }
    for what, source in sources.items():
        buffer = device.buffer(256)
        buffer.copy_in(source)
        equal(f"a copy from {what}", take(buffer, np.uint8), whole)
        target = bytearray(300)
        buffer.copy_out(memoryview(target)[3:259])
        got = np.frombuffer(target, np.uint8)
        equal("a copy to memory at an odd address", got[3:259], whole)
        beside = np.delete(got, slice(3, 259))
        equal("memory beside the target of a copy out", beside, np.zeros(44))


@pytest.mark.must
def test_buffers_do_not_share(device: Device) -> None:
    """Hundreds of buffers that are alive at once each keep what was written to them."""
    held = [put(device, np.full(1 + number % 67, number, np.int32)) for number in range(300)]
    for number, buffer in enumerate(held):
        what = f"buffer {number} of 300 that are alive"
        equal(what, take(buffer), np.full(1 + number % 67, number))


@pytest.mark.must
def test_copies_inside_the_device(device: Device) -> None:
    """From buffer to buffer, and from part to part of different buffers."""
    given = np.arange(1000, dtype=np.int32)
    source, target = put(device, given), put(device, np.zeros(1000, np.int32))
    target.copy_from(source)
    equal("a copy inside the device", take(target), given)
    target.view(4, 400).copy_from(source.view(2000, 400))
    wanted = given.copy()
    wanted[1:101] = given[500:600]
    equal("a copy of a part inside the device", take(target), wanted)


@pytest.mark.must
@pytest.mark.parametrize("distance", [-4096, -256, -4, -1, 0, 1, 4, 256, 4096])
def test_overlapping_copies(device: Device, distance: int) -> None:
    """Source and target overlap in one buffer: what was there before is copied."""
    given = some_bytes(20_000)
    buffer = device.buffer(20_000)
    buffer.copy_in(given)
    start, count = 5000, 10_000
    buffer.view(start + distance, count).copy_from(buffer.view(start, count))
    wanted = given.copy()
    wanted[start + distance : start + distance + count] = given[start : start + count]
    got = take(buffer, np.uint8)
    equal(f"a copy within a buffer to {distance} bytes further", got, wanted)


@pytest.mark.must
def test_copies_are_in_order_with_launches(device: Device) -> None:
    """A copy out waits for the launches before it; a copy in does not overtake them."""
    size = 1 << 20
    executable = compile_kernel(device, affine(size))
    given, out = put(device, np.arange(size, dtype=np.int32)), device.buffer(4 * size)
    copied = device.buffer(4 * size)
    for turn in range(3):
        first = np.arange(size, dtype=np.int32) + turn
        given.copy_in(first)
        executable.run([out, given])
        given.copy_in(np.zeros(size, np.int32))  # after the launch has read it
        copied.copy_from(out)
        executable.run([out, given])
        equal("a copy between two launches", take(copied), first * 3 + 7, executable)
        equal("a copy out behind a launch", take(out), np.full(size, 7), executable)


# ---- views


@pytest.mark.must
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 8, 12, 100, 252])
def test_views_share_memory(device: Device, offset: int) -> None:
    """A view at any byte reads and writes its part of the buffer and nothing beside it."""
    given = some_bytes(512)
    buffer = device.buffer(512)
    buffer.copy_in(given)
    view = buffer.view(offset, 100)
    equal(f"a view from byte {offset}", take(view, np.uint8), given[offset : offset + 100])
    view.copy_in(bytes([GUARD]) * 100)
    wanted = given.copy()
    wanted[offset : offset + 100] = GUARD
    equal(f"a buffer after a view from byte {offset} was written", take(buffer, np.uint8), wanted)


@pytest.mark.must
def test_views_of_views(device: Device) -> None:
    """Offsets of views of views add up, and empty views are possible everywhere."""
    given = some_bytes(1000)
    buffer = device.buffer(1000)
    buffer.copy_in(given)
    inner = buffer.view(100, 800).view(30, 700).view(7, 333)
    equal("a view of a view of a view", take(inner, np.uint8), given[137:470])
    inner.view(0, 4).copy_in(b"abcd")
    equal("the buffer under it", take(buffer, np.uint8)[137:141], np.frombuffer(b"abcd", np.uint8))
    for empty in (buffer.view(0, 0), buffer.view(1000, 0), inner.view(333, 0)):
        empty.copy_in(b"")
        assert empty.bytes() == b""


@pytest.mark.must
def test_a_view_keeps_its_buffer(device: Device) -> None:
    """Memory lives as long as a view of it; new buffers do not get it."""
    buffer = put(device, np.arange(1000, dtype=np.int32))
    view = buffer.view(400, 400)
    del buffer
    gc.collect()
    others = [put(device, np.full(1000, -1, np.int32)) for _ in range(20)]
    equal("a view whose buffer is gone", take(view), np.arange(100, 200))
    del others


def _stores(dtype: DType) -> pytest.MarkDecorator:
    def claimed(target: Target) -> bool:
        return dtype in target.storage or dtype in target.compute

    return pytest.mark.claims(f"memory of {dtype}", claimed)


@pytest.mark.must
@pytest.mark.parametrize(
    "dtype", [pytest.param(d, id=d.name, marks=_stores(d)) for d in dtypes.all if d.bits > 1]
)
@pytest.mark.parametrize("place", ["out", "in", "both"])
def test_kernels_on_views_at_odd_elements(device: Device, dtype: DType, place: str) -> None:
    """Kernels work on views that are aligned to an element and no more; see case E04."""
    if dtype.is_bool:
        not_claimed("arithmetic of bool")
    size = 67
    width = dtype.itemsize
    kernel = compile_kernel(device, affine(size, dtype, 1, 0, f"odd_{dtype.name}"))
    given = whole_numbers(dtype, size, 5).astype(words_of(dtype))
    for offset in (1, 3, 5):
        source = device.buffer((size + 16) * width)
        source.copy_in(bytes([GUARD]) * source.nbytes)
        target = device.buffer((size + 16) * width)
        target.copy_in(bytes([GUARD]) * target.nbytes)
        at_in = offset if place in ("in", "both") else 0
        at_out = offset if place in ("out", "both") else 0
        read = source.view(at_in * width, size * width)
        read.copy_in(given)
        written = target.view(at_out * width, size * width)
        kernel.run([written, read], wait=True)
        what = f"a kernel of {dtype} whose buffers begin at elements {at_out} and {at_in}"
        hint = "vector loads and stores may not assume more than an element's alignment"
        equal(what, take(written, given.dtype), given, kernel, hint)
        around = np.delete(take(target, np.uint8), slice(at_out * width, (at_out + size) * width))
        equal(f"{what}: memory beside the view", around, np.full(len(around), GUARD), kernel, hint)


# ---- sizes


@pytest.mark.must
def test_nothing_at_all(device: Device) -> None:
    """A buffer of no bytes can be made, copied, viewed and freed, and used in no way wrongly."""
    empty, other = device.buffer(0), device.buffer(0)
    empty.copy_in(b"")
    other.copy_from(empty)
    assert other.bytes() == b""
    assert empty.view(0, 0).bytes() == b""
    memory = empty.memory()
    assert memory is None or memory.nbytes == 0
    check_works(device)


@pytest.mark.should
def test_large(device: Device) -> None:
    """A buffer of 256 MiB: both its ends can be written and read, by copies and by kernels."""
    try:
        buffer = device.buffer(LARGE)
    except errors.DeviceMemoryError as error:
        not_claimed(f"a buffer of 256 MiB: {error.message}")
    values = np.arange(SIZE, dtype=np.int32)
    ends = [buffer.view(0, 4 * SIZE), buffer.view(LARGE - 4 * SIZE, 4 * SIZE)]
    middle = buffer.view(LARGE // 2, 4 * SIZE)
    kernel = compile_kernel(device, step())
    for number, part in enumerate([*ends, middle]):
        part.copy_in(values + number)
    for part in ends:
        kernel.run([part], wait=True)
    for number, part in enumerate(ends):
        equal(f"end {number} of a large buffer", take(part), (values + number) * 3 + 1, kernel)
    equal("the middle of a large buffer", take(middle), values + 2)


@pytest.mark.must
@pytest.mark.parametrize("nbytes", [1 << 50, (1 << 62) + 8], ids=["1_PiB", "4_EiB"])
def test_out_of_memory(device: Device, nbytes: int) -> None:
    """Too much memory is a DeviceMemoryError, and the device stays usable."""
    usage = device.allocator.usage
    before = usage.live
    kept = put(device, np.arange(SIZE, dtype=np.int32))
    try:
        buffer = device.buffer(nbytes)
    except errors.DeviceMemoryError as error:
        if device.kind not in str(error).upper():
            raise Fault("the error does not name the device", {"got": error}) from None
    except Exception as error:
        raise Fault(
            f"{nbytes} bytes of memory are refused with the wrong error",
            {"got": f"{type(error).__name__}: {error}", "expected": "DeviceMemoryError"},
            hint="Allocator.alloc",
        ) from None
    else:
        raise Fault(
            f"{nbytes} bytes of memory were handed out",
            {"got": repr(buffer), "expected": "DeviceMemoryError"},
            hint="Allocator.alloc",
        )
    assert usage.live == before + 1, "a buffer that was not made is counted"
    check_works(device, what="a kernel after the device was out of memory")
    equal("a buffer made before the device was out of memory", take(kept), np.arange(SIZE))


# ---- freeing


@pytest.mark.must
def test_freed_memory_is_used_again(device: Device, effort: str) -> None:
    """Memory that is let go of comes back: much more than the machine has can be used in turn."""
    usage = device.allocator.usage
    gc.collect()
    live, used = usage.live, usage.bytes
    kernel = compile_kernel(device, step())
    for turn in range(4000 if effort == "long" else 48):
        buffer = device.buffer(16 << 20)
        part = buffer.view((16 << 20) - 4 * SIZE, 4 * SIZE)
        part.copy_in(np.full(SIZE, turn, np.int32))
        kernel.run([part])
        del buffer, part
    device.synchronize()
    gc.collect()
    if (usage.live, usage.bytes) != (live, used):
        raise Fault(
            "buffers that nobody has are still alive",
            {"got": f"{usage.live - live} buffers", "expected": 0},
            hint="what keeps a Buffer: an executable, a queue, the allocator",
        )


@pytest.mark.must
def test_memory_freed_under_a_running_kernel(device: Device) -> None:
    """A buffer that is dropped right after a launch is not given to another before it is done."""
    size = 1 << 18
    kernel = compile_kernel(device, affine(size))
    results = []
    for turn in range(8):
        given = put(device, np.full(size, turn, np.int32))
        out = device.buffer(4 * size)
        kernel.run([out, given])
        del given
        put(device, np.full(size, -1, np.int32))  # may get the memory that was just freed
        results.append(out)
    for turn, out in enumerate(results):
        what = "the result of a launch whose input was dropped"
        equal(what, take(out), np.full(size, turn * 3 + 7), kernel, "Allocator.free")


@pytest.mark.must
def test_freeing_in_other_threads_and_in_cycles(device: Device) -> None:
    """Buffers may be freed by any thread, and by the garbage collector."""
    usage = device.allocator.usage
    gc.collect()
    before = usage.live
    held = [device.buffer(1000) for _ in range(50)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    for _ in range(50):
        cycle: list[object] = [device.buffer(1000)]
        cycle.append(cycle)
        del cycle
    gc.collect()
    assert usage.live == before
    check_works(device)


# ---- addressed by the host


@pytest.mark.should
def test_memory_addressed_by_the_host(device: Device) -> None:
    """Where the host can address memory, it sees what kernels write, and they what it writes."""
    buffer = put(device, np.arange(SIZE, dtype=np.int32))
    memory = buffer.memory()
    if memory is None:
        not_claimed("memory that the host can address")
    if memory.nbytes != 4 * SIZE or memory.readonly or memory.format != "B":
        got = f"{memory.nbytes} bytes of format {memory.format}, readonly {memory.readonly}"
        raise Fault(
            "the view of a buffer's memory is not flat, writable and as large as the buffer",
            {"got": got, "expected": f"{4 * SIZE} bytes of format B"},
            hint="Allocator.memory",
        )
    array = np.frombuffer(memory, np.int32)
    equal("memory as the host sees it", array, np.arange(SIZE))
    array[:] = 5
    kernel = compile_kernel(device, step())
    kernel.run([buffer], wait=True)
    equal("what a kernel made of what the host wrote", array, np.full(SIZE, 16), kernel)
    part = buffer.view(40, 40).memory()
    assert part is not None
    equal("memory of a view", np.frombuffer(part, np.int32), np.full(10, 16))
    del buffer
    gc.collect()
    equal("memory whose buffer nobody else has", array, np.full(SIZE, 16))


@pytest.mark.must
def test_kernels_write_inside_their_buffers(device: Device) -> None:
    """No kernel writes behind the end of its buffers, however odd their sizes."""
    for size in (1, 2, 3, 5, 7, 15, 17, 31, 33, 63, 65, 127, 129, 1001):
        sink = affine(size, name=f"inside_{size}")
        kernel = compile_kernel(device, sink)
        given = np.arange(size, dtype=np.uint32)
        after = execute(device, kernel, {0: np.zeros(size, np.uint32), 1: given})
        equal(f"a kernel of {size} elements", after[0], given * 3 + 7, kernel)
    kernel = compile_kernel(device, total(1001))
    given = np.arange(1001, dtype=np.uint32)
    after = execute(device, kernel, {0: np.zeros(1, np.uint32), 1: given})
    equal("a sum of 1001 elements", after[0], np.array([given.sum()]), kernel)


@pytest.mark.must
def test_one_buffer_in_two_devices_kernels_is_refused(device: Device, reference: Device) -> None:
    """A kernel that is given another device's memory says so, and does not crash."""
    if device is reference or device.kind == reference.kind:
        not_claimed("another device than the reference")
    kernel = compile_kernel(device, affine())
    foreign = put(reference, np.arange(SIZE, dtype=np.int32))
    out = device.buffer(4 * SIZE)
    try:
        kernel.run([out, foreign], wait=True)
    except errors.DeviceError:
        pass
    except Exception as error:
        raise Fault(
            "another device's buffer is refused with the wrong error",
            {"got": f"{type(error).__name__}: {error}", "expected": "DeviceError"},
            hint="Executable.run",
        ) from None
    else:
        equal("a kernel that took another device's buffer", take(out), np.arange(SIZE) * 3 + 7)
    given = np.arange(SIZE, dtype=np.int32)
    equal("a kernel after that", run_affine(device, kernel, given), given * 3 + 7, kernel)
