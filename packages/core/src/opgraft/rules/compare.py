"""Comparisons: decided by bounds, brought to one form, freed of common parts and factors."""

from __future__ import annotations

from math import gcd
from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.bounds import bounds_of
from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, bools, integers, numbers
from opgraft.ir.uop import UOp
from opgraft.rules.sums import (
    Sum,
    Terms,
    add,
    build,
    exact_sum,
    fits,
    in_order,
    interval,
    place,
    sum_of,
)

_x: Final = UPat.var("x")


def truth(like: UOp, value: bool) -> UOp:
    """The constant `value` with the lanes of a comparison of `like`."""
    return UOp.const(dtypes.bool.vec(like.dtype.count), value)


SIMPLE: Final = EqualitySet(
    [
        # not x < x, for nan too
        (_x < _x, lambda x: truth(x, False), "less_than_itself"),
        # x == x, not x != x: not for nan
        (
            UPat.var("x", integers | bools).eq(_x),
            lambda x: truth(x, True),
            "equal_to_itself",
        ),
        (
            UPat.var("x", integers | bools).ne(_x),
            lambda x: truth(x, False),
            "unequal_to_itself",
        ),
    ]
)


def less(x: UOp, a: UOp, b: UOp) -> UOp | None:
    one, other = a._bounds or bounds_of(a), b._bounds or bounds_of(b)
    if one[1] < other[0]:
        return truth(a, True)
    if one[0] >= other[1]:
        return truth(a, False)
    dtype = a.dtype
    left, right = exact_sum(a), exact_sum(b)
    difference = _minus(left, right)
    low, high = interval(difference)
    if high < 0:
        return truth(a, True)
    if low >= 0:
        return truth(a, False)
    terms, bound = _reduced(difference.terms, -difference.constant)
    divided = _undivided(terms, bound)
    if divided is not None:
        terms, bound = divided
    if dtype.is_index and bound == b.const_value and _is_written(left, terms):
        return None
    made = _written_less(dtype, terms, bound)
    return None if made is None or made is x else made


def _is_written(left: Sum, terms: Terms) -> bool:
    """Whether these are the terms of the left side, none negative: so it is written."""
    return terms == left.terms and not left.constant and min(terms.values()) > 0


def _minus(a: Sum, b: Sum) -> Sum:
    terms = dict(a.terms)
    for atom, k in b.terms.items():
        total = terms.get(atom, 0) - k
        if total:
            terms[atom] = total
        else:
            del terms[atom]
    return Sum(a.constant - b.constant, terms)


def _reduced(terms: Terms, bound: int) -> tuple[Terms, int]:
    """Fewer or smaller terms with the same truth of `sum(terms) < bound`.

    g*y + r < c  <=>  y < k, where k is the same for the least and the greatest r
    """
    while True:
        candidates = list(dict.fromkeys(abs(k) for k in terms.values() if abs(k) > 1))
        if len(terms) > 1:
            candidates.append(gcd(*terms.values()))
        for g in sorted(candidates, reverse=True):
            if g < 2:
                continue
            large = {atom: k // g for atom, k in terms.items() if k % g == 0}
            low, high = interval(Sum(0, {a: k for a, k in terms.items() if k % g}))
            if not large or not (abs(low) < g and abs(high) < g):
                continue
            # sum(large) < (bound - r) / g, that is sum(large) < ceil((bound - r) / g)
            first, last = -((low - bound) // g), -((high - bound) // g)
            if first == last:
                terms, bound = large, first
                break
        else:
            return terms, bound


def _undivided(terms: Terms, bound: int) -> tuple[Terms, int] | None:
    """y//c < k <=> y < k*c, and k < y//c <=> (k+1)*c - 1 < y, for c > 0."""
    if len(terms) != 1:
        return None
    ((atom, k),) = terms.items()
    if atom.op is not Ops.IDIV or k not in (1, -1):
        return None
    c = atom.src[1].const_value
    if c is None or c <= 0:
        return None
    below = exact_sum(atom.src[0])
    if k == 1:
        return below.terms, bound * c - below.constant
    # -y//c < bound <=> -bound < y//c <=> (1 - bound)*c - 1 < y <=> -y < 1 - (1 - bound)*c
    return {a: -j for a, j in below.terms.items()}, 1 - (1 - bound) * c + below.constant


def _written_less(dtype: DType, terms: Terms, bound: int) -> UOp | None:
    """The node of sum(terms) < bound, no coefficient negative; None: a side might wrap."""
    plus = {atom: k for atom, k in terms.items() if k > 0}
    minus = {atom: -k for atom, k in terms.items() if k < 0}
    left, right = Sum(0, plus), Sum(bound, minus)
    if not plus:
        left, right = Sum(-bound, {}), Sum(0, minus)
    fit = dtype.is_index or (fits(dtype, interval(left)) and fits(dtype, interval(right)))
    return build(dtype, left) < build(dtype, right) if fit else None


def equal(x: UOp, a: UOp, b: UOp) -> UOp | None:
    same = x.op is Ops.CMPEQ
    if a.vmax < b.vmin or b.vmax < a.vmin:
        return truth(a, not same)
    dtype = a.dtype
    # modulo 2**bits too, a = b <=> a - b = 0
    ring = add(dtype, sum_of(a), sum_of(b), -1)
    if not ring.terms:
        return truth(a, same == (ring.constant == 0))
    exact = _minus(exact_sum(a), exact_sum(b))
    low, high = interval(exact)
    if low > 0 or high < 0:
        return truth(a, not same)
    terms, constant = exact.terms, exact.constant
    g = gcd(*terms.values())
    if constant % g:
        return truth(a, not same)
    terms = {atom: k // g for atom, k in terms.items()}
    made = _written_equal(x, terms, constant // g)
    if made is None:
        made = _written_equal(x, ring.terms, ring.constant, wraps=True)
    return None if made is x else made


def _written_equal(x: UOp, terms: Terms, constant: int, wraps: bool = False) -> UOp | None:
    """The node of sum(terms) + constant = 0; None: a side might wrap, and `wraps` is false."""
    dtype = x.src[0].dtype
    first = min(terms, key=place)
    sign = 1 if terms[first] > 0 else -1
    left = Sum(0, {atom: k * sign for atom, k in terms.items() if k * sign > 0})
    right = Sum(-constant * sign, {a: -k * sign for a, k in terms.items() if k * sign < 0})
    fit = fits(dtype, interval(left)) and fits(dtype, interval(right))
    if not (wraps or dtype.is_index or fit):
        return None
    one, other = build(dtype, left), build(dtype, right)
    if not other.is_const and not in_order(one, other):
        one, other = other, one
    return one.alu(x.op, other)


def complement(c: UOp, a: UOp, b: UOp) -> UOp | None:
    dtype = a.dtype
    if b.is_const:
        # not (a < c) <=> c-1 < a
        bound = b.const_value
        return a.const_like(bound - 1) < a if bound > dtype.min else None
    if a.is_const:
        # not (c < b) <=> b < c+1
        bound = a.const_value
        return b < b.const_like(bound + 1) if bound < dtype.max else None
    return None


_a: Final = UPat.var("a", integers)
_b: Final = UPat.var("b")

FORMS: Final = EqualitySet(
    [
        # a < b by bounds; x + y < x + c <=> y < c; g*y + r < c <=> y < c'; y//c < k <=> y < k*c
        (UPat(Ops.CMPLT, src=(_a, _b), name="x"), less),
        # a = b by bounds; x + y = x + c <=> y = c; g*y = g*c <=> y = c; g*y = r: false
        (UPat((Ops.CMPEQ, Ops.CMPNE), src=(_a, _b), name="x"), equal),
        # not (a < c) <=> c-1 < a, not (c < b) <=> b < c+1
        (
            UPat(Ops.XOR, src=[UPat(Ops.CMPLT, src=(_a, _b)), UPat.const(True, name="c")]),
            complement,
        ),
        # not (a = b) <=> a != b, for nan too
        (
            UPat(Ops.CMPEQ, src=(UPat.var("a", numbers), _b)) ^ True,
            lambda a, b: a.ne(b),
            "not_equal",
        ),
        # not (a != b) <=> a = b, for nan too
        (
            UPat(Ops.CMPNE, src=(UPat.var("a", numbers), _b)) ^ True,
            lambda a, b: a.eq(b),
            "not_unequal",
        ),
    ]
)
