"""What a packed buffer will hold next is fetched while it is read, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from kernel_forms import kernels
from opgraft import Device
from opgraft.dtype import dtypes
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.actions import Action, Innermost, Parallel, Refused, Split, apply_all
from opgraft.opt.ahead import FetchAhead, Strip
from opgraft.opt.axes import store_of
from opgraft.opt.blocks import Blocks, SumInBlocks
from opgraft.opt.changes import changed
from opgraft.opt.pack import Pack
from opgraft.opt.tile import Tile
from opgraft.rules.simplify import tidy
from opgraft.runtime import compile_kernel
from opgraft.target import Target
from tested import DEVICES

SMALL = Target("test", vector_bytes=32, cache_bytes=(2048, 8192, 1 << 20), prefetch=True)
"""Caches so small that strips come from beyond them."""


def product(rows: int = 7, columns: int = 24, depth: int = 64) -> UOp:
    i, j, k = kernels.loop(rows, "i"), kernels.loop(columns, "j"), kernels.over(depth, "k")
    one, two = kernels.param(1, rows * depth), kernels.param(2, depth * columns)
    total = (one.load(i * depth + k) * two.load(k * columns + j)).reduce(Ops.ADD, k)
    out = kernels.param(0, rows * columns)
    return kernels.kernel("product", out.store(i * columns + j, total).end(i, j))


TILES = Tile((("i", 2, 1), ("j", 1, 8)))
WHOLE: tuple[Action, ...] = (TILES, Pack(("i.u", "k"), ("i.o",)))
IN_BLOCKS: tuple[Action, ...] = (
    TILES,
    Blocks("k", 40),
    SumInBlocks("k.o", ("i.o", "j.o", "i.u", "j.v")),
    Pack(("sums0.j.v",), ("sums0.k.o",)),
    Pack(("sums0.i.u", "k.i"), ("sums0.k.o", "sums0.i.o")),
)
SCHEDULES = {
    "whole": (*WHOLE, FetchAhead("pack0", "j.o")),
    "in blocks": (*IN_BLOCKS, FetchAhead("pack1", "sums0.j.o")),
}


def by(sink: UOp, *actions: Action) -> UOp:
    return sink.replace(arg=KernelInfo("scheduled", actions))


def fetches(program: LinearProgram) -> list[list[str]]:
    """The names of the loops that each PREFETCH stands in."""
    around: list[str] = []
    found = []
    for n in program.instructions:
        if n.op is Ops.RANGE:
            around.append(str(n.arg[0]))
        elif n.op is Ops.END:
            around.pop()
        elif n.op is Ops.PREFETCH:
            found.append(list(around))
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_devices_give_what_they_gave(name: str) -> None:
    draw = np.random.default_rng(3)
    a, b = (draw.integers(-3, 4, s).astype(np.float32) for s in ((7, 64), (64, 24)))
    for device in map(Device.__getitem__, DEVICES):
        run = compile_kernel(device, by(product(), *SCHEDULES[name]))
        buffers = [device.buffer(size * 4) for size in (7 * 24, a.size, b.size)]
        for buffer, values in zip(buffers[1:], (a, b), strict=True):
            buffer.copy_in(values)
        run.run(buffers, (), wait=True)
        found = np.empty((7, 24), np.float32)
        buffers[0].copy_out(found)
        np.testing.assert_array_equal(found, a @ b)


def test_each_line_of_the_next_strip_is_named_once_on_the_way_over_this_one() -> None:
    """Two rows of 4 lines each, in three tiles of columns: 3 in each, the last again."""
    whole = fetches(lower(by(product(), *SCHEDULES["whole"]), SMALL))
    assert whole == [["i.o", "j.o"]] * 3
    # in blocks of 40 lines begin anywhere; no loop is opened but those of the sums
    blocks = fetches(lower(by(product(), *SCHEDULES["in blocks"]), SMALL))
    assert blocks == [["sums0.k.o", "sums0.i.o", "sums0.j.o"]] * 2


@pytest.mark.parametrize("begin", [0, 5, 16])
def test_the_lines_of_a_strip_are_all_that_it_lies_in(begin: int) -> None:
    array = kernels.param(1, 10_000)
    strip = Strip(array, UOp.const(dtypes.index, begin), ((2, 3000), (3, 100)), 40)
    places = [strip.line(UOp.const(dtypes.index, n)) for n in range(strip.total)]
    named = {int(tidy(place).const_value or 0) // 16 for place in places}
    rows = [begin + i * 3000 + j * 100 for i in range(2) for j in range(3)]
    wanted = {at // 16 for row in rows for at in range(row, row + 40)}
    assert wanted <= named
    assert strip.total == strip.lines * prod(count for count, _ in strip.steps)


def test_targets_that_fetch_nothing_get_nothing() -> None:
    for schedule in SCHEDULES.values():
        without = replace(SMALL, prefetch=False)
        made = lower(by(product(), *schedule), without)
        assert not fetches(made)
        assert made == lower(by(product(), *schedule[:-1]), without)


def test_it_is_refused_with_a_reason() -> None:
    packed = apply_all(product(), WHOLE)
    with pytest.raises(Refused, match="no buffer 'pack3'"):
        FetchAhead("pack3", "j.o").apply(packed)
    with pytest.raises(Refused, match="no range is named"):
        FetchAhead("pack0", "j.z").apply(packed)
    with pytest.raises(Refused, match="read nothing"):
        FetchAhead("pack0", "pack0.k").apply(packed)
    with pytest.raises(Refused, match="not filled anew"):
        FetchAhead("pack0", "j.o").apply(apply_all(product(), (TILES, Pack(("i.u", "k")))))
    shared = apply_all(product(8), (*WHOLE, Parallel("i.o")))
    with pytest.raises(Refused, match="in order"):  # the next iteration may be another core's
        FetchAhead("pack0", "j.o").apply(shared)
    inside = (Split("i", 2), Pack(("k",), ("i.o", "i.i")), Innermost("i.o"))
    with pytest.raises(Refused, match="in a loop inside of range j"):
        FetchAhead("pack0", "j").apply(apply_all(product(8), inside))
    sums = apply_all(product(), IN_BLOCKS)
    with pytest.raises(Refused, match="one filling"):  # these read the finished sums
        FetchAhead("pack1", "j.o").apply(sums)
    made = FetchAhead("pack1", "sums0.j.o").apply(sums)
    with pytest.raises(Refused, match="comes last"):
        Split("k.i", 2).apply(made)


def test_the_choice_is_strips_of_rows_that_lie_pages_apart() -> None:
    """Rows of 4 KB drive each other out of the first cache; others are read where they lie."""
    target = replace(SMALL, cache_bytes=(32 << 10, 128 << 10, 1 << 20), local_bytes=2 << 20)
    paged, odd = (product(96, 512, depth) for depth in (1024, 1000))
    last = schedule_of(paged, target)[-1]
    assert last == FetchAhead("pack1", "sums0.j.o.i")
    assert [a for a in schedule_of(paged, target) if isinstance(a, Pack)][1].names[1] == "k.i"
    assert not any(isinstance(a, FetchAhead) for a in schedule_of(odd, target))
    near = replace(target, cache_bytes=(32 << 10, 1 << 20, 2 << 20))  # it lies in a core's own
    assert not any(isinstance(a, FetchAhead) for a in schedule_of(paged, near))


def test_a_search_keeps_it_last() -> None:
    steps = SCHEDULES["whole"]
    others = list(changed(product(), SMALL, steps))
    assert steps[:-1] in others
    assert all(isinstance(s[-1], FetchAhead) for s in others if steps[-1] in s)
    assert AxisKind.UNROLL in [s.kind for other in others for s in other if isinstance(s, Split)]


def test_what_is_fetched_stands_in_the_kernels_effects_or_beside_a_fill() -> None:
    effects = apply_all(product(), SCHEDULES["whole"]).src
    assert [store_of(e).op for e in effects] == [Ops.PREFETCH, Ops.STORE]
    sink = apply_all(product(), SCHEDULES["in blocks"])
    assert [store_of(e).op for e in sink.src] == [Ops.STORE]
    assert sum(n.op is Ops.PREFETCH for n in sink.toposort()) == 1
