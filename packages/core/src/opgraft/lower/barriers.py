"""Place barriers where threads of a group hand each other values through memory.

Before: a linear program with a launch; what one thread of a group writes to shared memory may be
read by another at any later instruction. After: a BARRIER stands between any two instructions of
which one may touch what another thread touches in the other, unless both only read; in a loop
also between the end of one iteration and the next. No barrier stands under a condition, or in a
loop, that differs between threads of a group: it goes in front of it.

Shared memory is all group memory, and the parameters that the caller names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import Final

from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir.launch import varies_in_group
from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import Ops, Space
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.neighbours import linear_terms

_BARRIER: Final = UOp(Ops.BARRIER, dtypes.void)
_ACCESS: Final = frozenset({Ops.LOAD, Ops.STORE, Ops.ATOMIC})

Accesses = dict[UOp, dict[UOp, None]]  # buffer -> instructions


@dataclass
class _Block:
    """A loop, a condition or the whole kernel, with its barriers."""

    opener: UOp | None
    items: list[UOp] = field(default_factory=list)
    exposed: Accesses = field(default_factory=dict)
    """Accesses that no barrier of the block stands before."""
    pending: Accesses = field(default_factory=dict)
    """Accesses that no barrier of the block stands behind."""
    has_barrier: bool = False
    passes_barrier: bool = False
    """Whether a barrier is passed each time that the block is carried out."""


def place_barriers(program: LinearProgram, shared: frozenset[int]) -> LinearProgram:
    """The program with barriers; `shared` holds slots whose buffers threads of a group share.

    Raises LoweringError where one is needed that not all threads would reach.
    """
    if prod(program.launch[1]) <= 1:
        return program

    def is_shared(buffer: UOp) -> bool:
        if buffer.op is Ops.PARAM:
            return buffer.arg[0] in shared
        return bool(buffer.arg[2] is Space.GROUP)

    stack = [_Block(None)]
    for n in program.instructions:
        if n.op in (Ops.RANGE, Ops.IF):
            stack.append(_Block(n))
        elif n.op in (Ops.END, Ops.ENDIF):
            _close(program, stack.pop(), n, stack[-1])
        else:
            top = stack[-1]
            if n.op is Ops.BARRIER:
                _settle(top)
            elif n.op in _ACCESS and is_shared(n.src[0]):
                _meet(top, {n.src[0]: {n: None}})
            top.items.append(n)
    return replace(program, instructions=tuple(stack[0].items))


def _settle(block: _Block) -> None:
    """A barrier stands here."""
    block.pending = {}
    block.has_barrier = block.passes_barrier = True


def _meet(block: _Block, accesses: Accesses) -> None:
    """The accesses come next: with a barrier before them, if what is pending needs one."""
    if _conflict(block.pending, accesses):
        block.items.append(_BARRIER)
        _settle(block)
    if not block.passes_barrier:
        _join(block.exposed, accesses)
    _join(block.pending, accesses)


def _close(program: LinearProgram, block: _Block, end: UOp, around: _Block) -> None:
    """Put a finished block into the one around it."""
    assert block.opener is not None
    opener = block.opener
    if opener.op is Ops.RANGE and _conflict(block.pending, block.exposed):
        # the next iteration begins with what this one ends with
        block.items.insert(0, _BARRIER)
        block.exposed = {}
        block.has_barrier = block.passes_barrier = True
    if block.has_barrier and _differs(opener.src[0]):
        what = "loop" if opener.op is Ops.RANGE else "condition"
        raise LoweringError(
            f"kernel {program.name}: threads of a group hand each other values in a {what} that "
            "differs between them",
            remedy="Pad the axis, so that every thread takes part and gates guard its accesses.",
        )
    if _conflict(around.pending, block.exposed):
        around.items.append(_BARRIER)
        _settle(around)
    if not around.passes_barrier:
        _join(around.exposed, block.exposed)
    around.has_barrier |= block.has_barrier
    if block.passes_barrier and opener.op is Ops.RANGE and opener.src[0].vmin >= 1:
        _settle(around)
    _join(around.pending, block.pending)
    around.items += [opener, *block.items, end]


def _differs(condition: UOp) -> bool:
    """Whether a condition or extent may differ between threads of a group."""
    return varies_in_group(condition) or any(n.op is Ops.LOAD for n in toposort((condition,)))


def _join(into: Accesses, more: Accesses) -> None:
    for buffer, instructions in more.items():
        into.setdefault(buffer, {}).update(instructions)


def _conflict(before: Accesses, after: Accesses) -> bool:
    """Whether two accesses, one of each, may touch one element from two threads."""
    return any(
        _clash(first, second)
        for buffer, instructions in after.items()
        for first in before.get(buffer, ())
        for second in instructions
    )


def _clash(first: UOp, second: UOp) -> bool:
    if first.op is Ops.LOAD and second.op is Ops.LOAD:
        return False
    if first.op is Ops.ATOMIC and second.op is Ops.ATOMIC:
        return False
    if first is second:
        return False  # a store gives each element to one thread: see opt/threads.py
    if first.op is Ops.STORE and second.op is Ops.STORE:
        return not _apart(first.src[1], second.src[1])
    return True


def _apart(first: UOp, second: UOp) -> bool:
    """Whether two indices never meet, whatever thread and iteration each is of."""
    one, other = _terms(first), _terms(second)
    if one is None or other is None or one[0] != other[0]:
        return False
    terms, difference = one[0], abs(one[1] - other[1])
    if difference == 0:
        return False
    step = gcd(*terms.values()) if terms else 0
    if step and difference % step:
        return True
    reach = sum(abs(f) * (int(n.vmax) - int(n.vmin)) for n, f in terms.items())
    return difference > reach


def _terms(index: UOp) -> tuple[dict[UOp, int], int] | None:
    """A scalar index as factors of what it is computed from, and a constant."""
    return None if index.dtype.count > 1 else linear_terms(index)
