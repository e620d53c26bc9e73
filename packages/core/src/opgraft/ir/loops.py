"""Loops inside expressions: putting something in a loop index's place, strides of indices."""

from __future__ import annotations

from collections.abc import Mapping

from opgraft.dtype import dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, substitute, toposort


def substitute_free(root: UOp, changes: Mapping[UOp, UOp]) -> UOp:
    """`root` with ranges replaced where they are open; what closes them itself stays.

    So the MAX in `SUM[k](x[k] - MAX[k](x[k]))` keeps its k when the SUM's k is renamed.
    """
    done: dict[UOp, UOp] = dict(changes)
    for n in toposort((root,), lambda n: n not in changes and any(r in changes for r in n.ranges)):
        if n in done:
            continue
        if not any(r in changes for r in n.ranges):
            done[n] = n
            continue
        closed = n.src[1:] if n.op in (Ops.REDUCE, Ops.END) else ()
        inner = {r: c for r, c in changes.items() if r in closed}
        if inner:
            # a range that this node closes is its own inside, whatever it is outside
            kept = {r: c for r, c in changes.items() if r not in inner}
            done[n] = substitute((n,), kept)[0]
        else:
            done[n] = n.with_src(tuple([done[s] for s in n.src]))
    return done[root]


def split_stride(index: UOp, loop: UOp) -> tuple[UOp, int | None]:
    """(`index` at loop = 0, elements it moves per step); the stride is None if not constant.

    Looks through sums and products by constants alone: indices arrive in that normal form.
    """
    if loop not in index.ranges:
        return index, 0
    found = _terms(index, loop)
    if found is None:
        return index, None
    stride, rest = found
    if not rest:
        return UOp.const(dtypes.index, 0), stride
    kept = [n if factor == 1 else n * factor for n, factor in rest]
    base = kept[0]
    for term in kept[1:]:
        base = base + term
    return base, stride


def stride_of(index: UOp, loop: UOp) -> int | None:
    """Elements that `index` moves per step of `loop`; None if that is not constant."""
    if loop not in index.ranges:
        return 0
    found = _terms(index, loop)
    return None if found is None else found[0]


def _terms(index: UOp, loop: UOp) -> tuple[int, list[tuple[UOp, int]]] | None:
    """(elements moved per step of `loop`, the terms without it and their factors); None where that
    is not constant."""
    stride = 0
    rest: list[tuple[UOp, int]] = []
    stack = [(index, 1)]
    while stack:
        n, factor = stack.pop()
        if loop not in n.ranges:
            rest.append((n, factor))
        elif n is loop:
            stride += factor
        elif n.op is Ops.ADD:
            stack.extend([(s, factor) for s in reversed(n.src)])
        elif n.op is Ops.MUL and n.src[1].op is Ops.CONST:
            stack.append((n.src[0], factor * int(n.src[1].arg)))
        else:
            return None
    return stride, rest
