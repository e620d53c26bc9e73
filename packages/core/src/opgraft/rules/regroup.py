"""Alternatives in the order and grouping of operations: loops' invariants together, factors out.

Greedy rewriting leaves chains of data as they were written, since the parts may be shared. Which
grouping is best depends on that, and on the loops: what an outer loop computes is done once for all
of the inner one.

Strict: integers that wrap, conditions, extrema: they associate exactly. Floats associate, and give
factors out, on level `reassoc`; what loses more is of level `unsafe`.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, bools, floats, ints, values
from opgraft.ir.uop import UOp
from opgraft.rules.sums import depth

_LONGEST: Final = 12
"""Operands of a chain that is put in another order."""

_x: Final = UPat.var("x")
_y: Final = UPat.var("y")
_z: Final = UPat.var("z")


def _operands(x: UOp) -> list[UOp] | None:
    """Those of a chain of one operation, from left to right; None: it is too long."""
    found: list[UOp] = []
    stack = [x]
    while stack:
        n = stack.pop()
        if n.op is x.op and n.dtype is x.dtype:
            stack += reversed(n.src)
            if len(stack) + len(found) > _LONGEST:
                return None
        else:
            found.append(n)
    return found


def outer_operands_first(x: UOp) -> UOp | None:
    operands = _operands(x)
    if operands is None or len(operands) < 3:
        return None
    ordered = sorted(operands, key=depth)
    if depth(ordered[1]) == depth(ordered[-1]):
        return None  # at most one of an outer loop: nothing is computed there
    made = ordered[0]
    for operand in ordered[1:]:
        made = made.alu(x.op, operand)
    return None if made is x else made


def distributed_outward(x: UOp, y: UOp, z: UOp) -> UOp | None:
    """x*(y + z) where x*y or x*z is computed in an outer loop."""
    inner = depth(x * (y + z))
    if depth(x * y) == inner and depth(x * z) == inner:
        return None
    return x * y + x * z


def reciprocal_outside(x: UOp, y: UOp) -> UOp | None:
    return x * (y.const_like(1.0) / y) if depth(y) < depth(x) and not y.is_const else None


def exponential_apart(x: UOp, y: UOp, e: UOp) -> UOp | None:
    if x.is_const or y.is_const or depth(x) == depth(y):
        return None
    return UOp(e.op, e.dtype, (x,)) * UOp(e.op, e.dtype, (y,))


def _chain(ops: tuple[Ops, ...], dtypes: object) -> UPat:
    return UPat(
        ops,
        dtypes,  # type: ignore[arg-type]
        src=[UPat(ops, src=(UPat(), UPat())), UPat()],
        name="x",
    )


STRICT: Final = EqualitySet(
    [
        # x . (y . z) = (x . y) . z = (y . x) . z: operands of outer loops first
        (
            _chain((Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR), ints),
            outer_operands_first,
            "outer_integers_first",
        ),
        (_chain((Ops.AND, Ops.OR, Ops.XOR), bools), outer_operands_first, "outer_clauses_first"),
        (_chain((Ops.MAX, Ops.MIN), values), outer_operands_first, "outer_extrema_first"),
        # x*y + x*z = x*(y + z), of integers that wrap
        (
            UPat(
                Ops.ADD,
                ints,
                src=[UPat(Ops.MUL, src=[_x, _y]), UPat(Ops.MUL, src=[_x, _z])],
            ),
            lambda x, y, z: x * (y + z),
            "integer_factor",
        ),
        # x*(y + z) = x*y + x*z, where a product is of an outer loop
        (
            UPat(Ops.MUL, ints, src=[_x, UPat(Ops.ADD, src=(_y, _z))]),
            distributed_outward,
            "integers_distributed_outward",
        ),
        # x and y or x and z = x and (y or z), bit by bit
        (
            UPat(
                Ops.OR,
                ints,
                src=[UPat(Ops.AND, src=[_x, _y]), UPat(Ops.AND, src=[_x, _z])],
            ),
            lambda x, y, z: x & (y | z),
            "common_mask",
        ),
    ]
)

REASSOC: Final = EqualitySet(
    [
        # x . (y . z) = (x . y) . z. Gives up: rounding, and an overflow on the way
        (_chain((Ops.ADD, Ops.MUL), floats), outer_operands_first, "outer_floats_first"),
        # x*(y + z) = x*y + x*z. Gives up: inf - inf where the sum is finite, and back
        (
            UPat(Ops.MUL, floats, src=[_x, UPat(Ops.ADD, src=(_y, _z))]),
            distributed_outward,
            "floats_distributed_outward",
        ),
    ]
)

UNSAFE: Final = EqualitySet(
    [
        # x / y = x * (1/y), y of an outer loop. Gives up: the last digit, and 1/y may overflow
        (UPat(Ops.FDIV, floats, src=(_x, _y)), reciprocal_outside),
        # exp(x + y) = exp(x) * exp(y), exp2 as well. Gives up: an infinity times 0 where the sum
        # is small
        (
            UPat((Ops.EXP, Ops.EXP2), floats, src=(UPat(Ops.ADD, src=(_x, _y)),), name="e"),
            exponential_apart,
        ),
    ]
)
