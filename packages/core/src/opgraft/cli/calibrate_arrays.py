"""What arrays cost on a device, for optimizers of tensor programs: a part of `opgraft calibrate`.

The unit is an addition of floats in the cache, in a vector if the device has vectors. A step of a
product or a sum, a byte of memory and a launch are each the time of a kernel, less what is not it.
"""

from __future__ import annotations

import time
from typing import Final

from opgraft import settings
from opgraft.dtype import dtypes
from opgraft.ir import UOp
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import AxisKind, Ops
from opgraft.runtime import Buffer, Device, compile_kernel

NAMES: Final = ("tensor.product", "tensor.sum", "tensor.byte", "tensor.cached", "tensor.launch")
_MANY: Final = 64
"""Launches of a small kernel in a list: one would be lost in what it takes to begin."""
_LEAST: Final = 0.01
"""A difference of two times may vanish in noise."""


def measure_arrays(device: Device, elements: int, runs: int) -> dict[str, float]:
    """The prices of NAMES. `elements`: of a vector that stays in the cache; side of a product: a
    32nd of that; the array that does not fit into it: a thousand times as long."""
    with settings.using(OPTIMIZER="greedy", EGRAPH=None, SEARCH=0, CPU_THREADS=1):
        side = max(elements // 32, 4)
        short, long = (_least(device, *_steps(elements, n), runs, _MANY) for n in (2, 10))
        copied = _least(device, *_steps(elements, 0), runs, _MANY)
        call = _least(device, *_steps(4, 1), runs, _MANY)
        # on a busy machine the difference may vanish; it is a good half of the longer time
        unit = max(long - short, long / 8) / 16 / elements
        streamed = _least(device, *_steps(elements * 1024, 1), max(runs // 8, 1))
        product = _least(device, *_product(side), max(runs // 4, 1))
        summed = _least(device, *_sums(max(elements // 64, 1), 64), runs, _MANY)
    # a step is a multiplication and an addition; each element is read once and written once
    found = {
        "product": (product - call) / side**3 / unit,
        "sum": (summed - call) / elements / unit,
        "byte": ((streamed - call) / (elements * 1024) / unit - 2) / 8,
        "cached": (copied - call) / elements / unit / 8,
        "launch": call / unit,
    }
    return {f"tensor.{name}": max(_LEAST, round(price, 3)) for name, price in found.items()}


def _param(slot: int, size: int) -> UOp:
    return UOp(Ops.PARAM, dtypes.float32, (), (slot, size))


def _steps(size: int, count: int) -> tuple[UOp, list[int]]:
    """Numbers, each multiplied and added to so often: of floats, so no rule joins the steps."""
    i = UOp.range(size, "i")
    value = first = _param(1, size).load(i)
    for _ in range(count):
        value = value * first + first
    return _kernel(_param(0, size).store(i, value).end(i)), [size, size]


def _product(side: int) -> tuple[UOp, list[int]]:
    i, j = UOp.range(side, "i"), UOp.range(side, "j")
    k = UOp.range(side, "k", AxisKind.REDUCE)
    out, a, b = (_param(slot, side * side) for slot in range(3))
    product = a.load(i * side + k) * b.load(k * side + j)
    total = product.reduce(Ops.ADD, k)
    return _kernel(out.store(i * side + j, total).end(i, j)), [side * side] * 3


def _sums(rows: int, width: int) -> tuple[UOp, list[int]]:
    i, k = UOp.range(rows, "i"), UOp.range(width, "k", AxisKind.REDUCE)
    total = _param(1, rows * width).load(i * width + k).reduce(Ops.ADD, k)
    return _kernel(_param(0, rows).store(i, total).end(i)), [rows, rows * width]


def _kernel(effect: UOp) -> UOp:
    return UOp.sink(effect, arg=KernelInfo("calibrate_arrays"))


def _least(device: Device, sink: UOp, sizes: list[int], runs: int, times: int = 1) -> float:
    """The least seconds of a kernel on numbers, one of so many launches in a list."""
    executable = compile_kernel(device, sink)
    buffers = [Buffer(device, size * dtypes.float32.itemsize) for size in sizes]
    for buffer, size in zip(buffers[1:], sizes[1:]):
        buffer.copy_in(memoryview(bytearray(b"\0\0\0\x3f") * size))
    launches = device.prepare([(executable, buffers, ())] * times)
    least = float("inf")
    for _ in range(max(runs, 1) + 1):
        begin = time.perf_counter()
        launches.run()
        device.synchronize()
        least = min(least, time.perf_counter() - begin)
    return least / times
