"""`Fold`: a reduction by vectors, in one pass with all of its remains.

Splitting a range leaves loops for what does not divide it: each with a result of its own, put
together lane by lane at the end. Short rows would be all remains. Here the results of all parts
stay vectors until the last step: copies of a whole number of vectors, single vectors, and for the
last few elements a vector that ends with the range, in whose first lanes, which were counted
before, nothing is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.reduction import combine, identity
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, keep_extents, sized_loop
from opgraft.opt.axes import Kernel, rename
from opgraft.rules.simplify import tidy

_TWICE: frozenset[Ops] = frozenset({Ops.MAX, Ops.MIN, Ops.AND, Ops.OR})
"""Operations that may take an element twice."""


@writable_as_text
@dataclass(frozen=True)
class Fold(Action):
    """The REDUCEs over `name` combine vectors of `lanes` elements, `copies` of them at once.

    NAME.o counts the passes of `copies` vectors, NAME.u the copies, NAME.r the vectors that are
    left, NAME.v the lanes.
    """

    name: object
    lanes: int
    copies: int = 1

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop, size = sized_loop(kernel, self.name)
        if not 1 < self.lanes <= size or not 1 <= self.copies <= size // self.lanes:
            raise Refused(
                f"range {self.name} of {size} has no {self.copies} vectors of {self.lanes}"
            )
        if any(n.op is not Ops.REDUCE for n in kernel.closers[loop]):
            raise Refused(f"range {self.name} is not only reduced")
        if loop.arg[1] is not AxisKind.REDUCE and loop.arg[1] is not AxisKind.LOOP:
            raise Refused(f"range {self.name} is carried out at once already")
        if kernel.fills_locals(loop):
            raise Refused(f"a local buffer is filled anew in each iteration of {self.name}")
        keep_extents(kernel, loop)
        for n in kernel.closers[loop]:
            around = (*n.ranges, *n.src[1:])
            if any(r.arg[1] in (AxisKind.VECTOR, AxisKind.THREAD) for r in around):
                raise Refused(f"a REDUCE over {self.name} stands in lanes or threads already")
        folding = _Folding(kernel, loop, size, self.lanes, self.copies)
        done: dict[UOp, UOp] = {}
        for n in kernel.nodes:
            src = tuple([done[s] for s in n.src])
            made = n if src == n.src else n.with_src(src)
            if n.op is Ops.REDUCE and loop in n.src[1:]:
                made = folding.result(made)
            done[n] = made
        return tidy(done[sink])


class _Folding:
    """The parts of a range, and a REDUCE over them."""

    def __init__(self, kernel: Kernel, loop: UOp, size: int, lanes: int, copies: int) -> None:
        self.loop = loop
        vectors, self.rest = divmod(size, lanes)
        passes, left = divmod(vectors, copies)
        self.missing = lanes - self.rest
        self.lane = rename(kernel, loop, ".v", AxisKind.VECTOR, lanes)
        self.parts: list[tuple[UOp, tuple[UOp, ...]]] = []
        """Where the elements of a part begin, and the ranges that run over it."""
        index: UOp = UOp.const(dtypes.index, 0)
        ranges: list[UOp] = []
        if passes > 1:
            ranges.append(rename(kernel, loop, ".o", loop.arg[1], passes))
            index = ranges[0] * (copies * lanes)
        if copies > 1:
            ranges.append(rename(kernel, loop, ".u", AxisKind.UNROLL, copies))
            index = index + ranges[-1] * lanes
        self.parts.append((index, tuple(ranges)))
        first = passes * copies * lanes
        if left > 1:
            single = rename(kernel, loop, ".r", AxisKind.UNROLL, left)
            self.parts.append((single * lanes + first, (single,)))
        elif left:
            self.parts.append((UOp.const(dtypes.index, first), ()))
        self.end = UOp.const(dtypes.index, size - lanes)

    def result(self, reduce: UOp) -> UOp:
        """A REDUCE over the range, part by part."""
        others = tuple(r for r in reduce.src[1:] if r is not self.loop)
        total: UOp | None = None
        for begin, ranges in self.parts:
            part = self._closed(reduce, self._value(reduce, begin), (*others, *ranges))
            total = part if total is None else combine(reduce.arg, total, part)
        assert total is not None
        if self.rest:
            last = self._value(reduce, self.end)
            if reduce.arg not in _TWICE:
                counted = self.lane < self.missing
                last = counted.where(identity(reduce.arg, reduce.dtype), last)
            total = combine(reduce.arg, total, self._closed(reduce, last, others))
        return total.reduce(reduce.arg, self.lane)

    def _value(self, reduce: UOp, begin: UOp) -> UOp:
        return substitute_free(reduce.src[0], {self.loop: begin + self.lane})

    def _closed(self, reduce: UOp, value: UOp, ranges: tuple[UOp, ...]) -> UOp:
        return reduce.with_src((value, *ranges)) if ranges else value


def copies_of(vectors: int, most: int) -> int:
    """How many vectors at once: all, if they are few; else a number near `most` that divides
    them, so that none is left."""
    if vectors <= most:
        return max(1, vectors)
    for copies in range(most, most // 2, -1):
        if vectors % copies == 0:
            return copies
    return 1 << (most.bit_length() - 1)
