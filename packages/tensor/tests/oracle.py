"""What an array graph means, by NumPy: each node at once, following docs/meaning.md.

It knows nothing of planning or kernels. bfloat16 values are held as float32 that fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from opgraft.devices.interp.alu import function_of
from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, toposort
from opgraft_tensor.exchange import storage_values
from opgraft_tensor.storage import kept

Array = Any


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    return np.dtype("float32" if dtype is dtypes.bfloat16 else dtype.name)


def rounded(values: Array, dtype: DType) -> Array:
    """Values rounded once, to nearest even, to the dtype."""
    if dtype is not dtypes.bfloat16:
        return np.asarray(values).astype(numpy_dtype(dtype))
    wide = np.asarray(values, dtype=np.float64)
    bits = wide.astype(np.float32)
    # round to odd in float32 first, so that the second rounding sees what the first dropped
    pattern = bits.view(np.uint32).copy() if bits.shape else bits.reshape(1).view(np.uint32).copy()
    pattern = pattern.reshape(bits.shape)
    exact = (bits.astype(np.float64) == wide) | ~np.isfinite(bits)
    grew = np.abs(bits.astype(np.float64)) > np.abs(wide)
    pattern = np.where(~exact & grew & ((pattern & 1) == 0), pattern - 1, pattern)
    pattern = np.where(~exact & ~grew, pattern | 1, pattern).astype(np.uint32)
    upper = ((pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16) << 16
    result = upper.astype(np.uint32).view(np.float32).reshape(bits.shape)
    return np.where(np.isfinite(bits), result, bits).astype(np.float32)


def convert(values: Array, source: DType, target: DType) -> Array:
    if target.is_bool:
        return values != 0
    if target.is_float:
        return rounded(values, target)
    if not source.is_float:
        return values.astype(numpy_dtype(target))
    # float64 holds every narrower float, and the comparisons below are exact in it
    wide = values.astype(np.float64)
    low, high = int(target.min), int(target.max)
    above, below = wide >= float(high), wide <= float(low)
    inside = np.where(above | below | np.isnan(wide), 0, wide)
    result = inside.astype(numpy_dtype(target))
    return np.where(above, high, np.where(below, low, result)).astype(numpy_dtype(target))


def _divide(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, np.where(b == 0, 1, b))
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def _modulo(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.remainder(a, b)
    return np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _shift(op: Ops, a: Array, b: Array) -> Array:
    width = a.dtype.itemsize * 8
    legal = (b >= 0) & (b < width)
    count = np.where(legal, b, 0).astype(a.dtype)
    if op is Ops.SHL:
        return np.where(legal, np.left_shift(a, count), 0).astype(a.dtype)
    rest = np.where(a < 0, -1, 0) if a.dtype.kind == "i" else 0
    return np.where(legal, np.right_shift(a, count), rest).astype(a.dtype)


def _extreme(op: Ops, a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return np.maximum(a, b) if op is Ops.MAX else np.minimum(a, b)
    result = np.maximum(a, b) if op is Ops.MAX else np.minimum(a, b)
    zeros = (a == 0) & (b == 0)
    negative = np.signbit(a) & np.signbit(b) if op is Ops.MAX else np.signbit(a) | np.signbit(b)
    return np.where(zeros, np.where(negative, -0.0, 0.0), result).astype(a.dtype)


def threefry(counter: Array, key: Array) -> Array:
    turns = (13, 15, 26, 6, 17, 29, 16, 24)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    x0, x1 = (counter & low).astype(np.uint32), (counter >> half).astype(np.uint32)
    k0, k1 = (key & low).astype(np.uint32), (key >> half).astype(np.uint32)
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + k0, x1 + k1
    for block in range(5):
        for step in range(4):
            turn = turns[(block % 2) * 4 + step]
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))) ^ x0
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0.astype(np.uint64) | (x1.astype(np.uint64) << half)


def _wide(values: Array, compute: Callable[[Array], Array]) -> Array:
    return compute(values.astype(np.float64 if values.dtype.itemsize < 8 else np.longdouble))


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32 or float64, rounded once."""
    dtype = dtypes.float32 if a.dtype == np.float32 else dtypes.float64
    return function_of(Ops.MULACC, dtype, dtype)(*map(np.asarray, (a, b, c)))


_ALU: Final[dict[Ops, Callable[..., Array]]] = {
    Ops.SQRT: np.sqrt,
    Ops.EXP: lambda a: _wide(a, np.exp),
    Ops.EXP2: lambda a: _wide(a, np.exp2),
    Ops.LOG2: lambda a: _wide(a, np.log2),
    Ops.SIN: lambda a: _wide(a, np.sin),
    Ops.TRUNC: np.trunc,
    Ops.ADD: lambda a, b: a | b if a.dtype == bool else a + b,
    Ops.MUL: lambda a, b: a & b if a.dtype == bool else a * b,
    Ops.FDIV: np.divide,
    Ops.IDIV: _divide,
    Ops.MOD: _modulo,
    Ops.MAX: lambda a, b: _extreme(Ops.MAX, a, b),
    Ops.MIN: lambda a, b: _extreme(Ops.MIN, a, b),
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: lambda a, b: _shift(Ops.SHL, a, b),
    Ops.SHR: lambda a, b: _shift(Ops.SHR, a, b),
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.WHERE: np.where,
    Ops.MULACC: multiply_add,
    Ops.THREEFRY: threefry,
}

_REDUCE: Final[dict[Ops, np.ufunc]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
}


def _reducer(op: Ops, values: Array) -> np.ufunc:
    if values.dtype == bool and op in (Ops.ADD, Ops.MUL):
        return np.logical_or if op is Ops.ADD else np.logical_and
    return _REDUCE[op]


def _slices(region: Sequence[tuple[int, int, int]]) -> tuple[Any, ...]:
    """Index arrays that pick the region (slices cannot say "down to 0")."""
    return np.ix_(*[begin + step * np.arange(count) for begin, count, step in region])


def _window(a: Array, axis: int, size: int, stride: int, dilation: int) -> Array:
    count = max((a.shape[axis] - dilation * (size - 1) - 1) // stride + 1, 0)
    parts = [np.take(a, np.arange(count) * stride + k * dilation, axis=axis) for k in range(size)]
    return np.stack(parts, axis=-1)


def _unwindow(a: Array, axis: int, size: int, stride: int, dilation: int, extent: int) -> Array:
    shape = (*a.shape[:axis], extent, *a.shape[axis + 1 :])
    result = np.zeros(shape, a.dtype)
    moved, into = np.moveaxis(a, axis, 0), np.moveaxis(result, axis, 0)
    for o in range(a.shape[axis]):
        for k in range(size):
            place = o * stride + k * dilation
            if place < extent:
                into[place][..., k] = moved[o][..., k]
    return result


def _gather(table: Array, indices: Array) -> Array:
    wide = indices.astype(np.int64)
    legal = (wide >= 0) & (wide < len(table))
    if len(table) == 0:
        return np.zeros(indices.shape + table.shape[1:], table.dtype)
    found = table[np.where(legal, wide, 0)]
    return np.where(legal.reshape(legal.shape + (1,) * (table.ndim - 1)), found, 0).astype(
        table.dtype
    )


def _scatter(table: Array, indices: Array, values: Array) -> Array:
    result = table.copy()
    flat = values.reshape((indices.size, *table.shape[1:]))
    for place, value in zip(indices.reshape(-1).tolist(), flat):
        if 0 <= place < len(table):
            result[place] = value
    return result


def _evaluate(n: UOp, src: list[Array]) -> Array:
    op, arg = n.op, n.arg
    if op is Ops.CONST:
        return np.asarray(arg, dtype=numpy_dtype(n.dtype))
    if op is Ops.CAST:
        return convert(src[0], n.src[0].dtype, n.dtype)
    if op is Ops.BITCAST:
        return _bitcast(src[0], n.src[0].dtype, n.dtype)
    if op in GroupOp.ALU:
        result = _ALU[op](*src)
        return result if n.dtype.is_bool else rounded(result, n.dtype)
    if op is Ops.RESHAPE:
        return src[0].reshape(arg)
    if op is Ops.PERMUTE:
        return src[0].transpose(arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(src[0], arg)
    if op is Ops.PAD:
        return np.pad(src[0], arg)
    if op is Ops.SLICE:
        return src[0][_slices(arg)]
    if op is Ops.WINDOW:
        return _window(src[0], *arg)
    if op is Ops.UNWINDOW:
        return _unwindow(src[0], *arg)
    if op is Ops.REDUCE_AXIS:
        return _reducer(arg[0], src[0]).reduce(src[0], axis=arg[1], dtype=src[0].dtype)
    if op is Ops.SCAN_AXIS:
        return _reducer(arg[0], src[0]).accumulate(src[0], axis=arg[1], dtype=src[0].dtype)
    if op is Ops.ARANGE:
        size, axis = arg
        line = np.arange(size[axis]).reshape([-1 if i == axis else 1 for i in range(len(size))])
        return rounded(np.broadcast_to(line, size), n.dtype)
    if op is Ops.GATHER:
        return _gather(*src)
    if op is Ops.SCATTER:
        return _scatter(*src)
    if op is Ops.WRITE:
        result = src[0].copy()
        result[_slices(arg)] = src[1]
        return result
    if op in (Ops.MATERIALIZE, Ops.COPY):
        return src[0]
    raise NotImplementedError(op)


def _bitcast(values: Array, source: DType, target: DType) -> Array:
    if source is dtypes.bfloat16:
        half = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)
        return half.reshape(values.shape).view(numpy_dtype(target))
    if target is dtypes.bfloat16:
        wide = np.ascontiguousarray(values).view(np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(values.shape)
    return np.ascontiguousarray(values).view(numpy_dtype(target)).reshape(values.shape)


def evaluate_numpy(root: UOp) -> Array:
    """The value of an array graph."""
    done: dict[UOp, Array] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for n in toposort((root,), lambda n: kept(n) is None):
            held = n if n.op is Ops.BUFFER else kept(n)
            if held is not None:
                done[n] = storage_values(held.arg)
            else:
                done[n] = np.asarray(_evaluate(n, [done[s] for s in n.src]))
    return done[root]
