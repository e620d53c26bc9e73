"""TRUNC by additions, for targets that have no instruction for it."""

from __future__ import annotations

from opgraft.dtype import dtypes
from opgraft.ir.expansions import UNSIGNED, lanes_of
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp


def toward_zero(n: UOp) -> UOp | None:
    """Adding and taking away 2**mantissa rounds to an integer; one too many is taken back."""
    if n.dtype.scalar not in (dtypes.float32, dtypes.float64):
        return None
    x = n.src[0]
    word = lanes_of(UNSIGNED[n.dtype.bits], n)
    bits = x.bitcast(word)
    sign = bits & (1 << (n.dtype.bits - 1))
    size = (bits ^ sign).bitcast(n.dtype)
    limit = 2.0**n.dtype.mantissa
    nearest = (size + limit) + -limit
    whole = (size < nearest).where(nearest + -1.0, nearest)
    # from the limit on every float is an integer; nan and inf stay, too
    return (size < limit).where((whole.bitcast(word) | sign).bitcast(n.dtype), x)


truncation = PatternMatcher([(UPat(Ops.TRUNC, name="n"), toward_zero)])
"""TRUNC of float32 and float64; narrower floats go through float32."""
