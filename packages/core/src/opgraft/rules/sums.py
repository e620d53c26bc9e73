"""Sums of integers as data: a constant and `coefficient * atom` terms, in a normal form.

`sum_of` reads a node as such a sum, `build` writes one. Arithmetic on sums is on Python numbers
and small dicts, so that rules can compute what they would make before they make any node.

Fixed-width integers wrap: there a sum equals its node modulo 2**bits. `exact_sum` gives one
that equals the node as a number.

Sizes are capped: an addition whose operands have more than `CAP` terms together is an atom of
its own, whatever stands above it. So reading every node of a chain of n additions takes O(n).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from opgraft.dtype import DType, wrap
from opgraft.ir.bounds import bounds_of
from opgraft.ir.graph import remember
from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.uop import UOp

CAP: Final = 12

Terms: TypeAlias = dict[UOp, int]
Interval: TypeAlias = tuple[Any, Any]


class Sum:
    """`constant + sum(coefficient * atom)`. No coefficient is 0. Never changed once made."""

    __slots__ = ("constant", "terms")

    def __init__(self, constant: int, terms: Terms) -> None:
        self.constant, self.terms = constant, terms

    def __repr__(self) -> str:
        return f"Sum({self.constant}, {self.terms})"


_PLACES: Final = {
    AxisKind.PARALLEL: 0,
    AxisKind.THREAD: 1,
    AxisKind.LOOP: 2,
    AxisKind.REDUCE: 3,
    AxisKind.UNROLL: 4,
    AxisKind.VECTOR: 5,
}
_OUTSIDE: Final = (-1, 0, 0, "")
_ELEMENTWISE: Final = frozenset(GroupOp.ALU)


def range_key(r: UOp) -> tuple[int, int, int, str]:
    """The key that orders ranges as loops nest, outermost first."""
    name, kind = r.arg
    if isinstance(name, int):
        return (_PLACES[kind], 0, name, "")
    return (_PLACES[kind], 1, 0, str(name))


Depth: TypeAlias = tuple[int, int, int, str]


def depth(x: UOp) -> Depth:
    """Where the value is computed: the key of the innermost loop that it depends on.

    Keys order as loops nest: parallel ones outside, then plain ones by name, then reductions.
    """
    return max(map(range_key, x.ranges), default=_OUTSIDE)


def _depth_of(x: UOp) -> Depth:
    """`depth` of an index, remembered with it and with the indices that it is computed from."""
    if not x.src:
        return _OUTSIDE
    memo = x._memo
    if memo is not None and "depth" in memo:
        return memo["depth"]  # type: ignore[no-any-return]
    stack = [x]
    while stack:
        n = stack[-1]
        memo = n._memo
        if memo is None or "depth" not in memo:
            if n.op in _ELEMENTWISE:
                missing: list[UOp] = []
                deepest = _OUTSIDE
                for s in n.src:
                    if s.src:
                        known = s._memo
                        if known is None or "depth" not in known:
                            missing.append(s)
                        elif known["depth"] > deepest:
                            deepest = known["depth"]
                if missing:
                    stack += missing
                    continue
            else:
                deepest = depth(n)
            if memo is None:
                remember(n, "depth", deepest)
            else:
                memo["depth"] = deepest
        stack.pop()
    return x._memo["depth"]  # type: ignore[index, no-any-return]


def place(x: UOp) -> tuple[Depth, int]:
    """The key that orders operands: by loop depth, then by structure. Same in every process.

    The depth is that of indices alone: other values are not hoisted term by term.
    """
    memo = x._memo
    found = None if memo is None else memo.get("place")
    if found is None:
        if not x.dtype.is_index:
            return _OUTSIDE, x.order
        found = (_depth_of(x), x._order or x.order)
        if x._memo is None:
            remember(x, "place", found)
        else:
            x._memo["place"] = found
    return found


def in_order(a: UOp, b: UOp) -> bool:
    """Whether `a . b` is the order in which a commutative operation is written.

    Indices: by loops. Data: a variable stands after what is computed, as chains are written.
    """
    if not a.dtype.is_index and (not a.src) != (not b.src):
        return bool(a.src)
    return place(a) <= place(b)


# ---- reading


def sum_of(x: UOp) -> Sum:
    """The node as a sum; of fixed-width integers, equal modulo 2**bits."""
    if x.op not in _INNER:
        return _leaf(x)
    memo = x._memo
    found = None if memo is None else memo.get("sum")
    if found is None:
        stack = [x]
        while stack:
            n = stack[-1]
            if _unread(n):
                a, b = n.src
                if (a.op in _INNER and _unread(a)) or (b.op in _INNER and _unread(b)):
                    stack += [s for s in n.src if _unread(s)]
                    continue
                # None would mean "not read yet", and a node that held itself never be freed
                remember(n, "sum", _read(n) or ())
            stack.pop()
        found = x._memo["sum"]  # type: ignore[index]
    return found or Sum(0, {x: 1})


_INNER: Final = frozenset({Ops.ADD, Ops.MUL})


def _unread(n: UOp) -> bool:
    return n.op in _INNER and (n._memo is None or "sum" not in n._memo)


def _leaf(x: UOp) -> Sum:
    op = x.op
    if op is Ops.CONST:
        return Sum(x.arg if x.dtype.is_index else centered(x.dtype, x.arg), {})
    if op is Ops.BROADCAST:
        value = x.const_value
        return Sum(0, {x: 1}) if value is None else Sum(centered(x.dtype, value), {})
    if op in _SINGLE and x.vmin == x.vmax:
        return Sum(centered(x.dtype, int(x.vmin)), {})
    return Sum(0, {x: 1})


# Leaves that no rule replaces when their bounds leave one value: a RANGE closes a loop.
_SINGLE: Final = frozenset({Ops.RANGE, Ops.VAR, Ops.SPECIAL})


_NO_ATOMS: Final = frozenset({Ops.ADD, Ops.MUL, Ops.CONST, Ops.BROADCAST})


def is_atom(x: UOp) -> bool:
    """Whether the node is a term of its own by its op, or a leaf of more than one value."""
    op = x.op
    return op not in _NO_ATOMS and not (op in _SINGLE and x.vmin == x.vmax)


def _read(x: UOp) -> Sum | None:
    """The sum of an ADD or MUL whose sources are read; None: it is an atom."""
    a, b = x.src
    if x.op is Ops.ADD:
        left, right = sum_of(a), sum_of(b)
        many = len(left.terms) + len(right.terms) > CAP
        return None if many else add(x.dtype, left, right)
    if a.kind.constant:
        a, b = b, a
    if not b.kind.constant:
        return None
    by = b.const_value
    inside = sum_of(a)
    if len(inside.terms) > 1 and not x.dtype.is_index:
        return None  # distributing would only add multiplications
    return scale(x.dtype, inside, by)


def centered(dtype: DType, number: int) -> int:
    """The coefficient nearest to 0 that means the same in `dtype`."""
    return number if dtype.is_index else wrap(number, dtype.bits, True)


def add(dtype: DType, a: Sum, b: Sum, by: int = 1) -> Sum:
    """a + by * b."""
    if dtype.is_index:
        return plus(a, b, by)
    terms = dict(a.terms)
    for atom, k in b.terms.items():
        total = centered(dtype, terms.get(atom, 0) + k * by)
        if total:
            terms[atom] = total
        else:
            terms.pop(atom, None)
    return Sum(centered(dtype, a.constant + by * b.constant), terms)


def plus(a: Sum, b: Sum, by: int = 1) -> Sum:
    """a + by * b, on unbounded integers."""
    if not a.terms and by == 1:
        return Sum(a.constant + b.constant, b.terms) if a.constant else b
    if not b.terms:
        return Sum(a.constant + by * b.constant, a.terms)
    terms = dict(a.terms)
    for atom, k in b.terms.items():
        if atom in terms:
            total = terms[atom] + k * by
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        elif by:
            terms[atom] = k * by
    return Sum(a.constant + by * b.constant, terms)


def scale(dtype: DType, a: Sum, by: int) -> Sum:
    """by * a."""
    terms = {}
    for atom, k in a.terms.items():
        product = centered(dtype, k * by)
        if product:
            terms[atom] = product
    return Sum(centered(dtype, a.constant * by), terms)


# ---- bounds


def interval(a: Sum) -> Interval:
    """The least and greatest value of the sum as a number, from the bounds of its atoms."""
    low = high = a.constant
    for atom, k in a.terms.items():
        bounds = atom._bounds or bounds_of(atom)
        if k > 0:
            low += k * bounds[0]
            high += k * bounds[1]
        else:
            low += k * bounds[1]
            high += k * bounds[0]
    return low, high


def fits(dtype: DType, bounds: Interval) -> bool:
    """Whether every number of the interval is a value of `dtype`."""
    return bool(dtype.min <= bounds[0] and bounds[1] <= dtype.max)


def exact_sum(x: UOp) -> Sum:
    """The node as a sum that equals it as a number: nothing in it wraps.

    Where the bounds do not show that, the node is an atom.
    """
    found, dtype = sum_of(x), x.dtype
    if dtype.is_index or fits(dtype, interval(found)):
        return found
    if dtype.kind == "uint":
        # coefficients in the upper half may be meant as they are
        turn = 1 << dtype.bits
        found = Sum(found.constant % turn, {a: k % turn for a, k in found.terms.items()})
        if fits(dtype, interval(found)):
            return found
    return Sum(0, {x: 1})


# ---- writing


def build(dtype: DType, a: Sum) -> UOp:
    """The node of a sum, added from left to right, the constant last.

    Index sums have outer loops' terms first, so that loops can hoist the front part. Others
    keep the order in which they were written: there the parts are data, shared as they stand.
    """
    terms, constant = a.terms, a.constant
    if not terms:
        return UOp.const(dtype, constant)
    ordered = dtype.is_index
    made: UOp | None = None
    for atom in sorted(terms, key=place) if ordered and len(terms) > 1 else terms:
        k = terms[atom]
        term = atom if k == 1 else atom * k
        if made is None:
            made = term
        else:
            made = made + term
            if ordered:
                memo = made._memo
                if memo is None:
                    remember(made, "normal", True)
                else:
                    memo["normal"] = True
    assert made is not None
    if constant:
        made = made + constant
    if ordered and made.op is Ops.ADD and len(terms) <= CAP:
        memo = made._memo
        if memo is None:
            remember(made, "normal", True)
            remember(made, "sum", a)
        else:
            memo["normal"] = True
            memo["sum"] = a
    return made


def is_normal(x: UOp) -> bool:
    """Whether `build` made this sum of indices, or a front part of one: it reads the same."""
    memo = x._memo
    return memo is not None and "normal" in memo


def size(a: Sum) -> int:
    """How many operands the written sum has."""
    return len(a.terms) + (1 if a.constant else 0)
