"""Loads and stores in C: unaligned vectors, gates, gathers, registers, bool as bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.linear import LinearProgram
from opgraft.render.c import CRenderer
from opgraft.target import Target

from .kernels import listed

AVX2 = Target("cpu", vector_bytes=32)


def param(slot: int, dtype: DType, size: int) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def i32(value: int) -> UOp:
    return UOp.const(dtypes.int32, value)


def load(buffer: UOp, index: UOp, lanes: int, *gate: UOp) -> UOp:
    return UOp(Ops.LOAD, buffer.dtype.vec(lanes), (buffer, index, *gate))


def program(*stores: UOp, params: tuple[UOp, ...]) -> LinearProgram:
    nodes = dict.fromkeys(n for s in stores for n in listed(s))
    return LinearProgram("k", tuple(nodes), params, written=(0,))


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.uint8])
def test_vectors_are_read_and_written_at_any_element(
    run_program: Callable[..., None], lanes: int, dtype: DType
) -> None:
    # apache/tvm#8540: a vector load at an offset that is no multiple of the vector
    out, x = param(0, dtype, 9), param(1, dtype, 9)
    value = load(x, i32(1), lanes)
    store = UOp(Ops.STORE, dtypes.void, (out, i32(0), value + value))
    data = np.arange(9, dtype=dtype.name)
    got = np.zeros(9, dtype.name)
    run_program(program(store, params=(out, x)), [got, data], target=AVX2)
    assert got[:lanes].tolist() == [2 * v for v in range(1, lanes + 1)]
    # a base that is only element aligned
    raw = np.zeros(9 * data.itemsize + 1, "uint8")
    if data.itemsize == 1:
        raw[1:10] = data
        run_program(program(store, params=(out, x)), [got, raw[1:]], target=AVX2)
        assert got[:lanes].tolist() == [2 * v for v in range(1, lanes + 1)]


def test_no_pointer_is_cast_to_an_aligned_vector_type() -> None:
    out, x = param(0, dtypes.float32, 9), param(1, dtypes.float32, 9)
    store = UOp(Ops.STORE, dtypes.void, (out, i32(1), load(x, i32(1), 8)))
    text = CRenderer(AVX2).render(program(store, params=(out, x)))
    assert "aligned(4),may_alias" in text
    assert "(f32x8*)" not in text
    assert "(const f32x8*)" not in text


def test_a_false_gate_keeps_memory_untouched(run_program: Callable[..., None]) -> None:
    # index 1 << 40 would fault
    far = UOp.const(dtypes.int64, 1 << 40)
    out, x = param(0, dtypes.float32, 4), param(1, dtypes.float32, 4)
    no, yes = UOp.const(dtypes.bool, False), UOp.const(dtypes.bool, True)
    four = dtypes.float32.vec(4)
    scalar = UOp(Ops.LOAD, dtypes.float32, (x, far, no, UOp.const(dtypes.float32, 7.0)))
    vector = load(x, far, 4, no, UOp.const(four, 5.0))
    total = vector + scalar.broadcast(4)
    stores = (
        UOp(Ops.STORE, dtypes.void, (out, i32(0), total, yes)),
        UOp(Ops.STORE, dtypes.void, (out, far, total, no)),
        UOp(Ops.STORE, dtypes.void, (out, far, scalar, no)),
    )
    got = np.zeros(4, "float32")
    run_program(program(*stores, params=(out, x)), [got, np.ones(4, "float32")], target=AVX2)
    assert got.tolist() == [12.0] * 4


@pytest.mark.parametrize("lanes", [3, 16])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.bool])
@pytest.mark.parametrize("index_dtype", [dtypes.int32, dtypes.int64])
def test_gathers_and_scatters_go_lane_by_lane(
    run_program: Callable[..., None], lanes: int, dtype: DType, index_dtype: DType
) -> None:
    out, x = param(0, dtype, 64), param(1, dtype, 64)
    where, gates = param(2, index_dtype, 64), param(3, dtypes.bool, 64)
    index, gate = load(where, i32(0), lanes), load(gates, i32(0), lanes)
    fill = UOp.const(dtype.vec(lanes), 1)
    value = UOp(Ops.LOAD, dtype.vec(lanes), (x, index, gate, fill))
    stores = (
        UOp(Ops.STORE, dtypes.void, (out, index, value, gate)),
        UOp(Ops.STORE, dtypes.void, (out, i32(32), value)),
    )
    rng = np.random.default_rng(lanes)
    kind = "uint8" if dtype.is_bool else dtype.name
    data = rng.integers(0, 2 if dtype.is_bool else 100, 64).astype(kind)
    places = np.full(64, 1 << 30, index_dtype.name)
    open_ = (np.arange(64) % 3 != 1).astype("uint8")
    places[:lanes] = np.where(open_[:lanes], rng.permutation(32)[:lanes], 1 << 30)
    got = np.zeros(64, kind)
    run_program(
        program(*stores, params=(out, x, where, gates)), [got, data, places, open_], target=AVX2
    )
    want = np.zeros(64, kind)
    for k in range(lanes):
        want[32 + k] = data[places[k]] if open_[k] else 1
        if open_[k]:
            want[places[k]] = data[places[k]]
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_bool_is_a_byte_in_memory_and_a_mask_in_vectors(
    run_elementwise: Callable[..., np.ndarray], lanes: int
) -> None:
    """Masks of comparisons of 8, 32 and 64 bits meet, and select values of each width."""

    def mixed(a: UOp, b: UOp, c: UOp, d: UOp) -> UOp:
        small = a < UOp.const(dtypes.int8.vec(lanes), 3)
        middle = b < UOp.const(dtypes.float32.vec(lanes), 0.5)
        large = c < UOp.const(dtypes.float64.vec(lanes), 0.25)
        both = (small & middle) | (large ^ d)
        chosen = both.where(c, b.cast(dtypes.float64.vec(lanes)))
        return (chosen > 0.3) ^ both.where(small, d)

    rng = np.random.default_rng(5)
    a = rng.integers(-5, 9, 64).astype("int8")
    b, c = rng.random(64).astype("float32"), rng.random(64)
    d = rng.integers(0, 2, 64).astype("uint8")
    got = run_elementwise(
        mixed,
        [(dtypes.int8, a), (dtypes.float32, b), (dtypes.float64, c), (dtypes.bool, d)],
        lanes,
    )
    small, flag = a < 3, d.astype(bool)
    both = (small & (b < 0.5)) | ((c < 0.25) ^ flag)
    want = (np.where(both, c, b.astype("float64")) > 0.3) ^ np.where(both, small, flag)
    assert got.view("uint8").tolist() == want.astype("uint8").tolist()


@pytest.mark.parametrize(
    ("lanes", "op"),
    [
        (2, Ops.MUL),
        (3, Ops.ADD),
        (6, Ops.MAX),
        (8, Ops.ADD),
        (16, Ops.MUL),
        (32, Ops.ADD),
        (32, Ops.MAX),
    ],
)
def test_hreduce_folds_pairwise_halves(
    run_program: Callable[..., None], lanes: int, op: Ops
) -> None:
    out, x = param(0, dtypes.float32, 1), param(1, dtypes.float32, lanes)
    total = UOp(Ops.HREDUCE, dtypes.float32, (load(x, i32(0), lanes),), op)
    store = UOp(Ops.STORE, dtypes.void, (out, i32(0), total))
    data = np.random.default_rng(lanes).standard_normal(lanes).astype("float32")
    got = np.zeros(1, "float32")
    run_program(program(store, params=(out, x)), [got, data], target=AVX2)
    function = {Ops.ADD: np.add, Ops.MAX: np.maximum, Ops.MUL: np.multiply}[op]
    left = list(data)
    while len(left) > 1:
        half = len(left) // 2
        pairs = zip(left[:half], left[half : 2 * half], strict=True)
        left = [function(a, b) for a, b in pairs] + left[2 * half :]
    assert got[0] == left[0]


def test_hreduce_of_bool_and_of_nan(run_program: Callable[..., None]) -> None:
    out, x = param(0, dtypes.float32, 2), param(1, dtypes.float32, 8)
    row = load(x, i32(0), 8)
    greatest = UOp(Ops.HREDUCE, dtypes.float32, (row,), Ops.MAX)
    any_ = UOp(Ops.HREDUCE, dtypes.bool, (row > 6.5,), Ops.OR)
    stores = (
        UOp(Ops.STORE, dtypes.void, (out, i32(0), greatest)),
        UOp(Ops.STORE, dtypes.void, (out, i32(1), any_.cast(dtypes.float32))),
    )
    got = np.zeros(2, "float32")
    data = np.arange(8, dtype="float32")
    run_program(program(*stores, params=(out, x)), [got, data], target=AVX2)
    assert got.tolist() == [7.0, 1.0]
    data[3] = np.nan
    data[7] = 0
    run_program(program(*stores, params=(out, x)), [got, data], target=AVX2)
    assert np.isnan(got[0])
    assert got[1] == 0.0


def test_one_test_finds_a_nan_in_any_lane(run_program: Callable[..., None]) -> None:
    """What is left are numbers, whose maximum is one instruction a step."""
    kinds = [(dtypes.float32, 4), (dtypes.float32, 8), (dtypes.float32, 16), (dtypes.float64, 4)]
    cases = [(*kind, op) for kind in kinds for op in (Ops.MAX, Ops.MIN)]
    outs = [param(k, dtype, 1) for k, (dtype, _, _) in enumerate(cases)]
    xs = [param(len(cases) + k, dtype, lanes) for k, (dtype, lanes, _) in enumerate(cases)]
    stores = [
        UOp(Ops.STORE, dtypes.void, (out, i32(0), UOp(Ops.HREDUCE, dtype, (row,), op)))
        for out, x, (dtype, lanes, op) in zip(outs, xs, cases, strict=True)
        for row in [load(x, i32(0), lanes)]
    ]
    made = program(*stores, params=(*outs, *xs))
    made = replace(made, written=tuple(range(len(outs))))
    text = CRenderer(AVX2).render(made)
    assert text.count("!=") - text.count("!=0") == len(cases) + 2  # of 16 lanes two, then one
    for nan in (None, 0, 1, 3):
        got = [np.zeros(1, dtype.name) for dtype, _, _ in cases]
        data = [np.arange(lanes)[::-1].astype(dtype.name) for dtype, lanes, _ in cases]
        for row in data:
            if nan is not None:
                row[-1 - nan] = np.nan
        run_program(made, [*got, *data], target=AVX2)
        wanted = [
            row.max() if op is Ops.MAX else row.min()
            for row, (_, _, op) in zip(data, cases, strict=True)
        ]
        np.testing.assert_array_equal(np.concatenate(got), np.array(wanted))


@pytest.mark.parametrize(("dtype", "lanes"), [(dtypes.int32, 1), (dtypes.float64, 8)])
def test_registers_hold_values_between_iterations(
    run_program: Callable[..., None], dtype: DType, lanes: int
) -> None:
    loop = UOp(Ops.RANGE, dtypes.int32, (i32(10),), ("k", AxisKind.REDUCE))
    register = UOp(Ops.LOCAL, dtype.vec(lanes), (), ("acc", 1, Space.REGISTER))
    out, x = param(0, dtype, lanes), param(1, dtype, 10 * lanes)
    zero = UOp(Ops.STORE, dtypes.void, (register, i32(0), UOp.const(dtype.vec(lanes), 0)))
    at = loop * lanes
    value = load(x, at, lanes)
    old = UOp(Ops.LOAD, dtype.vec(lanes), (register, i32(0)))
    add = UOp(Ops.STORE, dtypes.void, (register, i32(0), old + value))
    end = UOp(Ops.END, dtypes.void, (loop,))
    last = UOp(Ops.STORE, dtypes.void, (out, i32(0), old))
    constant = UOp.const(dtype.vec(lanes), 0)
    first = [constant] if lanes > 1 else []
    body = [register, *first, zero, loop, at, value, old, old + value, add, end, old, last]
    got, data = np.zeros(lanes, dtype.name), np.arange(10 * lanes).astype(dtype.name)
    run_program(LinearProgram("k", tuple(body), (out, x), written=(0,)), [got, data], target=AVX2)
    assert got.tolist() == data.reshape(10, lanes).sum(0).tolist()


def test_a_register_of_masks_and_an_array_of_registers(run_program: Callable[..., None]) -> None:
    masks = UOp(Ops.LOCAL, dtypes.bool.vec(8), (), ("any", 1, Space.REGISTER))
    pair = UOp(Ops.LOCAL, dtypes.float64.vec(8), (), ("pair", 2, Space.REGISTER))
    out, x = param(0, dtypes.float64, 8), param(1, dtypes.float64, 8)
    row = load(x, i32(0), 8)
    put = UOp(Ops.STORE, dtypes.void, (masks, i32(0), row < 3.0))
    got_mask = UOp(Ops.LOAD, dtypes.bool.vec(8), (masks, i32(0)))
    puts = [UOp(Ops.STORE, dtypes.void, (pair, i32(k), row * float(k + 2))) for k in (0, 1)]
    reads = [UOp(Ops.LOAD, row.dtype, (pair, i32(k))) for k in (0, 1)]
    store = UOp(Ops.STORE, dtypes.void, (out, i32(0), got_mask.where(reads[0], reads[1])))
    body: dict[Any, None] = dict.fromkeys([masks, pair])
    for effect in (put, *puts, store):
        body.update(dict.fromkeys(listed(effect)))
    got, data = np.zeros(8), np.arange(8.0)
    run_program(LinearProgram("k", tuple(body), (out, x), written=(0,)), [got, data], target=AVX2)
    assert got.tolist() == [0, 2, 4, 9, 12, 15, 18, 21]


def test_a_kernel_runs_its_part_of_the_parallel_range(run_program: Callable[..., None]) -> None:
    loop = UOp(Ops.RANGE, dtypes.int32, (i32(10),), ("i", AxisKind.PARALLEL))
    size = UOp(Ops.VAR, dtypes.int32, (), ("n", 0, 100))
    out = param(0, dtypes.int32, 10)
    store = UOp(Ops.STORE, dtypes.void, (out, loop, loop * size))
    body = (loop, *[n for n in listed(store) if n is not loop], UOp(Ops.END, dtypes.void, (loop,)))
    made = LinearProgram("k", body, (out,), (size,), loop, written=(0,))
    got = np.zeros(10, "int32")
    run_program(made, [got], variables=[3], part=(4, 7))
    assert got.tolist() == [0, 0, 0, 0, 12, 15, 18, 0, 0, 0]


@pytest.mark.thorough
def test_a_chain_of_100000_operations_is_as_many_statements() -> None:
    out, x = param(0, dtypes.int32, 1), param(1, dtypes.int32, 1)
    value = load(x, i32(0), 1)
    for k in range(67_000):
        value = (value ^ k) + 3 if k % 2 else value * 5
    store = UOp(Ops.STORE, dtypes.void, (out, i32(0), value))
    text = CRenderer(AVX2).render(program(store, params=(out, x)))
    assert max(map(len, text.splitlines())) < 1000


def test_an_open_loop_is_refused() -> None:
    loop = UOp(Ops.RANGE, dtypes.int32, (i32(10),), ("i", AxisKind.LOOP))
    with pytest.raises(LoweringError, match="never closed"):
        CRenderer(AVX2).render(LinearProgram("k", (loop,), ()))


@pytest.mark.parametrize("lanes", [4, 8])
def test_a_buffer_of_vectors_in_private_memory(
    run_program: Callable[..., None], lanes: int
) -> None:
    kind = dtypes.float64.vec(lanes)
    buffer = UOp(Ops.LOCAL, kind, (), ("rows", 2, Space.PRIVATE))
    out, x = param(0, dtypes.float64, lanes), param(1, dtypes.float64, lanes)
    row = load(x, i32(0), lanes)
    puts = [UOp(Ops.STORE, dtypes.void, (buffer, i32(k), row * float(k + 2))) for k in (0, 1)]
    reads = [UOp(Ops.LOAD, kind, (buffer, i32(k))) for k in (0, 1)]
    store = UOp(Ops.STORE, dtypes.void, (out, i32(0), reads[1] + -reads[0]))
    body: dict[Any, None] = {buffer: None}
    for effect in (*puts, store):
        body.update(dict.fromkeys(listed(effect)))
    got, data = np.zeros(lanes), np.arange(float(lanes))
    run_program(LinearProgram("k", tuple(body), (out, x), written=(0,)), [got, data], target=AVX2)
    assert got.tolist() == data.tolist()
