"""`Accumulate`: a reduction in the order of memory, its results so far in a buffer beside it.

A sum over rows for every column walks down each column, if its result is to stay in a register:
each step reads a few bytes of another line. In the order of memory it reads row after row and adds
each to all results, which lie in the nearest cache meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.reduction import combine, identity
from opgraft.ir.uop import UOp
from opgraft.opt.actions import (
    Action,
    Refused,
    Split,
    keep_extents,
    keep_one_buffer,
    replace_nodes,
)
from opgraft.opt.axes import (
    Kernel,
    buffer_of,
    closed_by,
    constant_extent,
    extent_hint,
    free_locals,
    fresh,
)
from opgraft.opt.tile_shape import second_cache
from opgraft.rules.simplify import tidy
from opgraft.target import Target


@writable_as_text
@dataclass(frozen=True)
class Accumulate(Action):
    """The REDUCE that closes `name` adds to a buffer with an element for each iteration of `over`,
    `at_once` iterations of `name` in each pass over it.

    `name` becomes NAME.o, the loop over the passes, and NAME.u; what does not divide NAME.t.
    """

    name: object
    over: object
    at_once: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop, over = kernel.find(self.name), kernel.find(self.over)
        size = None if loop is None else constant_extent(loop)
        width = None if over is None else constant_extent(over)
        if loop is None or over is None or size is None or width is None:
            raise Refused(f"{self.name} and {self.over} are not both ranges of constant extent")
        reduces = [r for r in kernel.reduces if loop in r.src[1:] and over in r.ranges]
        if len(reduces) != 1:
            raise Refused(f"no single REDUCE over {self.name} depends on {self.over}")
        if any(constant_extent(r) is None for r in reduces[0].src[1:]):
            raise Refused(f"a loop beside {self.name} has no constant extent")
        if any(kernel.fills_locals(r) for r in (over, *reduces[0].src[1:])):
            raise Refused(f"a local buffer is filled anew in each iteration of {self.name}")
        if any(n.op is Ops.SCAN for n in reduces[0].toposort()):
            raise Refused("the reduced value is scanned")
        keep_one_buffer("the reduced value", (*reduces[0].ranges, *reduces[0].src[1:]))
        if over.arg[1] is not AxisKind.LOOP:
            raise Refused(f"range {self.over} is of kind {over.arg[1].name}: each has its own sums")
        keep_extents(kernel, over)
        if not 1 <= self.at_once <= size:
            raise Refused(f"{self.name} of {size} is not taken {self.at_once} at once")
        result = _Passes(kernel, reduces[0], loop, over).run(size, width, self.at_once)
        return tidy(replace_nodes(sink, {reduces[0]: result}))


class _Passes:
    """The buffer, and the effects that fill it."""

    def __init__(self, kernel: Kernel, reduce: UOp, loop: UOp, over: UOp) -> None:
        self.kernel = kernel
        self.reduce = reduce
        self.loop = loop
        self.over = over
        self.others = tuple(r for r in reduce.src[1:] if r is not loop)

    def run(self, size: int, width: int, at_once: int) -> UOp:
        dtype, op = self.reduce.dtype, self.reduce.arg
        name = next(free_locals(self.kernel, "sums"))
        memory = UOp(Ops.LOCAL, dtype, (), (name, width, Space.PRIVATE))
        begin = self._range(width, f"{name}.b")
        buffer = memory.after(memory.store(begin, identity(op, dtype)).end(begin))
        whole, rest = divmod(size, at_once)
        buffer = self._pass(buffer, name, whole, at_once, 0)
        if rest:
            buffer = self._pass(buffer, f"{name}t", rest, 1, whole * at_once)
        return buffer.load(self.over)

    def _pass(self, buffer: UOp, name: str, count: int, at_once: int, first: int) -> UOp:
        """The buffer after `count` passes of `at_once` iterations each, from iteration `first`."""
        label = str(self.loop.arg[0])
        at = self._range(constant_extent(self.over) or 1, f"{name}.{self.over.arg[0]}")
        step = self._range(count, f"{label}.t" if first else f"{label}.o")
        index = step * at_once + first
        inner: tuple[UOp, ...] = ()
        if at_once > 1:
            kind = AxisKind.UNROLL
            copies = UOp.range(at_once, fresh(self.kernel, f"{label}.u"), kind)
            index, inner = index + copies, (copies,)
        others = {
            r: self._range(constant_extent(r) or 1, f"{name}.{r.arg[0]}") for r in self.others
        }
        changes = {self.loop: index, self.over: at, **others}
        part = substitute_free(self.reduce.src[0], changes)
        if inner:
            part = UOp(Ops.REDUCE, self.reduce.dtype, (part, *inner), self.reduce.arg)
        value = combine(self.reduce.arg, buffer.load(at), part)
        loops = (*others.values(), step, at)
        return buffer.after(buffer.store(at, value).end(*loops))

    def _range(self, size: int, wanted: str) -> UOp:
        return UOp.range(size, fresh(self.kernel, wanted))


_PASS: Final = 8
"""Rows that one pass over the buffer adds."""
_APART: Final = 2048
"""Bytes between rows of which walks are foreseen side by side: several in one page are not."""
_FAR: Final = 1024
"""Bytes between two steps of a reduction from which its order matters."""
_PIECES: Final = 4
"""For each core: so many that one that is late keeps the others waiting for little."""


def accumulate_columns(sink: UOp, target: Target) -> UOp:
    """The kernel with a reduction along far strides, of many columns, in the order of memory."""
    kernel = Kernel(sink)
    if len(kernel.reduces) != 1 or kernel.has_locals or len(kernel.effects) != 1:
        return sink
    reduce, effect = kernel.reduces[0], kernel.effects[0]
    loops = [r for r in closed_by(effect) if r in reduce.ranges]
    loads = [a for a in kernel.accesses if a.node.op is Ops.LOAD]
    inside = {n for n in reduce.src[0].toposort() if n.op is Ops.LOAD}
    loads = [a for a in loads if a.node in inside]
    if not loops or not loads or any(constant_extent(r) is None for r in reduce.src[1:]):
        return sink
    over, inner = loops[-1], reduce.src[-1]
    if constant_extent(over) is None or over not in kernel.spine:
        return sink
    width, size = constant_extent(over) or 1, constant_extent(inner) or 1
    # what is the same for all columns is read once for all of them
    columns = [a for a in loads if over in a.node.ranges]
    steps = [abs(a.stride(r) or 0) * a.itemsize for a in columns for r in reduce.src[1:]]
    far = bool(columns) and all(a.stride(over) == 1 for a in columns) and min(steps) >= _FAR
    far = far and all(r in a.node.ranges for a in columns for r in loops)  # no row shares them
    item = reduce.dtype.itemsize
    if not far or size < 2 * _PASS or width * item < _FAR or reduce.dtype.is_bool:
        return sink
    name = over.arg[0]
    if target.local_bytes < _FAR:
        return sink
    whole = width * item % target.vector_bytes == 0  # else each pass would have a rest
    at_once = 1 if whole and min(steps) < _APART else _PASS
    beside = math.prod(extent_hint(r) for r in kernel.spine if r is not over)
    block = _columns(width * item, beside, target) // item
    if block >= width:
        return Accumulate(inner.arg[0], name, at_once).apply(sink)
    # blocks of one size, in whole lines, and a rest beside them
    block = -(-width // -(-width // block))
    line = target.line_bytes
    block = -(-block * item // line) * line // item
    sink = Split(name, block).apply(sink)
    for part, reduced in _sums(sink, name):
        sink = Accumulate(reduced, part, at_once).apply(sink)
    return sink


def _columns(row: int, beside: int, target: Target) -> int:
    """Bytes of the sums that lie side by side, for rows of `row` bytes and `beside` iterations of
    loops around them: of whole rows, if a core's own cache holds them and there are rows enough
    for all cores. The longer a walk through memory, the better it is foreseen."""
    room = min(second_cache(target) // 4, target.local_bytes)
    if target.cores < 2 * beside:
        return room
    pieces = -(-_PIECES * target.cores // beside)
    least = min(-(-row // target.cores), target.cache_bytes[0] // 4)
    return min(max(-(-row // pieces), least, _FAR), room)


def _sums(sink: UOp, name: object) -> list[tuple[object, object]]:
    """The parts of a range that was split, each with the range that is reduced in it."""
    found: list[tuple[object, object]] = []
    for reduce in Kernel(sink).reduces:
        parts = [r for r in reduce.ranges if r.arg[0] in (f"{name}.i", f"{name}.t")]
        found += [(r.arg[0], reduce.src[-1].arg[0]) for r in parts]
    return found


def is_added_to(effect: UOp) -> bool:
    """Whether an effect adds single values to elements of a LOCAL, as a pass of one row does."""
    if effect.op is not Ops.END or effect.src[0].op is not Ops.STORE:
        return False
    buffer, place, value, *_ = effect.src[0].src
    if buffer_of(buffer).op is not Ops.LOCAL or any(n.op is Ops.REDUCE for n in value.src):
        return False
    loads = [n for n in value.src if n.op is Ops.LOAD and n.src[1] is place]
    return any(buffer_of(n.src[0]) is buffer_of(buffer) for n in loads)
