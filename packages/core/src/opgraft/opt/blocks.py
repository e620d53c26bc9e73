"""`Blocks`: a loop in blocks of any size. `SumInBlocks`: sums so far in a buffer between them.

What a block reads stays in a cache while it is used. A long sum reads more than a cache holds for
each tile of its results: in blocks of the sum, all tiles take their part of one block, and keep
what they have so far beside it, before the next block is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.reduction import combine, identity
from opgraft.ir.uop import UOp
from opgraft.opt.actions import (
    Action,
    Refused,
    close_copies,
    keep_nesting,
    keep_one_buffer,
    replace_nodes,
    unscanned_loop,
)
from opgraft.opt.axes import Kernel, constant_extent, free_locals, fresh, known_most, most, rename
from opgraft.opt.places import place
from opgraft.opt.tile import mark_distinct, rename_overlap
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Blocks(Action):
    """A range becomes two: NAME.o over blocks, and NAME.i inside of one, of `size` iterations. The
    last block has those that are left: the extent of NAME.i depends on NAME.o.

    Other than the rest of a Split it is no second copy of the statements.
    """

    name: object
    size: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = unscanned_loop(kernel, self.name)
        longest, extent = known_most(loop), constant_extent(loop)
        if longest is None:
            raise Refused(f"range {self.name} has no known extent")
        if not 0 < self.size < longest:
            raise Refused(f"range {self.name} of {longest} has no blocks of {self.size}")
        if loop.arg[1] not in (AxisKind.LOOP, AxisKind.PARALLEL, AxisKind.REDUCE):
            raise Refused(f"range {self.name} is carried out at once")
        whole = extent is not None and extent % self.size == 0
        count: int | UOp = -(-longest // self.size)
        if extent is None:
            count = (loop.src[0] + (self.size - 1)) // self.size
        outer = rename(kernel, loop, ".o", loop.arg[1], count)
        length: UOp = UOp.const(dtypes.index, self.size)
        if not whole:
            length = length.minimum(outer * -self.size + loop.src[0])
        if extent is None:
            length = length.maximum(1)  # it is: so that what a block needs may stand before it
        kind = AxisKind.REDUCE if loop.arg[1] is AxisKind.REDUCE else AxisKind.LOOP
        inner = UOp.range(length, fresh(kernel, f"{loop.arg[0]}.i"), kind)
        if self.size == 1:
            sink = rename_overlap(kernel, loop, str(outer.arg[0]))
            return tidy(close_copies(sink, loop, [({loop: outer}, (outer,))]))
        index = outer * self.size + inner
        if not whole:
            sink = mark_distinct(kernel, loop)
        # the last of overlapping tiles is in one block with the next, but where it is alone in one
        alone = extent is None or extent % self.size == 1
        repeats = f"{outer.arg[0]},{inner.arg[0]}" if alone else str(inner.arg[0])
        sink = rename_overlap(Kernel(sink), loop, repeats)
        return tidy(close_copies(sink, loop, [({loop: index}, (outer, inner))]))


@writable_as_text
@dataclass(frozen=True)
class SumInBlocks(Action):
    """The iterations of `name`, a range that a REDUCE closes, follow each other outside of the
    loops `over` around the REDUCE: each adds its part to a buffer with an element for each
    iteration of these, the first one to nothing. The loops that fill buffer `sums0` are named
    `sums0.NAME`."""

    name: object
    over: tuple[object, ...]

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = kernel.find(self.name)
        reduces = [] if loop is None else [r for r in kernel.reduces if loop in r.src[1:]]
        if loop is None or len(reduces) != 1:
            raise Refused(f"no single REDUCE closes {self.name}")
        if loop.src[0].vmin < 1:
            raise Refused(f"range {self.name} may have no iteration for sums to begin in")
        reduce = reduces[0]
        over = [r for r in map(kernel.find, self.over) if r is not None and r in reduce.ranges]
        if len(over) != len(self.over) or not over:
            raise Refused(f"{self.over} are not all loops around the REDUCE over {self.name}")
        if len(reduce.src) < 3:
            raise Refused(f"{self.name} is all that is reduced over: nothing is left of a block")
        keep_nesting((loop, *over, *[r for r in reduce.src[1:] if r is not loop]))
        if any(kernel.fills_locals(r) for r in (*over, *reduce.src[1:])):
            raise Refused(f"a local buffer is filled anew in each iteration of {self.name}")
        if any(n.op is Ops.SCAN for n in reduce.toposort()):
            raise Refused("the reduced value is scanned")
        keep_one_buffer("the reduced value", [r for r in reduce.ranges if r not in over])
        for r in over:
            if r.arg[1] in (AxisKind.PARALLEL, AxisKind.THREAD):
                raise Refused(f"range {r.arg[0]} is of kind {r.arg[1].name}: each has its own sums")
        return tidy(replace_nodes(sink, {reduce: _summed(kernel, reduce, loop, over)}))


def _summed(kernel: Kernel, reduce: UOp, loop: UOp, over: list[UOp]) -> UOp:
    """The REDUCE's value, read from the buffer that its blocks are added to."""
    name = sums_name(kernel)
    op, dtype = reduce.arg, reduce.dtype
    spans = [most(r) for r in over]
    size = 1
    for span in spans:
        size *= span
    memory = UOp(Ops.LOCAL, dtype, (), (name, size, Space.PRIVATE))
    own = _copies(kernel, over, f"{name}.")
    step = UOp.range(loop.src[0], fresh(kernel, f"{name}.{loop.arg[0]}"))
    rest = [r for r in reduce.src[1:] if r is not loop]
    inner = _renamed_extents(rest, {loop: step, **own})
    changes = {loop: step, **own, **inner}
    part = substitute_free(reduce.src[0], changes)
    part = UOp(Ops.REDUCE, dtype, (part, *[inner.get(r, r) for r in rest]), op)
    at = place(list(own.values()), spans)
    so_far = UOp(Ops.LOAD, dtype, (memory, at, step > 0, identity(op, dtype)))
    added = memory.store(at, combine(op, so_far, part))
    filled = memory.after(added.end(step, *own.values()))
    return filled.load(place(over, spans))


def sums_name(kernel: Kernel) -> str:
    """The name of the next buffer of sums."""
    return next(free_locals(kernel, "sums"))


def _copies(kernel: Kernel, loops: list[UOp], prefix: str) -> dict[UOp, UOp]:
    """A loop of the same kind and extent for each of these."""
    made: dict[UOp, UOp] = {}
    for loop in loops:
        extent = loop.src[0].substitute(made)
        kind = AxisKind.LOOP if loop.arg[1] is AxisKind.PARALLEL else loop.arg[1]
        made[loop] = UOp.range(extent, fresh(kernel, f"{prefix}{loop.arg[0]}"), kind)
    return made


def _renamed_extents(loops: list[UOp], changes: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """The loops whose extents depend on what changes, with the extents that they then have."""
    made: dict[UOp, UOp] = {}
    for loop in loops:
        extent = loop.src[0].substitute(changes)
        if extent is not loop.src[0]:
            made[loop] = loop.with_src((extent,))
    return made
