"""Several operations in one expression: what a table of single operations cannot show.

Compilers of C-like languages compute narrow integers in int, 16-bit floats in float, fuse a
product with a sum, and, where nobody forbids it, treat floats as real numbers. Each of these is a
row here. Constants stand in the source as text: they have to be read back as the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_conformance.execution import Memory, zeros
from opgraft_conformance.kernels import kernel, loop, param
from opgraft_conformance.values import column, edges, pairs, words_of

Expression: TypeAlias = Callable[[UOp, UOp], UOp]


def _shr(a: UOp, count: int) -> UOp:
    return UOp(Ops.SHR, a.dtype, (a, a.const_like(count)))


def _sqrt(a: UOp) -> UOp:
    return UOp(Ops.SQRT, a.dtype, (a,))


_WIDE: Final = {"int": dtypes.int64, "uint": dtypes.uint64, "float": dtypes.float32}


def _wide(a: UOp) -> UOp:
    return a.cast(_WIDE[a.dtype.kind])


INTEGERS: Final[dict[str, Expression]] = {
    "(a + b) in a wider dtype": lambda a, b: _wide(a + b),
    "(a * b) in a wider dtype": lambda a, b: _wide(a * b),
    "(a * b) < b": lambda a, b: a * b < b,
    "(a + b) >> 1": lambda a, b: _shr(a + b, 1),
    "(a * -1) // 3": lambda a, b: (a * -1) // 3,
    "(a + b) % 7": lambda a, b: (a + b) % 7,
    "(a << 1) // 2": lambda a, b: UOp(Ops.SHL, a.dtype, (a, a.const_like(1))) // 2,
    "(a ^ -1) < (b ^ -1)": lambda a, b: (a ^ -1) < (b ^ -1),
    "(a + b) == (b * 3)": lambda a, b: (a + b).eq(b * 3),
    "a // b * b + a % b": lambda a, b: a // b * b + a % b,
}
FLOATS: Final[dict[str, Expression]] = {
    "a * b + a": lambda a, b: a * b + a,
    "a * b - a * b": lambda a, b: a * b + a * b * -1.0,
    "(a + b) - b": lambda a, b: (a + b) + b * -1.0,
    "a * b * b": lambda a, b: a * b * b,
    "a / b * b": lambda a, b: a / b * b,
    "a / 3": lambda a, b: a / a.const_like(3.0),
    "a - a, a / a, a * 0": lambda a, b: ((a + a * -1.0) + a / a) + a * 0.0,
    "sqrt(a * a)": lambda a, b: _sqrt(a * a),
    "a + 0.0 is no -0.0": lambda a, b: a.const_like(1.0) / (a + 0.0),
    "a != a": lambda a, b: a.ne(a).where(b, a),
    "not a < b": lambda a, b: ((a < b) ^ True).where(a, b),
    "max(min(a, b), -1)": lambda a, b: a.minimum(b).maximum(a.const_like(-1.0)),
    "(a * b) in another dtype": lambda a, b: (a * b).cast(
        dtypes.float64 if a.dtype is dtypes.float32 else dtypes.float32
    ),
    "trunc(a) as int, and back": lambda a, b: (a.cast(dtypes.int32) + b.cast(dtypes.int32)).cast(
        a.dtype
    ),
}
BOOLS: Final[dict[str, Expression]] = {
    "a and not b": lambda a, b: a & (b ^ True),
    "a < b or both": lambda a, b: (a < b) | (a & b),
    "a == b as a number": lambda a, b: a.eq(b).cast(dtypes.int8) + a.cast(dtypes.int8) * 2,
    "(a + b) * a": lambda a, b: (a + b) * a,
}
HINTS: Final = {
    "a * b + a": "no contraction to a fused multiply-add (in C: -ffp-contract=off)",
    "a * b - a * b": "no contraction to a fused multiply-add (in C: -ffp-contract=off)",
    "(a + b) - b": "no reassociation: no fast or unsafe mathematics",
    "a / b * b": "no reassociation: no fast or unsafe mathematics",
    "a / 3": "a division is no multiplication by a reciprocal",
    "a - a, a / a, a * 0": "infinities and nan count: no finite mathematics only",
    "a + 0.0 is no -0.0": "signed zeros count",
    "a != a": "nan counts: no finite mathematics only",
    "not a < b": "nan counts: not (a < b) is no a >= b",
    "(a * b) in another dtype": "every operation rounds to its own dtype: no excess precision",
}
INTEGER_HINT: Final = "each operation wraps to its own width: C computes narrow integers in int"


def expressions(dtype: DType) -> dict[str, Expression]:
    """The expressions of a dtype, by what is written in them."""
    return BOOLS if dtype.is_bool else FLOATS if dtype.is_float else INTEGERS


def hint(dtype: DType, name: str) -> str:
    """What to look at where this expression is wrong."""
    return HINTS.get(name, INTEGER_HINT if dtype.is_int else "")


def of(dtype: DType, names: list[str], info: KernelInfo) -> tuple[UOp, Memory]:
    """A kernel with an output for each of these expressions, on all pairs of edges.

    `info` says how its loop is scheduled: see operations.Form.
    """
    rows = pairs(dtype)
    count = len(rows)
    i = loop(count, "i")
    a, b = (param(len(names) + k, count, dtype).load(i) for k in range(2))
    values = [expressions(dtype)[name](a, b) for name in names]
    stores = [param(k, count, v.dtype).store(i, v).end(i) for k, v in enumerate(values)]
    sink = UOp.sink(*stores, arg=replace(info, name="expressions"))
    memory: Memory = {k: zeros(v.dtype, count) for k, v in enumerate(values)}
    for k in range(2):
        memory[len(names) + k] = column([row[k] for row in rows], dtype)
    return sink, memory


def constants(dtype: DType) -> tuple[UOp, Memory]:
    """A kernel that stores every edge of a dtype, each written as a constant."""
    held = edges(dtype)
    if dtype.is_float:
        held += [dtype.const(v) for v in (0.1, 1 / 3, 1e-30, 1e30, 123456789.125, 16777217.0)]
    out = param(0, len(held), dtype)
    sink = kernel("constants", *(out.store(k, UOp.const(dtype, v)) for k, v in enumerate(held)))
    # what is there before is none of them
    return sink, {0: np.full(len(held), 0x5B, words_of(dtype))}
