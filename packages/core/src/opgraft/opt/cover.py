"""`Cover`: a loop of stores by vectors, in one pass with all of its remains.

What does not fill a vector is covered by one that ends with the loop: the elements that it shares
with the one before it are stored twice, the same value each time. So no element goes by itself,
and what a statement does in a loop of its own (a sum over rows, for every column) is done once for
all vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Copy, Refused, close_copies, sized_loop
from opgraft.opt.axes import Kernel, rename
from opgraft.opt.tile import fills_alone, repeatable
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Cover(Action):
    """A range of effects goes by vectors of `lanes`, `copies` of them at once.

    NAME.o counts passes of `copies` vectors, NAME.u copies, NAME.v lanes; NAME.r the vectors that
    are left, NAME.rv their lanes; NAME.e the lanes of the vector that ends with the range.
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
        if any(n.op is not Ops.END for n in kernel.closers[loop]):
            raise Refused(f"range {self.name} is reduced: no value of it may count twice")
        if loop.arg[1] is not AxisKind.LOOP:
            raise Refused(f"range {self.name} is carried out at once already")
        if not kernel.may_reorder(loop) and not fills_alone(kernel, loop):
            raise Refused(f"iterations of {self.name} stay in order")
        if kernel.fills_locals(loop):
            raise Refused(f"a local buffer is filled anew in each iteration of {self.name}")
        vectors, rest = divmod(size, self.lanes)
        if rest and not repeatable(kernel, loop):
            raise Refused(f"a statement in {self.name} reads what it or another one stores")
        return tidy(close_copies(sink, loop, self._copies(kernel, loop, vectors, size)))

    def _copies(self, kernel: Kernel, loop: UOp, vectors: int, size: int) -> list[Copy]:
        lanes, copies = self.lanes, self.copies
        passes, left = divmod(vectors, copies)
        index: UOp = UOp.const(dtypes.index, 0)
        ranges: list[UOp] = []
        if passes > 1:
            ranges.append(rename(kernel, loop, ".o", AxisKind.LOOP, passes))
            index = ranges[0] * (copies * lanes)
        if copies > 1:
            ranges.append(rename(kernel, loop, ".u", AxisKind.UNROLL, copies))
            index = index + ranges[-1] * lanes
        ranges.append(rename(kernel, loop, ".v", AxisKind.VECTOR, lanes))
        found: list[Copy] = [({loop: index + ranges[-1]}, tuple(ranges))]
        if left:
            lane = rename(kernel, loop, ".rv", AxisKind.VECTOR, lanes)
            index, ranges = lane + passes * copies * lanes, [lane]
            if left > 1:
                single = rename(kernel, loop, ".r", AxisKind.UNROLL, left)
                index, ranges = index + single * lanes, [single, lane]
            found.append(({loop: index}, tuple(ranges)))
        if size % lanes:
            last = rename(kernel, loop, ".e", AxisKind.VECTOR, lanes)
            found.append(({loop: last + (size - lanes)}, (last,)))
        return found
