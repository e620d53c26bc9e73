"""Rules that look like the true ones and do not hold: a check that lets one pass is no check."""

from __future__ import annotations

from opgraft.api import EqualitySet, Ops, UOp, UPat
from opgraft_egraph.tensors import forms, views
from opgraft_egraph.tensors.forms import Contraction, Join, View, extents
from opgraft_egraph.tensors.law import contraction, view_of
from opgraft_egraph.tensors.picks import pick

A, B, C, X, Y = (UPat.var(name) for name in "abcxy")
J = UPat(Ops.STACK, src=(X, Y), name="j")


def power(below: UPat) -> UPat:
    return UPat(Ops.EXP, src=(below,))


def view_backwards(root: UOp) -> UOp:
    arg: View = root.arg
    axes = [len(extents(root.src[0])) - 1 - a if a >= 0 else -1 for a in arg.axes]
    return forms.view(root.src[0], axes, arg.extents)


def commute_without_names(root: UOp, a: UOp, b: UOp) -> UOp | None:
    arg: Contraction = root.arg
    if [extents(a)] != [extents(b)]:
        return None
    return forms.contract((b, a), arg.maps, arg.extents, arg.kept)


def associate_summing_all(root: UOp, inner: UOp, c: UOp) -> UOp | None:
    """What is summed over outside is summed over inside, though `a` has it too."""
    outer, arg = root.arg, inner.arg
    names = dict(zip(arg.kept, outer.maps[0]))
    size = list(outer.extents)
    for name in arg.summed:
        names[name] = len(size)
        size.append(arg.extents[name])
    of_a, of_b = ([names[n] for n in one] for one in arg.maps)
    kept = [n for n in dict.fromkeys([*of_b, *outer.maps[1]]) if n in outer.kept]
    made = forms.contract([inner.src[1], c], [of_b, list(outer.maps[1])], size, kept)
    return forms.contract([inner.src[0], made], [of_a, kept], size, outer.kept)


def sum_of_product(root: UOp, a: UOp, b: UOp) -> UOp | None:
    """The product of the sums instead of the sum of the product."""
    arg: Contraction = root.arg
    left = [[n for n in one if n in arg.kept] for one in arg.maps]
    made = [
        forms.contract([s], [one], arg.extents, kept)
        for s, one, kept in zip((a, b), arg.maps, left)
    ]
    return forms.contract(made, left, arg.extents, arg.kept)


def uncounted(root: UOp, v: UOp) -> UOp | None:
    arg, seen = root.arg, v.arg
    names = arg.maps[0]
    if any(axis < 0 and name in arg.kept for name, axis in zip(names, seen.axes)):
        return None
    below = [names[seen.axes.index(i)] for i in range(len(extents(v.src[0])))]
    return forms.contract([v.src[0]], [below], arg.extents, arg.kept)


def sum_less_one(root: UOp) -> UOp | None:
    """A sum over two axes, over one of them only and times 2."""
    arg: Contraction = root.arg
    if len(arg.summed) != 2:
        return None
    first = arg.summed[0]
    left = [n for n in range(len(arg.extents)) if n != first]
    part = forms.contract(root.src, arg.maps, arg.extents, left)
    size = [arg.extents[n] for n in left]
    kept = [left.index(n) for n in arg.kept]
    made = forms.contract([part], [list(range(len(left)))], size, kept)
    return forms.times(made, forms.constant(root.dtype, 2, extents(root)))


def divide_anyway(root: UOp, x: UOp, b: UOp) -> UOp | None:
    """(x / b) summed = (x summed) / (b summed)."""
    arg: Contraction = root.arg
    made = [forms.contract([s], arg.maps, arg.extents, arg.kept) for s in (x, b)]
    return forms.elementwise(Ops.FDIV, root.dtype, made)


def distribute_once(root: UOp, x: UOp, y: UOp) -> UOp | None:
    """(x + y) c = x c + y."""
    arg: Contraction = root.arg
    made = forms.contract([x, *root.src[1:]], arg.maps, arg.extents, arg.kept)
    if extents(made) != extents(y):
        return None
    return forms.plus(made, y)


def factor_others(root: UOp, p: UOp, q: UOp) -> UOp | None:
    """x c + y d = (x + y) c."""
    if p.arg != q.arg or len(p.src) != 2:
        return None
    arg: Contraction = p.arg
    total = forms.plus(p.src[0], q.src[0])
    return forms.contract([total, p.src[1]], arg.maps, arg.extents, arg.kept)


def join_the_other_way(root: UOp, x: UOp, y: UOp) -> UOp | None:
    if extents(x) != extents(y):
        return None
    return forms.join(y, x, root.arg.axis)


def join_of_sums(root: UOp, j: UOp, x: UOp, y: UOp) -> UOp | None:
    """A sum over a join is the sum of its first part."""
    arg, seen = root.arg, j.arg
    if not isinstance(seen, Join):
        return None
    name = arg.maps[0][seen.axis]
    if name in arg.kept or any(name in one for one in arg.maps[1:]):
        return None
    size = [extents(x)[seen.axis] if i == name else n for i, n in enumerate(arg.extents)]
    return forms.contract([x, *root.src[1:]], arg.maps, size, arg.kept)


def merge_by_product(root: UOp, x: UOp, y: UOp) -> UOp | None:
    """exp(x) exp(y) = exp(x y)."""
    arg: Contraction = root.arg
    if arg.summed:
        return None
    return forms.exponential(views.again(root.replace(src=(x, y))))


def split_to_sum(root: UOp, a: UOp, b: UOp) -> UOp:
    """exp(a + b) = exp(a) + exp(b)."""
    return forms.plus(forms.exponential(a), forms.exponential(b))


def power_of_sum(root: UOp, x: UOp) -> UOp | None:
    """The sum of exponentials is the exponential of the sum."""
    arg: Contraction = root.arg
    return forms.exponential(forms.contract([x], arg.maps, arg.extents, arg.kept))


def pick_the_next(root: UOp, h: UOp, t: UOp) -> UOp | None:
    """The table turned round."""
    made = pick(root, h, t)
    if made is None or len(extents(t)) != 2 or extents(t)[0] != extents(t)[1]:
        return None
    return pick(root, h, forms.view(t, [1, 0], extents(t)))


_V = view_of().named("v")
_INNER = contraction(UPat(), UPat()).named("inner")

CANARIES = EqualitySet(
    [
        (view_of().named("root"), view_backwards),
        (contraction(A, B).named("root"), commute_without_names),
        (contraction(_INNER, C).named("root"), associate_summing_all),
        (contraction(A, B).named("root"), sum_of_product),
        (contraction(_V).named("root"), uncounted),
        (contraction(A).named("root"), sum_less_one),
        (contraction(UPat(Ops.FDIV, src=(X, B))).named("root"), divide_anyway),
        (contraction(X + Y, UPat()).named("root"), distribute_once),
        (
            (contraction(A, B).named("p") + contraction(X, Y).named("q")).named("root"),
            factor_others,
        ),
        (UPat(Ops.STACK, src=(X, Y), name="root"), join_the_other_way),
        (contraction(J, UPat()).named("root"), join_of_sums),
        (contraction(power(X), power(Y)).named("root"), merge_by_product),
        (power(A + B).named("root"), split_to_sum),
        (contraction(UPat(Ops.ARANGE, name="h"), UPat.var("t")).named("root"), pick_the_next),
        (contraction(power(X)).named("root"), power_of_sum),
    ]
)
