"""pyopencl's arrays as an adapter of the workloads' bench.py: an operation, a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pyopencl.clmath as clmath

_context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
_queue = cl.CommandQueue(_context)


def setup(threads: int) -> None:
    """The driver has its own setting for threads."""
    print("pyopencl", cl.VERSION_TEXT, _context.devices[0].name)


def to_numpy(result: Any) -> np.ndarray[Any, Any]:
    return np.asarray(result.get())


def build(work: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    def case(*arrays: np.ndarray[Any, Any]) -> Callable[[], Any]:
        inputs = [cla.to_device(_queue, np.ascontiguousarray(a)) for a in arrays]

        def run() -> Any:
            result = work(*inputs)
            _queue.finish()
            return result

        return run

    return case


CASES = {
    name: build(work)
    for name, work in {
        "fused": lambda a, b, c: (a * b + c) * np.float32(0.5) - a / (b * b + np.float32(1)),
        "exp": clmath.exp,
        "log": clmath.log,
        "sin": clmath.sin,
        "sum_all": cla.sum,
        "max_all": cla.max,
        "add16": lambda a, b: a + b,
    }.items()
}
