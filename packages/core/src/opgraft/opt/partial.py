"""`Partial`: sums weighted by exponentials of differences to a maximum, block by block.

A softmax, and attention around it, divides exponentials of scores less their greatest by their sum.
All scores of a row have to be there before the first is used; long rows leave the cache. Block by
block, each with a greatest score of its own, they need not be: what a block's sums lack to the
common maximum is one factor, exp(own - common), and is multiplied in when all blocks are done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from opgraft.dtype import DType, Scalar
from opgraft.ir.argument import writable_as_text
from opgraft.ir.evaluate import alu
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.actions import Action, Refused, sized_loop
from opgraft.opt.axes import Kernel, buffer_of, closed_by, constant_extent, fresh, store_of
from opgraft.opt.pack import factors
from opgraft.opt.tile_shape import second_cache
from opgraft.rules.simplify import tidy
from opgraft.target import Target


@writable_as_text
@dataclass(frozen=True)
class Partial(Action):
    """The maximum over `name`, and the sums weighted by exponentials of differences to it, are
    taken in blocks of `size` iterations, and joined when all are done. NAME.b counts blocks."""

    name: object
    size: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop, extent = sized_loop(kernel, self.name)
        if not 1 < self.size < extent or extent % self.size:
            raise Refused(f"range {self.name} of {extent} has no even blocks of {self.size}")
        found = _find(kernel, loop)
        return tidy(sink.substitute(_Blocked(kernel, found, loop, extent, self.size).run()))


@dataclass(frozen=True)
class _Weighted:
    """A maximum, a buffer of exponentials of differences to it, and the sums that read it."""

    greatest: UOp
    filled: UOp
    exponential: UOp
    """What an element of the buffer is, of the difference `difference`."""
    difference: UOp
    sums: dict[UOp, UOp]
    """REDUCE over the buffer -> its LOAD of it."""
    scaled: dict[UOp, tuple[UOp, UOp]]
    """REDUCE over a buffer that is this one times a factor -> (its LOAD, the factor)."""


def _find(kernel: Kernel, loop: UOp) -> _Weighted:
    tops = [r for r in kernel.reduces if r.arg is Ops.MAX and r.src[1:] == (loop,)]
    if len(tops) != 1 or not tops[0].dtype.is_float:
        raise Refused(f"no single maximum of floats is taken over {loop.arg[0]}")
    top = tops[0]
    for after in kernel.nodes:
        store = _only_store(after)
        if store is None or top not in toposort((store.src[2],), lambda n: n.op is not Ops.AFTER):
            continue
        (own,) = closed_by(after.src[1])
        difference = _difference(store.src[2], top, loop, own)
        if difference is None or not is_exponential(store.src[2], difference):
            continue
        sums, scaled = _readers(kernel, after)
        return _Weighted(top, after, store.src[2], difference, sums, scaled)
    raise Refused(f"no buffer holds exponentials of differences to the maximum over {loop.arg[0]}")


def _only_store(after: UOp) -> UOp | None:
    """The STORE that fills a LOCAL along one loop, each element once; None of anything else."""
    if after.op is not Ops.AFTER or after.src[0].op is not Ops.LOCAL or len(after.src) != 2:
        return None
    store, loops = store_of(after.src[1]), closed_by(after.src[1])
    plain = store.op is Ops.STORE and len(store.src) == 3 and len(loops) == 1
    return store if plain and store.src[1] is loops[0] else None


def _difference(value: UOp, top: UOp, loop: UOp, own: UOp) -> UOp | None:
    """The node of a value that is an element less the maximum; by it alone it depends on both."""
    element = tidy(substitute_free(top.src[0], {loop: own}))
    less = [n for n in value.toposort() if n.op is Ops.MUL and n.src[0] is top]
    for n in value.toposort():
        if n.op is Ops.ADD and any(s in less and s.src[1].const_value == -1 for s in n.src):
            other = n.src[0] if n.src[1] in less else n.src[1]
            rest = _above(value, n)
            alone = all(m is n or m.op in GroupOp.ALU or m.is_const for m in rest)
            if alone and tidy(other) is element:
                return n
    return None


def _above(value: UOp, node: UOp) -> list[UOp]:
    """What a value is made of, but for what lies below a node."""
    return toposort((value,), lambda n: n is not node and n.op is not Ops.AFTER)


def _evaluated(n: UOp, known: dict[UOp, Scalar]) -> Scalar:
    if n.is_const:
        constant: Scalar = n.const_value
        return constant
    values = tuple(known[s] for s in n.src)
    if n.op is Ops.EXP2:
        return n.dtype.const(math.exp2(float(values[0])))
    return alu(n.op, n.dtype, tuple(s.dtype for s in n.src), values)


_POINTS: Final = (0.0, -0.5, -1.0, -3.25, -7.0, -11.5)


def is_exponential(value: UOp, argument: UOp) -> bool:
    """Whether a value is an exponential of an argument: at all points that are tried a sum of
    arguments gives the product of values, and nothing is left of minus infinity."""

    def at(x: float) -> float:
        known: dict[UOp, Scalar] = {argument: argument.dtype.const(x)}
        for n in toposort((value,), lambda n: n not in known):
            if n not in known:
                known[n] = _evaluated(n, known)
        return float(known[value])

    def close(one: float, two: float) -> bool:
        return math.isclose(one, two, rel_tol=1e-2 if value.dtype.bits < 32 else 1e-5)

    if at(-math.inf) != 0.0 or not close(at(0.0), 1.0) or close(at(-1.0), 1.0):
        return False
    return all(close(at(a + b), at(a) * at(b)) for a in _POINTS for b in _POINTS)


def _readers(kernel: Kernel, after: UOp) -> tuple[dict[UOp, UOp], dict[UOp, tuple[UOp, UOp]]]:
    """The sums over a buffer, and over those made of it by one factor. Refused where others read
    it."""
    sums: dict[UOp, UOp] = {}
    scaled: dict[UOp, tuple[UOp, UOp]] = {}
    for load in _loads(kernel, after):
        made = _scaled_buffer(kernel, load)
        if made is None:
            sums[_sum_over(kernel, load)] = load
            continue
        again, factor = made
        for other in _loads(kernel, again):
            scaled[_sum_over(kernel, other)] = other, factor
    return sums, scaled


def _loads(kernel: Kernel, buffer: UOp) -> list[UOp]:
    return [n for n in kernel.nodes if n.op is Ops.LOAD and n.src[0] is buffer]


def _scaled_buffer(kernel: Kernel, load: UOp) -> tuple[UOp, UOp] | None:
    """The buffer that is a load times what is the same for all its elements."""
    for after in kernel.nodes:
        store = _only_store(after)
        if store is None or store.src[1] is not load.src[1] or store.src[2].op is not Ops.MUL:
            continue
        if load in store.src[2].src:
            one, two = store.src[2].src
            factor = two if one is load else one
            if store.src[1] not in factor.ranges:
                return after, factor
    return None


def _sum_over(kernel: Kernel, load: UOp) -> UOp:
    """The REDUCE that adds up a load, or its products with something."""
    users = [n for n in kernel.nodes if load in n.src]
    if len(users) == 1 and users[0].op is Ops.MUL and users[0].src.count(load) == 1:
        users = [n for n in kernel.nodes if users[0] in n.src]
    ok = len(users) == 1 and users[0].op is Ops.REDUCE and users[0].arg is Ops.ADD
    if not ok or users[0].src[1:] != (load.src[1],):
        raise Refused(f"{buffer_of(load.src[0]).arg[0]} is used other than by sums over all of it")
    return users[0]


_ROWS: Final = 16
"""Rows that half of the second cache holds, where they are kept whole."""


def in_parts(sink: UOp, target: Target) -> UOp:
    """The kernel with rows of scores that are too long for the cache taken in blocks.

    A block's scores and weights, and what is kept of each block, are to take as little together as
    they can: so blocks are as long as the root of it all.
    """
    kernel = Kernel(sink)
    buffers = [n for n in kernel.nodes if n.op is Ops.LOCAL]
    longest = max((n.arg[1] * n.dtype.itemsize for n in buffers), default=0)
    if longest * _ROWS <= second_cache(target) // 2 or not any(map(factors, kernel.reduces)):
        return sink
    for reduce in kernel.reduces:
        loop = reduce.src[1]
        extent = constant_extent(loop)
        if reduce.arg is not Ops.MAX or extent is None:
            continue
        columns = max((constant_extent(r) or 1 for r in kernel.spine[-1:]), default=1)
        wanted = math.isqrt(extent * (columns + 2) // 2)
        sizes = [n for n in range(2, extent) if extent % n == 0]
        if not sizes:
            continue
        size = min(sizes, key=lambda n: abs(math.log(n / wanted)))
        try:
            return Partial(loop.arg[0], size).apply(sink)
        except Refused:
            continue
    return sink


class _Blocked:
    """What takes the place of each sum."""

    def __init__(self, kernel: Kernel, found: _Weighted, loop: UOp, extent: int, size: int) -> None:
        self.kernel, self.found, self.size = kernel, found, size
        self.loop, self.blocks = loop, extent // size
        self.rows = frozenset(found.filled.ranges)
        self.block = self._range(self.blocks, "b")
        self.names = 0

    def run(self) -> dict[UOp, UOp]:
        found, block, dtype = self.found, self.block, self.found.greatest.dtype
        weighs = found.exponential.dtype  # which may be another one than that of scores
        own = self._range(self.size, "s")
        scores = self._local(self.size, dtype)
        value = self._inlined(substitute_free(found.greatest.src[0], {self.loop: self._at(own)}))
        scores = scores.after(scores.store(own, value).end(own))
        k = self._range(self.size, "k", AxisKind.REDUCE)
        top = scores.load(k).reduce(Ops.MAX, k)
        low = UOp.const(dtype, -math.inf)
        base = top.eq(low).where(UOp.const(dtype, 0.0), top)
        each = self._range(self.size, "e")
        weights = self._local(self.size, weighs)
        weight = self._exponential(scores.load(each), base)
        weights = weights.after(weights.store(each, weight).end(each))
        tops = self._local(self.blocks, dtype)
        tops = tops.after(tops.store(block, top).end(block))
        m, f = self._range(self.blocks, "m", AxisKind.REDUCE), self._range(self.blocks, "f")
        common = tops.load(m).reduce(Ops.MAX, m)
        factors = self._local(self.blocks, weighs)
        factors = factors.after(factors.store(f, self._exponential(tops.load(f), common)).end(f))
        made: dict[UOp, UOp] = {}
        for reduce, load in found.sums.items():
            made[reduce] = self._joined(reduce, load, weights, factors)
        for reduce, (load, factor) in found.scaled.items():
            total = self._joined(reduce, load, weights, factors)
            made[reduce] = total * factor.substitute(made)
        return made

    def _joined(self, reduce: UOp, load: UOp, weights: UOp, factors: UOp) -> UOp:
        """The sum over blocks of what each has summed, times the block's factor."""
        free = [r for r in reduce.ranges if r not in self.rows]
        inner = {r: self._range(constant_extent(r) or 1, f"p{r.arg[0]}") for r in free}
        span = 1
        for r in free:
            if constant_extent(r) is None:
                raise Refused(f"range {r.arg[0]} has no constant extent")
            span *= constant_extent(r) or 1
        i = self._range(self.size, "i", AxisKind.REDUCE)
        body = reduce.src[0].substitute({load: weights.load(i)})
        body = substitute_free(body, {load.src[1]: self._at(i), **inner})
        body = body.substitute({weights.load(self._at(i)): weights.load(i)})
        parts = self._local(self.blocks * span, reduce.dtype)
        place = self._place(self.block, list(inner.values()), free)
        store = parts.store(place, body.reduce(Ops.ADD, i)).end(self.block, *inner.values())
        parts = parts.after(store)
        j = self._range(self.blocks, "j", AxisKind.REDUCE)
        return (parts.load(self._place(j, free, free)) * factors.load(j)).reduce(Ops.ADD, j)

    def _place(self, block: UOp, at: list[UOp], sizes: list[UOp]) -> UOp:
        index = block
        for one, size in zip(at, sizes, strict=True):
            index = index * (constant_extent(size) or 1) + one
        return index

    def _exponential(self, score: UOp, base: UOp) -> UOp:
        return self.found.exponential.substitute({self.found.difference: score + base * -1.0})

    def _inlined(self, value: UOp) -> UOp:
        """A value with what it loads from buffers of one statement in the loads' place."""
        changes: dict[UOp, UOp] = {}
        for n in value.toposort():
            store = _only_store(n.src[0]) if n.op is Ops.LOAD else None
            if store is not None:
                (own,) = closed_by(n.src[0].src[1])
                changes[n] = substitute_free(store.src[2], {own: n.src[1]})
        return value.substitute(changes)

    def _at(self, inside: UOp) -> UOp:
        return self.block * self.size + inside

    def _range(self, size: int, suffix: str, kind: AxisKind = AxisKind.LOOP) -> UOp:
        return UOp.range(size, fresh(self.kernel, f"{self.loop.arg[0]}.{suffix}"), kind)

    def _local(self, size: int, dtype: DType) -> UOp:
        taken = {n.arg[0] for n in self.kernel.nodes if n.op is Ops.LOCAL}
        while f"part{self.names}" in taken:
            self.names += 1
        name = f"part{self.names}"
        self.names += 1
        return UOp(Ops.LOCAL, dtype, (), (name, size, Space.PRIVATE))
