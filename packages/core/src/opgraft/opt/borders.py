"""Loops whose ends, or parts, are different: split where a condition on the loop changes.

In each part the condition is settled, so that accesses move vectors there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Partition, Refused
from opgraft.opt.axes import Kernel, clauses, constant_extent

_PARTS: Final = 4
"""The most places at which a loop is split for choices."""
_SHORT: Final = 16
"""Iterations below which such a part is not worth a loop of its own."""
_BORDER: Final = 8
"""The most iterations at an end of a loop that are split off for their gates."""


def settle_gates(sink: UOp) -> UOp:
    """Split the borders off an output loop along which padded accesses are else consecutive.

    Their gates hold in all of the middle, which then moves vectors.
    """
    kernel = Kernel(sink)
    for loop in kernel.spine[-1:]:
        size = constant_extent(loop)
        gates = [
            gate
            for a in kernel.accesses
            if a.node.op is Ops.LOAD and a.stride(loop) == 1
            for gate in clauses(a.node.src[2:3])
            if loop in gate.ranges
        ]
        if size is None or not gates or kernel.has_locals:
            continue

        def settled(place: int, loop: UOp = loop, gates: list[UOp] = gates) -> bool:
            at = {loop: UOp.const(loop.dtype, place)}
            return all(g.substitute(at).vmin for g in gates)

        begin = next((i for i in range(min(_BORDER, size)) if settled(i)), None)
        end = next((i for i in range(min(_BORDER, size)) if settled(size - 1 - i)), None)
        if begin is not None and end is not None and 4 * (begin + end) <= size:
            # where a condition fails in between after all, its gate simply stays
            with suppress(Refused):
                sink = Partition(loop.arg[0], begin, size - end).apply(sink)
    return sink


def settle_choices(sink: UOp) -> UOp:
    """Split the innermost output loop where it is compared with a number: rows that are put
    together of several arrays are then copied part by part, by vectors."""
    kernel = Kernel(sink)
    if len(kernel.spine) < 2 or kernel.has_locals or kernel.reduces:
        return sink
    loop = kernel.spine[-1]
    size = constant_extent(loop) or 0
    places = {b for n in kernel.nodes if (b := _boundary(n, loop)) is not None and 0 < b < size}
    first = 0
    name = loop.arg[0]
    for place in sorted(places) if len(places) <= _PARTS else ():
        if min(place - first, size - place) < _SHORT:
            break
        try:
            sink = Partition(name, 0, place - first).apply(sink)
        except Refused:
            break
        name, first = f"{name}.z", place
    return sink


def _boundary(n: UOp, loop: UOp) -> int | None:
    """The first value of a loop for which a comparison with a number has its other result."""
    if n.op is not Ops.CMPLT or not n.src[0].dtype.is_index:
        return None  # numbers of data have no place in a loop
    (left, shift), (right, other) = (_shifted(s) for s in n.src)
    if left is loop and right is None:
        return other - shift
    if right is loop and left is None:
        return shift - other + 1
    return None


def _shifted(index: UOp) -> tuple[UOp | None, int]:
    """An index as something and a number that is added."""
    if index.op is Ops.CONST and index.dtype.is_index:
        return None, int(index.arg)
    if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
        return index.src[0], int(index.src[1].arg)
    return index, 0
