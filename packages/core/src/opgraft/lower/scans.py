"""Where the loop of a SCAN stands among others, and where its sums are kept.

Before: SCANs over RANGEs, in a kernel whose statements have loops of their own. A SCAN carries
one register along its loop, so the other loops that it depends on stand outside of that. A loop
that ends within an iteration of the scanned one can't: then there are as many sums as it has
iterations, side by side in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir.ops import Ops, Space
from opgraft.ir.uop import UOp

_MOST_CARRIED: Final = 4096
"""Elements that the sums of one SCAN may take."""


def loops_outside(nodes: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For the range of each SCAN, the ranges that its loop must stand inside of."""
    outside: dict[UOp, dict[UOp, None]] = {}
    for n in nodes:
        if n.op is Ops.SCAN:
            others = dict.fromkeys(r for r in n.src[0].ranges if r is not n.src[1])
            outside.setdefault(n.src[1], {}).update(others)
    ends = [n for n in nodes if n.op is Ops.END] if outside else []
    found: dict[UOp, frozenset[UOp]] = {}
    for loop, around in outside.items():
        within = {r for end in ends if loop in end.ranges for r in end.src[1:]}
        inner = [r for r in around if r in within]
        beside = frozenset(inner if _iterations(inner) <= _MOST_CARRIED else ())
        found[loop] = frozenset(around) - beside
    return found


def _iterations(loops: Sequence[UOp]) -> int:
    return math.prod(int(r.src[0].vmax) for r in loops)


def sums_beside(scan: UOp, inner: Sequence[UOp], name: str) -> tuple[UOp, UOp]:
    """(memory for a sum of each iteration of the loops `inner`, the place of one iteration)."""
    count = scan.dtype.count
    size, at = count * _iterations(inner), UOp.const(dtypes.int32, 0)
    for r in inner:
        at = at * int(r.src[0].vmax) + r.cast(dtypes.int32)
    if size > _MOST_CARRIED:
        raise LoweringError(
            f"a SCAN over {scan.src[1].arg[0]} has {size} sums side by side, one for each "
            f"iteration of loops inside of it: more than {_MOST_CARRIED}",
            remedy="materialise the scanned values first, or scan after the reduction",
        )
    memory = UOp(Ops.LOCAL, scan.dtype.scalar, (), (name, size, Space.PRIVATE))
    return memory, at * count if count > 1 else at
