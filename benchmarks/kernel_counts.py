"""Kernels, bytes that they touch and the time to plan them: ours beside tinygrad's, in one run.

    python benchmarks/kernel_counts.py [NAME ...]

Twenty programs, each written once (packages/tensor/tests/programs.py). Nothing is compiled or
run. Bytes: every kernel's distinct arrays, each once; a cache may save some, nothing adds any.
Times are of one plan each, made anew, by the processor's clock; a second plan of the same program
comes from a cache in both.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages" / "core" / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages" / "tensor" / "tests"))

import programs
from opgraft_tensor.facts import Prices
from opgraft_tensor.normalise import canonical
from opgraft_tensor.plan import draft

Row = tuple[int, int, float]
"""Kernels, bytes, milliseconds."""


def ours(program: Callable[[Any], list[Any]]) -> Row:
    outputs = [o.uop for o in program(programs.Nodes)]
    begin = time.process_time()
    graph = canonical(outputs, lambda _: False)
    made = draft(graph.outputs, Prices())
    return len(made.kernels), made.bytes, (time.process_time() - begin) * 1e3


def tinygrads(program: Callable[[Any], list[Any]]) -> Row:
    outputs = program(tiny())
    begin = time.process_time()
    linear = outputs[0].schedule_linear(*outputs[1:])
    seconds = time.process_time() - begin
    moved = kernels = 0
    for call in linear.src:
        body = call.src[0]
        if body.op.name != "SINK":
            continue
        kernels += 1
        params = [n for n in body.toposort() if n.op.name == "PARAM"]
        moved += sum(prod(p.shape) * p.dtype.itemsize for p in params)
    return kernels, moved, seconds * 1e3


def tiny() -> Any:
    """tinygrad as a backend of the programs."""
    from tinygrad import Tensor

    class Tiny:
        @staticmethod
        def n(extent: int) -> int:
            return extent

        @staticmethod
        def rand(*size: int) -> Any:
            return Tensor.empty(*size)

        @staticmethod
        def sum(x: Any, axes: Sequence[int], keep: bool = False) -> Any:
            return x.sum(tuple(axes), keepdim=keep)

        @staticmethod
        def max(x: Any, axes: Sequence[int], keep: bool = False) -> Any:
            return x.max(tuple(axes), keepdim=keep)

        @staticmethod
        def cumsum(x: Any, axis: int) -> Any:
            return x.cumsum(axis)

        @staticmethod
        def tr(x: Any) -> Any:
            return x.transpose(-1, -2)

        @staticmethod
        def perm(x: Any, axes: tuple[int, ...]) -> Any:
            return x.permute(*axes)

        @staticmethod
        def relu(x: Any) -> Any:
            return x.relu()

        @staticmethod
        def stop(x: Any) -> Any:
            return x.detach()

        @staticmethod
        def softmax(x: Any) -> Any:
            return x.softmax()

        @staticmethod
        def ln(x: Any) -> Any:
            return x.layernorm()

        @staticmethod
        def conv(x: Any, w: Any, pad: int) -> Any:
            return x.conv2d(w, padding=pad)

        @staticmethod
        def pool2(x: Any) -> Any:
            return x.max_pool2d(2)

        @staticmethod
        def grad(loss: Any, wanted: Sequence[Any]) -> list[Any]:
            return list(loss.gradient(*wanted))

    return Tiny


def main() -> int:
    chosen = sys.argv[1:]
    peer = importlib.util.find_spec("tinygrad") is not None
    os.environ.setdefault("DEV", "NULL")
    head = f"{'program':16s} {'kernels':>8s} {'MB':>8s} {'ms':>8s}"
    if peer:
        head += f"   | {'tinygrad':>8s} {'MB':>8s} {'ms':>8s}   | {'kernels':>8s} {'bytes':>6s}"
    print(head)
    for program in programs.ALL:
        name = program.__name__
        if chosen and name not in chosen:
            continue
        kernels, moved, ms = ours(program)
        line = f"{name:16s} {kernels:8d} {moved / 1e6:8.2f} {ms:8.1f}"
        if peer:
            other, others, theirs = tinygrads(program)
            line += f"   | {other:8d} {others / 1e6:8.2f} {theirs:8.1f}"
            line += f"   | {kernels / other:8.2f} {moved / others:6.2f}"
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
