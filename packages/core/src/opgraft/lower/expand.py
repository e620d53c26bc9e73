"""Carry out VECTOR and UNROLL ranges.

Before: a kernel graph whose schedule has marked some ranges VECTOR or UNROLL (constant extents).
After: none of these ranges is left. An unrolled range has become copies of what it stood in; a
vector range has become vector operations: consecutive accesses are vector loads and stores,
accesses that don't move are scalar and broadcast, the rest goes lane by lane (or by vectors of
indices where the target gathers). A REDUCE over such a range is a tree of its copies, or a
vector REDUCE followed by HREDUCE.
"""

from __future__ import annotations

from collections.abc import Callable

from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir.linear import EXCLUSIVE
from opgraft.ir.loops import split_stride
from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.reduction import combine, identity
from opgraft.ir.uop import UOp, substitute, toposort
from opgraft.opt.actions import close_copies
from opgraft.target import Target


def expand(sink: UOp, target: Target, simplify: Callable[[UOp], UOp]) -> UOp:
    """The kernel without VECTOR and UNROLL ranges; `simplify` tidies indices in between."""
    # vectors first: the copies of an unrolled REDUCE are then added as vectors, lane by lane
    sink = Vectorizer(target).run(sink)
    unrolled = _unrolled(sink)
    for loop in unrolled:
        sink = unroll(sink, loop)
    return simplify(sink) if unrolled else sink


def _unrolled(sink: UOp) -> list[UOp]:
    """The UNROLL ranges in the order in which statements close them: the copies of the last one
    stand side by side. Compilers keep to that order, and so to the values that are in use."""
    nodes = sink.toposort()
    closed = [r for n in nodes if n.op in (Ops.END, Ops.REDUCE) for r in n.src[1:]]
    ranges = [*closed, *(n for n in nodes if n.op is Ops.RANGE)]
    return [r for r in dict.fromkeys(ranges) if r.arg[1] is AxisKind.UNROLL]


def extent(loop: UOp) -> int:
    """The constant extent of a range; LoweringError where it is not known."""
    size = loop.src[0].const_value
    if size is None:
        raise LoweringError(f"range {loop.arg[0]} has no constant extent, so it can't be expanded")
    return int(size)


def unroll(sink: UOp, loop: UOp) -> UOp:
    """The graph with one copy of what stood in `loop` for each of its values."""
    values = [UOp.const(dtypes.index, i) for i in range(extent(loop))]
    return close_copies(sink, loop, [({loop: v}, ()) for v in values])


class Vectorizer:
    """Turns VECTOR ranges into vector operations, innermost users first."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def run(self, sink: UOp) -> UOp:
        done: dict[UOp, tuple[UOp, ...]] = {}
        for n in sink.toposort():
            own = [r for r in n.src[1:] if _is_vector(r)] if n.op in (Ops.END, Ops.REDUCE) else []
            if len(own) > 1:
                raise LoweringError("a statement has at most one VECTOR range")
            if n.op is Ops.END:
                # the inner effect may have become several: each is closed by itself
                bodies = done[n.src[0]]
                rest = tuple(done[r][0] for r in n.src[1:] if r not in own)
                if own:
                    lanes = Lanes(own[0], self.target)
                    bodies = tuple(part for body in bodies for part in lanes.effect(body))
                done[n] = tuple(body.end(*rest) for body in bodies)
            elif not own:
                src = tuple(part for s in n.src for part in done[s])
                done[n] = (n if src == n.src else n.with_src(src),)
            else:
                rest = tuple(done[r][0] for r in n.src[1:] if r not in own)
                vector = Lanes(own[0], self.target).value(done[n.src[0]][0])
                total = vector.reduce(n.arg, *rest)
                done[n] = (UOp(Ops.HREDUCE, n.dtype, (total,), n.arg),)
        return done[sink][0]


def _is_vector(loop: UOp) -> bool:
    return loop.op is Ops.RANGE and loop.arg[1] is AxisKind.VECTOR


def _is_apart(n: UOp) -> bool:
    """Whether a node is not made of its sources as vectors: AFTER brings its effects along, and a
    word of neighbours is loaded lane by lane."""
    return n.op is Ops.AFTER or (n.op is Ops.BITCAST and n.src[0].dtype.count > n.dtype.count)


class Lanes:
    """What stands in one VECTOR range, as vectors with one lane for each of its values."""

    def __init__(self, loop: UOp, target: Target) -> None:
        self.loop = loop
        self.count = extent(loop)
        self.gathers = target.gather
        self.done: dict[UOp, UOp] = {}
        self.lanes: dict[tuple[UOp, int], UOp] = {}

    def varies(self, n: UOp) -> bool:
        return self.loop in n.ranges

    def lane(self, n: UOp, index: int) -> UOp:
        """The scalar graph of `n` in one lane."""
        key = (n, index)
        found = self.lanes.get(key)
        if found is None:
            found = self.lanes[key] = substitute((n,), {self.loop: UOp.const(dtypes.index, index)})[
                0
            ]
        return found

    def vector(self, n: UOp) -> UOp:
        """`n` as a vector: computed so already, or a scalar in every lane."""
        if self.varies(n):
            return self.done[n]
        return n.broadcast(self.count)

    def value(self, root: UOp) -> UOp:
        """`root` for all values of the range at once."""
        if root.dtype.count > 1:
            raise LoweringError("one statement stands in two VECTOR ranges")
        if not self.varies(root):
            return root.broadcast(self.count)
        for n in toposort((root,), lambda n: not _is_apart(n) and self._pending(n)):
            if self._pending(n):
                self.done[n] = self._one(n)
        return self.done[root]

    def _pending(self, n: UOp) -> bool:
        return n not in self.done and self.varies(n)

    def _one(self, n: UOp) -> UOp:
        count = self.count
        if n is self.loop:
            return UOp(Ops.IOTA, dtypes.index.vec(count))
        if n.dtype.count > 1:
            raise LoweringError("one expression stands in two VECTOR ranges")
        if n.op is Ops.BITCAST and _is_apart(n):
            parts = self._parts(n.src[0])
            if parts is not None:
                return UOp(Ops.BITCAST, n.dtype.vec(count), (parts,), n.arg)
            scalars = tuple(self.lane(n, i) for i in range(count))
            return UOp(Ops.STACK, n.dtype.vec(count), scalars)
        if n.op in GroupOp.ALU or n.op is Ops.DOT:
            sources = tuple(self.vector(s) for s in n.src)
            return UOp(n.op, n.dtype.vec(count), sources, n.arg, n.tag)
        if n.op is Ops.LOAD:
            return self._load(n)
        if n.op is Ops.AFTER:
            if self.varies(n.src[0]):
                self.value(n.src[0])
            return n.src[0].after(*(part for s in n.src[1:] for part in self.effect(s)))
        if n.op is Ops.REDUCE:
            return UOp(Ops.REDUCE, n.dtype.vec(count), (self.vector(n.src[0]), *n.src[1:]), n.arg)
        if n.op is Ops.SCAN and n.src[-1] is self.loop and len(n.src) > 2:
            return self._scan(n)
        if n.op is Ops.SCAN and self.loop not in n.src[1:]:
            return UOp(Ops.SCAN, n.dtype.vec(count), (self.vector(n.src[0]), n.src[1]), n.arg)
        raise LoweringError(f"{n.op.name} can't be carried out on lanes of {self.loop.arg[0]}")

    def _parts(self, n: UOp) -> UOp | None:
        """The parts of the words of all lanes, those of a lane side by side; None where they do
        not lie so."""
        dtype = n.dtype.scalar.vec(n.dtype.count * self.count)
        if n.op is Ops.BROADCAST and not self.varies(n):
            return n.src[0].broadcast(dtype.count)
        if n.op is Ops.LOAD and len(n.src) == 2 and not self.varies(n.src[0]):
            base, stride = split_stride(n.src[1], self.loop)
            return UOp(Ops.LOAD, dtype, (n.src[0], base)) if stride == n.dtype.count else None
        if n.op not in GroupOp.ALU or any(s.dtype.count != n.dtype.count for s in n.src):
            return None
        sources = [self._parts(s) for s in n.src]
        known = tuple(s for s in sources if s is not None)
        return UOp(n.op, dtype, known, n.arg) if len(known) == len(sources) else None

    def _scan(self, n: UOp) -> UOp:
        """A SCAN through lanes: sums within each vector, after the sum of the vectors before. That
        stands in all lanes, so that one addition is all that a vector waits for."""
        count, last = self.count, self.count - 1
        within, step = self.vector(n.src[0]), 1
        nothing = identity(n.arg, n.dtype)
        while step < count:
            moved = [within.extract(k - step) if k >= step else nothing for k in range(count)]
            within = combine(n.arg, within, UOp(Ops.STACK, within.dtype, tuple(moved)))
            step *= 2
        whole = UOp(Ops.STACK, within.dtype, (within.extract(last),) * count)
        before = UOp(Ops.SCAN, within.dtype, (whole, n.src[1]), n.arg, EXCLUSIVE)
        return combine(n.arg, before, within)

    def _load(self, n: UOp) -> UOp:
        buffer, index, *gated = n.src
        dtype = n.dtype.vec(self.count)
        if self.varies(buffer):
            # memory that is written in all lanes before any reads it: no LOCAL, which is one
            buffer = self.value(buffer)
        uniform_gate = not gated or not self.varies(gated[0])
        base, stride = split_stride(index, self.loop)
        if stride == 0 and uniform_gate and not (gated and self.varies(gated[1])):
            return n.with_src((buffer, base, *gated)).broadcast(self.count)
        if stride == 1 and uniform_gate:
            tail = (gated[0], self.vector(gated[1])) if gated else ()
            return UOp(Ops.LOAD, dtype, (buffer, base, *tail))
        if self.gathers:
            for part in (index, *gated):
                self.value(part)
            return UOp(
                Ops.LOAD, dtype, (buffer, self.vector(index), *(self.vector(g) for g in gated))
            )
        scalars = n.with_src((buffer, *n.src[1:]))
        return UOp(Ops.STACK, dtype, tuple(self.lane(scalars, i) for i in range(self.count)))

    def effect(self, store: UOp) -> tuple[UOp, ...]:
        """A STORE for all values of the range: one vector store, or one store a lane."""
        if store.op is Ops.END:
            return tuple(p.end(*store.src[1:]) for p in self.effect(store.src[0]))
        if not self.varies(store):
            return (store,)
        if store.op is Ops.PREFETCH:
            return tuple(self.lane(store, i) for i in range(self.count))
        if store.op is not Ops.STORE:
            raise LoweringError(f"a VECTOR range is closed by {store.op.name}, not by a STORE")
        buffer, index, value, *gate = store.src
        base, stride = split_stride(index, self.loop)
        uniform_gate = not gate or not self.varies(gate[0])
        if stride == 1 and uniform_gate:
            return (store.with_src((buffer, base, self.value(value), *gate)),)
        whole = self.value(value)
        if self.gathers:
            self.value(index)
            gates = tuple(self.value(g) for g in gate)
            return (store.with_src((buffer, self.vector(index), whole, *gates)),)
        parts = []
        for i in range(self.count):
            tail = tuple(self.lane(g, i) for g in gate)
            parts.append(store.with_src((buffer, self.lane(index, i), whole.extract(i), *tail)))
        return tuple(parts)
