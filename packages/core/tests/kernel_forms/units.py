"""Matrix units of real devices as data, each with the formulas of its manual."""

from __future__ import annotations

from collections.abc import Callable

from opgraft import dtypes
from opgraft.ir.matrix import MatrixLayout, MatrixUnit, Operand

f16, f32, f64, bf16, i8, i32 = (
    dtypes.float16,
    dtypes.float32,
    dtypes.float64,
    dtypes.bfloat16,
    dtypes.int8,
    dtypes.int32,
)

Formula = Callable[[int, int], tuple[int, int]]
"""From thread and register to row and column."""


def _mma_row(lane: int, i: int) -> int:
    return lane // 4 + (0 if i < 2 or 4 <= i < 6 else 8)


def _tile8(lane: int, i: int) -> tuple[int, int]:
    quad = lane // 4
    return (quad & 4) + (lane // 2) % 4, (quad & 2) * 2 + (lane % 2) * 2 + i


_MMA16 = (
    MatrixLayout((("k", 4, 2), ("m", 8, 1)), (("k", 2, 1), ("m", 2, 8), ("k", 2, 8))),
    MatrixLayout((("k", 4, 2), ("n", 8, 1)), (("k", 2, 1), ("k", 2, 8))),
    MatrixLayout((("n", 4, 2), ("m", 8, 1)), (("n", 2, 1), ("m", 2, 8))),
)
_SIMDGROUP = (
    MatrixLayout((("k", 2, 2), ("m", 4, 1), ("k", 2, 4), ("m", 2, 4)), (("k", 2, 1),)),
    MatrixLayout((("n", 2, 2), ("k", 4, 1), ("n", 2, 4), ("k", 2, 4)), (("n", 2, 1),)),
    MatrixLayout((("n", 2, 2), ("m", 4, 1), ("n", 2, 4), ("m", 2, 4)), (("n", 2, 1),)),
)

DOCUMENTED: list[tuple[MatrixUnit, dict[Operand, Formula]]] = [
    (
        # PTX ISA, "Matrix fragments for mma.m16n8k16", .f16
        MatrixUnit("mma.m16n8k16", (16, 8, 16), (f16, f16, f32), 32, *_MMA16),
        {
            "a": lambda t, i: (_mma_row(t, i), t % 4 * 2 + i % 2 + (0 if i < 4 else 8)),
            "b": lambda t, i: (t % 4 * 2 + i % 2 + (0 if i < 2 else 8), t // 4),
            "c": lambda t, i: (t // 4 + (0 if i < 2 else 8), t % 4 * 2 + i % 2),
        },
    ),
    (
        # PTX ISA, "Matrix fragments for mma.m8n8k16", .s8
        MatrixUnit(
            "mma.m8n8k16",
            (8, 8, 16),
            (i8, i8, i32),
            32,
            MatrixLayout((("k", 4, 4), ("m", 8, 1)), (("k", 4, 1),)),
            MatrixLayout((("k", 4, 4), ("n", 8, 1)), (("k", 4, 1),)),
            MatrixLayout((("n", 4, 2), ("m", 8, 1)), (("n", 2, 1),)),
        ),
        {
            "a": lambda t, i: (t // 4, t % 4 * 4 + i),
            "b": lambda t, i: (t % 4 * 4 + i, t // 4),
            "c": lambda t, i: (t // 4, t % 4 * 2 + i),
        },
    ),
    (
        # MFMA, V_MFMA_F32_32X32X8F16: wavefronts of 64; the rows of the result in fours
        MatrixUnit(
            "mfma.32x32x8",
            (32, 32, 8),
            (f16, f16, f32),
            64,
            MatrixLayout((("m", 32, 1), ("k", 2, 4)), (("k", 4, 1),)),
            MatrixLayout((("n", 32, 1), ("k", 2, 4)), (("k", 4, 1),)),
            MatrixLayout((("n", 32, 1), ("m", 2, 4)), (("m", 4, 1), ("m", 4, 8))),
        ),
        {
            "a": lambda t, i: (t % 32, t // 32 * 4 + i),
            "b": lambda t, i: (t // 32 * 4 + i, t % 32),
            "c": lambda t, i: (8 * (i // 4) + 4 * (t // 32) + i % 4, t % 32),
        },
    ),
    (
        # WMMA of RDNA3: lanes 16 .. 31 hold again what lanes 0 .. 15 do; rows alternate
        MatrixUnit(
            "wmma.16x16x16",
            (16, 16, 16),
            (f16, f16, f32),
            32,
            MatrixLayout((("m", 16, 1), ("", 2, 0)), (("k", 16, 1),)),
            MatrixLayout((("n", 16, 1), ("", 2, 0)), (("k", 16, 1),)),
            MatrixLayout((("n", 16, 1), ("m", 2, 1)), (("m", 8, 2),)),
        ),
        {
            "a": lambda t, i: (t % 16, i),
            "b": lambda t, i: (i, t % 16),
            "c": lambda t, i: (2 * i + t // 16, t % 16),
        },
    ),
    (
        # simdgroup_matrix of 8 x 8, as `thread_elements` gives it: all three alike
        MatrixUnit("simdgroup.8x8x8", (8, 8, 8), (f32, f32, f32), 32, *_SIMDGROUP),
        dict.fromkeys(("a", "b", "c"), _tile8),
    ),
    (
        # cl_intel_subgroup_matrix_multiply_accumulate, ..._f16_f16_matrix_mad_k16, short8, int8,
        # float8 in subgroups of 16: a's columns and b's columns lie over the work-items
        MatrixUnit(
            "mad_k16",
            (8, 16, 16),
            (f16, f16, f32),
            16,
            MatrixLayout((("k", 16, 1),), (("m", 8, 1),)),
            MatrixLayout((("n", 16, 1),), (("k", 16, 1),)),
            MatrixLayout((("n", 16, 1),), (("m", 8, 1),)),
        ),
        {
            "a": lambda t, i: (i, t),
            "b": lambda t, i: (i, t),
            "c": lambda t, i: (i, t),
        },
    ),
    (
        # the same for i8, mad_k32: each short of a holds two neighbours, each int of b four
        MatrixUnit(
            "mad_k32",
            (8, 16, 32),
            (i8, i8, i32),
            16,
            MatrixLayout((("k", 16, 2),), (("k", 2, 1), ("m", 8, 1))),
            MatrixLayout((("n", 16, 1),), (("k", 32, 1),)),
            MatrixLayout((("n", 16, 1),), (("m", 8, 1),)),
        ),
        {
            "a": lambda t, i: (i // 2, 2 * t + i % 2),
            "b": lambda t, i: (i, t),
            "c": lambda t, i: (i, t),
        },
    ),
    (
        # the same of halves, added up in float32
        MatrixUnit("simdgroup.half", (8, 8, 8), (f16, f16, f32), 32, *_SIMDGROUP),
        dict.fromkeys(("a", "b", "c"), _tile8),
    ),
    (
        # PTX, mma.m16n8k16, .bf16: as .f16
        MatrixUnit("mma.m16n8k16.bf16", (16, 8, 16), (bf16, bf16, f32), 32, *_MMA16),
        {
            "a": lambda t, i: (_mma_row(t, i), t % 4 * 2 + i % 2 + (0 if i < 4 else 8)),
            "b": lambda t, i: (t % 4 * 2 + i % 2 + (0 if i < 2 else 8), t // 4),
            "c": lambda t, i: (t // 4 + (0 if i < 2 else 8), t % 4 * 2 + i % 2),
        },
    ),
    (
        # PTX, mma.m16n8k8, .f16
        MatrixUnit(
            "mma.m16n8k8",
            (16, 8, 8),
            (f16, f16, f32),
            32,
            MatrixLayout((("k", 4, 2), ("m", 8, 1)), (("k", 2, 1), ("m", 2, 8))),
            MatrixLayout((("k", 4, 2), ("n", 8, 1)), (("k", 2, 1),)),
            _MMA16[2],
        ),
        {
            "a": lambda t, i: (t // 4 + (0 if i < 2 else 8), t % 4 * 2 + i % 2),
            "b": lambda t, i: (t % 4 * 2 + i, t // 4),
            "c": lambda t, i: (t // 4 + (0 if i < 2 else 8), t % 4 * 2 + i % 2),
        },
    ),
    (
        # PTX, mma.m16n8k32, .s8: groups of four registers, as m16n8k16 has pairs
        MatrixUnit(
            "mma.m16n8k32",
            (16, 8, 32),
            (i8, i8, i32),
            32,
            MatrixLayout((("k", 4, 4), ("m", 8, 1)), (("k", 4, 1), ("m", 2, 8), ("k", 2, 16))),
            MatrixLayout((("k", 4, 4), ("n", 8, 1)), (("k", 4, 1), ("k", 2, 16))),
            _MMA16[2],
        ),
        {
            "a": lambda t, i: (
                t // 4 + (0 if i < 4 or 8 <= i < 12 else 8),
                t % 4 * 4 + i % 4 + (0 if i < 8 else 16),
            ),
            "b": lambda t, i: (t % 4 * 4 + i % 4 + (0 if i < 4 else 16), t // 4),
            "c": lambda t, i: (t // 4 + (0 if i < 2 else 8), t % 4 * 2 + i % 2),
        },
    ),
    (
        # PTX, mma.m8n8k4, .f64
        MatrixUnit(
            "mma.m8n8k4",
            (8, 8, 4),
            (f64, f64, f64),
            32,
            MatrixLayout((("k", 4, 1), ("m", 8, 1))),
            MatrixLayout((("k", 4, 1), ("n", 8, 1))),
            MatrixLayout((("n", 4, 2), ("m", 8, 1)), (("n", 2, 1),)),
        ),
        {
            "a": lambda t, i: (t // 4, t % 4),
            "b": lambda t, i: (t % 4, t // 4),
            "c": lambda t, i: (t // 4, t % 4 * 2 + i),
        },
    ),
    (
        # MFMA, V_MFMA_F32_16X16X16_F16
        MatrixUnit(
            "mfma.16x16x16",
            (16, 16, 16),
            (f16, f16, f32),
            64,
            MatrixLayout((("m", 16, 1), ("k", 4, 4)), (("k", 4, 1),)),
            MatrixLayout((("n", 16, 1), ("k", 4, 4)), (("k", 4, 1),)),
            MatrixLayout((("n", 16, 1), ("m", 4, 4)), (("m", 4, 1),)),
        ),
        {
            "a": lambda t, i: (t % 16, t // 16 * 4 + i),
            "b": lambda t, i: (t // 16 * 4 + i, t % 16),
            "c": lambda t, i: (t // 16 * 4 + i, t % 16),
        },
    ),
    (
        # MFMA, V_MFMA_F64_16X16X4_F64: rows of the result four apart
        MatrixUnit(
            "mfma.16x16x4.f64",
            (16, 16, 4),
            (f64, f64, f64),
            64,
            MatrixLayout((("m", 16, 1), ("k", 4, 1))),
            MatrixLayout((("n", 16, 1), ("k", 4, 1))),
            MatrixLayout((("n", 16, 1), ("m", 4, 1)), (("m", 4, 4),)),
        ),
        {
            "a": lambda t, i: (t % 16, t // 16),
            "b": lambda t, i: (t // 16, t % 16),
            "c": lambda t, i: (t // 16 + 4 * i, t % 16),
        },
    ),
    (
        # WMMA of RDNA4: each half of a wave has half of the depth, and of the rows of the result
        MatrixUnit(
            "wmma.gfx12",
            (16, 16, 16),
            (f16, f16, f32),
            32,
            MatrixLayout((("m", 16, 1), ("k", 2, 8)), (("k", 8, 1),)),
            MatrixLayout((("n", 16, 1), ("k", 2, 8)), (("k", 8, 1),)),
            MatrixLayout((("n", 16, 1), ("m", 2, 8)), (("m", 8, 1),)),
        ),
        {
            "a": lambda t, i: (t % 16, t // 16 * 8 + i),
            "b": lambda t, i: (t // 16 * 8 + i, t % 16),
            "c": lambda t, i: (t // 16 * 8 + i, t % 16),
        },
    ),
]
