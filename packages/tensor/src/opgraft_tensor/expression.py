"""Expressions of one kernel: a node at an index, as a tree over loops, with its loads and gates.

A load needs a gate where its index may leave the array; the gate is derived from the index
itself, so one (node, index) is one expression however it is reached, and recomputing cannot
arise from gates. The value under a false gate is 0, and never used.

Each piece of work is a task, carried out with a stack of our own: graphs are deep.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final, TypeAlias

from opgraft.dtype import dtypes
from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
from opgraft.ir.uop import UOp, head_of, node
from opgraft_tensor.extents import Extent, limit
from opgraft_tensor.graph import shape
from opgraft_tensor.group import Group
from opgraft_tensor.index import Atom, AtomKind, Index, Lin
from opgraft_tensor.views import (
    Gate,
    gather_index,
    inside,
    never,
    region_index,
    size_of,
    source_index,
)
from opgraft_tensor.walk import Walk

BODY: Final = 0  # the node computed at an index
VALUE: Final = 1  # the node read at an index: computed, or loaded from where it is kept
KEPT: Final = 2  # memory inside the kernel, once it is written
PLACE: Final = 3  # an index as an expression

Task: TypeAlias = tuple[int, "UOp | None", Index]

_KINDS: Final = {AtomKind.REDUCE: AxisKind.REDUCE}


class Expressions:
    """The expressions of one group. `params` and `range_nodes` number memory and loops by first
    visit; `loads` is what was read."""

    def __init__(self, walk: Walk, group: Group) -> None:
        self.walk = walk
        self.groups = walk.groups
        self.table = walk.table
        self.group = group
        self.done: dict[Task, UOp] = {}
        self.range_nodes: dict[Atom, UOp] = {}
        self.params: dict[UOp, UOp] = {}
        self.loads: dict[tuple[UOp, Index], None] = {}
        self.own: dict[UOp, Index] = {}
        """Index of each root of this group by its own ranges."""
        self.kept_dims: dict[UOp, list[int]] = {}
        """Roots that are read away from their iteration: the axes on which they are."""
        self.in_local: dict[UOp, None] = {}
        """Of these, the ones kept in a local array."""
        self.local_names: dict[UOp, int] = {}

    # ---- pieces

    def range_of(self, atom: Atom) -> UOp:
        found = self.range_nodes.get(atom)
        if found is None:
            kind = _KINDS.get(atom.kind, AxisKind.LOOP)
            found = UOp.range(limit(atom.extent), len(self.range_nodes), kind)
            self.range_nodes[atom] = found
        return found

    def param(self, v: UOp) -> UOp:
        found = self.params.get(v)
        if found is None:
            arg = (len(self.params), size_of(v))
            found = self.params[v] = UOp(Ops.PARAM, v.dtype, (), arg)
        return found

    def place(self, x: Lin) -> UOp:
        return self.evaluate((PLACE, None, (x,)))

    def _gate(self, gates: Iterable[Gate]) -> UOp | None:
        """All of the gates; None where there is none."""
        found: UOp | None = None
        for x, low, high in gates:
            place = self.place(x)
            parts = []
            if x.low < low:
                parts.append(~(place < low))
            if x.high >= high or isinstance(high, Extent):
                parts.append(place < limit(high))
            for part in parts:
                found = part if found is None else found & part
        return found

    def _load(self, memory: UOp, extents: tuple[int, ...], index: Index) -> UOp:
        flat = self.place(self.table.ravel(index, extents))
        gate = self._gate(inside(index, extents))
        return memory.load(flat, gate)

    # ---- evaluation, with a stack of our own

    def evaluate(self, task: Task) -> UOp:
        """The expression of a task; whatever it needs first, too."""
        found = self.done.get(task)
        if found is not None:
            return found
        stack = [(task, False)]
        while stack:
            top, ready = stack.pop()
            if top in self.done:
                continue
            if not ready:
                needs = [t for t in self._needs(top) if t not in self.done]
                if needs:
                    stack.append((top, True))
                    stack.extend((t, False) for t in reversed(needs))
                    continue
            self.done[top] = self._make(top)
        return self.done[task]

    def _kept_in_kernel(self, v: UOp) -> bool:
        return v in self.walk.locals or v in self.kept_dims

    def _in_memory(self, v: UOp) -> bool:
        """Whether `v` is read from memory that was there before the kernel."""
        if v.op is Ops.BUFFER:
            return True
        return v in self.groups.group_of_root and v not in self.own

    def _needs(self, task: Task) -> list[Task]:
        what, v, index = task
        if what is PLACE:
            return self._place_needs(index[0])
        assert v is not None
        if what is KEPT:
            return [(BODY, v, self._own_index(v))]
        if what is VALUE:
            if self._kept_in_kernel(v):
                return [(KEPT, v, ()), *self._places(index)]
            if self._in_memory(v):
                return self._places(index)
            return [(BODY, v, index)]
        op = v.op
        if op in GroupOp.ALU or op in (Ops.SCAN_AXIS, Ops.MATERIALIZE, Ops.COPY):
            return [(VALUE, x, index) for x in v.src]
        if op in GroupOp.VIEW:
            place, gates = source_index(self.table, v, index)
            return [] if gates and never(gates) else [(VALUE, v.src[0], place)]
        if op is Ops.REDUCE_AXIS:
            return [(VALUE, v.src[0], self._reduced(v, index)[0])]
        if op is Ops.WRITE:
            if v in self.walk.orders.partial:
                return [(VALUE, v.src[1], index)]
            place, gates = region_index(self.table, v.arg, index)
            old: list[Task] = [(VALUE, v.src[0], index)] if gates else []
            return old if never(gates) else [*old, (VALUE, v.src[1], place)]
        if op is Ops.GATHER:
            indices, place = gather_index(self.table, v, index)
            return [(VALUE, v.src[1], indices), (VALUE, v.src[0], place)]
        if op is Ops.ARANGE:
            return [(PLACE, None, (index[v.arg[1]],))]
        return []

    def _places(self, index: Index) -> list[Task]:
        """Data inside an index must be there before the index is written down."""
        return [need for x in index for need in self._place_needs(x)]

    def _place_needs(self, x: Lin) -> list[Task]:
        found: list[Task] = []
        for atom, _ in x.terms:
            if atom.kind is AtomKind.DATUM:
                found.append((VALUE, *atom.inside))
            elif atom.inside is not None:
                found += self._place_needs(atom.inside)
        return found

    def _reduced(self, v: UOp, index: Index) -> tuple[Index, tuple[Atom, ...]]:
        return self.walk.demands.reduce_index(v, index)

    def _own_index(self, v: UOp) -> Index:
        """The index at which a node that is kept in the kernel is computed."""
        own = self.own.get(v)
        return self.groups.resolve(self.walk.locals[v]) if own is None else own

    def _make(self, task: Task) -> UOp:
        what, v, index = task
        if what is PLACE:
            return self._make_place(index[0])
        assert v is not None
        if what is KEPT:
            return self._make_kept(v)
        if what is VALUE:
            if self._kept_in_kernel(v):
                return self._read_kept(v, index)
            if self._in_memory(v):
                self.loads[v, index] = None
                return self._load(self.param(v), shape(v), index)
            return self.done[BODY, v, index]
        return self._make_body(v, index)

    def _make_body(self, v: UOp, index: Index) -> UOp:
        op = v.op
        values = [self.done[t] for t in self._needs((BODY, v, index))]
        if op in (Ops.CONST, Ops.VAR):
            return v
        if op in GroupOp.ALU:
            return node(v.head, tuple(values))
        if op in GroupOp.VIEW:
            if not values:
                return v.const_like(0)
            return self._gated(source_index(self.table, v, index)[1], values[0], None)
        if op is Ops.REDUCE_AXIS:
            closed = self._reduced(v, index)[1]
            return values[0].reduce(v.arg[0], *[self.range_of(r) for r in closed])
        if op is Ops.SCAN_AXIS:
            loop = index[v.arg[1]].bare
            assert loop is not None
            return node(head_of(Ops.SCAN, v.dtype, v.arg[0]), (values[0], self.range_of(loop)))
        if op is Ops.WRITE:
            if len(values) == 1:
                return values[0]
            gates = region_index(self.table, v.arg, index)[1]
            return self._gated(gates, values[1], values[0])
        if op is Ops.GATHER:
            rows = shape(v.src[0])[0]
            number = values[0]
            found = values[1]
            zero = found.const_like(0)
            low, high = number.dtype.min, number.dtype.max
            if high >= rows:
                found = (number < rows).where(found, zero)
            if low < 0:
                found = (number < 0).where(zero, found)
            return found
        if op is Ops.ARANGE:
            return values[0].cast(v.dtype)
        return values[0]

    def _gated(self, gates: tuple[Gate, ...], value: UOp, other: UOp | None) -> UOp:
        """`value` under the gates, else `other` (None: zero). A zero goes into the load itself."""
        gate = self._gate(gates)
        if gate is None:
            return value
        if other is None:
            if value.op is Ops.LOAD and value.src[0].op is Ops.PARAM:
                return _load_under(value, gate)
            other = value.const_like(0)
        return gate.where(value, other)

    def _make_place(self, x: Lin) -> UOp:
        """An index as an expression: the greatest coefficients first."""
        terms = sorted(x.terms, key=lambda term: -abs(term[1]))
        found: UOp | None = None
        for atom, m in terms:
            part = self._make_atom(atom)
            if m != 1:
                part = part * m
            found = part if found is None else found + part
        if found is None:
            return UOp.const(dtypes.index, x.constant)
        return found + x.constant if x.constant else found

    def _make_atom(self, atom: Atom) -> UOp:
        kind = atom.kind
        if kind is AtomKind.QUOTIENT:
            return self.place(atom.inside) // atom.divisor
        if kind is AtomKind.REMAINDER:
            return self.place(atom.inside) % atom.divisor
        if kind is AtomKind.DATUM:
            number = self.done[VALUE, atom.inside[0], atom.inside[1]]
            # clamped, so that the bounds of what is computed from it stay finite
            if number.dtype.min < 0:
                number = number.maximum(0)
            if number.dtype.max >= atom.extent:
                number = number.minimum(atom.extent - 1)
            return number.cast(dtypes.index)
        return self.range_of(atom)

    # ---- memory inside the kernel

    def _kept_parts(self, v: UOp) -> tuple[tuple[int, ...], list[int]]:
        """Extents and axes that the memory of a kept node has."""
        extents = shape(v)
        if v in self.kept_dims:
            if v in self.in_local:
                dims = self.kept_dims[v]
                return tuple([extents[d] for d in dims]), dims
            return extents, list(range(len(extents)))
        own = self.walk.locals[v]
        dims = [d for d, x in enumerate(own) if x.bare is not None and self._is_own(v, x.bare)]
        return tuple([extents[d] for d in dims]), dims

    def _is_own(self, v: UOp, atom: Atom) -> bool:
        return atom in self.walk.own_of_local[v]

    def _make_kept(self, v: UOp) -> UOp:
        """The memory of a kept node, after it is written."""
        index = self._own_index(v)
        value = self.done[BODY, v, index]
        extents, dims = self._kept_parts(v)
        place = tuple([index[d] for d in dims])
        if v in self.kept_dims and v not in self.in_local:
            memory = self.param(v)
            dims = self.kept_dims[v]
        else:
            name = self.local_names.setdefault(v, len(self.local_names))
            arg = (f"v{name}", prod(extents), Space.PRIVATE)
            memory = UOp(Ops.LOCAL, v.dtype, (), arg)
        flat = self.place(self.table.ravel(place, extents))
        own = [index[d].bare for d in dims]
        ranges = [self.range_of(r) for r in own if r is not None]
        effect = memory.store(flat, value).end(*ranges)
        if v in self.kept_dims:
            # loops of its own: no other statement can run in them, not even at the same index
            fresh = [
                self.range_of(self.table.range(r.extent, r.kind)) for r in own if r is not None
            ]
            effect = effect.substitute(dict(zip(ranges, fresh)))
        return memory.after(effect)

    def _read_kept(self, v: UOp, index: Index) -> UOp:
        memory = self.done[KEPT, v, ()]
        extents, dims = self._kept_parts(v)
        return self._load(memory, extents, tuple([index[d] for d in dims]))


def _load_under(load: UOp, gate: UOp) -> UOp:
    """A load that gives 0 where the gate is false, whatever gate it has already."""
    if len(load.src) == 4 and load.src[2] is not gate:
        gate = load.src[2] & gate
    return load.src[0].load(load.src[1], gate)
