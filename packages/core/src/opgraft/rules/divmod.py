"""Floor division and modulo, of `index` and of fixed-width integers where nothing wraps.

The algebra is in quotients.py; here is which nodes it is tried on. Division by 0 gives 0
(docs/meaning.md), so a divisor that may be 0 takes part in nothing but what holds for 0 too.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.bounds import bounds_of
from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, index, integers
from opgraft.ir.uop import UOp
from opgraft.rules.integer import factors_of
from opgraft.rules.quotients import divide, modulo
from opgraft.rules.sums import Sum, add, build, exact_sum, fits, interval, scale, sum_of

_x: Final = UPat.var("x", integers)

SIMPLE: Final = EqualitySet(
    [
        # x // 1 = x
        (_x // 1, lambda x: x, "divide_by_one"),
        # x // 0 = 0
        (_x // 0, lambda x: x.const_like(0), "divide_by_zero"),
        # x % 1 = 0, x % 0 = 0
        (_x % 1, lambda x: x.const_like(0), "modulo_one"),
        (_x % 0, lambda x: x.const_like(0), "modulo_zero"),
        # 0 // x = 0, 0 % x = 0
        (UPat.const(0, integers) // UPat.var("x"), lambda x: x.const_like(0), "zero_divided"),
        (UPat.const(0, integers) % UPat.var("x"), lambda x: x.const_like(0), "zero_modulo"),
        # x % x = 0, for 0 % 0 too
        (_x % UPat.var("x"), lambda x: x.const_like(0), "modulo_itself"),
    ]
)


def divide_by_constant(x: UOp, a: UOp, c: UOp) -> UOp | None:
    by, dtype = c.const_value, x.dtype
    if by <= 1:
        return _divide_by_negative(x, a, by) if by < 0 else None
    found = divide(dtype, exact_sum(a), by)
    if found is None:
        return None
    made = build(dtype, found)
    return None if made is x else made


def _divide_by_negative(x: UOp, a: UOp, by: int) -> UOp | None:
    """x // -c = -x // c for floor division."""
    dtype = x.dtype
    opposite = scale_exact(a, -1)
    if opposite is None or not fits(dtype, (0, -by)):
        return None
    return build(dtype, opposite) // x.const_like(-by)


def modulo_constant(x: UOp, a: UOp, c: UOp) -> UOp | None:
    by, dtype = c.const_value, x.dtype
    if by <= 1:
        return _modulo_negative(x, a, by) if by < 0 else None
    low, high = (a._bounds or bounds_of(a))[:2]
    if low >= 0 and high < by:
        return a  # most of those in indices
    # a power of two divides 2**bits: then wrapping does not change the remainder
    ring = not dtype.is_index and by & (by - 1) == 0
    found = modulo(dtype, sum_of(a) if ring else exact_sum(a), by)
    if found is None:
        return None
    made = build(dtype, found)
    return None if made is x else made


def _modulo_negative(x: UOp, a: UOp, by: int) -> UOp | None:
    """x % -c = -(-x % c) for floor modulo."""
    opposite = scale_exact(a, -1)
    if opposite is None or not fits(x.dtype, (0, -by)):
        return None
    return (build(x.dtype, opposite) % x.const_like(-by)) * -1


def scale_exact(a: UOp, by: int) -> Sum | None:
    """The sum by * a where it equals the number; None: it may wrap."""
    found = exact_sum(a)
    found = Sum(found.constant * by, {atom: k * by for atom, k in found.terms.items()})
    return found if a.dtype.is_index or fits(a.dtype, interval(found)) else None


def divide_small(x: UOp, a: UOp, b: UOp) -> UOp | None:
    if b.kind.constant:
        return None
    if a.vmin >= 0 and _below(a, b):
        return x.const_like(0)
    if a.vmax < 0 and b.vmin >= -a.vmin:
        return x.const_like(-1)
    return None


def modulo_small(x: UOp, a: UOp, b: UOp) -> UOp | None:
    return a if not b.kind.constant and a.vmin >= 0 and _below(a, b) else None


def _below(a: UOp, b: UOp) -> bool:
    """Whether a < b by bounds, or because a counts up to b."""
    return bool(a.vmax < b.vmin) or (a.op is Ops.RANGE and a.src[0] is b)


def divide_itself(x: UOp) -> UOp | None:
    return x.const_like(1) if x.vmin > 0 or x.vmax < 0 else None


def divide_by_variable(x: UOp, a: UOp, b: UOp) -> UOp | None:
    parts = _multiples(a, b)
    if parts is None:
        return None
    whole, rest = parts
    left = build(x.dtype, rest)
    if left.vmin >= 0 and _below(left, b):
        return build(x.dtype, whole)
    return build(x.dtype, whole) + left // b


def modulo_variable(x: UOp, a: UOp, b: UOp) -> UOp | None:
    parts = _multiples(a, b)
    return None if parts is None else build(x.dtype, parts[1]) % b


def _multiples(a: UOp, b: UOp) -> tuple[Sum, Sum] | None:
    """(quotient, rest) with a = quotient * b + rest, for an index b that is not constant."""
    if b.kind.constant or not (b.vmin > 0 or b.vmax < 0):
        return None
    by, factors = factors_of(b)
    whole = rest = Sum(0, {})
    found = sum_of(a)
    for atom, k in found.terms.items():
        part = None if k % by else _without(atom, factors)
        if part is None:
            rest = add(a.dtype, rest, Sum(0, {atom: k}))
        else:
            whole = add(a.dtype, whole, scale(a.dtype, sum_of(part), k // by))
    if not whole.terms and not whole.constant:
        return None
    return whole, Sum(rest.constant + found.constant, rest.terms)


def _without(product: UOp, factors: list[UOp]) -> UOp | None:
    """The product with these factors taken out; None: they are not all there."""
    constant, left = factors_of(product)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    made = product.const_like(constant)
    for factor in left:
        made = made * factor
    return made


_a: Final = UPat.var("a", integers)

FORMS: Final = EqualitySet(
    [
        # (c*y + r) // c = y + r//c and all that follows: see quotients.divide
        (UPat(Ops.IDIV, src=(_a, UPat.cvar("c")), name="x"), divide_by_constant),
        # (c*y + r) % c = r % c and all that follows: see quotients.modulo
        (UPat(Ops.MOD, src=(_a, UPat.cvar("c")), name="x"), modulo_constant),
        # a // b = 0 and a % b = a for 0 <= a < b; a // b = -1 for -b <= a < 0
        (UPat(Ops.IDIV, src=(_a, UPat.var("b")), name="x"), divide_small),
        (UPat(Ops.MOD, src=(_a, UPat.var("b")), name="x"), modulo_small),
        # x // x = 1 for x != 0
        (_x // UPat.var("x"), divide_itself),
        # (y*b + r) // b = y + r//b, (y*b + r) % b = r % b for b != 0
        (
            UPat(Ops.IDIV, index, src=(UPat.var("a"), UPat.var("b")), name="x"),
            divide_by_variable,
        ),
        (UPat(Ops.MOD, index, src=(UPat.var("a"), UPat.var("b")), name="x"), modulo_variable),
    ]
)
