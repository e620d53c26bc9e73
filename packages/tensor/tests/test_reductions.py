"""Reductions and scans: values, accumulators, nan, empty and single axes."""

from __future__ import annotations

import numpy as np
import pytest

from checks import same, value
from opgraft_tensor import Tensor

GRID = np.random.default_rng(1).normal(size=(3, 4, 5))
AXES = [None, 0, -1, (0, 2), (1,), ()]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std"])
def test_reductions_equal_numpy(name, axis, keepdims) -> None:
    wanted = getattr(np, name)(GRID, axis=axis, keepdims=keepdims)
    same(getattr(Tensor(GRID), name)(axis, keepdims), wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["any", "all"])
def test_logical_reductions_equal_numpy(name, axis) -> None:
    for source in (GRID > 1, np.round(GRID), np.array([[[np.nan, 0.0]]])):
        same(getattr(Tensor(source), name)(axis), getattr(np, name)(source, axis=axis))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_places_are_the_first_of_equals(name, axis) -> None:
    source = np.random.default_rng(2).integers(0, 3, (4, 5, 6)).astype(np.float32)
    same(getattr(Tensor(source), name)(axis), getattr(np, name)(source, axis=axis))
    whole = source.astype(np.int8)
    same(getattr(Tensor(whole), name)(axis, keepdims=True),
         getattr(np, name)(whole, axis=axis, keepdims=True))  # fmt: skip


def test_counts() -> None:
    same(Tensor(np.round(GRID)).count_nonzero(1), np.count_nonzero(np.round(GRID), 1))


def test_nan_wins() -> None:
    """openxla/stablehlo#2887 (B02)."""
    x = Tensor([1.0, np.nan, 3.0, np.nan])
    assert np.isnan(value(x.max()))
    assert np.isnan(value(x.min()))
    assert value(x.argmax()) == 1
    assert value(x.argmin()) == 1


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint8", "uint32", "int64"])
def test_integers_accumulate_in_numpys_dtype(dtype) -> None:
    source = np.array([[1, 0, 1], [1, 1, 1]]).astype(dtype)
    for name in ("sum", "prod", "cumsum", "cumprod"):
        axis = 1
        same(getattr(Tensor(source), name)(axis), getattr(np, name)(source, axis=axis))
    for name in ("max", "min"):
        same(getattr(Tensor(source), name)(1), getattr(np, name)(source, axis=1))
    assert Tensor(source).sum(dtype="int8").dtype.name == "int8"
    same(Tensor(source).mean(), np.float32(source.mean()), rtol=1e-7)


def test_sums_do_not_overflow_the_small_dtype() -> None:
    """tinygrad/tinygrad#9302, pytorch/pytorch#198056 (D06)."""
    assert value(Tensor([100, 100, 100], dtype="int8").sum()) == 300
    assert value(Tensor([100, 100, 100], dtype="int8").cumsum()).tolist() == [100, 200, 300]
    assert value(Tensor([200, 100], dtype="uint8").sum()) == 300
    assert value(Tensor([30000.0] * 4, dtype="float16").mean()) == 30000
    ones = Tensor(np.ones(5000, np.float16))
    assert value(ones.sum()) == 5000
    assert ones.sum().dtype.name == "float16"
    assert value(ones.cast("bfloat16").sum()) == 4992  # 5000, rounded once to 8 digits


def test_running_sums_of_many() -> None:
    """numpy/numpy#7930 (D06)."""
    sums = value(Tensor(np.ones(777, np.float32)).cumsum())
    assert (sums == np.arange(1, 778)).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scans_equal_numpy(axis) -> None:
    x = Tensor(GRID)
    same(x.cumsum(axis), np.cumsum(GRID, axis), rtol=1e-12, atol=1e-14)
    same(x.cumprod(axis), np.cumprod(GRID, axis), rtol=1e-12)
    same(x.cummax(axis), np.maximum.accumulate(GRID, axis))
    same(x.cummin(axis), np.minimum.accumulate(GRID, axis))
    same(Tensor(GRID > 0).cummax(axis), np.logical_or.accumulate(GRID > 0, axis))


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0, (0, 2)])
def test_sums_of_exponentials(axis) -> None:
    x = Tensor(GRID)
    same(x.softmax(axis), softmax(GRID, axis), rtol=1e-12)
    same(x.log_softmax(axis), np.log(softmax(GRID, axis)), rtol=1e-10, atol=1e-13)
    same(x.logsumexp(axis), np.log(np.exp(GRID).sum(axis)), rtol=1e-12, atol=1e-14)
    same(x.logsumexp(axis, keepdims=True), np.log(np.exp(GRID).sum(axis, keepdims=True)),
         rtol=1e-12, atol=1e-14)  # fmt: skip


def test_sums_of_exponentials_do_not_overflow() -> None:
    big = Tensor([1e4, 1e4, 0.0])
    assert value(big.softmax(0)).tolist() == [0.5, 0.5, 0]
    np.testing.assert_allclose(value(big.logsumexp()), 1e4 + np.log(2), rtol=1e-6)
    np.testing.assert_allclose(value(big.log_softmax(0)), [-0.6931472, -0.6931472, -1e4], rtol=1e-4)
    assert value(Tensor([-np.inf, -np.inf]).logsumexp()) == -np.inf
    assert value(Tensor([-np.inf, np.inf]).logsumexp()) == np.inf
    assert value(Tensor([-np.inf, 0.0]).softmax(0)).tolist() == [0, 1]


def test_half_precision_softmax_is_computed_in_float32() -> None:
    source = GRID.astype(np.float16)
    found = value(Tensor(source).softmax(-1))
    wanted = softmax(source.astype(np.float64), -1).astype(np.float16)
    assert found.dtype == np.float16
    assert (np.abs(found.view(np.int16) - wanted.view(np.int16)) <= 1).all()


def test_layernorm() -> None:
    wanted = (GRID - GRID.mean(-1, keepdims=True)) / np.sqrt(GRID.var(-1, keepdims=True) + 1e-5)
    same(Tensor(GRID).layernorm(), wanted, rtol=1e-11, atol=1e-13)


def test_variance_with_a_correction() -> None:
    same(Tensor(GRID).var(1, correction=1), GRID.var(1, ddof=1), rtol=1e-12)
    same(Tensor(GRID).std(correction=1), GRID.std(ddof=1), rtol=1e-12)
    assert np.isnan(value(Tensor([1.0]).var(correction=1)))


def test_axes_that_are_not_there() -> None:
    x = Tensor(GRID)
    with pytest.raises(IndexError, match=r"axis 3 .*\(3, 4, 5\)"):
        x.sum(3)
    with pytest.raises(ValueError, match="twice"):
        x.sum((0, -3))
    with pytest.raises(IndexError, match="axis -4"):
        x.softmax(-4)
