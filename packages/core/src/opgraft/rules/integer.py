"""Integers, fixed-width and `index`: sums and products in a normal form.

Sums and products of fixed-width integers form a ring modulo 2**bits, so everything here that
does not ask about order or division holds for them, wrapping or not.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.bounds import bounds_of
from opgraft.ir.graph import remember
from opgraft.ir.matcher import EqualitySet, RuleSpec
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat, bools, index, integers, ints
from opgraft.ir.uop import UOp
from opgraft.rules.quotients import recombine
from opgraft.rules.sums import (
    CAP,
    Sum,
    build,
    in_order,
    is_atom,
    is_normal,
    place,
    size,
    sum_of,
)

_x: Final = UPat.var("x", integers)

SIMPLE: Final = EqualitySet(
    [
        # x + 0 = x
        (_x + 0, lambda x: x, "add_zero"),
        # x * 1 = x
        (_x * 1, lambda x: x, "multiply_by_one"),
        # x * 0 = 0
        (_x * 0, lambda x: x.const_like(0), "multiply_by_zero"),
        # x + x*-1 = 0
        (_x + UPat.var("x") * -1, lambda x: x.const_like(0), "subtract_itself"),
    ]
)


def single_value(x: UOp) -> UOp | None:
    bounds = x._bounds or bounds_of(x)
    return x.const_like(bounds[0]) if bounds[0] == bounds[1] else None


def normal_sum(x: UOp) -> UOp | None:
    if is_normal(x):
        return None
    if x.op is Ops.MUL:
        a, b = x.src
        if not (b.kind.constant and (a.op is Ops.ADD or a.op is Ops.MUL or a.kind.constant)):
            return x.with_src((b, a)) if a.kind.constant and not b.kind.constant else None
    elif _is_written(x):
        remember(x, "normal", True)
        return None
    found = sum_of(x)
    made = build(x.dtype, recombine(x.dtype, found))
    return None if made is x else made


def _is_written(x: UOp) -> bool:
    """Whether a quick look shows that this addition is in its normal form: often it does."""
    a, b = x.src
    if a.op is Ops.ADD:
        last = a.src[1]
        if last.kind.constant or not is_normal(a):
            return False
        if b.kind.constant:
            return True
        if not is_atom(b) or b.op in _DIVISIONS:
            return False
        if last.op is Ops.MUL and last.src[1].kind.constant:
            last = last.src[0]
        if place(last) >= place(b):
            return False
        terms = sum_of(a).terms
        return len(terms) < CAP and not any(atom.op in _DIVISIONS for atom in terms)
    if not is_atom(a):
        return False
    if b.kind.constant:
        return True
    if not is_atom(b) or a is b or (a.op in _DIVISIONS and b.op in _DIVISIONS):
        return False
    if a.op is Ops.IDIV or b.op is Ops.IDIV:
        return False
    return place(a) <= place(b)


_DIVISIONS: Final = (Ops.IDIV, Ops.MOD)
# What can have terms in common with another operand.
_SUMS: Final = frozenset({Ops.ADD, Ops.MUL, Ops.MOD, Ops.CONST, Ops.BROADCAST})


def gather_terms(x: UOp, a: UOp, b: UOp) -> UOp | None:
    if a is not b and a.op not in _SUMS and b.op not in _SUMS:
        return None
    left, right = sum_of(a), sum_of(b)
    if not (left.constant and right.constant) and not any(map(left.terms.get, right.terms)):
        # nothing to join but the parts of one division
        if not any(atom.op in _DIVISIONS for atom in left.terms):
            return None
        if not any(atom.op in _DIVISIONS for atom in right.terms):
            return None
    joined = recombine(x.dtype, sum_of(x))
    return build(x.dtype, joined) if size(joined) < size(left) + size(right) else None


def constant_outward(x: UOp, c: UOp, y: UOp) -> UOp | None:
    return None if y.kind.constant else (x + y) + c


def constant_factor_outward(x: UOp, c: UOp, y: UOp) -> UOp | None:
    return None if y.kind.constant else (x * y) * c


def scale_sum(x: UOp) -> UOp | None:
    found = sum_of(x)
    if x in found.terms:
        return None
    made = build(x.dtype, found)
    return None if made is x else made


def distribute(x: UOp, a: UOp, b: UOp) -> UOp | None:
    if a.kind.constant or b.kind.constant:
        return None
    left, right = sum_of(a), sum_of(b)
    if size(left) == 1 and size(right) > 1:
        a, b, left, right = b, a, right, left
    if size(right) != 1 or not right.terms or not 1 < size(left) <= CAP:
        return None
    ((by, k),) = right.terms.items()
    terms = {atom * by: j * k for atom, j in left.terms.items()}
    if left.constant:
        terms[by] = left.constant * k
    return build(x.dtype, Sum(0, terms))


# A product of more factors is left as it is written.
_FACTORS: Final = 8


def factors_of(x: UOp) -> tuple[int, list[UOp]]:
    """The constant and the other factors of a product; of a product of too many, itself."""
    constant, stack = 1, [x]
    found: list[UOp] = []
    while stack and len(found) + len(stack) <= _FACTORS:
        n = stack.pop()
        value = n.const_value
        if value is not None:
            constant *= value
        elif n.op is Ops.MUL:
            stack += n.src
        else:
            found.append(n)
    return (1, [x]) if stack else (constant, found)


def normal_product(x: UOp) -> UOp | None:
    a, b = x.src
    if b.kind.constant and a.op is not Ops.MUL:
        return None
    constant, factors = factors_of(x)
    if len(factors) < 2:
        return None
    factors.sort(key=place)
    made = factors[0]
    for factor in factors[1:]:
        made = made * factor
    if constant != 1:
        made = made * constant
    return None if made is x else made


def operand_order(x: UOp, a: UOp, b: UOp) -> UOp | None:
    if b.kind.constant:
        return None
    if a.kind.constant:
        return x.with_src((b, a))
    if x.op is Ops.ADD:
        # a sum is written from left to right; which of its terms come first is not asked
        if b.op is Ops.ADD and a.op is not Ops.ADD:
            return x.with_src((b, a))
        if a.op is Ops.ADD or b.op is Ops.ADD:
            return None
    return None if in_order(a, b) else x.with_src((b, a))


def constants_together(x: UOp, y: UOp, c: UOp, d: UOp) -> UOp | None:
    return None if y.kind.constant else y.alu(x.op, c.alu(x.op, d))


def chain_constant_outward(x: UOp, y: UOp, c: UOp, z: UOp) -> UOp | None:
    return None if z.kind.constant else y.alu(x.op, z).alu(x.op, c)


def _chained(op: Ops) -> list[RuleSpec]:
    y, c, name = UPat.var("y", integers | bools), UPat.cvar("c"), op.name.lower()
    inner = y.alu(op, c)
    return [
        # (y . c) . d = y . (c . d)
        (UPat(op, src=[inner, UPat.cvar("d")], name="x"), constants_together, f"{name}_constants"),
        # (y . c) . z = (y . z) . c
        (
            UPat(op, src=[inner, UPat.var("z")], name="x"),
            chain_constant_outward,
            f"{name}_constant_outward",
        ),
    ]


# Operations that can leave one value of operands with many; of others the bounds are not asked.
_NARROWING: Final = (Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.SHR, Ops.CAST)

FORMS: Final = EqualitySet(
    [
        # x = c where the bounds of x leave one value
        (UPat(_NARROWING, integers | bools, name="x"), single_value),
        # a sum = its normal form: like terms joined, outer loops first, the constant last
        (UPat((Ops.ADD, Ops.MUL), index, src=(UPat(), UPat.var()), name="x"), normal_sum),
        # k*x + m*x = (k+m)*x, x%n + n*(x//n) = x, c + d folded: what leaves fewer operands
        (UPat(Ops.ADD, ints, src=(UPat.var("a"), UPat.var("b")), name="x"), gather_terms),
        # (x + c) + y = (x + y) + c
        (
            UPat(Ops.ADD, ints, src=[UPat.var("x") + UPat.cvar("c"), UPat.var("y")]),
            constant_outward,
        ),
        # (x*c)*d = x*(c*d), (x + c)*d = x*d + c*d
        (UPat(Ops.MUL, ints, src=[UPat(), UPat.cvar()], name="x"), scale_sum),
        # (x + y)*z = x*z + y*z
        (
            UPat(Ops.MUL, index, src=(UPat.var("a"), UPat.var("b")), name="x"),
            distribute,
        ),
        # a product of indices = its factors in order, the constant last
        (UPat(Ops.MUL, index, src=(UPat(), UPat()), name="x"), normal_product),
        # (x * c) * y = (x * y) * c
        (
            UPat(Ops.MUL, ints, src=[UPat.var("x") * UPat.cvar("c"), UPat.var("y")]),
            constant_factor_outward,
        ),
        # x . y = y . x for commutative operations, in the order of loops
        (
            UPat(
                GroupOp.COMMUTATIVE,
                src=(UPat.var("a", ints | bools), UPat.var("b")),
                name="x",
            ),
            operand_order,
        ),
        (
            UPat(
                GroupOp.COMMUTATIVE - {Ops.MUL, Ops.ADD},
                src=(UPat.var("a", index), UPat.var("b")),
                name="x",
            ),
            operand_order,
            "operand_order_index",
        ),
        # the same for chains of one associative operation
        *(rule for op in (Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR) for rule in _chained(op)),
    ]
)
