"""Kernels and their memory from a canonical graph: the passes of planning, in order.

walk     (demand.py)    where each value is kept; groups
kernels  (emit.py)
limits   (limits.py)    kernels over the buffer limit: cut, and walk again
memory   (effects.py)   versions in place; a partial write refused: walk again
boxes    (boxes.py)     arrays that are read in part: draft that, too, and take the better
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from opgraft.errors import LoweringError
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import effects
from opgraft_tensor.boxes import boxed
from opgraft_tensor.effects import Placement, base
from opgraft_tensor.emit import Emitter, Kernel, traffic
from opgraft_tensor.facts import Orders, Prices
from opgraft_tensor.graph import constant_of, shape
from opgraft_tensor.group import bytes_of
from opgraft_tensor.limits import cuts
from opgraft_tensor.views import covers
from opgraft_tensor.walk import Walk

ROUNDS: Final = 1000
"""Walks after which planning is given up; each makes the graph smaller or a choice final."""


class Draft(NamedTuple):
    """A plan in the making: what the passes found, for verifiers and reports."""

    outputs: tuple[UOp, ...]
    """Without the reshapes on top."""
    walk: Walk
    kernels: list[Kernel]
    """In the order in which they run."""
    placement: Placement
    rounds: int
    """How often the walk ran."""
    graph: tuple[UOp, ...]
    """The outputs as they were planned, reshapes and all."""

    @property
    def bytes(self) -> int:
        """Bytes of the kernels' distinct arrays, each once per kernel."""
        return sum(traffic(self.walk, k) for k in self.kernels)


def draft(outputs: Sequence[UOp], prices: Prices, device: str = "CPU") -> Draft:
    """Plan the outputs of a canonical graph: kernels and placements, not yet memory.

    Outputs that are in memory already, or one value everywhere, have no kernel and are left out.
    """
    found = _drafted(outputs, prices, device)
    smaller = boxed(outputs, found.walk, [v for k in found.kernels for v in k.stored])
    if smaller is not None:
        other = _drafted(smaller, prices, device)
        if other.bytes < found.bytes and len(other.kernels) <= len(found.kernels):
            return other
    return found


def _drafted(outputs: Sequence[UOp], prices: Prices, device: str) -> Draft:
    wanted = list(dict.fromkeys(map(base, outputs)))
    bases = tuple([b for b in wanted if b.op is not Ops.BUFFER and not is_constant(b)])
    orders = Orders(bases, partial=frozenset(_partial_writes(wanted, prices)))
    for rounds in range(1, ROUNDS + 1):
        walk = Walk(orders, prices, {}, device).run()
        kernels = _emit(walk, bases)
        wide = [k for k in kernels if len(k.memory) > prices.max_buffers]
        if wide:
            extra = [n for k in wide for n in cuts(walk, k, prices.max_buffers)]
            fresh = [n for n in extra if n not in orders.alone]
            if not fresh:
                raise LoweringError(
                    f"a kernel of {len(wide[0].memory)} arrays cannot be cut to "
                    f"{prices.max_buffers}"
                )
            more = frozenset(fresh)
            orders = Orders(bases, orders.stored | more, orders.alone | more, orders.partial)
            continue
        placement = effects.place(walk, kernels, wanted)
        if placement.failed:
            partial = orders.partial - frozenset(placement.failed)
            orders = Orders(bases, orders.stored, orders.alone, partial)
            continue
        order = effects.ordered(len(kernels), placement.before)
        made = [kernels[i] for i in order]
        return Draft(bases, walk, made, placement, rounds, tuple(outputs))
    raise LoweringError("planning does not come to an end")


def is_constant(v: UOp) -> bool:
    found = constant_of(v)
    return found is not None and found.op is Ops.CONST


def _partial_writes(outputs: Sequence[UOp], prices: Prices) -> list[UOp]:
    """WRITEs of a small part of a large array that nobody wants any more.

    A copy of the whole would cost more than a kernel for the region.
    """
    found: dict[UOp, None] = {}
    for n in UOp.sink(*outputs).toposort() if outputs else []:
        if n.op is not Ops.WRITE or covers(n.arg, shape(n)):
            continue
        old = base(n.src[0])
        free = old not in outputs and (old in found or (old.op is Ops.BUFFER and old.arg.writable))
        # the whole would be read and written
        saved = 2 * (bytes_of(n) - bytes_of(n.src[1])) * prices.byte(bytes_of(n))
        if free and saved > 4 * prices.launch + prices.parting:
            found[n] = None
    return list(found)


def _emit(walk: Walk, outputs: Sequence[UOp]) -> list[Kernel]:
    """The kernels of all groups; producers before their readers."""
    groups = walk.groups
    needed: dict[UOp, None] = dict.fromkeys(outputs)
    living = [g for g in groups.all if g.into is None]
    for group in living:
        for root, _ in group.reads:
            if groups.find(groups.group_of_root[root]) is not group:
                needed[root] = None
    partial = [root for root in groups.group_of_root if root in walk.orders.partial]
    for root in partial:
        needed[root] = None
        if base(root.src[0]) in groups.group_of_root:
            needed[base(root.src[0])] = None
    number = {g: i for i, g in enumerate(living)}
    before = {
        number[g]: {number[p]: None for p in map(groups.find, g.producers) if p is not g}
        for g in living
    }
    for root in partial:
        old = groups.group_of_root.get(base(root.src[0]))
        if old is not None:
            before[number[groups.group_of_root[root]]][number[groups.find(old)]] = None
    order = effects.ordered(len(living), before)
    return [Emitter(walk, living[i], needed).run() for i in order]
