"""EXP, EXP2, LOG2 and SIN: within their errors over the whole range, exact where they can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import mpmath
import numpy as np
import pytest

from opgraft.devices.interp.alu import function_of
from opgraft.dtype import DType, dtypes
from opgraft.ir import Ops, UOp, toposort
from opgraft.ir.elementary import expansion, fold_elementary, light_sine, never_large
from tested import at

FUNCTIONS = [Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN]
WIDE = [dtypes.float32, dtypes.float64]
BOUND = {Ops.EXP: 1.04, Ops.EXP2: 0.9, Ops.LOG2: 1.0, Ops.SIN: 1.6}
"""Units in the last place; docs/meaning.md asks for 2."""

_NUMPY: dict[Ops, Callable[..., np.ndarray]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.CMPLT: np.less,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
    Ops.WHERE: np.where,
}
_REFERENCE = {Ops.EXP: np.exp, Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin}
_RANGES = {
    (Ops.EXP, dtypes.float32): (-104, 89),
    (Ops.EXP, dtypes.float64): (-746, 710),
    (Ops.EXP2, dtypes.float32): (-151, 129),
    (Ops.EXP2, dtypes.float64): (-1076, 1025),
}
"""Where results are neither 0 nor infinite."""


def run(graph: UOp, argument: UOp, values: np.ndarray) -> np.ndarray:
    """The graph on a whole array at once: NumPy's operations on these dtypes are exact."""
    done: dict[UOp, np.ndarray] = {argument: values}
    with np.errstate(all="ignore"):
        for n in toposort((graph,)):
            if n in done:
                continue
            kind = np.dtype("bool" if n.dtype.is_bool else n.dtype.name)
            sources = [done[s] for s in n.src]
            if n.op is Ops.CONST:
                done[n] = np.array(n.arg, kind)
            elif n.op is Ops.CAST:
                done[n] = sources[0].astype(kind)
            elif n.op is Ops.BITCAST:
                done[n] = np.asarray(sources[0]).view(kind)
            elif n.op is Ops.MULACC:
                done[n] = function_of(n.op, n.dtype, n.dtype)(*map(np.asarray, sources))
            else:
                done[n] = _NUMPY[n.op](*sources)
            assert np.asarray(done[n]).dtype == kind
    return done[graph]


@cache
def graph_of(op: Ops, dtype: DType) -> tuple[UOp, UOp]:
    x = UOp.variable("x", -math.inf, math.inf, dtype)
    return expansion(op, x), x


def compute(op: Ops, dtype: DType, values: np.ndarray) -> np.ndarray:
    graph, x = graph_of(op, dtype)
    return run(graph, x, values)


def exact(op: Ops, value: float) -> mpmath.mpf:
    # an argument near 2**1023 needs 1100 bits of pi and more
    with mpmath.workprec(1400 if op is Ops.SIN and abs(value) > 1e5 else 140):
        x = mpmath.mpf(value)
        if op is Ops.EXP:
            return mpmath.exp(x)
        if op is Ops.EXP2:
            return mpmath.power(2, x)
        return mpmath.log(x, 2) if op is Ops.LOG2 else mpmath.sin(x)


def worst(op: Ops, dtype: DType, values: np.ndarray) -> float:
    """The greatest error in units in the last place of the exact result."""
    least = 2 - (1 << (dtype.exponent - 1))
    result = 0.0
    for x, got in zip(values.tolist(), compute(op, dtype, values).tolist(), strict=True):
        want = exact(op, x)
        exponent = max(int(mpmath.frexp(want)[1]) - 1, least) if want else least
        if exponent >= 1 << (dtype.exponent - 1):
            assert got == math.inf
            continue
        if exponent == (1 << (dtype.exponent - 1)) - 1 and math.isinf(got):
            continue
        assert got == got, x
        error = abs(mpmath.mpf(got) - want) / mpmath.ldexp(1, exponent - dtype.mantissa)
        result = max(result, float(error))
    return result


def spread(op: Ops, dtype: DType, count: int) -> np.ndarray:
    """Arguments over the whole range, and dense where results are hard."""
    rng = np.random.default_rng(count)
    bits = dtype.bits
    raw = rng.integers(0, 1 << 63, count, dtype=np.uint64) >> np.uint64(64 - bits)
    anything = raw.astype(f"uint{bits}").view(dtype.name)
    anything = anything[np.isfinite(anything)]
    near_one = 1 + rng.uniform(-0.5, 1, count) * 2.0 ** -rng.integers(0, 45, count)
    if (op, dtype) in _RANGES:
        low, high = _RANGES[op, dtype]
        parts = [rng.uniform(low, high, count), rng.uniform(-1, 1, count)]
        parts += [rng.uniform(low, low + 30, count), rng.integers(low, high, 500) + 0.5]
        parts.append(np.clip(anything, low, high))
    elif op is Ops.LOG2:
        tiny = np.abs(anything[:1000]) * 2.0 ** (1 - (1 << (dtype.exponent - 1)))
        parts = [np.abs(anything), near_one, rng.uniform(0.5, 2, count), tiny]
    else:
        most = 160_000 if dtype is dtypes.float32 else 600_000_000
        multiples = [*rng.integers(1, 2600, count // 8), *rng.integers(1, most, count // 8)]
        near = [float(k * mpmath.pi / 2) for k in map(int, multiples)]
        big = [float(int(2.0**e) * mpmath.pi) for e in rng.uniform(10, 100, count // 4).tolist()]
        parts = [anything, rng.uniform(-10, 10, count), rng.uniform(-4200, 4200, count)]
        parts += [rng.uniform(-1.1e6, 1.1e6, count), np.array(near), np.array(big)]
    with np.errstate(all="ignore"):
        values = np.concatenate(parts).astype(dtype.name)
    return values[np.isfinite(values) & ((values > 0) | (op is not Ops.LOG2))]


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_errors_stay_below_two_units_over_the_whole_range(op: Ops, dtype: DType) -> None:
    assert worst(op, dtype, spread(op, dtype, at(700, 2500))) <= BOUND[op]


@pytest.mark.thorough
@pytest.mark.parametrize("op", FUNCTIONS)
def test_float32_errors_on_many_values(op: Ops) -> None:
    """Against NumPy's float64 functions, which are precise enough to judge float32."""
    reference = _REFERENCE[op]
    for seed in range(4):
        values = spread(op, dtypes.float32, 60_000 + seed)
        got = compute(op, dtypes.float32, values).astype(np.float64)
        with np.errstate(all="ignore"):
            want = reference(values.astype(np.float64))
            unit = 2.0 ** (np.clip(np.frexp(want)[1] - 1, -126, 127) - 23.0)
            inside = np.isfinite(want) & (np.abs(want) < 3.4028235e38)
            error = np.where(inside, np.abs(got - want) / unit, 0.0)
        assert error.max() <= BOUND[op], values[error.argmax()]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_16_bit_floats_are_within_one_unit(op: Ops, dtype: DType) -> None:
    """Every float16 (every fourth bfloat16) against the exact value, rounded once."""
    import ml_dtypes

    kind = np.float16 if dtype is dtypes.float16 else ml_dtypes.bfloat16
    bits = np.arange(0, 1 << 16, 1 if dtype is dtypes.float16 else 4).astype(np.uint16)
    with np.errstate(all="ignore"):
        values = bits.view(kind).astype(np.float32)
        values = values[np.isfinite(values)]
        got = compute(op, dtypes.float32, values).astype(kind)
        reference = _REFERENCE[op]
        want = reference(values.astype(np.float64)).astype(kind)
    steps = np.abs(_ordered(got.view(np.int16)) - _ordered(want.view(np.int16)))
    both_nan = np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
    steps = np.where(both_nan, 0, steps)
    assert steps.max() <= 1
    assert (steps != 0).mean() < 0.001


def _ordered(bits: np.ndarray) -> np.ndarray:
    """Integers in the order of the floats with these bits."""
    wide = bits.astype(np.int32)
    return np.where(wide < 0, -(wide & 0x7FFF), wide)


@pytest.mark.parametrize("dtype", WIDE)
def test_powers_of_two_are_exact(dtype: DType) -> None:
    least = -149 if dtype is dtypes.float32 else -1074
    greatest = 127 if dtype is dtypes.float32 else 1023
    powers = np.arange(least, greatest + 1).astype(dtype.name)
    with np.errstate(all="ignore"):
        values = np.exp2(powers.astype(np.float64)).astype(dtype.name)
    assert (compute(Ops.EXP2, dtype, powers) == values).all()
    assert (compute(Ops.LOG2, dtype, values) == powers).all()


@pytest.mark.parametrize("dtype", dtypes.floats)
def test_edge_values_are_those_of_c(dtype: DType) -> None:
    inf, nan = math.inf, math.nan
    big = 2000.0
    table = {
        Ops.EXP: [(inf, inf), (-inf, 0.0), (0.0, 1.0), (-0.0, 1.0), (big, inf), (-big, 0.0)],
        Ops.EXP2: [(inf, inf), (-inf, 0.0), (0.0, 1.0), (-0.0, 1.0), (big, inf), (-big, 0.0)],
        Ops.LOG2: [(inf, inf), (0.0, -inf), (-0.0, -inf), (-1.0, nan), (-inf, nan), (1.0, 0.0)],
        Ops.SIN: [(inf, nan), (-inf, nan), (0.0, 0.0), (-0.0, -0.0)],
    }
    for op, rows in table.items():
        for x, want in [*rows, (nan, nan)]:
            got = float(fold_elementary(op, dtype, x))
            if want != want:
                assert got != got, (op, x, got)
            else:
                assert (got, math.copysign(1, got)) == (want, math.copysign(1, want)), (op, x)


@pytest.mark.parametrize("dtype", WIDE)
def test_sin_keeps_subnormals_and_tiny_values(dtype: DType) -> None:
    tiny = [2.0**-149, -(2.0**-140)] if dtype is dtypes.float32 else [2.0**-1074, -(2.0**-1040)]
    for x in [*tiny, 1e-30, -1e-20]:
        assert fold_elementary(Ops.SIN, dtype, x) == dtype.const(x)


def test_huge_arguments_of_sin_are_reduced_exactly() -> None:
    assert fold_elementary(Ops.SIN, dtypes.float64, 1e22) == -0.8522008497671888
    # the float64 nearest to a multiple of pi/2 of all (Kahan)
    hard = 6381956970095103.0 * 2.0**797
    assert fold_elementary(Ops.SIN, dtypes.float64, hard) == 1.0
    for x in (2.0**127, float(dtypes.float32.const(3e38)), 16367173.0 * 2.0**72):
        with mpmath.workprec(400):
            want = float(mpmath.sin(mpmath.mpf(x)))
        got = fold_elementary(Ops.SIN, dtypes.float32, x)
        assert abs(float(got) - want) <= 2.0**-23 * abs(want)


@pytest.mark.parametrize("dtype", WIDE)
def test_folding_a_constant_gives_the_bits_of_the_run(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.uniform(-20, 20, 60), rng.uniform(0, 1e9, 20)]).astype(dtype.name)
    for op in FUNCTIONS:
        for x, got in zip(values.tolist(), compute(op, dtype, values).tolist(), strict=True):
            folded = fold_elementary(op, dtype, x)
            assert folded == got or (folded != folded and got != got)


@pytest.mark.parametrize("dtype", WIDE)
def test_the_short_path_of_sin_gives_the_same_bits(dtype: DType) -> None:
    x = UOp.variable("x", -math.inf, math.inf, dtype)
    value, large = light_sine(x)
    values = spread(Ops.SIN, dtype, 3000)
    values = np.concatenate([values, np.array([0.0, -0.0, np.inf, np.nan], dtype.name)])
    far = run(large, x, values)
    kind = f"uint{dtype.bits}"
    short, whole = run(value, x, values), compute(Ops.SIN, dtype, values)
    same = short.view(kind) == whole.view(kind)
    assert (same | far | np.isnan(whole)).all()
    assert far.any()
    assert not far.all()


@pytest.mark.parametrize("dtype", WIDE)
def test_sines_go_to_one_and_not_beyond(dtype: DType) -> None:
    """Every float for a while round odd multiples of pi/2."""
    steps = np.arange(-300, 300)
    for k in (1, 3, 7, 1001, 150_001, 10**12 + 1):
        top = np.array(float(k * mpmath.pi / 2), dtype.name).view(f"int{dtype.bits}")
        got = np.abs(compute(Ops.SIN, dtype, (top + steps).view(dtype.name)))
        assert got.max() <= 1.0
        assert got.max() == 1.0 or k > 1001
    values = np.linspace(1.4, 1.75, 50_000, dtype=dtype.name)
    assert np.abs(compute(Ops.SIN, dtype, values)).max() <= 1.0


def test_a_sine_of_arguments_that_are_not_large_is_short_and_changes_no_bit() -> None:
    """Of float32 14 operations; the rest of these nodes are the argument and three bitcasts."""
    for dtype, most in ((dtypes.float32, 18), (dtypes.float64, 24)):
        inside = UOp.variable("x", -200_000.0, 200_000.0, dtype)
        graph = expansion(Ops.SIN, inside)
        assert sum(n.op is not Ops.CONST for n in toposort((graph,))) <= most
        values = np.append(np.random.default_rng(4).uniform(-2e5, 2e5, 500), -0.0)
        values = values.astype(dtype.name)
        got, kind = run(graph, inside, values), f"uint{dtype.bits}"
        assert (got.view(kind) == compute(Ops.SIN, dtype, values).view(kind)).all()
    half = UOp.variable("h", -math.inf, math.inf, dtypes.float16)
    assert never_large(half.cast(dtypes.float32))
    assert not never_large(UOp.variable("b", -math.inf, math.inf, dtypes.bfloat16))


EXPONENTS = [(-math.inf, 0.0), (-20.0, 20.0), (0.0, math.inf), (0.0, 20.0), (-600.0, 3.0)]
POSITIVE = [(1.0, math.inf), (1e-4, 2.0)]


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("op", [Ops.EXP, Ops.EXP2, Ops.LOG2])
def test_what_bounds_exclude_is_left_out_and_changes_no_bit(op: Ops, dtype: DType) -> None:
    whole, argument = graph_of(op, dtype)
    kind = f"uint{dtype.bits}"
    for low, high in POSITIVE if op is Ops.LOG2 else EXPONENTS:
        inside = UOp.variable("x", low, high, dtype)
        graph = expansion(op, inside)
        assert len(toposort((graph,))) < len(toposort((whole,)))
        values = spread(op, dtype, 1000)
        values = np.concatenate([values, np.arange(-1000, 1000, dtype=dtype.name) / 2])
        values = values[(values >= low) & (values <= high)]
        expected = run(whole, argument, values)
        got = run(graph, inside, values)
        same = got.view(kind) == expected.view(kind)
        assert (same | (np.isnan(got) & np.isnan(expected))).all(), values[~same]


def test_the_exponential_of_what_is_not_positive_takes_a_third_less() -> None:
    """Every softmax has one; 16 operations of float32, each of a vector."""
    x = UOp.variable("x", -math.inf, 0.0, dtypes.float32)
    assert sum(n.op is not Ops.CONST for n in toposort((expansion(Ops.EXP, x),))) <= 21


def test_vectors_take_the_same_graph() -> None:
    x = UOp.variable("x", -math.inf, math.inf, dtypes.float32)
    for op in FUNCTIONS:
        vector = expansion(op, x.broadcast(4))
        ops = [n.op for n in toposort((expansion(op, x),)) if n.op is not Ops.CONST]
        wide = [n.op for n in toposort((vector,)) if not n.is_const]
        assert sorted(o.value for o in ops if o is not Ops.VAR) == sorted(
            o.value for o in wide if o not in (Ops.VAR, Ops.BROADCAST)
        )


def test_only_floats_have_these_functions() -> None:
    with pytest.raises(TypeError, match="takes a float"):
        expansion(Ops.SIN, UOp.variable("x", 0, 9, dtypes.int32))
