"""From terms back to an array graph.

What no rule touched stays as it was: a term that was given is the node that it was read from, and
one whose parts alone have changed is that node on other sources. Contractions that are new are
written as the planner knows them: operands seen at all axes, multiplied, summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from opgraft.api import GroupOp, Ops, UOp, array_shape, dtypes
from opgraft_egraph.tensors.forms import Contraction, Extents, Join, Leaf, Opaque, View, extents
from opgraft_egraph.tensors.reading import Terms


class Found(NamedTuple):
    """The terms to write, and what they have to do with those that were given."""

    roots: tuple[UOp, ...]
    same: Mapping[UOp, UOp]
    """Of a new term, the given one that is the same operation on equal parts."""
    instead: Mapping[UOp, UOp]
    """Of a given term, the one that stands for it now."""


def write(found: Found, shapes: Sequence[Extents], read: Terms) -> list[UOp]:
    """A node of the given shape for each root."""
    writer = _Writer(found, read)
    for term in UOp.sink(*found.roots).toposort()[:-1]:
        writer.add(term)
    return [writer.shown(root, shape) for root, shape in zip(found.roots, shapes)]


class _Writer:
    def __init__(self, found: Found, read: Terms) -> None:
        self.found: Final = found
        self.read: Final = read
        self.nodes: Final[dict[UOp, UOp]] = {}
        """A node of each term, of some shape."""
        self.turned: Final[dict[UOp, tuple[int, ...]]] = {}
        """Of a contraction, where each of its axes lies in memory, if they lie in another order."""
        self.known: Final[dict[UOp, UOp]] = {}
        """Of the terms that were read, the node, preferably of the term's own extents."""
        self.viewed: Final[dict[UOp, tuple[int, ...]]] = {}
        """Of a term, the order of the first view that sees its axes in another order."""
        for term in UOp.sink(*found.roots).toposort():
            if isinstance(term.arg, View) and -1 not in term.arg.axes:
                self.viewed.setdefault(term.src[0], term.arg.axes)
        for (term, shape), node in read.originals.items():
            if term not in self.known or shape == extents(term):
                self.known[term] = node

    def add(self, term: UOp) -> None:
        made = self.known.get(term)
        if made is None:
            given = self.found.same.get(term)
            if given is not None and given in self.known and not isinstance(term.arg, View):
                made = self._on_other_parts(given)
        self.nodes[term] = self._made(term) if made is None else made

    def _on_other_parts(self, given: UOp) -> UOp | None:
        """The node of a given term, its parts replaced by those that stand for them now.

        None: the constructors have moved a view, so the node is of other parts than the term.
        """
        of, node = self.read.of, self.known[given]
        parts = {part: self.found.instead[part] for part in given.src}
        done: dict[UOp, UOp] = {}
        for n in node.toposort(lambda n: n is node or of[n] not in parts):
            part = parts.get(of[n])
            if part is not None and n is not node:
                done[n] = self.shown(part, array_shape(n))
            elif n.src and not isinstance(of[n].arg, Leaf):
                src = tuple([done[s] for s in n.src])
                done[n] = n if src == n.src else n.with_src(src)
            elif n.op is Ops.CONST:
                done[n] = n
            else:
                return None
        return done[node]

    def shown(self, term: UOp, shape: Extents) -> UOp:
        """The node of a term at a shape."""
        found = self.read.originals.get((term, shape))
        return _reshaped(self.nodes[term], shape) if found is None else found

    def _plain(self, term: UOp) -> UOp:
        return self.shown(term, extents(term))

    def _made(self, term: UOp) -> UOp:
        op, arg = term.op, term.arg
        if isinstance(arg, Leaf):
            return self.read.leaves[arg.number]
        if isinstance(arg, View):
            axes = list(range(len(arg.extents)))
            return self._seen(term.src[0], [axes[a] for a in _places(arg.axes)], arg.extents, axes)
        if isinstance(arg, Contraction):
            return self._contracted(term, arg)
        if isinstance(arg, Join):
            first, second = term.src
            return _joined(self._plain(first), self._plain(second), arg)
        if isinstance(arg, Opaque):
            sources = [self.shown(s, shape) for s, shape in zip(term.src, arg.shapes)]
            return UOp(op, term.dtype, tuple(sources), arg.arg)
        if op is Ops.CONST:
            return term
        assert op in GroupOp.ALU
        return UOp(op, term.dtype, tuple([self._plain(s) for s in term.src]))

    def _contracted(self, term: UOp, arg: Contraction) -> UOp:
        stored = self._stored(term, arg)
        order = [*stored, *arg.summed]
        size = tuple([arg.extents[name] for name in order])
        seen = [self._seen(s, names, size, order) for s, names in zip(term.src, arg.maps)]
        made = seen[0] if len(seen) == 1 else UOp(Ops.MUL, term.dtype, tuple(seen))
        if arg.summed:
            axes = tuple(range(len(arg.kept), len(order)))
            made = UOp(Ops.REDUCE_AXIS, term.dtype, (made,), (Ops.ADD, axes))
        turned = tuple([stored.index(name) for name in arg.kept])
        if turned == tuple(range(len(turned))):
            return made
        self.turned[term] = turned
        return UOp(Ops.PERMUTE, term.dtype, (made,), turned)

    def _stored(self, term: UOp, arg: Contraction) -> list[int]:
        """The names that are kept, in the order in which they are to lie in memory.

        That of a view of it, if there is one. Else a name comes the later the nearer it is to the
        last axis of an operand: what lies side by side there will do so in the product. So a @ b
        has b's columns last, whichever operand is the first one of the term.
        """
        if term in self.viewed:
            return [arg.kept[axis] for axis in self.viewed[term]]
        behind: dict[int, int] = {}
        for source, names in zip(term.src, arg.maps):
            order = self.turned.get(source, tuple(range(len(names))))
            for name, place in zip(names, order):
                distance = len(names) - 1 - place
                behind[name] = min(distance, behind.get(name, distance))
        return sorted(arg.kept, key=lambda name: -behind[name])

    def _seen(self, term: UOp, names: Sequence[int], size: Extents, order: Sequence[int]) -> UOp:
        """A term, whose axes have names, at all axes of an order."""
        node = self._plain(term)
        turned = sorted(range(len(names)), key=lambda i: order.index(names[i]))
        if turned != list(range(len(names))):
            node = UOp(Ops.PERMUTE, node.dtype, (node,), tuple(turned))
        own = tuple([n if name in names else 1 for name, n in zip(order, size)])
        node = _reshaped(node, own)
        return node if own == size else UOp(Ops.EXPAND, node.dtype, (node,), size)


def _places(axes: Sequence[int]) -> list[int]:
    """For each axis of the source of a view, the axis that it is."""
    return [axes.index(i) for i in range(len(axes) - axes.count(-1))]


def _reshaped(node: UOp, shape: Extents) -> UOp:
    return node if array_shape(node) == shape else UOp(Ops.RESHAPE, node.dtype, (node,), shape)


def _joined(a: UOp, b: UOp, arg: Join) -> UOp:
    """Both padded to the full extent; from where the second begins on, it."""
    axis, total = arg.axis, arg.extents[arg.axis]
    none = (0, 0)

    def padded(node: UOp, before: int, after: int) -> UOp:
        widths = [none] * len(arg.extents)
        widths[axis] = (before, after)
        return UOp(Ops.PAD, node.dtype, (node,), tuple(widths))

    place = UOp(Ops.ARANGE, dtypes.int32, (), (arg.extents, axis))
    begin = _everywhere(UOp.const(dtypes.int32, arg.first), arg.extents)
    before = UOp(Ops.CMPLT, dtypes.bool, (place, begin))
    true = _everywhere(UOp.const(dtypes.bool, True), arg.extents)
    own = UOp(Ops.XOR, dtypes.bool, (before, true))
    parts = padded(b, arg.first, 0), padded(a, 0, total - arg.first)
    return UOp(Ops.WHERE, a.dtype, (own, *parts))


def _everywhere(number: UOp, size: Extents) -> UOp:
    ones = UOp(Ops.RESHAPE, number.dtype, (number,), (1,) * len(size))
    return UOp(Ops.EXPAND, number.dtype, (ones,), size)
