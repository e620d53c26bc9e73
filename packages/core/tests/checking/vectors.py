"""The value of a graph on many assignments at once, by NumPy: a second, independent meaning.

Integers up to 16 bits and small indices live in int64; floats live in float64 and are rounded
to their dtype after each operation, which is exact for float32 and narrower (53 >= 2p + 2).
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
_LIMIT: Final = 1 << 31


def suits(*roots: UOp) -> bool:
    """Whether no intermediate of these graphs leaves int64, and every op is known here."""
    for n in toposort(roots):
        if n.op in (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.THREEFRY, Ops.MULACC, Ops.BITCAST, Ops.STORE):
            return False
        if n.dtype.count != 1:
            return False
        if n.dtype.is_index:
            if not (n.vmin > -_LIMIT and n.vmax < _LIMIT):
                return False
        elif n.dtype.is_int and n.dtype.bits > 16:
            return False
        if n.op is Ops.MOD and n.dtype.is_float:
            return False
    return True


def rounded(dtype: DType, values: Array) -> Array:
    """float64 values rounded once to the dtype, to nearest even."""
    with np.errstate(all="ignore"):
        if dtype is dtypes.float64:
            return values
        if dtype is dtypes.float32:
            return values.astype(np.float32).astype(np.float64)
        if dtype is dtypes.float16:
            return values.astype(np.float16).astype(np.float64)
        _, power = np.frexp(values)
        unit = np.ldexp(1.0, np.maximum(power - 1, -126) - 7)
        made = np.rint(values / unit) * unit
        made = np.where(np.abs(made) >= 2.0**128, np.copysign(np.inf, values), made)
        made = np.where(np.isfinite(values), made, values)
        return np.where(made == 0, np.copysign(0.0, values), made)


def wrapped(dtype: DType, values: Array) -> Array:
    """int64 values as the integer dtype holds them."""
    if dtype.is_index:
        return values
    mask = (1 << dtype.bits) - 1
    values = values & mask
    if dtype.is_signed:
        values = np.where(values >> (dtype.bits - 1), values - (1 << dtype.bits), values)
    return values


def evaluate(root: UOp, env: Mapping[UOp, Array]) -> dict[UOp, Array]:
    """The values of each node on the way to `root`, outside of reductions."""
    done: dict[UOp, Array] = dict(env)
    with np.errstate(all="ignore"):
        for n in toposort((root,), lambda n: n not in env and n.op is not Ops.REDUCE):
            if n not in done:
                done[n] = _value(n, done, env)
    return done


def _constant(n: UOp) -> Array:
    if n.dtype.is_float:
        return np.float64(n.arg)
    return np.bool_(n.arg) if n.dtype.is_bool else np.int64(n.arg)


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
        place = (done[n.src[1]] * 5 + done[n.src[0]]) % len(PLACES)
        held = np.array([n.dtype.const(v) for v in PLACES])[place]
        if n.dtype.is_float:
            held = held.astype(np.float64)
        if len(n.src) == 4:
            held = np.where(done[n.src[2]], held, done[n.src[3]])
        return held
    if op is Ops.REDUCE:
        return _reduced(n, env)
    raise KeyError(n)


def _reduced(n: UOp, env: Mapping[UOp, Array]) -> Array:
    total = _constant(identity(n.arg, n.dtype))
    ranges = n.src[1:]
    sizes = [evaluate(r.src[0], env)[r.src[0]] for r in ranges]
    for turn in itertools.product(*[range(int(np.max(s))) for s in sizes]):
        inner = {k: v for k, v in env.items() if k.op is not Ops.REDUCE}
        inner.update((r, np.int64(v)) for r, v in zip(ranges, turn))
        value = evaluate(n.src[0], inner)[n.src[0]]
        runs: Array = np.bool_(True)
        for at, size in zip(turn, sizes):
            runs = runs & np.less(at, size)
        total = np.where(runs, _alu(n.arg, n.dtype, n.dtype, [total, value]), total)
    return total


def _cast(source: DType, target: DType, a: Array) -> Array:
    if target.is_bool:
        return np.not_equal(a, 0)
    if target.is_float:
        return rounded(target, np.asarray(a, np.float64))
    if source.is_float:
        low = -(2.0**62) if target.is_index else float(target.min)
        high = 2.0**62 if target.is_index else float(target.max)
        clipped = np.clip(np.where(np.isnan(a), 0.0, np.trunc(a)), low, high)
        return clipped.astype(np.int64)
    return wrapped(target, np.asarray(a, np.int64))


def _alu(op: Ops, dtype: DType, source: DType, values: list[Array]) -> Array:
    if op is Ops.WHERE:
        return np.where(values[0], values[1], values[2])
    if op is Ops.CMPLT:
        if source.is_bool:
            return ~np.asarray(values[0]) & np.asarray(values[1])
        return np.less(values[0], values[1])
    if op is Ops.CMPEQ:
        return np.equal(values[0], values[1])
    if op is Ops.CMPNE:
        return np.not_equal(values[0], values[1])
    if dtype.is_float:
        return rounded(dtype, np.asarray(_float(op, values)))
    if dtype.is_bool:
        a, b = np.asarray(values[0]), np.asarray(values[1])
        if op in (Ops.ADD, Ops.OR, Ops.MAX):
            return a | b
        return a ^ b if op is Ops.XOR else a & b
    return wrapped(dtype, np.asarray(_integer(op, dtype, values)))


def _integer(op: Ops, dtype: DType, values: list[Array]) -> Array:
    a, b = values
    if op is Ops.ADD:
        return a + b
    if op is Ops.MUL:
        return a * b
    if op is Ops.IDIV:
        return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))
    if op is Ops.MOD:
        return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b)))
    if op is Ops.CDIV or op is Ops.CMOD:
        by = np.where(b == 0, 1, b)
        quotient = np.abs(a) // np.abs(by) * np.where((a < 0) != (by < 0), -1, 1)
        return np.where(b == 0, 0, quotient if op is Ops.CDIV else a - quotient * by)
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
    width = 32 if dtype.is_index else dtype.bits
    inside = (b >= 0) & (b < width)
    count = np.where(inside, b, 0)
    if op is Ops.SHL:
        return np.where(inside, np.left_shift(a, count), 0)
    if op is Ops.SHR:
        return np.where(inside, np.right_shift(a, count), np.where(a < 0, -1, 0))
    raise KeyError(op)


def _float(op: Ops, values: list[Array]) -> Array:
    if op is Ops.SQRT:
        return np.sqrt(values[0])
    if op is Ops.TRUNC:
        return np.copysign(np.trunc(values[0]), values[0])
    a, b = values
    if op is Ops.ADD:
        return a + b
    if op is Ops.MUL:
        return a * b
    if op is Ops.FDIV:
        return np.divide(a, b)
    nan = np.isnan(a) | np.isnan(b)
    if op is Ops.MAX:
        best = np.where(a > b, a, np.where(a < b, b, np.where(np.signbit(a), b, a)))
    elif op is Ops.MIN:
        best = np.where(a < b, a, np.where(a > b, b, np.where(np.signbit(a), a, b)))
    else:
        raise KeyError(op)
    return np.where(nan, np.nan, best)
