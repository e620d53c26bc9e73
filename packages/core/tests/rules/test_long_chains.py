"""Rewriting a chain of any operation that has rules takes work in proportion to its length."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from opgraft import DType, UOp, dtypes, graph_rewrite
from opgraft.ir import Ops
from opgraft.rules.sets import sym
from tested import sampled

Step = Callable[[UOp, UOp, int], UOp]

F32, I32, U8, INDEX, BOOL = (
    dtypes.float32,
    dtypes.int32,
    dtypes.uint8,
    dtypes.index,
    dtypes.bool,
)


def variable(dtype: DType, name: str) -> UOp:
    """Of all values that the dtype has, as far as they matter."""
    if dtype.is_bool:
        return UOp.variable(name, False, True, dtype)
    if dtype.is_float:
        return UOp.variable(name, -float("inf"), float("inf"), dtype)
    if dtype.is_index:
        return UOp.variable(name, -(10**6), 10**6)
    return UOp.variable(name, dtype.min, dtype.max, dtype)


def fresh(x: UOp, i: int) -> UOp:
    return variable(x.dtype, f"v{i}")


def number(x: UOp, i: int) -> UOp:
    value = i % 7 + 2
    return x.const_like(float(value) if x.dtype.is_float else value)


def binary(op: Ops, other: Callable[[UOp, int], UOp] | None = None) -> Step:
    """`op` over and over: with one operand, or with another one each time."""
    return lambda x, y, i: UOp(op, x.dtype, (x, y if other is None else other(x, i)))


def chains() -> dict[str, tuple[DType, Step]]:
    found: dict[str, tuple[DType, Step]] = {}
    arithmetic = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)
    for op in (*arithmetic, Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR):
        for dtype in (INDEX, I32, U8, *((F32,) if op in arithmetic else ())):
            found[f"{op.name} {dtype} by variables"] = (dtype, binary(op, fresh))
            found[f"{op.name} {dtype} by constants and one more"] = (
                dtype,
                lambda x, y, i, op=op: UOp(op, x.dtype, (x, number(x, i))) + y,
            )
    for op in (Ops.AND, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE):
        found[f"{op.name} bool"] = (BOOL, binary(op, fresh))
    for op in (Ops.SQRT, Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.TRUNC):
        found[f"{op.name}"] = (F32, lambda x, y, i, op=op: UOp(op, x.dtype, (x,)))
    found["FDIV"] = (F32, binary(Ops.FDIV))
    found["MULACC"] = (F32, lambda x, y, i: UOp(Ops.MULACC, x.dtype, (y, fresh(x, i), x)))
    found["ADD of bounded conditions"] = (BOOL, lambda x, y, i: x & (variable(INDEX, "n") < i))
    found["OR of bounds"] = (BOOL, lambda x, y, i: x | (variable(INDEX, f"n{i % 4}") < i))
    found["AND of negations"] = (BOOL, lambda x, y, i: ~x & fresh(x, i))
    for dtype in (INDEX, I32, F32):
        found[f"WHERE {dtype} on variables"] = (
            dtype,
            lambda x, y, i: variable(BOOL, f"b{i}").where(x, y),
        )
        found[f"WHERE {dtype} on what was selected"] = (dtype, lambda x, y, i: (x < y).where(x, y))
        found[f"WHERE {dtype} on bounds"] = (
            dtype,
            lambda x, y, i: (y < number(y, i * 7)).where(x, fresh(x, i)),
        )
        found[f"CAST {dtype} of comparisons"] = (dtype, lambda x, y, i: (x < y).cast(x.dtype) + y)
    for a, b in ((I32, F32), (I32, dtypes.int8), (INDEX, I32), (I32, dtypes.int64), (U8, F32)):
        found[f"CAST {a} to {b} and back"] = (a, lambda x, y, i, b=b: x.cast(b).cast(x.dtype))
        found[f"CAST {a} to {b} and more"] = (a, lambda x, y, i, b=b: x.cast(b).cast(x.dtype) + y)
    found["BITCAST"] = (I32, lambda x, y, i: x.bitcast(F32).bitcast(I32) ^ y)
    found["LOAD"] = (INDEX, lambda x, y, i: _table().load(x).cast(INDEX) + i)
    found["LOAD under a gate"] = (
        INDEX,
        lambda x, y, i: _table().load(x, (x >= 0) & (x < 100), 0).cast(INDEX),
    )
    for dtype in (INDEX, I32):
        found[f"IDIV and MOD {dtype}"] = (
            dtype,
            lambda x, y, i: (x // 3) * 5 + y if i % 2 else (x % 1000) * 7 + y,
        )
        found[f"MUL and ADD {dtype}"] = (dtype, lambda x, y, i: x * 3 + fresh(x, i % 5))
    return found


def _table() -> UOp:
    return UOp(Ops.PARAM, I32, (), (0, 1 << 20))


CHAINS = chains()


def chain(name: str, length: int) -> UOp:
    dtype, step = CHAINS[name]
    x, y = variable(dtype, "x"), variable(dtype, "y")
    for i in range(length):
        x = step(x, y, i)
    return x


def calls(name: str, length: int) -> int:
    """How many functions are called to rewrite a chain: rules, and all that they use."""
    made, count = chain(name, length), 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        graph_rewrite(made, sym)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", sampled(CHAINS, 4))
def test_work_grows_with_the_length_alone(name: str) -> None:
    calls(name, 121)  # the functions that match are compiled
    short, long = calls(name, 60), calls(name, 120)
    assert long <= 2.3 * short + 100


def test_every_operation_that_rules_name_has_a_chain() -> None:
    named = {op for rule in sym.rules for op in rule.pattern.ops or ()}
    scalar = {op for op in named if op.name not in NO_CHAIN}
    chained = {n.op for name in CHAINS for n in chain(name, 2).toposort()}
    assert scalar <= chained


NO_CHAIN = {
    # leaves, what vectors are made of, and what contains loops
    "CONST", "VAR", "BROADCAST", "EXTRACT", "STACK", "REDUCE", "STORE",
    # the quotients of C arise in lowering alone; THREEFRY takes and gives random bits
    "CDIV", "CMOD", "THREEFRY",
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["IDIV int32 by variables", "CAST int32 to int8 and back"])
def test_a_chain_of_100_000_operations_is_rewritten(name: str) -> None:
    assert sys.getrecursionlimit() == 1000
    assert graph_rewrite(chain(name, 100_000), sym).op in (Ops.IDIV, Ops.CAST)
