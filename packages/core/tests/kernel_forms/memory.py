"""Memory for a kernel's parameters: small integers, so that every order of a sum is exact."""

from __future__ import annotations

import random
from typing import Any

from opgraft.ir import Ops, UOp

from .oracle import Memory, Oracle


def parameters(sink: UOp) -> dict[int, UOp]:
    """The PARAMs by slot."""
    found = {n.arg[0]: n for n in sink.toposort() if n.op is Ops.PARAM}
    return dict(sorted(found.items()))


def fill(sink: UOp, seed: int = 0) -> Memory:
    """Values for each parameter, floats as well as integers from -4 to 12."""
    pick = random.Random(seed)

    def value(n: UOp) -> Any:
        number = pick.randint(-4, 12)
        return n.dtype.const(float(number) if n.dtype.is_float else number)

    return {slot: [value(n) for _ in range(n.arg[1])] for slot, n in parameters(sink).items()}


def expected(sink: UOp, memory: Memory) -> Memory:
    """The memory after the kernel, by the oracle; `memory` itself is left alone."""
    return Oracle(sink, {slot: list(values) for slot, values in memory.items()}).run()
