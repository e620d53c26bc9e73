"""Kernels, and bytes that they touch, of twenty programs at full size: these or fewer.

The bounds are those of the worked design, or lower.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import programs
from opgraft_tensor import Tensor
from opgraft_tensor.normalise import canonical
from opgraft_tensor.plan import kernel_count
from opgraft_tensor.realize import settle
from planning import CPU, plan_of

BOUNDS: dict[str, tuple[int, float]] = {
    # kernels, MB
    "softmax": (1, 33.6),
    "layernorm": (1, 33.6),
    "mlp_layer": (1, 3.15),
    "mm_ln": (2, 5.25),
    "conv": (1, 13.0),
    "conv_relu_conv": (2, 0.42),
    "attention": (1, 16.8),
    "cumsum": (1, 8.0),
    "diamond": (1, 8.4),
    "two_consumers": (1, 8.4),
    "stats3": (1, 8.4),
    "bnorm": (1, 1.05),
    "xent": (1, 0.011),
    "mlp_train": (8, 2.471),
    "conv_train": (13, 3.07),
    "block_fwd": (8, 16.29),
    "block_train": (26, 63.0),
    "adam": (20, 10.05),
    "stencil": (1, 0.033),
    "double24": (1, 0.033),
}


@pytest.mark.parametrize("program", programs.ALL, ids=lambda f: f.__name__)
def test_kernels_and_bytes(program: object) -> None:
    outputs = [o.uop for o in program(programs.Nodes)]  # type: ignore[operator]
    kernels, moved = kernel_count(outputs, CPU)
    most, megabytes = BOUNDS[program.__name__]  # type: ignore[attr-defined]
    assert kernels <= most
    assert moved <= megabytes * 1e6


@pytest.mark.parametrize("program", programs.ALL, ids=lambda f: f.__name__)
def test_full_size_plans_hold_what_they_must(program: object) -> None:
    plan_of([o.uop for o in program(programs.Nodes)])  # type: ignore[operator]


# ---- the same by the methods that users call


def kernels_of(*tensors: Tensor) -> int:
    outputs = settle([t.uop for t in tensors])
    plan_of(outputs)
    return kernel_count(canonical(outputs, lambda _: False).outputs, CPU)[0]


def _stored(size: tuple[int, ...]) -> Tensor:
    import numpy as np

    return Tensor(np.ones(size, np.float32))


def test_softmax_is_one_kernel() -> None:
    assert kernels_of(_stored((64, 128)).softmax(axis=1)) == 1


def test_log_softmax_is_one_kernel() -> None:
    assert kernels_of(_stored((64, 128)).log_softmax(axis=1)) == 1


def test_layernorm_is_one_kernel() -> None:
    assert kernels_of(_stored((64, 128)).layernorm()) == 1


def test_attention_is_one_kernel() -> None:
    q, k, v = (_stored((2, 4, 64, 32)) for _ in range(3))
    scores = (q @ k.permute(0, 1, 3, 2)) * 0.125
    assert kernels_of(scores.softmax(axis=-1) @ v) == 1


def test_variance_is_one_kernel() -> None:
    assert kernels_of(_stored((64, 128)).var(axis=1)) == 1


def test_cumsum_with_epilogue_is_one_kernel() -> None:
    assert kernels_of(_stored((64, 128)).cumsum(axis=1) * 2.0 + 1.0) == 1


def test_convolution_with_relu_is_one_kernel() -> None:
    x, w = _stored((2, 8, 16, 16)), _stored((8, 8, 3, 3))
    assert kernels_of(x.conv2d(w, padding=1).maximum(0.0)) == 1


@pytest.mark.thorough
def test_plans_are_the_same_in_every_process() -> None:
    code = (
        "import programs; from opgraft_tensor.plan import draft\n"
        "from opgraft_tensor.normalise import canonical; from opgraft_tensor.facts import Prices\n"
        "outs = [o.uop for f in (programs.conv_train, programs.block_fwd)"
        " for o in f(programs.Nodes)]\n"
        "made = draft(canonical(outs, lambda _: False).outputs, Prices())\n"
        "print(*[k.sink.key for k in made.kernels])"
    )
    found = []
    for seed in ("1", "2"):
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout)
    assert found[0] == found[1]
    assert len(found[0].split()) > 20
