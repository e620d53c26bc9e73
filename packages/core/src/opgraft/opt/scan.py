"""`ScanLanes`: a scan along memory by vectors, with a carry from one to the next.

One element at a time, each waits for the sum before it. Within a vector log2(lanes) exchanges give
every lane the sum of those before it, and only one addition per vector waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.reduction import combine
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, find_loop
from opgraft.opt.axes import (
    Kernel,
    buffer_of,
    closed_by,
    constant_extent,
    rename,
    store_of,
    target_of,
)
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class ScanLanes(Action):
    """The SCANs over `name` go by vectors of `lanes` elements.

    NAME.o counts vectors, NAME.v their lanes: a SCAN over both takes the lanes of a vector after
    all vectors before it. What is left is NAME.t, an element at a time, after the sum of all that.
    """

    name: object
    lanes: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = find_loop(kernel, self.name)
        size = constant_extent(loop)
        if size is None or not 1 < self.lanes <= size // 2:
            raise Refused(f"range {self.name} has no two vectors of {self.lanes}")
        check_scanned(kernel, loop)
        whole, rest = divmod(size, self.lanes)
        outer = rename(kernel, loop, ".o", loop.arg[1], whole)
        lane = rename(kernel, loop, ".v", AxisKind.VECTOR, self.lanes)
        copies = _Copies(loop, outer, lane, self.lanes)
        tail = rename(kernel, loop, ".t", loop.arg[1], rest) if rest else None
        effects: list[UOp] = []
        for effect in kernel.effects:
            if loop not in closed_by(effect):
                effects.append(effect)
                continue
            effects.append(copies.whole(effect))
            if tail is not None:
                effects.append(copies.tail(effect, tail, whole * self.lanes))
        return tidy(sink.with_src(tuple(effects)))


def check_scanned(kernel: Kernel, loop: UOp) -> None:
    """Refuses a loop whose SCANs can't be taken apart: not all that it does is to store them."""
    name = loop.arg[0]
    if not kernel.is_scanned(loop):
        raise Refused(f"range {name} is not scanned")
    if any(n.op is not Ops.END or n not in kernel.effects for n in kernel.closers[loop]):
        raise Refused(f"not only results are stored in {name}")
    if any(len(effect.src[1:]) != len(closed_by(effect)) for effect in kernel.closers[loop]):
        raise Refused(f"an effect in {name} is nested")
    scans = [n for n in kernel.nodes if n.op is Ops.SCAN and loop in n.src[1:]]
    for scan in scans:
        if len(scan.src) > 2:
            raise Refused(f"range {name} goes by vectors already")
        if any(n in scans for n in scan.src[0].toposort()):
            raise Refused(f"a SCAN over {name} is scanned again")
    if kernel.collides(loop) or kernel.fills_locals(loop):
        raise Refused(f"memory is written anew in iterations of {name}")
    written = {target_of(effect) for effect in kernel.closers[loop]}
    for n in kernel.nodes:
        if n.op is Ops.LOAD and buffer_of(n.src[0]) in written:
            raise Refused(f"what is stored in {name} is read in this kernel")
    if any(len(store_of(effect).src) > 3 for effect in kernel.closers[loop]):
        raise Refused(f"not all elements of {name} are stored")


@dataclass
class _Copies:
    """An effect for all vectors, and for what is left."""

    loop: UOp
    outer: UOp
    lane: UOp
    lanes: int

    def whole(self, effect: UOp) -> UOp:
        index = self.outer * self.lanes + self.lane
        store = self._by_vectors(store_of(effect), index)
        return store.end(*self._instead(effect, self.outer, self.lane))

    def tail(self, effect: UOp, tail: UOp, begin: int) -> UOp:
        store = store_of(effect)
        done: dict[UOp, UOp] = {self.loop: tail + begin}
        index = self.outer * self.lanes + self.lane
        for n in store.toposort():
            if n in done:
                continue
            if n.op is Ops.SCAN and n.src[1] is self.loop:
                before = substitute_free(n.src[0], {self.loop: index})
                before = before.reduce(n.arg, self.outer, self.lane)
                done[n] = combine(n.arg, before, n.with_src((done[n.src[0]], tail)))
            else:
                src = tuple([done[s] for s in n.src])
                done[n] = n if src == n.src else n.with_src(src)
        return done[store].end(*self._instead(effect, tail))

    def _by_vectors(self, root: UOp, index: UOp) -> UOp:
        done: dict[UOp, UOp] = {self.loop: index}
        for n in root.toposort():
            if n in done:
                continue
            if n.op is Ops.SCAN and n.src[1] is self.loop:
                done[n] = n.with_src((done[n.src[0]], self.outer, self.lane))
            else:
                src = tuple([done[s] for s in n.src])
                done[n] = n if src == n.src else n.with_src(src)
        return done[root]

    def _instead(self, effect: UOp, *loops: UOp) -> list[UOp]:
        ranges: list[UOp] = []
        for r in effect.src[1:]:
            ranges.extend(loops if r is self.loop else (r,))
        return ranges
