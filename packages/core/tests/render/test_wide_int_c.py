"""64-bit integers in 32-bit words, compiled: the values of `alu`."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir import AxisKind, Ops, Space, UOp, graph_rewrite, toposort
from opgraft.ir.evaluate import alu
from opgraft.ir.linear import LinearProgram
from opgraft.lower.decompose import decompositions, split_wide_integers
from opgraft.render.c import CRenderer
from opgraft.target import Target
from tested import sampled

from .kernels import call, elementwise, merged

WIDE = (dtypes.int64, dtypes.uint64)
TARGET = Target("32-bit", compute=frozenset(dtypes.all) - frozenset(WIDE), vector_bytes=32)


def split(program: LinearProgram) -> LinearProgram:
    """The program without 64-bit integers, which is checked."""
    made = split_wide_integers(program, TARGET)
    for n in made.instructions:
        for node in toposort((n,)):
            assert node.dtype.scalar not in WIDE
    return made


def numbers(dtype: DType) -> list[Any]:
    if dtype.is_float:
        found = [0.0, -0.0, 1.5, -1.5, 3e9, -3e9, 1e18, -1e18, 1e19, -1e19, 2.0**63, 2.0**64]
        return [dtype.const(v) for v in (*found, float("inf"), float("nan"), 2.0**40 + 2.0**17)]
    if dtype.is_bool:
        return [False, True]
    top = 1 << (dtype.bits - 1)
    found = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 1000, top, top - 1, top + 1, 2 * top - 1, -7, -1000]
    rng = random.Random(dtype.bits)
    found += [rng.getrandbits(rng.randint(8, 64)) for _ in range(10)]
    found += [(1 << 62) + (1 << 38), (1 << 62) + (1 << 38) + 1, (1 << 53) + 1, (3 << 24) + 1]
    return [dtype.const(v) for v in found]


SLOW = (Ops.IDIV, Ops.MOD, Ops.CDIV)

Case = tuple[Ops, DType, tuple[DType, ...], list[tuple[Any, ...]]]


def cases() -> list[Case]:
    made: list[Case] = []
    arithmetic = (Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.MIN, Ops.MOD)
    arithmetic += (Ops.IDIV, Ops.CDIV, Ops.SHL, Ops.SHR)
    for d in WIDE:
        pairs = list(itertools.product(numbers(d), numbers(d)[::2]))
        made += [(op, d, (d, d), [*pairs]) for op in arithmetic]
        made += [(op, dtypes.bool, (d, d), [*pairs]) for op in (Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE)]
        chosen = [(k % 3 == 0, *p) for k, p in enumerate(pairs)]
        made.append((Ops.WHERE, d, (dtypes.bool, d, d), chosen))
        made.append((Ops.MULACC, d, (d, d, d), [(a, b, a ^ b) for a, b in pairs]))
        for other in dtypes.all:
            if other.bits == 16 and other.is_float:
                continue
            made.append((Ops.CAST, other, (d,), [(v,) for v in numbers(d)]))
            made.append((Ops.CAST, d, (other,), [(v,) for v in numbers(other)]))
    made.append((Ops.THREEFRY, dtypes.uint64, (dtypes.uint64,) * 2, pairs[:64]))
    return made


def _apply(op: Ops, dtype: DType, *values: UOp) -> UOp:
    return graph_rewrite(UOp(op, dtype, values), decompositions(TARGET))


@pytest.mark.parametrize("lanes", sampled([4, 1], 2))
def test_every_operation_on_64_bits_in_words(
    compile_c: Callable[[str], ctypes.CDLL], lanes: int
) -> None:
    renderer, programs, todo = CRenderer(TARGET), [], cases()
    if lanes > 1:  # the long divisions make the compiler work hard, and are like the scalar ones
        todo = [case for case in todo if case[0] not in SLOW]
    else:
        todo = [c for c in todo if c[0] not in SLOW or (c[0] is Ops.MOD) == (c[1] is WIDE[0])]
    for number, (op, dtype, sources, rows) in enumerate(todo):
        rows += rows[:1] * (-len(rows) % 16)
        made = partial(_apply, op, dtype.vec(lanes))
        programs.append(split(elementwise(made, sources, len(rows), lanes, f"k{number}")))
    library = compile_c(merged(renderer, programs))
    for (op, dtype, sources, rows), program in zip(todo, programs, strict=True):
        columns = [
            np.array(c, "uint8" if d.is_bool else d.name)
            for d, c in zip(sources, zip(*rows, strict=True), strict=True)
        ]
        out = np.zeros(len(rows), "uint8" if dtype.is_bool else dtype.name)
        call(getattr(library, renderer.entry(program.name)), [out, *columns])
        for row, got in zip(rows, out.tolist(), strict=True):
            want = alu(op, dtype, sources, row)
            assert got == want or want != want, (op, dtype, sources, row, got, want)


def test_sums_carry_from_word_to_word(run_program: Callable[..., None]) -> None:
    loop = UOp(Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, 9),), ("k", AxisKind.REDUCE))
    register = UOp(Ops.LOCAL, dtypes.int64, (), ("acc", 1, Space.REGISTER))
    out, x = (UOp(Ops.PARAM, dtypes.int64, (), (s, 9)) for s in (0, 1))
    zero = UOp.const(dtypes.int32, 0)
    start = UOp(Ops.STORE, dtypes.void, (register, zero, UOp.const(dtypes.int64, -5)))
    value, old = (UOp(Ops.LOAD, dtypes.int64, p) for p in ((x, loop), (register, zero)))
    add = UOp(Ops.STORE, dtypes.void, (register, zero, old + value))
    end, last = UOp(Ops.END, dtypes.void, (loop,)), UOp(Ops.STORE, dtypes.void, (out, zero, old))
    body = (register, start, loop, value, old, old + value, add, end, old, last)
    program = split(LinearProgram("k", body, (out, x), written=(0,)))
    assert [p.arg[1] for p in program.params] == [18, 18]
    data = np.array([2**62, -(2**40), 2**31, 2**32 - 1, 7, -1, 2**33, 5, -(2**62)], "int64")
    got = np.zeros(9, "int64")
    run_program(program, [got, data])
    assert got[0] == int(data.sum()) - 5


def test_what_needs_64_bits_for_good_is_refused() -> None:
    loop = UOp(Ops.RANGE, dtypes.int64, (UOp.const(dtypes.int64, 1 << 40),), ("k", AxisKind.LOOP))
    with pytest.raises(LoweringError, match="loop k needs 64 bits"):
        split(LinearProgram("k", (loop, UOp(Ops.END, dtypes.void, (loop,))), ()))


def test_a_target_with_64_bits_keeps_the_program() -> None:
    program = LinearProgram("k", (), ())
    assert split_wide_integers(program, replace(TARGET, compute=frozenset(dtypes.all))) is program
