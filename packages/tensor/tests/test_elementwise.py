"""Elementwise operations against NumPy: dtypes, edge values, accuracy."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from checks import agree, same, ulps, value
from opgraft import using
from opgraft_tensor import Tensor

EDGES = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, 2.5, -2.5, 3.0, -3.0, 7.0, -6.0, 1e-30, 1e30,
     -1e30, np.inf, -np.inf, np.nan]
)  # fmt: skip
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    if dtype.startswith("float"):
        with np.errstate(over="ignore"):
            values = EDGES.astype(dtype)
    else:
        info = np.iinfo(dtype)
        values = np.array([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min // 2], dtype)
        if info.min < 0:
            values = np.concatenate([values, np.array([-1, -2, -3, -7], dtype)])
    a, b = np.meshgrid(values, values)
    return a, b


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide),
        ("floor_divide", np.floor_divide), ("remainder", np.remainder), ("less", np.less),
        ("greater", np.greater), ("less_equal", np.less_equal), ("equal", np.equal),
        ("greater_equal", np.greater_equal), ("not_equal", np.not_equal),
    ],
)  # fmt: skip
def test_float_operators_equal_numpy_on_edge_values(dtype, name, expected) -> None:
    a, b = pairs(dtype)
    with np.errstate(all="ignore"):
        wanted = expected(a, b)
    same(getattr(Tensor(a), name)(Tensor(b)), wanted)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize(
    ("operation", "expected"),
    [(operator.add, np.add), (operator.sub, np.subtract), (operator.mul, np.multiply),
     (operator.floordiv, np.floor_divide), (operator.mod, np.remainder),
     (operator.and_, np.bitwise_and), (operator.or_, np.bitwise_or), (operator.xor, np.bitwise_xor),
     (operator.lt, np.less), (operator.ge, np.greater_equal)],
)  # fmt: skip
def test_integer_operators_wrap_and_floor_as_numpy(dtype, operation, expected) -> None:
    a, b = pairs(dtype)
    with np.errstate(all="ignore"):
        wanted = expected(a, b)
    same(operation(Tensor(a), Tensor(b)), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_shifts_by_too_much_give_zero_or_the_sign(dtype) -> None:
    a = np.array([1, 5, 100, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    width = a.dtype.itemsize * 8
    for count in (0, 1, width - 1, width, width + 5):
        right = [int(x) >> count for x in a]
        same(Tensor(a) >> count, np.array(right, dtype))
        left = np.array([(int(x) << count) & ((1 << width) - 1) for x in a], f"uint{width}")
        same(Tensor(a) << count, left.astype(dtype))


def test_floor_division_of_narrow_floats_does_not_round_on_the_way() -> None:
    """-60000 // 7 is -8572, which float16 rounds to -8576; by way of -60004 it were -8568."""
    x = np.array([60000, -60000, 3, 2049], np.float16)
    same(Tensor(x) // 7, x // np.float16(7))
    wide = Tensor([-60000.0, 1000.0]).cast("bfloat16") // 7
    assert value(wide).tolist() == [-8576, 142]


def test_bool_has_no_whole_quotient() -> None:
    x = Tensor([True, False])
    for act in (lambda: x // x, lambda: x % x, lambda: True // x, lambda: x % True):
        with pytest.raises(TypeError, match="bool"):
            act()


def test_division_of_integers_is_in_floats() -> None:
    same(Tensor([7, -1]) / Tensor([2, 4]), np.array([3.5, -0.25], np.float32))
    same(1 / Tensor([2.0, 4.0]), np.array([0.5, 0.25], np.float32))
    same(Tensor([True]) / 2, np.array([0.5], np.float32))


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("int8", "int16", "int16"), ("int8", "uint8", "int16"), ("uint32", "int32", "int64"),
        ("uint8", "uint16", "uint16"), ("float16", "float32", "float32"), ("bool", "int8", "int8"),
        ("int64", "float32", "float32"), ("float32", "float64", "float64"),
        ("float16", "bfloat16", "float32"),
    ],
)  # fmt: skip
def test_promotion_is_the_array_api_standards(left, right, result) -> None:
    a, b = Tensor([1]).cast(left), Tensor([1]).cast(right)
    assert (a + b).dtype.name == result
    assert (b + a).dtype.name == result


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        ("int8", 1, "int8"), ("int8", True, "int8"), ("uint8", 2.5, "float32"),
        ("float16", 2, "float16"), ("float16", 2.5, "float16"), ("float64", 2.5, "float64"),
        ("bool", True, "bool"), ("bool", 1, "int64"), ("bool", 1.5, "float32"),
    ],
)  # fmt: skip
def test_python_numbers_take_the_tensors_dtype(dtype, number, result) -> None:
    x = Tensor([1]).cast(dtype)
    assert (x * number).dtype.name == result
    assert (number * x).dtype.name == result


def test_numpy_numbers_have_a_dtype_of_their_own() -> None:
    assert (Tensor([1.0]) + np.float64(1)).dtype.name == "float64"
    assert (Tensor([1], dtype="int8") + np.int16(1)).dtype.name == "int16"
    assert (Tensor([1.0]) + [1.5]).dtype.name == "float32"


def test_integers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OverflowError, match="300 does not fit uint8"):
        Tensor([1], dtype="uint8") + 300
    with pytest.raises(OverflowError, match="-1 does not fit uint8"):
        Tensor([1], dtype="uint8") - -1


def test_bool_arithmetic_is_refused_where_it_has_no_meaning() -> None:
    x = Tensor([True, False])
    for act in (lambda: x - x, lambda: -x, lambda: x << x):
        with pytest.raises(TypeError, match="bool"):
            act()
    with pytest.raises(TypeError, match="float32"):
        Tensor([1.0]) & 1
    same(x + x, np.array([True, False]))
    same(x & True, np.array([True, False]))
    same(~x, np.array([False, True]))
    same(~Tensor([5]), np.array([-6]))


def test_logic_of_any_dtype() -> None:
    a, b = Tensor([0.0, 2.0, np.nan]), Tensor([1, 0, 1])
    same(a.logical_and(b), np.array([False, False, True]))
    same(a.logical_or(0), np.array([False, True, True]))
    same(a.logical_xor(b), np.array([True, True, False]))
    same(a.logical_not(), np.array([True, False, False]))


# ---- rounding, signs, classes


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "abs", "sign", "square"])
def test_unary_operations_equal_numpy_with_the_sign_of_zero(dtype, name) -> None:
    limit = float(1 << (np.finfo(dtype).nmant + 1))
    more = [0.49999997, -0.49999997, limit - 0.5, limit, -limit + 1, limit / 2 - 0.5, 4.5, 5.5]
    with np.errstate(over="ignore"):
        x = np.concatenate([EDGES, more]).astype(dtype)
        wanted = getattr(np, name)(x)
    same(getattr(Tensor(x), name)(), wanted)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "abs", "sign"])
def test_of_integers_they_stay_integers(name) -> None:
    x = np.array([-128, -3, 0, 5, 127], np.int8)
    same(getattr(Tensor(x), name)(), getattr(np, name)(x).astype(np.int8))


def test_classes_of_floats() -> None:
    x = EDGES.astype(np.float32)
    same(Tensor(x).isnan(), np.isnan(x))
    same(Tensor(x).isinf(), np.isinf(x))
    same(Tensor(x).isfinite(), np.isfinite(x))
    same(Tensor([1, 2]).isfinite(), np.array([True, True]))
    same(Tensor([1, 2]).isnan(), np.array([False, False]))


def test_extremes_have_one_rule_for_nan_and_zero() -> None:
    """tile-ai/tvm#63, pytorch/pytorch#185765 (B02, B03)."""
    a, b = pairs("float32")
    top, low = value(Tensor(a).maximum(Tensor(b))), value(Tensor(a).minimum(Tensor(b)))
    agree(top + 0.0, np.maximum(a, b) + 0.0)
    agree(low + 0.0, np.minimum(a, b) + 0.0)
    zeros = (a == 0) & (b == 0)
    assert (np.signbit(top) == (np.signbit(a) & np.signbit(b)))[zeros].all()
    assert (np.signbit(low) == (np.signbit(a) | np.signbit(b)))[zeros].all()


def test_clip_and_where() -> None:
    x = np.array([-2.0, 0.5, 9.0, np.nan], np.float32)
    same(Tensor(x).clip(0, 1), np.clip(x, 0, 1))
    same(Tensor(x).clip(high=1), np.minimum(x, 1))
    condition = Tensor([True, False])
    same(condition.where(Tensor([1, 2]), 0), np.array([1, 0]))
    same(condition.where(1.5, Tensor([1, 2])), np.array([1.5, 2], np.float32))
    same(condition.where(1, 2), np.array([1, 2]))
    same(condition.where(Tensor([[1.0], [2.0]]), Tensor([3], dtype="int8")),
         np.array([[1, 3], [2, 3]], np.float32))  # fmt: skip
    with pytest.raises(TypeError, match="bool"):
        Tensor([1]).where(1, 2)


# ---- casts


def test_casts_truncate_saturate_and_wrap() -> None:
    """tinygrad/tinygrad#7870 (B05)."""
    x = Tensor([-2.9, -0.5, 0.5, 2.9, 2147483646.0, -1e20, np.nan, np.inf])
    wanted = [-2, 0, 0, 2, 2147483647, -(2**31), 0, 2**31 - 1]
    same(x.cast("int32"), np.array(wanted, np.int32))
    assert value(Tensor([-1.0, 256.0]).cast("uint8")).tolist() == [0, 255]
    same(Tensor([300, -1]).cast("int8"), np.array([44, -1], np.int8))
    same(Tensor([16777219]).cast("float32").cast("int32"), np.array([16777220], np.int32))
    same(Tensor([2.75]).cast("int32").cast("float32"), np.array([2.0], np.float32))
    same(Tensor([0.0, -0.0, 2.0, np.nan]).cast("bool"), np.array([False, False, True, True]))


def test_narrowing_rounds_once() -> None:
    """halide/Halide#8906, JuliaLang/julia#57809 (B06)."""
    wide = Tensor(np.array([1 + 2.0**-11 + 2.0**-30, 1 + 2.0**-8 + 2.0**-30]))
    assert value(wide.cast("float16"))[0] == 1.0009765625
    assert value(wide.cast("bfloat16"))[1] == 1.0078125
    assert value(Tensor([33685505]).cast("bfloat16"))[0] == 33816576
    assert value(Tensor([2.7182817]).cast("bfloat16"))[0] == 2.71875


def test_bitcast_keeps_the_bits() -> None:
    x = np.array([1.0, -0.0, np.inf], np.float32)
    same(Tensor(x).bitcast("uint32"), x.view(np.uint32))
    same(Tensor(x).bitcast("int32").bitcast("float32"), x)
    with pytest.raises(TypeError, match="widths"):
        Tensor(x).bitcast("int64")


# ---- functions

WIDE = np.concatenate([
    np.linspace(-9, 9, 2001), np.geomspace(1e-30, 1e30, 601), -np.geomspace(1e-30, 1e30, 601),
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 88.7, -87.3, 89.0, -104.0],
])  # fmt: skip
NEAR_ONE = np.linspace(0.98, 1.05, 4001)
"""Where the two polynomials of erf meet, and are least exact."""
POSITIVE = WIDE[~(WIDE < 0)]


def exact_erf(x):
    return np.vectorize(math.erf)(x.astype(np.float64))


@pytest.mark.parametrize(
    ("name", "exact", "domain", "limit"),
    [
        ("exp", np.exp, WIDE, 2),
        ("exp2", np.exp2, WIDE, 1),
        ("expm1", np.expm1, WIDE, 3),
        ("log", np.log, POSITIVE, 2),
        ("log2", np.log2, POSITIVE, 1),
        ("log10", np.log10, POSITIVE, 2),
        ("log1p", np.log1p, np.concatenate([POSITIVE, -np.geomspace(1e-30, 0.99, 99)]), 4),
        ("sqrt", np.sqrt, POSITIVE, 0.5),
        ("sin", np.sin, WIDE, 1),
        ("tanh", np.tanh, WIDE, 6),
        ("sinh", np.sinh, WIDE, 3),
        ("cosh", np.cosh, WIDE, 3),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), WIDE[WIDE > -80], 3),
        ("erf", exact_erf, np.concatenate([WIDE, np.linspace(-4, 4, 4001), NEAR_ONE]), 1.2),
    ],
)
def test_functions_are_accurate(name, exact, domain, limit) -> None:
    x = domain.astype(np.float32)
    x = x[np.isfinite(x) | (np.abs(domain) == np.inf) | np.isnan(domain)]
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64))
    found = value(getattr(Tensor(x), name)())
    assert found.dtype == np.float32
    with np.errstate(over="ignore"):
        rounded = wanted.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(rounded))
    finite = np.isfinite(rounded) & (np.abs(rounded) > 1.2e-38)
    assert ulps(found[finite], wanted[finite]) <= limit


@pytest.mark.parametrize(("name", "exact"), [("cos", np.cos), ("tan", np.tan)])
def test_circular_functions_have_a_small_absolute_error_everywhere(name, exact) -> None:
    x = np.concatenate([np.linspace(-4, 4, 999), np.linspace(-1e4, 1e4, 999)]).astype(np.float32)
    found, wanted = value(getattr(Tensor(x), name)()), exact(x.astype(np.float64))
    scale = np.maximum(np.abs(wanted), 1) ** (2 if name == "tan" else 1)
    assert np.max(np.abs(found - wanted) / scale) < 5e-7
    near = (np.abs(x) < 3.9) & (x != 0)
    assert np.max(np.abs(found[near] / wanted[near] - 1)) < 3e-7


@pytest.mark.parametrize("name", ["exp", "expm1", "log1p", "tanh", "erf", "cos", "sigmoid"])
def test_functions_of_float64_are_as_good(name) -> None:
    x = np.linspace(-6, 6, 501) if name != "log1p" else np.linspace(-0.9, 6, 501)
    exact = {
        "erf": exact_erf,
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    }.get(name) or getattr(np, name)
    np.testing.assert_allclose(
        value(getattr(Tensor(x), name)()), exact(x.astype(np.longdouble)).astype(float),
        rtol=4e-15, atol=1e-15,
    )  # fmt: skip


def test_half_precision_is_computed_in_float32_and_rounded_once() -> None:
    x = np.linspace(-6, 6, 999).astype(np.float16)
    functions = {
        "exp": np.exp,
        "tanh": np.tanh,
        "erf": exact_erf,
        "silu": lambda v: v / (1 + np.exp(-v)),
        "softplus": lambda v: np.log1p(np.exp(v)),
    }
    for name, exact in functions.items():
        found = value(getattr(Tensor(x), name)())
        assert found.dtype == np.float16
        assert ulps(found, exact(x.astype(np.float64))) <= 0.51


def test_signed_zero_and_tiny_arguments_pass_through() -> None:
    x = np.array([-0.0, 0.0, 1e-30, -1e-30], np.float32)
    for name in ("expm1", "log1p", "tanh", "erf", "sin", "tan", "sqrt"):
        source = np.abs(x) if name == "sqrt" else x
        wanted = getattr(np, name)(source) if name != "erf" else x * np.float32(1.1283792)
        found = value(getattr(Tensor(source), name)())
        np.testing.assert_allclose(found, wanted, rtol=3e-7)
        assert (np.signbit(found) == np.signbit(source)).all()


def test_functions_of_integers_are_in_the_default_float() -> None:
    assert Tensor([1, 2]).exp().dtype.name == "float32"
    assert Tensor([True]).sqrt().dtype.name == "float32"


def test_activations() -> None:
    x = np.linspace(-5, 5, 101).astype(np.float32)
    wide = x.astype(np.float64)
    close = {"rtol": 1e-5, "atol": 1e-6}
    same(Tensor(x).relu(), np.maximum(x, 0))
    same(Tensor(x).gelu(), (wide * 0.5 * (1 + exact_erf(wide / 2**0.5))).astype("f4"), **close)
    same(Tensor(x).silu(), (wide / (1 + np.exp(-wide))).astype(np.float32), **close)
    same(Tensor(x).softplus(), np.log1p(np.exp(wide)).astype(np.float32), **close)
    same(Tensor(x).leaky_relu(0.1), np.where(x > 0, x, np.float32(0.1) * x))
    assert value(Tensor([1e4, -1e4]).softplus()).tolist() == [1e4, 0]


def test_signs_and_sums_of_two_exponentials() -> None:
    a, b = pairs("float32")
    same(Tensor(a).signbit(), np.signbit(a))
    same(Tensor([-1, 0]).signbit(), np.array([True, False]))
    found = value(Tensor(a).copysign(Tensor(b)))
    keep = ~np.isnan(a) & ~np.isnan(b)
    agree(found[keep], np.copysign(a, b)[keep])
    with np.errstate(all="ignore"):
        same(Tensor(a).logaddexp(Tensor(b)), np.logaddexp(a, b), rtol=1e-6, atol=1e-7)


# ---- powers


def test_powers_of_edge_values_equal_c() -> None:
    a, b = pairs("float64")
    with np.errstate(all="ignore"):
        wanted = np.power(a, b)
    agree(value(Tensor(a) ** Tensor(b)) + 0.0, wanted + 0.0, rtol=1e-12)
    found = value(Tensor(a) ** Tensor(b))
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(found)[zeros], np.signbit(wanted)[zeros])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 0.5, 1.5, -0.5])
def test_powers_by_a_number(exponent) -> None:
    x = np.concatenate([np.abs(EDGES), np.linspace(0.1, 3, 50)])
    with np.errstate(all="ignore"):
        wanted = np.power(x, exponent)
    same(Tensor(x) ** exponent, wanted, rtol=1e-14)
    same(Tensor(x) ** Tensor(exponent).cast("float64"), wanted, rtol=1e-14)


def test_powers_of_integers_wrap() -> None:
    x = np.array([-3, 0, 1, 2, 100], np.int32)
    for exponent in (0, 1, 2, 5, 31):
        same(Tensor(x) ** exponent, x**exponent)
    same(Tensor(x) ** Tensor(np.array([3, 0, 9, 30, 4], np.int32)),
         x ** np.array([3, 0, 9, 30, 4], np.int32))  # fmt: skip
    same(2 ** Tensor([0, 5]), np.array([1, 32]))
    with pytest.raises(ValueError, match="negative power"):
        Tensor(x) ** -1


# ---- floats are not real numbers


def test_nothing_folds_that_loses_nan_or_infinity() -> None:
    """pytorch/pytorch#186281, tinygrad/tinygrad#4982 (B01)."""
    x = Tensor([2.5, np.inf, -np.inf, np.nan, -3.0])
    same(x * 0, np.array([0, np.nan, np.nan, np.nan, -0.0], np.float32))
    same(x - x, np.array([0, np.nan, np.nan, np.nan, 0], np.float32))
    y = Tensor([4, np.inf, np.nan, 0])
    same(y / y, np.array([1, np.nan, np.nan, np.nan], np.float32))


def test_the_sign_of_zero_survives() -> None:
    """pytorch/pytorch#194472, dotnet/runtime#105627 (B03)."""
    minus = Tensor([-0.0])
    same(minus + 0.0, np.array([0.0], np.float32))
    same(0.0 - Tensor([0.0]), np.array([0.0], np.float32))
    same(-Tensor([0.0]), np.array([-0.0], np.float32))
    same(minus + minus, np.array([-0.0], np.float32))
    same(Tensor([-6.0, 6.0]) % Tensor([3.0, -3.0]), np.array([0.0, -0.0], np.float32))


def test_real_number_identities_are_not_applied() -> None:
    """jax-ml/jax#6566 (B04)."""
    big, one = Tensor([1e8]), Tensor([1.0])
    same((big + 0.25) - big, np.array([0.0], np.float32))
    same((one + 1e8) - 1e8, np.array([0.0], np.float32))
    same(one + (Tensor([1e8]) - 1e8), np.array([1.0], np.float32))
    same((Tensor([2e20, 1e-30]) ** 2).sqrt(), np.array([np.inf, 0.0], np.float32))
    bits = (Tensor([7.0]) / 49).bitcast("uint32").cat((7 * (1 / Tensor([49.0]))).bitcast("uint32"))
    assert value(bits).tolist() == [0x3E124925, 0x3E124924]


@pytest.mark.parametrize("level", ["reassoc", "unsafe"])
def test_functions_that_live_of_rounding_keep_their_meaning_at_every_float_level(
    level: str,
) -> None:
    """round() gave its argument back there, x ** 1.7 was 4 for 3.97, log1p(1e-6) off by 5 %."""
    x = Tensor([-2.5, -0.3, 1e-6, 0.5, 1.5, 2.5, 30.3, 3e7])
    used = [x.round(), (x * x) ** 1.7, x.abs().log1p(), x.expm1(), x.tanh(), x.sinh(), x.floor()]
    with using(FLOAT=level):
        found = [made.numpy() for made in used]
    with using(FLOAT="strict"):
        wanted = [(made + 0.0).numpy() for made in used]
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, b, rtol=2e-6)
    assert found[0].tolist() == [-2, 0, 0, 0, 2, 2, 30, 3e7]


def test_shapes_that_do_not_broadcast_are_both_named() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        Tensor([1, 2]) + Tensor([1, 2, 3])
