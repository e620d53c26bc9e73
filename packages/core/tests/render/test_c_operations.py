"""Every elementwise operation, compiled from rendered C, gives the value that `alu` defines."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.ir import GroupOp, Ops, UOp
from opgraft.ir.evaluate import alu, value_to_bits
from opgraft.render.c import CRenderer
from opgraft.target import Target

from .kernels import call, elementwise, merged

INTS = list(dtypes.ints)
FLOATS = [dtypes.float32, dtypes.float64]
LANES = [1, 8]


def edges(dtype: DType) -> list[Any]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        tiny = 2.0 ** (-149 if dtype is dtypes.float32 else -1074)
        huge = float(np.finfo(dtype.name).max)
        found = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, tiny, -tiny, huge, -huge]
        found += [math.inf, -math.inf, math.nan, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64]
        found += [127.9, -128.9, 128.0, 255.5, 2147483520.0, 0.1, -7.3, 16777217.0]
        found += [-2147483649.0, 4294967295.0, 2.0**32, 1e-30]
        return [dtype.const(v) for v in found]
    least, greatest = int(dtype.min), int(dtype.max)
    found = [0, 1, 2, 3, 7, 31, 63, greatest, greatest - 1, greatest // 3, least, least + 1]
    found += [-1, -2, -7] if dtype.is_signed else [1 << (dtype.bits - 1), dtype.bits]
    return list(dict.fromkeys(dtype.const(v) for v in found))


def as_array(dtype: DType, values: list[Any]) -> np.ndarray:
    if dtype.is_bool:
        return np.array(values, "uint8")
    with np.errstate(all="ignore"):
        return np.array(values, dtype.name)


def same(dtype: DType, got: Any, want: Any) -> bool:
    if dtype.is_float:
        got, want = float(got), float(want)
        if math.isnan(want):
            return math.isnan(got)
        return value_to_bits(got, dtype) == value_to_bits(want, dtype)
    return int(got) == int(want)


Case = tuple[Ops, DType, tuple[DType, ...], list[tuple[Any, ...]]]


@pytest.fixture
def run_all(compile_c: Callable[[str], ctypes.CDLL]) -> Callable[[list[Case], int], None]:
    """Compiles all cases in one source, runs each, and compares every lane."""

    def run(cases: list[Case], lanes: int) -> None:
        renderer = CRenderer(Target("cpu", vector_bytes=32))
        programs = []
        for number, (op, dtype, operands, rows) in enumerate(cases):
            rows.extend(rows[:1] * (-len(rows) % 16))
            made = partial(_apply, op, dtype.vec(lanes))
            program = elementwise(made, operands, len(rows), lanes, f"k{number}")
            programs.append(program)
        library = compile_c(merged(renderer, programs))
        wrong = []
        for (op, dtype, operands, rows), program in zip(cases, programs):
            columns = zip(*rows)
            arrays = [as_array(d, list(c)) for d, c in zip(operands, columns)]
            out = np.zeros(len(rows), "uint8" if dtype.is_bool else dtype.name)
            call(getattr(library, renderer.entry(program.name)), [out, *arrays])
            for row, value in zip(rows, out):
                want = alu(op, dtype, operands, row)
                if not same(dtype, value, want):
                    wrong.append(f"{op} {dtype} of {operands} {row}: {value}, not {want}")
        assert not wrong, "\n".join(wrong[:20])

    return run


def _apply(op: Ops, dtype: DType, *values: UOp) -> UOp:
    return UOp(op, dtype, values)


def binary_cases() -> list[tuple[Ops, DType]]:
    arithmetic = [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, *GroupOp.COMPARISON]
    cases = [(op, d) for op in arithmetic for d in (dtypes.bool, *INTS, *FLOATS)]
    cases += [(op, d) for op in (Ops.AND, Ops.OR, Ops.XOR) for d in (dtypes.bool, *INTS)]
    cases += [(op, d) for op in (Ops.SHL, Ops.SHR, Ops.CDIV, Ops.CMOD) for d in INTS]
    cases += [(Ops.FDIV, d) for d in FLOATS]
    return sorted(cases, key=lambda c: (c[0].value, c[1].name))


@pytest.mark.parametrize("lanes", LANES)
def test_binary_operations_have_their_exact_meaning(run_all: Any, lanes: int) -> None:
    cases = []
    for op, dtype in binary_cases():
        result = dtypes.bool if op in GroupOp.COMPARISON else dtype
        rows = list(itertools.product(edges(dtype), repeat=2))
        cases.append((op, result, (dtype, dtype), rows))
    run_all(cases, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_casts_saturate_wrap_and_round_once(run_all: Any, lanes: int) -> None:
    every = [dtypes.bool, *INTS, *FLOATS]
    cases = [
        (Ops.CAST, target, (source,), [(v,) for v in edges(source)])
        for source in every
        for target in every
        if source is not target
    ]
    run_all(cases, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_other_operations_have_their_exact_meaning(run_all: Any, lanes: int) -> None:
    cases: list[Case] = []
    for d in FLOATS:
        cases += [(op, d, (d,), [(v,) for v in edges(d)]) for op in (Ops.SQRT, Ops.TRUNC)]
        some = edges(d)[:22]
        cases.append((Ops.MULACC, d, (d,) * 3, list(itertools.product(some, some, some[:12]))))
    cases += [
        (Ops.MULACC, d, (d,) * 3, list(itertools.product(edges(d)[-6:], repeat=3))) for d in INTS
    ]
    for d in (dtypes.bool, *INTS, *FLOATS):
        rows = list(itertools.product([True, False], edges(d)[:4], edges(d)[-4:]))
        cases.append((Ops.WHERE, d, (dtypes.bool, d, d), rows))
    for a, b in [(dtypes.float32, dtypes.int32), (dtypes.float64, dtypes.uint64)]:
        cases.append((Ops.BITCAST, b, (a,), [(v,) for v in edges(a) if v == v]))
        cases.append((Ops.BITCAST, a, (b,), [(v,) for v in edges(b)]))
    run_all(cases, lanes)
