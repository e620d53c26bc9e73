"""Convolutions and pooling against loops in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from checks import same, value
from opgraft_tensor import Tensor

RNG = np.random.default_rng(4)


def conv(x, w, b, stride, pad, dilation, groups):
    """The definition: a sum over the group's channels and the kernel, place by place."""
    places = x.ndim - 2
    x = np.pad(x, ((0, 0), (0, 0), *[(p, p) for p in pad]))
    out = [
        (x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(places)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *out))
    each, made = x.shape[1] // groups, w.shape[0] // groups
    for o in range(w.shape[0]):
        part = x[:, o // made * each : (o // made + 1) * each]
        for place in itertools.product(*map(range, out)):
            where = tuple(
                slice(
                    place[i] * stride[i],
                    place[i] * stride[i] + dilation[i] * (w.shape[2 + i] - 1) + 1,
                    dilation[i],
                )
                for i in range(places)
            )
            axes = tuple(range(1, places + 2))
            result[(slice(None), o, *place)] = (part[(..., *where)] * w[o]).sum(axes)
    return result if b is None else result + b.reshape(-1, *[1] * places)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "dilation", "groups"),
    [
        ((2, 3, 6, 7), (4, 3, 3, 3), 1, 0, 1, 1),
        ((1, 4, 6, 7), (6, 2, 3, 2), 2, 1, 1, 2),
        ((2, 3, 8, 8), (3, 1, 3, 3), (1, 2), (2, 0), 2, 3),
        ((1, 2, 5, 5), (1, 2, 1, 1), 1, 0, 1, 1),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_conv2d_is_its_definition(size, kernel, stride, pad, dilation, groups, bias) -> None:
    x, w = RNG.normal(size=size), RNG.normal(size=kernel)
    b = RNG.normal(size=kernel[0]) if bias else None
    pair = [v if isinstance(v, tuple) else (v, v) for v in (stride, pad, dilation)]
    found = Tensor(x).conv2d(
        Tensor(w), None if b is None else Tensor(b), stride, pad, dilation, groups
    )
    same(found, conv(x, w, b, *pair, groups), rtol=1e-11, atol=1e-12)


def test_conv1d_and_named_paddings() -> None:
    x, w = RNG.normal(size=(2, 3, 9)), RNG.normal(size=(4, 3, 3))
    same(Tensor(x).conv1d(Tensor(w), padding="same"), conv(x, w, None, (1,), (1,), (1,), 1),
         rtol=1e-11, atol=1e-12)  # fmt: skip
    assert Tensor(x).conv1d(Tensor(w), padding="valid", stride=2).shape == (2, 4, 4)
    assert Tensor(x).conv1d(Tensor(w[:, :, :2]), padding="same").shape == (2, 4, 9)
    with pytest.raises(ValueError, match="same"):
        Tensor(x).conv1d(Tensor(w), padding="same", stride=2)


def test_half_precision_sums_in_float32() -> None:
    x = Tensor(np.ones((1, 3000, 1, 1), np.float16))
    assert value(x.conv2d(x)).item() == 3000


def test_pools() -> None:
    x = RNG.normal(size=(2, 3, 6, 8))
    blocks = x.reshape(2, 3, 3, 2, 4, 2)
    same(Tensor(x).max_pool2d(), blocks.max((3, 5)))
    same(Tensor(x).avg_pool2d(), blocks.mean((3, 5)), rtol=1e-12)
    windows = np.lib.stride_tricks.sliding_window_view
    low = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    same(Tensor(x).max_pool2d(3, stride=2, padding=1),
         windows(low, (3, 3), (2, 3))[:, :, ::2, ::2].max((-1, -2)))  # fmt: skip
    zero = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    same(Tensor(x).avg_pool2d(3, stride=1, padding=1),
         windows(zero, (3, 3), (2, 3)).mean((-1, -2)), rtol=1e-12, atol=1e-15)  # fmt: skip
    whole = RNG.integers(-9, -1, (1, 1, 4, 4)).astype(np.int8)
    assert value(Tensor(whole).max_pool2d(3, 1, 1)).max() < 0


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: Tensor.ones(1, 3, 5, 5).conv2d(Tensor.ones(2, 2, 3, 3)), "3 channels"),
        (lambda: Tensor.ones(3, 5, 5).conv2d(Tensor.ones(2, 3, 3, 3)), "4 axes"),
        (lambda: Tensor.ones(1, 3, 2, 2).conv2d(Tensor.ones(2, 3, 3, 3)), "does not fit"),
        (lambda: Tensor.ones(1, 3, 5, 5).conv2d(Tensor.ones(2, 3, 3, 3), Tensor.ones(3)), "bias"),
        (lambda: Tensor.ones(1, 1, 5, 5).max_pool2d(2, padding=2), "half"),
        (lambda: Tensor.ones(1, 1, 5, 5).max_pool2d(7), "do not fit"),
        (lambda: Tensor.ones(1, 1, 5, 5).conv2d(Tensor.ones(1, 1, 3, 3), stride=(1, 1, 1)), "2"),
    ],
)
def test_shapes_that_do_not_fit_are_explained(act, words) -> None:
    with pytest.raises(ValueError, match=words):
        act()
