"""Arrays one after the other along an axis.

    join(x c, y c)          = join(x, y) c           along an axis that c lacks
    join(x, y) join(u, v)   = x u + y v              along the axis that is summed over

They trade products for copies. As products.py: for integers at every float level, for floats at
`reassoc`.
"""

from __future__ import annotations

from opgraft.api import DType, Ops, UOp, UPat
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.forms import Contraction, Join, extents
from opgraft_egraph.tensors.law import Law, contraction, law, view_of
from opgraft_egraph.tensors.products import around, operand
from opgraft_egraph.tensors.sums import pairs, shared


def join_of_products(
    root: UOp,
    p: UOp,
    q: UOp,
    x: UOp,
    y: UOp,
    c: UOp | None = None,
    v: UOp | None = None,
    w: UOp | None = None,
) -> UOp | None:
    """join(x c, y c) = join(x, y) c, along an axis that c lacks; and so for sums without c.

    `v`, `w`: the view of the first and of the second product, where there is one.
    """
    seen = root.arg
    if not isinstance(seen, Join):
        return None
    first, second = (x, y) if v is None else (y, x)
    view = w if v is None else v
    base, other = (p, q) if v is None else (q, p)
    axes = range(len(seen.extents)) if view is None else view.arg.axes
    one, two = (None, None) if c is None else (first, second)
    common = shared(base, other, axes, one, two)
    if common is None or sorted(common.of_x) != sorted(common.of_y):
        return None
    name = common.kept[seen.axis]
    if name not in common.of_x or name in common.of_c:
        return None
    # the second as the first has its axes
    order = [common.of_y.index(n) for n in common.of_x]
    turned = forms.view(second, order, tuple([extents(second)[i] for i in order]))
    parts = (first, turned) if v is None else (turned, first)
    common.size[name] = seen.extents[seen.axis]
    sources, maps = [forms.join(*parts, common.of_x.index(name))], [common.of_x]
    if c is not None:
        sources, maps = [*sources, c], [*maps, common.of_c]
    return forms.contract(sources, maps, common.size, common.kept)


def _with_extent(arg: Contraction, name: int, extent: int) -> list[int]:
    return [extent if i == name else n for i, n in enumerate(arg.extents)]


def product_of_join(root: UOp, j: UOp, x: UOp, y: UOp) -> UOp | None:
    """join(x, y) c = join(x c, y c), along an axis that c lacks and that is kept."""
    arg, seen = root.arg, j.arg
    if not isinstance(arg, Contraction) or not isinstance(seen, Join) or not arg.summed:
        return None
    place = operand(root, j)
    name = arg.maps[place][seen.axis]
    others = [n for i, one in enumerate(arg.maps) if i != place for n in one]
    if name not in arg.kept or name in others:
        return None
    made = []
    for part in (x, y):
        sources = [part if i == place else s for i, s in enumerate(root.src)]
        size = _with_extent(arg, name, extents(part)[seen.axis])
        made.append(forms.contract(sources, arg.maps, size, arg.kept))
    return forms.join(made[0], made[1], arg.kept.index(name))


def sum_over_joins(root: UOp, j: UOp, k: UOp, x: UOp, y: UOp, u: UOp, v: UOp) -> UOp | None:
    """join(x, y) join(u, v) = x u + y v, along the axis that is summed over."""
    arg, first, second = root.arg, j.arg, k.arg
    if not (isinstance(arg, Contraction) and isinstance(first, Join) and isinstance(second, Join)):
        return None
    name = arg.maps[0][first.axis]
    if name in arg.kept or arg.maps[1][second.axis] != name or first.first != second.first:
        return None
    made = []
    for pair in ((x, u), (y, v)):
        size = _with_extent(arg, name, extents(pair[0])[first.axis])
        made.append(forms.contract(pair, arg.maps, size, arg.kept))
    return forms.plus(*made)


def joined(dtypes: tuple[DType, ...], *sources: UPat) -> UPat:
    return UPat(Ops.STACK, dtypes, src=sources)


def rules(dtypes: tuple[DType, ...]) -> list[Law]:
    """These rules for numbers of some dtypes."""
    x, y, u, v, c = (UPat.var(name, dtypes) for name in "xyuvc")
    j, k = joined(dtypes, x, y).named("j"), joined(dtypes, u, v).named("k")
    found: list[Law] = []
    alone = contraction(x).named("p"), contraction(y).named("q")
    for p, q in (*pairs(x, y, c), alone):
        ways = ((p, q), (p, view_of(q).named("w")), (view_of(p).named("v"), q))
        found += [law(joined(dtypes, *sources), join_of_products) for sources in ways]
    found += [law(one, product_of_join) for one in around(j, dtypes)]
    found.append(law(contraction(j, k), sum_over_joins))
    return found
