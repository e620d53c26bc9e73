"""`Pack`: a factor that is read again and again is written down once, as its readers walk over it.

The copy is contiguous, lies in a cache, and holds what the factor is worth: converted, padded,
transposed. So the loop that reads it moves vectors from consecutive memory, whatever the strides,
borders and dtypes of the array behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import stride_of, substitute_free
from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, keep_extents, keep_one_buffer, replace_nodes
from opgraft.opt.axes import ENDLESS, Kernel, constant_extent, free_locals, fresh, most
from opgraft.opt.places import place
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Pack(Action):
    """A factor of a product that varies along ranges is read from a packed buffer; both factors, if
    both vary along them.

    `inside` names the loops that the buffer is filled inside of; it holds what all others read.
    Neighbours along `names`, which may be loops of the REDUCE, lie side by side, the last one's
    closest; around them come the other loops of the REDUCE, and outermost all others. Loops that
    the factor depends on by their sum alone, or by a sum of multiples (a window's, with steps),
    share an axis. The loops of the fill are named `pack0.NAME`, `pack0` being the buffer.
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
        names = free_locals(kernel, "pack")
        buffers: dict[UOp, UOp] = {}
        changes: dict[UOp, UOp] = {}
        for reduce, factor in found:
            if factor not in buffers:
                buffers[factor] = _filled(kernel, reduce, factor, along, outer, next(names))
            product = changes.get(reduce, reduce).src[0]
            src = tuple([buffers[factor] if s is factor else s for s in product.src])
            changes[reduce] = reduce.with_src((product.with_src(src), *reduce.src[1:]))
        return tidy(replace_nodes(sink, changes))


def factors(reduce: UOp) -> tuple[UOp, ...]:
    """The two factors of a sum of products; nothing for another REDUCE."""
    value = reduce.src[0]
    if reduce.arg is Ops.ADD and value.op is Ops.DOT:
        return value.src[:2]  # words of factors
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
        or n.op in (Ops.CONST, Ops.VAR, Ops.PARAM, Ops.RANGE, Ops.BROADCAST)
        or (n.op is Ops.LOAD and n.src[0].op is Ops.PARAM)
        for n in value.toposort()
    )


@dataclass(frozen=True)
class Axis:
    """Loops that a value depends on only by a sum of multiples of them."""

    loops: tuple[UOp, ...]
    weights: tuple[int, ...] = (1,)

    @property
    def lead(self) -> UOp:
        """A loop that walks along the axis step by step."""
        return self.loops[self.weights.index(1)]

    @property
    def span(self) -> int:
        """The most elements along the axis."""
        return 1 + sum(w * (most(r) - 1) for r, w in zip(self.loops, self.weights, strict=True))

    @property
    def index(self) -> UOp:
        """Where its loops stand on the axis."""
        total: UOp | None = None
        for loop, weight in zip(self.loops, self.weights, strict=True):
            term = loop * weight if weight > 1 else loop
            total = term if total is None else total + term
        assert total is not None
        return total


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
    if any(n.op is Ops.LOAD and n.src[0] in kernel.written for n in factor.toposort()):
        raise Refused("the kernel stores to the array that the factor is read from")
    own = [r for r in factor.ranges if r not in outer]
    keep_one_buffer("the factor", [r for r in factor.ranges if r in outer])
    if any(r in outer for r in along):
        raise Refused("the buffer would be filled inside of the loops it is to be packed along")
    for loop in own:
        if any(r not in outer for r in loop.src[0].ranges) or loop.src[0].vmax >= ENDLESS:
            raise Refused(f"range {loop.arg[0]} has no constant extent")
        keep_extents(kernel, loop)
    closed = [r for r in reduce.src[1:] if r in own and r not in along]
    free = [r for r in own if r not in closed and r not in along]
    axes = _axes(factor, [*free, *closed, *along], along)
    spans = [axis.span for axis in axes]
    size = 1
    for span in spans:
        size *= span
    memory = UOp(Ops.LOCAL, factor.dtype, (), (name, size, Space.PRIVATE))
    loops = [_walk(kernel, axis, name) for axis in axes]
    changes: dict[UOp, UOp] = {}
    for axis, loop in zip(axes, loops, strict=True):
        changes.update((r, UOp.const(dtypes.index, 0)) for r in axis.loops)
        changes[axis.lead] = loop
    value = substitute_free(factor, changes)
    fill = memory.store(place(loops, spans), value).end(*loops)
    return memory.after(fill).load(place([axis.index for axis in axes], spans))


def _walk(kernel: Kernel, axis: Axis, name: str) -> UOp:
    """A loop along an axis; where a single one's extent varies, as far as that goes."""
    extent = axis.loops[0].src[0] if len(axis.loops) == 1 else axis.span
    return UOp.range(extent, fresh(kernel, f"{name}.{axis.loops[0].arg[0]}"), AxisKind.LOOP)


def _axes(value: UOp, loops: Sequence[UOp], along: tuple[UOp, ...]) -> list[Axis]:
    """The axes of a value in the order of its loops, those of `along` last."""
    axes: list[Axis] = []
    left = list(loops)
    while left:
        first = left.pop(0)
        together, weights = [first], [1]
        for other in list(left):
            pair = weighted(value, first, other)
            if pair is None or (len(together) > 1 and pair[0] != weights[0]):
                continue
            weights[0] = pair[0]
            together.append(other)
            weights.append(pair[1])
            left.remove(other)
        axes.append(Axis(tuple(together), tuple(weights)))
    axes.sort(key=lambda axis: any(r in along for r in axis.loops))
    return axes


def by_sum(value: UOp, first: UOp, other: UOp) -> bool:
    """Whether a value depends on two loops by their sum alone."""
    return weighted(value, first, other) == (1, 1)


@lru_cache(maxsize=256)
def weighted(value: UOp, first: UOp, other: UOp) -> tuple[int, int] | None:
    """The weights, one of them 1, of a sum of two loops that is all a value depends on of them."""
    steps: set[tuple[int, int]] = set()
    for n in value.toposort():
        if n.op is Ops.LOAD:
            one, two = stride_of(n.src[1], first), stride_of(n.src[1], other)
            if not one or not two or one < 0 or two < 0:
                return None  # mostly: so what follows, which takes long, is done for windows alone
            steps.add((one // gcd(one, two), two // gcd(one, two)))
    if len(steps) != 1:
        return None
    (weights,) = steps
    sizes = constant_extent(first), constant_extent(other)
    if 1 not in weights or None in sizes:
        return None
    axis = Axis((first, other), weights)
    if axis.span >= most(first) * most(other):
        return None  # no two of their iterations meet
    total = UOp.range(axis.span, f"{first.arg[0]}+", AxisKind.LOOP)
    at = {first: UOp.const(dtypes.index, 0), other: UOp.const(dtypes.index, 0), axis.lead: total}
    alone = tidy(substitute_free(value, at))
    same = tidy(substitute_free(alone, {total: axis.index})) is tidy(value)
    return weights if same else None
