"""Loops over variable sizes, in blocks of a fixed size: what a scheduler can vectorise and tile.

Before: a kernel with RANGEs whose extents are variables. After: each is a loop over blocks and a
loop within a block, and the last block is whole. Memory is laid out for the greatest size, of
which the block is a divisor, so the elements beyond the size have a place, and nobody reads them.
A reduction does not take them: there the value beyond is the identity.

Left as they are: ranges along which something is scanned, or products are summed (a choice in
between would part the multiplication from the sum), and those of a store into memory in which the
elements beyond have another owner (an assignment to a part).
"""

from __future__ import annotations

from typing import Final

import opgraft.ir  # noqa: F401  computes vmin and vmax of nodes
from opgraft.dtype import DType, Scalar
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, node

BLOCKS: Final = (64, 32, 16, 8, 4)
"""Sizes of a block: the first that divides the greatest size."""


def in_blocks(sink: UOp, kept: frozenset[UOp] = frozenset()) -> UOp:
    """The kernel with its variable loops in blocks, but for the stores into `kept` (PARAMs)."""
    order = sink.toposort()
    ranges = [n for n in order if n.op is Ops.RANGE and n.src[0].op is Ops.VAR]
    if not ranges:
        return sink
    bare: dict[UOp, None] = {}
    for n in order:
        products = n.op is Ops.REDUCE and n.src[0].op is Ops.MUL
        shared = n.op is Ops.END and n.src[0].op is Ops.STORE and n.src[0].src[0] in kept
        if n.op is Ops.SCAN or products or shared:
            bare.update(dict.fromkeys(n.src[1:]))
    blocks = {r: _block(r) for r in ranges if r not in bare}
    if not any(blocks.values()):
        return sink
    count = 1 + max(n.arg[0] for n in order if n.op is Ops.RANGE)
    parts: dict[UOp, tuple[UOp, UOp]] = {}
    done: dict[UOp, UOp] = {}
    for n in order:
        size = blocks.get(n, 0)
        if size:
            limit, (_, kind) = n.src[0], n.arg
            outer = UOp.range((limit + (size - 1)) // size, count, kind)
            inner = UOp.range(size, count + 1, kind)
            count += 2
            parts[n] = outer, inner
            done[n] = outer * size + inner
            continue
        src = tuple([done[s] for s in n.src])
        if n.op in (Ops.END, Ops.REDUCE):
            closed: list[UOp] = []
            for r in n.src[1:]:
                closed += parts[r] if r in parts else (done[r],)
            value = src[0]
            if n.op is Ops.REDUCE:
                for r in n.src[1:]:
                    if r in parts:
                        beyond = value.const_like(_identity(n.arg, value.dtype))
                        value = (done[r] < r.src[0]).where(value, beyond)
            src = (value, *closed)
        done[n] = n if src == n.src else node(n.head, src)
    return done[sink]


def _block(loop: UOp) -> int:
    most = loop.src[0].arg[2]
    return next((size for size in BLOCKS if most % size == 0), 0)


def _identity(op: Ops, dtype: DType) -> Scalar:
    if op is Ops.MAX:
        return dtype.min
    if op is Ops.MIN:
        return dtype.max
    if op is Ops.AND:
        return True if dtype.is_bool else -1
    return 1 if op is Ops.MUL else 0
