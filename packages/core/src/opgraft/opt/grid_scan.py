"""Scans by the threads of a group: each scans a part of the loop, after the sum of all parts before
its own, which the threads tell each other through group memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.reduction import combine, identity
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, find_loop, keep_one_buffer
from opgraft.opt.axes import (
    DISTINCT,
    Kernel,
    closed_by,
    constant_extent,
    extent_hint,
    fresh,
    rename,
    store_of,
    stores_once,
)
from opgraft.opt.grid_actions import Grid
from opgraft.opt.pad import gated, loads_gated
from opgraft.opt.scan import check_scanned
from opgraft.rules.simplify import tidy
from opgraft.target import Target

_TURNS: Final = 4
"""The fewest elements of each of several threads, ..."""
_THREADS: Final = 256
"""... of which a group has no more."""


@writable_as_text
@dataclass(frozen=True)
class GroupScan(Action):
    """The SCANs over `name` go to `threads` threads of a group: each sums up its part, and then
    scans it, after the sum of the parts before. NAME.t counts threads, NAME.p what each has; the
    last ones may have less."""

    name: object
    threads: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = find_loop(kernel, self.name)
        size = constant_extent(loop)
        if self.threads < 2 or size is None or size < 2 * self.threads:
            raise Refused(f"range {self.name} has no two iterations for each of {self.threads}")
        check_scanned(kernel, loop)
        if loop.arg[1] is not AxisKind.LOOP:
            raise Refused(f"range {self.name} is of kind {loop.arg[1].name} already")
        scans = [n for n in kernel.nodes if n.op is Ops.SCAN and loop in n.src[1:]]
        around = [r for n in scans for r in n.ranges]
        if any(r.arg[1] is AxisKind.THREAD for r in around):
            raise Refused(f"threads of a group have scans over {self.name} of their own")
        keep_one_buffer("the scanned value", around)
        if not all(stores_once(store_of(e), closed_by(e)) for e in kernel.closers[loop]):
            raise Refused(f"iterations of {self.name} may store to one element: order counts")
        each = -(-size // self.threads)
        thread = rename(kernel, loop, ".t", AxisKind.THREAD, self.threads)
        part = rename(kernel, loop, ".p", AxisKind.LOOP, each)
        return tidy(_Parts(kernel, loop, thread, part).run())


class _Parts:
    """One application of `GroupScan`."""

    def __init__(self, kernel: Kernel, loop: UOp, thread: UOp, part: UOp) -> None:
        self.kernel, self.loop, self.thread, self.part = kernel, loop, thread, part
        self.threads, self.each = (constant_extent(r) or 1 for r in (thread, part))
        size = constant_extent(loop) or 1
        self.rest = size if self.threads * self.each > size else None
        """The extent of the loop, where the parts go beyond."""
        self.count = 0

    def run(self) -> UOp:
        effects = []
        for effect in self.kernel.effects:
            if self.loop in closed_by(effect):
                ranges: list[UOp] = []
                for r in effect.src[1:]:
                    ranges += (self.thread, self.part) if r is self.loop else (r,)
                effect = self._shared(store_of(effect)).end(*ranges)
            effects.append(effect)
        return self.kernel.sink.with_src(tuple(effects))

    def _held(self, root: UOp, index: UOp) -> UOp:
        """A value or STORE that touches no memory beyond the end of the loop."""
        if self.rest is None:
            return root
        here = index < self.rest
        root = loads_gated(root, here, lambda n: any(r in n.ranges for r in index.ranges))
        return gated(root, here).replace(tag=DISTINCT) if root.op is Ops.STORE else root

    def _shared(self, store: UOp) -> UOp:
        index = self.thread * self.each + self.part
        done: dict[UOp, UOp] = {self.loop: index}
        for n in store.toposort():
            if n in done:
                continue
            src = tuple([done[s] for s in n.src])
            if n.op is Ops.SCAN and n.src[1] is self.loop:
                within = n.with_src((src[0], self.part))
                done[n] = combine(n.arg, self._before(n), within)
            else:
                done[n] = n if src == n.src else n.with_src(src)
        return self._held(done[store], index)

    def _before(self, scan: UOp) -> UOp:
        """The sum of all parts before a thread's own."""
        op, value, name = scan.arg, scan.src[0], f"{self.loop.arg[0]}.s{self.count}"
        self.count += 1

        def own(suffix: str, size: int, kind: AxisKind) -> UOp:
            return UOp.range(size, fresh(self.kernel, f"{name}{suffix}"), kind)

        thread = own("t", self.threads, AxisKind.THREAD)
        part = own("p", self.each, AxisKind.REDUCE)
        other = own("o", self.threads, AxisKind.REDUCE)
        index = thread * self.each + part
        total = self._held(substitute_free(value, {self.loop: index}), index).reduce(op, part)
        taken = {n.arg[0] for n in self.kernel.nodes if n.op is Ops.LOCAL}
        label = f"sums{self.count - 1}"
        while label in taken:
            label += "'"
        memory = UOp(Ops.LOCAL, scan.dtype, (), (label, self.threads, Space.GROUP))
        sums = memory.after(memory.store(thread, total).end(thread)).load(other)
        return (other < self.thread).where(sums, identity(op, scan.dtype)).reduce(op, other)


def scan_on_grid(sink: UOp, free: list[UOp], target: Target) -> UOp | None:
    """The kernel with its scans by groups of threads; None where threads by themselves, or one, do
    as well."""
    kernel = Kernel(sink)
    loops = dict.fromkeys(n.src[1] for n in kernel.nodes if n.op is Ops.SCAN)
    if len(loops) != 1 or kernel.has_locals or len(free) > target.group_dims:
        return None
    (loop,) = loops
    size = constant_extent(loop) or 0
    along = [a for a in kernel.accesses if loop in a.index.ranges]
    if any(a.stride(loop) != 1 for a in along):
        return None  # neighbouring threads have neighbouring rows
    if prod(extent_hint(r) for r in free) >= 2 * target.cores * target.lanes:
        return None  # each has a row of its own, and the device enough to do
    threads = min(_THREADS, target.threads_per_group, size // _TURNS) // target.lanes * target.lanes
    try:
        for r in free:
            sink = Grid(r.arg[0]).apply(sink)
        return GroupScan(loop.arg[0], max(threads, target.lanes)).apply(sink)
    except Refused:
        return None
