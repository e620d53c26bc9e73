"""`Fingerprint`: the values of a class at random points, an alarm for rules that do not hold.

Intervals and remainders let many wrong rules pass; two nodes that differ at one of some random
points are certainly not equal. (That they agree at all of them proves nothing.) What is loaded is
a random function of the buffer and the index; what is stored is told by where and what.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from opgraft.api import DType, GroupOp, Ops, UOp, evaluate
from opgraft_egraph.analysis import Analysis

Values: TypeAlias = "tuple[DType, tuple[Any, ...]] | None"
"""The dtype and the value at each point, of a vector a tuple of lanes; None: nothing is known of
it, nor of what is made of it."""
Row: TypeAlias = tuple[Any, ...]

_FAR: Final = 1 << 40
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float("inf"), float("-inf"), float("nan"))
_LEAVES: Final = frozenset({Ops.VAR, Ops.RANGE, Ops.SPECIAL})
_COMPUTED: Final = GroupOp.ALU - GroupOp.ELEMENTARY


class Fingerprint(Analysis):
    """Values at `points` random points, a third of them at the ends of ranges.

    Without `floats` nothing is said of floats: where rules may reassociate them, equals differ by
    rounding.
    """

    def __init__(self, points: int = 24, seed: int = 0, floats: bool = True) -> None:
        self.points: Final = points
        self.seed: Final = seed
        self.floats: Final = floats

    def make(self, node: UOp, kids: Sequence[Any]) -> Values:
        dtype = node.dtype
        if (dtype.is_float and not self.floats) or any(kid is None for kid in kids):
            return None
        rows = list(zip(*[kid[1] for kid in kids])) or [()] * self.points
        if node.is_const:
            return dtype, (_joined(_lanes(node.const_value, dtype.count)),) * self.points
        if node.op in _LEAVES:
            # by what the leaf is: the same in every graph and process
            rng = random.Random(f"{self.seed} {node.key}")
            return dtype, tuple([self._drawn(node, rng, i) for i in range(self.points)])
        if node.op in _COMPUTED:
            return dtype, self._computed(node, [kid[0] for kid in kids], rows)
        if node.op is Ops.LOAD:
            return dtype, tuple([self._loaded(node, i, *row) for i, row in enumerate(rows)])
        shown = _SHOWN.get(node.op)
        return None if shown is None else (dtype, tuple([shown(node, *row) for row in rows]))

    def _computed(self, node: UOp, of: Sequence[DType], rows: Sequence[Row]) -> Row:
        """An elementwise operation, lane by lane."""
        count = node.dtype.count
        places = tuple([_place(i, dtype.scalar) for i, dtype in enumerate(of)])
        root = UOp(node.op, node.dtype.scalar, places, node.arg)
        found: list[Any] = []
        for row in rows:
            lanes = zip(*[_lanes(value, count) for value in row])
            found.append(_joined([evaluate(root, dict(zip(places, lane))) for lane in lanes]))
        return tuple(found)

    def _loaded(self, node: UOp, i: int, buffer: Any, place: Any, *gated: Any) -> Any:
        count = node.dtype.count
        gate, instead = gated or (True, None)
        lanes = zip(_elements(place, count), _lanes(gate, count), _lanes(instead, count))
        found = []
        for at, open_, other in lanes:
            rng = random.Random(f"{self.seed} {buffer} {at}")
            found.append(self._drawn(node, rng, i) if open_ else other)
        return _joined(found)

    def _drawn(self, node: UOp, rng: random.Random, i: int) -> Any:
        """A value that the node may have, for the point of this number."""
        dtype = node.dtype.scalar
        if dtype.is_float:
            return dtype.const(rng.choice((*_FLOATS, rng.uniform(-100, 100))))
        low, high = max(node.vmin, -_FAR), min(node.vmax, _FAR)
        ends = (low, high, min(low + 1, high), max(high - 1, low))
        pick = rng.choice(ends) if i % 3 == 0 else rng.randint(int(low), int(high))
        return dtype.const(pick)

    def merge(self, a: Any, b: Any) -> Values:
        if a is None or b is None:
            return a or b  # type: ignore[no-any-return]
        for x, y in zip(a[1], b[1]):
            if repr(x) != repr(y):
                raise ValueError(f"at one point one is {x!r}, the other {y!r}")
        return a  # type: ignore[no-any-return]


def _lanes(value: Any, count: int) -> Row:
    """The value in each lane."""
    return value if isinstance(value, tuple) else (value,) * count


def _joined(lanes: Sequence[Any]) -> Any:
    """The value that has these lanes."""
    return tuple(lanes) if len(lanes) > 1 else lanes[0]


def _elements(place: Any, count: int) -> Row:
    """The index of each lane: by one index consecutive elements are meant."""
    return place if isinstance(place, tuple) else tuple(range(place, place + count))


def _stored(node: UOp, buffer: Any, place: Any, value: Any, gate: Any = True) -> Any:
    """What a store does at a point: where, and what. Behind a closed gate they are all alike."""
    count = max([len(v) for v in (place, value, gate) if isinstance(v, tuple)], default=1)
    lanes = zip(_elements(place, count), _lanes(value, count), _lanes(gate, count))
    return tuple([(buffer, at, repr(what)) for at, what, open_ in lanes if open_])


def _place(i: int, dtype: DType) -> UOp:
    return UOp(Ops.VAR, dtype, (), (f"?{i}", dtype.min, dtype.max))


_SHOWN: Final[Mapping[Ops, Callable[..., Any]]] = {
    Ops.PARAM: lambda node: node.key,
    Ops.LOCAL: lambda node: node.key,
    Ops.STORE: _stored,
    Ops.BROADCAST: lambda node, value: (value,) * node.dtype.count,
    Ops.STACK: lambda node, *values: values,
    Ops.EXTRACT: lambda node, value: value[node.arg],
    Ops.IOTA: lambda node: tuple(range(node.dtype.count)),
}
"""The value of other operations at a point."""
