"""MULACC of float32 vectors on processors without an instruction: the bits of the exact result."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from opgraft.dtype import dtypes
from opgraft.ir import Ops, UOp
from opgraft.ir.evaluate import alu
from opgraft.render.c import CRenderer
from opgraft.target import Target
from tested import at

from .kernels import call, elementwise, merged

F = np.float32
WITHOUT = ("-mno-fma", "-mno-avx512f")
"""Options for a processor without the instruction."""


def hard() -> list[np.ndarray]:
    """Operands whose sum is near the middle between two float32, of all sizes; and any bits."""
    rng = np.random.default_rng(8)
    count = at(400, 4000)
    c = rng.uniform(1, 2, count).astype(F) * (2.0 ** rng.integers(-149, 100, count)).astype(F)
    c[::7] = 0.0
    off = (rng.integers(-3, 4, count) * 2.0**-23).astype(F)
    half = np.maximum(np.spacing(c).astype(np.float64) / 2, 2.0**-149)
    a, b = F(0.5) * (1 + off), (half * 2).astype(F) * (1 - off)
    b[half == 2.0**-149] = F(2.0**-125)
    a[half == 2.0**-149] = F(2.0**-25) * (1 + off)[half == 2.0**-149] * F(3)
    any_bits = [rng.integers(0, 1 << 32, count, dtype=np.uint32).view(F) for _ in range(3)]
    near = [rng.uniform(-4, 4, count).astype(F) for _ in range(2)]
    cancelled = -(near[0] * near[1])
    edges = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2.0**-149, 3.4e38, 2.0**-126], F)
    grid = [g.reshape(-1) for g in np.meshgrid(edges, edges, edges)]
    with np.errstate(all="ignore"):
        rows = [(a, b, c), (a, -b, c), tuple(any_bits), (*near, cancelled), tuple(grid)]
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    return [np.concatenate([v, v[: -len(v) % 8]]) for v in columns]


@cache
def expected() -> np.ndarray:
    kinds = (dtypes.float32,) * 3
    rows = zip(*(v.tolist() for v in hard()), strict=True)
    return np.array([alu(Ops.MULACC, dtypes.float32, kinds, row) for row in rows], F)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the options are those of x86")
@pytest.mark.parametrize("lanes", [4, 8])
def test_without_the_instruction_bits_are_the_same(
    compile_c: Callable[..., ctypes.CDLL], lanes: int
) -> None:
    data, want = hard(), expected()
    program = elementwise(
        lambda a, b, c: UOp(Ops.MULACC, a.dtype, (a, b, c)),
        [dtypes.float32] * 3,
        len(want),
        lanes,
        "k",
    )
    renderer = CRenderer(Target("cpu", vector_bytes=4 * lanes))
    source = merged(renderer, [program])
    library = compile_c(source, *WITHOUT)
    got = np.zeros(len(want), F)
    call(getattr(library, renderer.entry("k")), [got, *data])
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), [v[~same][:3] for v in (*data, got, want)]
    with np.errstate(all="ignore"):
        wide = [v.astype(np.float64) for v in data]
        twice = (wide[0] * wide[1] + wide[2]).astype(F)
    # rounding twice would not do
    assert (twice.view(np.uint32) != want.view(np.uint32))[~np.isnan(want)].sum() > 50
    assert "_odd" in source


def test_a_processor_with_the_instruction_is_not_told_of_another_way() -> None:
    target = Target("cpu", vector_bytes=32, fma=frozenset({dtypes.float32}))
    program = elementwise(
        lambda a: UOp(Ops.MULACC, a.dtype, (a, a, a)), [dtypes.float32], 16, 8, "k"
    )
    assert "_odd" not in CRenderer(target).render(program)
