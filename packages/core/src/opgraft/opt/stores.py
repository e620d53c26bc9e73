"""`Stream`: stores that go past the caches, for results that the caches could not keep anyway.

An ordinary store first reads the line that it changes, and evicts another one. Where a whole line
is written, and nothing reads it before the caches have forgotten it, both are wasted: a kernel
that writes more than the last cache holds moves a third less when it stores around it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import gcd
from typing import Final

from opgraft.ir.argument import writable_as_text
from opgraft.ir.linear import STREAM
from opgraft.ir.loops import split_stride
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, replace_nodes
from opgraft.opt.axes import Kernel, buffer_of, closed_by, extent_hint, store_of
from opgraft.target import Target


@writable_as_text
@dataclass(frozen=True)
class Stream(Action):
    """Whole vectors stored to the buffer in `slot` go past the caches.

    Only those that begin at multiples of their own size, counted from the begin of the buffer.
    """

    slot: int

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        uses = [
            n
            for n in kernel.nodes
            if n.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC) and self._is_mine(buffer_of(n.src[0]))
        ]
        stores = {n for n in uses if n.op is Ops.STORE}
        if not stores:
            raise Refused(f"nothing is stored to slot {self.slot}")
        if len(stores) < len(uses):
            raise Refused(f"the kernel reads slot {self.slot}: what it stores belongs in a cache")
        changes: dict[UOp, UOp] = {}
        for effect in kernel.effects:
            store = store_of(effect)
            if store in stores and store.tag is None and _is_aligned(store, closed_by(effect)):
                changes[store] = store.replace(tag=STREAM)
        if not changes:
            raise Refused(f"no whole vectors are stored to slot {self.slot} at multiples of them")
        return replace_nodes(sink, changes)

    def _is_mine(self, buffer: UOp) -> bool:
        return buffer.op is Ops.PARAM and buffer.arg[0] == self.slot


def _is_aligned(store: UOp, loops: tuple[UOp, ...]) -> bool:
    """Whether a STORE in these loops stores vectors at multiples of them."""
    lanes = [r for r in loops if r.arg[1] is AxisKind.VECTOR]
    if len(lanes) != 1 or len(store.src) > 3:
        return False
    base, stride = split_stride(store.src[1], lanes[0])
    return stride == 1 and divisor(base) % extent_hint(lanes[0]) == 0


def divisor(index: UOp) -> int:
    """A number that divides all values of an index; 0 if it is always 0."""
    done: dict[UOp, int] = {}
    for n in index.toposort():
        if n.op is Ops.CONST:
            done[n] = abs(int(n.arg))
        elif n.op in (Ops.ADD, Ops.MIN, Ops.MAX):
            done[n] = gcd(*(done[s] for s in n.src))
        elif n.op is Ops.MUL:
            done[n] = done[n.src[0]] * done[n.src[1]]
        elif n.op is Ops.MOD and n.src[1].op is Ops.CONST:
            done[n] = gcd(*(done[s] for s in n.src))
        else:
            done[n] = 1
    return done[index]


_WORTH: Final = 4
"""Results of less than the last cache over this are read again from there, most likely."""


def stream_outputs(sink: UOp, target: Target) -> UOp:
    """The kernel with its greater results stored past the caches, if all that it touches is more
    than the last of them holds."""
    kernel = Kernel(sink)
    written: dict[int, int] = {}
    line = target.line_bytes
    read = sum(
        n.arg[1] * n.dtype.itemsize
        for n in {buffer_of(a.node.src[0]): None for a in kernel.accesses if _is_load(a.node)}
        if n.op is Ops.PARAM
    )
    for effect in kernel.effects:
        store = store_of(effect)
        buffer = buffer_of(store.src[0])
        if store.op is not Ops.STORE or buffer.op is not Ops.PARAM:
            continue
        if not _is_scattered(kernel, effect, line):
            times = store.src[2].dtype.itemsize
            for loop in closed_by(effect):
                times *= extent_hint(loop)
            written[buffer.arg[0]] = written.get(buffer.arg[0], 0) + times
    room = target.cache_bytes[-1] if target.cache_bytes else 0
    if read + sum(written.values()) < room:
        return sink
    for slot, size in written.items():
        if size * _WORTH >= room:
            with suppress(Refused):
                sink = Stream(slot).apply(sink)
    return sink


def _is_scattered(kernel: Kernel, effect: UOp, line: int) -> bool:
    """Whether an effect stores to several rows in turn, and reads others beside what it stores:
    so many lines are open at once that they would be written in pieces (measured: a third of the
    speed; without the other reads it is none the worse)."""
    store = store_of(effect)
    loads = [a for a in kernel.accesses if _is_load(a.node)]
    copies = [r for r in closed_by(effect) if r.arg[1] is AxisKind.UNROLL]
    size = store.src[2].dtype.itemsize
    far = any(abs(split_stride(store.src[1], r)[1] or 0) * size > line for r in copies)
    return far and len(loads) > 1


def _is_load(n: UOp) -> bool:
    return n.op is Ops.LOAD
