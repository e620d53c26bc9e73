"""`opgraft calibrate`: measure what operations cost on a device, and keep it for optimizers.

Each operation is timed in chains of two lengths in one loop over an array that stays in the cache:
the difference is the operation, without loads, stores and the call. The unit is an addition of
integers. What is shown first is what an optimizer will reckon with from the next process on.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from opgraft import calibration, settings
from opgraft.catalog import Device as devices
from opgraft.cli.calibrate_arrays import measure_arrays
from opgraft.cli.screen import screen
from opgraft.dtype import dtypes
from opgraft.errors import OpgraftError
from opgraft.ir import UOp
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import Ops
from opgraft.plugins.command import Command
from opgraft.runtime import Buffer, Device, compile_kernel

ELEMENTS: Final = 8192
RUNS: Final = 40
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
    "EXP2": Chain(lambda y, x, z, k: (y * x + z).exp2(), floats=True),
    "LOG2": Chain(lambda y, x, z, k: (y * x + z).log2(), floats=True),
    "SIN": Chain(lambda y, x, z, k: (y * x + z).sin(), floats=True),
}
FLOAT_BASE: Final = Chain(lambda y, x, z, k: y * x + z, floats=True)
SIGNED: Final = Chain(lambda y, x, z, k: ((y + z - 128) // _prime(k)).maximum(x - 64), 2.0)
BOTH: Final = Chain(_both, 3.0)


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft calibrate`."""
    parser.add_argument("device", nargs="?", default="CPU", help="CPU unless another is named")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--show", action="store_true", help="show what is kept, measure nothing")
    chosen.add_argument("--forget", action="store_true", help="go back to the usual prices")


def run(arguments: Namespace) -> int:
    """Measure, keep and show."""
    out = screen()
    device = devices[arguments.device]
    if arguments.forget:
        out.line(f"{device.kind} has the usual prices: {calibration.record(device.kind, None)}")
        return 0
    if arguments.show:
        prices = dict(calibration.measured_prices(device.kind))
        if not prices:
            out.line(f"{device.kind} was not measured: optimizers take their usual prices")
            return 0
    else:
        if not device.executes:
            raise OpgraftError(f"{device.kind} runs no kernels, so nothing can be measured on it")
        prices = {**measure(device), **measure_arrays(device, ELEMENTS, RUNS)}
        others = dict(calibration.measured_prices(device.kind))  # a planner's, for instance
        out.line(f"kept in {calibration.record(device.kind, {**others, **prices})}")
    out.table(
        ("operation", "additions"), [(name, f"{price:.2f}") for name, price in prices.items()]
    )
    return 0


def measure(device: Device) -> dict[str, float]:
    """Prices by name: of integers in additions of indices, of floats in multiplications of those
    (`FDIV:float`)."""
    with settings.using(OPTIMIZER="greedy", EGRAPH=None, SEARCH=0, CPU_THREADS=1):
        unit = _seconds(device, BASE) / BASE.others
        whole = {name: _seconds(device, c) / unit - c.others for name, c in CHAINS.items()}
        division = whole["IDIV"]
        whole["correction"] = _seconds(device, SIGNED) / unit - SIGNED.others - division
        whole["beside"] = _seconds(device, BOTH) / unit - BOTH.others - division
        unit = _seconds(device, FLOAT_BASE) / FLOAT_BASE.others
        for name, chain in FLOATS.items():
            whole[f"{name}:float"] = _seconds(device, chain) / unit - chain.others
    found = {name: max(_LEAST, round(price, 2)) for name, price in whole.items()}
    found["correction"] = max(0.0, round(whole["correction"], 2))
    return dict(sorted(found.items()))


def _seconds(device: Device, chain: Chain) -> float:
    """The seconds of one step for all elements."""
    runs = [_Chained(device, chain, length) for length in (_SHORT, _LONG)]
    for _ in range(RUNS):
        for one in runs:
            one.time()
    short, long = (one.least for one in runs)
    return max(long - short, 1e-12) / (_LONG - _SHORT)


class _Chained:
    """A kernel of a chain, and the least time that it took."""

    def __init__(self, device: Device, chain: Chain, length: int) -> None:
        dtype = dtypes.float32 if chain.floats else dtypes.int32
        i = UOp.range(ELEMENTS, 0)
        out, *data = (UOp(Ops.PARAM, dtype, (), (slot, ELEMENTS)) for slot in range(4))
        y, x, z = (one.load(i) for one in data)
        if not chain.floats:
            # as indices, which address memory in the end
            y, x, z = ((one & 0xFF).cast(dtypes.index) for one in (y, x, z))
        for k in range(length):
            y = chain.step(y, x, z, k)
        value = y if chain.floats else data[0].load(y.maximum(0) % ELEMENTS)
        sink = UOp.sink(out.store(i, value).end(i), arg=KernelInfo("calibrate"))
        self.executable = compile_kernel(device, sink)
        self.buffers = [Buffer(device, ELEMENTS * dtype.itemsize) for _ in range(4)]
        one = memoryview(bytearray(b"\0\0\x80\x3f") * ELEMENTS)
        for buffer in self.buffers[1:]:
            buffer.copy_in(one)
        self.least = float("inf")

    def time(self) -> None:
        begin = time.perf_counter()
        self.executable.run(self.buffers, wait=True)
        self.least = min(self.least, time.perf_counter() - begin)


COMMAND: Final = Command(
    "calibrate",
    run,
    "measure what operations cost on a device, for optimizers",
    configure,
    """Measure what operations cost on a device, in additions of indices, and keep it for optimizers
(docs/optimizers.md). It takes seconds; the machine should be quiet meanwhile.

  opgraft calibrate            measure on the CPU, keep and show
  opgraft calibrate --show     what is kept
  opgraft calibrate --forget   back to the usual prices

exit codes: 0 done; 1 the device can't be measured, or the file can't be written; 2 wrong usage.""",
)
