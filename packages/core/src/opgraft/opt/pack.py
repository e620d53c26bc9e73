"""`Pack`: a factor that is read again and again is written down once, as its readers walk over it.

The copy is contiguous, lies in a cache, and holds what the factor is worth: converted, padded,
transposed. So the loop that reads it moves vectors from consecutive memory, whatever the strides,
borders and dtypes of the array behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import stride_of, substitute_free
from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, replace_nodes
from opgraft.opt.axes import Kernel, constant_extent, fresh
from opgraft.rules.simplify import simplify


@writable_as_text
@dataclass(frozen=True)
class Pack(Action):
    """The factor of a product that varies along ranges is read from a packed buffer.

    `inside` names the loops that the buffer is filled inside of; it holds what all others read.
    Neighbours along `names` lie side by side, the last one's closest; around them come the loops
    of the REDUCE, and outermost the other loops. Loops that the factor depends on by their sum
    alone (a window's) share an axis. The loops of the fill are named `pack0.NAME`, `pack0` being
    the buffer.
    """

    names: tuple[object, ...]
    inside: tuple[object, ...] = ()

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        along = tuple([r for r in map(kernel.find, self.names) if r is not None])
        if len(along) != len(self.names) or not along:
            known = ", ".join(str(r.arg[0]) for r in kernel.ranges)
            raise Refused(f"not all of {self.names} are ranges; there are {known or 'none'}")
        found = [
            (reduce, factor)
            for reduce in kernel.reduces
            for factor in factors(reduce)
            if all(r in factor.ranges for r in along)
        ]
        if not found:
            raise Refused(f"no product has a factor that varies along {self.names}")
        outer = frozenset(r for r in map(kernel.find, self.inside) if r is not None)
        # what is read once gains nothing beside what is read again and again
        found = [f for f in found if _is_shared(*f, outer)] or found
        buffers: dict[UOp, UOp] = {}
        changes: dict[UOp, UOp] = {}
        for reduce, factor in found:
            if factor not in buffers:
                name = f"pack{len(buffers) + _packs(kernel)}"
                buffers[factor] = _filled(kernel, reduce, factor, along, outer, name)
            product = reduce.src[0]
            src = tuple([buffers.get(s, s) if s is factor else s for s in product.src])
            changes[reduce] = reduce.with_src((product.with_src(src), *reduce.src[1:]))
        return simplify(replace_nodes(sink, changes))


def factors(reduce: UOp) -> tuple[UOp, ...]:
    """The two factors of a sum of products; nothing for another REDUCE."""
    value = reduce.src[0]
    if reduce.arg is not Ops.ADD or value.op is not Ops.MUL or value.dtype.is_bool:
        return ()
    return value.src


def _is_shared(reduce: UOp, factor: UOp, outer: frozenset[UOp]) -> bool:
    """Whether a loop inside of `outer` reads the same of a factor in each iteration."""
    return any(r not in factor.ranges and r not in outer for r in reduce.ranges)


def is_pure(value: UOp) -> bool:
    """Whether a value is made of loads from arrays that the kernel gets, and arithmetic alone."""
    return all(
        n.op in GroupOp.ALU
        or n.op in (Ops.CONST, Ops.VAR, Ops.PARAM, Ops.RANGE)
        or (n.op is Ops.LOAD and n.src[0].op is Ops.PARAM)
        for n in value.toposort()
    )


def _packs(kernel: Kernel) -> int:
    return sum(n.op is Ops.LOCAL and str(n.arg[0]).startswith("pack") for n in kernel.nodes)


Axis = tuple[UOp, ...]
"""Loops whose sum is all that a value depends on."""


def _filled(
    kernel: Kernel,
    reduce: UOp,
    factor: UOp,
    along: tuple[UOp, ...],
    outer: frozenset[UOp],
    name: str,
) -> UOp:
    """The factor, read from a buffer that is filled in front of its readers."""
    if not is_pure(factor):
        raise Refused("the factor holds a reduction or reads a buffer of the kernel's own")
    own = [r for r in factor.ranges if r not in outer]
    if any(r in outer for r in along):
        raise Refused("the buffer would be filled inside of the loops it is to be packed along")
    for loop in own:
        if constant_extent(loop) is None:
            raise Refused(f"range {loop.arg[0]} has no constant extent")
    closed = [r for r in reduce.src[1:] if r in own]
    free = [r for r in own if r not in closed and r not in along]
    axes = _axes(factor, [*free, *closed, *along], along)
    spans = [sum((constant_extent(r) or 1) - 1 for r in axis) + 1 for axis in axes]
    size = 1
    for span in spans:
        size *= span
    memory = UOp(Ops.LOCAL, factor.dtype, (), (name, size, Space.PRIVATE))
    loops = [
        UOp.range(span, fresh(kernel, f"{name}.{axis[0].arg[0]}"), AxisKind.LOOP)
        for axis, span in zip(axes, spans, strict=True)
    ]
    changes: dict[UOp, UOp] = {}
    for axis, loop in zip(axes, loops, strict=True):
        changes[axis[0]] = loop
        changes.update((r, UOp.const(dtypes.index, 0)) for r in axis[1:])
    value = substitute_free(factor, changes)
    fill = memory.store(_place(loops, spans), value).end(*loops)
    return memory.after(fill).load(_place([_sum(axis) for axis in axes], spans))


def _place(at: Sequence[UOp], spans: Sequence[int]) -> UOp:
    """The element of these indices, the last one's neighbours side by side."""
    place: UOp = UOp.const(dtypes.index, 0)
    for index, span in zip(at, spans, strict=True):
        place = place * span + index
    return place


def _axes(value: UOp, loops: Sequence[UOp], along: tuple[UOp, ...]) -> list[Axis]:
    """The axes of a value in the order of its loops, those of `along` last."""
    axes: list[Axis] = []
    left = list(loops)
    while left:
        first = left.pop(0)
        together = [r for r in left if by_sum(value, first, r)]
        left = [r for r in left if r not in together]
        axes.append((first, *together))
    axes.sort(key=lambda axis: any(r in along for r in axis))
    return axes


def by_sum(value: UOp, first: UOp, other: UOp) -> bool:
    """Whether a value depends on two loops by their sum alone."""
    for n in value.toposort():
        if n.op is Ops.LOAD and stride_of(n.src[1], first) != stride_of(n.src[1], other):
            return False  # mostly: so what follows, which takes long, is done for windows alone
    span = (constant_extent(first) or 1) + (constant_extent(other) or 1) - 1
    total = UOp.range(span, f"{first.arg[0]}+", AxisKind.LOOP)
    at = {first: total, other: UOp.const(dtypes.index, 0)}
    alone = simplify(substitute_free(value, at))
    return simplify(substitute_free(alone, {total: first + other})) is simplify(value)


def _sum(axis: Axis) -> UOp:
    total = axis[0]
    for loop in axis[1:]:
        total = total + loop
    return total
