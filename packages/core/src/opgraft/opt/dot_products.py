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
    return sink


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
