"""Matrix units and dot instructions as data: layouts say what the manuals of real ones draw."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opgraft import DType, dtypes
from opgraft.errors import SpecError
from opgraft.ir import Ops, UOp
from opgraft.ir.laws import broken_law
from opgraft.ir.matrix import SIDES, DotUnit, MatrixLayout, MatrixUnit, Operand
from opgraft.ir.spec import check
from opgraft.ir.text import linear_to_text, parse, parse_linear, to_text
from opgraft.target import Target

f16, f32, bf16, i8, i32 = (
    dtypes.float16,
    dtypes.float32,
    dtypes.bfloat16,
    dtypes.int8,
    dtypes.int32,
)

# each with the formulas of its manual: (lane, register) -> (row, column)
Formula = Callable[[int, int], tuple[int, int]]
_A, _B, _C = SIDES["a"], SIDES["b"], SIDES["c"]


def _mma_row(lane: int, i: int) -> int:
    return lane // 4 + (0 if i < 2 or 4 <= i < 6 else 8)


def _tile8(lane: int, i: int) -> tuple[int, int]:
    quad = lane // 4
    return (quad & 4) + (lane // 2) % 4, (quad & 2) * 2 + (lane % 2) * 2 + i


DOCUMENTED: list[tuple[MatrixUnit, dict[Operand, Formula]]] = [
    (
        # PTX ISA, "Matrix fragments for mma.m16n8k16", .f16
        MatrixUnit(
            "mma.m16n8k16",
            (16, 8, 16),
            (f16, f16, f32),
            32,
            MatrixLayout((("k", 4, 2), ("m", 8, 1)), (("k", 2, 1), ("m", 2, 8), ("k", 2, 8))),
            MatrixLayout((("k", 4, 2), ("n", 8, 1)), (("k", 2, 1), ("k", 2, 8))),
            MatrixLayout((("n", 4, 2), ("m", 8, 1)), (("n", 2, 1), ("m", 2, 8))),
        ),
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
        MatrixUnit(
            "simdgroup.8x8x8",
            (8, 8, 8),
            (f32, f32, f32),
            32,
            MatrixLayout((("k", 2, 2), ("m", 4, 1), ("k", 2, 4), ("m", 2, 4)), (("k", 2, 1),)),
            MatrixLayout((("n", 2, 2), ("k", 4, 1), ("n", 2, 4), ("k", 2, 4)), (("n", 2, 1),)),
            MatrixLayout((("n", 2, 2), ("m", 4, 1), ("n", 2, 4), ("m", 2, 4)), (("n", 2, 1),)),
        ),
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
]
UNIT = DOCUMENTED[0][0]
DOT = DotUnit("dot4", (i8, i8, i32))


@pytest.mark.parametrize(("unit", "formulas"), DOCUMENTED, ids=[u.name for u, _ in DOCUMENTED])
def test_a_layout_says_what_the_manual_does(
    unit: MatrixUnit, formulas: dict[Operand, Formula]
) -> None:
    for operand, formula in formulas.items():
        row, column = SIDES[operand]
        for lane in range(unit.threads):
            for register in range(unit.registers(operand)):
                place = unit.layout(operand).at(lane, register)
                assert (place[row], place[column]) == formula(lane, register)


@pytest.mark.parametrize("unit", [u for u, _ in DOCUMENTED], ids=lambda u: u.name)
def test_every_element_has_its_place(unit: MatrixUnit) -> None:
    sizes = dict(zip("mnk", unit.shape, strict=True))
    for operand, (row, column) in SIDES.items():
        layout = unit.layout(operand)
        held = [
            tuple(sorted(layout.at(lane, register).items()))
            for lane in range(unit.threads)
            for register in range(layout.size)
        ]
        assert len(held) == sizes[row] * sizes[column] * layout.repeats
        assert len(set(held)) == sizes[row] * sizes[column]


@pytest.mark.parametrize(
    ("operand", "layout", "says"),
    [
        ("a", MatrixLayout((("k", 4, 2), ("m", 8, 1)), (("k", 2, 1), ("m", 2, 8))), "8 places"),
        ("a", MatrixLayout((("k", 4, 2), ("n", 8, 1)), (("k", 2, 1),)), "moves along 'n'"),
        (
            "a",
            MatrixLayout((("k", 4, 1), ("m", 8, 1)), (("k", 2, 1), ("m", 2, 8), ("k", 2, 8))),
            "several places, or none",
        ),
        (
            "b",
            MatrixLayout((("k", 4, 2), ("n", 4, 1)), (("k", 2, 1), ("k", 2, 8))),
            "of 16 threads, not 32",
        ),
        ("b", MatrixLayout((("k", 4, 2), ("n", 8, 1)), (("k", 4, 1), ("", 2, 0))), "registers may"),
        (
            "c",
            MatrixLayout((("n", 8, 1), ("m", 2, 8), ("", 2, 0)), (("m", 8, 1),)),
            "every sum has one place",
        ),
    ],
)
def test_what_is_no_layout_is_refused(operand: Operand, layout: MatrixLayout, says: str) -> None:
    parts = {o: UNIT.layout(o) for o in SIDES} | {operand: layout}
    with pytest.raises(ValueError, match=says):
        MatrixUnit("wrong", UNIT.shape, UNIT.dtypes, 32, parts["a"], parts["b"], parts["c"])


def test_parts_of_a_word_are_of_one_width() -> None:
    assert DotUnit("dot2", (bf16, bf16, f32)).depth == 2
    with pytest.raises(ValueError, match="parts are of 8 bits, or of 16"):
        DotUnit("odd", (i8, dtypes.int16, i32))


# ---- nodes


def held(operand: Operand, unit: MatrixUnit = UNIT) -> UOp:
    """What a thread holds, from memory."""
    memory = UOp(Ops.PARAM, unit.dtype(operand), (), ("abc".index(operand), 1 << 12))
    return UOp(Ops.LOAD, unit.held(operand), (memory, UOp.const(i32, 0)))


def matrix(unit: MatrixUnit = UNIT) -> UOp:
    return UOp(Ops.MATRIX, unit.held("c"), (held("a"), held("b"), held("c")), unit)


def dot(*sources: UOp, dtype: DType = i32) -> UOp:
    return UOp(Ops.DOT, dtype, sources, DOT)


def test_nodes_are_written_and_read_back() -> None:
    word = UOp.variable("word", 0, 9, i32)
    for node in (matrix(), dot(word, word, word)):
        assert parse(to_text(node)) is node
        assert broken_law(node) is None


def test_malformed_nodes_break_their_laws() -> None:
    word, half = UOp.variable("word", 0, 9, i32), UOp.variable("half", 0, 9, dtypes.int16)
    broken = [
        (matrix().with_src((held("a"), held("b"))), "takes 3 sources"),
        (matrix().replace(arg="mma"), "a MatrixUnit"),
        (matrix().with_src((held("b"), held("b"), held("c"))), "what a thread holds of a, b and c"),
        (matrix().replace(dtype=f32.vec(8)), "what a thread holds of c"),
        (dot(word, half, word), "int32 words"),
        (dot(word, word, half), "dtype of its unit's sums"),
        (dot(word, word, word).replace(arg=UNIT), "a DotUnit"),
    ]
    for node, says in broken:
        law = broken_law(node)
        assert law is not None
        assert says in law.says


def test_a_target_has_the_units_that_it_lists() -> None:
    with_it = Target("test", matrix_units=(UNIT,), dot_units=(DOT,), vector_bytes=64)
    word = UOp(Ops.LOAD, i32, (UOp(Ops.PARAM, i32, (), (2, 9)), UOp.const(i32, 0)))
    for node in (matrix(), dot(word, word, word)):
        sink = UOp.sink(
            UOp(Ops.PARAM, node.dtype.scalar, (), (3, 99)).store(UOp.const(i32, 0), node)
        )
        check(sink, "lowered", with_it)
        with pytest.raises(SpecError, match="test has no"):
            check(sink, "lowered", Target("test", vector_bytes=64))
        with pytest.raises(SpecError, match="not legal at stage 'kernel'"):
            check(sink, "kernel")


def test_bounds_of_sums_of_integers() -> None:
    word, small = UOp.variable("word", 0, 9, i32), UOp.variable("small", -5, 5, i32)
    assert (dot(word, word, small).vmin, dot(word, word, small).vmax) == (
        -5 - 4 * 128 * 127,
        5 + 4 * 128 * 128,
    )
    unit = DOCUMENTED[1][0]
    one, two, zero = (UOp.const(unit.dtype(o), v) for o, v in zip("abc", (1, 2, 0), strict=True))
    node = UOp(
        Ops.MATRIX,
        unit.held("c"),
        (one.broadcast(4), two.broadcast(4), zero.broadcast(2)),
        unit,
    )
    assert (node.vmin, node.vmax) == (32, 32)
    assert matrix().vmin == -float("inf")


def test_linear_programs_with_units_are_read_back() -> None:
    text = f"""linear["k"]
%p: float32 = param[0, 64]
params %p
body
  %a: float16x8 = broadcast(1.0)
  %b: float16x4 = broadcast(1.0)
  %c: float32x4 = broadcast(0.0)
  %d: {to_text(matrix()).splitlines()[-1].partition(": ")[2].partition("(%")[0]}(%a, %b, %c)
  store(%p, 0:int32, %d)
launch[(1,), (32,)]
written[0,]
operations[0]
"""
    program = parse_linear(text)
    assert parse_linear(linear_to_text(program)) == program
    check(program, "linear")
