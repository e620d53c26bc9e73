"""Index expressions: the examples that are known, random ones, and their values at every index."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from opgraft.api import KernelInfo, Ops, UOp, dtypes

Roots = tuple[UOp, ...]


def flipped_view() -> Roots:
    i, j = UOp.range(28, 0), UOp.range(30, 1)
    f = (27 - i) * 30 + j
    return ((f % 6) * 140 + (34 - (f // 6) % 35) * 4 + f // 210,)


def flipped_both_ways() -> Roots:
    i, j = UOp.range(50, 0), UOp.range(14, 1)
    f = i * -14 + j + 700
    return f // 7, f % 7, (13 - j) % 7 + (13 - j) // 7 * 7


def blocks_of_an_image() -> Roots:
    n, k = UOp.range(12, 0), UOp.range(108, 1)
    f = n * 108 + k
    h, w = f // 36, f % 36
    return ((h // 3) * 12 + w // 3 + ((h % 3) * 3 + w % 3) * 144,)


def four_lanes() -> Roots:
    f = UOp.range(16, 0) * 48 + UOp.range(12, 1) * 4
    return tuple([(f + lane) // 12 + ((f + lane) % 12) * 64 for lane in range(4)])


def blocked_layout() -> Roots:
    f = UOp.range(12, 0) * 12 + UOp.range(12, 1)
    return f // 3 % 4, f // 12, f % 3


def exclusive_loads() -> Roots:
    i, j = UOp.range(26, 0), UOp.range(34, 1)
    a = i * 34 + j
    m, q = a % 52, a // 52
    zero = UOp.const(dtypes.float32, 0.0)
    first, middle, last = m < 30, (m > 29) & (m < 43), m > 42

    def load(slot: int, index: UOp, gate: UOp) -> UOp:
        place = UOp(Ops.PARAM, dtypes.float32, (), (slot, 17 * 52))
        return UOp(Ops.LOAD, dtypes.float32, (place, index, gate, zero))

    return (
        load(1, m * 17 + q, first)
        + load(2, ((i * 8 + j + 9) % 13) * 17 + q, middle)
        + load(3, m * 17 + q - 731, last),
    )


def quotient_and_rest() -> Roots:
    f = UOp.range(840, 0)
    return f // 7, f % 7


def rolled_picture() -> Roots:
    """A picture rolled along both axes: our own."""
    i, j = UOp.range(100, 0), UOp.range(30, 1)
    return ((i + 37) % 100 * 30 + (j + 11) % 30,)


def random_roots(rng: random.Random) -> Roots:
    """Some indices of views of views: sums in mixed radix, flipped, shifted, split, joined."""
    sizes = [rng.choice((2, 3, 4, 5, 6, 7, 8, 12, 14, 30)) for _ in range(rng.choice((1, 2, 2, 3)))]
    terms = [UOp.range(size, place) for place, size in enumerate(sizes)]
    flat, total = terms[0] * 1, sizes[0]
    for term, size in zip(terms[1:], sizes[1:]):
        flat, total = flat * size + term, total * size
    if rng.random() < 0.3:
        flat = total - 1 - flat
    if rng.random() < 0.25:
        flat = (flat + rng.randrange(total)) % total
    small = [d for d in (2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 21, 30, 36) if d < total] or [2]
    parts: list[UOp] = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        by = rng.choice(small)
        part = rng.choice(
            (flat // by, flat % by, flat % by, (flat // by) % rng.choice(small), flat % by // 2)
        )
        if rng.random() < 0.2:
            part = rng.choice((by, 1, 0)) - part
        if rng.random() < 0.1:
            part = (part < rng.randrange(1, by + 1)).where(part, part + rng.randrange(1, by + 1))
        parts.append(part)
    if rng.random() < 0.5:
        made = parts[0]
        for part in parts[1:]:
            made = made * rng.choice((1, 2, 3, by, total)) + part
        parts = [made]
    return tuple(parts)


_NUMPY: dict[Ops, Callable[..., np.ndarray]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.IDIV: np.floor_divide,
    Ops.MOD: np.mod,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.CMPLT: np.less,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.WHERE: np.where,
    Ops.CAST: lambda x: x.astype(np.int64),
}


def values(roots: Sequence[UOp]) -> list[np.ndarray]:
    """The roots at all values of their ranges. A LOAD is its slot and index where its gate holds,
    and its index is out of range nowhere."""
    nodes = UOp.sink(*roots).toposort()
    ranges = [n for n in nodes if n.op is Ops.RANGE]
    ranges.sort(key=lambda r: r.arg[0])
    sizes = [r.src[0].const_value for r in ranges]
    grid = dict(zip(ranges, np.indices(sizes).reshape(len(sizes), -1)))
    count = math.prod(sizes)
    done: dict[UOp, np.ndarray] = {}
    for n in nodes:
        if n in grid:
            done[n] = grid[n]
        elif n.op is Ops.CONST:
            done[n] = np.full(count, n.arg)
        elif n.op is Ops.PARAM:
            done[n] = np.full(count, n.arg[0] * 1_000_000)
        elif n.op is Ops.LOAD:
            place, index, gate, other = (done[s] for s in n.src)
            size = n.src[0].arg[1]
            assert ((index >= 0) & (index < size))[gate].all()
            done[n] = np.where(gate, place + index, other)
        elif n.op is not Ops.SINK:
            done[n] = _NUMPY[n.op](*(done[s] for s in n.src))
    return [done[r] for r in roots]


def same_values(before: Sequence[UOp], after: Sequence[UOp]) -> bool:
    """Whether the roots have the same values at every index."""
    count = len(before)
    made = values([*before, *after])
    return len(after) == count and all(
        (a == b).all() for a, b in zip(made[:count], made[count:], strict=True)
    )


def loading_kernel(roots: Roots, repeats: int) -> tuple[UOp, int, int]:
    """A kernel that adds up what lies at these indices, many times; elements of its buffers."""
    nodes = UOp.sink(*roots).toposort()
    again = UOp.range(repeats, 0)
    loops = [n for n in nodes if n.op is Ops.RANGE]
    loops.sort(key=lambda r: r.arg[0])
    inner = [UOp.range(r.src[0].const_value, place) for place, r in enumerate(loops, 1)]
    changes = dict(zip(loops, inner))
    size = repeats
    flat = again
    for r in inner:
        size *= r.src[0].const_value
        flat = flat * r.src[0].const_value + r
    most = 1 << 14
    slots = {n: UOp(Ops.PARAM, dtypes.float32, (), (n.arg[0], most + repeats))
             for n in nodes if n.op is Ops.PARAM}  # fmt: skip
    for n in nodes:
        if n.op is Ops.LOAD:
            place, index, *rest = n.src
            made = slots[place].load(index.substitute(changes) + again)
            if rest:
                made = made.with_src((*made.src, *(s.substitute(changes) for s in rest)))
            changes[n] = made
    source = UOp(Ops.PARAM, dtypes.float32, (), (1, most + repeats))
    total: UOp | None = None
    for root in roots:
        made = root.substitute(changes)
        value = source.load(made + again) if made.dtype.is_index else made
        total = value if total is None else total + value
    assert total is not None
    out = UOp(Ops.PARAM, dtypes.float32, (), (0, size))
    sink = UOp.sink(out.store(flat, total).end(again, *inner), arg=KernelInfo("example"))
    return sink, size, most + repeats
