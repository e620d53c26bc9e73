"""Loops of stores by whole vectors, whatever the number of elements."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft.ir import AxisKind, Ops
from opgraft.ir.linear import KernelInfo
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Parallel, Refused
from opgraft.opt.axes import Kernel
from opgraft.opt.cover import Cover
from opgraft.opt.heuristic import schedule
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("size", [8, 9, 16, 23, 31, 40, 71])
def test_every_element_is_stored(size: int, copies: int) -> None:
    sink = kernels.elementwise(size)
    if copies > size // 8:
        with pytest.raises(Refused, match="has no"):
            Cover("i", 8, copies).apply(sink)
        return
    memory = fill(sink)
    assert expected(Cover("i", 8, copies).apply(sink), memory) == expected(sink, memory)


def test_no_element_goes_by_itself() -> None:
    program = lower(kernels.rows(3, 77), CPU)
    stored = [n.src[2].dtype.count for n in program.instructions if n.op is Ops.STORE]
    assert set(stored) == {8}


def test_rows_are_summed_once_for_all_columns() -> None:
    """Vectors, single vectors and the last one: all in one loop over rows."""
    sink = kernels.column_max(9, 50)
    program = lower(sink.replace(arg=KernelInfo("k", (Cover("j", 8, 4),))), CPU)
    loops = [n for n in program.instructions if n.op is Ops.RANGE and int(n.src[0].arg) == 9]
    assert len(loops) == 1


def test_what_a_statement_reads_is_not_stored_twice() -> None:
    sink = kernels.in_place(30)
    with pytest.raises(Refused, match="reads what it"):
        Cover("i", 8).apply(sink)
    whole = Cover("i", 5).apply(sink)  # nothing is left to be covered twice
    memory = fill(sink)
    assert expected(whole, memory) == expected(sink, memory)


def test_it_refuses_reductions_and_loops_in_order() -> None:
    with pytest.raises(Refused, match="is reduced"):
        Cover("k", 8).apply(kernels.row_sum(4, 40))
    with pytest.raises(Refused):
        Cover("i", 2).apply(kernels.colliding_stores(16))
    with pytest.raises(Refused, match="scanned"):
        Cover("j", 4).apply(kernels.cumulative(3, 10))


def test_a_loop_that_cores_share_out_keeps_its_rest() -> None:
    """A vector over its end would store what another core stores."""
    found = {str(r.arg[0]): r.arg[1] for r in Kernel(schedule(kernels.elementwise(77), CPU)).ranges}
    assert found["i.o"] is AxisKind.PARALLEL
    with pytest.raises(Refused, match="does not enclose"):
        Parallel("i.o").apply(Cover("i", 8, 2).apply(kernels.elementwise(70)))
