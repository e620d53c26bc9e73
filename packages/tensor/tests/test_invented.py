"""The usual workloads at small shapes on two invented devices of thread groups: right, within all
limits, without a race, and by their matrix units where those do the work."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from opgraft import using
from opgraft_tensor import Tensor, grad

DEVICES = ("LANES32", "LANES64")


@dataclass(frozen=True)
class Case:
    inputs: tuple[np.ndarray, ...]
    run: Callable[..., Tensor]
    reference: Callable[..., np.ndarray]
    units: dict[str, set[str]]
    """For each device the instructions for products that are used."""


def numbers(*shapes: tuple[int, ...], dtype: Any = np.float32) -> tuple[np.ndarray, ...]:
    pick = np.random.default_rng(0)
    return tuple((pick.random(s) * 2 - 1).astype(dtype) for s in shapes)


def bytes_of(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    pick = np.random.default_rng(0)
    return tuple(pick.integers(-128, 128, s).astype(np.int8) for s in shapes)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalised(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    mean, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(spread + 1e-5) * g + b


def layernorm(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    mean = x.mean(-1, keepdims=True)
    spread = ((x - mean) * (x - mean)).mean(-1, keepdims=True)
    return (x - mean) / (spread + 1e-5).sqrt() * g + b


def convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("ncyxij,ocij->noyx", windows, w)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.transpose(1, 2)) * 0.25).softmax(-1) @ v


def step(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    """A linear layer after a step down its squared error's slope."""
    error = (x @ w - target).realize()
    slope = grad((x @ w * error).sum(), [w])[0]
    return w - slope * 0.1


def step_reference(x: np.ndarray, w: np.ndarray, target: np.ndarray) -> np.ndarray:
    return w - x.T @ (x @ w - target) * 0.1


none: dict[str, set[str]] = {device: set() for device in DEVICES}
single = {"LANES32": {"tile8"}, "LANES64": {"flat16"}}
CASES: dict[str, Case] = {
    "fused": Case(
        numbers((500,), (500,), (500,)),
        lambda a, b, c: (a * b + c) * 0.5 - a / (b * b + 1),
        lambda a, b, c: (a * b + c) * 0.5 - a / (b * b + 1),
        none,
    ),
    "sum_all": Case(numbers((3000,)), lambda a: a.sum(), lambda a: a.sum(), none),
    "sum_row": Case(numbers((20, 70)), lambda a: a.sum(1), lambda a: a.sum(1), none),
    "max_column": Case(numbers((70, 20)), lambda a: a.max(0), lambda a: a.max(0), none),
    "softmax": Case(numbers((20, 70)), lambda a: a.softmax(-1), softmax, none),
    "layernorm": Case(numbers((20, 64), (64,), (64,)), layernorm, normalised, none),
    "cumsum": Case(numbers((70,)), lambda a: a.cumsum(0), lambda a: a.cumsum(0), none),
    "transpose": Case(numbers((33, 40)), lambda a: a.transpose(0, 1) + 0, lambda a: a.T, none),
    "exp": Case(numbers((300,)), lambda a: a.exp(), np.exp, none),
    "matmul": Case(numbers((40, 56), (56, 33)), lambda a, b: a @ b, lambda a, b: a @ b, single),
    "matmul_half": Case(
        numbers((33, 48), (48, 40), dtype=np.float16),
        lambda a, b: (a @ b).cast("float32"),
        lambda a, b: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16),
        {"LANES32": {"tall16"}, "LANES64": {"flat16"}},
    ),
    "matmul_bytes": Case(
        bytes_of((32, 40), (40, 33)),
        lambda a, b: a.cast("int32") @ b.cast("int32"),
        lambda a, b: a.astype(np.int32) @ b.astype(np.int32),
        {"LANES32": {"dot4"}, "LANES64": {"twice16"}},
    ),
    "conv": Case(
        numbers((2, 8, 10, 10), (16, 8, 3, 3)),
        lambda x, w: x.conv2d(w, padding=1),
        convolution,
        single,
    ),
    "attention": Case(
        numbers((2, 24, 16), (2, 24, 16), (2, 24, 16)),
        attention,
        lambda q, k, v: softmax(q @ k.transpose(0, 2, 1) * 0.25) @ v,
        single,
    ),
    "step": Case(numbers((32, 40), (40, 24), (32, 24)), step, step_reference, single),
}


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows, columns = Tensor.arange(24).reshape(24, 1), Tensor.arange(24)
    scores = (q @ k.transpose(1, 2)) * 0.25
    return (columns <= rows).where(scores, -1e30).softmax(-1) @ v


def causal_reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.where(np.tri(24, dtype=bool), q @ k.transpose(0, 2, 1) * 0.25, -1e30)
    return np.asarray(softmax(scores) @ v)


def spread_convolution(x: np.ndarray, w: np.ndarray, step: int, apart: int) -> np.ndarray:
    side = 2 * apart + 1
    windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), (2, 3))
    return np.asarray(
        np.einsum("ncyxij,ocij->noyx", windows[:, :, ::step, ::step, ::apart, ::apart], w)
    )


ODD: dict[str, Case] = {
    "causal": Case(numbers(*((2, 24, 16),) * 3), causal, causal_reference, single),
    "one_query": Case(
        numbers((3, 1, 16), (3, 37, 16), (3, 37, 16)),
        attention,
        lambda q, k, v: softmax(q @ k.transpose(0, 2, 1) * 0.25) @ v,
        none,
    ),
    "batch_turned": Case(
        numbers((3, 23, 17), (3, 19, 23)),
        lambda a, b: a.transpose(1, 2) @ b.transpose(1, 2),
        lambda a, b: a.transpose(0, 2, 1) @ b.transpose(0, 2, 1),
        single,
    ),
    "seventeen": Case(numbers((50, 17), (17, 17)), lambda a, b: a @ b, lambda a, b: a @ b, single),
    "vector": Case(numbers((70, 90), (90,)), lambda a, b: a @ b, lambda a, b: a @ b, none),
    "steps": Case(
        numbers((1, 8, 17, 19), (12, 8, 3, 3)),
        lambda x, w: x.conv2d(w, stride=2),
        lambda x, w: spread_convolution(x, w, 2, 1),
        single,
    ),
    "apart": Case(
        numbers((1, 16, 13, 13), (10, 16, 3, 3)),
        lambda x, w: x.conv2d(w, dilation=2),
        lambda x, w: spread_convolution(x, w, 1, 2),
        single,
    ),
    "groups": Case(
        numbers((2, 8, 9, 9), (16, 2, 3, 3)),
        lambda x, w: x.conv2d(w, groups=4),
        lambda x, w: np.concatenate(
            [
                spread_convolution(x[:, 2 * g : 2 * g + 2], w[4 * g : 4 * g + 4], 1, 1)
                for g in range(4)
            ],
            1,
        ),
        none,
    ),
    "several_axes": Case(
        numbers((5, 33, 7, 9)), lambda a: a.sum((1, 3)), lambda a: a.sum((1, 3)), none
    ),
    "cumsum_rows": Case(numbers((3, 150)), lambda a: a.cumsum(1), lambda a: a.cumsum(1), none),
    "cumsum_columns": Case(numbers((70, 33)), lambda a: a.cumsum(0), lambda a: a.cumsum(0), none),
    "permuted": Case(
        numbers((11, 13, 18)),
        lambda a: a.permute(2, 0, 1) + 0,
        lambda a: a.transpose(2, 0, 1),
        none,
    ),
    "rows_of": Case(
        numbers((50, 33)),
        lambda t: t[Tensor([3, 49, 0, 7, 7])],
        lambda t: t[[3, 49, 0, 7, 7]],
        none,
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_workloads(name: str, device: str, sources: list[str]) -> None:
    right(CASES[name], name, device, sources)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ODD)
def test_shapes_off_the_beaten_track(name: str, device: str, sources: list[str]) -> None:
    right(ODD[name], name, device, sources)


def right(case: Case, name: str, device: str, sources: list[str]) -> None:
    """INTERP refuses a kernel over a limit of the device, and reports races of its threads."""
    with using(DEVICE="INTERP", INTERP_CC=device, SPEC=1):
        got = case.run(*map(Tensor, case.inputs)).numpy()
    wide = [x if x.dtype == np.int8 else x.astype(np.float64) for x in case.inputs]
    exact = case.reference(*(case.inputs if name == "matmul_half" else wide))
    np.testing.assert_allclose(got, exact, rtol=1e-3, atol=2e-4 if name != "matmul_half" else 1e-2)
    text = "\n".join(sources)
    used = set(re.findall(r'(?:Matrix|Dot)Unit\("(\w+)"', text))
    assert used == case.units[device]
