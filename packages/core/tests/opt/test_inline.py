"""Buffers of short rows become values, so that several rows can go side by side in lanes."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft.dtype import dtypes
from opgraft.ir import Ops, UOp
from opgraft.ir.ops import Space
from opgraft.lower.pipeline import lower, prepared, schedule_of
from opgraft.opt.actions import Parallel, Refused, apply_all
from opgraft.opt.axes import Kernel
from opgraft.opt.cover import Cover
from opgraft.opt.inline import Inline
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)
"""Eight rows of float32 in a vector."""


def names(sink: UOp) -> list[object]:
    return [n.arg[0] for n in sink.toposort() if n.op is Ops.LOCAL]


def test_what_a_buffer_held_is_computed_where_it_is_read() -> None:
    sink = prepared(kernels.normalised_rows(3, 7))
    (name,) = names(sink)
    made = Inline(name).apply(sink)
    assert not names(made)
    memory = fill(sink)
    assert expected(made, memory) == expected(sink, memory)


@pytest.mark.parametrize(("rows", "width"), [(16, 3), (21, 3), (9, 5)])
def test_short_rows_go_side_by_side(rows: int, width: int) -> None:
    sink = prepared(kernels.normalised_rows(rows, width))
    steps = schedule_of(sink, CPU)
    made = apply_all(sink, steps)
    assert not names(made)
    memory = fill(sink)
    assert expected(made, memory) == expected(sink, memory)
    program = lower(sink, CPU)
    assert any(n.op is Ops.FDIV and n.dtype.count == 8 for n in program.instructions)


def test_cores_still_share_them() -> None:
    """A last vector that overlaps would cross their parts, so the last rows go one by one."""
    assert isinstance(schedule_of(prepared(kernels.normalised_rows(83, 3)), CPU)[-1], Parallel)
    assert Cover("i", 8) in schedule_of(prepared(kernels.normalised_rows(80, 3)), CPU)


def test_longer_rows_and_few_rows_stay_as_they_are() -> None:
    for rows, width in ((80, 9), (7, 3)):
        steps = schedule_of(prepared(kernels.normalised_rows(rows, width)), CPU)
        assert not any(isinstance(step, Inline) for step in steps)


def test_where_nothing_is_read_nothing_is_computed() -> None:
    """Beyond the buffer's ends there would be nothing to compute it of, either."""
    i, j, own = kernels.loop(10, "i"), kernels.loop(4, "j"), kernels.loop(2, "own")
    out, a = kernels.param(0, 40), kernels.param(1, 2)
    places = kernels.param(2, 2, dtypes.int32)
    row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 2, Space.PRIVATE))
    value = a.load((places.load(own) & 1).cast(dtypes.index)) + 1.0
    index = i + j * -2
    inside = (index < 0).eq(False) & (index < 2)
    read = row.after(row.store(own, value).end(own)).load(index, inside, 0.5)
    sink = kernels.kernel("windows", out.store(i * 4 + j, read).end(i, j))
    made = Inline("row").apply(sink)
    assert not names(made)
    memory = fill(sink)
    assert expected(made, memory) == expected(sink, memory)


def test_it_refuses_what_is_no_value() -> None:
    with pytest.raises(Refused, match="no buffer that one statement fills"):
        Inline("nothing").apply(prepared(kernels.rows(3, 4)))
    i, j, k = kernels.loop(3, "i"), kernels.loop(4, "j"), kernels.loop(4, "k")
    local = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 8, Space.PRIVATE))
    out, a = kernels.param(0, 12), kernels.param(1, 12)
    spread = local.after(local.store(k * 2, a.load(i * 4 + k)).end(k))
    sink = kernels.kernel("spread", out.store(i * 4 + j, spread.load(j * 2)).end(i, j))
    with pytest.raises(Refused, match="element by element"):
        Inline("row").apply(sink)


def test_it_refuses_rows_that_are_overwritten() -> None:
    """Backwards in place: an element is read after another one of the row is stored."""
    i, j, k = kernels.loop(3, "i"), kernels.loop(4, "j"), kernels.loop(4, "k")
    local = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 4, Space.PRIVATE))
    a = kernels.param(0, 12)
    kept = local.after(local.store(k, a.load(i * 4 + k)).end(k))
    sink = kernels.kernel("backwards", a.store(i * 4 + j, kept.load(j * -1 + 3)).end(i, j))
    with pytest.raises(Refused, match="overwrites"):
        Inline("row").apply(sink)
    assert Kernel(sink).has_locals
