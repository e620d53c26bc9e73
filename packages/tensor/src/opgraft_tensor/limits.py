"""Kernels over the device's limit of buffers: where to cut them.

Nothing fails for reading too much: a node inside the expression gets memory and a kernel of its
own, so that each kernel's distinct arrays, results counted, stay within the limit.
"""

from __future__ import annotations

from opgraft.errors import LoweringError
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, toposort
from opgraft_tensor.emit import Kernel
from opgraft_tensor.walk import Walk


def cuts(walk: Walk, kernel: Kernel, limit: int) -> list[UOp]:
    """Nodes to give kernels of their own, for a kernel with more than `limit` arrays.

    A kernel of several roots is taken apart first. Raises LoweringError where a single
    operation reads more than the device takes.
    """
    roots = kernel.group.roots
    if len(roots) > 1:
        return list(roots)
    root = roots[0]
    stored = walk.groups.group_of_root

    def is_read(n: UOp) -> bool:
        return n.op is Ops.BUFFER or (n in stored and n is not root)

    below: dict[UOp, dict[UOp, None]] = {}
    found: list[UOp] = []
    for n in toposort((root,), lambda n: not is_read(n)):
        if is_read(n):
            below[n] = {n: None}
            continue
        arrays: dict[UOp, None] = {}
        for source in n.src:
            arrays.update(below[source])
        while len(arrays) > limit - 1:
            widest = max(n.src, key=lambda s: len(below[s]))
            cut = widest
            while cut.op in GroupOp.VIEW:
                cut = cut.src[0]
            if len(below[cut]) < 2:
                raise LoweringError(
                    f"{n.op.name} reads {len(arrays)} arrays, and the device takes "
                    f"{limit} for a kernel, its result included"
                )
            found.append(cut)
            below[cut] = below[widest] = {cut: None}
            arrays = {}
            for source in n.src:
                arrays.update(below[source])
        below[n] = arrays
    return list(dict.fromkeys(found))
