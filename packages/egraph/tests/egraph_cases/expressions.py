"""Random expressions of the IR, and their values at random points. Seeded, so always the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opgraft.api import DType, Ops, UOp, dtypes, evaluate

INDEX = tuple(UOp.variable(n, lo, hi) for n, lo, hi in (("i", 0, 7), ("j", 0, 3), ("k", -5, 15)))
INTS = tuple(UOp.variable(n, -128, 127, dtypes.int8) for n in ("p", "q"))
BOOLS = tuple(UOp.variable(n, False, True, dtypes.bool) for n in ("s", "t"))
FLOATS = tuple(UOp.variable(n, float("-inf"), float("inf"), dtypes.float32) for n in ("u", "v"))
LEAVES: Mapping[DType, Sequence[UOp]] = {
    dtypes.index: INDEX,
    dtypes.int8: INTS,
    dtypes.bool: BOOLS,
    dtypes.float32: FLOATS,
}
_SUMS = (Ops.ADD, Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)
_WHOLE = (*_SUMS, Ops.IDIV, Ops.MOD)
_BITS = (*_WHOLE, Ops.AND, Ops.OR, Ops.XOR)


def expression(rng: random.Random, dtype: DType, depth: int) -> UOp:
    """An expression of a dtype, at most so deep."""
    if depth == 0 or rng.random() < 0.1:
        return _leaf(rng, dtype)
    below = depth - 1
    if rng.random() < 0.12:
        condition = expression(rng, dtypes.bool, below)
        return condition.where(expression(rng, dtype, below), expression(rng, dtype, below))
    if dtype.is_bool:
        if rng.random() < 0.5:
            source = rng.choice((dtypes.index, dtypes.int8, dtypes.index))
            op = rng.choice((Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE))
            return expression(rng, source, below).alu(op, expression(rng, source, below))
        op = rng.choice((Ops.AND, Ops.OR, Ops.XOR))
        return expression(rng, dtype, below).alu(op, expression(rng, dtype, below))
    if dtype.is_float:
        op = rng.choice((*_SUMS, Ops.FDIV))
        return expression(rng, dtype, below).alu(op, expression(rng, dtype, below))
    if rng.random() < 0.1:
        other = dtypes.int8 if dtype.is_index else dtypes.index
        return expression(rng, other, below).cast(dtype)
    left = expression(rng, dtype, below)
    op = rng.choice(_WHOLE if dtype.is_index else _BITS)
    if op in (Ops.IDIV, Ops.MOD) and rng.random() < 0.9:
        return left.alu(op, rng.choice((2, 3, 4, 6, 8)))
    return left.alu(op, expression(rng, dtype, below))


def _leaf(rng: random.Random, dtype: DType) -> UOp:
    if rng.random() < 0.35:
        if dtype.is_bool:
            return UOp.const(dtype, rng.random() < 0.5)
        if dtype.is_float:
            return UOp.const(dtype, rng.choice((0.0, -0.0, 1.0, 2.0, 0.5, float("inf"))))
        return UOp.const(dtype, rng.choice((0, 1, -1, 2, 3, 4, 7, 8)))
    return rng.choice(list(LEAVES[dtype]))


def points(rng: random.Random, count: int) -> Iterator[dict[UOp, Any]]:
    """Values of all variables."""
    for _ in range(count):
        made: dict[UOp, Any] = {}
        for n in (*INDEX, *INTS):
            made[n] = rng.randint(n.arg[1], n.arg[2])
        for n in BOOLS:
            made[n] = rng.random() < 0.5
        for n in FLOATS:
            special = (0.0, -0.0, 1.0, -1.0, float("inf"), float("nan"), rng.uniform(-9, 9))
            made[n] = n.dtype.const(rng.choice(special))
        yield made


def same(a: UOp, b: UOp, rng: random.Random, count: int = 40) -> bool:
    """Whether two expressions have the same value at random points."""
    return all(repr(evaluate(a, at)) == repr(evaluate(b, at)) for at in points(rng, count))
