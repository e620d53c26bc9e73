"""Tensor programs whose cost lies in the order of their products, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from opgraft.api import Ops, UOp, using
from opgraft_tensor import Tensor
from opgraft_tensor.facts import Prices
from opgraft_tensor.graph import shape
from opgraft_tensor.normalise import numbered
from opgraft_tensor.stage import optimized

Program = Callable[..., "Tensor | Sequence[Tensor]"]


class Case:
    """A program on random inputs of some shapes."""

    def __init__(self, program: Program, *shapes: tuple[int, ...], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.program = program
        self.inputs = [rng.standard_normal(s).astype(np.float32) for s in shapes]

    def outputs(self) -> list[Tensor]:
        made = self.program(*[Tensor(x) for x in self.inputs])
        return [made] if isinstance(made, Tensor) else list(made)

    def sums(self, level: str = "reassoc", egraph: bool = True) -> list[tuple[int, ...]]:
        """The extents of the sums that are left: the kept axes, then those that are summed over."""
        with using(EGRAPH=egraph, FLOAT=level):
            found = numbered([t.uop for t in self.outputs()], lambda _: False)
            made, _ = optimized(found.outputs, Prices())
        sums = []
        for n in below(made):
            if n.op is Ops.REDUCE_AXIS and n.arg[0] is Ops.ADD:
                whole = shape(n.src[0])
                kept = [e for i, e in enumerate(whole) if i not in n.arg[1] and e != 1]
                sums.append((*kept, *[whole[a] for a in n.arg[1]]))
        return sums

    def steps(self, level: str = "reassoc", egraph: bool = True) -> int:
        return sum(prod(extents) for extents in self.sums(level, egraph))

    def same_graph(self, level: str = "reassoc") -> bool:
        """Whether the stage leaves the graph as it is written."""
        with using(EGRAPH=True, FLOAT=level):
            found = numbered([t.uop for t in self.outputs()], lambda _: False)
            return optimized(found.outputs, Prices())[0] == found.outputs

    def powers(self) -> list[tuple[int, ...]]:
        """The extents of the exponentials that are left."""
        with using(EGRAPH=True, FLOAT="reassoc"):
            found = numbered([t.uop for t in self.outputs()], lambda _: False)
            made, _ = optimized(found.outputs, Prices())
        return [shape(n) for n in below(made) if n.op is Ops.EXP]

    def values(self, level: str = "reassoc", egraph: bool = True) -> list[np.ndarray]:
        with using(EGRAPH=egraph, FLOAT=level):
            first, *rest = self.outputs()
            first.realize(*rest)
            return [t.numpy() for t in (first, *rest)]

    def exact(self) -> list[np.ndarray]:
        """The same program in float64 throughout, as it is written."""
        with using(EGRAPH=False, FLOAT="strict"):
            made = self.program(*[Tensor(x.astype(np.float64)) for x in self.inputs])
            first, *rest = [made] if isinstance(made, Tensor) else list(made)
            first.realize(*rest)
            return [t.numpy() for t in (first, *rest)]

    def error(self, level: str = "reassoc") -> float:
        """The largest error, relative to the largest value of each result."""
        pairs = zip(self.values(level), self.exact())
        return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def below(outputs: Sequence[UOp]) -> list[UOp]:
    return UOp.sink(*outputs).toposort()[:-1]
