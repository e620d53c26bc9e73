"""The next row is fetched while this one is read for the last time, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernel_forms import kernels
from opgraft import Device
from opgraft.ir import Ops, UOp
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.actions import Refused, Split
from opgraft.opt.next_row import FetchNext
from opgraft.rules.simplify import tidy
from opgraft.runtime import compile_kernel
from opgraft.target import Target
from tested import DEVICES

SMALL = Target("test", vector_bytes=32, cache_bytes=(4096, 8192, 1 << 20), prefetch=True)
"""Caches so small that rows come from beyond them."""


def centred(height: int = 6, width: int = 600) -> UOp:
    """Rows less their greatest elements."""
    i, j, k = kernels.loop(height, "i"), kernels.loop(width, "j"), kernels.over(width, "k")
    out, array = kernels.param(0, height * width), kernels.param(1, height * width)
    most = array.load(i * width + k).reduce(Ops.MAX, k)
    value = array.load(i * width + j) - most
    return kernels.kernel("centred", out.store(i * width + j, value).end(i, j))


def loops_around_fetches(program: LinearProgram) -> list[tuple[list[str], bool]]:
    """The loops that each PREFETCH stands in; whether the last of them stores as well."""
    around: list[tuple[str, int]] = []
    found: list[tuple[list[str], int]] = []
    stored: set[int] = set()
    for place, n in enumerate(program.instructions):
        if n.op is Ops.RANGE:
            around.append((str(n.arg[0]), place))
        elif n.op is Ops.END:
            around.pop()
        elif n.op is Ops.PREFETCH:
            found.append(([name for name, _ in around], around[-1][1]))
        elif n.op is Ops.STORE and around:
            stored.add(around[-1][1])
    return [(names, loop in stored) for names, loop in found]


@pytest.mark.parametrize(("make", "loop"), [(centred, "j"), (kernels.normalised_rows, "l")])
def test_devices_give_what_they_gave(make: object, loop: str) -> None:
    sink: UOp = make()  # type: ignore[operator]
    size = next(n.arg[1] for n in sink.toposort() if n.op is Ops.PARAM)
    values = np.random.default_rng(2).standard_normal(size).astype(np.float32)
    for device in map(Device.__getitem__, DEVICES):
        results = []
        for actions in ((), (FetchNext(1, loop),)):
            run = compile_kernel(device, sink.replace(arg=KernelInfo("scheduled", actions)))
            buffers = [device.buffer(values.nbytes) for _ in range(2)]
            buffers[1].copy_in(values)
            run.run(buffers, (), wait=True)
            results.append(np.empty(size, np.float32))
            buffers[0].copy_out(results[-1])
        np.testing.assert_array_equal(*results)


def test_the_loop_that_reads_a_row_last_names_the_lines_of_the_next() -> None:
    for sink, loop in ((centred(20, 256), "j"), (kernels.normalised_rows(20, 256), "l")):
        made = lower(sink, SMALL)
        assert schedule_of(sink, SMALL)[-1] == FetchNext(1, f"{loop}.o")
        [(names, stores)] = loops_around_fetches(made)
        assert names[-1] == f"{loop}.o"
        assert stores, "it has no loop of its own"
        loops = [n for n in made.instructions if n.op is Ops.RANGE]
        without = lower(sink, replace(SMALL, prefetch=False))
        assert len(loops) == len([n for n in without.instructions if n.op is Ops.RANGE])


def test_each_line_of_the_next_row_is_named_and_none_beyond_the_last() -> None:
    """600 elements from any place on: up to 39 lines of 16, over 600 iterations."""
    named: dict[int, set[int]] = {}
    made = FetchNext(1, "j").apply(centred())
    [place] = [n.src[1] for n in made.toposort() if n.op is Ops.PREFETCH]
    i, j = (next(r for r in place.ranges if r.arg[0] == name) for name in "ij")
    for row in range(6):
        for at in range(600):
            value = tidy(place.substitute({i: i.const_like(row), j: j.const_like(at)}))
            named.setdefault(row, set()).add(int(value.const_value or 0))
    for row, places in named.items():
        following = min(row + 1, 5)
        assert {p // 16 for p in places} >= {
            at // 16 for at in range(following * 600, following * 600 + 600)
        }
        assert max(places) < 6 * 600


def test_the_choice_is_rows_from_beyond_the_caches_that_are_read_twice() -> None:
    def chosen(sink: UOp, target: Target) -> bool:
        return any(isinstance(a, FetchNext) for a in schedule_of(sink, target))

    assert chosen(centred(20, 256), SMALL)
    assert not chosen(centred(20, 256), replace(SMALL, prefetch=False))
    assert not chosen(centred(20, 256), replace(SMALL, cache_bytes=(4096, 1 << 20, 1 << 21)))
    assert not chosen(centred(20, 300), SMALL), "four rows are more than the first cache"
    assert not chosen(centred(200, 32), SMALL), "short rows follow close"
    assert not chosen(kernels.row_sum(64, 512), SMALL), "read once"
    assert not chosen(kernels.elementwise(10_000), SMALL)
    assert not chosen(kernels.rows(60, 219), SMALL), "a last vector beside the loop is no walk"


def test_it_is_refused_with_a_reason() -> None:
    with pytest.raises(Refused, match="no effect reads the array 3"):
        FetchNext(3, "j").apply(centred())
    with pytest.raises(Refused, match="no range is named"):
        FetchNext(1, "z").apply(centred())
    with pytest.raises(Refused, match="no loop over rows"):
        FetchNext(1, "i").apply(centred())
    with pytest.raises(Refused, match="under a condition"):
        FetchNext(1, "j").apply(kernels.padded())
    with pytest.raises(Refused, match="stores to the array"):
        FetchNext(0, "j").apply(kernels.rows_in_place())
    made = FetchNext(1, "j").apply(centred())
    with pytest.raises(Refused, match="comes last"):
        Split("j", 2).apply(made)
