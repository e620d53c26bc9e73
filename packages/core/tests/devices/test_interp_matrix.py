"""INTERP carries out matrix units across threads, and names what is wrong with a use of one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from opgraft import dtypes
from opgraft.devices.interp.executor import execute
from opgraft.devices.invented import LANES32, LANES64
from opgraft.errors import DeviceError
from opgraft.ir.argument import format_value
from opgraft.ir.matrix import SIDES, DotUnit, MatrixLayout, MatrixUnit, Operand
from opgraft.ir.text import parse_linear

UNITS = [*LANES32.matrix_units, *LANES64.matrix_units]
TINY = MatrixUnit(
    "tiny",
    (2, 2, 2),
    (dtypes.float32,) * 3,
    4,
    MatrixLayout((("m", 2, 1), ("k", 2, 1))),
    MatrixLayout((("n", 2, 1), ("k", 2, 1))),
    MatrixLayout((("n", 2, 1), ("m", 2, 1))),
)


def program(unit: MatrixUnit, groups: int, threads: int, around: str = "{}") -> str:
    """Each thread loads what it holds from memory of its own, and stores what it gets."""
    sizes = {o: unit.registers(o) for o in SIDES}
    count = groups * threads
    dtype = {o: unit.dtype(o) for o in SIDES}
    body = around.format(
        f"  %d: {unit.held('c')} = matrix[{format_value(unit)}](%la, %lb, %lc)\n"
        "  store(%c, %ic, %d)\n"
    )
    return (
        'linear["k"]\n'
        + "".join(
            f"%{o}: {dtype[o]} = param[{i}, {count * sizes[o]}]\n" for i, o in enumerate("abc")
        )
        + f'%g: int32 = special["group0", {groups}]\n%t: int32 = special["thread0", {threads}]\n'
        + "params %a %b %c\nbody\n"
        + f"  %first: int32 = mul(%g, {threads})\n  %me: int32 = add(%first, %t)\n"
        + "".join(
            f"  %i{o}: int32 = mul(%me, {sizes[o]})\n  %l{o}: {unit.held(o)} = load(%{o}, %i{o})\n"
            for o in "abc"
        )
        + body
        + f"launch[({groups},), ({threads},)]\nwritten[2,]\noperations[0]\n"
    )


def spread(unit: MatrixUnit, operand: Operand, matrices: np.ndarray) -> np.ndarray:
    """What all threads hold of matrices, one for each block of threads, by the layout's words."""
    row, column = SIDES[operand]
    layout = unit.layout(operand)
    parts = []
    for matrix in matrices:
        for lane in range(unit.threads):
            for register in range(layout.size):
                place = layout.at(lane, register)
                parts.append(matrix[place.get(row, 0), place.get(column, 0)])
    return np.array(parts, dtype=matrices.dtype)


def stored(values: np.ndarray, bfloat16: bool) -> np.ndarray:
    return (values.view(np.uint32) >> 16).astype(np.uint16) if bfloat16 else values


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
def test_blocks_of_threads_each_multiply_their_matrices(unit: MatrixUnit) -> None:
    groups, blocks = 3, 2
    (m, n, k), count = unit.shape, groups * blocks
    pick = np.random.default_rng(0)
    names = {o: str(unit.dtype(o)).replace("bfloat16", "float32") for o in SIDES}
    a = pick.integers(-3, 4, (count, m, k)).astype(names["a"])
    b = pick.integers(-3, 4, (count, k, n)).astype(names["b"])
    c = pick.integers(-3, 4, (count, m, n)).astype(names["c"])
    half = unit.dtype("a") is dtypes.bfloat16
    arrays = [
        stored(spread(unit, "a", a), half),
        stored(spread(unit, "b", b), half),
        spread(unit, "c", c),
    ]
    execute(parse_linear(program(unit, groups, blocks * unit.threads)), arrays)
    wanted = c + a.astype(c.dtype) @ b.astype(c.dtype)
    assert np.array_equal(arrays[2], spread(unit, "c", wanted))


def run_tiny(text: str, threads: int = 8) -> None:
    execute(parse_linear(text), [np.ones(threads, np.float32) for _ in range(3)])


def fails(text: str, says: str, threads: int = 8) -> None:
    with pytest.raises(DeviceError, match=re.escape(says)) as caught:
        run_tiny(text, threads)
    assert "matrix[MatrixUnit" in str(caught.value)


def test_all_threads_of_a_block_are_there() -> None:
    half = "  %part: bool = cmplt(%t, {})\n  if(%part)\n{{}}  endif(%if)\n"
    torn = half.replace("  if(", "  %if: void = if(")
    run_tiny(program(TINY, 1, 8, torn.format(4)))
    fails(program(TINY, 1, 8, torn.format(6)), "in thread 6 of group 0 is not reached")


def test_groups_are_multiples_of_its_threads() -> None:
    fails(program(TINY, 1, 6), "takes 4 threads together, of groups of 6", 6)


def test_without_groups_there_are_no_blocks() -> None:
    text = program(TINY, 1, 1).replace("launch[(1,), (1,)]", "launch[(), ()]")
    text = re.sub(r"%[gt]: int32 = special.*\n", "", text).replace("%g, 1", "0:int32, 1")
    fails(text.replace("%first, %t", "%first, 0"), "takes 4 threads together, of groups of 1", 1)


def test_threads_that_repeat_others_hold_the_same() -> None:
    unit = next(u for u in UNITS if u.a.repeats > 1)
    ones = [np.ones(unit.threads * unit.registers(o), np.int8) for o in ("a", "b")]
    sums = np.zeros(unit.threads * unit.registers("c"), np.int32)
    text = program(unit, 1, unit.threads)
    execute(parse_linear(text), [*ones, sums])
    assert set(sums.tolist()) == {unit.shape[2]}
    ones[0][unit.registers("a") * 17 + 3] = 2
    with pytest.raises(DeviceError, match=r"thread 1 .* another value in register 3 of a than"):
        execute(parse_linear(text), [*ones, sums])


# ---- dot instructions


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("int8", "int8", "int32"),
        ("uint8", "int8", "int32"),
        ("int16", "int16", "int32"),
        ("float16", "float16", "float32"),
    ],
)
def test_a_dot_multiplies_the_parts_of_words(a: str, b: str, c: str) -> None:
    unit = DotUnit("dot", tuple(getattr(dtypes, d) for d in (a, b, c)))  # type: ignore[arg-type]
    text = (
        f'linear["k"]\n%a: int32 = param[0, 4]\n%b: int32 = param[1, 4]\n%c: {c} = param[2, 4]\n'
        "params %a %b %c\nbody\n  %x: int32x4 = load(%a, 0:int32)\n"
        f"  %y: int32x4 = load(%b, 0:int32)\n  %z: {c}x4 = load(%c, 0:int32)\n"
        f"  %d: {c}x4 = dot[{format_value(unit)}](%x, %y, %z)\n"
        "  store(%c, 0:int32, %d)\nwritten[2,]\noperations[0]\n"
    )
    pick = np.random.default_rng(0)

    def parts(name: str) -> np.ndarray:
        if name.startswith("float"):
            return pick.integers(-99, 99, (4, unit.depth)).astype(name)
        ends = np.iinfo(name)
        found = pick.integers(ends.min, ends.max + 1, (4, unit.depth)).astype(name)
        found[0] = ends.min
        return found

    x, y, z = parts(a), parts(b), pick.integers(-9, 9, 4).astype(c)
    wanted = z.copy()
    for k in range(unit.depth):
        wanted += x[:, k].astype(c) * y[:, k].astype(c)
    execute(parse_linear(text), [x.view(np.int32), y.view(np.int32), z])
    assert np.array_equal(z, wanted)
