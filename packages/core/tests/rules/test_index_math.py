"""What index arithmetic becomes: notable simplifications, in the text form.

Sources: the outcomes known from egg's tests and from gains.md, and what public reports show
others got wrong.
"""

from __future__ import annotations

import pytest

from opgraft import UOp, dtypes
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.text import to_text
from opgraft.rules.sets import symbolic
from opgraft.rules.simplify import tidy as simplify  # greedy: the rules are meant


def i(size: int, name: str) -> UOp:
    return UOp.range(size, name)


def shown(x: UOp) -> str:
    """The expression between the angle brackets of its repr."""
    return repr(x).partition(": ")[2].removesuffix(">")


R, S, T = i(8, "i"), i(4, "j"), i(16, "k")
FLAT = R * 64 + S * 16 + T


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ((R * 4 + S) // 4, "i"),
        ((R * 4 + S) % 4, "j"),
        (FLAT // 16, "i*4 + j"),
        ((FLAT // 16) % 4, "j"),
        ((FLAT // 16) // 4, "i"),
        (R * 4 + S < 32, "True"),
        (((R * 4 + S) // 4) * 4 + (R * 4 + S) % 4, "i*4 + j"),
        (UOp.variable("g", 0, 1024) * 2**20 * 2048 // 4096, "g*524288"),
    ],
    ids=str,
)
def test_divisions_of_flat_indices_vanish(expression: UOp, expected: str) -> None:
    made = simplify(expression)
    if made.op.name in ("RANGE", "VAR"):
        assert made.arg[0] == expected
    elif made.is_const:
        assert str(made.const_value) == expected
    else:
        assert shown(made) == expected


def test_a_flat_index_of_any_kind_prints_as_one_sum() -> None:
    assert to_text(simplify(FLAT // 16 * 16 + T)) == to_text(R * 64 + S * 16 + T)


def test_terms_stand_in_the_order_of_loops_with_the_constant_last() -> None:
    assert simplify(3 + T + S * 2 + R) is R + S * 2 + T + 3


def test_equal_terms_are_joined_and_opposite_ones_vanish() -> None:
    assert simplify(R * 3 + S - R * 3 + S) is S * 2
    assert simplify(R + (R + (R + R))) is R * 4


def test_a_remainder_and_its_quotient_recombine() -> None:
    x = UOp.variable("x", 0, 1000)
    assert simplify(x % 7 + x // 7 * 7) is x
    assert simplify(x // 7 % 5 * 7 + x % 7) is x % 35
    assert simplify(x - x // 7 * 7) is x % 7
    assert simplify((x // 3) % 5 + (x // 15) * 5) is x // 3


def test_nested_divisions_are_one() -> None:
    x = UOp.variable("x", -1000, 1000)
    assert simplify(x // 3 // 5) is simplify(x // 15)
    assert simplify((x // 3 + 2) // 5) is simplify((x + 6) // 15)
    assert simplify(x % 12 % 4) is simplify(x % 4)
    assert simplify(x % 12 // 4) is simplify((x // 4) % 3)


def test_what_is_left_to_divide_is_never_negative() -> None:
    # facts/gains.md, example 1: a flipped view; each fix-up of a floor costs there
    a, b = i(28, "a"), i(30, "b")
    f = (27 - a) * 30 + b
    made = simplify(f % 6 * 140 + (34 - f // 6 % 35) * 4 + f // 210)
    divided = [n.src[0] for n in made.toposort() if n.op.name in ("IDIV", "MOD")]
    assert len(divided) == 4
    assert all(n.vmin >= 0 for n in divided)


def test_flips_cancel_in_divisions() -> None:
    # facts/gains.md, example 2
    a, b = i(50, "a"), i(14, "b")
    assert simplify((a * -14 + b + 700) // 7) is a * -2 + b // 7 + 100
    assert simplify((a * -14 + b + 700) % 7) is b % 7
    assert simplify((13 - b) % 7 + (13 - b) // 7 * 7) is b * -1 + 13


def test_blocked_layouts_keep_one_division_each() -> None:
    # facts/gains.md, examples 4 and 5
    b, t = i(16, "b"), i(12, "t")
    f = b * 48 + t * 4
    for lane in range(4):
        made = simplify((f + lane) // 12 + (f + lane) % 12 * 64)
        assert sum(n.op.name in ("IDIV", "MOD") for n in made.toposort()) == 2
    assert simplify(f // 3 % 4) is simplify((f // 3) % 4)


def test_divisors_may_be_variables() -> None:
    n = UOp.variable("n", 1, 100)
    j = UOp.range(n, "j")
    assert simplify((R * n + j) // n) is R
    assert simplify((R * n + j) % n) is j
    assert simplify((R * n * 4 + n * S) // n) is simplify(R * 4 + S)
    x = UOp.variable("x", 0, 9)
    big = UOp.variable("big", 10, 20)
    assert simplify(x // big).const_value == 0
    assert simplify(x % big) is x


def test_a_divisor_that_may_be_zero_is_kept() -> None:
    # C04: x//x -> 1 and 0 hidden as (4-4)
    x = UOp.variable("x", 0, 9)
    y = UOp.variable("y", 1, 9)
    assert simplify(x // x) is x // x
    assert simplify(y // y).const_value == 1
    zero = x - x
    assert simplify(zero // zero).const_value == 0
    four = UOp.const(dtypes.index, 4)
    assert simplify((four - 4) // (four - 4)).const_value == 0


def test_comparisons_lose_common_parts_factors_and_divisions() -> None:
    x, y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 99)
    assert simplify(x * 4 + y < y + 12) is (x < 3)
    assert simplify(R * 4 + S < 20) is (R < 5)
    assert simplify(x // 5 < 3) is (x < 15)
    assert simplify(UOp.const(dtypes.index, 2) < x // 5) is (UOp.const(dtypes.index, 14) < x)
    assert simplify(x * -1 < -3) is (UOp.const(dtypes.index, 3) < x)
    assert simplify(x * 6 + 2 < y * 4 + 1) is simplify(x * 6 < y * 4 - 1)
    assert simplify((x * 2).eq(y * 4 + 1)).const_value is False
    assert simplify((x * 2 + 4).eq(10)) is x.eq(3)


def test_a_negated_comparison_is_a_comparison() -> None:
    x = UOp.variable("x", 0, 99)
    assert simplify(x >= 5) is (UOp.const(dtypes.index, 4) < x)
    assert simplify(x <= 5) is (x < 6)


@pytest.mark.thorough
def test_a_long_sum_is_linear() -> None:
    parts = [UOp.variable(f"v{n}", 0, 9) for n in range(20_000)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    made = graph_rewrite(total, symbolic)
    assert made.vmax == 9 * 20_000


@pytest.mark.thorough
def test_a_hundred_thousand_additions_are_rewritten() -> None:
    x, y = UOp.variable("x", 0, 9, dtypes.int32), UOp.variable("y", 0, 9, dtypes.int32)
    total = x
    for _ in range(50_000):
        total = (total ^ y) + x
    assert graph_rewrite(total, symbolic).op is total.op


@pytest.mark.parametrize("lane", range(4))
def test_the_result_is_the_same_in_every_order_of_making(lane: int) -> None:
    terms = [R * 64, S * 16, T, UOp.const(dtypes.index, 5)]
    turned = terms[lane:] + terms[:lane]
    total = turned[0]
    for term in turned[1:]:
        total = total + term
    assert simplify(total) is R * 64 + S * 16 + T + 5


def test_a_loop_of_one_turn_is_the_number_zero_in_a_sum() -> None:
    once, x, y = UOp.range(1, "once"), UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
    assert simplify(once + x) is x
    assert simplify((x + y) + once) is simplify(x + y)


def test_a_number_below_a_quotient_is_a_bound_of_what_is_divided() -> None:
    y = UOp.variable("y", 0, 99)
    three = UOp.const(dtypes.index, 3)
    assert simplify(three < y // 4) is (UOp.const(dtypes.index, 15) < y)


def test_the_parts_of_one_division_are_joined_wherever_they_stand() -> None:
    # the last operand comes after all others in order, and still is not a term of its own
    x, y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 9)
    for total in ((x % 4 + y) + x // 4 * 4, (x // 4 * 4 + y) + x % 4, x // 4 * 4 + (y + x % 4)):
        assert simplify(total) is simplify(x + y)
    for total in ((x // 4 * -4 + y) + x, (y + x) + x // 4 * -4):
        assert simplify(total) is simplify(x % 4 + y)
