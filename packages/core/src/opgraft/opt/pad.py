"""Make a loop longer than it is: gates leave its further iterations without effect."""

from __future__ import annotations

from collections.abc import Callable

from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.reduction import identity
from opgraft.ir.uop import UOp
from opgraft.opt.axes import DISTINCT, clauses, closed_by, store_of, stores_once, target_of


def pad_range(sink: UOp, loop: UOp, longer: UOp) -> UOp:
    """The kernel with the range `longer` in the place of `loop`.

    Where its index is not one of `loop`, nothing is loaded or stored, and sums get what changes
    nothing. All iterations are carried out, so that every thread gets to every barrier.
    """
    inside = longer < loop.src[0]
    closing: dict[UOp, bool] = {}
    for n in sink.toposort():
        if n.op is Ops.END and loop in n.src[1:]:
            store = store_of(n)
            closing[store] = closing.get(store, True) and stores_once(store, closed_by(n))
    done: dict[UOp, UOp] = {loop: longer}
    for n in sink.toposort():
        if n in done:
            continue
        src = tuple([done[s] for s in n.src])
        made = n if src == n.src else n.with_src(src)
        if n.op is Ops.LOAD and loop in n.ranges:
            made = gated(made, inside)
        elif n.op is Ops.STORE and (
            n in closing or (loop in n.ranges and target_of(n).op is Ops.PARAM)
        ):
            made = gated(made, inside)
            if closing.get(n):
                made = made.replace(tag=DISTINCT)
        elif n.op is Ops.REDUCE and loop in n.src[1:] and not _is_nothing(n, loop):
            value, nothing = made.src[0], identity(n.arg, n.dtype)
            made = made.with_src((_lanes(inside, value).where(value, nothing), *made.src[1:]))
        done[n] = made
    return done[sink]


def gated(access: UOp, condition: UOp) -> UOp:
    """A LOAD (of 0 elsewhere) or a STORE that happens only where the condition holds as well."""
    if len(access.src) == 4:
        at = 2 if access.op is Ops.LOAD else 3
        gate = access.src[at]
        added = _lanes(condition, gate)
        if added in clauses((gate,)):
            return access  # one store may be met as a fill and as an effect
        return access.with_src((*access.src[:at], gate & added, *access.src[at + 1 :]))
    if access.op is Ops.LOAD:
        return access.with_src((*access.src, condition, UOp.const(access.dtype, 0)))
    return access.with_src((*access.src, condition))


def gate_guards(sink: UOp) -> UOp:
    """The kernel with gates in place of guards that differ between threads.

    A guard is a range of one iteration or none. Behind one, some threads would not get to the
    barriers of the others; with gates all of them do, and touch no memory of their own.
    """
    guards = [n for n in sink.toposort() if n.op is Ops.RANGE and _is_guard(n)]
    if not guards:
        return sink
    closing: dict[UOp, list[UOp]] = {}
    for n in sink.toposort():
        if n.op is Ops.END:
            held = [g for g in guards if g in n.src[1:]]
            closing.setdefault(store_of(n), []).extend(held)
    # what an effect without the guard reads as well is there for all threads
    free = {
        g: frozenset(UOp.sink(*(e for e in sink.src if g not in closed_by(e))).toposort())
        for g in guards
    }
    done: dict[UOp, UOp] = {}
    for n in sink.toposort():
        src = tuple([done[s] for s in n.src])
        if n.op is Ops.END:
            kept = [done[r] for r in n.src[1:] if r not in guards]
            done[n] = src[0].end(*kept)
            continue
        made = n if src == n.src else n.with_src(src)
        if n.op is Ops.LOAD:
            for g in guards:
                if n not in free[g] and any(r in n.ranges for r in g.src[0].ranges):
                    made = gated(made, g.src[0].src[0])
        elif n.op is Ops.STORE:
            for g in closing.get(n, ()):
                made = gated(made, g.src[0].src[0])
        done[n] = made
    return done[sink]


def loads_gated(root: UOp, condition: UOp, chosen: Callable[[UOp], bool] | None = None) -> UOp:
    """`root` with its LOADs, or the chosen ones, held back where the condition does not hold."""
    done: dict[UOp, UOp] = {}
    for n in root.toposort():
        src = tuple([done[s] for s in n.src])
        made = n if src == n.src else n.with_src(src)
        if n.op is Ops.LOAD and (chosen is None or chosen(n)):
            made = gated(made, condition)
        done[n] = made
    return done[root]


def _is_guard(loop: UOp) -> bool:
    size = loop.src[0]
    if size.op is not Ops.CAST or not size.src[0].dtype.is_bool:
        return False
    return any(r.arg[1] is AxisKind.THREAD for r in size.ranges)


def _is_nothing(n: UOp, loop: UOp) -> bool:
    """Whether a sum gets 0 in further iterations by itself: a product of loads that gates hold."""
    value = n.src[0]
    return n.arg is Ops.ADD and value.op is Ops.MUL and all(_is_held(s, loop) for s in value.src)


def _is_held(n: UOp, loop: UOp) -> bool:
    """Whether a value is a load, converted perhaps, that is 0 where its gate does not hold."""
    while n.op is Ops.CAST:
        n = n.src[0]
    return n.op is Ops.LOAD and loop in n.ranges and (len(n.src) == 2 or n.src[3].const_value == 0)


def _lanes(condition: UOp, like: UOp) -> UOp:
    return condition.broadcast(like.dtype.count) if like.dtype.count > 1 else condition
