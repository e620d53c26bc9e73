"""Faults that others reported, each with its right value: facts/cases.json, groups A, B and C.

Every expression is folded (all leaves constants), and rewritten and then evaluated at each
value of its leaves: the three must agree.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from opgraft import UOp, dtypes
from opgraft.dtype import DType
from opgraft.ir.evaluate import evaluate
from opgraft.ir.ops import Ops
from opgraft.rules.simplify import tidy as simplify  # greedy: the rules are meant


def at_each(expression: UOp, x: UOp) -> list[Any]:
    """The simplified expression at each value of x; as a fold with x put in its place too."""
    made = simplify(expression)
    found = [evaluate(made, {x: v}) for v in range(x.vmin, x.vmax + 1)]
    for v, value in zip(range(x.vmin, x.vmax + 1), found):
        folded = simplify(expression.substitute({x: x.const_like(v)}))
        assert folded.is_const
        assert folded.const_value == value
        assert evaluate(expression, {x: v}) == value
    return found


def folded(expression: UOp) -> Any:
    made = simplify(expression)
    assert made.is_const, made
    return made.const_value


def bits(value: float) -> str:
    return struct.pack(">f", value).hex()


# ---- A: integers


@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int32, dtypes.int8])
class TestNegativeDivision:
    """A01, A02, A03: tinygrad, halide, tvm."""

    def test_by_a_negative_constant(self, dtype: DType) -> None:
        x = UOp.variable("x", 0, 9, dtype)
        assert at_each(x // -3, x) == [0, -1, -1, -1, -2, -2, -2, -3, -3, -3]
        assert at_each(x.alu(Ops.CDIV, -3), x) == [0, 0, 0, -1, -1, -1, -2, -2, -2, -3]
        eleven = UOp.const(dtype, 11)
        assert folded(eleven // -4) == -3
        assert folded(eleven.alu(Ops.CDIV, -4)) == -2

    def test_of_a_sum_that_turns_negative(self, dtype: DType) -> None:
        x = UOp.variable("x", 0, 12, dtype)
        y = 9 - x * 2
        assert at_each(y // 5, x) == [1, 1, 1, 0, 0, -1, -1, -1, -2, -2, -3, -3, -3]
        assert at_each(y.alu(Ops.CDIV, 5), x) == [1, 1, 1, 0, 0, 0, 0, -1, -1, -1, -2, -2, -3]
        assert at_each(y % 5, x) == [4, 2, 0, 3, 1, 4, 2, 0, 3, 1, 4, 2, 0]
        truncated = [4, 2, 0, 3, 1, -1, -3, 0, -2, -4, -1, -3, 0]
        assert at_each(y.alu(Ops.CMOD, 5), x) == truncated

    def test_a_multiple_leaves_a_floor_division_only(self, dtype: DType) -> None:
        x = UOp.variable("x", -6, 6, dtype)
        assert simplify((x * 12 + 7) // 4) is simplify(x * 3 + 1)
        truncated = at_each((x * 12 + 7).alu(Ops.CDIV, 4), x)
        assert truncated[1] == -13  # x = -5; the floor law would give -14
        assert truncated == [math.trunc((12 * v + 7) / 4) for v in range(-6, 7)]

    def test_a_term_moves_out_of_a_floor_division_only(self, dtype: DType) -> None:
        x, y = UOp.variable("x", -3, 3, dtype), UOp.variable("y", -3, 3, dtype)
        for divide, expected in ((Ops.IDIV, 0), (Ops.CDIV, 0)):
            made = simplify((x * 5 + y).alu(divide, 5))
            assert evaluate(made, {x: 1, y: -2}) == expected
        assert evaluate(simplify(x.alu(Ops.CDIV, 4) - 2), {x: 3}) == -2
        five = UOp.variable("five", 5, 6, dtype)
        assert evaluate(simplify(five.alu(Ops.CDIV, 4) - 2), {five: 5}) == -1
        assert evaluate(simplify((five - 8).alu(Ops.CDIV, 4)), {five: 5}) == 0
        assert evaluate(simplify(five // 4 - 2), {five: 5}) == -1
        assert evaluate(simplify((five - 8) // 4), {five: 5}) == -1


class TestWrapping:
    """A05, A07: wrap is the rule, the same when folded."""

    def test_constants_wrap(self) -> None:
        def pair(dtype: DType, a: int, b: int) -> int:
            return folded(UOp.const(dtype, a) + UOp.const(dtype, b))  # type: ignore[no-any-return]

        assert pair(dtypes.uint8, 250, 10) == 4
        assert pair(dtypes.uint8, 3, -5) == 254
        assert pair(dtypes.int32, 2147483600, 100) == -2147483596
        assert pair(dtypes.uint32, 0, -1) == 4294967295
        assert folded(UOp.const(dtypes.uint32, 0) - 1 < 0) is False

    @pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8, dtypes.uint64])
    def test_x_minus_one_is_not_always_less_than_x(self, dtype: DType) -> None:
        x = UOp.variable("x", dtype.min, dtype.max, dtype)
        made = simplify(x - 1 < x)
        assert not made.is_const
        assert evaluate(made, {x: int(dtype.min)}) is False
        small = UOp.variable("x", 1, 100, dtype)
        assert folded(small - 1 < small) is True

    def test_an_intermediate_beyond_32_bits(self) -> None:
        g = UOp.variable("g", 0, 1024)
        assert evaluate(simplify(g * 2**20 * 2048 // 4096), {g: 1024}) == 536870912
        narrow = UOp.variable("g", 0, 1024, dtypes.int32)
        wrapped = simplify(narrow * 2**20 * 2048 // 4096)
        assert evaluate(wrapped, {narrow: 1024}) == 0


class TestShifts:
    """A08: a count outside 0..31 gives 0, or the sign."""

    def test_folded(self) -> None:
        one, minus = UOp.const(dtypes.int32, 1), UOp.const(dtypes.int32, -8)
        assert folded(one << 33) == 0
        assert folded(minus >> 40) == -1
        assert folded(one << -1) == 0

    def test_by_a_variable(self) -> None:
        one = UOp.const(dtypes.int32, 1)
        for most in (30, 40):
            s = UOp.variable("s", 0, most, dtypes.int32)
            shifted = one << s
            assert shifted.vmax < 2**31
            if most == 30:
                assert (shifted.vmin, shifted.vmax) == (1, 2**30)
            found = at_each(shifted, s)
            assert found[:31] == [1 << v for v in range(31)]
            assert not any(found[32:])

    def test_by_a_constant_out_of_range(self) -> None:
        x = UOp.variable("x", -9, 9, dtypes.int32)
        assert folded(x << 32) == 0
        assert simplify(x >> 77) is x >> 31


# ---- B: floats


@pytest.mark.parametrize("dtype", dtypes.floats)
class TestFloatIdentities:
    """B01, B03, B04: what holds for real numbers and not for floats."""

    def test_nan_and_infinities_survive(self, dtype: DType) -> None:
        x = UOp.variable("x", -math.inf, math.inf, dtype)
        values = [2.5, math.inf, -math.inf, math.nan, -3.0]
        times_zero = [evaluate(simplify(x * 0.0), {x: v}) for v in values]
        assert [str(v) for v in times_zero] == ["0.0", "nan", "nan", "nan", "-0.0"]
        minus = [evaluate(simplify(x - x), {x: v}) for v in values]
        assert [str(v) for v in minus] == ["0.0", "nan", "nan", "nan", "0.0"]
        over = [evaluate(simplify(x / x), {x: v}) for v in (4.0, math.inf, math.nan, 0.0)]
        assert [str(v) for v in over] == ["1.0", "nan", "nan", "nan"]

    def test_the_sign_of_zero_survives(self, dtype: DType) -> None:
        zero, minus = UOp.const(dtype, 0.0), UOp.const(dtype, -0.0)
        assert str(folded(minus + 0.0)) == "0.0"
        assert str(folded(zero - zero)) == "0.0"
        assert str(folded(-zero)) == "-0.0"
        assert str(folded(minus + minus)) == "-0.0"
        for a, b in ((zero, minus), (minus, zero)):
            assert str(folded(a.minimum(b))) == "-0.0"
            assert str(folded(a.maximum(b))) == "0.0"
        assert str(folded(UOp.const(dtype, -6.0) % 3.0)) == "0.0"
        assert str(folded(UOp.const(dtype, 6.0) % -3.0)) == "-0.0"

    def test_only_what_keeps_the_sign_is_dropped(self, dtype: DType) -> None:
        x = UOp.variable("x", -math.inf, math.inf, dtype)
        assert simplify(x + 0.0) is x + 0.0
        assert simplify(x * 1.0) is x
        assert simplify(x - 0.0) is x
        assert simplify(x + -0.0) is x
        assert simplify(x * -1.0 * -1.0) is x
        assert simplify(x / 1.0) is x


def test_nan_wins_in_extrema_in_both_orders() -> None:
    # B02
    two, nan = UOp.const(dtypes.float32, 2.0), UOp.const(dtypes.float32, math.nan)
    x = UOp.variable("x", -math.inf, math.inf, dtypes.float32)
    for a, b in ((two, nan), (nan, two)):
        assert math.isnan(folded(a.maximum(b)))
        assert math.isnan(folded(a.minimum(b)))
    for made in (x.maximum(2.0), UOp.const(dtypes.float32, 2.0).minimum(x), x.maximum(x)):
        assert math.isnan(evaluate(simplify(made), {x: math.nan}))
    assert math.isnan(folded(x.maximum(nan)))


def test_float_sums_are_not_reassociated() -> None:
    # B04
    a = UOp.variable("a", -math.inf, math.inf, dtypes.float32)
    assert evaluate(simplify((a + 0.25) - a), {a: 1e8}) == 0.0
    assert evaluate(simplify((a + 1e8) - 1e8), {a: 1.0}) == 0.0
    big = UOp.const(dtypes.float32, 1e8)
    assert evaluate(simplify(a + (big - big)), {a: 1.0}) == 1.0
    root = simplify((a * a).sqrt())
    assert evaluate(root, {a: 2e20}) == math.inf
    assert evaluate(root, {a: 1e-30}) == 0.0
    assert bits(evaluate(simplify(a / 49.0), {a: 7.0})) == "3e124925"
    inverse = UOp.const(dtypes.float32, 1.0) / 49.0
    assert bits(evaluate(simplify(a * inverse), {a: 7.0})) == "3e124924"


class TestCasts:
    """B05: a cast is not the identity, and a round trip is not either."""

    def test_folded(self) -> None:
        def f32(value: float) -> UOp:
            return UOp.const(dtypes.float32, value)

        assert folded(f32(16777217.0).cast("int32")) == 16777216
        assert [folded(f32(v).cast("int32")) for v in (-2.9, -0.5, 0.5, 2.9)] == [-2, 0, 0, 2]
        assert folded(f32(2147483646.0).cast("int32")) == 2147483647
        assert folded(f32(-1.0).cast("uint8")) == 0

    def test_round_trips(self) -> None:
        i = UOp.variable("i", -(2**31), 2**31 - 1, dtypes.int32)
        through = simplify(i.cast("float32").cast("int32"))
        assert evaluate(through, {i: 16777219}) == 16777220
        f = UOp.variable("f", -math.inf, math.inf, dtypes.float32)
        assert evaluate(simplify(f.cast("int32").cast("float32")), {f: 2.75}) == 2.0

    def test_only_round_trips_without_loss_are_dropped(self) -> None:
        i = UOp.variable("i", -(2**31), 2**31 - 1, dtypes.int32)
        small = UOp.variable("s", -128, 127, dtypes.int8)
        assert simplify(i.cast("int64").cast("int32")) is i
        assert simplify(i.cast("float64").cast("int32")) is i
        assert simplify(small.cast("float16").cast("int8")) is small
        assert simplify(i.cast("int16").cast("int32")) is i.cast("int16").cast("int32")
        assert simplify(i.cast("int16").cast("int8")) is i.cast("int8")
        # an integer that wraps is not one that saturates
        there = small.cast("float32").cast("uint16")
        assert simplify(there) is there
        bounded = UOp.variable("b", -5, 100, dtypes.int32)
        assert simplify(bounded.cast("int8").cast("int32")) is bounded


def test_integer_identities_do_hold() -> None:
    # B01, last sentence
    for dtype in (*dtypes.ints, dtypes.index):
        x = UOp.variable("x", 0, 100, dtype)
        assert folded(x * 0) == 0
        assert folded(x - x) == 0
