"""Comparison of tensors with NumPy, and gradients with finite differences.

`value` is the meaning of a tensor's graph by NumPy (oracle.py): fast, and without a planner.
`run` has the devices compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opgraft_tensor import Tensor, grad, realize_all
from oracle import evaluate_numpy


def value(tensor: Tensor) -> Any:
    """The values by NumPy."""
    return evaluate_numpy(tensor.uop)


def same(tensor: Tensor, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Shape, dtype and values agree; without tolerances the bits, nan being nan."""
    wanted = np.asarray(expected)
    found = value(tensor)
    assert tensor.shape == wanted.shape
    assert tensor.dtype.name == wanted.dtype.name
    agree(found, wanted, rtol, atol)


def agree(found: Any, wanted: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    if rtol or atol:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
        return
    np.testing.assert_array_equal(found, wanted)
    if np.asarray(wanted).dtype.kind == "f":
        zeros = np.asarray(wanted) == 0
        np.testing.assert_array_equal(np.signbit(found)[zeros], np.signbit(wanted)[zeros])


def ulps(found: Any, exact: Any) -> float:
    """The greatest distance to the exact values, in units of the last place of `found`."""
    exact = np.asarray(exact, np.longdouble)
    with np.errstate(all="ignore"):
        near = exact.astype(found.dtype)
        unit = np.spacing(np.abs(near)).astype(np.longdouble)
        unit = np.maximum(unit, np.finfo(found.dtype).smallest_subnormal)
        off = np.abs(found.astype(np.longdouble) - exact) / unit
    # infinities and nan are to be equal, and no question of distance
    finite = np.isfinite(near)
    np.testing.assert_array_equal(found[~finite], near[~finite])
    return float(np.max(off, where=finite, initial=0.0))


def run(*tensors: Tensor) -> list[Any]:
    """The values as their device computes them, all in one go."""
    realize_all(list(tensors))
    return [t.numpy() for t in tensors]


def check_gradient(
    function: Callable[..., Tensor],
    *arrays: Any,
    seed: int = 0,
    step: float = 1e-6,
    rtol: float = 2e-6,
    atol: float = 2e-7,
) -> list[Any]:
    """The gradients of sum(function(*arrays) * weights) equal central differences, in float64.

    Gives the gradients.
    """
    values = [np.asarray(a, np.float64) for a in arrays]
    sources = [Tensor(v) for v in values]
    result = function(*sources)
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, result.shape)
    found = [value(g) for g in grad((result * Tensor(weights)).sum(), sources)]

    def total(parts: Sequence[Any]) -> float:
        out = value(function(*[Tensor(p) for p in parts]))
        return float((out.astype(np.float64) * weights).sum())

    for which, (array, gradient) in enumerate(zip(values, found)):
        assert gradient.shape == array.shape
        expected = np.zeros_like(array)
        for place in np.ndindex(*array.shape):
            up, down = [v.copy() for v in values], [v.copy() for v in values]
            up[which][place] += step
            down[which][place] -= step
            expected[place] = (total(up) - total(down)) / (2 * step)
        np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=atol)
    return found
