"""Operations on constants, done now: by the one definition of every op, ir/evaluate.py."""

from __future__ import annotations

import math
from typing import Final

from opgraft.ir.elementary import fold_elementary
from opgraft.ir.evaluate import alu, can_fold
from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat, values
from opgraft.ir.uop import UOp

# A shift of an index by more would make a number too long to work with.
_LONGEST_SHIFT: Final = 4096


def fold_constants(x: UOp) -> UOp | None:
    operands = tuple([s.const_value for s in x.src])
    if x.op in GroupOp.ELEMENTARY:
        return UOp.const(x.dtype, fold_elementary(x.op, x.dtype.scalar, operands[0]))
    if not can_fold(x):
        return None
    if x.dtype.is_index:
        if x.op is Ops.SHL and operands[1] > _LONGEST_SHIFT:
            return None
        if x.op is Ops.CAST and isinstance(operands[0], float) and not math.isfinite(operands[0]):
            return None  # no index is infinite
    if x.op is Ops.BITCAST and x.dtype.count != x.src[0].dtype.count:
        return None
    sources = tuple([s.dtype.scalar for s in x.src])
    return UOp.const(x.dtype, alu(x.op, x.dtype.scalar, sources, operands))


RULES: Final = EqualitySet(
    [
        # f(c, d) = the value of f at c, d
        (UPat(GroupOp.ALU, values, src=UPat.cvar(), name="x"), fold_constants),
        # a lane of a broadcast is what was broadcast
        (
            UPat(Ops.EXTRACT, values, src=(UPat(Ops.BROADCAST, src=(UPat.var("y"),)),)),
            lambda y: y,
            "extract_broadcast",
        ),
    ]
)
