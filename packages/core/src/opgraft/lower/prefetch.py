"""Drop what is fetched ahead, where the target fetches nothing.

Before: the effects of a kernel may hold PREFETCHes. After: they hold some only where the target
knows what to do with them. Why here: a PREFETCH has no meaning for values, so nothing else changes,
and no later pass needs to know whether there are any.
"""

from __future__ import annotations

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.axes import store_of
from opgraft.target import Target


def drop_prefetches(sink: UOp, target: Target) -> UOp:
    """The kernel without its PREFETCHes, if the target has none."""
    if target.prefetch:
        return sink
    kept = tuple(e for e in sink.src if store_of(e).op is not Ops.PREFETCH)
    return sink if len(kept) == len(sink.src) else sink.with_src(kept)
