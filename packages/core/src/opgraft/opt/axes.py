"""The loops of a kernel as the scheduler sees them: what each closes, and how memory moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Final

from opgraft.ir.loops import split_stride, stride_of
from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.overlap import apart, distinct, may_meet
from opgraft.ir.uop import UOp


@dataclass(frozen=True)
class Access:
    """One LOAD or STORE: its index and the element's width in bytes."""

    node: UOp
    index: UOp
    itemsize: int

    def stride(self, loop: UOp) -> int | None:
        """Elements moved per step of `loop`, or vectors of them if it moves such; None: not
        constant."""
        value = self.node if self.node.op is Ops.LOAD else self.node.src[2]
        return in_whole(stride_of(self.index, loop), value.dtype.count)


def in_whole(stride: int | None, lanes: int) -> int | None:
    """A stride in elements, counted in vectors of so many lanes where it is a multiple of them."""
    return stride if stride is None or stride % lanes else stride // lanes


class Kernel:
    """A kernel graph and the facts about it that actions and heuristics ask for."""

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.nodes = sink.toposort()

    @cached_property
    def effects(self) -> tuple[UOp, ...]:
        """The top-level effects."""
        return self.sink.src

    @cached_property
    def ranges(self) -> list[UOp]:
        """All ranges, sources first."""
        return [n for n in self.nodes if n.op is Ops.RANGE]

    @cached_property
    def spine(self) -> tuple[UOp, ...]:
        """The ranges that every top-level effect closes, outermost first: candidates for
        parallel loops. No value crosses from one iteration to another."""
        ends = [e for e in self.effects if e.op is Ops.END]
        if not ends or len(ends) != len(self.effects):
            return ()
        shared = [r for r in ends[0].src[1:] if all(r in e.src[1:] for e in ends[1:])]
        return tuple(r for r in shared if self.may_reorder(r))

    @cached_property
    def _ordered(self) -> frozenset[UOp]:
        """Ranges whose iterations stay in order: scanned ones, those of an effect that others
        wait for as a whole, and those of stores that may hit one element twice."""
        kept = set(self._scanned)
        for n in self.nodes:
            if n.op is Ops.AFTER:
                for effect in n.src[1:]:
                    kept.update(closed_by(effect))
        for effect in self.effects:
            kept.update(_meeting(effect))
        return frozenset(kept)

    def may_reorder(self, loop: UOp) -> bool:
        """Whether the iterations of a loop may be carried out in any order, or at once."""
        return loop not in self._ordered

    def stands_alone(self, loop: UOp) -> bool:
        """Whether the effects that close a loop, and those that don't, may be carried out at the
        same time: no iteration waits for another, and neither side writes what the other uses."""
        inside = [e for e in self.effects if loop in closed_by(e)]
        beside = [e for e in self.effects if loop not in closed_by(e)]
        if not inside or not self.may_reorder(loop):
            return False
        return all(_keep_apart(one, two) for one in inside for two in beside)

    def collides(self, loop: UOp) -> bool:
        """Whether a store in this loop may hit one element in several iterations."""
        return any(loop in _meeting(e) for e in self.effects)

    @cached_property
    def _scanned(self) -> frozenset[UOp]:
        return frozenset(r for n in self.nodes if n.op is Ops.SCAN for r in n.src[1:])

    @cached_property
    def closers(self) -> dict[UOp, list[UOp]]:
        """For each range the END and REDUCE nodes that close it."""
        found: dict[UOp, list[UOp]] = {r: [] for r in self.ranges}
        for n in self.nodes:
            if n.op in (Ops.END, Ops.REDUCE):
                for loop in n.src[1:]:
                    found[loop].append(n)
        return found

    @cached_property
    def accesses(self) -> list[Access]:
        found: list[Access] = []
        for n in self.nodes:
            if n.op is Ops.LOAD:
                found.append(Access(n, n.src[1], n.dtype.itemsize))
            elif n.op is Ops.STORE:
                found.append(Access(n, n.src[1], n.src[2].dtype.itemsize))
        return found

    @cached_property
    def reduces(self) -> list[UOp]:
        return [n for n in self.nodes if n.op is Ops.REDUCE]

    @cached_property
    def written(self) -> frozenset[UOp]:
        """The arrays that the kernel stores to."""
        return frozenset(target_of(e) for e in self.effects if store_of(e).op is not Ops.PREFETCH)

    @cached_property
    def has_locals(self) -> bool:
        return any(n.op is Ops.LOCAL for n in self.nodes)

    @cached_property
    def prelude(self) -> float:
        """The share of the work that stands outside of all loops, so that each core would do it.

        1.0 where memory is written there: that must be done once.
        """
        fills: dict[UOp, list[UOp]] = {}
        for n in self.nodes:
            if n.op is Ops.AFTER:
                fills.setdefault(buffer_of(n), []).extend(n.src[1:])
        # all that fills one buffer stands in the same loops
        if any(all(map(_is_outermost, together)) for together in fills.values()):
            return 1.0
        own = sum(
            _product(n.src[1:]) for n in self.reduces if _is_outermost(n) and n.src[0].op in _WORK
        )
        return own / max(1, self.work())

    @cached_property
    def _refilled(self) -> frozenset[UOp]:
        """The ranges that a LOCAL is filled anew in each iteration of."""
        fills = [n for n in self.nodes if n.op is Ops.AFTER and buffer_of(n).op is Ops.LOCAL]
        return frozenset(r for n in fills for effect in n.src[1:] for r in effect.ranges)

    def fills_locals(self, loop: UOp) -> bool:
        """Whether a LOCAL is filled anew in each iteration of `loop`."""
        return loop in self._refilled

    def filled_in(self, loop: UOp) -> tuple[UOp, ...]:
        """The LOCALs that are filled anew in each iteration of `loop`."""
        if not self.fills_locals(loop):
            return ()
        filled = [n for n in self.nodes if n.op is Ops.AFTER and loop in n.ranges]
        return tuple(dict.fromkeys(b for b in map(buffer_of, filled) if b.op is Ops.LOCAL))

    def is_scanned(self, loop: UOp) -> bool:
        return loop in self._scanned

    def find(self, name: object) -> UOp | None:
        """The range of that name."""
        return next((r for r in self.ranges if r.arg[0] == name), None)

    def work(self) -> int:
        """Elementwise operations of the whole kernel, each at the loops it depends on."""
        total = 0
        for n in self.nodes:
            if n.op in GroupOp.ALU or n.op in (Ops.LOAD, Ops.REDUCE):
                times = 1
                loops = (*n.ranges, *n.src[1:]) if n.op is Ops.REDUCE else n.ranges
                for loop in loops:
                    times *= extent_hint(loop)
                total += times
        return total


_WORK: Final = GroupOp.ALU | {Ops.LOAD, Ops.REDUCE}


def _is_outermost(n: UOp) -> bool:
    """Whether no loop is left around a node once lanes and copies are expanded."""
    return all(r.arg[1] in (AxisKind.VECTOR, AxisKind.UNROLL) for r in n.ranges)


def _product(loops: tuple[UOp, ...]) -> int:
    total = 1
    for loop in loops:
        total *= extent_hint(loop)
    return total


def closed_by(effect: UOp) -> tuple[UOp, ...]:
    """The ranges that an effect closes, outermost first, nested ones too."""
    loops: list[UOp] = []
    while effect.op is Ops.END:
        loops.extend(effect.src[1:])
        effect = effect.src[0]
    return tuple(loops)


def store_of(effect: UOp) -> UOp:
    """The STORE under any END."""
    while effect.op is Ops.END:
        effect = effect.src[0]
    return effect


def _keep_apart(one: UOp, two: UOp) -> bool:
    """Whether neither of two effects writes an element that the other reads or writes."""
    written = (store_of(one), store_of(two))
    for store, other in (written, written[::-1]):
        buffer = buffer_of(store.src[0])
        uses = [n for n in other.toposort() if n.op is Ops.LOAD and buffer_of(n.src[0]) is buffer]
        if buffer_of(other.src[0]) is buffer:
            uses.append(other)
        if any(_may_touch(store, use) for use in uses):
            return False
    return True


def _may_touch(one: UOp, two: UOp) -> bool:
    """Whether two accesses to a buffer may reach one element, in whatever iterations."""
    first, second = one.src[1], two.src[1]
    if not may_meet(first, second):
        return False
    loops = tuple(r for r in first.ranges if r in second.ranges)
    if not apart(first, second, loops):
        return True
    for loop in loops:
        first, second = split_stride(first, loop)[0], split_stride(second, loop)[0]
    return may_meet(first, second)


DISTINCT: Final = "distinct"
"""The tag of a STORE that no two iterations of its loops reach one element by, where its gate
holds: a loop was made longer than the index tells (see opt/pad.py), or its last blocks are shorter
(see opt/blocks.py). With a colon and a name behind it, no two STOREs of the tag reach one element
either (see opt/matrix.py)."""
OVERLAP: Final = "overlap"
"""The tag of a STORE that stores the same wherever two iterations of its loops reach one element;
behind a colon the loops in which they do, others don't (see opt/tile.py)."""


def overlapping(store: UOp) -> tuple[str, ...]:
    """The names of the loops in which a STORE is carried out twice for some elements."""
    head, _, names = store.tag.partition(":") if isinstance(store.tag, str) else ("", "", "")
    return tuple(names.split(",")) if head == OVERLAP else ()


def _meeting(effect: UOp) -> tuple[UOp, ...]:
    """The loops of an effect in whose iterations it may store to one element several times."""
    memo = effect._memo  # every look at a kernel asks
    if memo is None or "meeting" not in memo:
        return effect.remember("meeting", _find_meeting(effect))  # type: ignore[no-any-return]
    return memo["meeting"]  # type: ignore[no-any-return]


def _find_meeting(effect: UOp) -> tuple[UOp, ...]:
    store, loops = store_of(effect), closed_by(effect)
    names = overlapping(store)
    if names and set(names) <= {str(r.arg[0]) for r in loops}:
        return tuple([r for r in loops if str(r.arg[0]) in names])
    return loops if loops and not stores_once(store, loops) else ()


def stores_once(store: UOp, loops: tuple[UOp, ...]) -> bool:
    """Whether no two iterations of these loops store to one element."""
    return is_distinct(store.tag) or distinct(store.src[1], loops)


def stores_apart(first: UOp, second: UOp) -> bool:
    """Whether two STOREs are parts of one that reaches each element once."""
    return first.tag == second.tag and first.tag != DISTINCT and is_distinct(first.tag)


def is_distinct(tag: object) -> bool:
    """Whether a tag is DISTINCT, with a name behind it or without."""
    return isinstance(tag, str) and tag.partition(":")[0] == DISTINCT


def target_of(effect: UOp) -> UOp:
    """The PARAM or LOCAL that a STORE, or an END of one, writes to."""
    return buffer_of(store_of(effect).src[0])


def buffer_of(n: UOp) -> UOp:
    """The PARAM or LOCAL under any AFTER."""
    while n.op is Ops.AFTER:
        n = n.src[0]
    return n


def constant_extent(loop: UOp) -> int | None:
    """The extent of a range where it is a constant."""
    size = loop.src[0].const_value
    return None if size is None else int(size)


def extent_hint(loop: UOp) -> int:
    """The extent of a range, or the most it can be, within reason."""
    return max(1, min(int(min(loop.src[0].vmax, 1 << 40)), 1 << 40))


def most(loop: UOp) -> int:
    """The most iterations that a range has, where that is known."""
    return int(loop.src[0].vmax)


def known_most(loop: UOp) -> int | None:
    """The extent of a range, or the most it can be; None where that says nothing, where the range
    may be empty, or where its extent is another one in each iteration of a loop."""
    extent = loop.src[0]
    bounded = extent.vmin >= 1 and extent.vmax < ENDLESS
    return int(extent.vmax) if bounded and not extent.ranges else None


ENDLESS: Final = 1 << 31
"""A range of no fewer iterations is not known to end within reason."""


def fresh(kernel: Kernel, wanted: str) -> str:
    """The wanted name for a new range, or one like it that no range of the kernel has."""
    taken = {str(r.arg[0]) for r in kernel.ranges}
    name = wanted
    while name in taken:
        name += "'"
    return name


def free_locals(kernel: Kernel, prefix: str) -> Iterator[str]:
    """The names prefix0, prefix1 and so on that no LOCAL of the kernel has."""
    taken = {n.arg[0] for n in kernel.nodes if n.op is Ops.LOCAL}
    return (name for i in count() if (name := f"{prefix}{i}") not in taken)


def rename(kernel: Kernel, loop: UOp, suffix: str, kind: AxisKind, size: int | UOp) -> UOp:
    """A new range named after another."""
    return UOp.range(size, fresh(kernel, f"{loop.arg[0]}{suffix}"), kind)


def clauses(gates: tuple[UOp, ...]) -> list[UOp]:
    """The conditions that these gates join by AND."""
    found: list[UOp] = []
    stack = list(gates)
    while stack:
        gate = stack.pop()
        if gate.op is Ops.AND:
            stack.extend(gate.src)
        else:
            found.append(gate)
    return found
