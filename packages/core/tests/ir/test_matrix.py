"""Matrix units and dot instructions as data: layouts say what the manuals of real ones draw."""

from __future__ import annotations

import pytest

from kernel_forms.units import DOCUMENTED, Formula
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
