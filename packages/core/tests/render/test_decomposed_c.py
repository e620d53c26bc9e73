"""Decomposed operations in compiled C: the bits of the graph, at every lane width."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.ir import GroupOp, Ops, UOp, graph_rewrite
from opgraft.ir.elementary import fold_elementary
from opgraft.ir.evaluate import alu, bits_to_value, value_to_bits
from opgraft.lower.decompose import decompositions
from opgraft.render.c import CRenderer
from opgraft.target import Target

from .kernels import NUMPY, call, elementwise, merged

HALVES = frozenset({dtypes.float16, dtypes.bfloat16})
INTS = (dtypes.int16, dtypes.int64, dtypes.uint32)
TARGET = Target("cpu", compute=frozenset(dtypes.all) - HALVES, vector_bytes=32)
# as the CPU's: the renderer branches round the reduction of large arguments
SINE = Target("cpu", compute=TARGET.compute, vector_bytes=32, ops=Target.ops | frozenset({Ops.SIN}))


def apply(op: Ops, lanes: int, dtype: DType, target: Target, *sources: UOp) -> UOp:
    return graph_rewrite(UOp(op, dtype.vec(lanes), sources), decompositions(target))


def run(
    compile_c: Callable[[str], ctypes.CDLL],
    op: Ops,
    dtype: DType,
    columns: list[np.ndarray],
    target: Target = TARGET,
) -> dict[int, np.ndarray]:
    """The results by lane count, all from one library."""
    renderer = CRenderer(target)
    size = len(columns[0])
    programs = {
        lanes: elementwise(
            partial(apply, op, lanes, dtype, target),
            [dtype] * len(columns),
            size,
            lanes,
            f"k{lanes}",
        )
        for lanes in (1, 16)
    }
    library = compile_c(merged(renderer, list(programs.values())))
    results = {}
    for lanes, program in programs.items():
        out = np.zeros(size, NUMPY[dtype])
        call(getattr(library, renderer.entry(program.name)), [out, *columns])
        results[lanes] = out
    return results


def values(dtype: DType, count: int) -> list[float]:
    rng = random.Random(count)
    some = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 1e9, -3e30, 1e-40, 4096.5]
    some += [rng.uniform(-20, 20) for _ in range(count // 2)]
    some += [float(bits_to_value(rng.getrandbits(dtype.bits), dtype)) for _ in range(count)]
    some = [float(dtype.const(v)) for v in some]
    return some + some[: -len(some) % 16]


@pytest.mark.parametrize("target", [TARGET, SINE], ids=["graph", "renderer's sine"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_compiled_functions_give_the_bits_of_the_fold(
    compile_c: Callable[[str], ctypes.CDLL], dtype: DType, target: Target
) -> None:
    data = values(dtype, 120)
    for op in sorted(GroupOp.ELEMENTARY if target is TARGET else {Ops.SIN}):
        want = [fold_elementary(op, dtype, v) for v in data]
        column = np.array(data, dtype.name)
        for lanes, got in run(compile_c, op, dtype, [column], target).items():
            for x, g, w in zip(data, got.tolist(), want, strict=True):
                assert g == w or (g != g and w != w), (op, lanes, x)
                assert w != w or math.copysign(1, g) == math.copysign(1, w)


def test_a_sine_leaves_large_arguments_to_a_function_where_there_can_be_any() -> None:
    def source(dtype: DType) -> str:
        program = elementwise(
            lambda x: graph_rewrite(x.cast(dtypes.float32.vec(8)).sin(), decompositions(SINE)),
            [dtype],
            16,
            8,
            "k",
        )
        return CRenderer(SINE).render(program)

    assert "cold" in source(dtypes.int32)
    assert "sin_far_f32x8(x,s,m)" in source(dtypes.int32)
    for narrow in (dtypes.int16, dtypes.float16):
        assert "sin_far" not in source(narrow)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [32, 16, 64])
def test_a_single_lane_of_a_mask_is_found(
    compile_c: Callable[[str], ctypes.CDLL], size: int
) -> None:
    """One large argument among small ones, in each lane of the vector in turn."""
    lanes = size // 4
    target = replace(SINE, vector_bytes=size)
    x = np.full((lanes, lanes), 0.5, np.float32)
    np.fill_diagonal(x, 1e9)
    program = elementwise(lambda v: v.sin(), [dtypes.float32], lanes * lanes, lanes, "k")
    library = compile_c(merged(CRenderer(target), [program]))
    out = np.zeros(lanes * lanes, np.float32)
    call(getattr(library, CRenderer(target).entry("k")), [out, x.reshape(-1)])
    assert out.tolist() == [
        fold_elementary(Ops.SIN, dtypes.float32, v) for v in x.reshape(-1).tolist()
    ]


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(d, op) for d in dtypes.floats for op in (Ops.MOD, Ops.MAX)]
    + [(d, op) for d in INTS for op in (Ops.MOD, Ops.IDIV)],
)
def test_compiled_remainders_maxima_and_quotients(
    compile_c: Callable[[str], ctypes.CDLL], dtype: DType, op: Ops
) -> None:
    if dtype.is_float:
        data = values(dtype, 100)
        other = [*data[7:], *data[:7]]
    else:
        rng = random.Random(3)
        edge = [0, 1, -1, 7, -7, int(dtype.min), int(dtype.max)]
        data = [int(dtype.const(a)) for a in edge for _ in edge]
        other = [int(dtype.const(b)) for _ in edge for b in edge]
        while len(data) % 16 or len(data) < 96:
            data.append(int(dtype.const(rng.getrandbits(dtype.bits))))
            other.append(int(dtype.const(rng.getrandbits(rng.randint(1, dtype.bits)))))
    kind = NUMPY[dtype]
    columns = []
    for column in (data, other):
        if dtype.is_float:
            bits = [value_to_bits(v, dtype) for v in column]
            columns.append(np.array(bits, f"uint{dtype.bits}").view(kind))
        else:
            columns.append(np.array(column, kind))
    for lanes, got in run(compile_c, op, dtype, columns).items():
        raw = got.view(f"uint{dtype.bits}").tolist()
        for x, y, bits in zip(data, other, raw, strict=True):
            want = alu(op, dtype, (dtype, dtype), (x, y))
            if want != want:
                value = bits_to_value(bits, dtype)
                assert value != value, (lanes, x, y)
            else:
                assert bits == value_to_bits(want, dtype), (lanes, x, y)
