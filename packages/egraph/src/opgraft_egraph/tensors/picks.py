"""A product with rows of one 1 each picks rows.

    sum_k [k = i_m] t_kn        = t at row i_m, zero where there is none

Exact for integers. For floats at `reassoc`: an infinity or nan in a row that is not picked spoils
the product, not the pick.
"""

from __future__ import annotations

from opgraft.api import DType, Ops, UOp, UPat
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.forms import Contraction, Extents, Leaf, Opaque, extents
from opgraft_egraph.tensors.law import Law, law
from opgraft_egraph.tensors.products import beside, operand


def one_hot_axis(n: UOp, shape: Extents) -> tuple[int, UOp] | None:
    """Where a node is 1 exactly where the index along an axis is a given number: that axis, and
    the node of the numbers, with extent 1 there; else None.
    """
    while n.op is Ops.CAST:
        n = n.src[0]
    if n.op is not Ops.CMPEQ:
        return None
    for place, numbers in (n.src, n.src[::-1]):
        if place.op is Ops.ARANGE and numbers.op is Ops.EXPAND:
            axis: int = place.arg[1]
            below = numbers.src[0]
            if below.op is Ops.RESHAPE and below.arg[axis] == 1 and shape[axis] != 1:
                return axis, below
    return None


def pick(root: UOp, h: UOp, t: UOp) -> UOp | None:
    """The rows of t that the ones of h stand at."""
    arg, leaf = root.arg, h.arg
    if not isinstance(arg, Contraction) or not isinstance(leaf, Leaf) or leaf.hot is None:
        return None
    place = operand(root, h)
    own, others = list(arg.maps[place]), arg.maps[1 - place]
    name = own.pop(leaf.hot.axis)
    if arg.summed != (name,) or name not in others or set(own) & set(others):
        return None
    rest = [n for n in others if n != name]
    sizes = extents(t)
    order = [others.index(n) for n in (name, *rest)]
    table = forms.view(t, order, tuple([sizes[i] for i in order]))
    indices = UOp(Ops.BUFFER, leaf.hot.dtype, (), leaf.hot.numbers)
    shape = (*extents(indices), *extents(table)[1:])
    made = UOp(
        *(Ops.GATHER, root.dtype, (table, indices)),
        Opaque(None, (extents(table), extents(indices)), shape),
    )
    found = [*own, *rest]
    return forms.view(made, [found.index(n) for n in arg.kept], extents(root))


def rules(dtypes: tuple[DType, ...]) -> list[Law]:
    """This rule for numbers of some dtypes."""
    h, t = UPat(Ops.ARANGE, dtypes, name="h"), UPat.var("t", dtypes)
    return [law(p, pick) for p in beside(h, t, dtypes)]
