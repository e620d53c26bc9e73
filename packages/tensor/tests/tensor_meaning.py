"""What Tensor's methods mean, in NumPy, for the programs of tensor_programs.py.

bfloat16 is ml_dtypes'. Sums are asked of whole numbers from -4 to 4 (`tame`, `tamed`) alone, so
that any order gives the same bits.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes  # noqa: F401  NumPy learns of bfloat16
import numpy as np

from opgraft.dtype import promote, to_dtype
from opgraft_tensor import Tensor
from oracle import convert

FLOATS: Final = ("float16", "bfloat16", "float32", "float64")


def cast(values: Any, dtype: str) -> Any:
    """As docs/meaning.md: saturating, rounded once."""
    values = np.asarray(values)
    source, target = to_dtype(values.dtype.name), to_dtype(dtype)
    plain = values.astype(np.float32) if source.name == "bfloat16" else values
    with np.errstate(all="ignore"):
        done = convert(plain, source, target)
    return np.asarray(done).astype(np.dtype(dtype)).copy()


def pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Both in their common dtype."""
    common = promote(to_dtype(a.dtype.name), to_dtype(b.dtype.name)).name
    return cast(a, common), cast(b, common)


def binary(op: str, a: Any, b: Any) -> Any:
    a, b = pair(a, b)
    dtype = a.dtype
    kind = "f" if dtype.name in FLOATS else dtype.kind
    if op == "/":
        dtype = dtype if kind == "f" else np.dtype(np.float32)
        return np.asarray(cast(a, dtype.name) / cast(b, dtype.name)).astype(dtype)
    if op in ("//", "%") and kind != "f":
        safe = np.where(b == 0, 1, b).astype(dtype)
        done = a // safe if op == "//" else a % safe
        return np.where(b == 0, 0, done).astype(dtype)
    if op == "%" and dtype.name == "bfloat16":
        exact = np.remainder(a.astype(np.float64), b.astype(np.float64))
        return cast(exact, "bfloat16")
    if op in ("max", "min"):
        return np.asarray((np.maximum if op == "max" else np.minimum)(a, b)).astype(dtype)
    if op in ("<<", ">>"):
        width = dtype.itemsize * 8
        legal = (b >= 0) & (b < width)
        count = np.where(legal, b, 0).astype(dtype)
        if op == "<<":
            return np.where(legal, a << count, 0).astype(dtype)
        return np.where(legal, a >> count, np.where(a < 0, -1, 0) if kind == "i" else 0).astype(
            dtype
        )
    made = {
        "//": np.floor_divide, "+": np.add, "-": np.subtract, "*": np.multiply, "%": np.remainder,
        "<": np.less,
        "<=": np.less_equal, "==": np.equal, "!=": np.not_equal, "&": np.bitwise_and,
        "|": np.bitwise_or, "^": np.bitwise_xor, ">": np.greater, ">=": np.greater_equal,
    }[op](a, b)  # fmt: skip
    return np.asarray(made)


def total(values: Any, op: str, axis: Any, keepdims: bool) -> Any:
    """sum, prod, max, min, any, all, argmax ... in the accumulator that docs/meaning.md names."""
    dtype = values.dtype.name
    if op in ("any", "all"):
        return np.asarray(getattr(np, op)(values != 0, axis=axis, keepdims=keepdims))
    if op in ("argmax", "argmin"):
        wide = values.astype(np.float64) if dtype in FLOATS else values
        return np.asarray(getattr(np, op)(wide, axis=axis, keepdims=keepdims))
    if op in ("max", "min"):
        wide = values.astype(np.float64) if dtype in FLOATS else values
        found = getattr(np, op)(wide, axis=axis, keepdims=keepdims)
        return np.asarray(found).astype(np.dtype(dtype))
    wide = values.astype(np.float64) if dtype in FLOATS else values
    if op == "mean":
        if dtype in FLOATS:
            inner = np.float64 if dtype == "float64" else np.float32
            added = np.asarray(wide.sum(axis=axis, keepdims=keepdims)).astype(inner)
            count = inner(values.size / max(added.size, 1))
            return cast(added / count, dtype)
        added = np.asarray(wide.sum(axis=axis, keepdims=keepdims)).astype(np.float32)
        return np.asarray(added / np.float32(values.size / max(added.size, 1)))
    if op in ("cumsum", "cumprod"):
        done = getattr(np, op)(wide, axis=axis)
    elif op in ("cummax", "cummin"):
        done = (np.maximum if op == "cummax" else np.minimum).accumulate(wide, axis=axis)
        return np.asarray(done).astype(values.dtype)
    else:
        done = getattr(np, op)(wide, axis=axis, keepdims=keepdims)
    return cast(done, dtype) if dtype in FLOATS else np.asarray(done)


def product(a: Any, b: Any) -> Any:
    a, b = pair(a, b)
    if a.dtype.name in FLOATS:
        return cast(a.astype(np.float64) @ b.astype(np.float64), a.dtype.name)
    return np.asarray(a @ b)


def tamed(values: Any) -> Any:
    """Whole numbers from -4 to 4."""
    if values.dtype.name not in FLOATS:
        return values
    clipped = np.where(np.isnan(values), 0, np.clip(values.astype(np.float64), -4, 4))
    return np.round(clipped).astype(values.dtype)


def tame(x: Tensor) -> Tensor:
    if not x.dtype.is_float:
        return x
    return (x != x).where(x.zeros_like(), x.clip(-4, 4).round())


def smooth(name: str, values: Any, axis: int = -1) -> Any:
    """A function that is compared with a tolerance."""
    dtype = values.dtype.name
    x = values.astype(np.longdouble)
    if name == "softmax":
        power = np.exp(x - x.max(axis, keepdims=True))
        done = power / power.sum(axis, keepdims=True)
    elif name == "sigmoid":
        done = 1 / (1 + np.exp(-x))
    elif name == "var":
        done = x.var(axis)
    elif name == "logsumexp":
        top = x.max(axis, keepdims=True)
        done = np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)
    else:
        done = getattr(np, name)(x)
    return np.asarray(done).astype(np.dtype(dtype) if dtype in FLOATS else np.float32)
