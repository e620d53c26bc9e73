"""Every operation on vectors of every width gives what INTERP gives, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from opgraft.api import AxisKind, LinearProgram, Ops, Space, UOp, dtypes
from opgraft.dtype import DType
from opgraft.ir.linear import LinearProgram as Linear
from opgraft.runtime import Device

from .programs import NUMPY, bits, edges, i32, load, param, program, run, store

SIZE = 96
"""A multiple of every number of lanes here."""
COMPUTED = [d for d in dtypes.all if d not in (dtypes.float16, dtypes.bfloat16)]
LANES = [2, 3, 4, 8, 16, 32]


def alu(op: Ops, *src: UOp, dtype: DType | None = None) -> UOp:
    return UOp(op, dtype or src[0].dtype, src)


def operations(x: UOp, y: UOp) -> list[UOp]:
    """All operations that two vectors of a dtype can be given to."""
    dtype, lanes = x.dtype, x.dtype.count
    mask = dtypes.bool.vec(lanes)
    found = [alu(op, x, y) for op in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)]
    compared = [alu(op, x, y, dtype=mask) for op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)]
    found += compared
    found += [alu(Ops.WHERE, c, x, y, dtype=dtype) for c in compared]
    both = alu(Ops.OR, compared[0], alu(Ops.XOR, compared[1], compared[2]))
    found += [both, alu(Ops.WHERE, both, compared[0], compared[2])]
    if dtype.is_float:
        found += [alu(Ops.FDIV, x, y), alu(Ops.SQRT, x), alu(Ops.TRUNC, x), x * -1]
        found += [alu(Ops.MULACC, x, y, x)]
    else:
        found += [alu(op, x, y) for op in (Ops.AND, Ops.OR, Ops.XOR)]
    if dtype.is_int:
        found += [alu(op, x, y) for op in (Ops.SHL, Ops.SHR, Ops.CDIV, Ops.CMOD)]
        found += [x * -1, alu(Ops.MULACC, x, y, x)]
    scalar = UOp(Ops.EXTRACT, dtype.scalar, (x,), lanes - 1)
    found += [UOp(Ops.BROADCAST, dtype, (scalar,)), UOp(Ops.STACK, dtype, (scalar,) * lanes)]
    if not dtype.is_bool:
        found += [alu(Ops.ADD, x, UOp(Ops.IOTA, dtypes.int32.vec(lanes)).cast(dtype))]
    return found


def elementwise(
    function: Callable[..., list[UOp]], sources: list[DType], lanes: int
) -> tuple[LinearProgram, list[DType]]:
    """Each result of the function into an output of its own; and the outputs' dtypes."""
    size = UOp.const(dtypes.int32, SIZE // lanes)
    loop = UOp(Ops.RANGE, dtypes.int32, (size,), ("i", AxisKind.LOOP))
    params = [param(k, d, SIZE) for k, d in enumerate(sources)]
    results = function(*[load(p, loop * lanes, lanes) for p in params])
    kinds = [r.dtype.scalar for r in results]
    outputs = [param(len(params) + k, d, SIZE) for k, d in enumerate(kinds)]
    stores = [
        store(o, loop * lanes if r.dtype.count > 1 else loop, r) for o, r in zip(outputs, results)
    ]
    return program([*stores, UOp(Ops.END, dtypes.void, (loop,))]), kinds


def assert_same(
    devices: tuple[Device, Device], made: Linear, inputs: list[np.ndarray], kinds: list[DType]
) -> None:
    arrays = [*inputs, *(np.zeros(SIZE, NUMPY[d]) for d in kinds)]
    found, meant = (run(d, made, arrays)[len(inputs) :] for d in devices)
    for number, (a, b) in enumerate(zip(found, meant, strict=True)):
        wrong = [i for i, (p, q) in enumerate(zip(bits(a), bits(b))) if p != q]
        assert not wrong, f"result {number}: {a[wrong[:3]]} for {b[wrong[:3]]} at {wrong[:3]}"


@pytest.mark.parametrize("dtype", COMPUTED, ids=lambda d: d.name)
def test_operations(cl: Device, interp: Device, dtype: DType) -> None:
    made, kinds = elementwise(operations, [dtype, dtype], 4)
    x = edges(dtype, SIZE)
    assert_same((cl, interp), made, [x, np.roll(x, 7)], kinds)


@pytest.mark.parametrize("lanes", [2, 3, 16, 32])
def test_operations_in_other_widths(cl: Device, interp: Device, lanes: int) -> None:
    made, kinds = elementwise(operations, [dtypes.float32, dtypes.float32], lanes)
    x = edges(dtypes.float32, SIZE)
    assert_same((cl, interp), made, [x, np.roll(x, 7)], kinds)


@pytest.mark.parametrize("source", COMPUTED, ids=lambda d: d.name)
def test_conversions(cl: Device, interp: Device, source: DType) -> None:
    lanes = 8

    def function(x: UOp) -> list[UOp]:
        found = [x.cast(d.vec(lanes)) for d in COMPUTED if d is not source]
        if source is dtypes.float32:
            found += [x.cast(d.vec(lanes)) for d in (dtypes.float16, dtypes.bfloat16)]
        same = [d for d in COMPUTED if d.bits == source.bits and not d.is_bool and d is not source]
        if not source.is_bool:
            found += [UOp(Ops.BITCAST, d.vec(lanes), (x,)) for d in same]
        return found

    made, kinds = elementwise(function, [source], lanes)
    assert_same((cl, interp), made, [edges(source, SIZE)], kinds)


@pytest.mark.parametrize("source", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 16])
def test_all_floats_of_16_bits_widen_exactly(cl: Device, source: DType, lanes: int) -> None:
    size = 1 << 16
    x = param(0, source, size)
    loop = UOp(Ops.RANGE, dtypes.int32, (i32(size // lanes),), ("i", AxisKind.LOOP))
    wide = load(x, loop * lanes, lanes).cast(dtypes.float32.vec(lanes))
    out = store(param(1, dtypes.float32, size), loop * lanes, wide)
    made = program([out, UOp(Ops.END, dtypes.void, (loop,))])
    every = np.arange(size, dtype=np.uint16)
    if source is dtypes.bfloat16:
        meant = (every.astype(np.uint32) << 16).view(np.float32)
    else:
        every = every.view(np.float16)
        meant = every.astype(np.float32)
    found = run(cl, made, [every, np.zeros(size, np.float32)])[1]
    assert bits(found) == bits(meant)


@pytest.mark.parametrize("target", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 16])
def test_floats_are_rounded_once_to_16_bits(cl: Device, target: DType, lanes: int) -> None:
    size = 1 << 16
    loop = UOp(Ops.RANGE, dtypes.int32, (i32(size // lanes),), ("i", AxisKind.LOOP))
    x = load(param(0, dtypes.float32, size), loop * lanes, lanes)
    out = store(param(1, target, size), loop * lanes, x.cast(target.vec(lanes)))
    made = program([out, UOp(Ops.END, dtypes.void, (loop,))])
    rng = np.random.default_rng(5)
    values = rng.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32)
    near = rng.normal(size=size // 2) * 10.0 ** rng.integers(-9, 6, size // 2)
    values[: size // 2] = near.astype(np.float32)
    ties = np.arange(1 << 12, dtype=np.uint32) * 0x1000 + 0x3F800000
    values[: 1 << 12] = ties.view(np.float32)
    values = np.where(np.isnan(values), np.float32(np.nan), values)
    found = run(cl, made, [values, np.zeros(size, NUMPY[target])])[1]
    with np.errstate(over="ignore"):
        meant = values.astype(ml_dtypes.bfloat16 if target is dtypes.bfloat16 else np.float16)
    number = ~np.isnan(values)
    assert (found.view(np.uint16) == meant.view(np.uint16))[number].all()


@pytest.mark.parametrize("lanes", [3, 4, 5, 16, 32])
@pytest.mark.parametrize(
    "dtype", [dtypes.int32, dtypes.uint8, dtypes.float64, dtypes.bool], ids=lambda d: d.name
)
def test_lanes_combined(cl: Device, interp: Device, dtype: DType, lanes: int) -> None:
    ops = [Ops.ADD, Ops.MAX, Ops.MIN] + ([] if dtype.is_float else [Ops.AND, Ops.OR])
    x = load(param(0, dtype, 32), i32(0), lanes)
    results = [UOp(Ops.HREDUCE, dtype, (x,), op) for op in ops]
    stores = [store(param(1, dtype, len(ops)), i32(k), r) for k, r in enumerate(results)]
    data = (np.arange(32) * 5 % 13).astype(NUMPY[dtype])
    arrays = [data, np.zeros(len(ops), NUMPY[dtype])]
    made = program(stores)
    assert run(cl, made, arrays)[1].tolist() == run(interp, made, arrays)[1].tolist()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool], ids=lambda d: d.name)
def test_gates(cl: Device, interp: Device, dtype: DType, lanes: int) -> None:
    x, out = param(0, dtype, 64), param(1, dtype, 128)
    gate = load(param(2, dtypes.bool, 64), i32(0), lanes)
    one = load(param(2, dtypes.bool, 64), i32(1))
    zeros = UOp(Ops.BROADCAST, dtype.vec(lanes), (UOp.const(dtype, 0),))
    values = [load(x, i32(3), lanes, g, zeros) for g in (gate, one)]
    stores = [store(out, i32(lanes * k), v) for k, v in enumerate(values)]
    whole = load(x, i32(0), lanes)
    stores += [store(out, i32(64), whole, gate), store(out, i32(128 - lanes), whole, one)]
    arrays = [
        edges(dtype, 64),
        np.ones(128, NUMPY[dtype]),
        np.resize([True, False, True], 64),
    ]
    made = program(stores)
    assert bits(run(cl, made, arrays)[1]) == bits(run(interp, made, arrays)[1])


@pytest.mark.parametrize("space", [Space.REGISTER, Space.PRIVATE, Space.GROUP])
@pytest.mark.parametrize("lanes", [1, 3, 8, 32])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool], ids=lambda d: d.name)
def test_vectors_are_kept_inside_a_kernel(
    cl: Device, interp: Device, dtype: DType, lanes: int, space: Space
) -> None:
    kept = UOp(Ops.LOCAL, dtype.vec(lanes), (), ("kept", 2, space))
    x, out = param(0, dtype, 64), param(1, dtype, 64)
    first, second = load(x, i32(0), lanes), load(x, i32(1), lanes)
    fill = [store(kept, i32(0), first), store(kept, i32(1), second)]
    swapped = [UOp(Ops.LOAD, dtype.vec(lanes), (kept, i32(k))) for k in (1, 0)]
    stores = [store(out, i32(lanes * k), v) for k, v in enumerate(swapped)]
    made = program([*fill, *itertools.chain(*zip(swapped, stores))], groups=(1,), threads=(1,))
    arrays = [edges(dtype, 64), np.zeros(64, NUMPY[dtype])]
    assert bits(run(cl, made, arrays)[1]) == bits(run(interp, made, arrays)[1])
