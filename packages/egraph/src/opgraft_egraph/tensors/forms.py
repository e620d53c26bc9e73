"""Terms of arrays: what the rules of this tier are about, and the constructors of them.

They are UOps of the array operations, but with arguments of their own. No axis has extent 1: such
axes are dropped when a graph is read and put back when one is written. A term is one of

- a leaf: BUFFER, arg `Leaf` (ARANGE: one with a one in each row); or a CONST, of no axes;
- a view: PERMUTE, arg `View`: axes in another order, and new ones along which nothing changes;
- a contraction: REDUCE_AXIS, arg `Contraction`: the product of one or two terms, each read at named
  axes, summed over some of them. Products of matrices, of numbers, elementwise ones and sums are
  all of this form, transposed or not, of any rank;
- an elementwise operation but for MUL of numbers: its own op, its extents as its tag; all operands
  have them too;
- a join: STACK, arg `Join`: two terms one after the other along an axis;
- anything else: its own op, arg `Opaque`, which nothing is known of but its shape.

Views carry no work: the constructors push them outwards, through elementwise operations and out of
contractions, as far as they go. What they do holds bit by bit, for every dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from opgraft.api import DType, GroupOp, Ops, UOp

Extents: TypeAlias = tuple[int, ...]

GUARD: Final = "guard"
"""The argument of a MIN that keeps a maximum finite, by which exponentials are guarded."""


class Leaf(NamedTuple):
    """What a term stands on: a node of the graph that was read, by number."""

    number: int
    extents: Extents
    hot: Hot | None = None


class Hot(NamedTuple):
    """A leaf that is 1 where the index along an axis is the number given, and 0 elsewhere."""

    axis: int
    dtype: DType
    numbers: Leaf
    """The leaf of the numbers, over the other axes."""


class View(NamedTuple):
    """For each axis the axis of the source that it is, -1 where nothing changes along it."""

    axes: tuple[int, ...]
    extents: Extents


class Contraction(NamedTuple):
    """Names of axes are numbers, given in the order in which the operands have them."""

    maps: tuple[tuple[int, ...], ...]
    """Of each operand, the names of its axes."""
    extents: Extents
    """By name."""
    kept: tuple[int, ...]
    """The names that are left, in order; the others are summed over."""

    @property
    def summed(self) -> tuple[int, ...]:
        return tuple([name for name in range(len(self.extents)) if name not in self.kept])


class Join(NamedTuple):
    """Along `axis` the first `first` are the first term's."""

    axis: int
    first: int
    extents: Extents


class Opaque(NamedTuple):
    """An operation of the graph that was read: its argument, and the shapes it is used with."""

    arg: Any
    shapes: tuple[Extents, ...]
    shape: Extents


def squeezed(shape: Extents) -> Extents:
    """A shape without the axes of extent 1."""
    return tuple([n for n in shape if n != 1])


def extents(term: UOp) -> Extents:
    """The extents of a term: they are in its head, so that one class cannot have two."""
    arg = term.arg
    if isinstance(arg, (Leaf, View, Join)):
        return arg.extents
    if isinstance(arg, Contraction):
        return tuple([arg.extents[name] for name in arg.kept])
    if isinstance(arg, Opaque):
        return squeezed(arg.shape)
    if term.op is Ops.CONST:
        return ()
    if term.op in GroupOp.ALU and term.tag is not None:
        return term.tag  # type: ignore[no-any-return]
    raise TypeError(f"{term.op} is not a term of arrays")


def is_number(dtype: DType) -> bool:
    """Whether sums and products of it are those of a ring: not of bool."""
    return dtype.is_float or dtype.is_int


# ---- constructors


def view(source: UOp, axes: Sequence[int], size: Extents) -> UOp:
    """A view of a term; of a view, of what that is a view of."""
    if source.op is Ops.PERMUTE:
        inner = source.arg.axes
        axes = [inner[a] if a >= 0 else -1 for a in axes]
        source = source.src[0]
    rank = len(extents(source))
    if tuple(axes) == tuple(range(rank)):
        return source
    if sorted([a for a in axes if a >= 0]) != list(range(rank)):
        raise ValueError(f"axes {tuple(axes)} do not view all axes of shape {extents(source)}")
    return UOp(Ops.PERMUTE, source.dtype, (source,), View(tuple(axes), size))


def base_of(term: UOp) -> tuple[UOp, tuple[int, ...]]:
    """What a term is a view of, and the axes of that view."""
    if term.op is Ops.PERMUTE:
        return term.src[0], term.arg.axes
    return term, tuple(range(len(extents(term))))


def spread(term: UOp, size: Extents) -> UOp:
    """A term of no axes at every place of some extents."""
    return view(term, [-1] * len(size), size)


def constant(dtype: DType, value: Any, size: Extents = ()) -> UOp:
    return spread(UOp.const(dtype, value), size)


def elementwise(op: Ops, dtype: DType, sources: Sequence[UOp], arg: Any = None) -> UOp:
    """An elementwise operation, computed where its operands differ, then viewed.

    Of numbers MUL is a contraction: see `times`.
    """
    size = extents(sources[-1])
    parts = [base_of(s) for s in sources]
    live = [i for i in range(len(size)) if any(axes[i] >= 0 for _, axes in parts)]
    order = live
    for _, axes in parts:
        if all(axes[i] >= 0 for i in live):
            order = sorted(live, key=lambda i: axes[i])
            break
    if order == list(range(len(size))):
        return UOp(op, dtype, tuple(sources), arg, size)
    inner = tuple([size[i] for i in order])
    made = [view(term, [axes[i] for i in order], inner) for term, axes in parts]
    back = [order.index(i) if i in order else -1 for i in range(len(size))]
    return view(UOp(op, dtype, tuple(made), arg, inner), back, size)


def contract(
    sources: Sequence[UOp],
    maps: Sequence[Sequence[int]],
    size: Sequence[int],
    kept: Sequence[int],
) -> UOp:
    """A sum over products of one or two terms. `size`: extents by name; `kept`: what is left, in
    the order of the result.
    """
    terms: list[UOp] = []
    names: list[list[int]] = []
    seen: list[list[int]] = []
    for source, given in zip(sources, maps):
        below, axes = base_of(source)
        place = [axes.index(j) for j in range(len(extents(below)))]
        terms.append(below)
        names.append([given[i] for i in place])
        seen.append(list(given))
    used = {name for one in names for name in one}
    for number in range(len(size)):
        if number not in used and number not in kept:
            # summed over, and nothing changes along it: that operand keeps its view
            place_ = next((i for i, given in enumerate(seen) if number in given), None)
            if place_ is None:
                continue
            below, axes = base_of(terms[place_])
            wider = [*names[place_], number]
            shown = tuple([size[name] for name in wider])
            terms[place_] = view(below, [*axes, -1], shown)
            names[place_] = wider
    if len(terms) == 2:
        terms, names = _without_ones(terms, names)
    if len(terms) == 1 and _is_plain_product(terms[0]) and any(n not in kept for n in names[0]):
        # the sum of a product is one contraction
        inner: Contraction = terms[0].arg
        outer = dict(zip(inner.kept, names[0]))
        names = [[outer[name] for name in one] for one in inner.maps]
        terms = list(terms[0].src)
    if len(terms) == 2 and (terms[1].order, names[1]) < (terms[0].order, names[0]):
        # a b = b a, exactly: one order stands for both
        terms.reverse()
        names.reverse()
    order = list(dict.fromkeys(name for one in names for name in one))
    left = [name for name in order if name in kept]
    number_of = {name: i for i, name in enumerate(order)}
    if len(terms) == 1 and len(left) == len(order):
        made = terms[0]
    else:
        arg = Contraction(
            tuple([tuple([number_of[name] for name in one]) for one in names]),
            tuple([size[name] for name in order]),
            tuple([number_of[name] for name in left]),
        )
        folded = _folded(terms)
        made = UOp(Ops.REDUCE_AXIS, terms[0].dtype, tuple(terms), arg) if folded is None else folded
    result = tuple([size[name] for name in kept])
    return view(made, [left.index(name) if name in left else -1 for name in kept], result)


def _is_plain_product(term: UOp) -> bool:
    """Whether it is a product without a sum."""
    return term.op is Ops.REDUCE_AXIS and len(term.src) == 2 and not term.arg.summed


def _without_ones(terms: list[UOp], names: list[list[int]]) -> tuple[list[UOp], list[list[int]]]:
    """Times 1 is exact for every number."""
    for i in (0, 1):
        if terms[i].op is Ops.CONST and terms[i].arg == 1:
            return [terms[1 - i]], [names[1 - i]]
    return terms, names


def _folded(terms: list[UOp]) -> UOp | None:
    """The product of two constants, rounded as it is when computed."""
    if len(terms) != 2 or any(t.op is not Ops.CONST for t in terms):
        return None
    return UOp.const(terms[0].dtype, terms[0].arg * terms[1].arg)


def times(a: UOp, b: UOp) -> UOp:
    """The elementwise product of two terms of one dtype and the same extents, of numbers."""
    size = extents(a)
    names = list(range(len(size)))
    return contract([a, b], [names, names], size, names)


def plus(a: UOp, b: UOp) -> UOp:
    return elementwise(Ops.ADD, a.dtype, (a, b))


def exponential(a: UOp) -> UOp:
    return elementwise(Ops.EXP, a.dtype, (a,))


def join(a: UOp, b: UOp, axis: int) -> UOp:
    """Two terms one after the other along an axis."""
    size = list(extents(a))
    first = size[axis]
    size[axis] += extents(b)[axis]
    return UOp(Ops.STACK, a.dtype, (a, b), Join(axis, first, tuple(size)))


def size_of(term: UOp) -> int:
    return prod(extents(term))


def depends_on(term: UOp, parts: Sequence[UOp]) -> bool:
    """Whether a term is, or has below it, one of some others."""
    wanted = dict.fromkeys(parts)
    return any(n in wanted for n in term.toposort())
