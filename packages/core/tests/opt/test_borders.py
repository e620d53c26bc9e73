"""Loops are split where a condition on them changes, and each part goes by vectors."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft.ir import Ops, UOp
from opgraft.lower.pipeline import lower
from opgraft.opt.axes import Kernel
from opgraft.opt.borders import settle_choices
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)


def beside(left: int, right: int, height: int = 3) -> UOp:
    """Two arrays put together along rows: out[i, j] = j < left ? a[i, j] : b[i, j - left]"""
    width = left + right
    i, j = kernels.loop(height, "i"), kernels.loop(width, "j")
    out = kernels.param(0, height * width)
    a, b = kernels.param(1, height * left), kernels.param(2, height * right)
    first = a.load(i * left + j, j < left, a.dtype.const(0.0))
    second = b.load(i * right + j - left, j > left - 1, b.dtype.const(0.0))
    value = (j < left).where(first, second)
    return kernels.kernel("beside", out.store(i * width + j, value).end(i, j))


@pytest.mark.parametrize(("left", "right"), [(16, 16), (40, 23), (17, 64)])
def test_arrays_beside_each_other_are_copied_part_by_part(left: int, right: int) -> None:
    sink = beside(left, right)
    split = settle_choices(sink)
    assert len(Kernel(split).effects) == 2
    memory = fill(sink)
    assert expected(split, memory) == expected(sink, memory)


def test_then_they_move_by_vectors_and_no_choice_is_left() -> None:
    program = lower(beside(40, 32), CPU)
    assert not any(n.op is Ops.WHERE for n in program.instructions)
    stored = [n.src[2].dtype.count for n in program.instructions if n.op is Ops.STORE]
    assert set(stored) == {8}


def test_a_short_part_is_not_split_off() -> None:
    assert settle_choices(beside(3, 40)) is not None
    assert len(Kernel(settle_choices(beside(3, 40))).effects) == 1


def test_kernels_without_such_choices_are_left_alone() -> None:
    for sink in (kernels.rows(), kernels.elementwise(), kernels.transposed(), kernels.row_sum()):
        assert settle_choices(sink) is sink


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 20.5])
def test_comparisons_of_data_are_no_borders(number: float) -> None:
    """An infinity that was added to data was read as a place in the loop."""
    i, j = kernels.loop(3, "i"), kernels.loop(40, "j")
    out, a = kernels.param(0, 120), kernels.param(1, 120)
    x = a.load(i * 40 + j)
    value = (x < x * x + number).where(x, -x)
    sink = kernels.kernel("compared", out.store(i * 40 + j, value).end(i, j))
    assert settle_choices(sink) is sink
