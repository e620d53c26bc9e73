"""One or two golden simplifications per family of rules, and what must stay as it is."""

from __future__ import annotations

import math

import pytest

from opgraft import UOp, dtypes, using
from opgraft.dtype import DType
from opgraft.ir.ops import AxisKind, Ops
from opgraft.rules.simplify import tidy as simplify  # greedy: the rules are meant

B, C = UOp.variable("b", False, True, dtypes.bool), UOp.variable("c", False, True, dtypes.bool)
X, Y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 99)
F = UOp.variable("f", -math.inf, math.inf, dtypes.float32)
G = UOp.variable("g", -math.inf, math.inf, dtypes.float32)


class TestIntegers:
    def test_like_terms_of_wrapping_integers_are_joined(self) -> None:
        a = UOp.variable("a", 0, 255, dtypes.uint8)
        b = UOp.variable("b", 0, 255, dtypes.uint8)
        assert simplify(a * 3 + b - a) is simplify(a * 2 + b)
        assert simplify(a * 200 + a * 56).const_value == 0

    def test_a_product_of_wrapping_integers_is_not_divided_away(self) -> None:
        a = UOp.variable("a", 0, 255, dtypes.uint8)
        assert simplify(a * 3 // 3) is a * 3 // 3
        small = UOp.variable("a", 0, 85, dtypes.uint8)
        assert simplify(small * 3 // 3) is small

    def test_a_remainder_by_a_power_of_two_sees_through_wrapping(self) -> None:
        a = UOp.variable("a", 0, 255, dtypes.uint8)
        assert simplify((a * 8 + a) % 8) is a % 8

    def test_data_is_not_distributed(self) -> None:
        a = UOp.variable("a", -9, 9, dtypes.int32)
        b = UOp.variable("b", -9, 9, dtypes.int32)
        made = simplify((a + b) * 3)
        assert sum(n.op is Ops.MUL for n in made.toposort()) == 1

    def test_constants_gather(self) -> None:
        a = UOp.variable("a", -9, 9, dtypes.int32)
        assert simplify((a + 3) * 2 + 4) is a * 2 + 10
        assert simplify(a.maximum(3).maximum(5)) is a.maximum(5)


class TestBooleans:
    def test_identities(self) -> None:
        assert simplify(B & True) is B
        assert simplify(B & ~B).const_value is False
        assert simplify(B | ~B).const_value is True
        assert simplify(~~B) is B
        assert simplify(B.eq(False)) is ~B
        assert simplify((B & C) | B) is B

    def test_other_operations_mean_logic(self) -> None:
        assert simplify(B + C) is simplify(B | C)
        assert simplify(B * C) is simplify(B & C)
        assert simplify(B < C) is simplify(~B & C)
        assert simplify(B.ne(C)) is simplify(B ^ C)


class TestSelects:
    def test_choices_that_are_none(self) -> None:
        assert simplify(B.where(X, X)) is X
        assert simplify((~B).where(X, Y)) is B.where(Y, X)
        assert simplify(B.where(UOp.const(dtypes.bool, True), C)) is simplify(B | C)

    def test_choices_within_choices(self) -> None:
        assert simplify(B.where(B.where(X, Y), Y)) is B.where(X, Y)
        assert simplify(B.where(C.where(X, Y), Y)) is simplify(B & C).where(X, Y)
        assert simplify(B.where(X, C.where(X, Y))) is simplify(B | C).where(X, Y)

    def test_constants_are_computed_inside(self) -> None:
        assert simplify(B.where(X.const_like(3), X.const_like(5)) * 2) is B.where(
            X.const_like(6), X.const_like(10)
        )

    def test_a_choice_by_order_is_an_extremum_of_integers_only(self) -> None:
        assert simplify((X < Y).where(X, Y)) is simplify(X.minimum(Y))
        assert simplify((X < 5).where(5, X)) is X.maximum(5)
        assert simplify((F < G).where(F, G)) is (F < G).where(F, G)


class TestCasts:
    def test_comparisons_go_below_exact_casts(self) -> None:
        a = UOp.variable("a", -128, 127, dtypes.int8)
        assert simplify(a.cast("float32") < 3.0) is (a < 3)
        assert simplify(B.cast("int32").ne(0)) is B
        wide = UOp.variable("w", -(2**31), 2**31 - 1, dtypes.int32)
        kept = wide.cast("float32") < 3.0
        assert simplify(kept) is kept

    def test_bits_read_twice_are_read_once_but_a_float_stays_as_it_was_rounded(self) -> None:
        wide = UOp.variable("w", 0, 2**32 - 1, dtypes.uint32)
        assert simplify(wide.bitcast("int32").bitcast("uint32") + 1) is simplify(wide + 1)
        rounded = (F + 1e8).bitcast("int32").bitcast("float32")
        near = rounded - 1e8
        assert simplify(near) is near
        for level in ("reassoc", "unsafe"):
            with using(FLOAT=level):
                assert simplify(near) is near
                assert simplify(F + 1e8 - 3.0) is F + (1e8 - 3.0)

    def test_index_casts_go_inside_where_nothing_wraps(self) -> None:
        a = UOp.variable("a", 0, 100, dtypes.int32)
        assert simplify((a + 1).cast("index")) is a.cast("index") + 1
        full = UOp.variable("a", -(2**31), 2**31 - 1, dtypes.int32)
        kept = (full + 1).cast("index")
        assert simplify(kept) is kept


class TestBits:
    def test_masks_and_shifts(self) -> None:
        a = UOp.variable("a", 0, 255, dtypes.uint8)
        assert simplify(a & 255) is a
        assert simplify(a >> 2 >> 3) is a >> 5
        assert simplify(a << 4 << 4).const_value == 0
        assert simplify(a << 3 >> 3) is a & 31
        assert simplify(a ^ a).const_value == 0
        assert simplify(~~a) is a
        assert simplify(X & 7) is simplify(X % 8)
        assert simplify(X >> 3) is simplify(X // 8)

    def test_a_mask_of_all_bits_that_can_be_set_goes(self) -> None:
        a = UOp.variable("a", 0, 9, dtypes.int32)
        assert simplify(a & 15) is a
        assert simplify(a & 7) is a & 7


class TestFloats:
    def test_what_is_exact(self) -> None:
        assert simplify(F * -1.0 * 3.0) is F * -3.0
        assert simplify(-F * -G) is F * G
        assert simplify(F / 4.0) is F * 0.25
        assert simplify(-F < -G) is (G < F)
        assert simplify(-F < 2.0) is (UOp.const(dtypes.float32, -2.0) < F)
        assert simplify(F.maximum(F)) is F
        assert simplify(F.maximum(1.0).maximum(2.0)) is F.maximum(2.0)
        assert simplify(F.trunc().trunc()) is F.trunc()

    def test_what_is_not(self) -> None:
        for kept in (F / 3.0, F + 0.0, (F + 1.0) + 2.0, F * G / G, F.eq(F), F.sqrt() * F.sqrt()):
            assert simplify(kept) is kept

    def test_a_division_by_a_power_of_two_too_small_to_invert_stays(self) -> None:
        h = UOp.variable("h", -math.inf, math.inf, dtypes.float16)
        kept = h / 2.0**-24
        assert simplify(kept) is kept


class TestReductions:
    R = UOp.range(5, "r", AxisKind.REDUCE)

    def test_of_what_does_not_change(self) -> None:
        a = UOp.variable("a", 0, 9, dtypes.int32)
        assert simplify(a.reduce(Ops.ADD, self.R)) is a * 5
        assert simplify(a.reduce(Ops.MAX, self.R)) is a
        assert simplify(F.reduce(Ops.MAX, self.R)) is F
        kept = F.reduce(Ops.ADD, self.R)
        assert simplify(kept) is kept

    def test_factors_and_conditions_move_out(self) -> None:
        buffer = UOp(Ops.PARAM, dtypes.int32, (), (0, 5))
        value = buffer.load(self.R)
        total = value.reduce(Ops.ADD, self.R)
        assert simplify((value * 3).reduce(Ops.ADD, self.R)) is total * 3
        assert simplify(B.where(value, 0).reduce(Ops.ADD, self.R)) is B.where(total, 0)

    def test_of_possibly_nothing(self) -> None:
        n = UOp.variable("n", 0, 5)
        r = UOp.range(n, "r", AxisKind.REDUCE)
        a = UOp.variable("a", 0, 9, dtypes.int32)
        kept = a.reduce(Ops.MIN, r)
        assert simplify(kept) is kept
        assert simplify(a.reduce(Ops.ADD, r)) is simplify(a * n.cast("int32"))


class TestFloatLevels:
    def test_strict_is_the_default(self) -> None:
        kept = (F + 1.0) + 2.0
        assert simplify(kept) is kept

    def test_reassoc_associates_and_distributes(self) -> None:
        with using(FLOAT="reassoc"):
            assert simplify((F + 1.0) + 2.0) is F + 3.0
            assert simplify(F * G + F * 3.0) in (F * (G + 3.0), simplify(F * (G + 3.0)))
            assert simplify(F * 2.0 * 3.0) is F * 6.0
            assert simplify(F - F) is F - F
            assert simplify(F / 3.0) is F / 3.0

    def test_unsafe_cancels(self) -> None:
        with using(FLOAT="unsafe"):
            assert simplify(F - F).const_value == 0.0
            assert simplify(F / F).const_value == 1.0
            assert simplify(F + 0.0) is F
            assert simplify((F + G) - F) is G
            assert simplify(F / 3.0).op is Ops.MUL


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.index, dtypes.float32, dtypes.bool])
def test_vectors_are_simplified_as_their_lanes(dtype: DType) -> None:
    v = UOp(Ops.BROADCAST, dtype.vec(4), (UOp.variable("v", 0, 1, dtype),))
    one = UOp.const(v.dtype, 1)
    assert simplify(v * one) is v
    assert simplify(one * one) is one


def test_elementary_functions_of_constants_fold() -> None:
    assert simplify(UOp.const(dtypes.float32, 3.0).exp2()).const_value == 8.0
    assert simplify(UOp.const(dtypes.float64, 8.0).log2()).const_value == 3.0
    assert simplify(UOp.const(dtypes.float32, 0.0).sin()).const_value == 0.0
