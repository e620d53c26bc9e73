"""Which loops may be carried out at once by several threads, and what that asks of memory."""

from __future__ import annotations

from typing import Final

from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.overlap import apart, may_meet
from opgraft.ir.uop import UOp
from opgraft.opt.axes import (
    Kernel,
    buffer_of,
    closed_by,
    store_of,
    stores_apart,
    stores_once,
    target_of,
)

_SPREAD: Final = (AxisKind.PARALLEL, AxisKind.THREAD)


def independent(kernel: Kernel, loops: tuple[UOp, ...]) -> str:
    """Why iterations of these loops can't be carried out at once by threads that never wait for
    each other; "" if they can: no iteration touches what another stores."""
    for loop in loops:
        if not kernel.may_reorder(loop):
            return f"iterations of {loop.arg[0]} stay in order"
    accesses: dict[UOp, list[UOp]] = {}
    closed: dict[UOp, tuple[UOp, ...]] = {}
    for n in kernel.nodes:
        if n.op is Ops.END:
            own = closed_by(n)
            closed[store_of(n)] = max(closed.get(store_of(n), ()), own, key=len)
        if n.op in (Ops.LOAD, Ops.STORE) and buffer_of(n.src[0]).op is Ops.PARAM:
            accesses.setdefault(buffer_of(n.src[0]), []).append(n)
    for buffer, found in accesses.items():
        for store in found:
            around = closed.get(store, ())
            if store.op is Ops.STORE and any(_meet(store, n, loops, around) for n in found):
                names = ", ".join(str(r.arg[0]) for r in loops)
                return f"iterations of {names} may touch one element of slot {buffer.arg[0]}"
    return ""


def stored_outside(kernel: Kernel, loop: UOp) -> str:
    """Why cores can't share the iterations of this loop: before it something is stored to an array
    that is read again inside, and each core would do so; "" if nothing is. (It is inside, but the
    same in all iterations; so there is a single one.)"""
    for n in kernel.nodes:
        if n.op is Ops.AFTER and buffer_of(n).op is Ops.PARAM and loop not in n.ranges:
            return f"slot {buffer_of(n).arg[0]} is stored to outside of range {loop.arg[0]}"
    return ""


def filled_inside(kernel: Kernel, loop: UOp) -> str:
    """Why the threads of a group can't share the iterations of this loop: each iteration fills
    group memory anew, which all of them have in common; "" if none does."""
    for n in kernel.nodes:
        local = buffer_of(n) if n.op is Ops.AFTER else n
        shared = local.op is Ops.LOCAL and local.arg[2] is Space.GROUP
        if shared and any(loop in effect.ranges for effect in n.src[1:]):
            return f"each iteration of {loop.arg[0]} fills group memory {local.arg[0]!r} anew"
    return ""


def overwritten(kernel: Kernel, loop: UOp) -> str:
    """Why cores can't share the iterations of this loop: one of them may overwrite what another
    reads as it was before the kernel; "" if none does."""
    old = [n for n in kernel.nodes if n.op is Ops.LOAD and n.src[0] in kernel.written]
    for effect in kernel.effects if old else ():
        store, closed = store_of(effect), closed_by(effect)
        for load in old:
            if load.src[0] is target_of(effect) and _meet(store, load, (loop,), closed):
                slot = load.src[0].arg[0]
                return f"iterations of {loop.arg[0]} may touch one element of slot {slot}"
    return ""


def _meet(store: UOp, other: UOp, loops: tuple[UOp, ...], closed: tuple[UOp, ...]) -> bool:
    """Whether a STORE, and it or another access of its buffer, may meet in different iterations of
    `loops`; `closed` are all loops of the STORE."""
    if store is other:
        return not stores_once(store, closed)
    if stores_apart(store, other):
        return False
    first, second = store.src[1], other.src[1]
    if not may_meet(first, second) or apart(first, second, loops):
        return False
    return not (all(r in closed for r in loops) and apart(first, second, closed))


def unfit(kernel: Kernel, loop: UOp) -> str:
    """Why the threads of a group can't share the iterations of `loop`; "" if they can.

    Threads wait for each other between statements, so only what happens inside one counts.
    """
    name = loop.arg[0]
    if kernel.is_scanned(loop):
        return f"range {name} is scanned: its iterations stay in order, one at a time"
    for n in kernel.closers[loop]:
        if n.op is Ops.REDUCE:
            if any(r.arg[1] is AxisKind.THREAD for r in n.src[1:]):
                return f"a REDUCE over {name} is shared by threads already"
            continue
        target, store = target_of(n), store_of(n)
        if not stores_once(store, closed_by(n)):
            return f"iterations of {name} may store to one element: order counts"
        if target.op is Ops.LOCAL and any(r.arg[1] is AxisKind.THREAD for r in n.ranges):
            return f"the local {target.arg[0]!r} is filled by each thread for itself"
        for load in n.toposort():
            same = load.op is Ops.LOAD and buffer_of(load.src[0]) is target
            if same and loop in load.ranges and _meet(store, load, (loop,), closed_by(n)):
                return f"iterations of {name} may load what others store"
    return ""


def shared_locals(kernel: Kernel, loop: UOp) -> dict[UOp, UOp]:
    """The LOCALs that become group memory where threads share the iterations of `loop`: each with
    what takes its place."""
    found: dict[UOp, UOp] = {}
    for n in kernel.closers[loop]:
        if n.op is Ops.END and n not in kernel.effects:
            local = target_of(n)
            if local.op is Ops.LOCAL and local.arg[2] is Space.PRIVATE:
                found[local] = local.replace(arg=(*local.arg[:2], Space.GROUP))
    return found


def shared_slots(sink: UOp) -> frozenset[int]:
    """Slots of the buffers through which one thread of a group may see what another stored, or
    overwrite what another still reads, in a kernel whose ranges are marked."""
    kernel = Kernel(sink)
    below = [(dict.fromkeys(e.toposort()), e) for e in kernel.effects]
    alone = [not any(_is_thread(n) for n in nodes) for nodes, _ in below]
    users: dict[UOp, list[UOp]] = {}
    for n in kernel.nodes:
        if n.op in (Ops.LOAD, Ops.STORE) and buffer_of(n.src[0]).op is Ops.PARAM:
            users.setdefault(buffer_of(n.src[0]), []).append(n)
    found: dict[int, None] = {}
    for buffer, accesses in users.items():
        for store in accesses:
            for other in accesses if store.op is Ops.STORE else ():
                if other is store or not may_meet(store.src[1], other.src[1]):
                    continue
                if stores_apart(store, other):
                    continue
                # an effect that one thread carries out by itself
                if any(
                    one and store in nodes and other in nodes
                    for one, (nodes, _) in zip(alone, below, strict=True)
                ):
                    continue
                indices = (*store.src[1].ranges, *other.src[1].ranges)
                loops = tuple(dict.fromkeys(r for r in indices if r.arg[1] in _SPREAD))
                threads = any(_is_thread(r) for r in loops)
                if not threads or not apart(store.src[1], other.src[1], loops):
                    found[buffer.arg[0]] = None
    return frozenset(found)


def has_group_memory(sink: UOp) -> bool:
    """Whether a kernel has memory that the threads of a group share, or sums that will need it."""
    return any(
        (n.op is Ops.LOCAL and n.arg[2] is Space.GROUP)
        or (n.op is Ops.REDUCE and any(_is_thread(r) for r in n.src[1:]))
        for n in sink.toposort()
    )


def _is_thread(n: UOp) -> bool:
    return n.op is Ops.RANGE and n.arg[1] is AxisKind.THREAD
