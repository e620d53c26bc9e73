"""`FetchAhead`: what a packed buffer will hold next is fetched while what it holds is read.

A strip of a matrix is copied, a few rows of it, and read many times. The next one begins in other
lines of memory, one for each row, which no processor sees coming; the copy would wait for all of
them. So the loop that reads the strip names the lines of the next one, some in each iteration: all
at once they would keep the loads of the product waiting as well (measured).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, find_loop, replace_nodes
from opgraft.opt.axes import (
    ENDLESS,
    Kernel,
    buffer_of,
    closed_by,
    fresh,
    most,
    store_of,
)
from opgraft.opt.neighbours import linear_terms
from opgraft.opt.prefetch import LINE, in_a_line, lines_touched
from opgraft.rules.simplify import tidy
from opgraft.target import Target

_COPIES: Final = 8
"""Lines that an iteration names one by one; more of them in a loop."""


@dataclass(frozen=True)
class Strip:
    """What a filling of a buffer reads: runs of consecutive elements, at equal steps."""

    array: UOp
    begin: UOp
    """The index of the first element."""
    steps: tuple[tuple[int, int], ...]
    """How many runs, and how far apart, for each loop over them."""
    run: int
    """Elements of a run."""

    @property
    def lines(self) -> int:
        """Lines of memory that a run may touch, wherever in a line it may begin."""
        return lines_touched(self.array, self.begin, self.run, *(step for _, step in self.steps))

    @property
    def total(self) -> int:
        """Lines of all runs."""
        return self.lines * prod(count for count, _ in self.steps)

    def line(self, number: UOp) -> UOp:
        """The index of an element of the line of this number."""
        within = ((number % self.lines) * in_a_line(self.array)).minimum(self.run - 1)
        place, number = self.begin + within, number // self.lines
        for count, step in reversed(self.steps):
            place, number = place + (number % count) * step, number // count
        return place


@writable_as_text
@dataclass(frozen=True)
class FetchAhead(Action):
    """While iterations of `name` read what a packed buffer holds, the lines are fetched that its
    next filling reads: that in the next iteration of the loop around `name`, a share in each. In
    the last one it is the same lines again. It comes after all actions that change loops."""

    keeps_loops: ClassVar[bool] = True

    buffer: str
    name: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop, fill = find_loop(kernel, self.name), _fill_of(kernel, self.buffer)
        reader, around = _reader(kernel, fill, loop)
        turn = around[-2]
        strip = strip_of(_load_of(fill), closed_by(fill), following(turn))
        return fetch_beside(kernel, reader, around, strip)


def following(loop: UOp) -> dict[UOp, UOp]:
    """What the index of a loop is in the next iteration; in the last one it stays."""
    return {loop: (loop + 1).minimum(loop.src[0] + -1)}


def fetch_beside(kernel: Kernel, reader: UOp, around: tuple[UOp, ...], strip: Strip) -> UOp:
    """The kernel with the lines of a strip named beside an effect, in these of its loops, a share
    in each iteration of the last of them."""
    loop, sink = around[-1], kernel.sink
    limit = most(loop)
    share = -(-strip.total // limit)
    number, loops = loop * share, around
    if share > 1:
        kind = AxisKind.UNROLL if share <= _COPIES else AxisKind.LOOP
        part = UOp.range(share, fresh(kernel, f"{loop.arg[0]}.p"), kind)
        number, loops = number + part, (*around, part)
    if share * limit > strip.total:
        number = number.minimum(strip.total - 1)
    named = UOp(Ops.PREFETCH, dtypes.void, (strip.array, strip.line(number))).end(*loops)
    if reader in sink.src:
        return tidy(sink.with_src((named, *sink.src)))
    held = [n for n in kernel.nodes if n.op is Ops.AFTER and reader in n.src[1:]]
    changes = {n: n.with_src((n.src[0], named, *n.src[1:])) for n in held}
    return tidy(replace_nodes(sink, changes))


def _fill_of(kernel: Kernel, name: str) -> UOp:
    """The loops that fill a buffer of the kernel's own."""
    fills = [
        effect
        for n in kernel.nodes
        if n.op is Ops.AFTER and buffer_of(n).op is Ops.LOCAL and buffer_of(n).arg[0] == name
        for effect in n.src[1:]
    ]
    if len(fills) != 1 or store_of(fills[0]).op is not Ops.STORE:
        raise Refused(f"no buffer {name!r} is filled by loops of its own alone")
    return fills[0]


def _reader(kernel: Kernel, fill: UOp, loop: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """The effect that reads a buffer in iterations of a loop, and its loops down to that one."""
    name = loop.arg[0]
    found = [
        n
        for n in kernel.closers[loop]
        if n.op is Ops.END
        and n is not fill
        and fill in n.toposort()
        and all(r in closed_by(n) or r in n.ranges for r in fill.ranges)
    ]
    if not found:
        raise Refused(f"iterations of {name} read nothing of one filling of the buffer")
    closed = closed_by(found[0])
    copies = (AxisKind.UNROLL, AxisKind.VECTOR)
    around = tuple([r for r in closed[: closed.index(loop)] if r.arg[1] not in copies]) + (loop,)
    if loop in fill.ranges or len(around) < 2 or around[-2] not in fill.ranges:
        raise Refused(f"the buffer is not filled anew in each iteration of the loop around {name}")
    if any(r not in around and r not in found[0].ranges for r in fill.ranges):
        raise Refused(f"the buffer is filled anew in a loop inside of range {name}")
    if any(r.arg[1] is not AxisKind.LOOP for r in around[-2:]):
        raise Refused(f"range {name}, or that around it, is not carried out in order")
    if loop.src[0].vmax >= ENDLESS:
        raise Refused(f"range {name} has no known extent")
    return found[0], around


def _load_of(fill: UOp) -> UOp:
    """What a buffer is filled with, of an array that the kernel gets."""
    loads = [n for n in fill.toposort() if n.op is Ops.LOAD]
    if len(loads) != 1 or loads[0].src[0].op is not Ops.PARAM or len(loads[0].src) > 2:
        raise Refused("the buffer is not filled with elements of one array")
    return loads[0]


def strip_of(load: UOp, own: tuple[UOp, ...], changes: dict[UOp, UOp]) -> Strip:
    """What a LOAD reads in the iterations of its `own` loops, with other ranges replaced."""
    array, index = load.src
    each = in_a_line(array)
    terms, low = linear_terms(index)
    walks: list[tuple[int, int]] = []
    run = 1
    begin: UOp | None = None
    for n, factor in terms.items():
        if not any(r in own for r in n.ranges):
            begin = n * factor if begin is None else begin + n * factor
            continue
        if n.op is not Ops.RANGE and any(r not in own for r in n.ranges):
            raise Refused("what is read does not lie in rows")
        ends = sorted((factor * int(n.vmin), factor * int(n.vmax)))
        if ends[1] - ends[0] >= ENDLESS:
            raise Refused("rows that are read have no known end")
        low += ends[0]
        if n.op is Ops.RANGE:
            walks.append((abs(factor), most(n)))
        else:
            run += ends[1] - ends[0]
    steps: list[tuple[int, int]] = []
    for factor, size in sorted(walks):
        if factor <= max(run, each) and not steps:
            run += factor * (size - 1)
        else:
            steps.insert(0, (size, factor))
    at = UOp.const(dtypes.index, low) if begin is None else begin + low
    return Strip(array, substitute_free(at, changes), tuple(steps), run)


# ---- the choice

_SHORTEST: Final = 2
"""Lines of the shortest run that is fetched ahead: single ones at a step a processor foresees."""
_NEAR: Final = 0.5
"""The most of the first cache that what is fetched takes: more of it would have left again, and
taken with it what is in use, before it is copied."""


def fetch_ahead(sink: UOp, target: Target) -> UOp:
    """The kernel with the next strips of its packed buffers fetched ahead, where these come from
    beyond the caches of a core."""
    if not target.prefetch:
        return sink
    kernel, near = Kernel(sink), sum(target.cache_bytes[:-1])
    for n in kernel.nodes:
        if n.op is not Ops.AFTER or buffer_of(n).op is not Ops.LOCAL:
            continue
        with suppress(Refused):
            fill = _fill_of(kernel, buffer_of(n).arg[0])
            strip = strip_of(_load_of(fill), closed_by(fill), {})
            far = strip.array.arg[1] * strip.array.dtype.itemsize > near
            fits = strip.total * LINE <= _NEAR * target.cache_bytes[0]
            if not far or not fits or strip.lines < _SHORTEST:
                continue
            for loop in kernel.ranges:
                with suppress(Refused):
                    _reader(kernel, fill, loop)
                    sink = FetchAhead(buffer_of(n).arg[0], loop.arg[0]).apply(sink)
                    break
    return sink
