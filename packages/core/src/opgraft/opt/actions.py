"""Transformations of a kernel's loops. Each is a value: it prints, compares, and applies.

An action names the range it works on. `apply` hands back the new kernel graph, or raises
`Refused` with the reason; it never gives a kernel of another meaning (the order inside a REDUCE
is free, see docs/meaning.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from opgraft.dtype import dtypes
from opgraft.errors import OpgraftError
from opgraft.ir.argument import format_value, writable_as_text
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.reduction import combine
from opgraft.ir.uop import UOp
from opgraft.opt.axes import (
    Kernel,
    buffer_of,
    closed_by,
    constant_extent,
    fresh,
    rename,
    store_of,
)
from opgraft.opt.notes import note
from opgraft.opt.pad import pad_range
from opgraft.opt.threads import overwritten, shared_locals, stored_outside, unfit
from opgraft.rules.simplify import tidy


class Refused(OpgraftError):
    """An action that is not legal on this kernel."""


class Action(ABC):
    """A step of a schedule."""

    keeps_loops: ClassVar[bool] = False
    """Whether all loops are after it what they were."""

    def apply(self, sink: UOp) -> UOp:
        """The kernel after the action. Raises Refused."""
        if not self.keeps_loops and any(n.op is Ops.PREFETCH for n in sink.toposort()):
            raise Refused("what is fetched ahead fits the loops as they are: it comes last")
        after = self.change(sink)
        note(sink, self, after)
        return after

    @abstractmethod
    def change(self, sink: UOp) -> UOp:
        """What `apply` hands back."""


def find_loop(kernel: Kernel, name: object) -> UOp:
    """The range of that name; Refused where there is none."""
    found = kernel.find(name)
    if found is None:
        known = ", ".join(str(r.arg[0]) for r in kernel.ranges)
        raise Refused(f"no range is named {name!r}; there are {known or 'none'}")
    return found


def sized_loop(kernel: Kernel, name: object) -> tuple[UOp, int]:
    """The range of that name and its extent; Refused where it is not constant, or scanned."""
    loop = unscanned_loop(kernel, name)
    size = constant_extent(loop)
    if size is None:
        raise Refused(f"range {name} has no constant extent")
    return loop, size


def unscanned_loop(kernel: Kernel, name: object) -> UOp:
    """The range of that name; Refused where it is scanned."""
    loop = find_loop(kernel, name)
    if kernel.is_scanned(loop):
        raise Refused(f"range {name} is scanned: its iterations stay in order, one at a time")
    return loop


def keep_order(kernel: Kernel, loop: UOp) -> None:
    """Refused where several iterations of a loop store to one element. The last of them stays, or
    each goes on from what the one before has stored: they can't become copies beside each other,
    and no other loop comes between them."""
    filled = [store_of(n) for n in kernel.closers[loop] if n.op is Ops.END]
    filled = [n for n in filled if n.op is Ops.STORE and buffer_of(n.src[0]).op is Ops.LOCAL]
    if kernel.collides(loop) or any(loop not in n.src[1].ranges for n in filled):
        raise Refused(f"iterations of {loop.arg[0]} may store to one element: order counts")


def is_outermost(kernel: Kernel, loop: UOp) -> bool:
    """Whether a loop stands in no other in the effects that close it: a rest of it comes last."""
    return all(n in kernel.effects and n.src[1] is loop for n in kernel.closers[loop])


def keep_whole(kernel: Kernel, loop: UOp) -> None:
    """Refused where a loop may not become several beside each other: its iterations are lanes of
    one vector, or threads or cores share it. (Groups may: each of several loops has some.)"""
    kind, kinds = loop.arg[1], [r.arg[1] for r in kernel.ranges]
    cores = kind is AxisKind.PARALLEL and AxisKind.THREAD not in kinds
    if cores or kind in (AxisKind.VECTOR, AxisKind.THREAD):
        raise Refused(f"range {loop.arg[0]} is of kind {loop.arg[1].name}: it stays one")


def keep_nesting(ranges: tuple[UOp, ...]) -> None:
    """Refused where a loop, in this order of nested ones, is to go as far as one inside it says."""
    for place, loop in enumerate(ranges):
        for other in ranges[place + 1 :]:
            if other in loop.src[0].ranges:
                raise Refused(f"the extent of range {loop.arg[0]} depends on {other.arg[0]}")


def keep_extents(kernel: Kernel, loop: UOp) -> None:
    """Refused where how far another loop goes depends on this one."""
    for other in kernel.ranges:
        if loop in other.src[0].ranges:
            raise Refused(f"the extent of range {other.arg[0]} depends on {loop.arg[0]}")


def keep_one_buffer(what: str, loops: Iterable[UOp]) -> None:
    """Refused where a buffer would be filled in several lanes or copies: it is one for them all."""
    if any(r.arg[1] in (AxisKind.VECTOR, AxisKind.UNROLL) for r in loops):
        raise Refused(f"{what} stands in lanes or copies, which would share a buffer")


Copy = tuple[dict[UOp, UOp], tuple[UOp, ...]]


def in_parts(kernel: Kernel, loop: UOp, parts: list[Copy]) -> UOp:
    """The kernel with `loop` in parts beside each other, tidied.

    What is filled anew in each iteration of it is a buffer of its own in each part: in one part it
    may be the same for all iterations, and filled before all of them, while others still read it.
    """
    filled = kernel.filled_in(loop)
    taken = {str(n.arg[0]) for n in kernel.nodes if n.op is Ops.LOCAL} if filled else set()
    for changes, _ in parts[1:]:
        for local in filled:
            name = str(local.arg[0])
            while name in taken:
                name += "'"
            taken.add(name)
            changes[local] = local.replace(arg=(name, *local.arg[1:]))
    return tidy(close_copies(kernel.sink, loop, parts))


def close_copies(sink: UOp, loop: UOp, copies: list[Copy]) -> UOp:
    """Replace `loop` by copies of everything that stands in it.

    Each copy is (what the loop index becomes, and buffers that are filled in the loop; the ranges
    that take the loop's place). An END becomes several effects, a REDUCE the combination of
    several.
    """
    changed: dict[UOp, tuple[UOp, ...]] = {}
    moved = changed.keys()
    # what the statements share is replaced once in each copy
    replaced = [dict(changes) for changes, _ in copies]
    # what the index is used in; all else is the same in all copies
    inside = {n for changes, _ in copies for n in changes}

    def now(n: UOp) -> tuple[UOp, ...]:
        return changed.get(n, (n,))

    for n in sink.toposort():
        closes = (n.op is Ops.END or n.op is Ops.REDUCE) and loop in n.src[1:]
        if not closes and moved.isdisjoint(n.src):
            if not inside.isdisjoint(n.src):
                inside.add(n)
            continue
        if closes:
            place = n.src[1:].index(loop)
            rest = tuple(now(r)[0] for r in n.src[1:] if r is not loop)
            parts: list[UOp] = []
            for known, (_, instead) in zip(replaced, copies, strict=True):
                # the extent of another range may depend on the loop
                others = tuple([_replaced(r, known, inside) for r in rest])
                ranges = (*others[:place], *instead, *others[place:])
                for body in now(n.src[0]):
                    copied = _replaced(body, known, inside)
                    parts.append(n.with_src((copied, *ranges)) if ranges else copied)
            changed[n] = tuple(parts) if n.op is Ops.END else (tree(n.arg, parts),)
            continue
        if n.op is Ops.END:
            ranges = tuple(now(r)[0] for r in n.src[1:])
            changed[n] = tuple(n.with_src((body, *ranges)) for body in now(n.src[0]))
        else:
            changed[n] = (n.with_src(tuple([part for s in n.src for part in now(s)])),)
        inside.update(part for part in changed[n] if not inside.isdisjoint(part.src))
    return now(sink)[0]


def _replaced(root: UOp, known: dict[UOp, UOp], inside: set[UOp]) -> UOp:
    """The graph with nodes replaced as `known` says, which is added to; only what is `inside` of
    the loop changes."""
    if root not in inside:
        return root
    get = known.get
    stack = [root]
    pop, push = stack.pop, stack.append
    while stack:
        n = stack[-1]
        if n not in known:
            waiting = len(stack)
            for s in n.src:
                if s in inside and s not in known:
                    push(s)
            if len(stack) > waiting:
                continue
            src = tuple([get(s, s) for s in n.src])
            known[n] = n if src == n.src else n.with_src(src)
        pop()
    return known[root]


def tree(op: Ops, parts: list[UOp]) -> UOp:
    """The parts combined pairwise, neighbours first."""
    while len(parts) > 1:
        pairs = [combine(op, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


@writable_as_text
@dataclass(frozen=True)
class Split(Action):
    """A range becomes two: an outer one, and an inner one of `factor` iterations of `kind`.

    Where `factor` does not divide the extent, the rest becomes a loop of its own beside it. Over
    threads of a group the extent is padded instead, and LOCALs that they fill together become
    group memory.
    """

    name: object
    factor: int
    kind: AxisKind = AxisKind.LOOP

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop, size = sized_loop(kernel, self.name)
        if self.kind is AxisKind.THREAD and self.factor > 1:
            return self._over_threads(kernel, loop, size)
        if not 1 < self.factor <= size:
            raise Refused(f"range {self.name} of {size} can't be split by {self.factor}")
        if self.kind is AxisKind.PARALLEL:
            raise Refused("Parallel and Grid give iterations to cores and groups, not Split")
        if self.kind is AxisKind.REDUCE and any(
            n.op is not Ops.REDUCE for n in kernel.closers[loop]
        ):
            raise Refused(f"range {self.name} is not only reduced")
        at_once = self.kind in (AxisKind.VECTOR, AxisKind.UNROLL)
        if at_once and kernel.fills_locals(loop):
            raise Refused(f"a local buffer is filled anew in each iteration of {self.name}")
        whole, rest = divmod(size, self.factor)
        if at_once or (rest and not is_outermost(kernel, loop)):
            keep_order(kernel, loop)
        if rest:
            keep_whole(kernel, loop)
        suffix = {AxisKind.VECTOR: ".v", AxisKind.UNROLL: ".u"}.get(self.kind, ".i")
        inner = rename(kernel, loop, suffix, self.kind, self.factor)
        ranges: tuple[UOp, ...] = (inner,)
        index: UOp = inner
        if whole > 1:
            outer = rename(kernel, loop, ".o", loop.arg[1], whole)
            ranges, index = (outer, inner), outer * self.factor + inner
        copies: list[Copy] = [({loop: index}, ranges)]
        if rest:
            tail = rename(kernel, loop, ".t", loop.arg[1], rest)
            copies.append(({loop: tail + whole * self.factor}, (tail,)))
        return in_parts(kernel, loop, copies)

    def _over_threads(self, kernel: Kernel, loop: UOp, size: int) -> UOp:
        if size == 1:  # it is in no index: nothing tells apart what its threads touch
            raise Refused(f"range {self.name} has one iteration: that is nothing to share")
        why = unfit(kernel, loop)
        if why:
            raise Refused(why)
        sink = kernel.sink.substitute(shared_locals(kernel, loop))
        padded = -(-size // self.factor) * self.factor
        if padded > size:
            longer = loop.with_src((UOp.const(dtypes.index, padded),))
            sink, loop = pad_range(sink, loop, longer), longer
        inner = rename(kernel, loop, ".t", AxisKind.THREAD, self.factor)
        ranges: tuple[UOp, ...] = (inner,)
        index: UOp = inner
        if padded > self.factor:
            outer = rename(kernel, loop, ".o", loop.arg[1], padded // self.factor)
            ranges, index = (outer, inner), outer * self.factor + inner
        return tidy(close_copies(sink, loop, [({loop: index}, ranges)]))


@writable_as_text
@dataclass(frozen=True)
class Partition(Action):
    """A range becomes three beside each other: 0 .. begin, begin .. end, and the rest.

    So conditions on the range, as those of a padded access, are settled for the middle.
    """

    name: object
    begin: int
    end: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop, size = sized_loop(kernel, self.name)
        if not 0 <= self.begin < self.end <= size or (self.begin, self.end) == (0, size):
            raise Refused(f"range {self.name} of {size} has no inner part {self.begin}..{self.end}")
        keep_order(kernel, loop)
        keep_whole(kernel, loop)
        copies: list[Copy] = []
        for suffix, low, high in (
            (".m", self.begin, self.end),
            (".a", 0, self.begin),
            (".z", self.end, size),
        ):
            if high > low:
                part = rename(kernel, loop, suffix, loop.arg[1], high - low)
                copies.append(({loop: part + low if low else part}, (part,)))
        return in_parts(kernel, loop, copies)


@writable_as_text
@dataclass(frozen=True)
class Unroll(Action):
    """All iterations of a short range as copies of the body."""

    name: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop, size = sized_loop(kernel, self.name)
        if kernel.fills_locals(loop):
            raise Refused(f"a local buffer is filled anew in each iteration of {self.name}")
        keep_order(kernel, loop)
        copies: list[Copy] = [({loop: UOp.const(dtypes.index, i)}, ()) for i in range(size)]
        return tidy(close_copies(sink, loop, copies))


@writable_as_text
@dataclass(frozen=True)
class Fuse(Action):
    """Two neighbouring ranges of the same statements become one, of the product of extents. That of
    the outer one may vary. Where its iterations go to all cores, those of both do."""

    outer: object
    inner: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        outer = unscanned_loop(kernel, self.outer)
        inner, few = sized_loop(kernel, self.inner)
        if outer.src[0].ranges:
            raise Refused(f"the extent of range {self.outer} depends on other ranges")
        if outer is inner:
            raise Refused(f"range {self.outer} has no neighbour in itself")
        kinds = outer.arg[1], inner.arg[1]
        shared = kinds == (AxisKind.PARALLEL, AxisKind.LOOP) and kernel.may_reorder(inner)
        if kinds[0] is not kinds[1] and not shared:
            raise Refused(f"ranges {self.outer} and {self.inner} are of different kinds")
        closers = kernel.closers
        if closers[outer] != closers[inner]:
            raise Refused(f"ranges {self.outer} and {self.inner} don't enclose the same statements")
        if any(n.src[n.src.index(outer) + 1 :][:1] != (inner,) for n in closers[outer]):
            keep_order(kernel, outer)
        name = fresh(kernel, f"{self.outer}.{self.inner}")
        many = constant_extent(outer)
        extent = outer.src[0] * few if many is None else many * few
        fused = UOp.range(extent, name, outer.arg[1])
        changes = {outer: fused // few, inner: fused % few}
        done: dict[UOp, UOp] = dict(changes)
        for n in sink.toposort():
            if n in done:
                continue
            if n.op in (Ops.END, Ops.REDUCE) and outer in n.src[1:]:
                ranges = [fused if r is outer else done[r] for r in n.src[1:] if r is not inner]
                done[n] = n.with_src((done[n.src[0]], *ranges))
            else:
                done[n] = n.with_src(tuple([done[s] for s in n.src]))
        return tidy(done[sink])


@writable_as_text
@dataclass(frozen=True)
class Parallel(Action):
    """A range of top-level effects goes outermost, its iterations to all cores.

    Effects outside of it, as the rest of a split, are carried out once, beside it.
    """

    name: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = find_loop(kernel, self.name)
        shared = [r for r in kernel.ranges if r.arg[1] is AxisKind.PARALLEL]
        if shared:
            raise Refused(f"the cores share range {shared[0].arg[0]} already")
        if loop.arg[1] is not AxisKind.LOOP:
            raise Refused(f"range {self.name} is of kind {loop.arg[1].name} already")
        if loop not in kernel.spine and not kernel.stands_alone(loop):
            raise Refused(f"range {self.name} does not enclose the whole kernel")
        inside = Kernel(UOp.sink(*(e for e in kernel.effects if loop in closed_by(e))))
        why = stored_outside(inside, loop) or overwritten(inside, loop)
        if why:
            raise Refused(why)
        marked = loop.replace(arg=(loop.arg[0], AxisKind.PARALLEL))
        replaced = sink.substitute({loop: marked})
        effects = []
        for effect in replaced.src:
            if effect.op is Ops.END and marked in effect.src[1:]:
                others = tuple(r for r in effect.src[1:] if r is not marked)
                keep_nesting((marked, *others))
                effect = effect.with_src((effect.src[0], marked, *others))
            effects.append(effect)
        return replaced.with_src(tuple(effects))


@writable_as_text
@dataclass(frozen=True)
class Innermost(Action):
    """A range goes innermost in the statements that close it."""

    name: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loop = find_loop(kernel, self.name)
        keep_order(kernel, loop)
        changes: dict[UOp, UOp] = {}
        for n in kernel.closers[loop]:
            others = tuple(r for r in n.src[1:] if r is not loop)
            if others and loop.arg[1] is AxisKind.PARALLEL:
                raise Refused(f"the cores share range {self.name}: it stays outermost")
            keep_nesting((*others, loop))
            changes[n] = n.with_src((n.src[0], *others, loop))
        return replace_nodes(sink, changes)


def replace_nodes(sink: UOp, changes: dict[UOp, UOp]) -> UOp:
    """The graph with nodes replaced that may stand in each other's place of sources."""
    done: dict[UOp, UOp] = {}
    for n in sink.toposort():
        after = changes.get(n, n)
        done[n] = after.with_src(tuple([done.get(s, s) for s in after.src]))
    return done[sink]


def apply_all(sink: UOp, actions: tuple[Action, ...]) -> UOp:
    """The kernel after all actions, in order. Raises Refused at the first that is not legal."""
    for action in actions:
        sink = action.apply(sink)
    return sink


def follow(sink: UOp, schedule: object) -> UOp:
    """The kernel after a schedule that was given with it. Raises Refused, with the step."""
    if not isinstance(schedule, tuple) or not all(isinstance(step, Action) for step in schedule):
        raise Refused(f"a schedule is a tuple of actions, which {format_value(schedule)} is not")
    for number, step in enumerate(schedule, 1):
        try:
            sink = step.apply(sink)
        except Refused as refused:
            where = f"step {number} of the schedule, {format_value(step)}"
            raise Refused(f"{where}: {refused.message}", remedy=refused.remedy) from refused
    return sink
