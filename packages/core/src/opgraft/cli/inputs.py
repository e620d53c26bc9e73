"""What the arrays of a kernel hold while it is timed: ordinary values, places spread over arrays.

A kernel that reads rows by number is as fast as memory lets it be: with the same number
everywhere, all of it would come from the nearest cache. So integers that are used as a place are
spread over all places that there are; all other values are small and plain. The same values each
time, for all schedules of a kernel.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from random import Random
from typing import Final

from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.axes import buffer_of
from opgraft.rules.simplify import tidy

BLOCK: Final = 1 << 18
"""Elements after which an array repeats."""
SMALL: Final = 64
"""Integers that are no place are less than this, and not less than zero."""
_ACCESSES: Final = (Ops.LOAD, Ops.STORE, Ops.ATOMIC, Ops.PREFETCH)
_GATE: Final = {Ops.LOAD: 2, Ops.STORE: 3}
"""Which source of an access, if it has so many, says whether it is done."""


def content(dtype: DType, count: int, places: int | None = None, seed: int = 0) -> bytes:
    """`count` elements, spread over 0 .. `places` - 1 where that is given. Floats are from 0.5 to
    2 and of either sign, bools of either value."""
    block = _block(dtype, min(count, BLOCK), places, seed)
    whole, rest = divmod(count * dtype.itemsize, max(1, len(block)))
    return block * whole + block[:rest]


@lru_cache(maxsize=32)
def _block(dtype: DType, count: int, places: int | None, seed: int) -> bytes:
    random = Random(seed)
    size = dtype.itemsize
    if places is not None:
        codes = {array(code).itemsize: code for code in "bhiq"}
        most = min(places - 1, (1 << (8 * size - 1)) - 1)
        return array(codes[size], random.choices(range(most + 1), k=count)).tobytes()
    if dtype.is_float:
        # the sign and the mantissa are any, the exponent is that of 1, or one less
        bias = ((1 << (dtype.exponent - 1)) - 1) << dtype.mantissa
        one = 1 << dtype.mantissa
        free, fixed = (1 << (8 * size - 1)) | (2 * one - 1), bias & ~one
    else:
        free, fixed = 1 if dtype.is_bool else SMALL - 1, 0
    bits = int.from_bytes(random.randbytes(count * size), "little")
    bits &= int.from_bytes(free.to_bytes(size, "little") * count, "little")
    bits |= int.from_bytes(fixed.to_bytes(size, "little") * count, "little")
    return bits.to_bytes(count * size, "little")


def places_of(sink: UOp) -> dict[int, int]:
    """By the slot of an array of integers that are used as places: how many places there are.

    An access that nothing gates stays in its array with all of them.
    """
    accesses = [n for n in sink.toposort() if n.op in _ACCESSES]
    found: dict[UOp, int] = {}
    for access in accesses:
        if buffer_of(access.src[0]).op is Ops.PARAM:
            size = buffer_of(access.src[0]).arg[1]
            for load, places in _spread(access.src[1], size).items():
                found[load] = min(places, found.get(load, places))
    for access in accesses:
        if buffer_of(access.src[0]).op is Ops.PARAM and len(access.src) <= _GATE.get(access.op, 9):
            _keep_inside(access, found)
    slots: dict[int, int] = {}
    for load, places in found.items():
        slot = buffer_of(load.src[0]).arg[0]
        slots[slot] = min(places, slots.get(slot, places))
    return slots


def _spread(index: UOp, size: int) -> dict[UOp, int]:
    """For each integer that is loaded for an index into `size` elements: how many there may be,
    so that each step of what moves further is one of its own."""
    steps = _steps(index)
    strides = [*steps.values(), size]
    found = {}
    for leaf, step in steps.items():
        if leaf.op is Ops.LOAD:
            further = min((s for s in strides if s > step), default=size)
            found[leaf] = max(1, further // step)
    return found


def _steps(index: UOp) -> dict[UOp, int]:
    """How far one step of each loop, and of each integer from an array, moves an index."""
    found: dict[UOp, int] = {}
    stack = [(index, 1)]
    seen: dict[tuple[UOp, int], None] = {}
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        n, step = node
        if n.op is Ops.RANGE or (n.op is Ops.LOAD and n.dtype.is_int):
            if n.op is Ops.RANGE or buffer_of(n.src[0]).op is Ops.PARAM:
                found[n] = max(step, found.get(n, 1))
            continue
        factors = [abs(int(s.arg)) for s in n.src if s.op is Ops.CONST and n.op is Ops.MUL]
        values = n.src[1:] if n.op is Ops.WHERE else n.src
        further = step * (max(factors, default=1) or 1)
        stack.extend([(s, further) for s in values if s.op is not Ops.CONST])
    return found


def _keep_inside(access: UOp, found: dict[UOp, int]) -> None:
    """Fewer places for what an index is made of, until all of it is inside."""
    size = buffer_of(access.src[0]).arg[1]
    loads = [n for n in access.src[1].toposort() if n in found]
    while loads:
        numbers = {
            n: UOp.range(found[n], f"place{number}").cast(n.dtype) for number, n in enumerate(loads)
        }
        index = tidy(access.src[1].substitute(numbers))
        if (index.vmin >= 0 and index.vmax < size) or all(found[n] == 1 for n in loads):
            return
        for n in loads:
            found[n] = max(1, found[n] // 2)
