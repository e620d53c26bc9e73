"""A scan over a loop with another loop inside of it: as many sums as that has iterations."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.memory import expected, fill
from kernel_forms.random_kernels import Made, compare
from opgraft import Device, Ops, UOp, dtypes
from opgraft.errors import LoweringError
from opgraft.ir import Space
from opgraft.lower.pipeline import lower
from opgraft.target import Target
from tested import DEVICES

PLAIN = Target("plain", vector_bytes=0, parallel=None)


def sums_of_columns(op: Ops, rows: int, width: int, dtype: object = dtypes.float32) -> UOp:
    """Running values down each column, and one of each row read again once the row is whole."""
    i, j = kernels.loop(rows, "i"), kernels.loop(width, "j")
    out = kernels.param(0, rows * width, dtype)
    row, a = kernels.param(1, rows, dtype), kernels.param(2, rows * width, dtype)
    at = i * width + j
    running = UOp(Ops.SCAN, a.dtype, (a.load(at), i), op)
    store = out.store(at, running + 1)
    whole = out.after(store.end(j)).load(i * width + (i * -1 + 7) % width)
    return kernels.kernel("columns", store.end(i, j), row.store(i, whole).end(i))


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
def test_each_iteration_of_the_inner_loop_has_a_sum_of_its_own(op: Ops) -> None:
    sink = sums_of_columns(op, 5, 3)
    memory = fill(sink)
    program = lower(sink, PLAIN)
    assert interpret(program, memory) == expected(sink, memory)
    carried = [n for n in program.instructions if n.op is Ops.LOCAL and n.arg[2] is Space.PRIVATE]
    assert [n.arg[1] for n in carried] == [3]


@pytest.mark.parametrize("name", DEVICES)
def test_devices_carry_them(name: str) -> None:
    for width in (3, 24):
        sink = sums_of_columns(Ops.ADD, 9, width, dtypes.int32)
        assert not compare(Made(sink), [Device[name]], 3)


def test_a_scan_alone_carries_one_register() -> None:
    i, j = kernels.loop(5, "i"), kernels.loop(3, "j")
    out, a = kernels.param(0, 15), kernels.param(1, 15)
    running = UOp(Ops.SCAN, a.dtype, (a.load(i * 3 + j), i), Ops.ADD)
    program = lower(kernels.kernel("down", out.store(i * 3 + j, running).end(i, j)), PLAIN)
    assert {n.arg[2] for n in program.instructions if n.op is Ops.LOCAL} == {Space.REGISTER}


def test_more_sums_than_memory_is_kept_for_are_refused_with_a_remedy() -> None:
    with pytest.raises(LoweringError, match="5000 sums side by side"):
        lower(sums_of_columns(Ops.ADD, 5, 5000), PLAIN)
