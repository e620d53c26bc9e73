"""Drop what is fetched ahead, where the target fetches nothing.

Before: the effects of a kernel, and what fills its buffers, may hold PREFETCHes. After: they hold
some only where the target knows what to do with them. Why here: a PREFETCH has no meaning for
values, so nothing else changes, and no later pass needs to know whether there are any.
"""

from __future__ import annotations

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.axes import store_of
from opgraft.target import Target


def drop_prefetches(sink: UOp, target: Target) -> UOp:
    """The kernel without its PREFETCHes, if the target has none."""
    if target.prefetch or all(n.op is not Ops.PREFETCH for n in sink.toposort()):
        return sink
    done: dict[UOp, UOp] = {}
    for n in sink.toposort():
        src = [done[s] for s in n.src]
        if n.op in (Ops.AFTER, Ops.SINK):
            src = [s for s in src if store_of(s).op is not Ops.PREFETCH]
        done[n] = n.with_src(tuple(src))
    return done[sink]
