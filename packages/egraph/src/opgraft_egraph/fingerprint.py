"""`Fingerprint`: the values of a class at random points, an alarm for rules that do not hold.

Intervals and remainders let many wrong rules pass; two nodes that differ at one of some random
points are certainly not equal. (That they agree at all of them proves nothing.)

>>> from opgraft.api import EqualitySet, UPat
>>> from opgraft_egraph import EGraph
>>> rules = EqualitySet([(UPat.var("x") % 8, lambda x: x & 6, "wrong")])
>>> graph = EGraph(UOp.variable("a", 0, 99) % 8, rules, analyses={"values": Fingerprint()})
>>> graph.run()  # doctest: +ELLIPSIS
Traceback (most recent call last):
opgraft.errors.RewriteError: rule wrong ... analysis values holds for different: ...
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from opgraft.api import DType, GroupOp, Ops, UOp, evaluate
from opgraft_egraph.analysis import Analysis

Values: TypeAlias = "tuple[DType, tuple[Any, ...]] | None"
"""The dtype and the value at each point; None: not an elementwise function of variables."""

_FAR: Final = 1 << 40
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float("inf"), float("-inf"), float("nan"))


class Fingerprint(Analysis):
    """Values at `points` random points, a third of them at the ends of ranges."""

    def __init__(self, points: int = 24, seed: int = 0) -> None:
        self.points: Final = points
        self.seed: Final = seed

    def make(self, node: UOp, kids: Sequence[Any]) -> Values:
        dtype = node.dtype
        if dtype.count != 1 or dtype.kind == "void":
            return None
        if node.is_const:
            return dtype, (node.const_value,) * self.points
        if node.op in (Ops.VAR, Ops.RANGE, Ops.SPECIAL):
            return dtype, self._leaf(node)
        if node.op not in GroupOp.ALU or any(kid is None for kid in kids):
            return None
        places = tuple(_place(i, kid[0]) for i, kid in enumerate(kids))
        root = node.with_src(places)
        rows = zip(*[kid[1] for kid in kids])
        return dtype, tuple([evaluate(root, dict(zip(places, row))) for row in rows])

    def _leaf(self, node: UOp) -> tuple[Any, ...]:
        # by what the leaf is: the same in every graph and process
        rng = random.Random(f"{self.seed} {node.key}")
        if node.dtype.is_float:
            picks = [rng.choice((*_FLOATS, rng.uniform(-100, 100))) for _ in range(self.points)]
            return tuple(node.dtype.const(pick) for pick in picks)
        low, high = max(node.vmin, -_FAR), min(node.vmax, _FAR)
        ends = (low, high, min(low + 1, high), max(high - 1, low))
        picks = [
            rng.choice(ends) if i % 3 == 0 else rng.randint(int(low), int(high))
            for i in range(self.points)
        ]
        return tuple(node.dtype.const(pick) for pick in picks)

    def merge(self, a: Any, b: Any) -> Values:
        if a is None or b is None:
            return a or b  # type: ignore[no-any-return]
        for x, y in zip(a[1], b[1]):
            if repr(x) != repr(y):
                raise ValueError(f"at one point one is {x!r}, the other {y!r}")
        return a  # type: ignore[no-any-return]


def _place(i: int, dtype: DType) -> UOp:
    return UOp(Ops.VAR, dtype, (), (f"?{i}", dtype.min, dtype.max))
