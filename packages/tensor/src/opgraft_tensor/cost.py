"""What each place for a node's value costs, in operations, by the device's prices.

Costs are what a place adds to computing the node once: recomputing (inline), traffic with the
cache (local), traffic with memory and a launch (root). A product whose values are not asked for
point by point loses its tile, wherever it is not stored.
"""

from __future__ import annotations

from enum import Enum
from math import prod
from typing import Final, NamedTuple

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.demand import Asked, Demands
from opgraft_tensor.facts import LEAVES, MOST, WORK, Prices, exact_again
from opgraft_tensor.graph import shape
from opgraft_tensor.group import Group
from opgraft_tensor.index import Atom, AtomKind, Index, Lin, ranges_of
from opgraft_tensor.views import region_index, source_index

FORBIDDEN: Final = 1e18
"""The cost of a place that may not be taken."""

CONE_LIMIT: Final = 300
"""Distinct evaluations after which recomputing is too dear, however it ends."""


class Place(Enum):
    """Where the value of a node is kept."""

    INLINE = "inline"
    LOCAL = "local"
    ROOT = "root"


def share_inside(index: Index, extents: tuple[int, ...]) -> float:
    """The share of an index's values that lie within the extents: the rest is under gates, and
    not evaluated. An estimate, by the bounds of each dimension."""
    share = 1.0
    for x, n in zip(index, extents):
        if x.low < 0 or x.high >= n:
            share *= min(1.0, n / (x.high - x.low + 1))
    return share


def _moved_range(x: Lin) -> Atom | None:
    """The range of an index that is one, but for a constant."""
    return x.terms[0][0] if len(x.terms) == 1 and x.terms[0][1] == 1 else None


def _widened(v: UOp) -> bool:
    """Whether a value is an integer in memory as a wider one: to load the one or the other is the
    same, and the one is less to move."""
    if v.op is not Ops.CAST:
        return False
    source = v.src[0]
    while source.op in GroupOp.VIEW:
        source = source.src[0]
    narrow = source.dtype.is_int and v.dtype.is_int and source.dtype.bits < v.dtype.bits
    return narrow and source.op in LEAVES


class Choice(NamedTuple):
    """The costs of the places of a node, and what it would be as a local."""

    costs: dict[Place, float]
    local: Index | None = None
    enclosing: frozenset[Atom] = frozenset()
    """The loops around a local."""

    @property
    def best(self) -> Place:
        """The cheapest place; inline among equals."""
        return min(self.costs, key=lambda p: (self.costs[p], p is not Place.INLINE))


class Costs:
    """Prices the places of nodes whose demands are complete."""

    def __init__(self, demands: Demands, prices: Prices, locals_: dict[UOp, Index]) -> None:
        self.demands = demands
        self.facts = demands.facts
        self.groups = demands.groups
        self.table = demands.table
        self.prices = prices
        self.locals = locals_

    def of(self, v: UOp, demands: Asked) -> Choice:
        """What each place costs more than computing `v` once, in operations."""
        prices, facts = self.prices, self.facts
        size, work = facts.size[v], facts.work[v]
        nbytes = size * v.dtype.itemsize
        groups = list(dict.fromkeys(g for by_group in demands.values() for g in by_group))
        readers = max(1, sum(map(len, demands.values())))
        inside = {index: share_inside(index, shape(v)) for index in demands}
        free = sum(
            prod(r.extent for r in ranges_of(i)) * len(g) * inside[i] for i, g in demands.items()
        )
        # a dictionary: sums of floats in the order of a set would differ from run to run
        around = dict.fromkeys(
            (index, group, self.groups.closure(ranges_of(index), scope))
            for index, by_group in demands.items()
            for group, scopes in by_group.items()
            for scope in scopes
        )
        runs = sum(prod(r.extent for r in loops) * inside[index] for index, _, loops in around)
        # cheap operands of a product are staged by the scheduler; the rest must not hope for it
        evaluations = max(free, runs) if v.op is Ops.REDUCE_AXIS or work > 32 else free
        heavy = facts.heavy.get(v, False)
        widens = facts.only_summed[v] and v.op is Ops.REDUCE_AXIS and v.arg[0] is Ops.ADD
        lost_tile = 0.0
        if heavy and not widens and not (len(groups) == 1 and self._pointwise(v, demands)):
            lost_tile = prices.product * work * size
        again = 0.0 if _widened(v) else max(0, evaluations - size) * (work - facts.common[v])
        if readers > 1 and v.op in GroupOp.ALU and again > 16 * size:
            again = min(again, self._cone_excess(v, demands, groups))
        costs = {
            Place.INLINE: again + lost_tile,
            Place.ROOT: nbytes * prices.byte(nbytes) * (1 + readers)
            + prices.launch
            + prices.parting,
        }
        if len(groups) > 1 and v.op in GroupOp.ALU:
            costs[Place.INLINE] += self._read_again(v, len(groups))
        if heavy and lost_tile and work > 600 and any(g.heavy for g in groups):
            costs[Place.INLINE] = FORBIDDEN
        if v.op is Ops.REDUCE_AXIS and readers > 1 and not exact_again(v):
            costs[Place.INLINE] = FORBIDDEN  # its bits might differ the second time
        local: Index | None = None
        enclosing: frozenset[Atom] = frozenset()
        if len(groups) == 1 and (len(demands) > 1 or runs > size) and v.op is not Ops.GATHER:
            local, enclosing = self._local(v, demands, groups[0])
        if local is not None:
            costs[Place.LOCAL] = nbytes * prices.cache * (1 + readers) + lost_tile
        return Choice(costs, local, enclosing)

    def _read_again(self, v: UOp, kernels: int) -> float:
        """What it costs that several kernels read what `v` is computed from.

        A float sum that only `v` needs would be part of its kernel; read by several, it must
        be stored itself.
        """
        prices = self.prices
        total = 0.0
        for leaf in self.facts.leaves[v] or ():
            nbytes = self.facts.size[leaf] * leaf.dtype.itemsize
            summed = leaf.op is Ops.REDUCE_AXIS and not exact_again(leaf)
            if summed and self.facts.only_for(leaf, v):
                total += nbytes * prices.byte(nbytes) * (1 + kernels)
                total += prices.launch + prices.parting
            else:
                total += nbytes * prices.byte(nbytes) * (kernels - 1)
        return total

    def _pointwise(self, v: UOp, demands: Asked) -> bool:
        """Whether all demands are at outer ranges, moved or not: a product then keeps its tile."""
        for index, by_group in demands.items():
            outer = self.groups.outer(next(iter(by_group)))
            for x, extent in zip(index, shape(v)):
                if extent != 1 and _moved_range(x) not in outer:
                    return False
        return True

    def _local(
        self,
        v: UOp,
        demands: Asked,
        group: Group,
    ) -> tuple[Index | None, frozenset[Atom]]:
        """The index of `v` as a local of its only group, and the loops around it; or None."""
        extents = shape(v)
        asked = list(demands)
        scopes = [scope for index in asked for scope in demands[index][group]]
        outer = self.groups.outer(group)
        for only_outer in (False, True):
            agreed = [
                d
                for d, x in enumerate(asked[0])
                if extents[d] != 1
                and all(index[d] is x for index in asked)
                and (not only_outer or x.free <= outer)
            ]
            own = prod([n for d, n in enumerate(extents) if d not in agreed])
            free = ranges_of([asked[0][d] for d in agreed])
            enclosing = frozenset[Atom]().union(*[self.groups.closure(free, s) for s in scopes])
            if prod(r.extent for r in enclosing) * own <= 2 * self.facts.size[v]:
                break
        else:
            return None, frozenset()
        room = self.prices.local_bytes - group.local_bytes
        if not agreed or own == 1 or own * v.dtype.itemsize > room:
            return None, frozenset()
        # the loops around it are all that the kernel can spread: cores without a part of them
        # would wait
        spread = prod([extents[d] for d in agreed if asked[0][d].free <= outer])
        if spread < self.prices.parallel // 4 and self.facts.size[v] > self.prices.small:
            return None, frozenset()
        index = tuple(
            [
                x if d in agreed else self.table.of(self.table.range(extents[d], AtomKind.INNER))
                for d, x in enumerate(asked[0])
            ]
        )
        return index, enclosing

    def _cone_excess(
        self,
        v: UOp,
        demands: Asked,
        groups: list[Group],
    ) -> float:
        """Operations of the cone below `v` at all its demands, less the cone at one."""
        own = tuple([self.table.of(self.table.range(n, AtomKind.INNER)) for n in shape(v)])
        total = 0.0
        for group in groups:
            asked = [index for index, by_group in demands.items() if group in by_group]
            total += self._cone(v, asked)
            if total >= FORBIDDEN:
                return FORBIDDEN
        return max(0.0, total - self._cone(v, [own]))

    def _cone(self, v: UOp, asked: list[Index]) -> float:
        """Operations to evaluate `v` at these indices, each distinct (node, index) once."""
        seen: set[tuple[UOp, Index]] = set()
        stack = [(v, index) for index in asked]
        total = 0.0
        computed = 0
        while stack:
            key = stack.pop()
            if key in seen:
                continue
            seen.add(key)
            n, index = key
            if n.op is Ops.CONST:
                continue
            if n.op in GroupOp.VIEW:
                stack.append((n.src[0], source_index(self.table, n, index)[0]))
                continue
            computed += 1
            if computed > CONE_LIMIT:
                return FORBIDDEN
            runs = prod(r.extent for r in ranges_of(index))
            if n.op in LEAVES or n in self.groups.group_of_root or n in self.locals:
                total += runs
                continue
            if n.op in GroupOp.ALU:
                total += runs * WORK.get(n.op, 1.0)
                stack.extend((x, index) for x in n.src)
            elif n.op is Ops.WRITE:
                total += runs
                stack.append((n.src[0], index))
                stack.append((n.src[1], region_index(self.table, n.arg, index)[0]))
        return min(total, MOST)
