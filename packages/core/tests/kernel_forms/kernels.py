"""Kernels in the form in which tensor hands them to core: named ones, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable

from opgraft import DType, dtypes
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.linear import KernelInfo

f32 = dtypes.float32


def param(slot: int, size: int, dtype: DType = f32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def loop(size: int, name: str) -> UOp:
    return UOp.range(size, name)


def over(size: int, name: str) -> UOp:
    """A range for a REDUCE."""
    return UOp.range(size, name, AxisKind.REDUCE)


def kernel(name: str, *effects: UOp) -> UOp:
    return UOp.sink(*effects, arg=KernelInfo(name))


def elementwise(size: int = 37) -> UOp:
    i = loop(size, "i")
    out, a, b = (param(s, size) for s in range(3))
    return kernel("elementwise", out.store(i, a.load(i) * b.load(i) + 1.0).end(i))


def rows(height: int = 3, width: int = 19) -> UOp:
    i, j = loop(height, "i"), loop(width, "j")
    at = i * width + j
    out, a, b = param(0, height * width), param(1, height * width), param(2, width)
    return kernel("rows", out.store(at, a.load(at) + b.load(j)).end(i, j))


def row_sum(height: int = 5, width: int = 70) -> UOp:
    i, k = loop(height, "i"), over(width, "k")
    out, a = param(0, height), param(1, height * width)
    return kernel("row_sum", out.store(i, a.load(i * width + k).reduce(Ops.ADD, k)).end(i))


def column_max(height: int = 9, width: int = 21) -> UOp:
    j, k = loop(width, "j"), over(height, "k")
    out, a = param(0, width), param(1, height * width)
    return kernel("column_max", out.store(j, a.load(k * width + j).reduce(Ops.MAX, k)).end(j))


def full_sum(size: int = 100) -> UOp:
    k = over(size, "k")
    out, a = param(0, 1), param(1, size)
    return kernel("full_sum", out.store(0, a.load(k).reduce(Ops.ADD, k)))


def matmul(m: int = 7, n: int = 18, depth: int = 11) -> UOp:
    i, j, k = loop(m, "i"), loop(n, "j"), over(depth, "k")
    out, a, b = param(0, m * n), param(1, m * depth), param(2, depth * n)
    product = a.load(i * depth + k) * b.load(k * n + j)
    return kernel("matmul", out.store(i * n + j, product.reduce(Ops.ADD, k)).end(i, j))


def matmul_transposed(m: int = 6, n: int = 5, depth: int = 33) -> UOp:
    i, j, k = loop(m, "i"), loop(n, "j"), over(depth, "k")
    out, a, b = param(0, m * n), param(1, m * depth), param(2, n * depth)
    product = a.load(i * depth + k) * b.load(j * depth + k)
    return kernel("matmul_transposed", out.store(i * n + j, product.reduce(Ops.ADD, k)).end(i, j))


def normalised_rows(height: int = 4, width: int = 24) -> UOp:
    """x / sum(x - max(x)) with the differences kept in a local row."""
    i, j, k, own = loop(height, "i"), loop(width, "j"), over(width, "k"), loop(width, "l")
    out, a = param(0, height * width), param(1, height * width)
    top = a.load(i * width + k).reduce(Ops.MAX, k)
    row = UOp(Ops.LOCAL, f32, (), ("row", width, Space.PRIVATE))
    filled = row.after(row.store(own, a.load(i * width + own) - top).end(own))
    total = filled.load(k).reduce(Ops.ADD, k)
    value = filled.load(j) / (total - 1.0)
    return kernel("normalised_rows", out.store(i * width + j, value).end(i, j))


def several_outputs(height: int = 4, width: int = 17) -> UOp:
    i, j, k = loop(height, "i"), loop(width, "j"), over(width, "k")
    sums, scaled, tops = param(0, height), param(1, height * width), param(2, height)
    a = param(3, height * width)
    total = a.load(i * width + k).reduce(Ops.ADD, k)
    top = a.load(i * width + k).reduce(Ops.MAX, k)
    return kernel(
        "several_outputs",
        sums.store(i, total).end(i),
        scaled.store(i * width + j, a.load(i * width + j) * total).end(i, j),
        tops.store(i, top).end(i),
    )


def stored_and_read_back(height: int = 3, width: int = 16) -> UOp:
    """out[i, j] = 2x; other[i] = sum over the finished row of out."""
    i, j, k = loop(height, "i"), loop(width, "j"), over(width, "k")
    out, other, a = param(0, height * width), param(1, height), param(2, height * width)
    store = out.store(i * width + j, a.load(i * width + j) * 2.0)
    row = out.after(store.end(j)).load(i * width + k).reduce(Ops.ADD, k)
    return kernel("stored_and_read_back", store.end(i, j), other.store(i, row).end(i))


def stored_across_and_read_back(height: int = 2, width: int = 2) -> UOp:
    """Each store of a row goes to another row of the output, and is summed from there."""
    i, j, k = loop(height, "i"), loop(width, "j"), over(width, "k")
    total, out, a = param(0, height), param(1, height * width), param(2, height * width)
    store = out.store(j * height + i, a.load(i * width + j) * 2.0)
    column = out.after(store.end(j)).load(k * height + i).reduce(Ops.ADD, k)
    return kernel("stored_across_and_read_back", total.store(i, column).end(i), store.end(j).end(i))


def padded(height: int = 4, width: int = 6) -> UOp:
    """The input with one zero around it."""
    i, j = loop(height + 2, "i"), loop(width + 2, "j")
    out, a = param(0, (height + 2) * (width + 2)), param(1, height * width)
    inside = (i >= 1) & (i < height + 1) & (j >= 1) & (j < width + 1)
    value = a.load((i - 1) * width + (j - 1), inside)
    return kernel("padded", out.store(i * (width + 2) + j, value).end(i, j))


def gather(count: int = 6, table: int = 10, width: int = 9) -> UOp:
    i, j = loop(count, "i"), loop(width, "j")
    out, a = param(0, count * width), param(1, table * width)
    where = param(2, count, dtypes.int64).load(i).cast(dtypes.index)
    inside = (where >= 0) & (where < table)
    value = a.load(where * width + j, inside)
    return kernel("gather", out.store(i * width + j, value).end(i, j))


def cumulative(height: int = 3, width: int = 10) -> UOp:
    i, j = loop(height, "i"), loop(width, "j")
    out, a = param(0, height * width), param(1, height * width)
    running = UOp(Ops.SCAN, f32, (a.load(i * width + j), j), Ops.ADD)
    return kernel("cumulative", out.store(i * width + j, running * 2.0).end(i, j))


def column_cumulative(height: int = 6, width: int = 20) -> UOp:
    i, j = loop(height, "i"), loop(width, "j")
    out, a = param(0, height * width), param(1, height * width)
    running = UOp(Ops.SCAN, f32, (a.load(i * width + j), i), Ops.ADD)
    return kernel("column_cumulative", out.store(i * width + j, running).end(i, j))


def reversed_copy(size: int = 21) -> UOp:
    i = loop(size, "i")
    out, a = param(0, size), param(1, size)
    return kernel("reversed_copy", out.store(i, a.load(i * -1 + (size - 1))).end(i))


def transposed(height: int = 9, width: int = 13) -> UOp:
    i, j = loop(width, "i"), loop(height, "j")
    out, a = param(0, height * width), param(1, height * width)
    return kernel("transposed", out.store(i * height + j, a.load(j * width + i)).end(i, j))


def in_place(size: int = 30) -> UOp:
    i = loop(size, "i")
    x = param(0, size)
    return kernel("in_place", x.store(i, x.load(i) * 3.0 + 1.0).end(i))


def convolution(channels: int = 3, size: int = 8, taps: int = 3) -> UOp:
    c, i = loop(channels, "c"), loop(size, "i")
    k, t = over(channels, "k"), over(taps, "t")
    out, a = param(0, channels * size), param(1, channels * size)
    w = param(2, channels * channels * taps)
    at = i + t - 1
    value = a.load(k * size + at, (at >= 0) & (at < size))
    product = value * w.load((c * channels + k) * taps + t)
    return kernel("convolution", out.store(c * size + i, product.reduce(Ops.ADD, k, t)).end(c, i))


def chained_in_place(size: int = 41) -> UOp:
    """Three arrays updated from each other's old values, as an optimizer's step does."""
    i = loop(size, "i")
    a, b, c = (param(s, size) for s in range(3))
    return kernel(
        "chained_in_place",
        a.store(i, a.load(i) + b.load(i)).end(i),
        b.store(i, b.load(i) * 2.0 + a.load(i)).end(i),
        c.store(i, c.load(i) + b.load(i)).end(i),
    )


def rows_in_place(height: int = 5, width: int = 12) -> UOp:
    """The sum of each row, and the row doubled in place."""
    i, j, k = loop(height, "i"), loop(width, "j"), over(width, "k")
    x, total = param(0, height * width), param(1, height)
    at = i * width + j
    row = x.load(i * width + k).reduce(Ops.ADD, k)
    return kernel(
        "rows_in_place", total.store(i, row).end(i), x.store(at, x.load(at) * 2.0).end(i, j)
    )


def less_its_maximum(size: int = 23) -> UOp:
    i, k = loop(size, "i"), over(size, "k")
    x = param(0, size)
    value = x.load(i) - x.load(k).reduce(Ops.MAX, k)
    return kernel("less_its_maximum", x.store(i, value).end(i))


def last_store_wins(size: int = 41) -> UOp:
    i, j = loop(size, "i"), loop(size, "j")
    out, a, b, c = (param(s, size) for s in range(4))
    return kernel(
        "last_store_wins",
        out.store(i, a.load(i)).end(i),
        out.store(j * -1 + (size - 1), b.load(j)).end(j),
        out.store(i, c.load(i)).end(i),
    )


def read_beside(size: int = 41) -> UOp:
    """What one loop stores is added up, as it was before, in another."""
    i, k = loop(size, "i"), over(size, "k")
    out, total = param(0, size), param(1, 1)
    return kernel(
        "read_beside",
        out.store(i, out.load(i) * 2.0).end(i),
        total.store(0, out.load(k).reduce(Ops.ADD, k)),
    )


def colliding_stores(size: int = 16) -> UOp:
    """Several iterations store to one element: the last of them, in order, stays."""
    i, j = loop(size, "i"), loop(size, "j")
    out, v = param(0, 2 * size), param(1, size * size)
    return kernel("colliding_stores", out.store(i + j, v.load(j * size + i)).end(i, j))


def read_before_overwritten(size: int = 40) -> UOp:
    """The second output needs all of the first one's old data, in reverse."""
    i = loop(size, "i")
    out, other, a = (param(s, size) for s in range(3))
    return kernel(
        "read_before_overwritten",
        out.store(i, a.load(i) * 2.0).end(i),
        other.store(i, out.load(i * -1 + (size - 1)) + 1.0).end(i),
    )


def in_place_and_read_back(height: int = 3, width: int = 8, depth: int = 17) -> UOp:
    """Rows updated in place; an element of each, read again, beside a sum of no row."""
    i, j, k = loop(height, "i"), loop(width, "j"), over(depth, "k")
    x, out, b = param(0, height * width), param(1, height), param(2, depth)
    at = i * width + j
    store = x.store(at, x.load(at) * 2.0 + 1.0)
    again = x.after(store.end(j)).load(i * width + i)
    total = b.load(k).reduce(Ops.ADD, k)
    return kernel("in_place_and_read_back", store.end(i, j), out.store(i, total + again).end(i))


def sums_beside_rows(height: int = 4, width: int = 2) -> UOp:
    """Sums over the whole column, used in every row."""
    i, j, k = loop(height, "i"), loop(width, "j"), over(height, "k")
    out, a = param(0, height * width), param(1, height * width)
    total = a.load(k * width + j).reduce(Ops.ADD, k)
    at = i * width + j
    return kernel("sums_beside_rows", out.store(at, a.load(at) * total).end(i, j))


def names_that_look_alike() -> UOp:
    """Ranges named as the scheduler would name new ones."""
    i, j = loop(6, "k"), loop(8, "k_1")
    k, other = over(8, "k.v"), over(8, "k.o")
    out, a, b = param(0, 48), param(1, 48), param(2, 64)
    row = a.load(i * 8 + k).reduce(Ops.MAX, k)
    product = ((a.load(i * 8 + other) - row) * b.load(other * 8 + j)).reduce(Ops.ADD, other)
    return kernel("names_that_look_alike", out.store(i * 8 + j, product).end(i, j))


NAMED: dict[str, Callable[[], UOp]] = {
    f.__name__: f
    for f in (
        elementwise,
        rows,
        row_sum,
        column_max,
        full_sum,
        matmul,
        matmul_transposed,
        normalised_rows,
        several_outputs,
        stored_and_read_back,
        stored_across_and_read_back,
        padded,
        gather,
        cumulative,
        column_cumulative,
        reversed_copy,
        transposed,
        in_place,
        convolution,
        chained_in_place,
        rows_in_place,
        less_its_maximum,
        last_store_wins,
        read_beside,
        colliding_stores,
        read_before_overwritten,
        in_place_and_read_back,
        sums_beside_rows,
        names_that_look_alike,
    )
}


class RandomKernel:
    """A kernel of random shape: a few outputs over shared loops, reductions, gates.

    All else that kernels have is in those of random_kernels.py.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.inputs = 0

    def make(self) -> UOp:
        pick = self.random
        sizes = [
            pick.choice((1, 2, 3, 5, 8, 9, 16, 17, 24)) for _ in range(pick.choice((1, 2, 2, 3)))
        ]
        self.spine = [loop(s, f"i{n}") for n, s in enumerate(sizes)]
        self.reduce = over(pick.choice((1, 3, 8, 17, 32)), "k")
        self.outputs = pick.choice((1, 1, 2))
        self.slot = self.outputs
        effects = []
        for slot in range(self.outputs):
            loops = self.spine if slot == 0 else self.spine[: pick.randint(1, len(self.spine))]
            size = 1
            for r in loops:
                size *= int(r.src[0].arg)
            value = self.value(loops, 3)
            effects.append(param(slot, size).store(self.flat(loops), value).end(*loops))
        return kernel(f"random{self.seed}", *effects)

    @staticmethod
    def flat(loops: list[UOp]) -> UOp:
        at = UOp.const(dtypes.index, 0)
        for r in loops:
            at = at * int(r.src[0].arg) + r
        return at

    def value(self, loops: list[UOp], depth: int) -> UOp:
        pick = self.random
        kind = pick.random()
        if depth == 0 or kind < 0.2:
            return self.leaf(loops)
        if kind < 0.4 and self.reduce not in loops:
            inner = self.value([*loops, self.reduce], depth - 1)
            op = pick.choice((Ops.ADD, Ops.MAX, Ops.MIN))
            return inner.reduce(op, self.reduce)
        if kind < 0.5:
            a, b = self.value(loops, depth - 1), self.value(loops, depth - 1)
            return (a < b).where(a + 1.0, b * 0.5)
        a, b = self.value(loops, depth - 1), self.value(loops, depth - 1)
        return pick.choice((a + b, a * b, a.maximum(b), a - b, a.minimum(b)))

    def leaf(self, loops: list[UOp]) -> UOp:
        pick = self.random
        used = [r for r in loops if pick.random() < 0.8] or loops[:1]
        if pick.random() < 0.3:
            pick.shuffle(used)
        size = 1
        for r in used:
            size *= int(r.src[0].arg)
        at = self.flat(used)
        if pick.random() < 0.2:
            at = at * -1 + (size - 1)
        buffer = param(self.slot, size)
        self.slot += 1
        if pick.random() < 0.25:
            shift = pick.choice((-1, 1, 2))
            at = at + shift
            return buffer.load(at, (at >= 0) & (at < size), 1.0)
        return buffer.load(at)
