"""`Inline`: what a small buffer holds is computed where it is read.

Rows of a few elements are too short for vectors of their own: several rows at once fill vectors, a
lane for each. But a buffer that a row is kept in is one, not one for each lane. Where the loops
over the row are written out anyway, each of its elements is a value like any other, and needs no
memory at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, Split, Unroll
from opgraft.opt.axes import (
    Kernel,
    buffer_of,
    closed_by,
    constant_extent,
    store_of,
)
from opgraft.opt.cover import Cover
from opgraft.opt.pad import loads_gated
from opgraft.rules.simplify import tidy
from opgraft.target import Target


@writable_as_text
@dataclass(frozen=True)
class Inline(Action):
    """Whoever reads the buffer `name` computes what was stored there; the buffer is gone."""

    name: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        filled = [n for n in kernel.nodes if n.op is Ops.AFTER and _is_named(n, self.name)]
        if len(filled) != 1 or filled[0].src[0].op is not Ops.LOCAL or len(filled[0].src) != 2:
            raise Refused(f"{self.name} is no buffer that one statement fills")
        (after,) = filled
        fill = after.src[1]
        store, loops = store_of(fill), closed_by(fill)
        if store.op is not Ops.STORE or len(store.src) > 3 or loops != (store.src[1],):
            raise Refused(f"{self.name} is not stored element by element")
        read = {n.src[0] for n in store.src[2].toposort() if n.op is Ops.LOAD}
        if not read.isdisjoint(kernel.written):
            raise Refused(f"{self.name} is made of what the kernel overwrites")
        done: dict[UOp, UOp] = {}
        for n in kernel.nodes:
            made = n.with_src(tuple([done[s] for s in n.src]))
            if n.op is Ops.LOAD and n.src[0] is after:
                made = _computed(store_of(done[fill]).src[2], store.src[1], made)
            done[n] = made
        return tidy(done[sink])


def _is_named(after: UOp, name: object) -> bool:
    buffer = buffer_of(after)
    return buffer.op is Ops.LOCAL and bool(buffer.arg[0] == name)


def _computed(value: UOp, loop: UOp, load: UOp) -> UOp:
    """What a load of the buffer gives, of the value that its elements have in the loop over them.

    Where the load is held back, its index may be none of the buffer's: so is what it would read.
    """
    index, *gated_by = load.src[1:]
    made = substitute_free(value, {loop: index})
    if not gated_by:
        return made
    gate, other = gated_by
    if gate.dtype.count > 1:
        raise Refused("it is read by vectors that are held back in part")
    return gate.where(loads_gated(made, gate), other)


# ---- the choice

_SHORT: Final = 8
"""Elements of the longest row that is written out: rows of 12 and more gain by it too (measured:
twice the speed), but the kernel takes the longer to make, and its compiler as well."""


def rows_in_lanes(sink: UOp, target: Target) -> UOp:
    """The kernel with a row in each lane, where it keeps very short rows in buffers."""
    kernel = Kernel(sink)
    names = dict.fromkeys(n.arg[0] for n in kernel.nodes if n.op is Ops.LOCAL)
    short = [r for r in kernel.ranges if (constant_extent(r) or _SHORT + 1) <= _SHORT]
    long = [r for r in kernel.ranges if r not in short]
    if not names or not long or any(r not in kernel.spine for r in long):
        return sink
    row = long[-1]
    size = constant_extent(row) or 0
    lanes = min(target.vector_bytes // max(a.itemsize for a in kernel.accesses), target.max_lanes)
    if size < lanes:
        return sink
    try:
        made = sink
        for name in names:
            made = Inline(name).apply(made)
        for loop in short:
            if Kernel(made).find(loop.arg[0]) is not None:
                made = Unroll(loop.arg[0]).apply(made)
        # cores can share out a loop alone only if no vector crosses their parts
        alone = len(long) == 1 and size % lanes
        name = row.arg[0]
        each = Split(name, lanes, AxisKind.VECTOR) if alone else Cover(name, lanes)
        return each.apply(made)
    except Refused:
        return sink
