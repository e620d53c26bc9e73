"""What the planner's prices are on a device, measured: bytes by level of cache, and launches.

The unit of all prices is one elementwise operation. A price is the time of a byte, or of a
launch, over the time of an operation, with as many threads as kernels have. This is a step of
`opgraft calibrate` (plugin.py): what it measures is in the targets of devices that are opened from
then on, and `Prices.of` reads it from there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from opgraft import settings
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.runtime import compile_kernel
from opgraft_tensor.facts import CACHE, CORE, DRAM, LAUNCH, SHARED

if TYPE_CHECKING:
    from opgraft.runtime.device import Device

NAMES: Final = (LAUNCH, CACHE, CORE, SHARED, DRAM)
"""What it may measure: of a device without caches there are two."""
OPERATIONS: Final = 48
"""Operations per element of the kernel that measures them."""
CHAINS: Final = 4
"""Of which so many depend on each other in none."""
ROUNDS: Final = 12
"""Times that each list is timed; the least counts."""
TOUCHED: Final = 32 << 20
"""Bytes that a list of launches touches in all, so that its time can be told."""
SMALLEST: Final = 4096


def calibrate(device: Device) -> dict[str, float]:
    """The prices of NAMES, which `Prices.of` looks for. Takes about two seconds.

    Raises `DeviceError` for a device that runs nothing.
    """
    if not device.executes:
        raise DeviceError(f"{device.name} runs no kernels, so nothing can be measured on it")
    levels = [*device.target.cache_bytes[:3]]
    names = (CACHE, CORE, SHARED)[: len(levels)]
    with settings.using(SEARCH=0):
        launch = _seconds(device, _copy(1), 2, 4096)
        room = max(SMALLEST, (levels[0] if levels else SMALLEST) // 16)
        work = _seconds(device, _work(room), 2, _times(room)) - launch
        operation = max(work, 1e-12) / (room * OPERATIONS)
        found = {LAUNCH: launch / operation}
        # an array and its copy take half of their level
        sizes = [max(SMALLEST, nbytes // 4) for nbytes in levels]
        sizes.append(4 * levels[-1] if levels else 64 << 20)
        for name, nbytes in zip((*names, DRAM), sizes):
            count = nbytes // 4
            seconds = _seconds(device, _copy(count), 2, _times(count)) - launch
            found[name] = max(seconds, 0.0) / (2 * nbytes) / operation
    return {name: round(price, 3) for name, price in _rising(found).items()}


def _rising(found: dict[str, float]) -> dict[str, float]:
    """A byte that is further away costs no less: a small array's time may vanish in noise."""
    least = 0.0
    for name in (CACHE, CORE, SHARED, DRAM):
        if name in found:
            least = found[name] = max(found[name], least)
    return found


def _times(count: int) -> int:
    return max(4, TOUCHED // (8 * count))


def _copy(count: int) -> UOp:
    i = UOp.range(count, 0)
    out, data = (UOp(Ops.PARAM, dtypes.float32, (), (slot, count)) for slot in range(2))
    return UOp.sink(out.store(i, data.load(i)).end(i), arg=KernelInfo("calibrate_copy"))


def _work(count: int) -> UOp:
    """Multiplications and additions on each element, in chains."""
    i = UOp.range(count, 0)
    out, data = (UOp(Ops.PARAM, dtypes.float32, (), (slot, count)) for slot in range(2))
    value = data.load(i)
    chains = [value + (0.25 + n) for n in range(CHAINS)]
    for step in range((OPERATIONS - 2 * CHAINS) // (2 * CHAINS)):
        chains = [c * 0.75 + (n + step * 0.5 + 0.125) for n, c in enumerate(chains)]
    total = chains[0]
    for chain in chains[1:]:
        total = total + chain
    return UOp.sink(out.store(i, total).end(i), arg=KernelInfo("calibrate_work"))


def _seconds(device: Device, sink: UOp, arrays: int, times: int) -> float:
    """The least time of one launch, in a list of many."""
    executable = compile_kernel(device, sink)
    buffers = [device.buffer(dtype.itemsize * n) for dtype, n in executable.program.params]
    assert len(buffers) == arrays
    for buffer in buffers:
        buffer.copy_in(memoryview(bytearray(buffer.nbytes)))
    launches = device.prepare([(executable, buffers, ())] * times)
    least = float("inf")
    for _ in range(ROUNDS):
        device.synchronize()
        begin = time.perf_counter()
        launches.run()
        device.synchronize()
        least = min(least, time.perf_counter() - begin)
    return least / times
