"""What a target lacks, rewritten: the value stays that of `alu`, on edge and random operands."""

from __future__ import annotations

import itertools
import math
import random
from functools import cache
from typing import Any

import pytest

from opgraft.dtype import DType, dtypes
from opgraft.ir import GroupOp, Ops, UOp, graph_rewrite, toposort
from opgraft.ir.evaluate import alu, bits_to_value, evaluate, value_to_bits
from opgraft.ir.expansions import ANY_ZERO, PROVEN, expand
from opgraft.lower.decompose import decompositions
from opgraft.target import Target

HALVES = frozenset({dtypes.float16, dtypes.bfloat16})
ALL = frozenset(dtypes.all)
FULL = Target("full", compute=ALL)
STORING = Target("stores halves", compute=ALL - HALVES)
BARE = Target("no halves at all", compute=ALL - HALVES, storage=ALL - HALVES)


def lowered(u: UOp, target: Target = FULL) -> UOp:
    return graph_rewrite(u, decompositions(target))


def variable(name: str, dtype: DType, low: Any = None, high: Any = None) -> UOp:
    return UOp.variable(
        name, dtype.min if low is None else low, dtype.max if high is None else high, dtype
    )


def same(dtype: DType, got: Any, want: Any) -> bool:
    if dtype.is_float and want != want:
        return bool(got != got)
    return value_to_bits(got, dtype) == value_to_bits(want, dtype)


def edges(dtype: DType) -> list[Any]:
    least, greatest = int(dtype.min), int(dtype.max)
    found = [0, 1, 2, 3, 7, 100, greatest, greatest - 1, greatest // 3, least, least + 1]
    found += [-1, -2, -3, -7] if dtype.is_signed else []
    return list(dict.fromkeys(found))


def random_float(dtype: DType, rng: random.Random) -> float:
    return float(bits_to_value(rng.getrandbits(dtype.bits), dtype))


def special(dtype: DType) -> list[float]:
    least = float(bits_to_value(1, dtype))
    return [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, math.inf, -math.inf, math.nan, least, -least]


# ---- integers


@pytest.mark.sampled(5)
@pytest.mark.parametrize("op", [Ops.IDIV, Ops.MOD, Ops.CDIV, Ops.CMOD, Ops.SHL, Ops.SHR])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8])
def test_division_and_shifts_of_bytes_for_all_operands(op: Ops, dtype: DType) -> None:
    a, b = variable("a", dtype), variable("b", dtype)
    graph = lowered(UOp(op, dtype, (a, b)))
    numbers = range(int(dtype.min), int(dtype.max) + 1)
    for x, y in itertools.product([*numbers][::5] + edges(dtype), [*numbers][::3] + edges(dtype)):
        want = alu(op, dtype, (dtype, dtype), (x, y))
        assert evaluate(graph, {a: x, b: y}) == want, (x, y)


@pytest.mark.parametrize("op", [Ops.IDIV, Ops.MOD])
@pytest.mark.parametrize("dtype", dtypes.ints)
def test_floor_division_by_variables_and_constants(op: Ops, dtype: DType) -> None:
    a, b = variable("a", dtype), variable("b", dtype)
    graph = lowered(UOp(op, dtype, (a, b)))
    for y in edges(dtype):
        constant = lowered(UOp(op, dtype, (a, UOp.const(dtype, y))))
        for x in edges(dtype):
            want = alu(op, dtype, (dtype, dtype), (x, y))
            assert evaluate(graph, {a: x, b: y}) == want, (x, y)
            assert evaluate(constant, {a: x}) == want, (x, y)


def test_bounds_spare_the_corrections() -> None:
    """cost: a plain quotient of numbers that can't be negative, a shift for a power of two."""
    x, y = variable("x", dtypes.int32, 0, 100), variable("y", dtypes.int32, 1, 9)
    assert lowered(x // y) is UOp(Ops.CDIV, dtypes.int32, (x, y))
    assert lowered(x % y) is UOp(Ops.CMOD, dtypes.int32, (x, y))
    any_ = variable("z", dtypes.int32)
    assert lowered(any_ // 8) is any_ >> 3
    assert lowered(any_ % 8) is any_ & 7
    assert lowered(any_ << 5) is any_ << 5


def test_floor_division_negative_divisor_report() -> None:
    """tinygrad#3594 and others: x // -3 for x in 0..9, (9-2x) // 5 and % 5 for x in 0..12."""
    x = variable("x", dtypes.int32, 0, 12)
    table = {
        x // -3: [0, -1, -1, -1, -2, -2, -2, -3, -3, -3],
        (9 - x * 2) // 5: [1, 1, 1, 0, 0, -1, -1, -1, -2, -2, -3, -3, -3],
        (9 - x * 2) % 5: [4, 2, 0, 3, 1, 4, 2, 0, 3, 1, 4, 2, 0],
    }
    for expression, want in table.items():
        graph = lowered(expression)
        assert [evaluate(graph, {x: k}) for k in range(len(want))] == want


def test_threefry_is_salmons() -> None:
    wide = dtypes.uint64
    a, b = variable("a", wide), variable("b", wide)
    graph = lowered(UOp(Ops.THREEFRY, wide, (a, b)))
    assert all(n.op is not Ops.THREEFRY for n in toposort((graph,)))
    rng = random.Random(5)
    for _ in range(20):
        x, y = rng.getrandbits(64), rng.getrandbits(64)
        assert evaluate(graph, {a: x, b: y}) == alu(Ops.THREEFRY, wide, (wide, wide), (x, y))
    # the known answer of the Random123 distribution for zeros
    assert evaluate(graph, {a: 0, b: 0}) == 0x6B200159 | 0x99BA4EFE << 32


# ---- floats


@pytest.mark.parametrize("op", [Ops.MAX, Ops.MIN])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_max_and_min_know_nan_and_signed_zeros(op: Ops, dtype: DType) -> None:
    a, b = variable("a", dtype), variable("b", dtype)
    graph = lowered(UOp(op, dtype, (a, b)))
    assert all(n.op is not op for n in toposort((graph,)))
    for x, y in itertools.product(special(dtype), repeat=2):
        want = alu(op, dtype, (dtype, dtype), (x, y))
        assert same(dtype, evaluate(graph, {a: x, b: y}), want), (x, y)
        for half in (
            UOp(op, dtype, (a, UOp.const(dtype, y))),
            UOp(op, dtype, (UOp.const(dtype, y), a)),
        ):
            assert same(dtype, evaluate(lowered(half), {a: x}), want), (x, y)


def test_a_maximum_in_a_reduction_is_cheap_but_keeps_nan() -> None:
    a, b = variable("a", dtypes.float32), variable("b", dtypes.float32)
    graph = expand(UOp(Ops.MAX, dtypes.float32, (a, b), None, ANY_ZERO))
    assert graph is not None
    assert len([n for n in toposort((graph,)) if n.src]) == 4
    for x, y in itertools.product(special(dtypes.float32), repeat=2):
        want = alu(Ops.MAX, dtypes.float32, (dtypes.float32,) * 2, (x, y))
        got = evaluate(graph, {a: x, b: y})
        assert got == want or (got != got and want != want)


@pytest.mark.parametrize("target", dtypes.ints)
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64])
def test_float_to_integer_saturates(source: DType, target: DType) -> None:
    x = variable("x", source)
    graph = lowered(x.cast(target))
    for n in toposort((graph,)):
        if n.op is Ops.CAST and n.src[0].dtype.is_float:
            assert n.tag == PROVEN
    values = [*special(source), 0.5, -0.5, 1e30, -1e30, 2.0**31, -(2.0**31) - 512.0, 2.0**64]
    for limit in (int(target.min), int(target.max)):
        values += [float(source.const(limit + k / 2)) for k in range(-3, 4)]
    for v in map(source.const, values):
        assert evaluate(graph, {x: v}) == target.const(float(v)), v


def test_a_cast_whose_bounds_fit_is_left_plain() -> None:
    x = variable("x", dtypes.int16).cast(dtypes.float32)
    graph = lowered(x.cast(dtypes.int32))
    assert graph is UOp(Ops.CAST, dtypes.int32, (x,), None, PROVEN)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", dtypes.floats)
def test_float_mod_is_pythons(dtype: DType) -> None:
    rng = random.Random(7)
    a, b = variable("a", dtype), variable("b", dtype)
    graph = lowered(a % b, STORING)
    pairs = list(itertools.product(special(dtype), repeat=2))
    for _ in range(60):
        x, y = dtype.const(rng.uniform(-100, 100)), dtype.const(rng.uniform(-3, 3))
        pairs += [(x, y), (dtype.const(x * y), y)]
        pairs.append((random_float(dtype, rng), random_float(dtype, rng)))
    for x, y in pairs:
        want = alu(Ops.MOD, dtype, (dtype, dtype), (x, y))
        assert same(dtype, evaluate(graph, {a: x, b: y}), want), (x, y)


# ---- 16-bit floats


@cache
def operands(dtype: DType) -> list[float]:
    rng = random.Random(11)
    return [*special(dtype), *(random_float(dtype, rng) for _ in range(150))]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", [STORING, BARE])
@pytest.mark.parametrize("dtype", sorted(HALVES, key=str))
def test_16_bit_arithmetic_rounds_once(dtype: DType, target: Target) -> None:
    a, b, c = (variable(k, dtype) for k in "abc")
    rng = random.Random(13)
    some = operands(dtype)
    for op in (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.MIN, *sorted(GroupOp.COMPARISON)):
        result = dtypes.bool if op in GroupOp.COMPARISON else dtype
        graph = lowered(UOp(op, result, (a, b)), target)
        for _ in range(120):
            x, y = rng.choice(some), rng.choice(some)
            want = alu(op, result, (dtype, dtype), (x, y))
            assert same(result, evaluate(graph, {a: x, b: y}), want), (op, x, y)
    graph = lowered(UOp(Ops.MULACC, dtype, (a, b, c)), target)
    for _ in range(200):
        x, y, z = (rng.choice(some) for _ in range(3))
        want = alu(Ops.MULACC, dtype, (dtype,) * 3, (x, y, z))
        assert same(dtype, evaluate(graph, {a: x, b: y, c: z}), want), (x, y, z)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", [STORING, BARE])
@pytest.mark.parametrize("dtype", sorted(HALVES, key=str))
def test_conversions_to_16_bits_round_once(dtype: DType, target: Target) -> None:
    """stillwater-sc/universal#1133 and others: rounding through float32 rounds twice."""
    rng = random.Random(17)
    for source in dtypes.all:
        if source is dtype:
            continue
        x = variable("x", source)
        graph = lowered(x.cast(dtype), target)
        back = lowered(variable("h", dtype).cast(source), target)
        for _ in range(120):
            if source.is_float:
                # near a tie of the result
                near = float(rng.choice(operands(dtype))) * (1 + 2.0 ** -rng.randint(7, 40))
                value: Any = source.const(near)
            else:
                width = rng.randint(1, 64)
                value = source.const(rng.choice([1, -1]) * rng.getrandbits(width))
            assert same(dtype, evaluate(graph, {x: value}), dtype.const(value)), (source, value)
        h = variable("h", dtype)
        for value in operands(dtype)[:60]:
            got = evaluate(back, {h: value})
            assert same(source, got, alu(Ops.CAST, source, (dtype,), (value,))), (source, value)


def test_double_rounding_report() -> None:
    """The four values of the public reports (cases B06)."""
    rows = [
        (dtypes.float64, 1 + 2.0**-11 + 2.0**-30, dtypes.float16, 1.0009765625),
        (dtypes.float64, 1 + 2.0**-8 + 2.0**-30, dtypes.bfloat16, 1.0078125),
        (dtypes.int32, 33685505, dtypes.bfloat16, 33816576.0),
        (dtypes.float32, 2.7182817459106445, dtypes.bfloat16, 2.71875),
    ]
    for source, value, target, want in rows:
        x = variable("x", source)
        for device in (STORING, BARE):
            assert evaluate(lowered(x.cast(target), device), {x: value}) == want


def test_a_target_without_16_bit_floats_moves_their_bits() -> None:
    for dtype in HALVES:
        buffer = UOp(Ops.PARAM, dtype, (), (0, 8))
        at = UOp.const(dtypes.int32, 1)
        value = buffer.load(at) + buffer.load(at + 1)
        graph = lowered(buffer.store(at, value), BARE)
        assert all(n.dtype.scalar not in HALVES for n in toposort((graph,)))


@pytest.mark.parametrize("lanes", [4])
def test_vectors_are_rewritten_like_scalars(lanes: int) -> None:
    """Lane by lane the same operations, so the same values."""
    for dtype in (dtypes.float32, dtypes.float16, dtypes.int32):
        ops = [Ops.MAX, Ops.MOD] + ([Ops.EXP2, Ops.SIN] if dtype.is_float else [Ops.IDIV])
        for op in ops:
            count = 1 if op in GroupOp.ELEMENTARY else 2
            names = [variable(k, dtype) for k in "ab"[:count]]
            scalar = lowered(UOp(op, dtype, tuple(names)), STORING)
            vector = lowered(
                UOp(op, dtype.vec(lanes), tuple(n.broadcast(lanes) for n in names)), STORING
            )
            kinds = [(n.op, n.dtype.scalar) for n in toposort((scalar,)) if n.src]
            wide = [
                (n.op, n.dtype.scalar)
                for n in toposort((vector,))
                if n.src and n.op is not Ops.BROADCAST
            ]
            assert sorted(map(str, kinds)) == sorted(map(str, wide)), op


@pytest.mark.parametrize("dtype", dtypes.floats)
def test_truncation_without_an_instruction(dtype: DType) -> None:
    target = Target("bare", compute=ALL - HALVES, ops=Target.ops - {Ops.TRUNC})
    x = variable("x", dtype)
    graph = lowered(x.trunc(), target)
    assert all(n.op is not Ops.TRUNC for n in toposort((graph,)))
    rng = random.Random(19)
    values = [*special(dtype), 0.5, 0.75, -0.75, 1.5, 2.5, -2.5, 8388607.5, 2.0**52 - 0.5]
    values += [random_float(dtype, rng) for _ in range(60)]
    values += [rng.uniform(-100, 100) for _ in range(60)]
    for v in map(dtype.const, values):
        want = alu(Ops.TRUNC, dtype, (dtype,), (v,))
        assert same(dtype, evaluate(graph, {x: v}), want), v
