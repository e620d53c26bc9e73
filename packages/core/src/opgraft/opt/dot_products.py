"""Which sums of products go to a dot instruction, where cores work through vectors."""

from __future__ import annotations

from typing import Final

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Refused
from opgraft.opt.axes import Kernel, constant_extent
from opgraft.opt.dot import Dot, multiplies
from opgraft.opt.grid_actions import Pad
from opgraft.opt.product import Product, find_product
from opgraft.target import Target

_WORK: Final = 1 << 12
"""Products of a kernel from which it is worth to make words."""
_WORD_BYTES: Final = 4


def use_dots(sink: UOp, target: Target) -> UOp:
    """The kernel with those of its products by a dot instruction for which the target has one."""
    refused: set[UOp] = set()
    while True:
        kernel = Kernel(sink)
        if not any(multiplies(u, r) for r in kernel.reduces for u in target.dot_units):
            break
        products = [find_product(kernel, e, target) for e in kernel.effects if e.op is Ops.END]
        found = next((p for p in products if p is not None and p.reduce not in refused), None)
        if found is None:
            break
        refused.add(found.reduce)
        sink = _with_dot(sink, found, target)
    return _along_memory(sink, target)


def _with_dot(sink: UOp, product: Product, target: Target) -> UOp:
    if product.rows * product.columns * product.depth < _WORK:
        return sink
    unit = next((u for u in target.dot_units if multiplies(u, product.reduce)), None)
    if unit is None:
        return sink
    loop = max(product.reduce.src[1:], key=lambda r: constant_extent(r) or 0)
    name, size = loop.arg[0], constant_extent(loop) or 0
    if size < unit.depth:
        return sink
    try:
        padded = Pad(name, unit.depth).apply(sink) if size % unit.depth else sink
        return Dot(unit, name).apply(padded)
    except Refused:
        return sink


def _along_memory(sink: UOp, target: Target) -> UOp:
    """The kernel with dot instructions for those sums, which are no product of matrices, whose
    factors are words as they lie in memory: of a matrix and a vector, of two vectors."""
    for reduce in Kernel(sink).reduces:
        unit = next((u for u in target.dot_units if multiplies(u, reduce)), None)
        if unit is None:
            continue
        loop = max(reduce.src[1:], key=lambda r: constant_extent(r) or 0)
        if (constant_extent(loop) or 0) < unit.depth * target.vector_bytes // _WORD_BYTES:
            continue
        try:
            made = Dot(unit, loop.arg[0]).apply(sink)
        except Refused:
            continue
        words = [s for n in made.toposort() if n.op is Ops.DOT for s in n.src[:2]]
        if all(word.op is Ops.BITCAST or word.is_const for word in words):
            return _along_memory(made, target)
    return sink
