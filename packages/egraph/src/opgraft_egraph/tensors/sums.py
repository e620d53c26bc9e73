"""Products with sums.

    (x + y) c               = x c + y c              one product or two
    sum(x + y)              = sum(x) + sum(y)
    (x c + r) + y c         = (x c + y c) + r        so that products which share c meet

As products.py: for integers at every float level, for floats at `reassoc`. A square of a sum is
not multiplied out there: the sum of (x - m)^2 would lose its digits (that is `unsafe`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opgraft.api import DType, Ops, UOp, UPat
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.forms import Contraction, extents
from opgraft_egraph.tensors.law import Law, contraction, law, view_of
from opgraft_egraph.tensors.products import around, beside, operand, replaced


def distribute(root: UOp, total: UOp) -> UOp | None:
    """(x + y) c = x c + y c, under a sum, where c is made of neither x nor y.

    One of x and y is a view or a contraction: there is nothing to gain from others.
    """
    place = operand(root, total)
    others = [s for i, s in enumerate(root.src) if i != place]
    if any(forms.depends_on(other, total.src) for other in others):
        return None
    return distribute_square(root, total)


def distribute_square(root: UOp, total: UOp) -> UOp | None:
    """(x + y) c = x c + y c, under a sum, whatever c is."""
    arg = root.arg
    if not isinstance(arg, Contraction) or not arg.summed:
        return None
    if all(term.op not in (Ops.PERMUTE, Ops.REDUCE_AXIS) for term in total.src):
        return None
    place = operand(root, total)
    return forms.plus(*[replaced(root, place, part) for part in total.src])


class Shared(NamedTuple):
    """Two contractions with one operand the same, on names of their own."""

    size: list[int]
    of_c: list[int]
    of_x: list[int]
    of_y: list[int]
    kept: list[int]


def shared(p: UOp, q: UOp, axes: Sequence[int], x: UOp | None, y: UOp | None) -> Shared | None:
    """The common names of p = x c and q = y c, where `axes` are q's axes at p's; None: c is read
    otherwise in the one than in the other.

    `x` and `y` None: p and q are sums of one operand.
    """
    first, second = p.arg, q.arg
    if not isinstance(first, Contraction) or not isinstance(second, Contraction):
        return None
    if len(first.summed) != len(second.summed) or sorted(axes) != list(range(len(axes))):
        return None
    own_p, own_q = (0 if t is None else operand(o, t) for o, t in ((p, x), (q, y)))
    names = {second.kept[axis]: name for name, axis in zip(first.kept, axes)}
    of_c: list[int] = []
    if x is not None:
        of_c = list(first.maps[1 - own_p])
        for ours, theirs in zip(of_c, second.maps[1 - own_q], strict=True):
            if (ours in first.kept) != (theirs in second.kept):
                return None
            if names.setdefault(theirs, ours) != ours:
                return None
    free = [n for n in first.summed if n not in names.values()]
    for theirs in second.summed:
        if theirs not in names:
            alike = [n for n in free if first.extents[n] == second.extents[theirs]]
            if not alike:
                return None
            names[theirs] = alike[0]
            free.remove(alike[0])
    of_x = list(first.maps[own_p])
    of_y = [names[n] for n in second.maps[own_q]]
    return Shared(list(first.extents), of_c, of_x, of_y, list(first.kept))


def factor(
    root: UOp, p: UOp, q: UOp, x: UOp, y: UOp, c: UOp | None = None, v: UOp | None = None
) -> UOp | None:
    """x c + y c = (x + y) c, and so for sums without c."""
    axes = range(len(extents(p))) if v is None else v.arg.axes
    common = shared(p, q, axes, None if c is None else x, None if c is None else y)
    if common is None or sorted(common.of_x) != sorted(common.of_y):
        return None
    turned = forms.view(y, [common.of_y.index(n) for n in common.of_x], extents(x))
    sources, maps = [forms.plus(x, turned)], [common.of_x]
    if c is not None:
        sources, maps = [*sources, c], [*maps, common.of_c]
    return forms.contract(sources, maps, common.size, common.kept)


def gather_products(root: UOp, p: UOp, q: UOp, r: UOp) -> UOp | None:
    """(p + r) + q = (p + q) + r, for sums over products p and q that share an operand."""
    if not isinstance(p.arg, Contraction) or not p.arg.summed or not q.arg.summed:
        return None
    return forms.plus(forms.plus(p, q), r)


def scaled(root: UOp, p: UOp, q: UOp, s: UOp, product: UOp, y: UOp) -> UOp | None:
    """x c + s (y c) = x c + (s y) c, for a number s."""
    if not isinstance(p.arg, Contraction) or not p.arg.summed:
        return None
    own = forms.times(y, forms.spread(s, extents(y)))
    arg: Contraction = product.arg
    names = arg.maps[operand(product, q)]
    inner = replaced(q, operand(q, y), own)
    return forms.plus(p, forms.contract([inner], [names], arg.extents, arg.kept))


def pairs(x: UPat, y: UPat, c: UPat) -> Iterator[tuple[UPat, UPat]]:
    """Two contractions that share an operand, in all places."""
    for p in ((x, c), (c, x)):
        for q in ((y, c), (c, y)):
            yield contraction(*p).named("p"), contraction(*q).named("q")


def rules(dtypes: tuple[DType, ...], squares: bool) -> list[Law]:
    """These rules for numbers of some dtypes; with squares multiplied out or without."""
    x, y, c, r = (UPat.var(name, dtypes) for name in "xycr")
    total = UPat(Ops.ADD, dtypes, src=UPat(), name="total")
    spread = distribute_square if squares else distribute
    alone = contraction(x).named("p"), contraction(y).named("q")
    found = [law(p, spread) for p in around(total, dtypes)]
    for p, q in (*pairs(x, y, c), alone):
        found += [law(p + q, factor), law(p + view_of(q).named("v"), factor)]
    found += [law((p + r) + q, gather_products) for p, q in pairs(x, y, c)]
    for p, q in pairs(x, y, c):
        for product in beside(q, UPat.cvar("s"), dtypes):
            found.append(law(p + product.named("product"), scaled))
    return found
