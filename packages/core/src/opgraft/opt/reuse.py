"""`Reuse`: a buffer takes the place of the one that it is made from, element by element.

Where each element of a buffer is made of the same element of another, and nobody reads that one
afterwards, both can lie in one memory: half of the cache serves the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.ir.argument import writable_as_text
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.actions import Action, Refused
from opgraft.opt.axes import Kernel, buffer_of, closed_by, store_of, stores_once
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Reuse(Action):
    """The buffer `name` is stored to the place of buffer `other`, from which it is made."""

    name: object
    other: object

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        why = _why_apart(kernel, self.name, self.other)
        if why:
            raise Refused(why)
        mine, before = _last_of(kernel, self.name), _last_of(kernel, self.other)
        assert mine is not None
        assert before is not None
        (fill,) = mine.src[1:]
        store = store_of(fill)
        stored = before.store(*store.src[1:])
        made = before.after(stored.end(*closed_by(fill)))
        return tidy(sink.substitute({mine: made}))


def _last_of(kernel: Kernel, name: object) -> UOp | None:
    """The LOCAL of a name after all that fills it; None where there is none, or no last."""
    found = [n for n in kernel.nodes if n.op is Ops.AFTER and buffer_of(n).op is Ops.LOCAL]
    found = [n for n in found if buffer_of(n).arg[0] == name]
    last = [n for n in found if not any(m.src[0] is n for m in found)]
    return last[0] if len(last) == 1 else None


def _why_apart(kernel: Kernel, mine_name: object, other_name: object) -> str:
    """Why a buffer cannot take another one's place; empty where it can."""
    mine, before = _last_of(kernel, mine_name), _last_of(kernel, other_name)
    if mine is None or before is None:
        name = mine_name if mine is None else other_name
        return f"{name} is no buffer that is filled by one statement after another"
    if mine.src[0].op is not Ops.LOCAL or len(mine.src) != 2:
        return f"{mine_name} is filled by several statements"
    mine_local, other = buffer_of(mine), buffer_of(before)
    name = mine_local.arg[0]
    if mine_local.dtype is not other.dtype or mine_local.arg[1:] != other.arg[1:]:
        return f"{name} and {other.arg[0]} are not alike"
    (fill,) = mine.src[1:]
    store, loops = store_of(fill), closed_by(fill)
    if store.op is not Ops.STORE or len(store.src) > 3 or not stores_once(store, loops):
        return f"{name} is not stored once, element by element"
    if set(mine.ranges) != set(before.ranges):
        return f"{name} and {other.arg[0]} are not filled in the same loops"
    inside = frozenset(toposort((store.src[2],)))
    readers = [n for n in kernel.nodes if n.op is Ops.LOAD and n.src[0] is before]
    if not readers:
        return f"{name} is not made from {other.arg[0]}"
    if any(before in n.src for n in kernel.nodes if n.op not in (Ops.LOAD, Ops.AFTER)):
        return f"{other.arg[0]} is written elsewhere too"
    beside = frozenset(toposort((kernel.sink,), lambda n: n is not mine))
    if not all(n in inside and n not in beside for n in readers):
        return f"{other.arg[0]} is read elsewhere too"
    for n in readers:
        if n.src[1] is store.src[1]:
            continue
        # else it is read by a reduction that is complete before the first element is stored
        if not _is_complete(store.src[2], n, loops):
            return f"an element of {name} is made of other elements of {other.arg[0]}"
    return ""


def _is_complete(value: UOp, load: UOp, loops: tuple[UOp, ...]) -> bool:
    """Whether a load is used only by reductions that are the same for all elements of a value."""
    whole = [n for n in value.toposort() if n.op is Ops.REDUCE and not set(n.ranges) & set(loops)]
    return load not in toposort((value,), lambda n: n not in whole)


def reuse_buffers(sink: UOp) -> UOp:
    """The kernel with buffers in the place of those they are made from, wherever they can be."""
    kernel = Kernel(sink)
    filled = [n for n in kernel.nodes if n.op is Ops.AFTER and buffer_of(n).op is Ops.LOCAL]
    names = list(dict.fromkeys(buffer_of(n).arg[0] for n in filled))
    for mine in names:
        for other in names:
            if mine != other and not _why_apart(kernel, mine, other):
                return reuse_buffers(Reuse(mine, other).apply(sink))
    return sink
