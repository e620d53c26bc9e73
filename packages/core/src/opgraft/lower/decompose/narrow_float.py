"""float16 and bfloat16 where the target only stores them, or not even that.

Arithmetic goes through float32 and rounds once: for +, *, / and sqrt rounding first to float32
changes nothing (24 >= 2*11 + 2 bits). Left are loads, stores, selects and the conversions from
and to float32, which a target that stores the dtype renders itself. For one that doesn't, the
dtype becomes uint16 and the conversions become integer operations (ir/half_floats.py).
"""

from __future__ import annotations

from opgraft.dtype import DType, dtypes
from opgraft.ir.evaluate import value_to_bits
from opgraft.ir.expansions import lanes_of
from opgraft.ir.half_floats import (
    integer_to_bfloat16_via32,
    narrow,
    rounded_to_bfloat16,
    to_odd32,
    widen,
)
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp
from opgraft.target import Target

HALVES = (dtypes.float16, dtypes.bfloat16)

_BITWISE = frozenset({Ops.WHERE, Ops.BITCAST, Ops.CAST})


def narrow_floats(target: Target) -> PatternMatcher:
    """The rules for the 16-bit floats that the target lacks; none where it has both."""
    lacks = tuple(d for d in HALVES if d not in target.compute)
    if not lacks:
        return PatternMatcher([])
    rules = through_float32(lacks)
    stored_as_bits = tuple(d for d in lacks if d not in target.storage)
    return rules + as_uint16(stored_as_bits) if stored_as_bits else rules


def through_float32(lacks: tuple[DType, ...]) -> PatternMatcher:
    """Before: arithmetic in these dtypes. After: in float32, rounded after every operation."""

    def arithmetic(n: UOp) -> UOp | None:
        if n.op is Ops.MULACC:
            return _multiply_add(n) if n.dtype.scalar in lacks else None
        if not any(s.dtype.scalar in lacks for s in n.src):
            return None
        sources = tuple(_as_float32(s) if s.dtype.scalar in lacks else s for s in n.src)
        if n.dtype.is_bool:
            return UOp(n.op, n.dtype, sources, n.arg, n.tag)
        return UOp(n.op, lanes_of(dtypes.float32, n), sources, n.arg, n.tag).cast(n.dtype)

    def reduction(n: UOp) -> UOp | None:
        """Sums accumulate in float32 and round once."""
        if n.dtype.scalar not in lacks:
            return None
        value = _as_float32(n.src[0])
        wide = UOp(n.op, lanes_of(dtypes.float32, n), (value, *n.src[1:]), n.arg, n.tag)
        return wide.cast(n.dtype)

    def conversion(n: UOp) -> UOp | None:
        source, result = n.src[0].dtype.scalar, n.dtype.scalar
        single = lanes_of(dtypes.float32, n)
        if source in lacks:
            before = n.src[0].src[0] if n.src[0].op is Ops.CAST else n
            if (source, result) == (dtypes.bfloat16, dtypes.float32) and before.dtype is n.dtype:
                return None if before is n else rounded_to_bfloat16(before)
            return None if result is dtypes.float32 else _as_float32(n.src[0]).cast(n.dtype)
        if result in lacks and source is not dtypes.float32:
            return _rounds_as(n.src[0], result, single).cast(n.dtype)
        return None

    computed = GroupOp.ALU - _BITWISE
    return PatternMatcher(
        [
            (UPat(set(computed), name="n"), arithmetic, "16-bit float through float32"),
            (UPat({Ops.REDUCE, Ops.SCAN, Ops.HREDUCE}, name="n"), reduction, "sum in float32"),
            (UPat(Ops.CAST, name="n"), conversion, "cast by way of float32"),
        ]
    )


def _as_float32(x: UOp) -> UOp:
    single = lanes_of(dtypes.float32, x)
    return UOp.const(single, x.const_value) if x.is_const else x.cast(single)


def _rounds_as(x: UOp, result: DType, single: DType) -> UOp:
    """A float32 that rounds to the 16-bit float as `x` itself does."""
    if x.dtype.scalar is dtypes.float64:
        return to_odd32(x)
    if x.dtype.bits <= 16:
        return x.cast(single)
    if result is dtypes.bfloat16:
        return integer_to_bfloat16_via32(x)
    # from 65520 on float16 is inf, and below that float32 is exact
    limit = 1 << 17
    x = (x < limit).where(x, x.const_like(limit))
    if x.dtype.is_signed:
        x = (x > -limit).where(x, x.const_like(-limit))
    return x.cast(single)


def _multiply_add(n: UOp) -> UOp:
    """The product is exact in float64; the sum is rounded there to odd, then once to the end."""
    double, word = lanes_of(dtypes.float64, n), lanes_of(dtypes.uint64, n)
    a, b, c = (_as_float32(s).cast(double) for s in n.src)
    product = a * b
    total = product + c
    # Knuth's two-sum: what the addition lost
    back = total - product
    lost = (product - (total - back)) + (c - back)
    bits = total.bitcast(word)
    inexact = lost.ne(0.0) & lost.eq(lost) & (bits & 1).eq(0)
    outward = (lost > 0.0) ^ (bits >> 63).eq(0) ^ True
    odd = inexact.where(outward.where(bits + 1, bits - 1), bits).bitcast(double)
    return odd.cast(n.dtype)


def as_uint16(dtypes_lacking: tuple[DType, ...]) -> PatternMatcher:
    """Before: float16 or bfloat16 in memory and registers. After: their bits as uint16."""

    def half(n: UOp) -> DType | None:
        return lanes_of(dtypes.uint16, n) if n.dtype.scalar in dtypes_lacking else None

    def memory(n: UOp) -> UOp | None:
        bits = half(n)
        return None if bits is None else UOp(n.op, bits, n.src, n.arg, n.tag)

    def load(n: UOp) -> UOp | None:
        bits = half(n)
        if bits is None:
            return None
        src = n.src if len(n.src) == 2 else (*n.src[:3], _bits(n.src[3], bits))
        return UOp(n.op, bits, src, n.arg, n.tag).bitcast(n.dtype)

    def store(n: UOp) -> UOp | None:
        bits = half(n.src[2])
        if bits is None:
            return None
        return n.with_src((*n.src[:2], _bits(n.src[2], bits), *n.src[3:]))

    def moved(n: UOp) -> UOp | None:
        """Selects and lane moves, on the bits."""
        bits = half(n)
        if bits is None:
            return None
        sources = tuple(
            s if s.dtype.scalar not in dtypes_lacking else _bits(s, lanes_of(bits, s))
            for s in n.src
        )
        return UOp(n.op, bits, sources, n.arg, n.tag).bitcast(n.dtype)

    def convert(n: UOp) -> UOp | None:
        source, result = n.src[0].dtype, n.dtype
        if source.scalar in dtypes_lacking and result.scalar is dtypes.float32:
            return widen(_bits(n.src[0], lanes_of(dtypes.uint16, n)), source)
        if result.scalar in dtypes_lacking and source.scalar is dtypes.float32:
            return narrow(n.src[0], result).bitcast(result)
        return None

    def twice(n: UOp, x: UOp) -> UOp | None:
        return x.bitcast(n.dtype) if x.dtype.bits == 16 and n.dtype.bits == 16 else None

    x = UPat.var("x")
    return PatternMatcher(
        [
            (UPat({Ops.PARAM, Ops.LOCAL, Ops.AFTER}, name="n"), memory, "buffer of bits"),
            (UPat(Ops.LOAD, name="n"), load, "load bits"),
            (UPat(Ops.STORE, name="n"), store, "store bits"),
            (
                UPat({Ops.WHERE, Ops.BROADCAST, Ops.STACK, Ops.EXTRACT}, name="n"),
                moved,
                "move bits",
            ),
            (UPat(Ops.CAST, name="n"), convert, "convert bits"),
            (UPat(Ops.BITCAST, src=(UPat(Ops.BITCAST, src=(x,)),), name="n"), twice),
        ]
    )


def _bits(x: UOp, bits: DType) -> UOp:
    if x.is_const:
        return UOp.const(bits, value_to_bits(x.const_value, x.dtype.scalar))
    return x.bitcast(bits)
