"""`FetchNext`: the next row of an array is fetched while the last look at this one goes on.

A row that is read several times (its greatest element, then what is made of each) comes from memory
the first time and from the nearest cache after that. So memory waits while a core computes, and
the core waits while memory brings the next row. The loop that reads the row last names the lines
of the next one, some in each iteration; then both work all the time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from opgraft.ir.argument import writable_as_text
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, find_loop
from opgraft.opt.ahead import Strip, fetch_beside, following, strip_of
from opgraft.opt.axes import ENDLESS, Kernel, closed_by
from opgraft.opt.prefetch import LINE
from opgraft.target import Target


@writable_as_text
@dataclass(frozen=True)
class FetchNext(Action):
    """While iterations of `name` read a row of the array in `slot`, the lines of the row are
    fetched that the next iteration of the loop over rows reads, a share in each. In the last one
    it is the same row again. It comes after all actions that change loops."""

    keeps_loops: ClassVar[bool] = True

    slot: int
    name: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = find_loop(kernel, self.name)
        found = _pass(kernel, self.slot, loop)
        return fetch_beside(kernel, found.reader, (*found.around, loop), found.next_row)


@dataclass(frozen=True)
class _Pass:
    """A walk over a row of an array."""

    reader: UOp
    """The effect that reads it."""
    around: tuple[UOp, ...]
    """The loops of this effect that stand around the walk."""
    row: UOp
    """The loop over rows."""
    next_row: Strip


def _pass(kernel: Kernel, slot: int, loop: UOp) -> _Pass:
    """What reads a row of an array in iterations of a loop. Raises Refused."""
    name = loop.arg[0]
    for reader in kernel.closers[loop]:
        if reader.op is not Ops.END:
            continue
        loads = [n for n in reader.toposort() if n.op is Ops.LOAD and loop in n.ranges]
        loads = [n for n in loads if n.src[0].op is Ops.PARAM and n.src[0].arg[0] == slot]
        if not loads:
            continue
        load = loads[0]
        if len(load.src) > 2:
            raise Refused(f"range {name} reads the array {slot} under a condition")
        if load.src[0] in kernel.written:
            raise Refused(f"the kernel stores to the array {slot} as well")
        closed = closed_by(reader)
        copies = (AxisKind.UNROLL, AxisKind.VECTOR)
        around = [r for r in closed[: closed.index(loop)] if r.arg[1] not in copies]
        outer = [r for r in load.ranges if r in kernel.spine and r not in closed[len(around) :]]
        if not outer or outer[-1].arg[1] not in (AxisKind.LOOP, AxisKind.PARALLEL):
            raise Refused(f"no loop over rows of the array {slot} stands around range {name}")
        if loop.arg[1] is not AxisKind.LOOP or loop.src[0].vmax >= ENDLESS:
            raise Refused(f"range {name} is not carried out in order, or has no known extent")
        row = around[-1] if around else outer[-1]
        if row is not outer[-1]:
            raise Refused(f"range {name} reads no row as a whole")
        own = tuple([r for r in closed if r not in around])
        return _Pass(reader, tuple(around), row, strip_of(load, own, following(row)))
    raise Refused(f"no effect reads the array {slot} in iterations of {name}")


# ---- the choice

_ROOM: Final = 4
"""Rows that the first cache must hold: this one, the next, and what is made of them."""
_SHORTEST: Final = 8
"""Lines of the shortest row: shorter ones follow so close that a processor foresees them."""


def _walks(load: UOp, found: _Pass, loop: UOp) -> bool:
    """Whether a LOAD goes over the row in another loop. (What is left of a row after whole vectors
    is read beside the loop, in none.)"""
    outside = {found.row, *found.around, *found.reader.ranges}
    inner = [r for r in load.ranges if r not in outside]
    walk = any(r.arg[1] in (AxisKind.LOOP, AxisKind.REDUCE) for r in inner)
    return walk and found.row in load.ranges and loop not in inner


def fetch_next(sink: UOp, target: Target) -> UOp:
    """The kernel with the next row fetched of each array from beyond a core's caches whose rows it
    reads several times."""
    if not target.prefetch:
        return sink
    kernel, near = Kernel(sink), sum(target.cache_bytes[:-1])
    loads: dict[UOp, list[UOp]] = {}
    for n in kernel.nodes:
        if n.op is Ops.LOAD and n.src[0].op is Ops.PARAM:
            loads.setdefault(n.src[0], []).append(n)
    for array, several in loads.items():
        if len(several) < 2 or array.arg[1] * array.dtype.itemsize <= near:
            continue
        for loop in kernel.ranges:
            with suppress(Refused):
                found = _pass(kernel, array.arg[0], loop)
                lines = found.next_row.lines
                before = any(_walks(n, found, loop) for n in several)
                fits = _ROOM * found.next_row.total * LINE <= target.cache_bytes[0]
                if before and fits and lines >= _SHORTEST:
                    return FetchNext(array.arg[0], loop.arg[0]).apply(sink)
    return sink
