"""What operations cost on a device, for optimizers of kernels: a part of `opgraft calibrate`.

Each operation is timed in chains of two lengths in one loop over an array that stays in the cache:
the difference is the operation, without loads, stores and the call. The unit is an addition of
integers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from opgraft import settings
from opgraft.dtype import dtypes
from opgraft.ir import UOp
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import Ops
from opgraft.runtime import Buffer, Device, compile_kernel

_SHORT, _LONG = 4, 12
_LEAST: Final = 0.25
"""No operation is priced below this: a difference of two times may vanish in noise."""

Step = Callable[[UOp, UOp, UOp, int], UOp]


class Chain(NamedTuple):
    """A step of a chain: y, x, z and its number to the next y; and how many units are not it."""

    step: Step
    others: float = 2.0
    floats: bool = False


def _prime(k: int) -> int:
    return (3, 7, 11, 13, 19, 23, 29, 37, 41, 43, 53, 59)[k % 12]


def _both(y: UOp, x: UOp, z: UOp, k: int) -> UOp:
    a = y + z
    return (a // _prime(k) + a % _prime(k)).maximum(x)


# The larger of two numbers between the steps: no rule joins what stands on either side of it.
BASE: Final = Chain(lambda y, x, z, k: (y + z).maximum(x))
CHAINS: Final[Mapping[str, Chain]] = {
    "MUL": Chain(lambda y, x, z, k: (y * 3 + z).maximum(x)),
    "IDIV": Chain(lambda y, x, z, k: ((y + z) // _prime(k)).maximum(x)),
    "MOD": Chain(lambda y, x, z, k: ((y + z) % _prime(k)).maximum(x)),
    "power_of_two": Chain(lambda y, x, z, k: ((y + z) // (2 << k % 3)).maximum(x)),
    "WHERE": Chain(lambda y, x, z, k: ((y < x).where(z, y) + z).maximum(x), 3.0),
}
FLOATS: Final[Mapping[str, Chain]] = {
    "FDIV": Chain(lambda y, x, z, k: (y * x + z) / x, floats=True),
    "SQRT": Chain(lambda y, x, z, k: (y * x + z).sqrt(), floats=True),
    "EXP": Chain(lambda y, x, z, k: (y * x + z).exp(), floats=True),
    "EXP2": Chain(lambda y, x, z, k: (y * x + z).exp2(), floats=True),
    "LOG2": Chain(lambda y, x, z, k: (y * x + z).log2(), floats=True),
    "SIN": Chain(lambda y, x, z, k: (y * x + z).sin(), floats=True),
}
FLOAT_BASE: Final = Chain(lambda y, x, z, k: y * x + z, floats=True)
SIGNED: Final = Chain(lambda y, x, z, k: ((y + z - 128) // _prime(k)).maximum(x - 64), 2.0)
BOTH: Final = Chain(_both, 3.0)
NAMES: Final = ("correction", "beside", *CHAINS, *(f"{name}:float" for name in FLOATS))


def measure_operations(device: Device, elements: int, runs: int) -> dict[str, float]:
    """The prices of NAMES: of integers in additions of indices, of floats (`FDIV:float`) in
    multiplications of those. `elements`: of a vector that stays in the cache."""

    def seconds(chain: Chain) -> float:
        return _seconds(device, chain, elements, runs)

    with settings.using(OPTIMIZER="greedy", EGRAPH=None, SEARCH=0, CPU_THREADS=1):
        unit = seconds(BASE) / BASE.others
        whole = {name: seconds(c) / unit - c.others for name, c in CHAINS.items()}
        division = whole["IDIV"]
        whole["correction"] = seconds(SIGNED) / unit - SIGNED.others - division
        whole["beside"] = seconds(BOTH) / unit - BOTH.others - division
        unit = seconds(FLOAT_BASE) / FLOAT_BASE.others
        for name, chain in FLOATS.items():
            whole[f"{name}:float"] = seconds(chain) / unit - chain.others
    found = {name: max(_LEAST, round(price, 2)) for name, price in whole.items()}
    found["correction"] = max(0.0, round(whole["correction"], 2))
    return dict(sorted(found.items()))


def _seconds(device: Device, chain: Chain, elements: int, runs: int) -> float:
    """The seconds of one step for all elements."""
    kernels = [_Chained(device, chain, elements, length) for length in (_SHORT, _LONG)]
    for _ in range(runs):
        for one in kernels:
            one.time()
    short, long = (one.least for one in kernels)
    # on a busy machine the difference may vanish; it is a good half of the longer time
    return max(long - short, long / 8) / (_LONG - _SHORT)


class _Chained:
    """A kernel of a chain, and the least time that it took."""

    def __init__(self, device: Device, chain: Chain, elements: int, length: int) -> None:
        dtype = dtypes.float32 if chain.floats else dtypes.int32
        i = UOp.range(elements, 0)
        out, *data = (UOp(Ops.PARAM, dtype, (), (slot, elements)) for slot in range(4))
        y, x, z = (one.load(i) for one in data)
        if not chain.floats:
            # as indices, which address memory in the end
            y, x, z = ((one & 0xFF).cast(dtypes.index) for one in (y, x, z))
        for k in range(length):
            y = chain.step(y, x, z, k)
        value = y if chain.floats else data[0].load(y.maximum(0) % elements)
        sink = UOp.sink(out.store(i, value).end(i), arg=KernelInfo("calibrate"))
        self.executable = compile_kernel(device, sink)
        self.buffers = [Buffer(device, elements * dtype.itemsize) for _ in range(4)]
        one = memoryview(bytearray(b"\0\0\x80\x3f") * elements)
        for buffer in self.buffers[1:]:
            buffer.copy_in(one)
        self.least = float("inf")

    def time(self) -> None:
        begin = time.perf_counter()
        self.executable.run(self.buffers, wait=True)
        self.least = min(self.least, time.perf_counter() - begin)
