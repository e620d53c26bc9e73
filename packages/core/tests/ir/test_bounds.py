"""Bounds hold for every value, and are as tight as the golden file says."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.ir import AxisKind, GroupOp, Ops, Space, UOp
from opgraft.ir.bounds import bounds, bounds_given, may_be_nan
from opgraft.ir.evaluate import alu, evaluate, value_to_bits

GOLDEN = Path(__file__).parent / "golden" / "bounds_exact.txt"

# ---- integers of 4 bits: every pair of intervals

BINARY = [Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.CDIV, Ops.CMOD, Ops.MAX, Ops.MIN]
BINARY += [Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ]


def intervals(dtype: DType) -> list[tuple[int, int]]:
    """Every interval of a narrow dtype."""
    values = range(int(dtype.min), int(dtype.max) + 1)
    return list(itertools.combinations_with_replacement(values, 2))


def variables(dtype: DType) -> list[UOp]:
    """A variable for each interval of a narrow dtype."""
    return [UOp.variable(f"v{lo}_{hi}", lo, hi, dtype) for lo, hi in intervals(dtype)]


def hulls(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest entry of each rectangle [a0, a1] x [b0, b1] of a table."""
    result = []
    for combine in (np.minimum, np.maximum):
        size = len(table)
        by_rows = np.empty((size, size, size), table.dtype)
        for first in range(size):
            by_rows[first, first:] = combine.accumulate(table[first:], axis=0)
        both = np.empty((size, size, size, size), table.dtype)
        for first in range(size):
            both[:, :, first, first:] = combine.accumulate(by_rows[:, :, first:], axis=2)
        result.append(both)
    return result[0], result[1]


def holds(interval: tuple, values: list) -> bool:
    """Whether all values lie in the interval."""
    return bool(interval[0] <= min(values) and max(values) <= interval[1])


def share_exact(op: Ops, dtype: DType) -> float:
    """The share of interval pairs with exact bounds; fails where bounds are wrong."""
    least = int(dtype.min)
    values = range(least, int(dtype.max) + 1)
    out = dtypes.bool if op in GroupOp.COMPARISON else dtype
    table = np.array(
        [[int(alu(op, out, (dtype, dtype), (a, b))) for b in values] for a in values], np.int64
    )
    low, high = hulls(table)
    node = UOp(op, out, (UOp.variable("a", 0, 1, dtype), UOp.variable("b", 0, 1, dtype)))
    pairs = intervals(dtype)
    exact = 0
    for a in pairs:
        for b in pairs:
            found = bounds_given(node, a, b)
            place = (a[0] - least, a[1] - least, b[0] - least, b[1] - least)
            right = (int(low[place]), int(high[place]))
            assert holds(found, list(right)), f"{op} of {a} and {b}: {found}, but {right} occur"
            exact += found == right
    return exact / len(pairs) ** 2


def test_equal_operands_are_bounded_like_any() -> None:
    for op, signed in itertools.product(BINARY, (True, False)):
        dtype = dtypes.narrow(4, signed)
        out = dtypes.bool if op in GroupOp.COMPARISON else dtype
        for x in variables(dtype):
            values = [alu(op, out, (dtype, dtype), (v, v)) for v in range(x.vmin, x.vmax + 1)]
            assert holds(bounds(UOp(op, out, (x, x))), values)


@pytest.mark.thorough
def test_every_pair_of_4_bit_intervals_is_bounded_soundly_and_as_tightly_as_before() -> None:
    kinds = [dtypes.narrow(4, True), dtypes.narrow(4, False)]
    lines = [f"{op.name} {d} {share_exact(op, d):.4f}" for op in BINARY for d in kinds]
    text = "\n".join(lines) + "\n"
    kept = GOLDEN.read_text() if GOLDEN.exists() else ""
    if not kept:
        GOLDEN.write_text(text)
    assert text == kept, f"if this is intended, delete {GOLDEN}, run twice, and look at the change"


@pytest.mark.parametrize("signed", [True, False])
def test_casts_between_narrow_integers_wrap(signed: bool) -> None:
    targets = [dtypes.narrow(b, s) for b in (2, 3, 4, 5, 6) for s in (True, False)]
    for x in variables(dtypes.narrow(4, signed)):
        for target in [*targets, dtypes.bool, dtypes.index, dtypes.float16, dtypes.float32]:
            values = [target.const(v) for v in range(x.vmin, x.vmax + 1)]
            lo, hi = bounds(x.cast(target))
            assert holds((lo, hi), values)
            if target.is_index or target.is_float or target.bits > 4 or lo == hi:
                assert (lo, hi) == (min(values), max(values)) or target.kind == "uint"


def test_three_operands_and_squares_of_narrow_integers() -> None:
    rng = random.Random(3)
    for signed in (True, False):
        dtype = dtypes.narrow(4, signed)
        nodes = variables(dtype)
        for _ in range(400):
            x, y, z = rng.sample(nodes, 3)
            triples = list(itertools.product(*(range(n.vmin, n.vmax + 1) for n in (x, y, z))))
            results = [alu(Ops.MULACC, dtype, (), t) for t in triples]
            assert holds(bounds(UOp(Ops.MULACC, dtype, (x, y, z))), results)
            choice = (x < y).where(y, z)
            results = [b if a < b else c for a, b, c in triples]
            assert holds(bounds(choice), results)


def test_reductions_of_narrow_integers() -> None:
    for dtype in (dtypes.narrow(3, True), dtypes.narrow(3, False), dtypes.bool):
        for x in variables(dtype) if not dtype.is_bool else [UOp.variable("b", 0, 1, dtype)]:
            values = range(x.vmin, x.vmax + 1)
            for op, count in itertools.product(sorted(GroupOp.REDUCING), (0, 1, 2, 3)):
                rows = itertools.product(values, repeat=count)
                neutral = dtype.const(_neutral(op, dtype))
                results = [_fold(op, dtype, row, neutral) for row in rows]
                loop = UOp.range(count, "r", AxisKind.REDUCE)
                assert holds(bounds(x.reduce(op, loop)), results), (op, dtype, bounds(x), count)
                if count > 1:
                    vector = UOp(Ops.STACK, dtype.vec(count), (x,) * count)
                    assert holds(bounds(UOp(Ops.HREDUCE, dtype, (vector,), op)), results)
                if count:
                    shorter = [
                        _fold(op, dtype, row, neutral)
                        for c in range(1, count + 1)
                        for row in itertools.product(values, repeat=c)
                    ]
                    assert holds(bounds(UOp(Ops.SCAN, dtype, (x, loop), op)), shorter)


def _neutral(op: Ops, dtype: DType) -> int:
    return {
        Ops.ADD: 0,
        Ops.MUL: 1,
        Ops.MAX: int(dtype.min),
        Ops.MIN: int(dtype.max),
        Ops.AND: -1,
        Ops.OR: 0,
    }[op]


def _fold(op: Ops, dtype: DType, values: tuple, start: object) -> object:
    result = start
    for v in values:
        result = alu(op, dtype, (dtype, dtype), (result, v))
    return result


# ---- floats: nodes that take each of a few values

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 6e4, -6e4, 6e-8, -6e-8, math.inf, -math.inf]


def one_of(values: list[float], dtype: DType, name: str) -> UOp:
    """A node that can be any of these values and nothing else."""
    chooser = UOp.variable(name, 0, len(values) - 1)
    result = UOp.const(dtype, values[0])
    for i, v in enumerate(values[1:], 1):
        result = chooser.eq(i).where(UOp.const(dtype, v), result)
    return result


def choices(node: UOp, *names: str) -> list[float]:
    """All values of a node over all values of the variables of these names."""
    places = {n.arg[0]: n for n in node.toposort() if n.op is Ops.VAR}
    used = [places[n] for n in names if n in places]
    spans = [range(v.vmin, v.vmax + 1) for v in used]
    return [evaluate(node, dict(zip(used, row))) for row in itertools.product(*spans)]


def assert_sound(node: UOp, values: list[float]) -> None:
    lo, hi = bounds(node)
    for v in values:
        if v != v:
            assert may_be_nan(node)
        else:
            assert lo <= v <= hi


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=str)
def test_operations_on_floats(dtype: DType) -> None:
    rng = random.Random(5)
    pool = [*SPECIAL, math.nan, float(2 - 2.0**-dtype.mantissa), 1e-3, 1e30, -1e-30]
    binary = [Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MOD, Ops.MAX, Ops.MIN, *sorted(GroupOp.COMPARISON)]
    for _ in range(120):
        x = one_of(rng.sample(pool, rng.randint(1, 3)), dtype, "x")
        y = one_of(rng.sample(pool, rng.randint(1, 3)), dtype, "y")
        for op in binary:
            made = x.alu(op, y)
            assert_sound(made, choices(made, "x", "y"))
        for op in (Ops.SQRT, Ops.TRUNC):
            assert_sound(x.alu(op), choices(x.alu(op), "x"))
        for made in (x * x, x < x, x.eq(x), x.ne(x)):
            assert_sound(made, choices(made, "x"))
        fused = UOp(Ops.MULACC, dtype, (x, y, x))
        assert_sound(fused, choices(fused, "x", "y"))
        for target in (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.bool, dtypes.float16):
            made = x.cast(target)
            assert_sound(made, choices(made, "x"))
        if dtype is not dtypes.float16:
            made = x.bitcast(dtypes.int32 if dtype.bits == 32 else dtypes.int64)
            assert_sound(made, choices(made, "x"))


def test_sums_and_products_of_floats_over_a_loop() -> None:
    dtype = dtypes.float16
    rng = random.Random(6)
    for _ in range(60):
        values = [dtype.const(v) for v in rng.sample(SPECIAL, rng.randint(1, 3))]
        x = one_of(values, dtype, "x")
        for op, count in itertools.product((Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN), (1, 2, 3)):
            made = x.reduce(op, UOp.range(count, "r", AxisKind.REDUCE))
            rows = itertools.product(values, repeat=count)
            assert_sound(made, [_fold(op, dtype, row[1:], row[0]) for row in rows])


def test_comparisons_are_folded_by_bounds_only_where_nan_allows_it() -> None:
    x = UOp.variable("x", -1.0, 1.0, dtypes.float32)  # may be nan all the same
    assert bounds(x < 2.0) == (False, True)
    assert bounds(x < -1.0) == (False, False)
    assert bounds(x.eq(2.0)) == (False, False)
    assert bounds(x.ne(2.0)) == (True, True)
    assert bounds(x.eq(x)) == (False, True)
    assert bounds(x < x) == (False, False)
    whole = UOp.variable("i", -1, 1).cast(dtypes.float32)
    assert not may_be_nan(whole)
    assert bounds(whole < 2.0) == (True, True)
    assert bounds(whole.eq(whole)) == (True, True)


def test_nan_comes_from_nothing_else_than_it_can() -> None:
    n = UOp.variable("n", -5, 5, dtypes.int32).cast(dtypes.float32)
    assert not may_be_nan(n * n + 1.0)
    assert may_be_nan(n / n)
    assert may_be_nan(n.sqrt())
    assert not may_be_nan((n * n).sqrt())
    loaded = UOp(Ops.PARAM, dtypes.float32, (), (0, 4)).load(0)
    assert may_be_nan(loaded)
    assert (loaded * loaded).vmin == 0.0
    assert (n.sin().vmin, n.exp2().vmin) < (-1.0, 0.1)


# ---- random expressions


def random_expression(rng: random.Random, length: int) -> list[UOp]:
    """Nodes of a random expression over two variables of each dtype, sources first."""
    kinds = [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint64, dtypes.index]
    kinds += [dtypes.bool, dtypes.float16, dtypes.float32, dtypes.bfloat16]
    nodes: list[UOp] = []
    for number, dtype in enumerate(kinds):
        for copy in range(2):
            lo, hi = sorted(dtype.const(rng.choice([-300, -7, -1, 0, 1, 3, 8, 90])) for _ in "ab")
            nodes.append(UOp.variable(f"v{number}_{copy}", lo, hi, dtype))
    for _ in range(length):
        a = rng.choice(nodes)
        dtype = a.dtype
        alike = [n for n in nodes if n.dtype is dtype]
        b = rng.choice([*alike, UOp.const(dtype, rng.choice([-3, -1, 0, 1, 2, 5, 8, 31, 200]))])
        ops = [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE]
        if dtype.is_float:
            ops += [Ops.FDIV, Ops.MOD, Ops.SQRT, Ops.TRUNC]
        elif dtype.is_int:
            ops += [Ops.IDIV, Ops.MOD, Ops.AND, Ops.OR, Ops.XOR, Ops.CDIV, Ops.CMOD]
            if not (dtype.is_index and b.vmax > 64):
                ops += [Ops.SHL, Ops.SHR]
        choice = rng.random()
        if choice < 0.2:
            target = rng.choice(kinds)
            if target.is_index and dtype.is_float and bounds(a.cast(target))[1] == math.inf:
                continue  # an infinity has no index
            nodes.append(a.cast(target))
        elif choice < 0.3:
            condition = rng.choice([n for n in nodes if n.dtype.is_bool])
            nodes.append(condition.where(a, b))
        else:
            op = rng.choice(ops)
            nodes.append(a.alu(op) if op in GroupOp.UNARY else a.alu(op, b))
    return nodes


def test_every_node_of_random_expressions_stays_within_its_bounds() -> None:
    rng = random.Random(17)
    for _ in range(150):
        nodes = random_expression(rng, 20)
        free = [n for n in nodes if n.op is Ops.VAR]
        for _ in range(6):
            values = {v: v.dtype.const(_between(rng, v)) for v in free}
            for n in nodes:
                if n not in values:
                    values[n] = evaluate(n, values)
                    assert_sound(n, [values[n]])


def _between(rng: random.Random, variable: UOp) -> object:
    lo, hi = variable.arg[1:]
    if variable.dtype.is_float:
        return rng.choice([lo, hi, lo + (hi - lo) * rng.random()])
    return rng.randint(int(lo), int(hi))


# ---- leaves, loops, lanes, memory


def test_a_loop_index_stays_below_its_size() -> None:
    n = UOp.variable("n", 0, 7)
    assert bounds(UOp.range(5, "i")) == (0, 4)
    assert bounds(UOp.range(n, "i")) == (0, 6)
    assert bounds(UOp.range(n * 2 + 1, "i")) == (0, 14)
    assert bounds(UOp.range(0, "i")) == (0, 0)


def test_vectors_are_bounded_over_all_lanes() -> None:
    x = UOp.variable("x", -3, 4, dtypes.int32)
    four = UOp(Ops.STACK, dtypes.int32.vec(4), (x, x + 10, x, x))
    assert bounds(four) == (-3, 14)
    assert bounds(x.broadcast(4) * 2) == (-6, 8)
    assert bounds(four.extract(1)) == (7, 14)
    assert bounds(UOp(Ops.IOTA, dtypes.int32.vec(8))) == (0, 7)
    assert bounds(UOp(Ops.IOTA, dtypes.int8.vec(256))) == (-128, 127)
    assert bounds(UOp(Ops.HREDUCE, dtypes.int32, (four,), Ops.ADD)) == (-12, 56)


def test_a_load_can_be_anything_of_its_dtype() -> None:
    bytes_ = UOp(Ops.PARAM, dtypes.uint8, (), (0, 16))
    flags = UOp(Ops.PARAM, dtypes.bool, (), (1, 16))
    i = UOp.range(20, "i")
    assert bounds(bytes_.load(i)) == (0, 255)
    assert bounds(bytes_.load(i, i < 16, 0)) == (0, 255)
    assert bounds(flags.load(i)) == (False, True)
    register = UOp(Ops.LOCAL, dtypes.int8, (), ("r", 1, Space.REGISTER))
    assert bounds(register.load(0)) == (-128, 127)
    assert bounds(UOp(Ops.THREEFRY, dtypes.uint64, (UOp.const("uint64", 1),) * 2))[0] == 0


def test_an_index_may_be_unbounded() -> None:
    huge = UOp.const(dtypes.index, 10**400)
    x = UOp.variable("x", 0, 9)
    assert (x + huge).vmax == math.inf
    assert (x * huge).vmin == 0
    assert (huge * -1 + x).vmin == -math.inf
    assert ((x + huge) % 8).vmax == 7
    assert ((x + huge) // huge).vmin >= 0
    assert ((x + huge) & 7).vmax == 7
    assert (UOp.const(dtypes.index, 1) << huge).vmax == math.inf


def test_subtraction_of_unsigned_numbers_is_bounded_where_it_cannot_wrap() -> None:
    x = UOp.variable("x", 10, 20, dtypes.uint8)
    y = UOp.variable("y", 1, 3, dtypes.uint8)
    assert bounds(x - y) == (7, 19)
    assert bounds(y - x) == (237, 249)
    assert bounds(x - x * 1) == (0, 255)  # it might wrap: 10 - 20


def test_a_chain_of_100_000_nodes() -> None:
    x = UOp.variable("x", 0, 1)
    total = x
    for i in range(100_000):
        total = total + (i & 1)
    assert bounds(total) == (50_000, 50_001)


# ---- public reports (facts/cases.json)


def test_a05_a_flat_index_beyond_int32_keeps_its_bounds() -> None:
    g = UOp.variable("g", 0, 1024)
    inner = (g * 2**20) * 2048
    assert inner.vmax == 2**41
    assert (inner // 4096).vmax == 536870912
    row, column = UOp.range(3, "row"), UOp.range(2**30, "column")
    assert (row * 2**30 + column).vmax == 3 * 2**30 - 1
    narrow = g.cast(dtypes.int32) * 2**20
    assert bounds(narrow * 2048) == (-(2**31), 2**31 - 2048)  # it wraps, and stays a multiple


def test_a06_a_narrowing_cast_wraps_and_is_not_clamped() -> None:
    assert bounds(UOp.range(300, "i").cast(dtypes.int8)) == (-128, 127)
    assert bounds(UOp.variable("x", 200, 210).cast(dtypes.int8)) == (-56, -46)


def test_a08_shifts_beyond_the_width() -> None:
    one = UOp.const(dtypes.int32, 1)
    s = UOp.variable("s", 0, 40, dtypes.int32)
    assert bounds(one << s) == (-(2**31), 2**30)
    assert bounds(one << UOp.variable("s", 0, 30, dtypes.int32)) == (1, 2**30)
    assert bounds(one << 33) == (0, 0)
    assert bounds(one << -1) == (0, 0)
    assert bounds(UOp.const(dtypes.int32, -8) >> 40) == (-1, -1)
    assert bounds(UOp.const(dtypes.uint32, 8) >> 40) == (0, 0)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_bits_without_a_sign_are_those_of_a_float_that_is_not_negative(dtype: DType) -> None:
    word = dtypes.narrow(dtype.bits, True)
    x = UOp.variable("x", -math.inf, math.inf, dtype)
    size = (x.bitcast(word) & word.max).bitcast(dtype)
    assert (size.vmin, size.vmax, may_be_nan(size)) == (0.0, math.inf, True)
    assert (size + 1.0).vmin == 1.0
    few = UOp.variable("b", value_to_bits(1.0, dtype), value_to_bits(2.5, dtype), word)
    assert (few.bitcast(dtype).vmin, few.bitcast(dtype).vmax) == (1.0, 2.5)
    assert not may_be_nan(few.bitcast(dtype))
    assert x.bitcast(word).bitcast(dtype).vmin == -math.inf


@pytest.mark.parametrize("limit", [-104.0, 2.5])
def test_a_clamp_to_a_number_bounds_on_its_side_and_lets_nan_through(limit: float) -> None:
    """`x < c ? c : x`, which is what a maximum with a number becomes on the way to a machine."""
    x = UOp.variable("x", -math.inf, math.inf, dtypes.float32)
    c = UOp.const(dtypes.float32, limit)
    lower, upper = (x < c).where(c, x), (c < x).where(c, x)
    assert (lower.vmin, lower.vmax) == (limit, math.inf)
    assert (upper.vmin, upper.vmax) == (-math.inf, limit)
    assert may_be_nan(lower) == may_be_nan(x) == may_be_nan(upper)
    zero = UOp.const(dtypes.float32, 0.0)
    assert ((zero < x).where(zero, x).vmax, (x < zero).where(zero, x).vmin) == (0.0, 0.0)
    # the sign of a zero that is let through is not the number's
    below = UOp.variable("y", -1.0, -0.0, dtypes.float32)
    assert (below < zero).where(zero, below).vmin == -1.0
