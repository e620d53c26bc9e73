"""Products in another order: what is multiplied first decides what the whole costs.

    (a b) c                 = a (b c)                of matrices, vectors, numbers, diagonals alike:
                                                     scales and diagonals move along, low ranks are
                                                     not multiplied out
    sum of a sum            = one sum
    sum(a b)                = sum(a) b               where b lacks the axis that is summed over
    sum over a constant axis = the number of times it counts
    (a / s) b               = (a b) / s              where s lacks the axes that are summed over

They hold in a ring: for integers at every float level, for floats at `reassoc`, but for rounding
and for where infinities and nan come up. That a b = b a holds exactly; the constructor puts the
operands into one of the two orders, and `sum_first` does so once their classes have other terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from opgraft.api import DType, Ops, UOp, UPat
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.forms import Contraction, View, extents
from opgraft_egraph.tensors.law import Law, contraction, law, view_of
from opgraft_egraph.tensors.views import again


def operand(root: UOp, part: UOp) -> int:
    """Which operand of a contraction a part is."""
    return 0 if root.src[0] is part else 1


def replaced(root: UOp, place: int, part: UOp, names: Sequence[int] | None = None) -> UOp:
    """A contraction with another operand in one place."""
    arg: Contraction = root.arg
    sources = [part if i == place else s for i, s in enumerate(root.src)]
    maps = [names if i == place and names is not None else m for i, m in enumerate(arg.maps)]
    return forms.contract(sources, maps, arg.extents, arg.kept)


def associate_first(root: UOp, inner: UOp, c: UOp) -> UOp | None:
    """(a b) c = (a c) b, each sum as far inside as it can be."""
    return _associated(root, inner, c, 0)


def associate_second(root: UOp, inner: UOp, c: UOp) -> UOp | None:
    """(a b) c = a (b c), each sum as far inside as it can be."""
    return _associated(root, inner, c, 1)


def _associated(root: UOp, inner: UOp, c: UOp, which: int) -> UOp | None:
    """`which`: the operand of the inner product that is multiplied with c first."""
    outer, arg = root.arg, inner.arg
    if not isinstance(outer, Contraction) or not isinstance(arg, Contraction):
        return None
    if (inner.src[which].op is Ops.CONST) != (c.op is Ops.CONST):
        # numbers move outwards, to each other: see `scaled` in sums.py for the way in
        return None
    if not (outer.summed or arg.summed or c.op is Ops.CONST):
        # elementwise products in another order cost the same
        return None
    place = operand(root, inner)
    names, size = _within(outer, arg, place)
    of = [[names[n] for n in one] for one in arg.maps]
    first, rest = of[which], of[1 - which]
    of_c = list(outer.maps[1 - place])
    if first and of_c and not set(first) & set(of_c):
        # what has no axis in common has nothing to do with each other
        return None
    others = {*rest, *outer.kept}
    kept = [n for n in dict.fromkeys([*first, *of_c]) if n in others]
    largest = max(forms.size_of(term) for term in (root, inner, *inner.src, c))
    if prod([size[n] for n in kept]) > largest:
        # an intermediate larger than all that there is
        return None
    made = forms.contract([inner.src[which], c], [first, of_c], size, kept)
    return forms.contract([inner.src[1 - which], made], [rest, kept], size, outer.kept)


def _within(outer: Contraction, inner: Contraction, place: int) -> tuple[dict[int, int], list[int]]:
    """The names of an operand's own axes as names of the whole, and the extents of all."""
    names = dict(zip(inner.kept, outer.maps[place]))
    size = list(outer.extents)
    for name in inner.summed:
        names[name] = len(size)
        size.append(inner.extents[name])
    return names, size


def sum_of_sum(root: UOp, inner: UOp) -> UOp | None:
    """The sum of a sum is one sum."""
    outer, arg = root.arg, inner.arg
    if not isinstance(outer, Contraction) or not isinstance(arg, Contraction):
        return None
    names, size = _within(outer, arg, 0)
    maps = [[names[n] for n in one] for one in arg.maps]
    return forms.contract(inner.src, maps, size, outer.kept)


def sum_first(root: UOp, a: UOp, b: UOp) -> UOp | None:
    """sum(a b) = sum(a) b, over the axes that b lacks; and the other way round.

    Before that, a b = b a: the operands in the order that the constructor wants by now.
    """
    arg = root.arg
    if not isinstance(arg, Contraction):
        return None
    ordered = again(root)
    if ordered is not root:
        return ordered
    for place in (0, 1):
        own, others = arg.maps[place], {*arg.maps[1 - place], *arg.kept}
        left = [n for n in own if n in others]
        if len(left) < len(own):
            made = forms.contract([root.src[place]], [own], arg.extents, left)
            return replaced(root, place, made, left)
    return None


def times_counted(root: UOp, v: UOp) -> UOp | None:
    """A sum over an axis along which nothing changes is a product with its extent."""
    arg, seen = root.arg, v.arg
    if not isinstance(arg, Contraction) or not isinstance(seen, View):
        return None
    place = operand(root, v)
    names = arg.maps[place]
    needed = {*arg.kept, *[n for i, one in enumerate(arg.maps) if i != place for n in one]}
    counted = [n for n, axis in zip(names, seen.axes) if axis < 0 and n not in needed]
    if not counted:
        return None
    left = [n for n in names if n not in counted]
    axes = [axis for n, axis in zip(names, seen.axes) if n not in counted]
    own = forms.view(v.src[0], axes, tuple([arg.extents[n] for n in left]))
    made = replaced(root, place, own, left)
    count = prod([arg.extents[n] for n in counted])
    return forms.times(made, forms.constant(root.dtype, count, extents(root)))


def divide_last(root: UOp, quotient: UOp, x: UOp, s: UOp) -> UOp | None:
    """(x / s) y summed = (x y summed) / s, where s is the same along all that is summed over."""
    arg, seen = root.arg, s.arg
    if not isinstance(arg, Contraction) or not isinstance(seen, View):
        return None
    place = operand(root, quotient)
    axis_of = {n: axis for n, axis in zip(arg.maps[place], seen.axes) if axis >= 0}
    if not arg.summed or not axis_of.keys() <= set(arg.kept):
        return None
    made = replaced(root, place, x)
    below = forms.view(s.src[0], [axis_of.get(n, -1) for n in arg.kept], extents(root))
    return forms.elementwise(Ops.FDIV, root.dtype, (made, below))


def around(part: UPat, dtypes: tuple[DType, ...]) -> Iterator[UPat]:
    """Contractions that have a part as an operand, alone, first or second."""
    yield UPat(Ops.REDUCE_AXIS, dtypes, src=(part,))
    yield from beside(part, UPat(), dtypes)


def beside(part: UPat, other: UPat, dtypes: tuple[DType, ...]) -> Iterator[UPat]:
    yield UPat(Ops.REDUCE_AXIS, dtypes, src=(part, other))
    yield UPat(Ops.REDUCE_AXIS, dtypes, src=(other, part))


def rules(dtypes: tuple[DType, ...]) -> list[Law]:
    """These rules for numbers of some dtypes."""
    a, b, c = (UPat.var(name, dtypes) for name in "abc")
    inner, v = contraction(UPat(), UPat()).named("inner"), view_of().named("v")
    total = contraction(UPat()).named("inner")
    x, s = UPat.var("x", dtypes), view_of().named("s")
    quotient = UPat(Ops.FDIV, dtypes, src=(x, s), name="quotient")
    return [
        *[law(p, associate_first) for p in beside(inner, c, dtypes)],
        *[law(p, associate_second) for p in beside(inner, c, dtypes)],
        *[law(UPat(Ops.REDUCE_AXIS, dtypes, src=(p,)), sum_of_sum) for p in (inner, total)],
        law(contraction(a, b), sum_first),
        *[law(p, times_counted) for p in around(v, dtypes)],
        *[law(p, divide_last) for p in around(quotient, dtypes)],
    ]
