"""Groups of threads: indices, memory that they share, barriers, atomics, sizes of launches."""

from __future__ import annotations

import numpy as np
import pytest

from opgraft.api import AxisKind, Ops, Space, UOp, compile_linear, dtypes
from opgraft.dtype import DType
from opgraft.errors import DeviceError, OpgraftError
from opgraft.ir.linear import LinearProgram
from opgraft.runtime import Device

from .programs import NUMPY, i32, load, param, program, run, special, store

THREADS = 32


def barrier() -> UOp:
    return UOp(Ops.BARRIER, dtypes.void)


def reversed_in_groups(groups: int) -> LinearProgram:
    """out[g, t] = x[g, T - 1 - t], through memory of the group."""
    group, thread = special("group0", groups), special("thread0", THREADS)
    at = group * THREADS + thread
    size = groups * THREADS
    tile = UOp(Ops.LOCAL, dtypes.float32, (), ("tile", THREADS, Space.GROUP))
    fill = store(tile, thread, load(param(0, dtypes.float32, size), at))
    back = store(param(1, dtypes.float32, size), at, load(tile, thread * -1 + (THREADS - 1)))
    return program([fill, barrier(), back], "reversed", [groups], [THREADS])


def summed_in_groups(groups: int) -> LinearProgram:
    """out[g] = sum of x[g, :], in steps that halve the number of threads at work."""
    group, thread = special("group0", groups), special("thread0", THREADS)
    tile = UOp(Ops.LOCAL, dtypes.float32, (), ("tile", THREADS, Space.GROUP))
    x, out = param(0, dtypes.float32, groups * THREADS), param(1, dtypes.float32, groups)
    effects = [store(tile, thread, load(x, group * THREADS + thread)), barrier()]
    width = THREADS // 2
    while width:
        inside = UOp(Ops.IF, dtypes.void, (thread < width,))
        both = load(tile, thread) + load(tile, thread + width)
        end = UOp(Ops.ENDIF, dtypes.void, (inside,))
        effects += [inside, store(tile, thread, both), end, barrier()]
        width //= 2
    first = UOp(Ops.IF, dtypes.void, (thread < 1,))
    effects += [first, store(out, group, load(tile, i32(0)))]
    effects.append(UOp(Ops.ENDIF, dtypes.void, (first,)))
    return program(effects, "summed", [groups], [THREADS])


def test_threads_of_a_group_share_memory_and_meet_at_barriers(cl: Device, interp: Device) -> None:
    x = np.arange(5 * THREADS, dtype=np.float32)
    for device in (cl, interp):
        found = run(device, reversed_in_groups(5), [x, np.zeros_like(x)])[1]
        assert found.tolist() == x.reshape(5, THREADS)[:, ::-1].ravel().tolist(), device.name


def test_a_sum_across_threads(cl: Device, interp: Device) -> None:
    x = np.arange(7 * THREADS, dtype=np.float32)
    for device in (cl, interp):
        found = run(device, summed_in_groups(7), [x, np.zeros(7, np.float32)])[1]
        assert found.tolist() == x.reshape(7, THREADS).sum(1).tolist(), device.name


def test_every_thread_knows_its_place_in_three_dimensions(cl: Device) -> None:
    groups, threads = (3, 2, 5), (4, 3, 2)
    at = i32(0)
    for axis in (2, 1, 0):
        at = at * groups[axis] + special(f"group{axis}", groups[axis])
        at = at * threads[axis] + special(f"thread{axis}", threads[axis])
    size = int(np.prod(groups) * np.prod(threads))
    made = program([store(param(0, dtypes.int32, size), at, at + 1)], "places", groups, threads)
    found = run(cl, made, [np.zeros(size, np.int32)])[0]
    assert found.tolist() == list(range(1, size + 1))


def test_variables_say_how_many_groups_there_are(cl: Device) -> None:
    n = UOp(Ops.VAR, dtypes.int32, (), ("n", 0, 50))
    scale = UOp(Ops.VAR, dtypes.float32, (), ("scale", 0.0, 9.0))
    at = special("group0", 50)
    out = param(0, dtypes.float32, 50)
    made = program([store(out, at, at.cast(dtypes.float32) * scale)], "some", [n], [1])
    for count in (0, 1, 50):
        found = run(cl, made, [np.full(50, -1, np.float32)], [count, 2.5])[0]
        assert found[:count].tolist() == [2.5 * i for i in range(count)]
        assert (found[count:] == -1).all()
    kernel = compile_linear(cl, made)
    with pytest.raises(DeviceError, match="variable n is 51"):
        kernel.run([cl.buffer(200)], [51, 1.0])


def test_more_threads_than_the_device_has_are_refused(cl: Device) -> None:
    most = cl.target.threads_per_group
    at = special("thread0", 2 * most)
    made = program([store(param(0, dtypes.int32, 2 * most), at, at)], "many", [1], [2 * most])
    with pytest.raises(OpgraftError, match=f"{2 * most}"):
        compile_linear(cl, made)


FUNCTIONS = {
    Ops.ADD: np.add,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
}


@pytest.mark.parametrize(
    "dtype",
    [dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float32, dtypes.float64],
    ids=lambda d: d.name,
)
def test_atomics_lose_nothing(cl: Device, dtype: DType) -> None:
    """In memory of the group first, then one of each group in the device's."""
    ops = [op for op in FUNCTIONS if (op, dtype) in cl.target.atomics]
    if not ops:
        pytest.skip(f"{cl.target.arch} has no atomics of {dtype}")
    groups, count = 40, len(ops)
    group, thread = special("group0", groups), special("thread0", THREADS)
    x = load(param(0, dtype, groups * THREADS), group * THREADS + thread)
    out, shared = param(1, dtype, count), UOp(Ops.LOCAL, dtype, (), ("s", count, Space.GROUP))
    start = load(param(2, dtype, count), thread, 1, thread < count, UOp.const(dtype, 0))
    effects = [store(shared, thread, start, thread < count), barrier()]
    places = [i32(k) for k in range(count)]
    effects += [UOp(Ops.ATOMIC, dtypes.void, (shared, k, x), op) for k, op in zip(places, ops)]
    effects.append(barrier())
    for k, op in zip(places, ops):
        effects.append(UOp(Ops.ATOMIC, dtypes.void, (out, k, load(shared, k), thread < 1), op))
    made = program(effects, "atomics", [groups], [THREADS])
    rng = np.random.default_rng(6)
    kind = NUMPY[dtype]
    values = rng.integers(0, 100, groups * THREADS).astype(kind)
    if dtype.is_int and dtype.is_signed:
        values -= 50
    neutral = {Ops.AND: kind.type(0) if dtype.is_float else ~kind.type(0)}
    neutral |= {Ops.MAX: dtype.min, Ops.MIN: dtype.max}
    first = np.array([neutral.get(op, 0) for op in ops], object).astype(kind)
    found = run(cl, made, [values, first.copy(), first])[1]
    assert found.tolist() == [FUNCTIONS[op].reduce(values, dtype=kind) for op in ops]


def test_groups_with_vectors_and_a_loop(cl: Device, interp: Device) -> None:
    """Each thread adds rows four columns at a time, then the group swaps them."""
    rows, columns = 6, 4 * THREADS
    group, thread = special("group0", 2), special("thread0", THREADS)
    kept = UOp(Ops.LOCAL, dtypes.float32.vec(4), (), ("sum", 1, Space.REGISTER))
    tile = UOp(Ops.LOCAL, dtypes.float32, (), ("tile", columns, Space.GROUP))
    loop = UOp(Ops.RANGE, dtypes.int32, (i32(rows),), ("r", AxisKind.LOOP))
    x = param(0, dtypes.float32, 2 * rows * columns)
    row = load(x, (group * rows + loop) * columns + thread * 4, 4)
    zeros = UOp(Ops.BROADCAST, dtypes.float32.vec(4), (UOp.const(dtypes.float32, 0.0),))
    total = UOp(Ops.LOAD, dtypes.float32.vec(4), (kept, i32(0)))
    effects = [
        store(kept, i32(0), zeros),
        loop,
        store(kept, i32(0), total + row),
        UOp(Ops.END, dtypes.void, (loop,)),
    ]
    swapped = load(tile, (thread * -1 + (THREADS - 1)) * 4, 4)
    out = param(1, dtypes.float32, 2 * columns)
    last = UOp(Ops.LOAD, dtypes.float32.vec(4), (kept, i32(0)))
    effects += [
        store(tile, thread * 4, last),
        barrier(),
        store(out, group * columns + thread * 4, swapped),
    ]
    made = program(effects, "rows", [2], [THREADS])
    data = np.arange(2 * rows * columns, dtype=np.float32) % 17
    sums = data.reshape(2, rows, THREADS, 4).sum(1)[:, ::-1].ravel()
    for device in (cl, interp):
        found = run(device, made, [data, np.zeros(2 * columns, np.float32)])[1]
        assert found.tolist() == sums.tolist(), device.name


def test_local_memory_is_declared_at_the_head_of_a_kernel(cl: Device) -> None:
    source = compile_linear(cl, reversed_in_groups(2)).program.source
    lines = source.partition("__kernel")[2].splitlines()
    (declared,) = [n for n, line in enumerate(lines) if line.startswith(" __local float")]
    assert all(
        "barrier" not in line and "=" not in line.partition("*d")[0] for line in lines[:declared]
    )
