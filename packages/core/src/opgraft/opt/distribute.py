"""`Distribute`: a loop around several statements becomes a loop of each of them.

What one iteration handed to the next statement through a buffer of its own is kept for all of
them: the buffer gets the extent of the loop. So a product that was carried out row by row between
other statements sees many rows at once, and can be tiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, keep_extents
from opgraft.opt.axes import Kernel, buffer_of, closed_by, constant_extent, fresh, store_of
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Distribute(Action):
    """The loop `name` of the effects is carried out by each statement that fills a buffer in it
    for itself, in a loop NAME.BUFFER of its own."""

    name: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = kernel.find(self.name)
        size = None if loop is None else constant_extent(loop)
        if loop is None or size is None:
            raise Refused(f"there is no range {self.name!r} of constant extent")
        if not kernel.fills_locals(loop):
            raise Refused(f"no buffer is filled anew in each iteration of {self.name}")
        if loop not in kernel.spine:
            raise Refused(f"range {self.name} does not enclose the whole kernel")
        keep_extents(kernel, loop)
        return tidy(_Distribution(kernel, loop, size).run())


class _Distribution:
    def __init__(self, kernel: Kernel, loop: UOp, extent: int) -> None:
        self.kernel = kernel
        self.loop = loop
        self.extent = extent
        self.done: dict[UOp, UOp] = {}
        self.rows: list[str] = []
        # also if one of several fills is the same in all iterations: the buffer begins anew in each
        self.refilled = frozenset(kernel.filled_in(loop))

    def run(self) -> UOp:
        for n in self.kernel.nodes:
            src = tuple([self.done[s] for s in n.src])
            made = n if src == n.src else n.with_src(src)
            if n in self.refilled:  # with a row for each iteration
                name, size, space = n.arg
                made = n.replace(arg=(name, size * self.extent, space))
            elif n.op is Ops.AFTER and buffer_of(n) in self.refilled:
                made = self._filled(n, made)
            elif n.op is Ops.LOAD and buffer_of(n.src[0]) in self.refilled:
                # what fills the buffer reads it as it is so far, others after that
                index = self.loop * buffer_of(n.src[0]).arg[1] + made.src[1]
                made = made.with_src((made.src[0], index, *made.src[2:]))
            self.done[n] = made
        return self.done[self.kernel.sink]

    def _row(self, buffer: str) -> str:
        """A name for the loop of a statement that fills a buffer: each has one of its own."""
        wanted = f"{self.loop.arg[0]}.{buffer}"
        while wanted in self.rows:
            wanted += "'"
        self.rows.append(wanted)
        return fresh(self.kernel, wanted)

    def _stores(self, n: UOp) -> bool:
        """Whether a node stands for an array after what an iteration of the loop does to it."""
        return n.op is Ops.AFTER and buffer_of(n).op is Ops.PARAM and self.loop in n.ranges

    def _filled(self, n: UOp, made: UOp) -> UOp:
        """A buffer with a row for each iteration, after its fills for all of them."""
        name, size, _ = buffer_of(n).arg
        before = made.src[0]
        effects = []
        for effect in made.src[1:]:
            store = store_of(effect)
            if store.op is not Ops.STORE or buffer_of(store.src[0]) is not buffer_of(before):
                raise Refused(f"{name} is written by {store.op.name} on the way")
            if any(self._stores(m) for m in effect.toposort()):
                raise Refused(f"what fills {name} reads what an iteration has stored")
            row = UOp.range(self.extent, self._row(str(name)))
            index = self.loop * size + store.src[1]
            target = before if store.src[0].op is Ops.LOCAL else store.src[0]
            moved = store.with_src((target, index, *store.src[2:]))
            body = substitute_free(moved, {self.loop: row})
            effects.append(body.end(row, *closed_by(effect)))
        return before.after(*effects)


def rows_of_locals(kernel: Kernel, loop: UOp) -> int:
    """Bytes that the buffers filled anew in each iteration of a loop take together."""
    total = 0
    for n in kernel.nodes:
        if n.op is Ops.AFTER and n.src[0].op is Ops.LOCAL and loop in n.ranges:
            local = n.src[0]
            total += local.arg[1] * local.dtype.itemsize
    return total
