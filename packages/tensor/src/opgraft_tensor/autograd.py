"""Gradients, from graph to graph: one pass against the order of evaluation, nothing recursive.

A composite with an adjoint of its own (`algebra.with_adjoint`) is stepped over as a whole. Only
floats carry a gradient. A leaf (a tensor that requires a gradient) ends the way down.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

from opgraft.forking import ForkLock
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.adjoints import RULES
from opgraft_tensor.algebra import Adjoint, add, sum_of
from opgraft_tensor.graph import shape
from opgraft_tensor.realize import device_of

# The live owners of leaves. Where there are none, nothing needs to be looked for.
_owners: Final[weakref.WeakValueDictionary[int, object]] = weakref.WeakValueDictionary()
_lock: Final = ForkLock()


def mark_leaf(uop: UOp, owner: object) -> None:
    """Let gradients of this node belong to `owner`, a tensor, which is held weakly."""
    owners = [r for r in leaf_owners(uop) if r() is not None and r() is not owner]
    uop.remember("leaf", (*owners, weakref.ref(owner)))
    with _lock:
        _owners[id(owner)] = owner


def leaf_owners(uop: UOp) -> tuple[weakref.ref[Any], ...]:
    """The tensors whose leaf this node is, as weak references; mostly none."""
    memo = uop._memo
    return () if memo is None else memo.get("leaf", ())


def _composite(uop: UOp) -> tuple[tuple[UOp, ...], Adjoint] | None:
    memo = uop._memo
    return None if memo is None else memo.get("adjoint")


def _below(uop: UOp) -> tuple[UOp, ...]:
    """The nodes that a gradient goes on to."""
    if leaf_owners(uop) or not uop.dtype.is_float:
        return ()
    if uop.op is Ops.RESHAPE and uop.tag is not None:
        return ()
    composite = _composite(uop)
    inputs = uop.src if composite is None else composite[0]
    return tuple([s for s in inputs if s.dtype.is_float])


def differentiable_order(outputs: Sequence[UOp]) -> list[UOp]:
    """The nodes that gradients of the outputs reach, sources first."""
    seen: set[UOp] = set()
    entered: set[UOp] = set()
    order: list[UOp] = []
    stack = list(reversed(outputs))
    while stack:
        top = stack[-1]
        if top in seen:
            stack.pop()
            continue
        if top in entered:
            stack.pop()
            seen.add(top)
            order.append(top)
            continue
        entered.add(top)
        stack.extend(s for s in reversed(_below(top)) if s not in seen)
    return order


def depends_on_leaf(uop: UOp) -> bool:
    """Whether a gradient of this value would reach any leaf."""
    if not _owners:
        return False
    seen = {uop}
    stack = [uop]
    while stack:
        top = stack.pop()
        if leaf_owners(top):
            return True
        for source in _below(top):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return False


def gradients(outputs: Sequence[tuple[UOp, UOp]], wanted: Sequence[UOp]) -> dict[UOp, UOp]:
    """The gradients of sum(output * upstream) by the wanted nodes that the outputs depend on.

    `outputs` pairs each output with the upstream gradient, of its shape and dtype.
    """
    order = differentiable_order([o for o, _ in outputs])
    goal = set(wanted)
    needed: set[UOp] = set()
    for n in order:
        if n in goal or any(s in needed for s in _below(n)):
            needed.add(n)
    found: dict[UOp, UOp] = {}
    for output, upstream in outputs:
        if output in needed:
            found[output] = _sum(found.get(output), upstream)
    for n in reversed(order):
        upstream_or_none = found.get(n)
        if upstream_or_none is None:
            continue
        if n not in goal:
            del found[n]
        below = _below(n)
        if not any(s in needed for s in below):
            continue
        for source, gradient in _step(n, upstream_or_none):
            if gradient is not None and source in needed:
                found[source] = _sum(found.get(source), gradient)
    return {n: found[n] for n in wanted if n in found}


def _sum(old: UOp | None, more: UOp) -> UOp:
    return more if old is None else add(old, more)


def _step(n: UOp, upstream: UOp) -> list[tuple[UOp, UOp | None]]:
    """The gradients of what `n` was made of, brought to their shapes."""
    composite = _composite(n)
    if composite is not None:
        inputs, adjoint = composite
        parts = adjoint(n, upstream)
    elif n.op is Ops.COPY:
        inputs, source = n.src, n.src[0]
        parts = (graph.copy(upstream, device_of(source) or n.arg),)
    else:
        rule = RULES.get(n.op)
        if rule is None:
            return []
        inputs, parts = n.src, rule(n, upstream)
    return [
        (source, None if part is None else summed_to(part, shape(source)))
        for source, part in zip(inputs, parts)
    ]


def summed_to(gradient: UOp, size: graph.Shape) -> UOp:
    """A gradient of broadcast operands, summed over the axes that were expanded."""
    have = shape(gradient)
    if have == size:
        return gradient
    extra = len(have) - len(size)
    axes = [i for i, n in enumerate(have) if i < extra or (size[i - extra] == 1 and n != 1)]
    return graph.reshape(sum_of(gradient, axes), size)
