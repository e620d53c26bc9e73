"""The walk: where each node's value is kept, consumers first.

When a node's turn comes, all that read it are decided, so its demands are complete. To keep its
value is to memoise a function of the index; there are three places (`cost.Place`), and the
cheapest by the device's prices is taken: inline (nowhere: computed at each demand), local (an
array over the dimensions that the demands disagree on, inside the loops that they agree on),
root (an array in memory, of a group of its own that may merge with its readers).

Before: a normalised graph (see normalise.py). After: every node that is computed has a place,
every root belongs to a group, groups are acyclic.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, toposort
from opgraft_tensor.cost import Costs, Place, share_inside
from opgraft_tensor.demand import Asked, Demands
from opgraft_tensor.facts import Facts, Orders, Prices
from opgraft_tensor.graph import shape
from opgraft_tensor.group import Group, Pair, largest_root
from opgraft_tensor.index import Atom, AtomKind, Index, ranges_of
from opgraft_tensor.normalise import STAGE

FORCED: Final = frozenset({Ops.SCAN_AXIS, Ops.MATERIALIZE, Ops.COPY})
"""What is always stored."""

_SIMPLE: Final = GroupOp.ALU | GroupOp.VIEW

MOST_NEIGHBOURS: Final = 8
"""Kernels of the same loops that a small one is tried with."""

MOST_SHARERS: Final = 64
"""Above this many groups, sharing a read is no longer tried: it is quadratic."""


class Decision(NamedTuple):
    """What was decided for one node, and from which costs (operations in all)."""

    node: UOp
    place: Place
    costs: Mapping[Place, float] | None
    """None: there was nothing to choose; `why` says why."""
    why: str = ""


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
        self.demands = Demands(self.facts, orders, prices)
        self.table = self.demands.table
        self.groups = self.demands.groups
        self.locals: dict[UOp, Index] = {}
        """Local nodes: agreed parts of the index as they are, ranges of their own elsewhere."""
        self.own_of_local: dict[UOp, frozenset[Atom]] = {}
        self.costs = Costs(self.demands, prices, self.locals)
        self.decisions: list[Decision] = []
        self.overwriting: dict[UOp, list[UOp]] = {}
        """Partial WRITEs by what they overwrite."""
        for v in self.order:
            if v in orders.partial:
                old = v.src[0]
                self.overwriting.setdefault(old, []).append(v)
                while old.op is Ops.RESHAPE:
                    old = old.src[0]
                    self.overwriting.setdefault(old, []).append(v)
        self.forced: dict[UOp, None] = dict.fromkeys(orders.outputs)
        for v in self.order:
            if v.op in FORCED or v in orders.stored or v in orders.partial:
                self.forced[v] = None
            if v.op is Ops.COPY or v in orders.partial:
                self.forced[v.src[0]] = None

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
        alone = 4 * (self.prices.launch + self.prices.parting)
        by_loops: dict[tuple[int, ...], list[Group]] = {}
        for group in [g for g in self.groups.all if g.into is None and not g.alone]:
            work = sum(self.facts.size[r] * self.facts.work[r] for r in group.roots)
            loops = [r for r in self.groups.own_ranges(group.roots[0]) if r.extent != 1]
            extents = tuple([r.extent for r in loops])
            others = by_loops.setdefault(extents, [])
            for other in others[-MOST_NEIGHBOURS:]:
                other = self.groups.find(other)
                most = sum(self.facts.size[r] * self.facts.work[r] for r in other.roots)
                if not extents or min(work, most) > alone:
                    continue
                theirs = [r for r in self.groups.own_ranges(other.roots[0]) if r.extent != 1]
                if self.groups.merge(
                    other, group, list(zip(theirs, loops)), ("both are small, like", other.roots[0])
                ):
                    break
            else:
                others.append(group)

    def _visit(self, v: UOp) -> None:
        if v not in self.forced and self._once(v):
            return
        demands = self.demands.current(v)
        why = ""
        if v.op in GroupOp.VIEW and v not in self.forced:
            if all(x.width < self.prices.widest for index in demands for x in index):
                self.demands.push_all(v, demands)
                return
            self.forced[v] = None
            why = "index too wide"
        if self._share(v, demands):
            demands = self.demands.current(v)
        if v.op is Ops.BUFFER:
            for by_group in demands.values():
                for group in by_group:
                    group.buffers[v] = None
            return
        place = Place.ROOT
        choice = None
        if v not in self.forced:
            choice = self.costs.of(v, demands)
            place = choice.best
            self.decisions.append(Decision(v, place, choice.costs))
        else:
            self.decisions.append(Decision(v, place, None, why or "stored"))
        if place is Place.INLINE:
            if self.facts.heavy.get(v):
                for by_group in demands.values():
                    for group in by_group:
                        group.heavy = True
            self.demands.push_all(v, demands)
        elif place is Place.LOCAL:
            assert choice is not None
            assert choice.local is not None
            self._keep_local(v, demands, choice.local, choice.enclosing)
        else:
            self._keep_root(v, demands)

    def _once(self, v: UOp) -> bool:
        """Inline an elementwise node or a view with one demand that computes nothing twice."""
        if v.op not in _SIMPLE:
            return False
        single = self.demands.single(v)
        if single is None:
            return False
        index, group, scope = single
        if v.op in GroupOp.VIEW:
            if any(x.width >= self.prices.widest for x in index):
                return False
        else:
            runs = 1
            for r in self.groups.closure(ranges_of(index), scope):
                runs *= r.extent
            if runs * share_inside(index, shape(v)) > self.facts.size[v]:
                return False
            self.decisions.append(Decision(v, Place.INLINE, None, "asked for once"))
        self.demands.push(v, group, index, scope)
        return True

    def _keep_local(
        self,
        v: UOp,
        demands: Asked,
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
        self.demands.push(v, group, index, self.groups.scope(None, own, enclosing))

    def _keep_root(self, v: UOp, demands: Asked) -> None:
        groups = self.groups
        partial = v in self.orders.partial
        extents = shape(v.src[1]) if partial else shape(v)
        ranges = tuple([self.table.range(n, AtomKind.OUTER) for n in extents])
        mine = groups.add(v, ranges, self.devices.get(v, self.default_device))
        mine.heavy = bool(self.facts.heavy.get(v))
        mine.alone = partial or v.op is Ops.COPY or v in self.orders.alone or v.tag == STAGE
        # what overwrites a part of it comes after it, though it may not read it
        for newer in self.overwriting.get(v, ()):
            after = groups.find(groups.group_of_root[newer])
            if after is not mine:
                after.producers[mine] = None
        readers: dict[Group, None] = {}
        for index, by_group in demands.items():
            for group in by_group:
                groups.read(group, v, index)
                readers[group] = None
        for reader in sorted(readers, key=lambda g: -largest_root(g)):
            reader = groups.find(reader)
            if reader is groups.find(mine):
                continue
            asked = self.demands.agreed(self.demands.current(v), reader)
            pairs = [
                (r, groups.find_range(ranges[d]))
                for d, r in asked.items()
                if r is not groups.find_range(ranges[d]) and r.extent == ranges[d].extent
            ]
            groups.merge(reader, mine, pairs, ("reads", v))
        index = tuple([self.table.of(r) for r in ranges])
        self.demands.push(v, groups.find(mine), groups.resolve(index), None)

    def _share(self, v: UOp, demands: Asked) -> bool:
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
                of_a, of_b = self.demands.agreed(demands, a), self.demands.agreed(demands, b)
                pairs: list[Pair] = [
                    (of_a[d], of_b[d])
                    for d in of_a
                    if d in of_b and of_a[d].extent == of_b[d].extent
                ]
                one_to_one = len({x for x, _ in pairs}) == len({y for _, y in pairs}) == len(pairs)
                if one_to_one and self.groups.merge(a, b, pairs, ("both read", v)):
                    done = True
                    demands = self.demands.current(v)
        return done
