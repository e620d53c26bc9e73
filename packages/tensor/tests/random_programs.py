"""Random small array programs. Values are small whole numbers, so that any order of summation
gives the same bits, and plans can be compared with NumPy exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.graph import shape
from planning import array

LARGEST = 400
DTYPES = (dtypes.float32, dtypes.float32, dtypes.int32, dtypes.int8)


def small(x: UOp) -> UOp:
    """The values brought back to -8 .. 8."""
    if x.dtype.is_bool:
        return x
    low, high = (graph.full(shape(x), x.dtype, v) for v in (-8, 8))
    return graph.elementwise(Ops.MIN, graph.elementwise(Ops.MAX, x, low), high)


def leaf(rng: Any, dtype: DType | None = None, size: tuple[int, ...] | None = None) -> UOp:
    """A new array, a range or a constant."""
    dtype = dtype or DTYPES[int(rng.integers(0, len(DTYPES)))]
    if size is None:
        size = tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(1, 4))))
    kind = rng.random()
    if kind < 0.1:
        return graph.full(size, dtype, int(rng.integers(-3, 4)))
    if kind < 0.2:
        return graph.arange(size, int(rng.integers(0, len(size))), dtype)
    return array(rng.integers(-4, 5, size), dtype)


def step(rng: Any, pool: list[UOp]) -> UOp:
    """One operation on nodes of the pool."""
    x = pool[int(rng.integers(0, len(pool)))]
    size = shape(x)
    kind = int(rng.integers(0, 14))
    if kind <= 2:
        return view(rng, x)
    if kind == 3 and size:
        return graph.flip(x, [a for a in range(len(size)) if rng.random() < 0.6])
    if kind <= 5 and size:
        axes = [a for a in range(len(size)) if rng.random() < 0.6] or [0]
        ops = [Ops.AND, Ops.OR] if x.dtype.is_bool else [Ops.ADD, Ops.ADD, Ops.MAX, Ops.MIN]
        made = graph.reduce_axis(x, ops[int(rng.integers(0, len(ops)))], axes)
        if rng.random() < 0.5:
            made = graph.reshape(made, tuple(1 if a in axes else n for a, n in enumerate(size)))
        return small(made)
    if kind == 6 and size and not x.dtype.is_bool:
        op = (Ops.ADD, Ops.MAX)[int(rng.integers(0, 2))]
        return small(graph.scan_axis(x, op, int(rng.integers(0, len(size)))))
    if kind == 7 and size:
        rows = leaf(rng, dtypes.int32, tuple(int(n) for n in rng.integers(1, 5, 2)))
        return graph.gather(x, rows) if np.prod(shape(rows)) * np.prod(size) < LARGEST else x
    if kind == 8 and size:
        return write(rng, x, pool)
    if kind == 9:
        return graph.materialize(x)
    other = partner(rng, x, pool)
    if x.dtype.is_bool:
        op = (Ops.AND, Ops.OR, Ops.XOR, Ops.CMPNE)[int(rng.integers(0, 4))]
        return graph.elementwise(op, x, other)
    if kind == 10:
        op = (Ops.CMPLT, Ops.CMPEQ)[int(rng.integers(0, 2))]
        return graph.elementwise(op, x, other)
    if kind == 11:
        return graph.where(graph.elementwise(Ops.CMPLT, x, other), other, x)
    op = (Ops.ADD, Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)[int(rng.integers(0, 5))]
    return small(graph.elementwise(op, x, other))


def partner(rng: Any, x: UOp, pool: list[UOp]) -> UOp:
    """A node that broadcasts with x, of its dtype."""
    for _ in range(6):
        y = pool[int(rng.integers(0, len(pool)))]
        y = y if y.dtype is x.dtype else graph.cast(y, x.dtype)
        try:
            result = graph.broadcast_shapes(shape(x), shape(y))
        except ValueError:
            continue
        if np.prod(result) <= LARGEST:
            return y
    dtype = x.dtype
    made = leaf(rng, dtypes.int32 if dtype.is_bool else dtype, shape(x) or (1,))
    return graph.cast(graph.reshape(made, shape(x)), dtype)


def view(rng: Any, x: UOp) -> UOp:
    """Some view of x."""
    size = shape(x)
    total = int(np.prod(size))
    kind = int(rng.integers(0, 7))
    if kind == 0 and size:
        return graph.permute(x, tuple(int(a) for a in rng.permutation(len(size))))
    if kind == 1 and total * 2 ** len(size) < LARGEST:
        widths = rng.integers(0, 3, (len(size), 2))
        return graph.pad(x, tuple((int(a), int(b)) for a, b in widths))
    if kind == 2 and size:
        region = []
        for n in size:
            count = int(rng.integers(1, n + 1))
            begin = int(rng.integers(0, n - count + 1))
            back = rng.random() < 0.3
            region.append((begin + count - 1 if back else begin, count, -1 if back else 1))
        return graph.slice_(x, tuple(region))
    if kind == 3:
        divisors = [d for d in range(1, total + 1) if total % d == 0]
        first = int(divisors[int(rng.integers(0, len(divisors)))])
        rest = total // first
        inner = [d for d in range(1, rest + 1) if rest % d == 0]
        second = int(inner[int(rng.integers(0, len(inner)))])
        return graph.reshape(x, (first, second, rest // second))
    if kind == 4 and len(size) < 4 and total * 3 < LARGEST:
        return graph.expand(graph.reshape(x, (*size, 1)), (*size, 3))
    wide = [a for a, n in enumerate(size) if n > 1]
    if kind == 5 and wide and len(size) < 4 and total < 100:
        axis = wide[int(rng.integers(0, len(wide)))]
        return graph.window(x, axis, 2, int(rng.integers(1, 3)))
    if kind == 6 and len(size) > 1 and total < 60:
        stride, dilation = (int(k) for k in rng.integers(1, 3, 2))
        return graph.unwindow(x, 0, stride, dilation, size[0] * stride + size[-1] * dilation)
    return x


def write(rng: Any, x: UOp, pool: list[UOp]) -> UOp:
    """Part of x replaced."""
    region = []
    for n in shape(x):
        count = int(rng.integers(1, n + 1))
        step = int(rng.choice([1, 1, -1, 2]))
        if (count - 1) * abs(step) >= n:
            step = 1
        reach = (count - 1) * abs(step)
        begin = int(rng.integers(0, n - reach))
        region.append((begin + reach if step < 0 else begin, count, step))
    counts = tuple(c for _, c, _ in region)
    value = None
    if rng.random() < 0.5:
        value = graph.slice_(x, tuple((0, c, 1) for c in counts))
    else:
        dtype = dtypes.int32 if x.dtype.is_bool else x.dtype
        value = graph.cast(leaf(rng, dtype, counts), x.dtype)
    return graph.write(x, tuple(region), value)


def program(seed: int) -> list[UOp]:
    """A few outputs that share much of what they are computed from."""
    rng = np.random.default_rng(seed)
    pool = [leaf(rng) for _ in range(int(rng.integers(1, 4)))]
    for _ in range(int(rng.integers(2, 16))):
        made = step(rng, pool)
        if np.prod(shape(made)) <= LARGEST:
            pool.append(made)
    last = pool[-1]
    count = int(rng.integers(0, 3))
    others = [pool[int(rng.integers(0, len(pool)))] for _ in range(count)]
    return list(dict.fromkeys([last, *others]))
