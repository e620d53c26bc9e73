"""Loops that are split where their indices divide them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernel_forms.kernels import kernel, loop, over, param
from kernel_forms.memory import expected, fill
from opgraft import dtypes
from opgraft.ir import Ops, UOp
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.axes import Kernel
from opgraft.opt.divisors import split_at_divisors
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2, fma=frozenset({dtypes.float32}))
DIVISIONS = {Ops.IDIV, Ops.MOD, Ops.CDIV, Ops.CMOD}


def copy(size: int, place: Callable[[UOp], UOp], inner: int = 1, rows: int = 3) -> UOp:
    """Rows, each element from another place of a row."""
    i, r, j = loop(rows, "i"), loop(size, "r"), loop(inner, "j")
    row = size * inner
    out, a = param(0, rows * row), param(1, rows * row)
    at = place(r) * inner + j if inner > 1 else place(r)
    index = i * row + (r * inner + j if inner > 1 else r)
    loops = (i, r, j) if inner > 1 else (i, r)
    return kernel("copy", out.store(index, a.load(i * row + at) * 2.0).end(*loops))


PLACES: dict[str, tuple[int, Callable[[UOp], UOp], list[int]]] = {
    # the columns of 6 x 11, as 11 x 6
    "columns": (66, lambda r: r % 11 * 6 + r // 11, [6, 11]),
    "three of one": (15, lambda r: r // 3, [5, 3]),
    "powers of two": (32, lambda r: r % 8 * 4 + r // 8, [4, 8]),
    "three parts": (60, lambda r: r % 3 * 20 + r // 12 * 4 + r // 3 % 4, [5, 4, 3]),
    "parts of a rest": (60, lambda r: r % 12 // 3 + r // 12 * 12 + r % 3 * 4, [5, 4, 3]),
}


@pytest.mark.parametrize("name", PLACES)
def test_parts_of_a_loop_become_loops_and_nothing_is_divided(name: str) -> None:
    size, place, sizes = PLACES[name]
    sink = copy(size, place)
    made = split_at_divisors(sink)
    assert [r.vmax + 1 for r in Kernel(made).spine[1:]] == sizes
    assert not any(n.op in (Ops.IDIV, Ops.MOD) for n in made.toposort())
    memory = fill(sink)
    assert expected(made, memory) == expected(sink, memory)


def test_a_program_on_a_cpu_is_without_divisions_and_its_schedule_is_written_down() -> None:
    sink = copy(66, PLACES["columns"][1], rows=9)
    program = lower(sink, CPU)
    assert not DIVISIONS & {n.op for n in program.instructions}
    again = sink.replace(arg=replace(sink.arg, schedule=schedule_of(sink, CPU)))
    assert lower(again, CPU).instructions == program.instructions


def test_threads_of_a_group_want_one_long_loop_and_divide_once_each() -> None:
    groups = Target("groups", vector_bytes=0, group_dims=3, threads_per_group=64, lanes=32)
    sink = copy(66, PLACES["columns"][1], rows=9)
    assert DIVISIONS & {n.op for n in lower(sink, groups).instructions}


LEFT: dict[str, UOp] = {
    "a sum": copy(21, lambda r: (r + 3) // 7),
    "no divisor of the extent": copy(20, lambda r: r // 3),
    "cuts that don't fit into each other": copy(24, lambda r: r // 4 + r % 6),
    "a condition on the whole": copy(21, lambda r: (r < 5).where(r // 7, r % 7)),
    "once for a row": copy(21, lambda r: r // 7 + r % 7 * 3, inner=64),
}


@pytest.mark.parametrize("name", LEFT)
def test_where_it_gains_little_or_divisions_stay_the_loop_does(name: str) -> None:
    assert split_at_divisors(LEFT[name]) is LEFT[name]


@pytest.mark.parametrize(("size", "by", "parts"), [(64, 16, 1), (66, 11, 2)])
def test_in_a_sum_a_loop_is_split_where_a_division_is_dear(size: int, by: int, parts: int) -> None:
    i, k = loop(5, "i"), over(size, "k")
    out, a = param(0, 5), param(1, 5 * size)
    value = a.load(i * size + k % by * (size // by) + k // by)
    sink = kernel("sums", out.store(i, value.reduce(Ops.ADD, k)).end(i))
    made = split_at_divisors(sink)
    (reduce,) = Kernel(made).reduces
    assert len(reduce.src) - 1 == parts
    memory = fill(sink)
    assert expected(made, memory) == expected(sink, memory)
