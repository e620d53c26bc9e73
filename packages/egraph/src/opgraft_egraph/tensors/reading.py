"""From an array graph to terms (see forms.py), and what each term was.

What no rule could change is not taken apart: a part of the graph without a sum and without an
exponential is one leaf, but for views, sums and products, which rules look through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from opgraft.api import DType, GroupOp, Ops, UOp, array_shape
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.cat import joined_parts
from opgraft_egraph.tensors.forms import Extents, Hot, Leaf, Opaque, extents, squeezed
from opgraft_egraph.tensors.picks import one_hot_axis

_LOOKED_THROUGH: Final = frozenset(
    {Ops.ADD, Ops.MUL, Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.CONST}
)


class Terms(NamedTuple):
    """A graph as terms."""

    roots: tuple[UOp, ...]
    """Of each output."""
    leaves: list[UOp]
    """What each `Leaf` is, by number."""
    of: dict[UOp, UOp]
    """The term of each node."""
    originals: dict[tuple[UOp, Extents], UOp]
    """The node that a term was read from, by its shape there."""
    products: int
    """Sums and exponentials that were met."""


def is_sum(n: UOp) -> bool:
    """Whether a node is a sum of numbers over axes."""
    return n.op is Ops.REDUCE_AXIS and n.arg[0] is Ops.ADD and forms.is_number(n.dtype)


def read(outputs: Sequence[UOp], dtypes: Sequence[DType]) -> Terms:
    """The terms of some outputs. Rules apply to numbers of these `dtypes` alone."""
    order = UOp.sink(*outputs).toposort()[:-1]
    touched: dict[UOp, bool] = {}
    products = 0
    for n in order:
        own = (is_sum(n) or n.op is Ops.EXP) and n.dtype in dtypes
        products += own
        touched[n] = own or any(touched[s] for s in n.src)
    reader = _Reader(dtypes)
    for n in order:
        through = n.op in _LOOKED_THROUGH and n.dtype in dtypes
        reader.add(n, touched[n] or through)
    roots = tuple([reader.terms[o] for o in outputs])
    return Terms(roots, reader.leaves, reader.terms, reader.originals, products)


class _Reader:
    def __init__(self, dtypes: Sequence[DType]) -> None:
        self.dtypes: Final = dtypes
        self.terms: Final[dict[UOp, UOp]] = {}
        self.leaves: Final[list[UOp]] = []
        self.originals: Final[dict[tuple[UOp, Extents], UOp]] = {}

    def add(self, n: UOp, apart: bool) -> None:
        made = self._term(n) if apart and 0 not in array_shape(n) and n.src else None
        if made is None:
            made = n if n.op is Ops.CONST else self._leaf(n)
        self._note(n, made, array_shape(n))
        if made.op is Ops.PERMUTE and -1 not in made.arg.axes:
            # what it is a view of can be read from it
            size = squeezed(array_shape(n))
            plain = n if array_shape(n) == size else UOp(Ops.RESHAPE, n.dtype, (n,), size)
            self._note(plain, made, size)
            axes = made.arg.axes
            back = tuple([axes.index(i) for i in range(len(axes))])
            base = UOp(Ops.PERMUTE, n.dtype, (plain,), back)
            self._note(base, made.src[0], tuple([size[i] for i in back]))

    def _note(self, n: UOp, term: UOp, shape: Extents) -> None:
        self.terms.setdefault(n, term)
        self.originals.setdefault((term, shape), n)

    def _leaf(self, n: UOp) -> UOp:
        self.leaves.append(n)
        size = squeezed(array_shape(n))
        arg = Leaf(len(self.leaves) - 1, size, self._hot(n) if n.op is Ops.CAST else None)
        return UOp(Ops.BUFFER if arg.hot is None else Ops.ARANGE, n.dtype, (), arg)

    def _hot(self, n: UOp) -> Hot | None:
        """Where the one of each row is, if a leaf has one in each."""
        shape = array_shape(n)
        found = one_hot_axis(n, shape) if n.dtype in self.dtypes else None
        if found is None:
            return None
        axis, numbers = found
        below = self.terms[numbers]
        size = squeezed(tuple([e for i, e in enumerate(shape) if i != axis]))
        if not isinstance(below.arg, Leaf) or below.arg.extents != size:
            return None
        place = sum(1 for e in shape[:axis] if e != 1)
        return Hot(place, numbers.dtype, below.arg)

    def _term(self, n: UOp) -> UOp:
        op, shape = n.op, array_shape(n)
        sources = [self.terms[s] for s in n.src]
        if any(0 in array_shape(s) for s in n.src):
            return self._opaque(n, sources)
        if op is Ops.MUL and forms.is_number(n.dtype):
            return forms.times(*sources)
        if op in GroupOp.ALU:
            joined = joined_parts(n) if op is Ops.WHERE else None
            if joined is not None:
                return self._joined(n, *joined)
            return forms.elementwise(op, n.dtype, sources, n.arg)
        if op is Ops.RESHAPE and squeezed(shape) == squeezed(array_shape(n.src[0])):
            return sources[0]
        if op is Ops.PERMUTE:
            return self._permuted(n, sources[0])
        if op is Ops.EXPAND:
            return self._expanded(n, sources[0])
        if is_sum(n):
            return self._summed(n, sources[0])
        return self._opaque(n, sources)

    def _opaque(self, n: UOp, sources: Sequence[UOp]) -> UOp:
        arg = Opaque(n.arg, tuple([array_shape(s) for s in n.src]), array_shape(n))
        return UOp(n.op, n.dtype, tuple(sources), arg)

    def _permuted(self, n: UOp, source: UOp) -> UOp:
        old = array_shape(n.src[0])
        place = [i for i, size in enumerate(old) if size != 1]
        axes = [place.index(a) for a in n.arg if old[a] != 1]
        return forms.view(source, axes, squeezed(array_shape(n)))

    def _expanded(self, n: UOp, source: UOp) -> UOp:
        old, new = array_shape(n.src[0]), array_shape(n)
        axes, next_axis = [], 0
        for before, after in zip(old, new):
            if before != 1:
                axes.append(next_axis)
                next_axis += 1
            elif after != 1:
                axes.append(-1)
        return forms.view(source, axes, squeezed(new))

    def _summed(self, n: UOp, source: UOp) -> UOp:
        old = array_shape(n.src[0])
        names = [i for i, size in enumerate(old) if size != 1]
        kept = [i for i in names if i not in n.arg[1]]
        return forms.contract([source], [names], old, kept)

    def _joined(self, n: UOp, parts: Sequence[UOp], axis: int) -> UOp:
        """The join of some parts. Where one has extent 1 along the axis it stays a choice."""
        shape = array_shape(n)
        if n.dtype not in self.dtypes or any(array_shape(part)[axis] == 1 for part in parts):
            return forms.elementwise(n.op, n.dtype, [self.terms[s] for s in n.src], n.arg)
        place = sum(1 for size in shape[:axis] if size != 1)
        made = self.terms[parts[0]]
        for part in parts[1:]:
            made = forms.join(made, self.terms[part], place)
        return made


__all__ = ["Terms", "extents", "is_sum", "read"]
