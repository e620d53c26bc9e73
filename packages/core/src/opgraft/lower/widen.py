"""Accumulate float16 and bfloat16 in float32, and take variables of them as float32.

Before: REDUCE, SCAN and VAR of any dtype. After: those of 16-bit floats run in float32 and are
rounded once, when they are done (docs/meaning.md, accumulators); a variable is handed over as a
number, which float32 holds exactly. Why first: the scheduler then sees the registers that are
really needed.
"""

from __future__ import annotations

from opgraft.dtype import dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp


def widen_accumulators(sink: UOp) -> UOp:
    """The kernel with float32 in place of narrower accumulators."""
    done: dict[UOp, UOp] = {}
    for n in sink.toposort():
        src = tuple([done[s] for s in n.src])
        if n.op in (Ops.REDUCE, Ops.SCAN) and n.dtype.is_float and n.dtype.bits < 32:
            wide = dtypes.float32.vec(n.dtype.count)
            total = UOp(n.op, wide, (src[0].cast(wide), *src[1:]), n.arg, n.tag)
            done[n] = total.cast(n.dtype)
        elif n.op is Ops.VAR and n.dtype.is_float and n.dtype.bits < 32:
            name, least, greatest = n.arg
            done[n] = UOp.variable(name, least, greatest, dtypes.float32).cast(n.dtype)
        else:
            done[n] = n if src == n.src else n.with_src(src)
    return done[sink]
