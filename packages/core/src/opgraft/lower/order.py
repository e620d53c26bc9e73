"""Keep the order of effects that reach the same memory.

Before: the effects of a kernel stand in program order; a LOAD without AFTER sees the data from
before the kernel. After: where that order could be lost, because statements share loops or have
none in common, it is written down as AFTER: a store waits for an earlier store, and for whoever
reads what it overwrites. Statements that meet only at one iteration of their common loops (the
usual kernel in place) are left alone: linearize orders them inside of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opgraft.errors import LoweringError
from opgraft.ir.ops import Ops
from opgraft.ir.overlap import apart, may_meet
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.axes import closed_by, store_of, target_of


@dataclass(frozen=True)
class _Effect:
    """A top-level effect: where it stores, and its loads of old data."""

    node: UOp
    store: UOp
    loops: tuple[UOp, ...]
    loads: tuple[UOp, ...]
    fills: tuple[UOp, ...]
    """Buffers that it reads, each after loops that fill it and stand in no other loop."""


def order_effects(sink: UOp) -> UOp:
    """The kernel with the order of conflicting effects made explicit."""
    if len(sink.src) < 2:
        return sink
    written = {target_of(n) for n in sink.toposort() if n.op is Ops.STORE}
    effects = [_effect(n, written) for n in sink.src]
    first: dict[int, list[int]] = {i: [] for i in range(len(effects))}
    for later, b in enumerate(effects):
        for earlier, a in enumerate(effects[:later]):
            if a.store is b.store:
                continue
            same = target_of(a.store) is target_of(b.store)
            if same and may_meet(a.store.src[1], b.store.src[1]):
                first[later].append(earlier)
            if _overwrites(a, b):
                first[earlier].append(later)
            if _overwrites(b, a):
                first[later].append(earlier)
    fills = [_read_by_fills(e, effects) for e in effects]
    if not any(first.values()) and not any(fills):
        return sink
    done: dict[int, UOp] = {}
    changed: dict[UOp, UOp] = {}  # stores, wherever they are named
    for i in _sorted(first):
        store = effects[i].store
        waits = tuple(dict.fromkeys([*fills[i], *(done[j] for j in first[i])]))
        if waits:
            rest = [part.substitute(changed) for part in store.src[1:]]
            changed[store] = store.with_src((store.src[0].after(*waits), *rest))
        done[i] = effects[i].node.substitute(changed)
    return sink.with_src(tuple(done[i] for i in range(len(effects))))


def _effect(n: UOp, written: set[UOp]) -> _Effect:
    loops: list[UOp] = []
    store = n
    while store.op is Ops.END:
        loops.extend(store.src[1:])
        store = store.src[0]
    own = toposort((n,), lambda m: not _is_finished(m) and not _is_filled(m))
    loads = [m for m in own if m.op is Ops.LOAD and m.src[0] in written]
    fills = [m for m in own if _is_filled(m)]
    return _Effect(n, store, tuple(loops), tuple(loads), tuple(fills))


def _is_finished(n: UOp) -> bool:
    """Whether this is a buffer after another effect of the kernel: what that one loads, it has
    loaded by then. What fills a LOCAL is no effect of its own."""
    return n.op is Ops.AFTER and target_of(n).op is Ops.PARAM


def _is_filled(n: UOp) -> bool:
    """Whether this is a LOCAL after loops that stand in no other: all that they read, they have
    read before any iteration of the effects that use it."""
    return n.op is Ops.AFTER and target_of(n).op is Ops.LOCAL and not n.ranges


def _read_by_fills(writer: _Effect, effects: list[_Effect]) -> tuple[UOp, ...]:
    """What fills buffers from the array that an effect stores to: it is done before."""
    array, found = target_of(writer.store), {}
    for fill in dict.fromkeys(f for e in effects if e is not writer for f in e.fills):
        below = fill.toposort()
        reads = any(n.op is Ops.LOAD and n.src[0] is array for n in below)
        if reads and writer.store not in below and fill not in writer.fills:
            found.update(dict.fromkeys(fill.src[1:]))
    return tuple(found)


def _overwrites(writer: _Effect, reader: _Effect) -> bool:
    """Whether `writer` may destroy what another iteration of `reader` is still to read."""
    shared = tuple(r for r in writer.loops if r in reader.loops)
    for load in reader.loads:
        index, place = load.src[1], writer.store.src[1]
        if load.src[0] is not target_of(writer.store) or not may_meet(index, place):
            continue
        if not shared or not apart(index, place, shared):
            return True
    return False


def check_updates(sink: UOp) -> None:
    """Raises LoweringError where an effect in a loop that may be empty overwrites what its other
    iterations read: that can be read before the loop only where there are some."""
    for effect in sink.src:
        empty = [r for r in closed_by(effect) if r.src[0].vmin < 1]
        if not empty or store_of(effect).op is Ops.PREFETCH:
            continue
        own = _effect(effect, {target_of(effect)})
        loads = tuple(load for load in own.loads if load.src[1] is not own.store.src[1])
        if _overwrites(own, replace(own, loads=loads)):
            names = ", ".join(str(r.arg[0]) for r in empty)
            raise LoweringError(
                f"slot {target_of(effect).arg[0]} is overwritten in loops that may be empty "
                f"({names}), and what other iterations read of it must be read before",
                remedy="store to another buffer, or say that the size is at least 1",
            )


def _sorted(first: dict[int, list[int]]) -> list[int]:
    done: dict[int, None] = {}
    left = list(first)
    while left:
        ready = [i for i in left if all(j in done for j in first[i])]
        if not ready:
            raise LoweringError(
                "effects of one kernel each overwrite what the other still has to read",
                remedy="store one of them to a buffer of its own first",
            )
        done.update(dict.fromkeys(ready))
        left = [i for i in left if i not in done]
    return list(done)
