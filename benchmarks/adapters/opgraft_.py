"""opgraft as an adapter of the workloads' bench.py: `setup`, `to_numpy`, `CASES`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[[], Any]


def setup(threads: int) -> None:
    """Say how many cores to use before anything is compiled."""
    os.environ["OPGRAFT_CPU_THREADS"] = str(threads)


def to_numpy(result: Any) -> np.ndarray[Any, Any]:
    return np.asarray(result.numpy())


def build(expression: Callable[..., Any]) -> Callable[..., Fn]:
    """A case: inputs become tensors once; each run replays the captured expression."""

    def case(*arrays: np.ndarray[Any, Any]) -> Fn:
        from opgraft_tensor import Tensor, jit  # after setup: devices read their threads then

        inputs = [Tensor(np.ascontiguousarray(a)).realize() for a in arrays]
        captured = jit(expression)
        return lambda: captured(*inputs)

    return case


def mlp(x: Any, y: Any, *weights: Any) -> Fn:
    from opgraft_tensor import Tensor, jit
    from opgraft_tensor.nn import SGD, cross_entropy

    data, labels = Tensor(x).realize(), Tensor(y).realize()
    parameters = [Tensor(w, requires_grad=True).realize() for w in weights]
    w1, b1, w2, b2 = parameters
    optimizer = SGD(parameters, lr=0.1)

    @jit
    def step() -> Any:
        optimizer.zero_grad()
        loss = cross_entropy((data @ w1 + b1).relu() @ w2 + b2, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def attention(q: Any, k: Any, v: Any) -> Any:
    return ((q @ k.transpose(-1, -2)) * 0.125).softmax(-1) @ v


def integer_matmul(a: Any, b: Any) -> Any:
    return a.cast("int32") @ b.cast("int32")


def matmul(a: Any, b: Any) -> Any:
    return a @ b


CASES: dict[str, Callable[..., Fn]] = {
    name: build(expression)
    for name, expression in {
        "fused": lambda a, b, c: (a * b + c) * 0.5 - a / (1 + b * b),
        "sum_all": lambda a: a.sum(),
        "max_all": lambda a: a.max(),
        "sum_row": lambda a: a.sum(1),
        "sum_col": lambda a: a.sum(0),
        "max_row": lambda a: a.max(1),
        "max_col": lambda a: a.max(0),
        "softmax": lambda x: x.softmax(-1),
        "layernorm": lambda x, g, b: x.layernorm(eps=1e-5) * g + b,
        "mm256": matmul,
        "mm512": matmul,
        "mm1024": matmul,
        "mm2048": matmul,
        "mm1024d": matmul,
        "imm512": integer_matmul,
        "conv": lambda x, w: x.conv2d(w, padding=1),
        "attn": attention,
        "gather": lambda t, i: t[i],
        "cumsum": lambda a: a.cumsum(0),
        "transpose": lambda a: a.transpose(0, 1).contiguous(),
        "exp": lambda a: a.exp(),
        "log": lambda a: a.log(),
        "sin": lambda a: a.sin(),
        "add16": lambda a, b: a + b,
    }.items()
}
CASES["mlp"] = mlp
