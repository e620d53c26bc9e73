"""Rows at places that memory names are fetched before their turn, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft import Device
from opgraft.dtype import dtypes
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.laws import broken_law
from opgraft.ir.linear import KernelInfo
from opgraft.ir.text import linear_to_text, parse_linear
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.actions import Action, Parallel, Refused, Split
from opgraft.opt.axes import store_of
from opgraft.opt.chunks import InChunks
from opgraft.opt.cover import Cover
from opgraft.opt.prefetch import Prefetch
from opgraft.runtime import compile_kernel
from opgraft.target import Target
from tested import DEVICES

I64 = dtypes.int64
PLAIN = Target("test", vector_bytes=32, cores=2, cache_bytes=(64, 128, 1 << 20), prefetch=True)
"""A device of caches so small that every table is far away."""


def taken(count: int = 20, table: int = 30, width: int = 40) -> UOp:
    """Rows by number."""
    return kernels.gather(count, table, width)


def ahead(sink: UOp) -> list[UOp]:
    return [store_of(e) for e in sink.src if store_of(e).op is Ops.PREFETCH]


def by(sink: UOp, *actions: Action) -> UOp:
    return sink.replace(arg=KernelInfo("scheduled", actions))


def memory_of(sink: UOp) -> dict[int, list[object]]:
    """Rows of numbers, and valid and invalid places among the indices."""
    return fill(sink) | {2: list(range(-3, sink_count(sink) - 3))}


def sink_count(sink: UOp) -> int:
    return next(int(n.arg[1]) for n in sink.toposort() if n.op is Ops.PARAM and n.arg[0] == 2)


@pytest.mark.parametrize("distance", [1, 4, 100])
@pytest.mark.parametrize(
    "before", [(), (Cover("j", 8, 2), Parallel("i")), (Split("j", 8, AxisKind.VECTOR),)]
)
def test_no_value_changes_and_no_place_is_read_that_is_not_there(
    before: tuple[Action, ...], distance: int
) -> None:
    """The oracle refuses to load beyond the end of the list of places."""
    sink = made = taken(7, 10, 16)
    for action in (*before, Prefetch("i", distance)):
        made = action.apply(made)
    assert len(ahead(made)) == 1
    memory = memory_of(sink)
    assert expected(made, memory) == expected(sink, memory)


@pytest.mark.parametrize("device", DEVICES)
def test_devices_give_what_they_gave(device: str) -> None:
    """Some of the places that are named ahead are not there: nobody looks."""
    width = 40
    sink = taken(20, 30, width)
    opened = Device[device]
    memory = memory_of(sink)
    found = []
    for actions in ((), (Prefetch("i", 4),)):
        run = compile_kernel(opened, by(sink, *actions))
        out = opened.buffer(20 * width * 4)
        table = opened.buffer(30 * width * 4)
        table.copy_in(memoryview(np.array(memory[1], "f4")).cast("B"))
        places = opened.buffer(20 * 8)
        places.copy_in(memoryview(np.array(memory[2], "i8")).cast("B"))
        run.run([out, table, places], wait=True)
        result = np.empty(20 * width, "f4")
        out.copy_out(memoryview(result).cast("B"))
        found.append(result)
    assert found[0].tolist() == found[1].tolist() == expected(sink, memory)[0]


def test_each_line_of_a_row_is_named_once() -> None:
    """40 numbers that begin anywhere at a multiple of 8: 160 bytes, in up to 4 lines."""
    made = lower(by(taken(), Cover("j", 8), Prefetch("i", 4)), PLAIN)
    fetched = [n for n in made.instructions if n.op is Ops.PREFETCH]
    assert len(dict.fromkeys(fetched)) == len(fetched) == 3
    aligned = lower(by(taken(width=32), Prefetch("i", 4)), PLAIN)
    assert sum(n.op is Ops.PREFETCH for n in aligned.instructions) == 2
    few = lower(by(taken(width=4000), Prefetch("i", 4)), PLAIN)
    assert sum(n.op is Ops.PREFETCH for n in few.instructions) == 32


def test_a_program_says_what_it_fetches() -> None:
    program = lower(by(taken(), Cover("j", 8), Prefetch("i", 4)), PLAIN)
    text = linear_to_text(program)
    assert "prefetch(" in text
    assert parse_linear(text) == program


def test_a_target_that_fetches_nothing_gets_nothing() -> None:
    with_, without = by(taken(), Prefetch("i", 4)), by(taken())
    lacking = replace(PLAIN, prefetch=False)
    assert lower(with_, lacking).instructions == lower(without, lacking).instructions


def test_without_wide_integers_the_places_are_words() -> None:
    narrow = replace(PLAIN, compute=frozenset(dtypes.all) - {I64, dtypes.uint64}, vector_bytes=0)
    i, j = kernels.loop(8, "i"), kernels.loop(24, "j")
    out, table = kernels.param(0, 8 * 24, I64), kernels.param(1, 9 * 24, I64)
    place = kernels.param(2, 8, dtypes.int32).load(i).cast(dtypes.index).maximum(0).minimum(8)
    value = table.load(place * 24 + j)
    sink = kernels.kernel("wide", out.store(i * 24 + j, value).end(i, j))
    program = lower(by(sink, Prefetch("i", 2)), narrow)
    fetched = [n for n in program.instructions if n.op is Ops.PREFETCH]
    assert fetched
    assert all(n.src[0].dtype is dtypes.uint32 and n.src[0].arg[1] == 432 for n in fetched)
    steps = [n.src[1] for n in fetched]
    assert all(s.op is Ops.MUL and s.src[1].arg == 2 for s in steps)


def test_the_heuristic_fetches_long_rows_from_afar() -> None:
    assert schedule_of(taken(200), PLAIN)[-1] == Prefetch("i", 21)
    assert schedule_of(taken(8), PLAIN)[-1] == Parallel("i")  # over before it begins to help
    assert schedule_of(taken(200, 30, 16), PLAIN)[-1] == Parallel("i")  # one line
    near = replace(PLAIN, cache_bytes=(64, 1 << 20, 1 << 21))
    assert schedule_of(taken(200), near)[-1] == Parallel("i")
    assert schedule_of(taken(200), replace(PLAIN, prefetch=False))[-1] == Parallel("i")


def test_a_schedule_that_fetches_replays() -> None:
    steps = schedule_of(taken(200), PLAIN)
    assert lower(by(taken(200), *steps), PLAIN) == replace(
        lower(taken(200), PLAIN), name="scheduled"
    )


def test_it_refuses_what_it_cannot_name() -> None:
    with pytest.raises(Refused, match="no place in memory is named"):
        Prefetch("i", 4).apply(kernels.rows(6, 40))
    with pytest.raises(Refused, match="no place in memory is named"):
        Prefetch("j", 4).apply(taken())  # columns of a row stand side by side
    with pytest.raises(Refused, match="0 iterations"):
        Prefetch("i", 0).apply(taken())
    with pytest.raises(Refused, match="one iteration after another"):
        Prefetch("j.v", 1).apply(Split("j", 8, AxisKind.VECTOR).apply(taken()))
    with pytest.raises(Refused, match="no range is named"):
        Prefetch("k", 1).apply(taken())


def test_it_refuses_elements_that_lie_apart() -> None:
    i, j = kernels.loop(9, "i"), kernels.loop(8, "j")
    out, table = kernels.param(0, 72), kernels.param(1, 2000)
    place = kernels.param(2, 9, dtypes.int32).load(i).cast(dtypes.index).maximum(0).minimum(19)
    apart = out.store(i * 8 + j, table.load(place + j * 200)).end(i, j)
    with pytest.raises(Refused, match="lies apart"):
        Prefetch("i", 4).apply(kernels.kernel("apart", apart))
    square = out.store(i * 8 + j, table.load(place + j * j)).end(i, j)
    with pytest.raises(Refused, match="is no row"):
        Prefetch("i", 4).apply(kernels.kernel("square", square))


def test_it_refuses_places_that_the_kernel_stores() -> None:
    i = kernels.loop(9, "i")
    table, places = kernels.param(0, 40), kernels.param(1, 9, dtypes.int32)
    place = places.load(i).cast(dtypes.index).maximum(0).minimum(39)
    changed = places.store(i, table.load(place).cast(dtypes.int32)).end(i)
    with pytest.raises(Refused, match="stores to the places"):
        Prefetch("i", 2).apply(kernels.kernel("changed", changed))


def test_it_refuses_iterations_that_may_be_none() -> None:
    """Chunks of a length that does not divide: the last looks for places beyond the list."""
    made = InChunks(3).apply(Parallel("i").apply(taken(20)))
    with pytest.raises(Refused, match="may have nothing to do"):
        Prefetch("i.i", 2).apply(made)
    whole = InChunks(4).apply(Parallel("i").apply(taken(20)))
    assert len(ahead(Prefetch("i.i", 2).apply(whole))) == 1


def test_other_actions_come_before_it() -> None:
    made = Prefetch("i", 4).apply(taken())
    with pytest.raises(Refused, match="it comes last"):
        Parallel("i").apply(made)
    with pytest.raises(Refused, match="it comes last"):
        Split("j", 4).apply(made)


def test_parts_of_a_row_are_one_row() -> None:
    """Two reads of a row, of elements side by side."""
    i, j = kernels.loop(9, "i"), kernels.loop(32, "j")
    out, table = kernels.param(0, 9 * 32), kernels.param(1, 33 * 20)
    place = kernels.param(2, 9, dtypes.int32).load(i).cast(dtypes.index).maximum(0).minimum(19)
    value = table.load(place * 33 + j) + table.load(place * 33 + j + 1)
    sink = kernels.kernel("beside", out.store(i * 32 + j, value).end(i, j))
    made = Prefetch("i", 2).apply(sink)
    assert len(ahead(made)) == 1
    program = lower(by(sink, Prefetch("i", 2)), PLAIN)
    assert sum(n.op is Ops.PREFETCH for n in program.instructions) == 3


def test_what_is_fetched_is_one_element_of_memory() -> None:
    table, place = kernels.param(0, 9), UOp.const(dtypes.int32, 3)
    gate, lanes = UOp.const(dtypes.bool, True), UOp.const(dtypes.int32.vec(4), 3)
    register = UOp(Ops.LOCAL, dtypes.float32, (), ("r", 1, Space.REGISTER))

    def fetch(*src: UOp) -> UOp:
        return UOp(Ops.PREFETCH, dtypes.void, src)

    for good in (fetch(table, place), fetch(table, place, gate)):
        assert broken_law(good) is None
    for bad, says in (
        (fetch(table), "2 or 3 sources"),
        (fetch(table, lanes), "one element"),
        (fetch(table, place, place), "one bool"),
        (fetch(register, place), "not in registers"),
    ):
        law = broken_law(bad)
        assert law is not None
        assert says in law.says
