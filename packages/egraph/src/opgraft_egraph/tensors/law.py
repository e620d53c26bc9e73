"""`law`: a rule of this tier, whose two sides are held to one shape and one dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

from opgraft.api import Ops, UOp, UPat, errors
from opgraft_egraph.tensors.forms import extents

Law: TypeAlias = "tuple[UPat, Callable[..., UOp | None], str]"


def law(pattern: UPat, function: Callable[..., UOp | None]) -> Law:
    """A rule of the function's name. What the pattern matches is captured as `root`.

    The function makes what is equal to it, of the same extents and dtype, or None. Shapes are a
    part of what a class is: a rule that breaks one is an error which names it.
    """

    @functools.wraps(function)
    def held(root: UOp, **captures: UOp) -> UOp | None:
        made = function(root, **captures)
        if made is not None and (extents(made), made.dtype) != (extents(root), root.dtype):
            raise errors.RewriteError(
                f"what {function.__name__} makes has shape {extents(made)} of {made.dtype}, and "
                f"what it is to equal shape {extents(root)} of {root.dtype}",
                remedy="It does not hold for every value, so it is no equality.",
            )
        return made

    return pattern.named("root"), held, function.__name__


def contraction(*sources: UPat) -> UPat:
    """A contraction of one or two terms."""
    return UPat(Ops.REDUCE_AXIS, src=sources)


def view_of(source: UPat | None = None) -> UPat:
    return UPat(Ops.PERMUTE, src=(source or UPat(),))
