"""Exponentials of sums, which are products.

    exp(a) exp(b)                   = exp(a + b)
    sum_j exp(a_i + b_j) x_ij       = exp(a_i + m) sum_j exp(b_j - m) x_ij,    m = max b

The second needs n + m exponentials instead of n m. The maximum (kept finite) guards it: no power
overflows that did not, and what underflows is below the rounding of the largest. At `reassoc`.
Without a guard, at `unsafe`:

    exp(a + b)                      = exp(a) exp(b)
"""

from __future__ import annotations

from opgraft.api import DType, Ops, UOp, UPat
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.forms import Contraction, Opaque, extents
from opgraft_egraph.tensors.law import Law, contraction, law
from opgraft_egraph.tensors.products import around, operand, replaced


def merge(root: UOp, x: UOp, y: UOp) -> UOp | None:
    """exp(x) exp(y) = exp(x + y)."""
    arg = root.arg
    if not isinstance(arg, Contraction) or arg.summed:
        return None
    size = extents(root)
    seen = [
        forms.view(term, [own.index(n) if n in own else -1 for n in arg.kept], size)
        for term, own in zip((x, y), arg.maps)
    ]
    return forms.exponential(forms.plus(*seen))


def split_guarded(root: UOp, power: UOp, a: UOp, b: UOp) -> UOp | None:
    """exp(a + b) with what does not depend on the sum outside of it, and the rest at most 1."""
    arg = root.arg
    if not isinstance(arg, Contraction) or not arg.summed:
        return None
    place = operand(root, power)
    names = arg.maps[place]
    bases, own = [], []
    for term in (a, b):
        base, axes = forms.base_of(term)
        bases.append(base)
        own.append([names[axes.index(i)] for i in range(len(extents(base)))])
    kept_a, kept_b = own
    if any(n in arg.summed for n in kept_a) or len(kept_b) == len(names):
        # nothing to take out, or no exponential less
        return None
    if any(n.arg == forms.GUARD for term in bases for n in term.toposort()):
        # it is guarded already
        return None
    elsewhere = {n for i, one in enumerate(arg.maps) if i != place for n in one}
    if not set(arg.summed) <= {*kept_b, *elsewhere}:
        # along what is left nothing changes: see `times_counted`
        return None
    inside = [n for n in kept_b if n in arg.summed]
    outside = [n for n in kept_b if n not in inside]
    if not inside:
        return None
    most = _finite_maximum(bases[1], kept_b, outside, arg.extents)
    size_b = extents(bases[1])
    back = [outside.index(n) if n in outside else -1 for n in kept_b]
    below = forms.times(forms.view(most, back, size_b), forms.constant(most.dtype, -1, size_b))
    low = forms.exponential(forms.plus(bases[1], below))
    rest = replaced(root, place, low, kept_b)
    # a + m, at the names that either has
    both = [n for n in arg.kept if n in kept_a or n in outside]
    size = tuple([arg.extents[n] for n in both])
    shown = [
        forms.view(term, [at.index(n) if n in at else -1 for n in both], size)
        for term, at in ((bases[0], kept_a), (most, outside))
    ]
    high = forms.exponential(forms.plus(*shown))
    return forms.contract([high, rest], [both, list(arg.kept)], arg.extents, list(arg.kept))


def _finite_maximum(b: UOp, names: list[int], kept: list[int], size: tuple[int, ...]) -> UOp:
    """The maximum of b over what is not kept, an infinite one as the largest finite number."""
    axes = tuple([i for i, n in enumerate(names) if n not in kept])
    shape = tuple([size[n] for n in kept])
    most = UOp(Ops.REDUCE_AXIS, b.dtype, (b,), Opaque((Ops.MAX, axes), (extents(b),), shape))
    largest = _largest(b.dtype)
    most = forms.elementwise(Ops.MAX, b.dtype, (most, forms.constant(b.dtype, -largest, shape)))
    high = forms.constant(b.dtype, largest, shape)
    return forms.elementwise(Ops.MIN, b.dtype, (most, high), forms.GUARD)


def _largest(dtype: DType) -> float:
    """The largest finite number of a float format."""
    return float((2 - 2.0**-dtype.mantissa) * 2.0 ** ((1 << (dtype.exponent - 1)) - 1))


def split(root: UOp, a: UOp, b: UOp) -> UOp | None:
    """exp(a + b) = exp(a) exp(b), where that takes fewer exponentials."""
    live = [sum(axis >= 0 for axis in forms.base_of(term)[1]) for term in (a, b)]
    if len(extents(root)) in live:
        return None
    return forms.times(forms.exponential(a), forms.exponential(b))


def _exponential(below: UPat, dtypes: tuple[DType, ...]) -> UPat:
    return UPat(Ops.EXP, dtypes, src=(below,))


def rules(dtypes: tuple[DType, ...]) -> list[Law]:
    """What `reassoc` allows."""
    x, y = _exponential(UPat.var("x"), dtypes), _exponential(UPat.var("y"), dtypes)
    power = _exponential(UPat.var("a") + UPat.var("b"), dtypes)
    return [
        law(contraction(x, y), merge),
        *[law(p, split_guarded) for p in around(power.named("power"), dtypes)],
    ]


def unguarded(dtypes: tuple[DType, ...]) -> list[Law]:
    """What `unsafe` allows besides."""
    return [law(_exponential(UPat.var("a") + UPat.var("b"), dtypes), split)]
