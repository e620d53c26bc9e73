"""Demands: which groups ask for which node at which index, inside which loops.

A view changes the index of the demand it passes on, an elementwise op keeps it, a reduction adds
the ranges that it closes. `Demands` holds what has been asked so far, with the ranges and groups
of this plan.
"""

from __future__ import annotations

from typing import TypeAlias

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.facts import Facts, Orders, Prices
from opgraft_tensor.graph import shape
from opgraft_tensor.group import Group, Groups, Scope
from opgraft_tensor.index import Atom, AtomKind, Index, Indices, ranges_of
from opgraft_tensor.views import gather_index, never, region_index, source_index

Asked: TypeAlias = dict[Index, dict[Group, dict[Scope | None, None]]]
"""The demands of one node: index, group, the scopes that the group asks in."""


class Demands:
    """What has been asked for."""

    def __init__(self, facts: Facts, orders: Orders, prices: Prices) -> None:
        self.facts = facts
        self.orders = orders
        self.table = Indices()
        self.groups = Groups(self.table, prices)
        self._of: dict[UOp, dict[Index, dict[tuple[Group, Scope | None], None]]] = {}
        self._reduce_ranges: dict[tuple[int, int, int], Atom] = {}

    def __contains__(self, v: UOp) -> bool:
        return v in self._of

    def single(self, v: UOp) -> tuple[Index, Group, Scope | None] | None:
        """The only demand of a node; None where there are several."""
        by_index = self._of[v]
        if len(by_index) != 1:
            return None
        ((index, askers),) = by_index.items()
        if len(askers) != 1:
            return None
        ((group, scope),) = askers
        return self.groups.resolve(index), self.groups.find(group), scope

    def demand(self, v: UOp, group: Group, index: Index, scope: Scope | None) -> None:
        """`group` asks for `v` at `index`, inside the loops of `scope`."""
        by_index = self._of.get(v)
        if by_index is None:
            by_index = self._of[v] = {}
        askers = by_index.get(index)
        if askers is None:
            askers = by_index[index] = {}
        askers[group, scope] = None

    def current(self, v: UOp) -> Asked:
        """The demands of `v` with merged ranges and groups identified."""
        found: Asked = {}
        for index, askers in self._of.get(v, {}).items():
            by_group = found.setdefault(self.groups.resolve(index), {})
            for group, scope in askers:
                by_group.setdefault(self.groups.find(group), {})[scope] = None
        return found

    def reduce_index(self, v: UOp, index: Index) -> tuple[Index, tuple[Atom, ...]]:
        """The index of a reduction's source, and the ranges that the reduction closes.

        Their names are canonical (depth, position, extent): independent reductions of one depth
        ask for their source at the same index, and nested ones differ.
        """
        rest = iter(index)
        found = []
        closed = []
        for axis, extent in enumerate(shape(v.src[0])):
            if axis not in v.arg[1]:
                found.append(next(rest))
                continue
            key = (self.facts.depth[v], v.arg[1].index(axis), extent)
            atom = self._reduce_ranges.get(key)
            if atom is None:
                atom = self._reduce_ranges[key] = self.table.range(extent, AtomKind.REDUCE)
            found.append(self.table.of(atom))
            if extent != 1:
                closed.append(atom)
        return tuple(found), tuple(closed)

    def push(self, v: UOp, group: Group, index: Index, scope: Scope | None) -> None:
        """`group` computes `v` at `index`: pass on what it asks of its sources."""
        op = v.op
        if op in GroupOp.ALU or op in (Ops.SCAN_AXIS, Ops.MATERIALIZE, Ops.COPY):
            for x in v.src:
                self.demand(x, group, index, scope)
        elif op in GroupOp.VIEW:
            place, gates = source_index(self.table, v, index)
            if not (gates and never(gates)):
                self.demand(v.src[0], group, place, scope)
        elif op is Ops.REDUCE_AXIS:
            place, closed = self.reduce_index(v, index)
            if closed:
                enclosing = self.groups.closure(ranges_of(index), scope)
                scope = self.groups.scope(scope, frozenset(closed), enclosing)
            self.demand(v.src[0], group, place, scope)
        elif op is Ops.WRITE:
            if v in self.orders.partial:
                self.demand(v.src[1], group, index, scope)
            else:
                place, gates = region_index(self.table, v.arg, index)
                if gates:
                    self.demand(v.src[0], group, index, scope)
                if not never(gates):
                    self.demand(v.src[1], group, place, scope)
        elif op is Ops.GATHER:
            indices, place = gather_index(self.table, v, index)
            self.demand(v.src[1], group, indices, scope)
            self.demand(v.src[0], group, place, scope)
        elif op not in (Ops.ARANGE, Ops.CONST, Ops.BUFFER, Ops.VAR):
            raise ValueError(f"{op} cannot be planned")

    def push_all(self, v: UOp, demands: Asked) -> None:
        for index, by_group in demands.items():
            for group, scopes in by_group.items():
                for scope in scopes:
                    self.push(v, group, index, scope)

    def agreed(self, demands: Asked, group: Group) -> dict[int, Atom]:
        """Dimensions on which every demand of a group is the same outer range of its own."""
        outer = self.groups.outer(group)
        asked = [index for index, by_group in demands.items() if group in by_group]
        if not asked:
            return {}
        found: dict[int, Atom] = {}
        for d, x in enumerate(asked[0]):
            if x.bare in outer and all(other[d] is x for other in asked):
                assert x.bare is not None
                found[d] = x.bare
        return found
