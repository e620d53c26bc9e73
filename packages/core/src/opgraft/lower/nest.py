"""Let a store that is read again inside its kernel be carried out once.

Before: the kernel may hold both `END(STORE, i, j)`, an effect of its own, and `END(STORE, j)`,
after which another statement reads the row. After: the first is `END(END(STORE, j), i)`, so the
one store serves both.
"""

from __future__ import annotations

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp


def nest_effects(sink: UOp) -> UOp:
    """The kernel with each STORE closed once, in steps where something reads in between."""
    inner: dict[UOp, list[UOp]] = {}
    for n in sink.toposort():
        if n.op is Ops.AFTER:
            for effect in n.src[1:]:
                if effect.op is Ops.END:
                    inner.setdefault(effect.src[0], []).append(effect)
                elif effect.op is Ops.STORE:
                    inner.setdefault(effect, [])
    effects: list[UOp] = []
    for effect in sink.src:
        if effect.op is Ops.END:
            own = effect.src[1:]
            parts = [e for e in inner.get(effect.src[0], ()) if e is not effect]
            parts = [e for e in parts if all(r in own for r in e.src[1:])]
            if parts:
                part = max(parts, key=lambda e: len(e.src))
                effect = part.end(*(r for r in own if r not in part.src[1:]))
        effects.append(effect)
    return sink if tuple(effects) == sink.src else sink.with_src(tuple(effects))


def flatten_effects(sink: UOp) -> UOp:
    """The kernel with END(END(x, j), i) as END(x, i, j) where nobody reads in between any more:
    what read it was simplified away."""
    awaited = {e for n in sink.toposort() if n.op is Ops.AFTER for e in n.src[1:]}
    effects: list[UOp] = []
    for effect in sink.src:
        while effect.op is Ops.END and effect.src[0].op is Ops.END:
            inner = effect.src[0]
            if inner in awaited:
                break
            effect = inner.src[0].end(*effect.src[1:], *inner.src[1:])
        effects.append(effect)
    return sink if tuple(effects) == sink.src else sink.with_src(tuple(effects))
