"""What REDUCE, SCAN and HREDUCE combine with: the operation on two values, and its identity."""

from __future__ import annotations

import math

from opgraft.dtype import DType
from opgraft.ir.expansions import ANY_ZERO
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp


def identity(op: Ops, dtype: DType) -> UOp:
    """The value that changes nothing: 0, 1, the least or the greatest; of dtype's lanes.

    A float sum starts at 0.0: inside a REDUCE the sign of a zero is free (docs/meaning.md).
    """
    scalar = dtype.scalar
    if op is Ops.ADD:
        return UOp.const(dtype, 0.0 if scalar.is_float else 0)
    if op is Ops.MUL:
        return UOp.const(dtype, 1)
    if op is Ops.MAX:
        return UOp.const(dtype, -math.inf if scalar.is_float else scalar.min)
    if op is Ops.MIN:
        return UOp.const(dtype, math.inf if scalar.is_float else scalar.max)
    if op is Ops.AND:
        return UOp.const(dtype, True if scalar.is_bool else -1)
    if op is Ops.OR:
        return UOp.const(dtype, 0)
    raise ValueError(f"{op} does not reduce; the ops that do are ADD, MUL, MAX, MIN, AND and OR")


def combine(op: Ops, left: UOp, right: UOp) -> UOp:
    """`left op right`, of the dtype of `left`. The sign of a zero maximum is free in a REDUCE."""
    free = left.dtype.is_float and op in (Ops.MAX, Ops.MIN)
    return UOp(op, left.dtype, (left, right), None, ANY_ZERO if free else None)
