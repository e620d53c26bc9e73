"""The walk: who asks for which node at which index, and where each node's value is kept.

Consumers come first. When a node's turn comes, all that read it are decided, so its demands are
complete: the indices at which groups ask for it. To keep its value is to memoise a function of
the index; there are three places (`Place`), and the cheapest by the device's prices is taken:
inline (nowhere: computed at each demand), local (an array over the dimensions that the demands
disagree on, inside the loops that they agree on), root (an array in memory, of a group of its
own that may merge with its readers).

Before: a normalised graph (see normalise.py). After: every node that is computed has a place,
every root belongs to a group, groups are acyclic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Final

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, toposort
from opgraft_tensor.facts import LEAVES, MOST, WORK, Facts, Prices, exact_again
from opgraft_tensor.graph import shape
from opgraft_tensor.group import Group, Groups, Pair, Scope, largest_root
from opgraft_tensor.index import Atom, AtomKind, Index, Indices, ranges_of
from opgraft_tensor.views import gather_index, region_index, source_index

FORCED: Final = frozenset({Ops.SCAN_AXIS, Ops.MATERIALIZE, Ops.COPY})
"""What is always stored."""

FORBIDDEN: Final = 1e18
"""The cost of a place that may not be taken."""

CONE_LIMIT: Final = 300
"""Distinct evaluations after which recomputing is too dear, however it ends."""

_SIMPLE: Final = GroupOp.ALU | GroupOp.VIEW

MOST_SHARERS: Final = 64
"""Above this many groups, sharing a read is no longer tried: it is quadratic."""


class Place(Enum):
    """Where the value of a node is kept."""

    INLINE = "inline"
    LOCAL = "local"
    ROOT = "root"


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one node, and from which costs (operations in all)."""

    node: UOp
    place: Place
    costs: Mapping[Place, float] | None
    """None: there was nothing to choose; `why` says why."""
    why: str = ""


@dataclass(frozen=True)
class Orders:
    """What the walk may not choose, by node."""

    outputs: tuple[UOp, ...]
    stored: frozenset[UOp] = frozenset()
    """Further nodes to store."""
    alone: frozenset[UOp] = frozenset()
    """Stored nodes whose kernel takes nothing else in."""
    partial: frozenset[UOp] = frozenset()
    """WRITEs that store their region alone, in the memory of the old version."""


class Walk:
    """One pass over a graph; the result is in `groups`, `locals` and `decisions`."""

    def __init__(
        self, orders: Orders, prices: Prices, devices: Mapping[UOp, str], default_device: str
    ) -> None:
        self.orders = orders
        self.prices = prices
        self.devices = devices
        self.default_device = default_device
        self.order = toposort(orders.outputs)
        self.facts = Facts(self.order, list(orders.outputs))
        self.table = Indices()
        self.groups = Groups(self.table, prices)
        self.locals: dict[UOp, Index] = {}
        """Local nodes: agreed parts of the index as they are, ranges of their own elsewhere."""
        self.own_of_local: dict[UOp, frozenset[Atom]] = {}
        self.decisions: list[Decision] = []
        self.demands: dict[UOp, dict[Index, dict[tuple[Group, Scope | None], None]]] = {}
        self.forced: dict[UOp, None] = dict.fromkeys(orders.outputs)
        self._reduce_ranges: dict[tuple[int, int, int], Atom] = {}
        for v in self.order:
            if v.op in FORCED or v in orders.stored or v in orders.partial:
                self.forced[v] = None
            if v.op is Ops.COPY or v in orders.partial:
                self.forced[v.src[0]] = None

    # ---- demands

    def demand(self, v: UOp, group: Group, index: Index, scope: Scope | None) -> None:
        """`group` asks for `v` at `index`, inside the loops of `scope`."""
        by_index = self.demands.get(v)
        if by_index is None:
            by_index = self.demands[v] = {}
        askers = by_index.get(index)
        if askers is None:
            askers = by_index[index] = {}
        askers[group, scope] = None

    def current(self, v: UOp) -> dict[Index, dict[Group, dict[Scope | None, None]]]:
        """The demands of `v` with merged ranges and groups identified."""
        found: dict[Index, dict[Group, dict[Scope | None, None]]] = {}
        for index, askers in self.demands.get(v, {}).items():
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
            self.demand(v.src[0], group, source_index(self.table, v, index)[0], scope)
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
                self.demand(v.src[0], group, index, scope)
                place = region_index(self.table, v.arg, index)[0]
                self.demand(v.src[1], group, place, scope)
        elif op is Ops.GATHER:
            indices, place = gather_index(self.table, v, index)
            self.demand(v.src[1], group, indices, scope)
            self.demand(v.src[0], group, place, scope)
        elif op not in (Ops.ARANGE, Ops.CONST, Ops.BUFFER, Ops.VAR):
            raise ValueError(f"{op} cannot be planned")

    def push_all(self, v: UOp, demands: dict[Index, dict[Group, dict[Scope | None, None]]]) -> None:
        for index, by_group in demands.items():
            for group, scopes in by_group.items():
                for scope in scopes:
                    self.push(v, group, index, scope)

    # ---- the walk

    def run(self) -> Walk:
        """Decide every node, consumers first."""
        for v in reversed(self.order):
            if v.op not in (Ops.CONST, Ops.VAR) and (v in self.demands or v in self.forced):
                self._visit(v)
        self._join_small()
        return self

    def _join_small(self) -> None:
        """Merge kernels that cost less than their launch into others with the same loops."""
        by_loops: dict[tuple[int, ...], list[Group]] = {}
        for group in [g for g in self.groups.all if g.into is None and not g.alone]:
            work = sum(self.facts.size[r] * self.facts.work[r] for r in group.roots)
            loops = [r for r in self.groups.own_ranges(group.roots[0]) if r.extent != 1]
            extents = tuple([r.extent for r in loops])
            others = by_loops.setdefault(extents, [])
            for other in others:
                other = self.groups.find(other)
                most = sum(self.facts.size[r] * self.facts.work[r] for r in other.roots)
                if not extents or min(work, most) > 4 * self.prices.launch:
                    continue
                theirs = [r for r in self.groups.own_ranges(other.roots[0]) if r.extent != 1]
                if self.groups.merge(other, group, list(zip(theirs, loops)), ("both are small, like", other.roots[0])):
                    break
            else:
                others.append(group)

    def _visit(self, v: UOp) -> None:
        if v not in self.forced and self._once(v):
            return
        demands = self.current(v)
        why = ""
        if v.op in GroupOp.VIEW and v not in self.forced:
            if all(x.width < self.prices.widest for index in demands for x in index):
                self.push_all(v, demands)
                return
            self.forced[v] = None
            why = "index too wide"
        if self._share(v, demands):
            demands = self.current(v)
        if v.op is Ops.BUFFER:
            for by_group in demands.values():
                for group in by_group:
                    group.buffers[v] = None
            return
        place = Place.ROOT
        local: Index | None = None
        if v not in self.forced:
            costs, local, scope = self._costs(v, demands)
            place = min(costs, key=lambda p: (costs[p], p is not Place.INLINE))
            self.decisions.append(Decision(v, place, costs))
        else:
            self.decisions.append(Decision(v, place, None, why or "stored"))
        if place is Place.INLINE:
            if self.facts.heavy.get(v):
                for by_group in demands.values():
                    for group in by_group:
                        group.heavy = True
            self.push_all(v, demands)
        elif place is Place.LOCAL:
            assert local is not None
            self._keep_local(v, demands, local, scope)
        else:
            self._keep_root(v, demands)

    def _once(self, v: UOp) -> bool:
        """Inline an elementwise node or a view with one demand that computes nothing twice."""
        by_index = self.demands[v]
        if len(by_index) != 1 or v.op not in _SIMPLE:
            return False
        ((index, askers),) = by_index.items()
        if len(askers) != 1:
            return False
        ((group, scope),) = askers
        index = self.groups.resolve(index)
        if v.op in GroupOp.VIEW:
            if any(x.width >= self.prices.widest for x in index):
                return False
        else:
            runs = 1
            for r in self.groups.closure(ranges_of(index), scope):
                runs *= r.extent
            if runs > self.facts.size[v]:
                return False
            self.decisions.append(Decision(v, Place.INLINE, None, "asked for once"))
        self.push(v, self.groups.find(group), index, scope)
        return True

    def _keep_local(
        self,
        v: UOp,
        demands: dict[Index, dict[Group, dict[Scope | None, None]]],
        index: Index,
        enclosing: frozenset[Atom],
    ) -> None:
        group = next(iter(next(iter(demands.values()))))
        self.locals[v] = index
        group.locals.append(v)
        group.heavy |= bool(self.facts.heavy.get(v))
        given = ranges_of(next(iter(demands)))
        own = frozenset([r for r in ranges_of(index) if r not in given])
        self.own_of_local[v] = own
        group.local_bytes += prod([r.extent for r in own]) * v.dtype.itemsize
        self.push(v, group, index, self.groups.scope(None, own, enclosing))

    def _keep_root(
        self, v: UOp, demands: dict[Index, dict[Group, dict[Scope | None, None]]]
    ) -> None:
        groups = self.groups
        partial = v in self.orders.partial
        extents = shape(v.src[1]) if partial else shape(v)
        ranges = tuple([self.table.range(n, AtomKind.OUTER) for n in extents])
        mine = groups.add(v, ranges, self.devices.get(v, self.default_device))
        mine.heavy = bool(self.facts.heavy.get(v))
        mine.alone = partial or v.op is Ops.COPY or v in self.orders.alone
        readers: dict[Group, None] = {}
        for index, by_group in demands.items():
            for group in by_group:
                groups.read(group, v, index)
                readers[group] = None
        for reader in sorted(readers, key=lambda g: -largest_root(g)):
            reader = groups.find(reader)
            if reader is groups.find(mine):
                continue
            asked = self._agreed(self.current(v), reader)
            pairs = [
                (r, groups.find_range(ranges[d]))
                for d, r in asked.items()
                if r is not groups.find_range(ranges[d]) and r.extent == ranges[d].extent
            ]
            groups.merge(reader, mine, pairs, ("reads", v))
        index = tuple([self.table.of(r) for r in ranges])
        self.push(v, groups.find(mine), groups.resolve(index), None)

    # ---- sharing

    def _agreed(
        self, demands: dict[Index, dict[Group, dict[Scope | None, None]]], group: Group
    ) -> dict[int, Atom]:
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

    def _share(
        self, v: UOp, demands: dict[Index, dict[Group, dict[Scope | None, None]]]
    ) -> bool:
        """Merge groups that want `v` at like indices; whether any were."""
        wanting = list(dict.fromkeys(g for by_group in demands.values() for g in by_group))
        if not 2 <= len(wanting) <= MOST_SHARERS:
            return False
        wanting.sort(key=lambda g: -largest_root(g))
        size = self.facts.size[v]
        done = False
        for i, first in enumerate(wanting):
            for second in wanting[i + 1 :]:
                a, b = self.groups.find(first), self.groups.find(second)
                if a is b or size * 4 < max(largest_root(a), largest_root(b)):
                    continue
                of_a, of_b = self._agreed(demands, a), self._agreed(demands, b)
                pairs: list[Pair] = [
                    (of_a[d], of_b[d])
                    for d in of_a
                    if d in of_b and of_a[d].extent == of_b[d].extent
                ]
                one_to_one = len({x for x, _ in pairs}) == len({y for _, y in pairs}) == len(pairs)
                if one_to_one and self.groups.merge(a, b, pairs, ("both read", v)):
                    done = True
                    demands = self.current(v)
        return done

    # ---- costs

    def _costs(
        self, v: UOp, demands: dict[Index, dict[Group, dict[Scope | None, None]]]
    ) -> tuple[dict[Place, float], Index | None, frozenset[Atom]]:
        """What each place costs more than computing `v` once, in operations."""
        prices, facts = self.prices, self.facts
        size, work = facts.size[v], facts.work[v]
        nbytes = size * v.dtype.itemsize
        groups = list(dict.fromkeys(g for by_group in demands.values() for g in by_group))
        readers = max(1, sum(map(len, demands.values())))
        free = sum(prod(r.extent for r in ranges_of(i)) * len(g) for i, g in demands.items())
        around = {
            (index, group, self.groups.closure(ranges_of(index), scope))
            for index, by_group in demands.items()
            for group, scopes in by_group.items()
            for scope in scopes
        }
        runs = sum(prod(r.extent for r in loops) for _, _, loops in around)
        # cheap operands of a product are staged by the scheduler; the rest must not hope for it
        evaluations = max(free, runs) if v.op is Ops.REDUCE_AXIS or work > 32 else free
        heavy = facts.heavy.get(v, False)
        widens = facts.only_summed[v] and v.op is Ops.REDUCE_AXIS and v.arg[0] is Ops.ADD
        lost_tile = 0.0
        if heavy and not widens and not (len(groups) == 1 and self._pointwise(v, demands)):
            lost_tile = prices.product * work * size
        again = max(0, evaluations - size) * work
        if readers > 1 and v.op in GroupOp.ALU and again > 16 * size:
            again = min(again, self._cone_excess(v, demands, groups))
        costs = {
            Place.INLINE: again + lost_tile,
            Place.ROOT: nbytes * prices.dram * (1 + readers) + prices.launch,
        }
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
        return costs, local, enclosing

    def _pointwise(
        self, v: UOp, demands: dict[Index, dict[Group, dict[Scope | None, None]]]
    ) -> bool:
        """Whether all demands are at bare outer ranges: a product then keeps its tile."""
        for index, by_group in demands.items():
            outer = self.groups.outer(next(iter(by_group)))
            for x, extent in zip(index, shape(v)):
                if extent != 1 and x.bare not in outer:
                    return False
        return True

    def _local(
        self,
        v: UOp,
        demands: dict[Index, dict[Group, dict[Scope | None, None]]],
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
        demands: dict[Index, dict[Group, dict[Scope | None, None]]],
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
