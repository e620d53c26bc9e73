"""Factors of sums of products, in the dtypes that an instruction multiplies."""

from __future__ import annotations

from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Refused


def multiplied(reduce: UOp) -> tuple[UOp, UOp]:
    """The two factors of a sum of products. Raises Refused.

    Where the sum was made longer (see opt/pad.py), both are 0 in its further iterations.
    """
    value = reduce.src[0]
    where = None
    if value.op is Ops.WHERE and value.src[2].const_value == 0 and value.src[1].op is Ops.MUL:
        where, value = value.src[:2]
    if reduce.arg is not Ops.ADD or value.op is not Ops.MUL or value.dtype.is_bool:
        raise Refused(f"what is reduced over {reduce.src[1].arg[0]} is no sum of products")
    x, y = value.src
    if where is None:
        return x, y
    return where.where(x, x.const_like(0)), where.where(y, y.const_like(0))


def narrowed(value: UOp, dtype: DType) -> UOp | None:
    """A value of `dtype` that is the same number as `value`; None where none is known."""
    if value.dtype is dtype:
        return value
    if _holds(dtype, value.dtype):
        return value.cast(dtype)
    if value.op is Ops.WHERE and value.src[2].const_value == 0:
        inner = narrowed(value.src[1], dtype)
        return None if inner is None else value.src[0].where(inner, inner.const_like(0))
    if value.op is Ops.CAST and _holds(value.dtype, value.src[0].dtype):
        source = value.src[0]
        if _holds(dtype, source.dtype):
            return source.cast(dtype)
    within = value.dtype.is_int and dtype.is_int
    return value.cast(dtype) if within and _fits(value, dtype) else None


def _fits(value: UOp, dtype: DType) -> bool:
    """Whether an integer is known to be one of a narrower dtype."""
    return bool(dtype.min <= value.vmin and value.vmax <= dtype.max)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of one dtype is one of the other."""
    if wide.is_float and narrow.is_float:
        return wide.exponent >= narrow.exponent and wide.mantissa >= narrow.mantissa
    if wide.is_int and narrow.is_int:
        return bool(wide.min <= narrow.min and narrow.max <= wide.max)
    return wide is narrow
