"""From groups to kernels.

Before: a finished walk. After: for each group a SINK in kernel form, closed (no range is free
but the statement's own), ranges and parameters numbered by first visit, so that equal groups
give the same node. Which memory a parameter is stays open: a kernel names the array node.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.blocks import in_blocks
from opgraft_tensor.expression import BODY, KEPT, Expressions
from opgraft_tensor.extents import in_use, label
from opgraft_tensor.graph import shape
from opgraft_tensor.group import Group, bytes_of
from opgraft_tensor.index import Atom, AtomKind, Index
from opgraft_tensor.views import region_place
from opgraft_tensor.walk import Walk


class Kernel(NamedTuple):
    """One group as a kernel."""

    group: Group
    sink: UOp
    memory: list[UOp]
    """The array node whose memory each parameter is, by slot: a BUFFER or a root."""
    stored: list[UOp]
    """Roots that it stores."""
    loads: list[tuple[UOp, Index]]
    """What it reads from memory, and where; reads of what it wrote itself apart."""
    reread: list[UOp]
    """Stored roots that it reads again away from the iteration that stored them."""
    spine: list[Atom]
    """Loops that all statements share at the same iteration."""

    @property
    def device(self) -> str:
        return self.group.device


def _those_of_locals_first(ranges: list[UOp], value: UOp) -> list[UOp]:
    """The loops of a store, those that its locals are filled in outermost: within another loop a
    local would be filled again in each of its iterations."""
    filled = [n for n in value.toposort() if n.op is Ops.AFTER and n.src[0].op is Ops.LOCAL]
    return sorted(ranges, key=lambda r: -sum(r in n.ranges for n in filled)) if filled else ranges


class Emitter(Expressions):
    """Emits one group; `needed` are the roots that must be in memory when it is done."""

    def __init__(self, walk: Walk, group: Group, needed: dict[UOp, None]) -> None:
        super().__init__(walk, group)
        self.needed = needed

    def run(self) -> Kernel:
        """The kernel of the group."""
        for root in self.group.roots:
            own = self.groups.own_ranges(root)
            self.own[root] = tuple([self.table.of(r) for r in own])
        self._find_rereads()
        effects: list[UOp] = []
        stored = [r for r in self.group.roots if r in self.needed]
        for root in stored:
            for x in self.own[root]:
                if x.bare is not None:
                    self.range_of(x.bare)
            if root in self.kept_dims:
                effects.append(self._outermost(root, self.evaluate((KEPT, root, ()))))
            else:
                effects.append(self._store(root, self.evaluate((BODY, root, self.own[root]))))
        sink = UOp.sink(*effects, arg=KernelInfo(self._name()))
        if in_use():
            partial = self.walk.orders.partial
            sink = in_blocks(sink, frozenset([p for v, p in self.params.items() if v in partial]))
        return Kernel(
            self.group,
            sink,
            list(self.params),
            stored,
            list(self.loads),
            [r for r in stored if r in self.kept_dims],
            self._spine(),
        )

    def _store(self, root: UOp, value: UOp) -> UOp:
        """The effect that stores a root over all its ranges."""
        own = self.own[root]
        if root in self.walk.orders.partial:
            own = region_place(self.table, root.arg, own)
        flat = self.place(self.table.ravel(own, shape(root)))
        ranges = [self.range_of(r) for r in self.groups.own_ranges(root) if r.extent != 1]
        return self.param(root).store(flat, value).end(*_those_of_locals_first(ranges, value))

    def _outermost(self, root: UOp, kept: UOp) -> UOp:
        """The effect that fills the memory of a stored root, over all its ranges: it is done
        even where nobody reads the memory after all."""
        inner = kept.src[1]
        outer = [x.bare for d, x in enumerate(self.own[root]) if d not in self.kept_dims[root]]
        return inner.end(*[self.range_of(r) for r in outer if r is not None])

    # ---- what is read again inside the kernel

    def _find_rereads(self) -> None:
        """Roots of this group that are read off their own index, and where to keep them."""
        for root, index in self.group.reads:
            own = self.own.get(root)
            if own is None or root in self.walk.orders.partial:
                continue
            place = self.groups.resolve(index)
            off = [d for d, (x, y) in enumerate(zip(place, own)) if x is not y]
            if off:
                found = self.kept_dims.setdefault(root, [])
                found += [d for d in off if d not in found]
        self._keep_what_would_repeat()
        room = self.walk.prices.local_bytes - self.group.local_bytes
        for root, dims in self.kept_dims.items():
            dims.sort()
            if root in self.needed:
                continue
            nbytes = prod([shape(root)[d] for d in dims]) * root.dtype.itemsize
            if nbytes <= room:
                room -= nbytes
                self.in_local[root] = None
            else:
                self.needed[root] = None

    def _keep_what_would_repeat(self) -> None:
        """Roots whose loops are not outermost for all who read them are kept in memory, too:
        computed again in other loops, a sum might have other bits."""
        spine = dict.fromkeys(self._spine())
        wide = {r: [x for x in self.groups.own_ranges(r) if x.extent != 1] for r in self.own}
        for root in dict.fromkeys(root for root, _ in self.group.reads):
            if root not in self.own or root in self.kept_dims or root in self.walk.orders.partial:
                continue
            mine = wide[root]
            same = all(len(x) == len(mine) and all(r in mine for r in x) for x in wide.values())
            if not same and any(r not in spine for r in mine):
                own = self.groups.own_ranges(root)
                self.kept_dims[root] = [
                    d for d, r in enumerate(own) if r.extent != 1 and r not in spine
                ]

    def _spine(self) -> list[Atom]:
        """Ranges of all roots, less those on which an internal read leaves the iteration."""
        common: dict[Atom, None] | None = None
        for root in self.group.roots:
            own = [r for r in self.groups.own_ranges(root) if r.extent != 1]
            common = dict.fromkeys(r for r in own if common is None or r in common)
        for root, dims in self.kept_dims.items():
            own_ranges = self.groups.own_ranges(root)
            for d in dims:
                (common or {}).pop(own_ranges[d], None)
        return list(common or {})

    def _name(self) -> str:
        ops = {n.op for root in self.group.roots for n in (root, *root.src)}
        kind = "map"
        if any(a.kind is AtomKind.REDUCE for a in self.range_nodes):
            kind = "reduce"
        if Ops.SCAN_AXIS in ops:
            kind = "scan"
        extents = [label(a.extent) for a in self.range_nodes][:6]
        return "_".join([kind, *extents])


def traffic(walk: Walk, kernel: Kernel) -> int:
    """Bytes of the distinct arrays that a kernel touches, each once; of a partial WRITE, those
    of its region."""
    partial = walk.orders.partial
    own = [bytes_of(v.src[1]) for v in kernel.stored if v in partial]
    return sum(own) + sum(
        bytes_of(v) for v in kernel.memory if v not in partial or v not in kernel.stored
    )
