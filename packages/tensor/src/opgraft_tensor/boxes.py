"""Demanded boxes: an array that is read in part is computed in part.

Before: a draft, with every demand of every stored node. After: the same graph, in which a node
that its readers never reach beyond a box of is stored as that box, with what is not read left out
(zeros, which nobody sees). A gradient that is padded and then cut is the usual case. The draft of
such a graph may be better or not, so both are made (draft.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, node, toposort
from opgraft_tensor import graph
from opgraft_tensor.extents import Extent
from opgraft_tensor.graph import Region, shape
from opgraft_tensor.walk import Walk

WORTH: Final = 1 / 16
"""Share of an array that must not be read for it to be worth another plan."""

WHOLE: Final = frozenset({Ops.WRITE, Ops.SCAN_AXIS, Ops.COPY, Ops.MATERIALIZE})
"""What is stored for its own sake, or has another meaning in part."""


def boxed(outputs: Sequence[UOp], walk: Walk, stored: Sequence[UOp]) -> tuple[UOp, ...] | None:
    """The outputs with stored nodes as the boxes that are read of them; None: all is read."""
    regions: dict[UOp, Region] = {}
    for v in stored:
        if v.op not in WHOLE and v not in walk.forced:
            region = _region(walk, v)
            if region is not None:
                regions[v] = region
    if not regions:
        return None
    found: dict[UOp, UOp] = {}
    for n in toposort(outputs):
        src = tuple([found[s] for s in n.src])
        made = n
        if src != n.src:
            made = node(n.head, src)
            made.remember("shape", shape(n))
        region = regions.get(n)
        if region is not None:
            part = graph.materialize(graph.slice_(made, region))
            widths = tuple(
                [
                    (begin, extent - begin - count)
                    for extent, (begin, count, _) in zip(shape(n), region)
                ]
            )
            made = graph.pad(part, widths)
        found[n] = made
    return tuple([found[n] for n in outputs])


def _region(walk: Walk, v: UOp) -> Region | None:
    """What all demands of a node span; None: nearly all of it."""
    extents = shape(v)
    demands = list(walk.demands.current(v))
    if not demands:
        return None
    region: list[tuple[int, int, int]] = []
    for d, extent in enumerate(extents):
        low = max(0, min(index[d].low for index in demands))
        high = min(extent - 1, max(index[d].high for index in demands))
        if isinstance(extent, Extent) or high < low:
            low, high = 0, extent - 1
        region.append((low, extent if high - low + 1 == int(extent) else high - low + 1, 1))
    if prod([count for _, count, _ in region]) > (1 - WORTH) * prod(extents):
        return None
    return tuple(region)
