"""Reductions by vectors, whatever the number of elements."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft import dtypes
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Refused
from opgraft.opt.axes import Kernel
from opgraft.opt.fold import Fold, copies_of
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2, fma=frozenset({dtypes.float32}))


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("width", [8, 9, 15, 16, 23, 24, 31, 40, 50, 71])
def test_every_length_is_counted_once(width: int, copies: int) -> None:
    sink = kernels.row_sum(3, width)
    if copies > width // 8:
        with pytest.raises(Refused, match="has no"):
            Fold("k", 8, copies).apply(sink)
        return
    memory = fill(sink)
    assert expected(Fold("k", 8, copies).apply(sink), memory) == expected(sink, memory)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN])
def test_every_operation_may_be_folded(op: Ops) -> None:
    k = kernels.over(29, "k")
    out, a = kernels.param(0, 1, dtypes.int64), kernels.param(1, 29, dtypes.int64)
    total = a.load(k).reduce(op, k)
    sink = kernels.kernel("total", out.store(UOp.const(dtypes.index, 0), total))
    memory = fill(sink)
    assert expected(Fold("k", 8, 2).apply(sink), memory) == expected(sink, memory)


def test_lanes_come_together_once() -> None:
    """Not once for the vectors, once for single ones, once for a rest."""
    program = lower(kernels.row_sum(5, 77), CPU)
    assert sum(n.op is Ops.HREDUCE for n in program.instructions) == 1


def test_reductions_of_one_loop_stay_in_one_loop() -> None:
    sink = kernels.several_outputs(4, 36)
    (loop,) = (r for r in Kernel(sink).ranges if r.arg[1] is AxisKind.REDUCE)
    folded = Fold(loop.arg[0], 4, 2).apply(sink)
    outer = {r for n in Kernel(folded).reduces for r in n.src[1:] if r.arg[0] == f"{loop.arg[0]}.o"}
    assert len(outer) == 1
    memory = fill(sink)
    assert expected(folded, memory) == expected(sink, memory)


def test_a_loop_that_stores_is_not_folded() -> None:
    with pytest.raises(Refused, match="not only reduced"):
        Fold("i", 8).apply(kernels.elementwise(64))


def test_all_vectors_at_once_or_a_number_that_leaves_none() -> None:
    assert [copies_of(n, 8) for n in (1, 5, 8, 12, 14, 35, 16, 13)] == [1, 5, 8, 6, 7, 7, 8, 8]
