"""Actions for devices that launch groups of threads; see opt/actions.py for what an action is.

`Split(name, factor, AxisKind.THREAD)` shares a loop among the threads of a group: it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import stride_of
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.opt.actions import (
    Action,
    Refused,
    Split,
    close_copies,
    find_loop,
    keep_extents,
    keep_nesting,
    keep_one_buffer,
    sized_loop,
)
from opgraft.opt.axes import Kernel, buffer_of, closed_by, constant_extent, fresh, rename
from opgraft.opt.pad import pad_range
from opgraft.opt.threads import filled_inside, independent, stored_outside
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Grid(Action):
    """A range of top-level effects goes to groups of `threads` threads each, which never wait for
    each other. The threads of the last group that have no iteration do nothing.

    The ranges that take its place are named `name.g` (groups) and `name.t` (threads).
    """

    name: object
    threads: int = 1

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = find_loop(kernel, self.name)
        if not any(loop in closed_by(effect) for effect in kernel.effects):
            raise Refused(f"range {self.name} is no loop of an effect")
        if loop.arg[1] is not AxisKind.LOOP:
            raise Refused(f"range {self.name} is of kind {loop.arg[1].name} already")
        if self.threads < 1:
            raise Refused(f"groups of {self.threads} threads")
        why = independent(kernel, (loop,)) or stored_outside(kernel, loop)
        if not why and self.threads > 1:
            why = filled_inside(kernel, loop)
        if why:
            raise Refused(why)
        return spread(sink, loop, self.threads)


def spread(sink: UOp, loop: UOp, threads: int) -> UOp:
    """The kernel with the iterations of `loop` on groups of so many threads."""
    kernel, size = Kernel(sink), loop.src[0]
    count = (size + (threads - 1)) // threads
    group = rename_symbolic(kernel, loop, ".g", AxisKind.PARALLEL, count)
    if threads == 1:
        return outermost(sink, loop, group, index=group)
    thread = rename(kernel, loop, ".t", AxisKind.THREAD, threads)
    index = group * threads + thread
    ranges: tuple[UOp, ...] = (group, thread)
    if not (index < size).vmin:
        name = fresh(kernel, f"{loop.arg[0]}.w")
        ranges = (*ranges, UOp.range((index < size).cast(dtypes.index), name))
    return outermost(sink, loop, *ranges, index=index)


def rename_symbolic(kernel: Kernel, loop: UOp, suffix: str, kind: AxisKind, size: UOp) -> UOp:
    """As `rename`, of any extent."""
    return rename(kernel, loop, suffix, kind, 1).with_src((size,))


def outermost(sink: UOp, loop: UOp, *instead: UOp, index: UOp) -> UOp:
    """The kernel with ranges in the place of `loop`, outermost in every effect that closes it."""
    replaced = close_copies(sink, loop, [({loop: index}, instead)])
    effects = []
    for effect in replaced.src:
        if effect.op is Ops.END and instead[0] in effect.src[1:]:
            others = tuple(r for r in effect.src[1:] if r not in instead)
            keep_nesting((*instead, *others))
            effect = effect.with_src((effect.src[0], *instead, *others))
        effects.append(effect)
    return tidy(replaced.with_src(tuple(effects)))


@writable_as_text
@dataclass(frozen=True)
class Pad(Action):
    """A range becomes as long as the next multiple; its further iterations are gated.

    So a later split leaves no rest, and all threads of a group get to its barriers.
    """

    name: object
    multiple: int

    def change(self, sink: UOp) -> UOp:
        loop, size = sized_loop(Kernel(sink), self.name)
        if self.multiple < 2:
            raise Refused(f"{self.multiple} is nothing to be a multiple of")
        if loop.arg[1] not in (AxisKind.LOOP, AxisKind.REDUCE):
            raise Refused(f"range {self.name} is of kind {loop.arg[1].name} already")
        keep_extents(Kernel(sink), loop)
        if size % self.multiple == 0:
            raise Refused(f"range {self.name} of {size} is a multiple of {self.multiple} already")
        padded = -(-size // self.multiple) * self.multiple
        longer = loop.with_src((UOp.const(dtypes.index, padded),))
        return tidy(pad_range(sink, loop, longer))


@writable_as_text
@dataclass(frozen=True)
class GroupReduce(Action):
    """A range of REDUCEs is shared by the threads of a group: each adds up every so manyth value,
    and the parts are added up through group memory. All threads have the result."""

    name: object
    threads: int

    def change(self, sink: UOp) -> UOp:
        loop, _ = sized_loop(Kernel(sink), self.name)
        if loop.arg[1] is not AxisKind.REDUCE:
            raise Refused(f"range {self.name} is closed by no REDUCE")
        if self.threads < 2:
            raise Refused(f"{self.threads} threads share nothing")
        return Split(self.name, self.threads, AxisKind.THREAD).apply(sink)


@writable_as_text
@dataclass(frozen=True)
class Stage(Action):
    """What a group reads of a buffer in one iteration of a loop is copied to group memory first,
    by all its threads; the kernel then reads the copy.

    `loop` names a loop inside of which nothing else is to be read; "": once for each group.
    `pad` elements are left free after each row of the copy. `threads`: how many there will be, if
    not those of the ranges that are spread already.
    """

    slot: int
    loop: object = ""
    pad: int = 0
    threads: int = 0

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        load = self._load(kernel)
        inside = self._inside(kernel, load)
        threads = [r for r in kernel.ranges if r.arg[1] is AxisKind.THREAD]
        threads = [r for r in threads if any(r in closed_by(e) for e in kernel.effects)]
        count = self.threads or prod(constant_extent(r) or 1 for r in threads)
        if count < 2:
            raise Refused("no range goes to the threads of a group yet")
        partly = [r for r in kernel.ranges if any(t in r.src[0].ranges for t in threads)]
        if partly:
            raise Refused(f"not all threads of a group are in range {partly[0].arg[0]}: Pad first")
        sizes = [constant_extent(r) for r in inside]
        if None in sizes:
            raise Refused(f"what is read of slot {self.slot} has no constant extent")
        rows, width = self._rows(load, inside)
        tile = UOp(
            Ops.LOCAL,
            load.dtype,
            (),
            (self._name(kernel), rows * (width + self.pad), Space.GROUP),
        )
        filled = tile.after(self._fill(kernel, tile, load, inside, count, (rows, width)))
        element = UOp.const(dtypes.index, 0)
        for loop in inside:
            element = element * (constant_extent(loop) or 1) + loop
        return tidy(sink.substitute({load: filled.load(self._place(element, width))}))

    @staticmethod
    def _rows(load: UOp, inside: list[UOp]) -> tuple[int, int]:
        """Rows of the copy, and elements of each: those that are neighbours in the buffer."""
        width, rows = 1, 1
        step = stride_of(load.src[1], inside[-1]) or 0
        for loop in reversed(inside):
            extent = constant_extent(loop) or 1
            if rows == 1 and stride_of(load.src[1], loop) == step * width:
                width *= extent
            else:
                rows *= extent
        return rows, width

    def _place(self, element: UOp, width: int) -> UOp:
        """Where an element of the copy is, with the padding after each row."""
        if not self.pad:
            return element
        return element // width * (width + self.pad) + element % width

    def _load(self, kernel: Kernel) -> UOp:
        touching = [n for n in kernel.nodes if n.op in (Ops.LOAD, Ops.STORE)]
        touching = [n for n in touching if buffer_of(n.src[0]).arg[0] == self.slot]
        found = [n for n in touching if buffer_of(n.src[0]).op is Ops.PARAM]
        if not found:
            raise Refused(f"slot {self.slot} is not read")
        if any(n.op is Ops.STORE for n in found):
            raise Refused(f"slot {self.slot} is stored to by the kernel")
        if len(found) > 1:
            raise Refused(f"slot {self.slot} is read at {len(found)} places")
        stores = [n for n in kernel.nodes if n.op is Ops.STORE and n.src[2] is found[0]]
        if any(buffer_of(n.src[0]).op is Ops.LOCAL for n in stores):
            raise Refused(f"slot {self.slot} is copied already")
        return found[0]

    def _inside(self, kernel: Kernel, load: UOp) -> list[UOp]:
        """The ranges that make up the copy, the one along which memory is closest last."""
        around: dict[UOp, None] = {}
        for effect in kernel.effects:
            around.update((r, None) for r in closed_by(effect) if r.arg[1] is AxisKind.LOOP)
        around.update((r, None) for r in kernel.ranges if r.arg[1] is AxisKind.PARALLEL)
        if self.loop != "":
            at = find_loop(kernel, self.loop)
            around[at] = None
            for n in kernel.closers[at]:
                around.update((r, None) for r in n.src[1 : n.src.index(at)])
        apart = [r for r in around if r.arg[1] is AxisKind.THREAD]
        if apart:
            raise Refused(f"threads of a group are in different iterations of {apart[0].arg[0]}")
        keep_one_buffer(f"what is read of slot {self.slot}", set(load.ranges) & set(around))
        inside = [r for r in load.ranges if r not in around]
        if not inside:
            raise Refused(f"a group reads one element of slot {self.slot} there")
        strides = {r: stride_of(load.src[1], r) for r in inside}
        if any(s is None for s in strides.values()):
            raise Refused(f"slot {self.slot} is read at places that don't move evenly")
        return sorted(inside, key=lambda r: -abs(strides[r] or 0))

    def _name(self, kernel: Kernel) -> str:
        taken = {n.arg[0] for n in kernel.nodes if n.op is Ops.LOCAL}
        name = f"tile{self.slot}"
        while name in taken:
            name += "'"
        return name

    def _fill(
        self,
        kernel: Kernel,
        tile: UOp,
        load: UOp,
        inside: list[UOp],
        threads: int,
        shape: tuple[int, int],
    ) -> UOp:
        """The copy: element after element, neighbours by neighbouring threads."""
        thread = UOp.range(threads, fresh(kernel, f"{tile.arg[0]}.t"), AxisKind.THREAD)
        size = shape[0] * shape[1]
        turns = -(-size // threads)
        ranges: tuple[UOp, ...] = (thread,)
        element: UOp = thread
        if turns > 1:
            turn = UOp.range(turns, fresh(kernel, f"{tile.arg[0]}.o"))
            ranges, element = (turn, thread), turn * threads + thread
        rest, changes = element, dict[UOp, UOp]()
        for loop in reversed(inside):
            extent = constant_extent(loop) or 1
            changes[loop], rest = rest % extent, rest // extent
        item = load.substitute(changes)
        gate = None if turns * threads == size else element < size
        if gate is not None:
            inner, other = item.src[2:] if len(item.src) == 4 else (None, item.const_like(0))
            item = item.with_src((*item.src[:2], gate if inner is None else inner & gate, other))
        return tile.store(self._place(element, shape[1]), item, gate).end(*ranges)
