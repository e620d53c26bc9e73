"""REDUCE, SCAN and the joining of lanes: each operation on each dtype.

Sums in float16 and bfloat16 accumulate in float32 and round once; nan counts, wherever it stands;
of nothing the result is the neutral element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_conformance.execution import Memory, filled
from opgraft_conformance.kernels import kernel, loop, over, param
from opgraft_conformance.values import Words, column

HEIGHT: Final = 9
WIDTH: Final = 37

COMBINED: Final = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR)


def ops_of(dtype: DType) -> tuple[Ops, ...]:
    """What reduces values of a dtype."""
    return COMBINED[:4] if dtype.is_float else COMBINED


def _filled(sink: UOp, dtype: DType, slot: int, operands: int) -> Memory:
    memory = filled(sink, seed=dtype.bits)
    memory[slot] = operand(dtype, operands)
    return memory


def operand(dtype: DType, count: int) -> Words:
    """Values whose sums and products are exact in any order, with a nan somewhere.

    The products: few factors other than 1 and -1. The sums in 16-bit floats: a large term first,
    so that small ones are lost if the accumulator is as narrow.
    """
    random = np.random.default_rng(count)
    if dtype.is_bool:
        return column([bool(b) for b in random.integers(0, 2, count)], dtype)
    if dtype.is_int:
        return column([dtype.const(int(n)) for n in random.integers(-100, 156, count)], dtype)
    numbers: list[Any] = [float(n) for n in random.choice([1.0, 1.0, 1.0, -1.0, 2.0], count)]
    if dtype.bits == 16:
        numbers[::WIDTH] = [float(1 << (dtype.mantissa + 1))] * len(numbers[::WIDTH])
    numbers[2 * WIDTH + 5] = math.nan
    numbers[3 * WIDTH + 1], numbers[3 * WIDTH + 2] = math.inf, -math.inf
    return column([dtype.const(n) for n in numbers], dtype)


def of_rows(dtype: DType) -> tuple[UOp, Memory]:
    """Along memory: lanes are joined at the end. Output k is that of the k-th operation."""
    ops = ops_of(dtype)
    i, k = loop(HEIGHT, "i"), over(WIDTH, "k")
    a = param(len(ops), HEIGHT * WIDTH, dtype)
    value = a.load(i * WIDTH + k)
    sink = kernel(
        "reductions_of_rows",
        *(param(s, HEIGHT, dtype).store(i, value.reduce(op, k)).end(i) for s, op in enumerate(ops)),
    )
    return sink, _filled(sink, dtype, len(ops), HEIGHT * WIDTH)


def of_columns(dtype: DType) -> tuple[UOp, Memory]:
    """Across memory: each lane has an accumulator of its own."""
    ops = ops_of(dtype)
    j, k = loop(WIDTH, "j"), over(HEIGHT, "k")
    a = param(len(ops), HEIGHT * WIDTH, dtype)
    value = a.load(k * WIDTH + j)
    sink = kernel(
        "reductions_of_columns",
        *(param(s, WIDTH, dtype).store(j, value.reduce(op, k)).end(j) for s, op in enumerate(ops)),
    )
    return sink, _filled(sink, dtype, len(ops), HEIGHT * WIDTH)


def scans(dtype: DType) -> tuple[UOp, Memory]:
    """Inclusive, along rows."""
    ops = ops_of(dtype)
    i, j = loop(HEIGHT, "i"), loop(WIDTH, "j")
    a = param(len(ops), HEIGHT * WIDTH, dtype)
    at = i * WIDTH + j
    sink = kernel(
        "scans",
        *(
            param(s, HEIGHT * WIDTH, dtype)
            .store(at, UOp(Ops.SCAN, dtype, (a.load(at), j), op))
            .end(i, j)
            for s, op in enumerate(ops)
        ),
    )
    return sink, _filled(sink, dtype, len(ops), HEIGHT * WIDTH)


def of_some(dtype: DType) -> tuple[UOp, Memory]:
    """Over as many elements as a variable says: of none the neutral element is left."""
    ops = ops_of(dtype)
    n = UOp.variable("n", 0, WIDTH)
    i, k = loop(HEIGHT, "i"), over(n, "k")
    a = param(len(ops), HEIGHT * WIDTH, dtype)
    value = a.load(i * WIDTH + k)
    sink = kernel(
        "reductions_of_some",
        *(param(s, HEIGHT, dtype).store(i, value.reduce(op, k)).end(i) for s, op in enumerate(ops)),
    )
    return sink, _filled(sink, dtype, len(ops), HEIGHT * WIDTH)


def counts(dtype: DType) -> tuple[UOp, Memory]:
    """In the accumulator of the tensor library: bool and small integers in 64 bits, or float64."""
    wide = dtypes.float64 if dtype is dtypes.float64 else (
        dtypes.float32 if dtype.is_float else dtypes.int64
    )  # fmt: skip
    i, k = loop(HEIGHT, "i"), over(WIDTH, "k")
    a = param(1, HEIGHT * WIDTH, dtype)
    total = a.load(i * WIDTH + k).cast(wide).reduce(Ops.ADD, k)
    sink = kernel("counts", param(0, HEIGHT, wide).store(i, total).end(i))
    return sink, _filled(sink, dtype, 1, HEIGHT * WIDTH)


FORMS: Final[dict[str, Callable[[DType], tuple[UOp, Memory]]]] = {
    f.__name__: f for f in (of_rows, of_columns, of_some, scans, counts)
}
