"""Views move outwards. They move no numbers, so this holds bit by bit at every float level.

view(view(a))           = view(a)                    one after the other
contract(view(a), b)    = contract(a, b)             axes are named, wherever they lie
f(view(a), view(b))     = view(f(a, b))              elementwise, where they are views alike
"""

from __future__ import annotations

from typing import Final

from opgraft.api import EqualitySet, Ops, UOp, UPat
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.forms import Contraction
from opgraft_egraph.tensors.law import contraction, law, view_of


def again(term: UOp) -> UOp:
    """A contraction made once more, of the sources that it has."""
    arg: Contraction = term.arg
    return forms.contract(term.src, arg.maps, arg.extents, arg.kept)


def view_of_view(root: UOp) -> UOp | None:
    """A view of a view is one view."""
    if isinstance(root.arg, forms.View) and isinstance(root.src[0].arg, forms.View):
        return forms.view(root.src[0], root.arg.axes, root.arg.extents)
    return None


def contraction_of_view(root: UOp) -> UOp | None:
    """Where the axes of an operand lie makes no difference to a sum over products."""
    return again(root) if isinstance(root.arg, Contraction) else None


def elementwise_of_views(root: UOp) -> UOp:
    """Computed before it is spread over places where it is the same, or reordered."""
    return forms.elementwise(root.op, root.dtype, root.src, root.arg)


_UNARY: Final = (Ops.EXP,)
_BINARY: Final = (Ops.ADD, Ops.FDIV)
"""Those that other rules look through; views of others are taken out when they are made."""

RULES: Final = EqualitySet(
    [
        law(view_of(view_of()), view_of_view),
        law(contraction(view_of()), contraction_of_view),
        law(contraction(view_of(), UPat()), contraction_of_view),
        law(contraction(UPat(), view_of()), contraction_of_view),
        law(UPat(_UNARY, src=(view_of(),)), elementwise_of_views),
        law(UPat(_BINARY, src=(view_of(), UPat())), elementwise_of_views),
        law(UPat(_BINARY, src=(UPat(), view_of())), elementwise_of_views),
    ]
)
