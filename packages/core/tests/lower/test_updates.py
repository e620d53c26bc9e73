"""Kernels in place whose iterations read what another one overwrites: right, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.kernels import kernel, loop, param
from kernel_forms.memory import expected, fill
from opgraft.devices.invented import LANES32
from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir import Ops, UOp
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Action, Unroll
from opgraft.opt.blocks import Blocks
from opgraft.opt.prefetch import Prefetch
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)


def less_the_first(least: int) -> UOp:
    """x[i] -= x[0], for as many rows as a variable says."""
    i, j = UOp.range(UOp.variable("n", least, 4), "i"), loop(6, "j")
    x = param(0, 24)
    at = i * 6 + j
    return kernel("less_the_first", x.store(at, x.load(at) - x.load(0)).end(i, j))


@pytest.mark.parametrize("target", [CPU, LANES32], ids=lambda t: t.name)
def test_what_all_iterations_read_is_read_before_the_first_stores(target: Target) -> None:
    sink = less_the_first(1)
    memory = fill(sink)
    first = memory[0][0]
    for rows in (1, 4):
        wanted = [x - first if i < 6 * rows else x for i, x in enumerate(memory[0])]
        assert interpret(lower(sink, target), memory, {"n": rows}) == {0: wanted}


@pytest.mark.parametrize("target", [CPU, LANES32], ids=lambda t: t.name)
def test_a_loop_that_may_be_empty_is_refused_there(target: Target) -> None:
    with pytest.raises(LoweringError, match=r"slot 0 is overwritten in loops .* empty \(i\)"):
        lower(less_the_first(0), target)


def test_what_is_fetched_ahead_of_a_loop_that_may_be_empty_is_not_overwritten() -> None:
    """Rows of an array that its own first elements name."""
    i, j = UOp.range(UOp.variable("n", 0, 64), "i"), loop(32, "j")
    x, y = param(1, 64 * 32, dtypes.int32), param(0, 64 * 32, dtypes.int32)
    row = x.load(i).cast(dtypes.index).maximum(0).minimum(63)
    sink = kernel("rows", y.store(i * 32 + j, x.load(row * 32 + j)).end(i, j))
    sink = sink.replace(arg=replace(sink.arg, schedule=(Prefetch("i", 4),)))
    program = lower(sink, replace(CPU, prefetch=True))
    assert any(n.op is Ops.PREFETCH for n in program.instructions)


def test_so_are_loops_that_a_schedule_made() -> None:
    sink = kernels.less_its_maximum()
    steps: tuple[Action, ...] = (Blocks("i", 8), Blocks("i.o", 2), Unroll("k"))
    with pytest.raises(LoweringError, match="loops that may be empty"):
        lower(sink.replace(arg=replace(sink.arg, schedule=steps)), CPU)


def test_cores_share_no_loop_that_overwrites_what_the_others_read() -> None:
    """Though what all of them read first is little beside the rest."""
    sink = kernels.less_its_maximum(4000)
    program = lower(sink, replace(CPU, cores=8))
    assert program.parallel is None
    i, k = loop(400, "i"), kernels.over(8, "k")
    x = param(0, 400)
    few = kernel("few", x.store(i, x.load(i) - x.load(k).reduce(Ops.MAX, k)).end(i))
    assert lower(few, CPU).parallel is None
    memory = fill(few)
    assert interpret(lower(few, CPU), memory) == expected(few, memory)
