"""Loads and stores of every kind and dtype: gated, scattered, unaligned, in place, far apart.

Behind the end of each buffer lies a border that no kernel may touch.
"""

from __future__ import annotations

import pytest

from opgraft.api import Device, Target
from opgraft.dtype import DType, dtypes
from opgraft.ir.uop import UOp
from opgraft_conformance import kernels
from opgraft_conformance.execution import agree
from opgraft_conformance.operations import require
from opgraft_conformance.rows import not_claimed

pytestmark = pytest.mark.must

HELD = (dtypes.bool, dtypes.int8, dtypes.float16, dtypes.bfloat16, dtypes.float32,
        dtypes.int64, dtypes.float64)  # fmt: skip
"""One dtype of each way to be held in memory."""


@pytest.mark.parametrize("dtype", HELD, ids=str)
@pytest.mark.parametrize("name", kernels.MOVES)
def test_moves(
    device: Device, reference: Device, capabilities: Target, name: str, dtype: DType
) -> None:
    """A kernel of kernels.MOVES on a dtype."""
    require(capabilities, dtype)
    sink = kernels.MOVES[name](dtype)
    agree(device, reference, sink, hint=kernels.HINTS.get(name, ""))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int16, dtypes.float16], ids=str)
@pytest.mark.parametrize("name", kernels.SHAPES)
def test_shapes(
    device: Device, reference: Device, capabilities: Target, name: str, dtype: DType
) -> None:
    """A kernel of kernels.SHAPES as the scheduler writes it."""
    require(capabilities, dtype)
    agree(device, reference, kernels.SHAPES[name](dtype))


def test_many_buffers(device: Device, reference: Device, capabilities: Target) -> None:
    """As many buffers as the target allows, up to a hundred, in one kernel."""
    count = min(capabilities.max_buffers, 100)
    if count < 2:
        not_claimed(f"{capabilities.name} takes no more than {count} buffers")
    i = kernels.loop(9, "i")
    params = [kernels.param(slot, 9 + slot % 3, dtypes.int32) for slot in range(count)]
    total = params[1].load(i)
    for place, buffer in enumerate(params[2:], 2):
        total = total + buffer.load(i) * place
    sink = kernels.kernel("many_buffers", params[0].store(i, total).end(i))
    agree(device, reference, sink, hint="the order of buffers, or a limit that the target hides")


def test_variables(device: Device, reference: Device) -> None:
    """Numbers handed over at each launch, integers and floats, in the order of their names."""
    sink = variables_of_every_kind()
    for values in ((0, -5, 0.1, 3), (1 << 40, 7, -2.5, 31), (-(1 << 40), -128, 1e-40, 0)):
        agree(device, reference, sink, variables=values, hint="how variables are handed over")


def variables_of_every_kind() -> UOp:
    """out[i] for i below n, from a wide, a narrow and a float variable."""
    wide = UOp.variable("a_wide", -(1 << 41), 1 << 41, dtypes.int64)
    narrow = UOp.variable("b_narrow", -128, 127, dtypes.int8)
    number = UOp.variable("c_number", -1e30, 1e30, dtypes.float32)
    n = UOp.variable("n", 0, 31)
    i = kernels.loop(n, "i")
    out, other = kernels.param(0, 31, dtypes.int64), kernels.param(1, 31, dtypes.float32)
    whole = wide + narrow.cast(dtypes.int64) * i.cast(dtypes.int64)
    return kernels.kernel(
        "variables",
        out.store(i, whole).end(i),
        other.store(i, number * i.cast(dtypes.float32)).end(i),
    )
