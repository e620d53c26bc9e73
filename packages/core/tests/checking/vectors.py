"""The value of a graph on many assignments at once, by NumPy: a second, independent meaning.

Each dtype lives in an array that wraps or rounds as it does: integers in NumPy's own (those of
unusual widths in wider ones, and are wrapped), `index` in int64, float32 and float64 in
themselves. float16 is computed in float32 and rounded after each operation, bfloat16 so in
float64: that is exact (24 >= 2 * 11 + 2, and float64 has the exponents of its subnormals too).
Arrays need not have one shape: they are broadcast.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.reduction import identity
from opgraft.ir.uop import toposort

from .reference import PLACES

Array = Any
_LIMIT: Final = 1 << 62  # of indices
_UNKNOWN: Final = frozenset({*GroupOp.ELEMENTARY, Ops.THREEFRY, Ops.MULACC, Ops.BITCAST, Ops.STORE})
_FLOATS: Final = {
    dtypes.float16: np.dtype(np.float32),
    dtypes.bfloat16: np.dtype(np.float64),
    dtypes.float32: np.dtype(np.float32),
    dtypes.float64: np.dtype(np.float64),
}


def held(dtype: DType) -> np.dtype[Any]:
    """What values of the dtype are held in."""
    if dtype.is_float:
        return _FLOATS[dtype]
    if dtype.is_bool:
        return np.dtype(np.bool_)
    if dtype.is_index:
        return np.dtype(np.int64)
    width = next(w for w in (8, 16, 32, 64) if w >= dtype.bits)
    return np.dtype(f"{'int' if dtype.is_signed else 'uint'}{width}")


def _magnitude(n: UOp) -> int | float:
    return max(abs(n.vmin), abs(n.vmax))


def suits(*roots: UOp) -> bool:
    """Whether no intermediate of these graphs leaves its array, and every op is known here."""
    for n in toposort(roots):
        if n.op in _UNKNOWN or n.dtype.count != 1:
            return False
        if n.dtype.is_index:
            if not _magnitude(n) < _LIMIT:
                return False
            if n.op is Ops.MUL and not _magnitude(n.src[0]) * _magnitude(n.src[1]) < _LIMIT:
                return False
        if n.op is Ops.MOD and n.dtype.is_float:
            return False
        if n.op is Ops.CAST and n.dtype is dtypes.bfloat16:
            source = n.src[0].dtype
            if source.is_index or (source.is_int and source.bits > 32):
                return False  # on the way through float64 it would be rounded twice
    return True


def rounded(dtype: DType, values: Array) -> Array:
    """Values of a wider float, or of integers, rounded once to the dtype, to nearest even."""
    with np.errstate(all="ignore"):
        if dtype is dtypes.float16:
            return values.astype(np.float16).astype(np.float32)
        if dtype is not dtypes.bfloat16:
            return values.astype(held(dtype), copy=False)
        values = values.astype(np.float64, copy=False)
        _, power = np.frexp(values)
        unit = np.ldexp(1.0, np.maximum(power - 1, -126) - 7)
        made = np.rint(values / unit) * unit
        made = np.where(np.abs(made) >= 2.0**128, np.copysign(np.inf, values), made)
        made = np.where(np.isfinite(values), made, values)
        return np.where(made == 0, np.copysign(0.0, values), made)


def wrapped(dtype: DType, values: Array) -> Array:
    """Integers as the integer dtype holds them."""
    values = values.astype(held(dtype), copy=False)
    width = 8 * values.dtype.itemsize
    if dtype.is_index or dtype.bits == width:
        return values
    mask = values.dtype.type((1 << dtype.bits) - 1)
    values = values & mask
    if dtype.is_signed:
        sign = values.dtype.type(1 << (dtype.bits - 1))
        values = (values ^ sign) - sign
    return values


def evaluate(roots: tuple[UOp, ...], env: Mapping[UOp, Array]) -> dict[UOp, Array]:
    """The values of each node on the way to the roots, outside of reductions."""
    done: dict[UOp, Array] = dict(env)
    with np.errstate(all="ignore"):
        for n in toposort(roots, lambda n: n not in env and n.op is not Ops.REDUCE):
            if n not in done:
                done[n] = _value(n, done, env)
    return done


def _constant(n: UOp) -> Array:
    return np.asarray(n.arg, held(n.dtype))


def _value(n: UOp, done: dict[UOp, Array], env: Mapping[UOp, Array]) -> Array:
    op = n.op
    if op is Ops.CONST:
        return _constant(n)
    if op in GroupOp.ALU:
        operands = [done[s] for s in n.src]
        if op is Ops.CAST:
            return _cast(n.src[0].dtype, n.dtype, operands[0])
        return _alu(op, n.dtype, n.src[0].dtype, operands)
    if op is Ops.PARAM:
        return n.arg[0]
    if op is Ops.LOAD:
        place = (done[n.src[1]] % len(PLACES) * 5 + done[n.src[0]]) % len(PLACES)
        found = np.array([n.dtype.const(v) for v in PLACES], held(n.dtype))[place]
        if len(n.src) == 4:
            found = np.where(done[n.src[2]], found, done[n.src[3]])
        return found
    if op is Ops.REDUCE:
        return _reduced(n, env)
    raise KeyError(n)


def _reduced(n: UOp, env: Mapping[UOp, Array]) -> Array:
    total = _constant(identity(n.arg, n.dtype))
    ranges = n.src[1:]
    sizes = [evaluate((r.src[0],), env)[r.src[0]] for r in ranges]
    for turn in itertools.product(*[range(int(np.max(s))) for s in sizes]):
        inner = {k: v for k, v in env.items() if k.op is not Ops.REDUCE}
        inner.update((r, np.asarray(v, np.int64)) for r, v in zip(ranges, turn))
        value = evaluate((n.src[0],), inner)[n.src[0]]
        runs: Array = np.bool_(True)
        for at, size in zip(turn, sizes):
            runs = runs & np.less(at, size)
        total = np.where(runs, _alu(n.arg, n.dtype, n.dtype, [total, value]), total)
    return total


def _cast(source: DType, target: DType, a: Array) -> Array:
    if target.is_bool:
        return np.not_equal(a, 0)
    if target.is_float:
        return rounded(target, a)
    if not source.is_float:
        return wrapped(target, a)
    whole = np.where(np.isnan(a), 0.0, np.trunc(a))
    low, high = (-_LIMIT, _LIMIT) if target.is_index else (int(target.min), int(target.max))
    # as a float the greatest integer may be rounded up to what does not fit
    inside = (whole > float(low)) & (whole < float(high))
    made = np.where(inside, whole, 0.0).astype(held(target))
    least, most = (np.asarray(v, held(target)) for v in (low, high))
    return np.where(inside, made, np.where(whole <= float(low), least, most))


def _alu(op: Ops, dtype: DType, source: DType, values: list[Array]) -> Array:
    if op is Ops.WHERE:
        return np.where(values[0], values[1], values[2])
    if op is Ops.CMPLT:
        if source.is_bool:
            return ~values[0] & values[1]
        return np.less(values[0], values[1])
    if op is Ops.CMPEQ:
        return np.equal(values[0], values[1])
    if op is Ops.CMPNE:
        return np.not_equal(values[0], values[1])
    if dtype.is_float:
        return _float(op, dtype, values)
    a, b = values
    if dtype.is_bool:
        if op in (Ops.ADD, Ops.OR, Ops.MAX):
            return a | b
        return a ^ b if op is Ops.XOR else a & b
    return wrapped(dtype, np.asarray(_integer(op, dtype, a, b)))


def _integer(op: Ops, dtype: DType, a: Array, b: Array) -> Array:
    if op is Ops.ADD:
        return a + b
    if op is Ops.MUL:
        return a * b
    if op is Ops.MAX:
        return np.maximum(a, b)
    if op is Ops.MIN:
        return np.minimum(a, b)
    if op is Ops.AND:
        return a & b
    if op is Ops.OR:
        return a | b
    if op is Ops.XOR:
        return a ^ b
    if op in (Ops.IDIV, Ops.MOD, Ops.CDIV, Ops.CMOD):
        return _divided(op, a, b)
    inside = (b >= 0) & (b < (63 if dtype.is_index else dtype.bits))
    count = np.where(inside, b, np.zeros_like(b))
    if op is Ops.SHL:
        return np.where(inside, np.left_shift(a, count), np.zeros_like(a))
    if op is Ops.SHR:
        sign = np.zeros_like(a) if not dtype.is_signed else -(a < 0).astype(a.dtype)
        return np.where(inside, np.right_shift(a, count), sign)
    raise KeyError(op)


def _divided(op: Ops, a: Array, b: Array) -> Array:
    """Quotient or remainder; 0 where b is."""
    zero = b == 0
    by = np.where(zero, np.ones_like(b), b) if np.any(zero) else b
    if op is Ops.IDIV:
        found = np.floor_divide(a, by)
    elif op is Ops.MOD:
        found = np.remainder(a, by)
    else:
        found = np.fmod(a, by)  # C's remainder
        if op is Ops.CDIV:
            found = np.floor_divide(a - found, by)
    return np.where(zero, np.zeros_like(found), found) if by is not b else found


def _float(op: Ops, dtype: DType, values: list[Array]) -> Array:
    if op is Ops.TRUNC:
        return np.copysign(np.trunc(values[0]), values[0])
    if op is Ops.SQRT:
        return rounded(dtype, np.sqrt(values[0]))
    a, b = values
    if op is Ops.ADD:
        return rounded(dtype, a + b)
    if op is Ops.MUL:
        return rounded(dtype, a * b)
    if op is Ops.FDIV:
        return rounded(dtype, np.divide(a, b))
    # which of two zeros NumPy takes depends on their order; it hands on nan
    zeros = (a == 0) & (b == 0)
    if op is Ops.MAX:
        return np.where(zeros, a + b, np.maximum(a, b))
    if op is Ops.MIN:
        return np.where(zeros, -(-a - b), np.minimum(a, b))
    raise KeyError(op)
