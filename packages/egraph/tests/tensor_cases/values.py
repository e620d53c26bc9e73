"""What a term is worth: by NumPy, in exact rational numbers, or in float64 for exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from opgraft.api import Ops, UOp
from opgraft_egraph.tensors.forms import Contraction, Join, Leaf, Opaque, View, extents

_BINARY: Mapping[Ops, Callable[[Any, Any], Any]] = {
    Ops.ADD: np.add,
    Ops.FDIV: np.divide,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
}


class Values:
    """The values of terms over given leaves; exact where the leaves are."""

    def __init__(self, leaves: Mapping[int, np.ndarray], exact: bool = True) -> None:
        self.leaves = leaves
        self.exact = exact
        self.known: dict[UOp, np.ndarray] = {}

    def of(self, term: UOp) -> np.ndarray:
        for n in term.toposort():
            if n not in self.known:
                made = self._value(n, [self.known[s] for s in n.src])
                assert made.shape == extents(n), (n.op, n.arg, made.shape)
                self.known[n] = made
        return self.known[term]

    def _value(self, n: UOp, of: Sequence[np.ndarray]) -> np.ndarray:
        op, arg = n.op, n.arg
        if op is Ops.CONST:
            number = Fraction(arg) if self.exact else float(arg)
            return np.array(number, object if self.exact else np.float64)
        if isinstance(arg, Leaf):
            return self.leaves[arg.number]
        if isinstance(arg, View):
            places = [arg.axes.index(i) for i in range(of[0].ndim)]
            order = sorted(range(of[0].ndim), key=lambda i: places[i])
            shown = [e if a >= 0 else 1 for a, e in zip(arg.axes, arg.extents)]
            return np.broadcast_to(of[0].transpose(order).reshape(shown), arg.extents)
        if isinstance(arg, Contraction):
            return self._contraction(arg, of)
        if isinstance(arg, Join):
            return np.concatenate(of, axis=arg.axis)
        if op is Ops.GATHER:
            rows = [of[0][i] if 0 <= i < len(of[0]) else of[0][0] * 0 for i in of[1].ravel()]
            return np.array(rows, of[0].dtype).reshape((*of[1].shape, *of[0].shape[1:]))
        if isinstance(arg, Opaque):
            how, axes = arg.arg
            assert (op, how) == (Ops.REDUCE_AXIS, Ops.MAX)
            return np.asarray(of[0].max(axis=axes))
        if op is Ops.EXP:
            assert not self.exact
            return np.exp(of[0])
        return np.asarray(_BINARY[op](*of))

    def _contraction(self, arg: Contraction, of: Sequence[np.ndarray]) -> np.ndarray:
        order = [*arg.kept, *arg.summed]
        total: Any = None
        for value, names in zip(of, arg.maps):
            turned = sorted(range(len(names)), key=lambda i: order.index(names[i]))
            shown = [arg.extents[n] if n in names else 1 for n in order]
            seen = value.transpose(turned).reshape(shown)
            total = seen if total is None else total * seen
        total = np.broadcast_to(total, [arg.extents[n] for n in order])
        made = total.sum(axis=tuple(range(len(arg.kept), len(order))))
        return np.asarray(made, object if self.exact else np.float64)


def same(a: np.ndarray, b: np.ndarray, exact: bool) -> bool:
    """Whether two values are one: exactly, or up to the rounding of float64."""
    if a.shape != b.shape:
        return False
    if exact:
        return bool(np.all(a == b))
    scale = max(1.0, float(np.abs(a).max(initial=0.0)))
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9 * scale)) and not math.isnan(scale)
