"""`Prefetch`: rows that are found by indices from memory, brought nearer before their turn.

A processor sees a walk through memory coming, and reads ahead of it. Rows that are picked by a list
of indices it can't foresee: each begins with a wait. But the list itself is read in order, so the
kernel looks ahead in it, and names the lines of a row some iterations before it reads them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import gcd
from typing import ClassVar, Final

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.actions import Action, Refused, find_loop
from opgraft.opt.axes import Kernel, buffer_of, closed_by, constant_extent, extent_hint, fresh
from opgraft.opt.neighbours import linear_terms
from opgraft.opt.stores import divisor
from opgraft.rules.simplify import tidy
from opgraft.target import Target

LINE: Final = 64
"""Bytes from one place that is named to the next: caches with shorter lines are rare, and for those
with longer ones it is the same line again."""
MOST_LINES: Final = 32
"""Lines of a row that are named one by one: of what follows, the processor sees that it follows."""


def in_a_line(buffer: UOp) -> int:
    """Elements of a line of memory."""
    return max(1, LINE // buffer.dtype.itemsize)


def lines_touched(buffer: UOp, begin: UOp, span: int, *steps: int) -> int:
    """Lines of memory that so many consecutive elements may touch, wherever in a line they begin:
    at an index, or multiples of these steps after it."""
    each = in_a_line(buffer)
    known = gcd(divisor(begin), each, *steps)
    return -(-(each - known + span) // each)


@dataclass(frozen=True)
class Row:
    """The elements that an iteration reads of a buffer from a place on that memory names."""

    buffer: UOp
    begin: UOp
    """The index of the first."""
    span: int
    """Elements from the first to the last."""
    around: tuple[UOp, ...]
    """The loops from the outermost down to the one whose iterations each read a row."""

    @property
    def lines(self) -> int:
        """Lines of memory that it may touch, wherever in a line it may begin."""
        return lines_touched(self.buffer, self.begin, self.span)

    def ahead(self, kernel: Kernel, distance: int) -> UOp:
        """The effect that names the row of so many iterations later, or of the last one."""
        axis = self.around[-1]
        later = (axis + distance).minimum(axis.src[0] + -1)
        place = substitute_free(self.begin, {axis: later})
        loops, lines = self.around, min(self.lines, MOST_LINES)
        if lines > 1:
            line = UOp.range(lines, fresh(kernel, f"{axis.arg[0]}.p"), AxisKind.UNROLL)
            step = line * in_a_line(self.buffer)
            place, loops = place + step.minimum(self.span - 1), (*loops, line)
        return UOp(Ops.PREFETCH, dtypes.void, (self.buffer, place)).end(*loops)


@writable_as_text
@dataclass(frozen=True)
class Prefetch(Action):
    """Rows that iterations of `name` read at places that memory names are fetched `distance`
    iterations before. Near the end it is the last row again, so the list of places is read no
    further than without. It comes after all actions that change loops."""

    keeps_loops: ClassVar[bool] = True

    name: object
    distance: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = find_loop(kernel, self.name)
        if self.distance < 1:
            raise Refused(f"{self.distance} iterations ahead of {self.name}")
        found = rows(kernel, loop)
        ahead = [row.ahead(kernel, self.distance) for row in found]
        return tidy(sink.with_src((*ahead, *sink.src)))


def rows(kernel: Kernel, loop: UOp) -> list[Row]:
    """What each iteration of a loop reads at places that memory names. Raises Refused."""
    name = loop.arg[0]
    if loop.arg[1] not in (AxisKind.LOOP, AxisKind.PARALLEL):
        raise Refused(f"range {name} is not carried out one iteration after another")
    effects = [e for e in kernel.effects if loop in closed_by(e)]
    if not effects:
        raise Refused(f"no effect of the kernel stands in range {name} as a whole")
    parts: dict[tuple[object, ...], list[Row]] = {}
    for effect in effects:
        closed = closed_by(effect)
        around = closed[: closed.index(loop) + 1]
        inner = closed[len(around) :]
        if any(r.src[0].vmin < 1 for r in inner):
            raise Refused(f"some iterations of {name} may have nothing to do")
        for load in (n for n in toposort((effect,)) if n.op is Ops.LOAD):
            if _is_named(load, loop) and buffer_of(load.src[0]).op is Ops.PARAM:
                key, row = _row(kernel, load, around)
                parts.setdefault(key, []).append(row)
    if not parts:
        raise Refused(f"no place in memory is named by what is loaded along {name}")
    return [_joined(same) for same in parts.values()]


def _is_named(load: UOp, loop: UOp) -> bool:
    """Whether a LOAD's place is named by another, which walks along the loop."""
    return any(
        n.op is Ops.LOAD and linear_terms(n.src[1])[0].get(loop) for n in load.src[1].toposort()
    )


def _row(kernel: Kernel, load: UOp, around: tuple[UOp, ...]) -> tuple[tuple[object, ...], Row]:
    """What one LOAD reads in an iteration of the last of the loops around it, and what tells it
    from other rows."""
    if any(n.op is Ops.LOAD and n.src[0] in kernel.written for n in load.src[1].toposort()):
        raise Refused("the kernel stores to the places that it reads")
    terms, low = linear_terms(load.src[1])
    span, dense = 1, 1
    outer: list[tuple[UOp, int]] = []
    for n, factor in terms.items():
        inner = [r for r in n.ranges if r not in around]
        if not inner:
            outer.append((n, factor))
            continue
        size = constant_extent(n) if n.op is Ops.RANGE else None
        if size is None:
            raise Refused(f"what an iteration reads of {load.src[0]!r} is no row")
        low += min(0, factor * (size - 1))
        span += abs(factor) * (size - 1)
        dense *= size
    if span > 2 * dense:
        raise Refused(f"what an iteration reads of {load.src[0]!r} lies apart")
    begin = UOp.const(dtypes.index, low)
    for n, factor in outer:
        begin = begin + n * factor
    buffer = buffer_of(load.src[0])
    return (buffer, *outer), Row(buffer, begin, span, around)


def _joined(parts: list[Row]) -> Row:
    """Parts of one row: from the first element of any to the last."""
    places = [linear_terms(part.begin)[1] for part in parts]
    first = min(range(len(parts)), key=places.__getitem__)
    end = max(place + part.span for place, part in zip(places, parts, strict=True))
    chosen = parts[first]
    return Row(chosen.buffer, chosen.begin, end - places[first], chosen.around)


# ---- the choice

_UNDER_WAY: Final = 64
"""Lines that are fetched at a time: more than a core waits for at once, so that none is late."""
_SHORTEST: Final = 2
"""Lines of the shortest row that is fetched ahead: of less than that, a core that looks a few
iterations ahead by itself sees enough of them at once (measured)."""


def prefetch_rows(sink: UOp, target: Target) -> UOp:
    """The kernel with rows fetched ahead that come from beyond the caches of a core."""
    if not target.prefetch:
        return sink
    kernel = Kernel(sink)
    near = target.cache_bytes[:-1]
    for loop in kernel.ranges:
        try:
            found = rows(kernel, loop)
        except Refused:
            continue
        far = [r for r in found if r.buffer.arg[1] * r.buffer.dtype.itemsize > sum(near)]
        lines = sum(min(r.lines, MOST_LINES) for r in far)
        if not far or len(far) < len(found) or lines < _SHORTEST:
            continue
        distance = max(1, _UNDER_WAY // lines)
        if extent_hint(loop) > 2 * distance:
            with suppress(Refused):
                return Prefetch(loop.arg[0], distance).apply(sink)
    return sink
