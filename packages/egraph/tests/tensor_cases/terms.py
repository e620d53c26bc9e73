"""Random terms of arrays, of all forms: not just of those that the constructors make."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np

from opgraft.api import DType, Ops, UOp, dtypes
from opgraft_egraph.tensors import forms
from opgraft_egraph.tensors.forms import Contraction, Extents, Hot, Join, Leaf, View, extents

EXTENTS = (2, 3, 2, 3, 4)


class Maker:
    """Terms over leaves of its own, of one dtype."""

    def __init__(self, rng: Random, powers: bool, dtype: DType = dtypes.float32) -> None:
        self.rng = rng
        self.powers = powers
        """With exponentials, so not exact; else with quotients."""
        self.dtype = dtype
        self.sizes: list[Extents] = []
        self.hot: dict[int, Leaf] = {}
        """By the number of the leaf of indices, the leaf that has its ones there."""

    def size(self, most: int = 3) -> Extents:
        return tuple(self.rng.choices(EXTENTS, k=self.rng.randint(0, most)))

    def leaf(self, size: Extents) -> UOp:
        special = {*self.hot, *[leaf.number for leaf in self.hot.values()]}
        same = [i for i, e in enumerate(self.sizes) if e == size and i not in special]
        if same and self.rng.random() < 0.5:
            number = self.rng.choice(same)
        else:
            number = len(self.sizes)
            self.sizes.append(size)
        return UOp(Ops.BUFFER, self.dtype, (), Leaf(number, size))

    def term(self, size: Extents, depth: int) -> UOp:
        """A term of some extents."""
        if depth == 0:
            return self.leaf(size)
        kinds = [self.view, self.contraction, self.contraction, self.contraction, self.total]
        kinds += [self.pair]
        kinds += [self.over_joins, self.over_views]
        if size:
            kinds.append(self.picked)
        kinds += [self.power, self.over_powers] * 2 if self.powers else [self.quotient]
        if max(size, default=0) > 3:
            kinds += [self.joined, self.joined_products] * 2
        return self.rng.choice(kinds)(size, depth - 1)

    def view(self, size: Extents, depth: int) -> UOp:
        own = [i for i in range(len(size)) if self.rng.random() < 0.7]
        self.rng.shuffle(own)
        axes = tuple([own.index(i) if i in own else -1 for i in range(len(size))])
        source = self.term(tuple([size[i] for i in own]), depth)
        return UOp(Ops.PERMUTE, self.dtype, (source,), View(axes, size))

    def shape_of_contraction(self, size: Extents, arity: int) -> tuple[Contraction, list[int]]:
        """A contraction whose names, in this order, have these extents; and the order."""
        rng = self.rng
        names = list(range(len(size)))
        summed = [len(size) + i for i in range(rng.choice((0, 1, 1, 2)))]
        whole = [*size, *rng.choices(EXTENTS, k=len(summed))]
        maps: list[list[int]] = [[] for _ in range(arity)]
        for name in [*names, *summed]:
            for i in rng.choice([[0], [0, 1], [1]]) if arity == 2 else [0]:
                maps[i].append(name)
        for one in maps:
            rng.shuffle(one)
        order = list(dict.fromkeys(n for one in maps for n in one))
        number = {n: i for i, n in enumerate(order)}
        kept = [n for n in order if n in names]
        arg = Contraction(
            tuple([tuple([number[n] for n in one]) for one in maps]),
            tuple([whole[n] for n in order]),
            tuple([number[n] for n in kept]),
        )
        return arg, [kept.index(n) for n in names]

    def contraction(self, size: Extents, depth: int) -> UOp:
        arg, order = self.shape_of_contraction(size, self.rng.choice((1, 2, 2)))
        sources = tuple([self.term(s, depth) for s in _sizes(arg)])
        return forms.view(UOp(Ops.REDUCE_AXIS, self.dtype, sources, arg), order, size)

    def total(self, size: Extents, depth: int) -> UOp:
        a, b = self.term(size, depth), self.term(size, depth)
        return UOp(Ops.ADD, self.dtype, (a, b), None, size)

    def quotient(self, size: Extents, depth: int) -> UOp:
        a, b = self.term(size, depth), self.view(size, 0)
        return UOp(Ops.FDIV, self.dtype, (a, b), None, size)

    def power(self, size: Extents, depth: int) -> UOp:
        below = self.total(size, depth) if self.rng.random() < 0.7 else self.term(size, depth)
        if self.rng.random() < 0.5:
            below = UOp(Ops.ADD, self.dtype, (self.view(size, 0), self.view(size, 0)), None, size)
        # kept small, so that float64 can tell
        small = UOp.const(self.dtype, 1 / 8)
        below = forms.times(below, forms.spread(small, size)) if depth else below
        return UOp(Ops.EXP, self.dtype, (below,), None, size)

    def pair(self, size: Extents, depth: int) -> UOp:
        """A sum of two contractions alike, of which one operand is the same."""
        arg, order = self.shape_of_contraction(size, self.rng.choice((1, 2, 2)))
        p, q = self._pair(arg, arg, depth)
        made = UOp(Ops.ADD, self.dtype, (p, q), None, extents(p))
        if self.rng.random() < 0.3:
            made = UOp(Ops.ADD, self.dtype, (p, self._times_a_number(q)), None, extents(p))
        elif self.rng.random() < 0.3:
            rest = self.leaf(extents(p))
            made = UOp(Ops.ADD, self.dtype, (p, rest), None, extents(p))
            made = UOp(Ops.ADD, self.dtype, (made, q), None, extents(p))
        return forms.view(made, order, size)

    def _times_a_number(self, q: UOp) -> UOp:
        """A contraction times -2; some of what it sums over is summed then."""
        arg: Contraction = q.arg
        later = arg.summed[: self.rng.randrange(2)]
        kept = sorted((*arg.kept, *later))
        inner = q.replace(arg=arg._replace(kept=tuple(kept)))
        number = UOp.const(self.dtype, -2)
        return forms.contract([inner, number], [kept, []], arg.extents, arg.kept)

    def _pair(self, first: Contraction, second: Contraction, depth: int) -> tuple[UOp, UOp]:
        a, b = ([self.term(s, depth) for s in _sizes(arg)] for arg in (first, second))
        same = self.rng.randrange(len(a) + 1)
        if same < len(a) and len(a) > 1 and extents(a[same]) == extents(b[same]):
            b[same] = a[same]
        p, q = (
            UOp(Ops.REDUCE_AXIS, self.dtype, tuple(s), arg) for s, arg in ((a, first), (b, second))
        )
        return p, q

    def _parts(self, size: Extents) -> tuple[int, Extents, Extents]:
        axis = self.rng.choice([i for i, n in enumerate(size) if n > 3])
        first = self.rng.randint(2, size[axis] - 2)
        a, b = (
            tuple([n if i != axis else extent for i, n in enumerate(size)])
            for extent in (first, size[axis] - first)
        )
        return axis, a, b

    def joined(self, size: Extents, depth: int) -> UOp:
        axis, first, second = self._parts(size)
        parts = self.term(first, depth), self.term(second, depth)
        return UOp(Ops.STACK, self.dtype, parts, Join(axis, first[axis], size))

    def joined_products(self, size: Extents, depth: int) -> UOp:
        """Two contractions alike, but for the extent of one axis, one after the other."""
        arg, order = self.shape_of_contraction(size, self.rng.choice((1, 2, 2)))
        made = tuple([arg.extents[name] for name in arg.kept])
        axis, first, second = self._parts(made)
        name = arg.kept[axis]
        one, other = (
            arg._replace(
                extents=tuple([n if i != name else s[axis] for i, n in enumerate(arg.extents)])
            )
            for s in (first, second)
        )
        p, q = self._pair(one, other, depth)
        whole = UOp(Ops.STACK, self.dtype, (p, q), Join(axis, first[axis], made))
        return forms.view(whole, order, size)

    def _over(self, size: Extents, arity: int, sources: Callable[[Contraction], list[UOp]]) -> UOp:
        """A contraction of sources that are made for it."""
        arg, order = self.shape_of_contraction(size, arity)
        made = UOp(Ops.REDUCE_AXIS, self.dtype, tuple(sources(arg)), arg)
        return forms.view(made, order, size)

    def over_views(self, size: Extents, depth: int) -> UOp:
        return self._over(
            *(size, self.rng.choice((1, 2))),
            lambda arg: [self.view(s, depth) for s in _sizes(arg)],
        )

    def over_powers(self, size: Extents, depth: int) -> UOp:
        """A contraction of exponentials, or of one."""
        both = self.rng.random() < 0.5

        def sources(arg: Contraction) -> list[UOp]:
            first, *rest = _sizes(arg)
            return [
                self.power(first, 0),
                *[self.power(s, 0) if both else self.leaf(s) for s in rest],
            ]

        return self._over(size, self.rng.choice((1, 2, 2)), sources)

    def picked(self, size: Extents, depth: int) -> UOp:
        """Rows of a table, as a product with rows of one 1."""
        rows = size[: self.rng.randint(0, len(size))]
        width = self.rng.choice(EXTENTS)
        indices = UOp(Ops.BUFFER, dtypes.int32, (), Leaf(len(self.sizes), rows))
        self.sizes.append(rows)
        axis = self.rng.randint(0, len(rows))
        whole = (*rows[:axis], width, *rows[axis:])
        hot = Leaf(len(self.sizes), whole, Hot(axis, dtypes.int32, indices.arg))
        self.sizes.append(whole)
        self.hot[indices.arg.number] = hot
        ones = UOp(Ops.ARANGE, self.dtype, (), hot)
        names = list(range(len(size)))
        own = [*names[:axis], len(size), *names[axis : len(rows)]]
        table = self.term((*size[len(rows) :], width), depth)
        other = [*names[len(rows) :], len(size)]
        return forms.contract([ones, table], [own, other], [*size, width], names)

    def over_joins(self, size: Extents, depth: int) -> UOp:
        """A product of two joins, summed over the axis that they are joined along."""
        left, right = [self.rng.choice((2, 3)) for _ in range(2)]
        rows = size[: len(size) // 2]
        columns = size[len(size) // 2 :]
        parts = [
            self.term((left, *rows), depth),
            self.term((right, *rows), depth),
            self.term((left, *columns), depth),
            self.term((right, *columns), depth),
        ]
        a, b = forms.join(*parts[:2], 0), forms.join(*parts[2:], 0)
        r, c = len(rows), len(columns)
        arg = Contraction(
            (tuple(range(r + 1)), (0, *range(r + 1, r + 1 + c))),
            (left + right, *rows, *columns),
            tuple(range(1, r + 1 + c)),
        )
        return UOp(Ops.REDUCE_AXIS, self.dtype, (a, b), arg)

    def leaves(self) -> dict[int, np.ndarray]:
        """Values of the leaves: small whole numbers, none 0; for powers, floats."""
        rng = self.rng
        found: dict[int, np.ndarray] = {}
        for number, size in enumerate(self.sizes):
            count = int(np.prod(size, dtype=int))
            if self.powers:
                made = np.array([rng.uniform(-1, 1) for _ in range(count)])
            else:
                drawn = [Fraction(rng.choice((-1, 1)) * rng.randint(1, 9)) for _ in range(count)]
                made = np.array(drawn, object)
            found[number] = made.reshape(size)
        for number, leaf in self.hot.items():
            found[number], found[leaf.number] = self._ones(leaf, found[leaf.number].dtype)
        return found

    def _ones(self, leaf: Leaf, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Indices, some of them outside, and the ones that they stand for."""
        assert leaf.hot is not None
        width, rows = leaf.extents[leaf.hot.axis], leaf.hot.numbers.extents
        drawn = [self.rng.randint(-1, width) for _ in range(int(np.prod(rows, dtype=int)))]
        indices = np.array(drawn, int).reshape(rows)
        hot = np.expand_dims(indices, leaf.hot.axis) == np.arange(width).reshape(
            [-1 if i == leaf.hot.axis else 1 for i in range(len(leaf.extents))]
        )
        ones = np.array([Fraction(int(x)) if not self.powers else float(x) for x in hot.ravel()])
        return indices, ones.astype(dtype).reshape(leaf.extents)


def _sizes(arg: Contraction) -> list[Extents]:
    return [tuple([arg.extents[name] for name in one]) for one in arg.maps]
