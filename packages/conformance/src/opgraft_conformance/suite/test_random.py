"""Kernels and tensor programs made by chance, from the seed of the option --opgraft-seed.

A failure names its seed and shows a program that was cut down to what fails.
"""

from __future__ import annotations

import importlib.util

import pytest

from opgraft.api import Device, Target
from opgraft_conformance import random_kernels
from opgraft_conformance.rows import not_claimed

pytestmark = pytest.mark.must

BLOCKS = range(8)


def seeds(seed: int, block: int, each: int, effort: str) -> range:
    """The seeds of a block; twenty times as many of them with effort long."""
    count = each * (20 if effort == "long" else 1)
    first = seed * 1_000_000 + block * count
    return range(first, first + count)


@pytest.mark.parametrize("block", BLOCKS)
def test_kernels(
    device: Device, reference: Device, capabilities: Target, seed: int, effort: str, block: int
) -> None:
    """Kernels of a few loops and outputs."""
    for own in seeds(seed, block, 6, effort):
        sink = random_kernels.random_kernel(own, capabilities)
        random_kernels.check(
            device, reference, sink, f"random_kernels.random_kernel({own}, target)"
        )


@pytest.mark.parametrize("block", BLOCKS)
def test_tensor_programs(device: Device, seed: int, effort: str, block: int) -> None:
    """Array programs, planned into kernels by opgraft-tensor."""
    if importlib.util.find_spec("opgraft_tensor") is None:
        pytest.skip("not available: install opgraft-tensor (pip install opgraft-tensor)")
    if not device.executes:
        not_claimed(f"{device.name} runs no kernels")
    from opgraft_conformance import random_tensors  # late: it needs an optional package

    for own in seeds(seed, block, 4, effort):
        random_tensors.check(own, device.name)
