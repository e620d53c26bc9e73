"""What a product is: a REDUCE over two factors, and the roles of the loops around it."""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.ir.loops import stride_of
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.overlap import distinct
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.axes import (
    Kernel,
    closed_by,
    constant_extent,
    known_most,
    most,
    store_of,
    stores_once,
)
from opgraft.opt.pack import factors, is_pure, weighted
from opgraft.target import Target


@dataclass(frozen=True)
class Product:
    """A REDUCE over a product, and the roles of its factors and of the loops around it."""

    reduce: UOp
    along: UOp
    """The loop that becomes lanes; `side` is the factor that varies along it."""
    across: UOp
    """The loop whose iterations share the side factor; `single` varies along this one."""
    side: UOp
    single: UOp
    lanes: int

    @property
    def columns(self) -> int:
        """Iterations of `along`."""
        return constant_extent(self.along) or 1

    @property
    def rows(self) -> int:
        """Iterations of `across`, or the most there may be."""
        return most(self.across)

    @property
    def depth(self) -> int:
        """Products of each sum, or the most there may be."""
        total = 1
        for loop in self.reduce.src[1:]:
            total *= most(loop)
        return total

    @property
    def varies(self) -> bool:
        """Whether the number of rows is known only when the kernel runs."""
        return constant_extent(self.across) is None

    @property
    def itemsize(self) -> int:
        """Bytes of a value of the single factor."""
        return self.single.dtype.itemsize


def find_product(kernel: Kernel, statement: UOp, target: Target) -> Product | None:
    """The product that a statement stores a value made of, and the roles of the loops around it.

    `statement` is an END: a fill of a buffer of the kernel's own, or one of its effects.
    """
    loops = closed_by(statement)
    store = store_of(statement)
    if store.op is not Ops.STORE or any(r.arg[1] is not AxisKind.LOOP for r in loops):
        return None
    if any(known_most(r) is None or kernel.is_scanned(r) for r in loops):
        return None
    if not distinct(store.src[1], loops) and not stores_once(store, loops):
        return None
    for reduce in reduces_of(store.src[2]):
        pair = factors(reduce)
        if len(pair) != 2 or any(known_most(r) is None for r in reduce.src[1:]):
            continue
        for along in reversed(loops):
            if stride_of(store.src[1], along) != 1 or kernel.fills_locals(along):
                continue
            if constant_extent(along) is None:
                continue
            sides = [f for f in pair if along in f.ranges]
            if len(sides) != 1 or not is_pure(sides[0]):
                continue
            side = sides[0]
            single = pair[1] if side is pair[0] else pair[0]
            across = [r for r in loops if r in single.ranges and r not in side.ranges]
            across = [r for r in across if not kernel.fills_locals(r)]
            if not across:
                continue
            widest = max(across, key=most)
            stepped = _is_stepped(reduce, side, along) and constant_extent(widest) is not None
            if stepped and is_pure(single):
                # neighbours of the result read elements apart: they become rows instead
                side, single, along, widest = single, side, widest, along
            return Product(reduce, along, widest, side, single, _lanes(along, reduce, target))
    return None


def reduces_of(value: UOp) -> list[UOp]:
    """The REDUCEs that a value is made of, not those inside of them."""
    return [n for n in toposort((value,), lambda n: n.op is not Ops.REDUCE) if n.op is Ops.REDUCE]


def _is_stepped(reduce: UOp, side: UOp, along: UOp) -> bool:
    """Whether the side factor sees windows with steps along its columns."""
    pairs = [weighted(side, along, r) for r in reduce.src[1:] if r in side.ranges]
    return any(pair is not None and pair[0] > 1 for pair in pairs)


def _lanes(along: UOp, reduce: UOp, target: Target) -> int:
    """Lanes of a vector of results: no more than there are columns."""
    lanes = max(1, target.vector_bytes // reduce.dtype.itemsize)
    while lanes > (constant_extent(along) or 1):
        lanes //= 2
    return lanes
