"""What a term costs by itself, in the time of one elementwise addition of float32.

A contraction with a sum is a kernel: its multiplications, what it reads and writes, its launch.
Everything else is computed inside of kernels, once for each of its elements. The numbers are those
of the CPU that the project was measured on; a target's own prices of memory and launches come with
the cost model (BUFFER: a byte, MATERIALIZE: a kernel, REDUCE_AXIS: one multiplication and addition
of a product; any other op: one element).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

from opgraft.api import CostModel, GroupOp, Ops, UOp
from opgraft_egraph.tensors.forms import (
    Contraction,
    Join,
    Leaf,
    Opaque,
    View,
    extents,
)

_WORK: Final[Mapping[Ops, float]] = {
    Ops.EXP2: 10.0,
    Ops.LOG2: 13.0,
    Ops.SIN: 16.0,
    Ops.SQRT: 6.0,
    Ops.FDIV: 6.0,
    Ops.IDIV: 12.0,
    Ops.MOD: 12.0,
    Ops.THREEFRY: 120.0,
}


PREFIX: Final = "tensor."
MEASURED: Final = ("product", "sum", "byte", "cached", "cache", "launch", "exponential")
"""The prices that a target may bring, as `tensor.product` and so on among its `op_prices`."""


@dataclass(frozen=True)
class TensorPrices:
    """The constants of the model, each in elementwise additions of float32."""

    product: float = 1.0
    """A multiplication and addition of a product that reads its operands several times."""
    sum: float = 1.0
    """An element that is summed, or multiplied and summed, and read just once."""
    byte: float = 4.0
    """A byte read from or written to memory."""
    cached: float = 0.25
    """A byte of an array that fits into the cache."""
    cache: float = float(1 << 20)
    """Bytes of the largest array that does."""
    launch: float = 4000.0
    """A kernel."""
    exponential: float = 25.0
    """A power of e, with what makes it exact."""
    work: Mapping[Ops, float] = field(default_factory=lambda: _WORK)
    """An element of an elementwise operation; 1 where it is not named."""

    @staticmethod
    def of(model: CostModel) -> TensorPrices:
        """The prices with those that a model of arrays states (if none, the usual ones), and those
        that were measured on its target."""
        table = model.table
        made = USUAL
        if Ops.MATERIALIZE in table:
            made = TensorPrices(
                product=table.get(Ops.REDUCE_AXIS, USUAL.product),
                byte=table.get(Ops.BUFFER, USUAL.byte),
                launch=table[Ops.MATERIALIZE],
                work={op: price for op, price in table.items() if op not in _MEMORY},
            )
        measured = dict(model.target.op_prices) if model.target is not None else {}
        found: dict[str, Any] = {
            name: measured[PREFIX + name] for name in MEASURED if PREFIX + name in measured
        }
        return replace(made, **found) if found else made

    def of_bytes(self, count: float) -> float:
        return count * (self.byte if count > self.cache else self.cached)

    def node(self, term: UOp) -> float:
        """What a term costs by itself."""
        op, arg = term.op, term.arg
        if op is Ops.CONST or isinstance(arg, (Leaf, View)):
            return 0.0
        size = prod(extents(term))
        itemsize = term.dtype.itemsize
        if isinstance(arg, Contraction):
            return self._contraction(term, arg, size)
        if isinstance(arg, Join):
            return 2 * self.of_bytes(size * itemsize)
        if isinstance(arg, Opaque):
            if op is Ops.REDUCE_AXIS:
                read = prod(arg.shapes[0])
                return read * self.sum + self.of_bytes(read * itemsize) + self.launch
            return float(size)
        if op is Ops.EXP:
            return size * self.exponential
        return size * self.work.get(op, 1.0)

    def _contraction(self, term: UOp, arg: Contraction, size: int) -> float:
        steps = prod(arg.extents)
        if not arg.summed:
            return float(steps)
        itemsize = term.dtype.itemsize
        operands = [prod([arg.extents[name] for name in one]) for one in arg.maps]
        again = len(operands) > 1 and steps >= 4 * max(operands)
        read = [min(n, _memory_below(s)) for n, s in zip(operands, term.src)]
        traffic = sum(self.of_bytes(n * itemsize) for n in (*read, size))
        return steps * (self.product if again else self.sum) + traffic + self.launch

    def total(self, roots: tuple[UOp, ...]) -> float:
        """Of all terms below some roots, each once."""
        return sum(self.node(term) for term in UOp.sink(*roots).toposort()[:-1])


def _memory_below(term: UOp) -> int:
    """Elements of the arrays in memory that a term is computed from where it is read."""
    memo = term._memo
    if memo is not None and "memory below" in memo:
        return memo["memory below"]  # type: ignore[no-any-return]
    for n in term.toposort(lambda n: not (n._memo and "memory below" in n._memo)):
        if not (n._memo and "memory below" in n._memo):
            n.remember("memory below", _elements(n))
    return _memory_below(term)


def _elements(n: UOp) -> int:
    inline = n.op in GroupOp.ALU or isinstance(n.arg, (View, Join))
    if isinstance(n.arg, Contraction):
        inline = not n.arg.summed
    if inline:
        return sum(s._memo["memory below"] for s in n.src if s._memo)
    return prod(extents(n))


_MEMORY: Final = frozenset({Ops.REDUCE_AXIS, Ops.BUFFER, Ops.MATERIALIZE})
USUAL: Final = TensorPrices()
