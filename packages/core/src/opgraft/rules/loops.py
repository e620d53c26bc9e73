"""`Loops`: how often the loops of a graph have a value computed, hoisted as far as can be.

A value stands in the innermost of the loops that it depends on, and in all loops around that one.
So a term of an outer loop alone costs next to nothing beside one of the innermost loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.rules.sums import range_key

_CLOSING: Final = frozenset({Ops.END, Ops.REDUCE, Ops.SCAN})


class Loops:
    """The loops of a graph, and the share of its innermost iterations that a value is computed in.

    Sets of ranges are bits of a number (`mask`): an e-graph has many of them.

    >>> i, j = UOp.range(10, 0), UOp.range(20, 1)
    >>> loops = Loops(i * 20 + j)
    >>> loops.share(j), loops.share(i * 20)
    (1.0, 0.05)
    """

    def __init__(self, *roots: UOp) -> None:
        self._bits: Final[dict[UOp, int]] = {}
        self._masks: Final[dict[UOp, int]] = {}
        outer: dict[UOp, int] = {}
        nodes = roots[0].toposort() if len(roots) == 1 else toposort(roots)
        for n in nodes:
            if n.op is Ops.RANGE:
                self._bits[n] = 1 << len(self._bits)
                outer[n] = 0
        self.learn(nodes)
        closed: dict[UOp, None] = {}
        for n in nodes:
            if n.op in _CLOSING:
                around = self._masks[n]
                for r in sorted(n.src[1:], key=range_key):
                    if r.op is Ops.RANGE:
                        outer[r] |= around
                        around |= self._bits[r]
                        closed[r] = None
        around = 0
        for r in sorted((r for r in outer if r not in closed), key=range_key):
            # what no statement closes nests in the order of its names
            outer[r] |= around
            around |= self._bits[r]
        extents = [_extent(r) for r in outer]
        self._turns: Final = [
            math.prod(e for place, e in enumerate(extents) if (others | own) >> place & 1)
            for others, own in zip(outer.values(), self._bits.values())
        ]
        self._most: Final = max(self._turns, default=1.0)
        self._shares: Final[dict[int, float]] = {0: 1.0 / self._most}

    def learn(self, nodes: Iterable[UOp]) -> None:
        """Note on which loops these nodes depend, sources first: quicker than to ask each."""
        masks, bits = self._masks, self._bits
        for n in nodes:
            if n in masks:
                continue
            mask = 0
            for s in n.src:
                mask |= masks[s]
            if n.op is Ops.RANGE:
                mask |= bits.get(n, 0)
            elif n.op is Ops.REDUCE or n.op is Ops.END:
                mask &= ~self.mask(n.src[1:])
            masks[n] = mask

    def mask(self, ranges: Iterable[UOp]) -> int:
        """Bits of these ranges; of those that the graph does not have: none."""
        found = 0
        for r in ranges:
            found |= self._bits.get(r, 0)
        return found

    def share_of(self, mask: int) -> float:
        """How often a value of these ranges is computed, per innermost iteration."""
        known = self._shares.get(mask)
        if known is None:
            turns = [t for place, t in enumerate(self._turns) if mask >> place & 1]
            known = self._shares[mask] = max(turns) / self._most
        return known

    def share(self, n: UOp) -> float:
        """How often a node's value is computed, per innermost iteration."""
        mask = self._masks.get(n)
        return self.share_of(self.mask(n.ranges) if mask is None else mask)


def _extent(r: UOp) -> float:
    """The trip count; of a loop whose size varies, the most that it can be."""
    most = r.src[0].vmax
    return max(1.0, float(most))
