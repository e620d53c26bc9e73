"""Random numbers: seeded, counter-based, the same on every device, and of the right shape."""

from __future__ import annotations

import numpy as np
import pytest

from checks import run, value
from opgraft.dtype import dtypes
from opgraft.ir.evaluate import alu
from opgraft.ir.ops import Ops
from opgraft_tensor import Tensor, manual_seed
from opgraft_tensor.random import threefry
from tested import COMPILED


def test_the_host_generator_is_the_irs() -> None:
    key = 0x0123456789ABCDEF
    word = dtypes.uint64
    counters = np.array([0, 1, 2**32, 2**64 - 1], np.uint64)
    expected = [alu(Ops.THREEFRY, word, (word, word), (int(c), key)) for c in counters]
    assert threefry(counters, key).tolist() == expected


def test_a_seed_repeats_and_calls_differ() -> None:
    manual_seed(7)
    first, second = value(Tensor.uniform(50)), value(Tensor.uniform(50))
    manual_seed(7)
    assert (value(Tensor.uniform(50)) == first).all()
    assert (first != second).any()
    manual_seed(8)
    assert (value(Tensor.uniform(50)) != first).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_fills_the_interval(dtype) -> None:
    manual_seed(1)
    x = value(Tensor.uniform(20000, dtype=dtype)).astype(np.float64)
    assert 0 <= x.min() < 0.01
    assert 0.99 < x.max() < 1
    assert abs(x.mean() - 0.5) < 0.01
    assert abs(x.var() - 1 / 12) < 0.003
    y = value(Tensor.uniform(5000, low=-3, high=5))
    assert -3 <= y.min() < -2.9
    assert 4.9 < y.max() < 5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_has_its_moments(dtype) -> None:
    manual_seed(2)
    x = value(Tensor.normal(40000, dtype=dtype, mean=2, std=3))
    assert x.dtype == dtype
    assert np.isfinite(x).all()
    z = (x - 2) / 3
    assert abs(z.mean()) < 0.02
    assert abs(z.var() - 1) < 0.03
    assert abs((z**3).mean()) < 0.08
    assert abs((z**4).mean() - 3) < 0.15


def test_integers_and_permutations() -> None:
    manual_seed(3)
    x = value(Tensor.randint(5000, low=-2, high=3))
    assert sorted(set(x.tolist())) == [-2, -1, 0, 1, 2]
    assert np.bincount(x + 2).min() > 900
    assert sorted(Tensor.permutation(100).tolist()) == list(range(100))
    with pytest.raises(ValueError, match="randint"):
        Tensor.randint(3, low=5, high=5)
    with pytest.raises(TypeError, match="randint"):
        Tensor.uniform(3, dtype="int32")


def test_a_lazy_tensor_draws_once() -> None:
    x = Tensor.uniform(4)
    assert (value(x) == value(x)).all()
    assert value(x - x).tolist() == [0] * 4


def test_devices_agree() -> None:
    found = []
    for device in ("INTERP", COMPILED):
        manual_seed(11)
        found.append(run(Tensor.uniform(3, 5, device=device), Tensor.normal(7, device=device),
                         Tensor.randint(6, high=1000, device=device)))  # fmt: skip
    manual_seed(11)
    meant = [
        value(t) for t in (Tensor.uniform(3, 5), Tensor.normal(7), Tensor.randint(6, high=1000))
    ]
    for interp, cpu, exact in zip(*found, meant):
        assert (interp == cpu).all()
        np.testing.assert_allclose(interp, exact, rtol=1e-5, atol=1e-6)
