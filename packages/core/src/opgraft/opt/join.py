"""Loops around products that memory walks through as one become one: fewer, longer ones."""

from __future__ import annotations

from opgraft.ir.loops import stride_of
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Fuse, Refused
from opgraft.opt.axes import Kernel, constant_extent, known_most
from opgraft.opt.pack import factors


def join_loops(sink: UOp) -> UOp:
    """The kernel with neighbouring loops of its products' results joined where all indices are as
    simple after it: pixels of an image, rows of a batch, blocks of a number of rows that varies."""
    kernel = Kernel(sink)
    if not any(factors(r) for r in kernel.reduces):
        return sink
    spine = [r for r in kernel.spine if known_most(r) is not None]
    for outer, inner in zip(spine[-2::-1], spine[:0:-1], strict=False):
        if constant_extent(outer) is None and inner is spine[-1]:
            continue  # columns become vectors, of which there is a constant number
        if constant_extent(inner) is not None and _walk_as_one(kernel, outer, inner):
            try:
                return join_loops(Fuse(outer.arg[0], inner.arg[0]).apply(sink))
            except Refused:
                continue
    return sink


def _walk_as_one(kernel: Kernel, outer: UOp, inner: UOp) -> bool:
    """Whether a step of the outer loop is as long as all of the inner one, wherever they count."""
    size = constant_extent(inner) or 0
    for index in {a.index: None for a in kernel.accesses}:
        step, small = stride_of(index, outer), stride_of(index, inner)
        if small is None or step is None or step != small * size:
            return False
    return not any(_is_used(n, r) for n in kernel.nodes for r in (outer, inner))


def _is_used(n: UOp, loop: UOp) -> bool:
    """Whether a node uses the index of a loop other than for a place in memory: as a value, or in
    a condition."""
    if n.op is not Ops.CAST and not n.dtype.is_bool:
        return False
    return any(s.dtype.is_index and loop in s.ranges for s in n.src)
