"""Operations on constants, done now: by the one definition of every op, ir/evaluate.py."""

from __future__ import annotations

import math
from typing import Final

from opgraft.dtype import Scalar
from opgraft.ir.elementary import fold_elementary
from opgraft.ir.evaluate import alu
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
    endless = _endless(x, operands[0], operands[-1])
    return None if endless else UOp.const(x.dtype, _value(x, operands))


def _value(x: UOp, operands: tuple[Scalar, ...]) -> Scalar:
    return alu(x.op, x.dtype.scalar, tuple([s.dtype.scalar for s in x.src]), operands)


def _endless(x: UOp, first: Scalar, last: Scalar) -> bool:
    """Whether the value is an index that is infinite, or too long to work with."""
    if not x.dtype.is_index:
        return False
    if x.op is Ops.SHL:
        return last > _LONGEST_SHIFT
    return x.op is Ops.CAST and isinstance(first, float) and not math.isfinite(first)


def _same_lanes(x: UOp) -> bool:
    return x.dtype.count == x.src[0].dtype.count


RULES: Final = EqualitySet(
    [
        # f(c, d) = the value of f at c, d
        (UPat(GroupOp.ALU - {Ops.BITCAST}, values, src=UPat.cvar(), name="x"), fold_constants),
        (
            UPat(Ops.BITCAST, values, src=(UPat.cvar(),), name="x", predicate=_same_lanes),
            fold_constants,
            "fold_constant_bits",
        ),
        # a lane of a broadcast is what was broadcast
        (
            UPat(Ops.EXTRACT, values, src=(UPat(Ops.BROADCAST, src=(UPat.var("y"),)),)),
            lambda y: y,
            "extract_broadcast",
        ),
    ]
)
