"""Scans by vectors: what stands before a vector is added to all of its lanes at once."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from kernel_forms.random_kernels import Made, compare
from opgraft import Device, dtypes
from opgraft.ir import Ops, UOp
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Refused
from opgraft.opt.scan import ScanLanes
from opgraft.target import Target
from tested import DEVICES

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)


def running(op: Ops, size: int) -> UOp:
    """out[i] = a[0] op ... op a[i]"""
    i = kernels.loop(size, "i")
    out, a = kernels.param(0, size, dtypes.int64), kernels.param(1, size, dtypes.int64)
    scan = UOp(Ops.SCAN, dtypes.int64, (a.load(i), i), op)
    return kernels.kernel("running", out.store(i, scan).end(i))


@pytest.mark.parametrize("width", [8, 9, 11, 12, 31])
def test_a_scan_is_right_in_any_length(width: int) -> None:
    sink = kernels.cumulative(3, width)
    memory = fill(sink)
    made = ScanLanes("j", 4).apply(sink)
    assert expected(made, memory) == expected(sink, memory)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN])
def test_every_operation_may_be_scanned(op: Ops) -> None:
    sink = running(op, 19)
    memory = fill(sink)
    assert expected(ScanLanes("i", 4).apply(sink), memory) == expected(sink, memory)


def test_one_addition_a_vector_waits_for_the_vector_before() -> None:
    """The rest are exchanges of lanes, and additions that wait for nothing but the load."""
    program = lower(kernels.cumulative(2, 64), CPU)
    loads = [n for n in program.instructions if n.op is Ops.LOAD and n.src[0].op is Ops.PARAM]
    assert {n.dtype.count for n in loads} == {8}
    stores = [n for n in program.instructions if n.op is Ops.STORE and n.src[0].op is Ops.LOCAL]
    (carried,) = [n for n in stores if n.src[2].op is Ops.ADD]
    before, own = carried.src[2].src
    assert before.op is Ops.LOAD
    assert before.src[0] is carried.src[0]
    assert before not in own.toposort()


def test_a_short_row_goes_one_by_one() -> None:
    program = lower(kernels.cumulative(3, 20), CPU)
    assert all(n.dtype.count == 1 for n in program.instructions)


def test_it_refuses_what_it_cannot_keep() -> None:
    with pytest.raises(Refused, match="not scanned"):
        ScanLanes("i", 4).apply(kernels.elementwise(64))
    with pytest.raises(Refused, match="no two vectors"):
        ScanLanes("j", 8).apply(kernels.cumulative(3, 10))
    i = kernels.loop(32, "i")
    a = kernels.param(0, 32)
    scan = UOp(Ops.SCAN, a.dtype, (a.load(i), i), Ops.ADD)
    with pytest.raises(Refused, match="is read in this kernel"):
        ScanLanes("i", 4).apply(kernels.kernel("own", a.store(i, scan).end(i)))
    out, twice = (
        kernels.param(0, 32),
        UOp(Ops.SCAN, a.dtype, (kernels.param(1, 32).load(i), i), Ops.ADD),
    )
    twice = UOp(Ops.SCAN, a.dtype, (twice, i), Ops.ADD)
    with pytest.raises(Refused, match="scanned again"):
        ScanLanes("i", 4).apply(kernels.kernel("twice", out.store(i, twice).end(i)))


@pytest.mark.parametrize("name", DEVICES)
def test_long_rows_run_as_the_oracle_says(name: str) -> None:
    for sink in (kernels.cumulative(2, 77), running(Ops.MAX, 67)):
        assert not compare(Made(sink, {}), [Device[name]], 5)
