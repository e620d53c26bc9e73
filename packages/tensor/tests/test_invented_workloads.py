"""Every workload of the benchmarks at small shapes on the two invented devices of thread groups.

test_invented.py has the usual ones, and says which unit does their products; here are the others,
and which kernels hand values through group memory. INTERP reports an access out of range, what
nobody wrote, a race, a barrier that not all threads reach, and refuses what is over a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from opgraft import using
from opgraft_tensor import Tensor
from opgraft_tensor.nn import SGD, cross_entropy

Arrays = tuple[np.ndarray, ...]


def numbers(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Arrays:
    pick = np.random.default_rng(1)
    return tuple((pick.random(s) * 2 - 1).astype(dtype) for s in shapes)


@dataclass(frozen=True)
class Case:
    inputs: Arrays
    run: Callable[..., Tensor]
    reference: Callable[..., np.ndarray]
    together: bool = False
    """Whether threads of a group are to work on one result together, or share a tile."""


def attention(q: Any, k: Any, v: Any) -> Any:
    return ((q @ k.transpose(-1, -2)) * 0.25).softmax(-1) @ v


def attention_reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.exp(np.einsum("bhtd,bhsd->bhts", q, k) * 0.25)
    return np.asarray(scores / scores.sum(-1, keepdims=True)) @ v


LARGER = numbers((12, 300))[0]
CASES: dict[str, Case] = {
    "max_all": Case(numbers((3000,)), lambda a: a.max(), lambda a: a.max(), together=True),
    "max_row": Case((LARGER,), lambda a: a.max(1), lambda a: a.max(1), together=True),
    "sum_row_long": Case((LARGER,), lambda a: a.sum(1), lambda a: a.sum(1), together=True),
    "sum_column": Case(numbers((70, 200)), lambda a: a.sum(0), lambda a: a.sum(0)),
    "softmax_long": Case(
        (LARGER,),
        lambda a: a.softmax(-1),
        lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True),
        together=True,
    ),
    "layernorm": Case(
        numbers((12, 64), (64,), (64,)),
        lambda x, g, b: x.layernorm(eps=1e-5) * g + b,
        lambda x, g, b: (x - x.mean(1, keepdims=True))
        / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b,
        together=True,
    ),
    "gather": Case(
        (*numbers((50, 24)), np.random.default_rng(2).integers(0, 50, 40).astype(np.int32)),
        lambda t, i: t[i],
        lambda t, i: t[i.astype(np.int64)],
    ),
    "cumsum_rows": Case((LARGER,), lambda a: a.cumsum(1), lambda a: a.cumsum(1)),
    "transpose_copy": Case(
        numbers((33, 40)), lambda a: a.transpose(0, 1).contiguous(), lambda a: a.T
    ),
    "log": Case((numbers((300,))[0] + 1.5,), lambda a: a.log(), np.log),
    "sin": Case((numbers((300,))[0] * 10,), lambda a: a.sin(), np.sin),
    "matmul_double": Case(
        numbers((24, 40), (40, 33), dtype=np.float64),
        lambda a, b: a @ b,
        lambda a, b: a @ b,
        together=True,
    ),
    "matmul_odd": Case(
        numbers((37, 41), (41, 43)), lambda a, b: a @ b, lambda a, b: a @ b, together=True
    ),
    "attention_heads": Case(numbers(*[(2, 3, 24, 16)] * 3), attention, attention_reference),
    "attention_one_query": Case(
        numbers((2, 2, 1, 16), (2, 2, 24, 16), (2, 2, 24, 16)), attention, attention_reference
    ),
    "add": Case(numbers((16,), (16,)), lambda a, b: a + b, lambda a, b: a + b),
}  # fmt: skip


def group_memory(sources: list[str]) -> bool:
    return re.search(r"local\[.*, group\]", "\n".join(sources)) is not None


@pytest.mark.sampled(9)
@pytest.mark.parametrize("device", ["LANES32", "LANES64"])
@pytest.mark.parametrize("name", CASES)
def test_workloads(name: str, device: str, sources: list[str]) -> None:
    case = CASES[name]
    with using(DEVICE="INTERP", INTERP_CC=device, SPEC=1):
        got = case.run(*map(Tensor, case.inputs)).numpy()
    wide = [x if x.dtype == np.int32 else x.astype(np.float64) for x in case.inputs]
    np.testing.assert_allclose(got, case.reference(*wide), rtol=1e-4, atol=2e-5)
    assert sources
    assert group_memory(sources) >= case.together


# ---- training


def train(parameters: list[Tensor], x: Tensor, labels: Tensor, steps: int) -> list[float]:
    w1, b1, w2, b2 = parameters
    optimizer = SGD(parameters, lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy((x @ w1 + b1).relu() @ w2 + b2, labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.numpy()))
    return losses


def train_reference(parameters: list[np.ndarray], x: np.ndarray, labels: np.ndarray) -> list[float]:
    w1, b1, w2, b2 = (p.astype(np.float64) for p in parameters)
    rows, losses = np.arange(len(labels)), []
    for _ in range(2):
        hidden = x @ w1 + b1
        active = np.maximum(hidden, 0)
        scores = active @ w2 + b2
        weights = np.exp(scores - scores.max(1, keepdims=True))
        slope = weights / weights.sum(1, keepdims=True)
        losses.append(float(-np.log(slope[rows, labels]).mean()))
        slope[rows, labels] -= 1
        slope /= len(labels)
        below = slope @ w2.T
        below[hidden <= 0] = 0
        w2, b2 = w2 - 0.1 * active.T @ slope, b2 - 0.1 * slope.sum(0)
        w1, b1 = w1 - 0.1 * x.T @ below, b1 - 0.1 * below.sum(0)
    return losses


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["LANES32", "LANES64"])
def test_training_steps(device: str) -> None:
    x, w1, b1, w2, b2 = numbers((16, 24), (24, 20), (20,), (20, 5), (5,))
    labels = np.random.default_rng(3).integers(0, 5, 16).astype(np.int32)
    with using(DEVICE="INTERP", INTERP_CC=device, SPEC=1):
        parameters = [Tensor(p.copy(), requires_grad=True).realize() for p in (w1, b1, w2, b2)]
        losses = train(parameters, Tensor(x).realize(), Tensor(labels).realize(), 2)
    np.testing.assert_allclose(losses, train_reference([w1, b1, w2, b2], x, labels), rtol=1e-4)
