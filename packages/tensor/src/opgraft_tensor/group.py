"""Groups: statements that become one kernel, and when two of them may be one.

A group holds roots (stored arrays, each with a range per axis) and locals. Merging two groups
identifies some of their outer ranges, so that their loops become one. It is refused where the
result would not be a kernel: a way from one to the other through a third, a read that leaves
the shared iteration, too little left in parallel, a product that loses its tile, more buffers
than the device takes, two scans along different loops.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.facts import Prices
from opgraft_tensor.graph import shape
from opgraft_tensor.index import Atom, Index, Indices, Lin
from opgraft_tensor.views import size_of

Pair: TypeAlias = tuple[Atom, Atom]


class Scope:
    """Loops that run once per iteration of what encloses them: the ranges of a reduction or of
    a local, and the loops around it. A chain, innermost first."""

    __slots__ = ("enclosing", "outside", "ranges")

    def __init__(
        self, outside: Scope | None, ranges: frozenset[Atom], enclosing: frozenset[Atom]
    ) -> None:
        self.outside = outside
        self.ranges = ranges
        self.enclosing = enclosing


class Group:
    """Statements of one kernel to be. `alone`: never merged."""

    __slots__ = (
        "alone",
        "buffers",
        "device",
        "heavy",
        "into",
        "local_bytes",
        "locals",
        "producers",
        "reads",
        "roots",
        "scans",
        "serial",
    )

    def __init__(self, serial: int, root: UOp, device: str) -> None:
        self.serial = serial
        self.device = device
        self.roots: list[UOp] = [root]
        self.locals: list[UOp] = []
        self.buffers: dict[UOp, None] = {}
        """Memory that is read: BUFFERs, and roots of whatever group."""
        self.reads: list[tuple[UOp, Index]] = []
        """Roots of any group that are read, and where."""
        self.producers: dict[Group, None] = {}
        self.scans: list[UOp] = []
        self.heavy = False
        self.alone = False
        self.local_bytes = 0
        self.into: Group | None = None

    def __repr__(self) -> str:
        return f"g{self.serial}"


class Groups:
    """All groups of a plan, the union-find of their ranges, and merging."""

    def __init__(self, table: Indices, prices: Prices) -> None:
        self.table = table
        self.prices = prices
        self.all: list[Group] = []
        self.ranges_of_root: dict[UOp, tuple[Atom, ...]] = {}
        self.group_of_root: dict[UOp, Group] = {}
        self.log: list[tuple[Group, Group, str, UOp]] = []
        """Merges: what took in what, and why: a phrase and the node in question."""
        self._range_into: dict[Atom, Atom] = {}
        self._memo: dict[Lin, Lin] = {}
        self._scopes: dict[tuple[object, ...], Scope] = {}

    # ---- finding

    def find(self, group: Group) -> Group:
        """The group that this one has become part of."""
        while group.into is not None:
            group = group.into
        return group

    def find_range(self, atom: Atom) -> Atom:
        into = self._range_into
        while atom in into:
            atom = into[atom]
        return atom

    def resolve(self, index: Index) -> Index:
        """The index with every range replaced by the one it was identified with."""
        into = self._range_into
        if not into:
            return index
        found: list[Lin] = []
        changed = False
        for x in index:
            if not x.terms or x.free.isdisjoint(into):
                found.append(x)
            else:
                found.append(self.table.substitute(x, self._replaced, self._memo))
                changed = True
        return tuple(found) if changed else index

    def _replaced(self, atom: Atom) -> Lin:
        return self.table.of(self.find_range(atom))

    def own_ranges(self, root: UOp) -> tuple[Atom, ...]:
        """The ranges of a root, resolved."""
        return tuple([self.find_range(r) for r in self.ranges_of_root[root]])

    def outer(self, group: Group) -> frozenset[Atom]:
        """The ranges of a group's roots."""
        return frozenset(
            [r for v in group.roots for r in self.own_ranges(v) if r.extent != 1],
        )

    def scope(
        self, outside: Scope | None, ranges: frozenset[Atom], enclosing: frozenset[Atom]
    ) -> Scope:
        """The interned scope: equal ones are one object."""
        key = (outside, ranges, enclosing)
        found = self._scopes.get(key)
        if found is None:
            found = self._scopes[key] = Scope(outside, ranges, enclosing)
        return found

    def closure(self, free: frozenset[Atom], scope: Scope | None) -> frozenset[Atom]:
        """The loops that really run around an evaluation with these free ranges."""
        while scope is not None:
            if not free.isdisjoint(scope.ranges):
                free = free | frozenset([self.find_range(r) for r in scope.enclosing])
            scope = scope.outside
        return free

    # ---- making and merging

    def add(self, root: UOp, ranges: tuple[Atom, ...], device: str) -> Group:
        made = Group(len(self.all), root, device)
        self.all.append(made)
        self.ranges_of_root[root] = ranges
        self.group_of_root[root] = made
        if root.op is Ops.SCAN_AXIS:
            made.scans.append(root)
        return made

    def read(self, reader: Group, root: UOp, index: Index) -> None:
        """Note that a group reads a root at an index."""
        reader.reads.append((root, index))
        reader.buffers[root] = None
        producer = self.find(self.group_of_root[root])
        if producer is not reader:
            reader.producers[producer] = None

    def merge(self, a: Group, b: Group, pairs: list[Pair], why: tuple[str, UOp]) -> bool:
        """Make one group of two by identifying pairs of ranges (of a, of b); whether it is done."""
        a, b = self.find(a), self.find(b)
        if a is b:
            return True
        if not pairs or a.alone or b.alone or a.device != b.device:
            return False
        prices = self.prices
        outer_a, outer_b = self.outer(a), self.outer(b)
        # the cheap tests first: they only lose pairs later on
        full = len(pairs) == len(outer_a) == len(outer_b)
        if (a.heavy or b.heavy) and not full:
            return False
        most = max(prod([r.extent for r in outer_a]), prod([r.extent for r in outer_b]))
        if prod([x.extent for x, _ in pairs]) < prices.parallel and most > prices.small:
            return False
        if len({**a.buffers, **b.buffers, **dict.fromkeys(a.roots + b.roots)}) > prices.max_buffers:
            return False
        if a.local_bytes + b.local_bytes > prices.local_bytes:
            return False
        pairs = self._at_identity(a, b, pairs)
        pairs = self._without_open_scans(a, b, pairs)
        if not pairs:
            return False
        if (a.heavy or b.heavy) and len(pairs) != len(outer_a):
            return False
        if prod([x.extent for x, _ in pairs]) < prices.parallel and most > prices.small:
            return False
        if not self._share_a_loop(a, b, pairs):
            return False
        if self._scans_clash(a, b, pairs) or self._through_third(a, b) or self._through_third(b, a):
            return False
        for x, y in pairs:
            x, y = self.find_range(x), self.find_range(y)
            if x is not y:
                self._range_into[y] = x
        self._memo.clear()
        b.into = a
        a.roots += b.roots
        a.locals += b.locals
        a.reads += b.reads
        a.scans += b.scans
        a.heavy |= b.heavy
        a.local_bytes += b.local_bytes
        a.buffers.update(b.buffers)
        a.producers.update(b.producers)
        self.log.append((a, b, *why))
        return True

    def _share_a_loop(self, a: Group, b: Group, pairs: list[Pair]) -> bool:
        """Whether one of the shared loops is a loop of every root: it can stand outermost.

        If it is the loop of a scan, so must be all the loops around that scan.
        """
        roots_a = [frozenset(self.own_ranges(r)) for r in a.roots]
        roots_b = [frozenset(self.own_ranges(r)) for r in b.roots]
        common = [
            (x, y)
            for x, y in pairs
            if all(x in own for own in roots_a) and all(y in own for own in roots_b)
        ]
        for place, group in ((0, a), (1, b)):
            shared = [pair[place] for pair in common]
            for scan in group.scans:
                own_ranges = [r for r in self.own_ranges(scan) if r.extent != 1]
                loop = self.find_range(self.ranges_of_root[scan][scan.arg[1]])
                if loop in shared and any(r not in shared for r in own_ranges):
                    return False
        return bool(common)

    def _at_identity(self, a: Group, b: Group, pairs: list[Pair]) -> list[Pair]:
        """Without the pairs on which a direct read between the groups leaves the iteration."""
        for reader, writer in ((a, b), (b, a)):
            for root, index in reader.reads:
                if not pairs or self.find(self.group_of_root[root]) is not writer:
                    continue
                place = self.resolve(index)
                own = self.own_ranges(root)
                kept: list[Pair] = []
                for pair in pairs:
                    used = [d for d, r in enumerate(own) if r in pair]
                    if all(place[d].bare in pair for d in used):
                        kept.append(pair)
                pairs = kept
        return pairs

    def _without_open_scans(self, a: Group, b: Group, pairs: list[Pair]) -> list[Pair]:
        """A scan's loop can be shared only where all around it is shared, too: it stands inside."""
        for place, group in ((0, a), (1, b)):
            for scan in group.scans:
                own = [r for r in self.own_ranges(scan) if r.extent != 1]
                loop = self.find_range(self.ranges_of_root[scan][scan.arg[1]])
                shared = [pair[place] for pair in pairs]
                if loop in shared and any(r not in shared for r in own):
                    pairs = [pair for pair in pairs if pair[place] is not loop]
        return pairs

    def _scans_clash(self, a: Group, b: Group, pairs: list[Pair]) -> bool:
        """Whether two scans over shared loops would run along different ones."""
        if not a.scans or not b.scans:
            return False
        renamed = {y: x for x, y in pairs}
        loops = [self.find_range(self.ranges_of_root[s][s.arg[1]]) for s in a.scans]
        loops += [
            renamed.get(r, r)
            for r in [self.find_range(self.ranges_of_root[s][s.arg[1]]) for s in b.scans]
        ]
        shared = {x for x, _ in pairs}
        return len(dict.fromkeys([r for r in loops if r in shared])) > 1

    def _through_third(self, a: Group, b: Group) -> bool:
        """Whether a reads something that, through another group, reads b."""
        seen: set[Group] = {a}
        stack = [self.find(g) for g in a.producers]
        stack = [g for g in stack if g is not b]
        while stack:
            group = stack.pop()
            if group in seen:
                continue
            seen.add(group)
            for below in group.producers:
                below = self.find(below)
                if below is b:
                    return True
                if below not in seen:
                    stack.append(below)
        return False


def largest_root(group: Group) -> int:
    """Elements of the largest root."""
    return max(size_of(r) for r in group.roots)


def bytes_of(v: UOp) -> int:
    """Bytes of an array node."""
    return prod(shape(v)) * v.dtype.itemsize
