"""The greatest of 16-bit floats by the order of their bits: the same, nan and infinities too."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.memory import expected
from opgraft.dtype import DType, dtypes
from opgraft.ir import Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.lower.pipeline import lower, prepared, schedule_of
from opgraft.opt.actions import Refused
from opgraft.opt.bit_order import BitOrder
from opgraft.target import Target

F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
CPU = Target("test", vector_bytes=32, cores=2, compute=frozenset(dtypes.all) - {F16, BF16})
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, math.inf, -math.inf, math.nan, 2.0**-14, -(2.0**-14)]


def greatest(dtype: DType, op: Ops, rows: int, width: int, wide: bool = False) -> UOp:
    """Of each row; `wide`: of the numbers in float32."""
    i, k = kernels.loop(rows, "i"), kernels.over(width, "k")
    value = kernels.param(1, rows * width, dtype).load(i * width + k)
    value = value.cast(F32) if wide else value
    out = kernels.param(0, rows, value.dtype)
    return prepared(kernels.kernel("greatest", out.store(i, value.reduce(op, k)).end(i)))


def alike(left: list[Any], right: list[Any]) -> bool:
    """Equal, nan where nan is; the sign of a zero is free."""
    return all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("op", [Ops.MAX, Ops.MIN])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("wide", [False, True])
def test_every_pair_of_numbers_that_matter(dtype: DType, op: Ops, wide: bool) -> None:
    pairs = list(itertools.product(SPECIAL, repeat=2))
    sink = greatest(dtype, op, len(pairs), 2, wide)
    made = BitOrder().apply(sink)
    kinds = {n.dtype for n in made.toposort() if n.op is Ops.REDUCE}
    assert kinds == {dtypes.int16}
    memory = {0: [0.0] * len(pairs), 1: [dtype.const(v) for pair in pairs for v in pair]}
    assert alike(expected(made, memory)[0], expected(sink, memory)[0])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_no_number_is_widened(dtype: DType) -> None:
    sink = greatest(dtype, Ops.MAX, 4, 70)
    assert schedule_of(sink, CPU)[0] == BitOrder()
    program = lower(sink, CPU)
    assert not any(n.dtype.is_float and n.dtype.bits > 16 for n in program.instructions)
    assert max(n.dtype.count for n in program.instructions if n.op is Ops.LOAD) == 16
    values = [dtype.const(math.sin(3.0 * k)) for k in range(280)]
    memory = {0: [0.0] * 4, 1: values}
    found = interpret(program, memory)[0]
    assert alike(list(found), [max(values[r * 70 : r * 70 + 70]) for r in range(4)])


def test_who_computes_in_them_compares_them() -> None:
    native = replace(CPU, compute=frozenset(dtypes.all))
    assert BitOrder() not in schedule_of(greatest(F16, Ops.MAX, 4, 70), native)
    assert BitOrder() not in schedule_of(greatest(F32, Ops.MAX, 4, 70), CPU)


def test_it_refuses_sums_and_ranges_that_may_be_empty() -> None:
    with pytest.raises(Refused, match="16-bit"):
        BitOrder().apply(greatest(F16, Ops.ADD, 4, 7))
    with pytest.raises(Refused, match="16-bit"):
        BitOrder().apply(greatest(F32, Ops.MAX, 4, 7))
    size = UOp.variable("n", 0, 9)
    k = UOp.range(size, "k", kernels.over(1, "k").arg[1])
    found = kernels.param(1, 9, F16).load(k).reduce(Ops.MAX, k)
    sink = UOp.sink(
        kernels.param(0, 1, F16).store(UOp.const(dtypes.index, 0), found), arg=KernelInfo("some")
    )
    with pytest.raises(Refused, match="16-bit"):
        BitOrder().apply(sink)
