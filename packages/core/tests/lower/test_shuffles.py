"""Lanes that lie apart in memory come from whole vectors where that is fewer loads."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.memory import fill, parameters
from kernel_forms.random_kernels import Made, compare
from opgraft import Device, dtypes
from opgraft.dtype import DType
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.lower.expand import expand
from opgraft.lower.shuffles import shuffle_lanes, transpose
from opgraft.opt.actions import Action, Split
from opgraft.opt.tile import Tile
from opgraft.rules.simplify import simplify
from opgraft.runtime import compile_kernel
from opgraft.target import Target
from tested import DEVICES

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)


def strided(step: int, first: int = 0, size: int = 24, dtype: DType = dtypes.float32) -> UOp:
    """out[i] = a[first + step * i]"""
    i = kernels.loop(size, "i")
    place = i * step + first
    out = kernels.param(0, size, dtype)
    a = kernels.param(1, max(first, first + step * (size - 1)) + 1, dtype)
    return kernels.kernel("strided", out.store(i, a.load(place)).end(i))


def lanes_of_loads(sink: UOp) -> set[int]:
    return {n.dtype.count for n in sink.toposort() if n.op is Ops.LOAD}


def expanded(sink: UOp) -> UOp:
    return shuffle_lanes(expand(sink, CPU, simplify), CPU)


def runs_as_without(sink: UOp, *actions: Action) -> bool:
    """Whether INTERP makes the same of a kernel with this schedule as of one without any."""
    plain, scheduled = (sink.replace(arg=KernelInfo("k", s)) for s in ((), actions))
    memory = fill(sink)
    results = []
    for one in (plain, scheduled):
        device = Device["INTERP"]
        sizes = [(n.arg[1], n.dtype) for n in parameters(one).values()]
        buffers = [device.buffer(size * dtype.itemsize) for size, dtype in sizes]
        for buffer, (slot, values) in zip(buffers, sorted(memory.items()), strict=True):
            kind = parameters(one)[slot].dtype.name
            buffer.copy_in(memoryview(np.array(list(values), kind)).cast("B"))
        compile_kernel(device, one).run(buffers)
        held = np.empty(sizes[0][0] * sizes[0][1].itemsize, np.uint8)
        buffers[0].copy_out(memoryview(held))
        results.append(held.tobytes())
    return results[0] == results[1]


@pytest.mark.parametrize("step", [2, 3, 4, -1, -2])
def test_a_short_step_loads_vectors(step: int) -> None:
    sink = strided(step, -step * 23 if step < 0 else 0)
    by_vectors = Split("i", 8, AxisKind.VECTOR)
    assert lanes_of_loads(expanded(by_vectors.apply(sink))) == {8}
    assert runs_as_without(sink, by_vectors)


def test_a_long_step_does_not() -> None:
    made = expanded(Split("i", 8, AxisKind.VECTOR).apply(strided(5)))
    assert lanes_of_loads(made) == {1}


def test_nothing_beyond_the_last_element_is_loaded() -> None:
    """The last vector of every second element ends with that element."""
    made = expanded(Split("i", 8, AxisKind.VECTOR).apply(strided(2, size=8)))
    size = next(n.arg[1] for n in made.toposort() if n.op is Ops.PARAM and n.arg[0] == 1)
    for n in made.toposort():
        if n.op is Ops.LOAD:
            assert n.src[1].vmin >= 0
            assert n.src[1].vmax + n.dtype.count <= size


@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [
        (dtypes.float32, 8),
        (dtypes.float32, 4),
        (dtypes.float64, 4),
        (dtypes.int16, 8),
        (dtypes.int8, 16),
    ],
)
def test_a_square_of_lanes_is_transposed_in_registers(dtype: DType, lanes: int) -> None:
    i, j = kernels.loop(lanes, "i"), kernels.loop(lanes, "j")
    out, a = kernels.param(0, lanes * lanes, dtype), kernels.param(1, lanes * lanes, dtype)
    sink = kernels.kernel("t", out.store(i * lanes + j, a.load(j * lanes + i)).end(i, j))
    tiled = Tile((("j", 1, lanes), ("i", lanes, 1)))
    made = expanded(tiled.apply(sink))
    loads = [n for n in made.toposort() if n.op is Ops.LOAD]
    assert len(loads) == lanes
    assert {n.dtype.count for n in loads} == {lanes}
    assert runs_as_without(sink, tiled)


def test_each_exchange_is_one_instruction() -> None:
    """n vectors of n lanes take n * log2(n) of them, each within 16 bytes or of whole 16 bytes."""
    rows = [kernels.param(1, 64).load(UOp.const(dtypes.index, 8 * k)) for k in range(8)]
    vectors = [UOp(Ops.LOAD, dtypes.float32.vec(8), row.src) for row in rows]
    columns = transpose(vectors)
    stacks = {n for c in columns for n in c.toposort() if n.op is Ops.STACK}
    assert len(stacks) == 24
    for n in stacks:
        order = [s.arg for s in n.src]
        halves = [order[:4], order[4:]]
        within = [x + 4 for x in halves[0]] == halves[1]
        whole = all(h == list(range(h[0], h[0] + 4)) and h[0] % 4 == 0 for h in halves)
        assert within or whole


def test_memory_that_the_kernel_writes_is_read_as_it_was() -> None:
    i = kernels.loop(16, "i")
    a = kernels.param(0, 32)
    sink = kernels.kernel("own", a.store(i * 2, a.load(i * 2) + 1.0).end(i))
    made = expanded(Split("i", 8, AxisKind.VECTOR).apply(sink))
    assert lanes_of_loads(made) == {1}


@pytest.mark.parametrize("name", DEVICES)
def test_random_steps_and_transposes_run_as_the_oracle_says(name: str) -> None:
    pick = random.Random(7)
    devices = [Device[name]]
    for _ in range(4):
        step = pick.choice((2, 3, -1, 4))
        sink = strided(step, -step * 36 if step < 0 else pick.randrange(3), 37)
        assert not compare(Made(sink, {}), devices, 1)
        height, width = pick.randrange(8, 40), pick.randrange(8, 40)
        assert not compare(Made(kernels.transposed(height, width), {}), devices, 2)
