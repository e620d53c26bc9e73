"""`Dot` leaves the meaning as it was, or is refused with a reason; where it pays it is used."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.kernels import kernel, loop, over, param
from opgraft import DType, dtypes
from opgraft.catalog import Device as DEVICES
from opgraft.devices.interp.executor import execute
from opgraft.devices.invented import LANES32
from opgraft.errors import OpgraftError
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import LinearProgram
from opgraft.ir.matrix import DotUnit
from opgraft.ir.text import parse, to_text
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.actions import Action, Refused, Split
from opgraft.opt.dot import Dot
from opgraft.opt.grid_actions import Pad
from opgraft.runtime import compile_kernel
from opgraft.target import Target

i8, u8, i16, i32 = dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32
PAIRS16 = DotUnit("pairs16", (i16, i16, i32))
FOURS8 = DotUnit("fours8", (u8, i8, i32))
SIGNED8 = DotUnit("signed8", (i8, i8, i32))
CPU = Target(
    "test", vector_bytes=32, dot_units=(FOURS8, PAIRS16), cores=2, fma=frozenset((dtypes.float32,))
)
PAIRS = replace(CPU, dot_units=(PAIRS16,))


def product(
    m: int, n: int, depth: int, left: DType = i8, right: DType = i8, sums: DType = i32
) -> UOp:
    i, j, k = loop(m, "i"), loop(n, "j"), over(depth, "k")
    a, b = param(1, m * depth, left), param(2, depth * n, right)
    value = a.load(i * depth + k).cast(sums) * b.load(k * n + j).cast(sums)
    out = param(0, m * n, sums)
    return kernel("product", out.store(i * n + j, value.reduce(Ops.ADD, k)).end(i, j))


def memory(shape: tuple[int, int, int], left: DType, right: DType) -> tuple[np.ndarray, ...]:
    """Factors of all values that their dtypes have, the least ones among them."""
    m, n, k = shape
    pick = np.random.default_rng(0)
    a = pick.integers(left.min, left.max + 1, (m, k)).astype(left.name)  # type: ignore[operator]
    b = pick.integers(right.min, right.max + 1, (k, n)).astype(right.name)  # type: ignore[operator]
    a[0], b[:, 0] = left.min, right.min
    return a, b


def right_on(
    target: Target,
    shape: tuple[int, int, int],
    left: DType = i8,
    right: DType = i8,
    sums: DType = i32,
    actions: tuple[Action, ...] = (),
) -> LinearProgram:
    """Carry out a product; the program that gave the right result."""
    sink = product(*shape, left, right, sums)
    if actions:
        sink = sink.replace(arg=replace(sink.arg, schedule=actions))
    program = lower(sink, target)
    a, b = memory(shape, left, right)
    wanted = a.astype(sums.name) @ b.astype(sums.name)
    got = np.zeros(wanted.size, sums.name)
    execute(program, [got, a.reshape(-1), b.reshape(-1)])
    assert np.array_equal(got.reshape(wanted.shape), wanted)
    return program


def units(program: LinearProgram) -> set[str]:
    return {n.arg.name for n in program.instructions if n.op is Ops.DOT}


@pytest.mark.parametrize("unit", [PAIRS16, FOURS8, SIGNED8], ids=lambda u: u.name)
@pytest.mark.parametrize("dtypes_of", [(i8, i8), (u8, i8), (i8, u8)])
def test_a_sum_goes_to_a_dot_instruction(unit: DotUnit, dtypes_of: tuple[DType, DType]) -> None:
    left, right = dtypes_of
    if unit is SIGNED8 and u8 in dtypes_of:
        with pytest.raises(Refused, match="multiplies int8 by int8; the factors are not such"):
            Dot(unit, "k").apply(product(2, 3, 8, left, right))
        return
    with_it = replace(CPU, dot_units=(unit,))
    found = right_on(with_it, (3, 5, 8), left, right, actions=(Dot(unit, "k"),))
    assert units(found) == {unit.name}
    # and without the instruction
    found = right_on(replace(CPU, dot_units=()), (3, 5, 8), left, right, actions=(Dot(unit, "k"),))
    assert units(found) == set()


def test_words_are_spread_over_lanes_and_copies() -> None:
    vector, copies = Split("j", 4, AxisKind.VECTOR), Split("i", 2, AxisKind.UNROLL)
    for unit in (PAIRS16, FOURS8):
        right_on(CPU, (4, 8, 8), actions=(Dot(unit, "k"), vector, copies))


def test_sums_of_narrower_integers_wrap_as_they_do() -> None:
    for sums in (i8, i16):
        right_on(CPU, (3, 5, 8), sums=sums, actions=(Dot(PAIRS16, "k"),))


def test_neighbours_in_memory_are_a_word_as_they_lie() -> None:
    program = right_on(replace(CPU, dot_units=(SIGNED8,)), (3, 5, 8), actions=(Dot(SIGNED8, "k"),))
    assert any(n.op is Ops.LOAD and n.dtype is i8.vec(4) for n in program.instructions)


@pytest.mark.parametrize(
    ("sink", "action", "reason"),
    [
        (product(2, 3, 7), Dot(PAIRS16, "k"), "range k of 7 is no multiple: pad it"),
        (product(2, 4, 8), Dot(PAIRS16, "j"), "is no loop of sums alone"),
        (product(2, 4, 8), Dot(PAIRS16, "x"), "no range is named 'x'"),
        (kernels.matmul(2, 4, 8), Dot(PAIRS16, "k"), "adds up in int32, the sum is float32"),
        (product(2, 4, 8, i32, i32), Dot(PAIRS16, "k"), "the factors are not such"),
        (product(2, 4, 8, sums=dtypes.int64), Dot(PAIRS16, "k"), "the sum is int64"),
        (kernels.row_sum(2, 8), Dot(PAIRS16, "k"), "is float32"),
    ],
)
def test_what_is_not_legal_is_refused_with_a_reason(sink: UOp, action: Action, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        action.apply(sink)


def test_a_padded_sum_has_zeros_in_its_last_words() -> None:
    for unit in (PAIRS16, FOURS8):
        right_on(CPU, (3, 5, 7), actions=(Pad("k", unit.depth), Dot(unit, "k")))


def test_the_action_is_a_value() -> None:
    sink = product(2, 3, 8)
    sink = sink.replace(arg=replace(sink.arg, schedule=(Dot(PAIRS16, "k"),)))
    assert parse(to_text(sink)) is sink


# ---- the heuristic


@pytest.mark.parametrize("target", [CPU, PAIRS, LANES32], ids=["fours", "pairs", "lanes"])
def test_products_of_bytes_use_the_best_instruction(target: Target) -> None:
    pick = random.Random("dots")
    wanted = target.dot_units[0].name
    for _ in range(2):
        m, n, k = (pick.randint(17, 40) for _ in "mnk")
        program = right_on(target, (m, n, k))
        assert units(program) == {wanted}
        sink = product(m, n, k)
        schedule = schedule_of(sink, target)
        assert lower(sink.replace(arg=replace(sink.arg, schedule=schedule)), target) == program


def test_other_products_use_another_or_none() -> None:
    assert units(right_on(CPU, (24, 24, 24), u8, u8)) == {"pairs16"}
    assert units(right_on(CPU, (24, 24, 24), i16, i16)) == {"pairs16"}
    assert units(right_on(CPU, (24, 24, 24), i32, i8)) == set()
    assert units(right_on(CPU, (1, 24, 24))) == set()
    assert units(right_on(LANES32, (24, 24, 24), u8, i8)) == set()


@pytest.mark.parametrize("left", [i8, u8, i16], ids=str)
@pytest.mark.parametrize("shape", [(37, 45, 51)])
def test_compiled_products_are_exact(left: DType, shape: tuple[int, int, int]) -> None:
    try:
        device = DEVICES["CPU"]
    except OpgraftError as error:
        pytest.skip(f"the CPU has no C compiler: {error}")
    right = i16 if left is i16 else i8
    a, b = memory(shape, left, right)
    arrays = [np.zeros(shape[0] * shape[1], np.int32), a.reshape(-1), b.reshape(-1)]
    buffers = []
    for values in arrays:
        buffer = device.buffer(values.nbytes)
        buffer.copy_in(memoryview(values.view(np.uint8)))
        buffers.append(buffer)
    compile_kernel(device, product(*shape, left, right)).run(buffers, wait=True)
    buffers[0].copy_out(memoryview(arrays[0].view(np.uint8)))
    wanted = a.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(arrays[0].reshape(wanted.shape), wanted)


# ---- words of what lies in memory


def loads(program: LinearProgram, dtype: DType = i8) -> dict[int, int]:
    """LOADs of elements of a dtype, by how many they move."""
    found: dict[int, int] = {}
    for n in program.instructions:
        if n.op is Ops.LOAD and n.dtype.scalar is dtype:
            found[n.dtype.count] = found.get(n.dtype.count, 0) + 1
    return found


def test_rows_are_packed_as_they_lie_and_converted_in_vectors() -> None:
    """Sixteen bytes become eight words of two, 32 of four; nothing is packed byte by byte."""
    assert loads(right_on(PAIRS, (12, 192, 32))) == {8: 2, 16: 1}
    assert set(loads(right_on(CPU, (12, 192, 32)))) == {8, 32}


def matrix_vector(rows: int, depth: int, at: int = 0) -> UOp:
    """A matrix times a vector, of bytes; the product is kept in slot `at`, as what is there is."""
    i, k = loop(rows, "i"), over(depth, "k")
    a, b = param(1, rows * depth, i8), param(2, depth, i8)
    value = (a.load(i * depth + k).cast(i32) * b.load(k).cast(i32)).reduce(Ops.ADD, k)
    out = param(at, rows * depth if at else rows, i8 if at else i32)
    kept = value.cast(i8) if at else value
    return kernel("vector", out.store(i * depth if at else i, kept).end(i))


@pytest.mark.parametrize("target", [CPU, PAIRS], ids=["fours", "pairs"])
def test_a_matrix_times_a_vector_is_words_as_they_lie(target: Target) -> None:
    program = lower(matrix_vector(9, 128), target)
    assert units(program) == {target.dot_units[0].name}
    assert set(loads(program)) == {8 * target.dot_units[0].depth}
    a, b = memory((9, 1, 128), i8, i8)
    got = np.zeros(9, np.int32)
    execute(program, [got, a.reshape(-1), b.reshape(-1)])
    assert np.array_equal(got, a.astype(np.int32) @ b[:, 0].astype(np.int32))


def test_numbers_that_are_known_to_be_narrow_are_factors() -> None:
    """Zero points: 0 .. 255 less 7 fits two bytes, -128 .. 127 less 3 as well."""
    m, n, k = 12, 192, 32
    i, j, depth = loop(m, "i"), loop(n, "j"), over(k, "k")
    x = param(1, m * k, u8).load(i * k + depth).cast(i32) + -7
    y = param(2, k * n, i8).load(depth * n + j).cast(i32) + 3
    total = (x * y).reduce(Ops.ADD, depth)
    sink = kernel("points", param(0, m * n, i32).store(i * n + j, total).end(i, j))
    program = lower(sink, PAIRS)
    assert units(program) == {"pairs16"}
    assert set(loads(program, u8)) == {16}
    a, b = memory((m, n, k), u8, i8)
    got = np.zeros(m * n, np.int32)
    execute(program, [got, a.reshape(-1), b.reshape(-1)])
    assert np.array_equal(got.reshape(m, n), (a.astype(np.int32) - 7) @ (b.astype(np.int32) + 3))
    with pytest.raises(Refused, match="the factors are not such"):
        Dot(FOURS8, "k").apply(sink)


def test_words_that_are_shorter_than_a_vector_or_torn_are_no_gain() -> None:
    for depth in (8, 127):
        assert units(lower(matrix_vector(9, depth), PAIRS)) == set()


def test_an_array_that_the_kernel_stores_to_is_read_element_by_element() -> None:
    program = lower(matrix_vector(9, 128, at=1), PAIRS)
    assert units(program) == set()
    sink = matrix_vector(9, 128, at=1)
    made = Dot(PAIRS16, "k").apply(sink)
    vectors = {n.src[0].arg[0] for n in made.toposort() if n.op is Ops.LOAD and n.dtype.count > 1}
    assert vectors == {2}
