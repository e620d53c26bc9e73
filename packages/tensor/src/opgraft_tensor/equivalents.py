"""The cheapest graph of the same values, by the optimizer that the settings choose.

What comes back goes through the checked constructors of graph.py, so no optimizer can hand the
planner a graph that is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from opgraft.errors import RewriteError
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, node, toposort
from opgraft.rules.optimizer import CostModel, Optimized
from opgraft.rules.simplify import optimize
from opgraft.target import Target
from opgraft_tensor import graph
from opgraft_tensor.facts import WORK, Prices
from opgraft_tensor.graph import shape


def cheapest(
    outputs: tuple[UOp, ...], prices: Prices, target: Target | None = None
) -> tuple[tuple[UOp, ...], list[str]]:
    """The cheapest graph equal to some outputs, and a line for each thing that changed."""
    sink = UOp.sink(*outputs)
    found = optimize(sink, cost=cost_model(prices, target), stage="tensor")
    if found.sink is sink:
        return outputs, [_headline(found, False)]
    made = _checked(found, outputs)
    return made, [_headline(found, True), *_changes(outputs, made)]


def cost_model(prices: Prices, target: Target | None = None) -> CostModel:
    """What an array costs, by the device's prices.

    MATERIALIZE: a kernel; BUFFER: a byte of memory; REDUCE_AXIS: a multiplication and addition of a
    product; any other op: one element.
    """
    table = {
        **WORK,
        Ops.MATERIALIZE: prices.launch,
        Ops.BUFFER: prices.dram,
        Ops.REDUCE_AXIS: 1.0,
    }
    return CostModel(table, default=1.0, target=target)


# ---- what came back


def _checked(found: Optimized, outputs: Sequence[UOp]) -> tuple[UOp, ...]:
    """The new graph by the constructors; an error if it is none."""
    known = dict.fromkeys(toposort(outputs))
    done: dict[UOp, UOp] = {}
    try:
        for n in toposort(found.sink.src):
            done[n] = _rebuilt(n, [done[s] for s in n.src], n in known)
        made = tuple([done[n] for n in found.sink.src])
        faults = [
            f"{was.dtype}{list(shape(was))} became {now.dtype}{list(shape(now))}"
            for was, now in zip(outputs, made, strict=True)
            if (shape(was), was.dtype) != (shape(now), now.dtype)
        ]
    except (TypeError, ValueError) as error:
        faults = [str(error)]
    if faults:
        raise RewriteError(
            f"what optimizer {found.optimizer} made of a tensor graph is none: {faults[0]}",
            remedy="Its rules are at fault; OPTIMIZER=greedy does without them.",
        )
    return made


def _with_sources(n: UOp, sources: Sequence[UOp]) -> UOp:
    """A node on other sources of the same shapes."""
    src = tuple(sources)
    if src == n.src:
        return n
    made = node(n.head, src)
    made.remember("shape", shape(n))
    return made


def _rebuilt(n: UOp, src: list[UOp], known: bool) -> UOp:
    op = n.op
    if known:
        return _with_sources(n, src)
    if op is Ops.RESHAPE:
        return graph.reshape(src[0], n.arg)
    if op is Ops.PERMUTE:
        return graph.permute(src[0], n.arg)
    if op is Ops.EXPAND:
        return graph.expand(src[0], n.arg)
    if op is Ops.PAD:
        return graph.pad(src[0], n.arg)
    if op is Ops.SLICE:
        return graph.slice_(src[0], n.arg)
    if op is Ops.REDUCE_AXIS:
        return graph.reduce_axis(src[0], *n.arg)
    if op is Ops.CAST:
        return graph.cast(src[0], n.dtype)
    if op in GroupOp.ALU and op is not Ops.BITCAST:
        return graph.elementwise(op, *src)
    return node(n.head, tuple(src))


# ---- the report


def _headline(found: Optimized, changed: bool) -> str:
    costs = f"cost {found.cost_before:.4g}"
    if changed:
        costs += f" -> {found.cost_after:.4g}"
    return f"{found.optimizer}: {costs}, {found.stop}, {found.seconds * 1e3:.1f} ms"


def _changes(before: Sequence[UOp], after: Sequence[UOp]) -> list[str]:
    """The sums that there are fewer of, and those that there are more of."""
    old, new = Counter(_sums(before)), Counter(_sums(after))
    lines = [f"without {text}" for text in (old - new).elements()]
    return [*lines, *[f"with    {text}" for text in (new - old).elements()]]


def _sums(outputs: Sequence[UOp]) -> Iterator[str]:
    """Each sum of a graph in words; axes of extent 1 are not worth one."""
    for n in toposort(outputs):
        if n.op is Ops.REDUCE_AXIS:
            extents = shape(n.src[0])
            kept = [e for i, e in enumerate(extents) if i not in n.arg[1] and e != 1]
            taken = " x ".join(str(extents[a]) for a in n.arg[1])
            what = "product" if n.src[0].op is Ops.MUL else n.arg[0].name.lower()
            yield f"{what} {kept} over {taken}: {prod(extents):,} steps"
