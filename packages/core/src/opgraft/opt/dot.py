"""`Dot`: a sum of products of narrow numbers by a dot instruction.

Neighbours along the loop that is summed over become the parts of words. A word is a number like
any other: it is packed, kept in registers and spread over lanes as a factor is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.matrix import DotUnit
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, replace_nodes, sized_loop
from opgraft.opt.axes import Kernel, closed_by, rename
from opgraft.opt.narrow import multiplied, narrowed
from opgraft.opt.neighbours import together
from opgraft.rules.simplify import tidy

_WORD: Final = dtypes.int32


@writable_as_text
@dataclass(frozen=True)
class Dot(Action):
    """Sums of products over the loop `depth` are carried out by a dot instruction, as many
    iterations at once as its words have parts; NAME.o counts them.

    An instruction for unsigned by signed numbers does for signed by signed ones: 128 is added to
    those of one factor, and so many times the sum of the other is taken off the result.
    """

    unit: DotUnit
    depth: object

    def change(self, sink: UOp) -> UOp:
        kernel, unit = Kernel(sink), self.unit
        loop, size = sized_loop(kernel, self.depth)
        if size % unit.depth:
            raise Refused(
                f"{unit.name} takes {unit.depth} iterations at once; range {self.depth} of {size} "
                "is no multiple: pad it"
            )
        if loop.arg[1] not in (AxisKind.LOOP, AxisKind.REDUCE):
            raise Refused(f"range {self.depth} is of kind {loop.arg[1].name} already")
        closers = kernel.closers[loop]
        if not closers or any(n.op is not Ops.REDUCE for n in closers):
            raise Refused(f"range {self.depth} is no loop of sums alone")
        outer = rename(kernel, loop, ".o", loop.arg[1], size // unit.depth)
        words = _Words(unit, loop, outer, kernel.written)
        changes = {n: words.sum_of(n, _columns(kernel, n)) for n in closers}
        return tidy(replace_nodes(sink, changes))


def multiplies(unit: DotUnit, reduce: UOp) -> bool:
    """Whether an instruction does for a sum of products."""
    try:
        factors_for(unit, reduce, None)
    except Refused:
        return False
    return True


def _columns(kernel: Kernel, reduce: UOp) -> UOp | None:
    """The innermost loop of results around a sum, along which one of its factors stays."""
    for effect in kernel.effects:
        for loop in reversed(closed_by(effect)):
            if loop in reduce.ranges:
                return loop
    return None


@dataclass(frozen=True)
class _Factors:
    a: UOp
    b: UOp
    offset: int = 0
    """What a is greater by than the factor is."""


def factors_for(unit: DotUnit, reduce: UOp, columns: UOp | None) -> _Factors:
    """The factors of a sum in the dtypes of an instruction's parts. Raises Refused."""
    first, second, sums = unit.dtypes
    wraps = reduce.dtype.is_int and sums.is_int and reduce.dtype.bits <= sums.bits
    if reduce.dtype is not sums and not wraps:
        raise Refused(f"{unit.name} adds up in {sums}, the sum is {reduce.dtype}")
    x, y = multiplied(reduce)
    for one, other in ((x, y), (y, x)):
        a, b = narrowed(one, first), narrowed(other, second)
        if a is not None and b is not None:
            return _Factors(a, b)
    if columns in x.ranges:
        x, y = y, x  # the sums of what differs between lanes are vectors, as the products are
    a, b = _raised(x, first), narrowed(y, second)
    if a is None or b is None:
        raise Refused(f"{unit.name} multiplies {first} by {second}; the factors are not such")
    return _Factors(a, b, 1 << (first.bits - 1))


class _Words:
    """Factors as words of neighbours along `loop`; `outer` counts the words."""

    def __init__(self, unit: DotUnit, loop: UOp, outer: UOp, written: Collection[UOp]) -> None:
        self.unit, self.loop, self.outer = unit, loop, outer
        self.written = written
        """Arrays that the kernel stores to: which of their elements are read is to be seen."""

    def sum_of(self, reduce: UOp, columns: UOp | None) -> UOp:
        """The same sum by the instruction. Raises Refused."""
        found = factors_for(self.unit, reduce, columns)
        a, b = self._word(found.a), self._word(found.b)
        total = self._sum(reduce, a, b)
        if found.offset:
            ones = sum(1 << (self.unit.dtypes[0].bits * i) for i in range(self.unit.depth))
            total = total - self._sum(reduce, UOp.const(_WORD, ones), b) * found.offset
        return total.cast(reduce.dtype)

    def _sum(self, reduce: UOp, a: UOp, b: UOp) -> UOp:
        kind = self.unit.dtypes[2]
        made = UOp(Ops.DOT, kind, (a, b, UOp.const(kind, 0)), self.unit)
        return made.reduce(Ops.ADD, *(self.outer if r is self.loop else r for r in reduce.src[1:]))

    def _word(self, value: UOp) -> UOp:
        depth, bits = self.unit.depth, value.dtype.bits
        changes = [{self.loop: self.outer * depth + i} for i in range(depth)]
        parts = tidy(UOp.sink(*(substitute_free(value, c) for c in changes))).src
        whole = together(parts)
        if whole is not None and not any(n in self.written for n in whole.toposort()):
            return whole.bitcast(_WORD)
        word: UOp | None = None
        for number, part in enumerate(parts):
            held = part.bitcast(dtypes.uint16) if part.dtype.is_float else part
            shifted = held.cast(_WORD)
            if number < depth - 1:
                shifted = shifted & ((1 << bits) - 1)
            shifted = shifted << (number * bits) if number else shifted
            word = shifted if word is None else word | shifted
        assert word is not None
        return word


def _raised(value: UOp, dtype: DType) -> UOp | None:
    """A signed value, half the range greater, as an unsigned dtype of its width."""
    if dtype.kind != "uint":
        return None
    signed = {8: dtypes.int8, 16: dtypes.int16}[dtype.bits]
    found = narrowed(value, signed)
    return None if found is None else found.cast(dtype) ^ (1 << (dtype.bits - 1))
