"""Results greater than the caches are stored past them, where that is safe and whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft import Device
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import STREAM, KernelInfo
from opgraft.opt.actions import Refused, Split
from opgraft.opt.heuristic import schedule
from opgraft.opt.stores import Stream, divisor
from opgraft.runtime import compile_kernel
from opgraft.target import Target
from tested import DEVICES

SMALL = Target("test", vector_bytes=32, vector_registers=16, cores=2, cache_bytes=(64, 128, 200))
"""A device whose last cache holds 50 numbers: of three arrays, 16 each."""


def streamed(sink: UOp) -> list[UOp]:
    return [n for n in sink.toposort() if n.op is Ops.STORE and n.tag == STREAM]


def test_a_kernel_that_touches_more_than_the_last_cache_holds_stores_past_it() -> None:
    assert streamed(schedule(kernels.elementwise(64), SMALL))
    assert not streamed(schedule(kernels.elementwise(16), SMALL))
    roomy = replace(SMALL, cache_bytes=(64, 128, 1 << 20))
    assert not streamed(schedule(kernels.elementwise(64), roomy))


def test_what_fills_the_last_cache_leaves_no_room_for_its_result() -> None:
    size = sum(n.arg[1] * 4 for n in kernels.elementwise(64).toposort() if n.op is Ops.PARAM)
    full = replace(SMALL, cache_bytes=(64, 128, size))
    assert streamed(schedule(kernels.elementwise(64), full))
    roomy = replace(SMALL, cache_bytes=(64, 128, size + 1))
    assert not streamed(schedule(kernels.elementwise(64), roomy))


def test_a_small_result_of_much_stays_in_the_cache() -> None:
    """Whoever wants it next finds it there."""
    assert not streamed(schedule(kernels.column_max(90, 8), SMALL))


def test_a_result_of_a_quarter_of_the_cache_is_none_that_stays() -> None:
    i = kernels.loop(8, "i")
    out, a = kernels.param(0, 8), kernels.param(1, 900)
    sink = kernels.kernel("part", out.store(i, a.load(i) + 1.0).end(i))
    assert streamed(schedule(sink, replace(SMALL, cache_bytes=(64, 128, 4 * 32))))
    assert not streamed(schedule(sink, replace(SMALL, cache_bytes=(64, 128, 4 * 32 + 1))))


def test_tiles_that_read_beside_what_they_store_do_not() -> None:
    i, j = kernels.loop(64, "i"), kernels.loop(64, "j")
    out, a, b = (kernels.param(slot, 64 * 64) for slot in range(3))
    value = a.load(i * 64 + j) + b.load(j * 64 + i)
    both = kernels.kernel("both", out.store(i * 64 + j, value).end(i, j))
    assert not streamed(schedule(both, SMALL))
    assert streamed(schedule(kernels.transposed(64, 64), SMALL))


def test_only_whole_vectors_do() -> None:
    sink = schedule(kernels.elementwise(67), SMALL)
    stores = [n for n in sink.toposort() if n.op is Ops.STORE]
    assert len(stores) == 2  # vectors, and the rest
    (own,) = streamed(sink)
    assert any(r.arg[1] is AxisKind.VECTOR for r in own.ranges)


@pytest.mark.parametrize("width", [9, 12, 20])
def test_rows_that_begin_within_a_vector_do_not(width: int) -> None:
    """Their vectors lie across lines: half of each would be written twice."""
    sink = Split("j", 8, AxisKind.VECTOR).apply(kernels.rows(4, width))
    with pytest.raises(Refused, match="no whole vectors"):
        Stream(0).apply(sink)


def test_what_the_kernel_reads_does_not() -> None:
    sink = Split("i", 8, AxisKind.VECTOR).apply(kernels.in_place(32))
    with pytest.raises(Refused, match="reads slot 0"):
        Stream(0).apply(sink)
    with pytest.raises(Refused, match="nothing is stored to slot 9"):
        Stream(9).apply(sink)


def test_it_changes_no_result() -> None:
    sink = kernels.elementwise(64)
    memory = fill(sink)
    assert expected(schedule(sink, SMALL), memory) == expected(sink, memory)


def test_a_number_divides_an_index() -> None:
    i, j = kernels.loop(7, "i"), kernels.loop(9, "j")
    assert divisor(i * 16 + j * 24) == 8
    assert divisor((i * 8).minimum(UOp.const(i.dtype, 48)) + j * 16) == 8
    assert divisor((i * 12) % 8) == 4
    assert divisor(i * 8 + j) == 1


@pytest.mark.parametrize("offset", [0, 4, 32])
def test_memory_that_begins_within_a_vector_is_stored_as_ever(offset: int) -> None:
    """A part of a buffer begins anywhere: the kernel asks before it stores past the caches."""
    device = Device["CPU" if "CPU" in DEVICES else "INTERP"]
    i = kernels.loop(64, "i")
    out, a = kernels.param(0, 64), kernels.param(1, 64)
    sink = UOp.sink(
        out.store(i, a.load(i) + 1.0).end(i),
        arg=KernelInfo("streamed", (Split("i", 8, AxisKind.VECTOR), Stream(0))),
    )
    whole, given = device.buffer(64 * 4 + 64), device.buffer(64 * 4)
    values = np.arange(64, dtype=np.float32)
    given.copy_in(memoryview(values).cast("B"))
    part = whole.view(offset, 64 * 4)
    compile_kernel(device, sink).run([part, given], wait=True)
    found = np.empty(64 * 4, np.uint8)
    part.copy_out(memoryview(found))
    assert (found.view(np.float32) == values + 1).all()
