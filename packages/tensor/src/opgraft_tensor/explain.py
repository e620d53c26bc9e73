"""What a plan decided and at what cost, as text: for `opgraft explain` and for the curious."""

from __future__ import annotations

from opgraft_tensor.cost import FORBIDDEN, Place
from opgraft_tensor.facts import label
from opgraft_tensor.steps import Array, Duplicate, Fill, Launch, Plan
from opgraft_tensor.views import size_of
from opgraft_tensor.walk import Decision


def explain(plan: Plan) -> str:
    """A line for each placement with its costs, each merge, each version, each step.

    Costs are operations per element, over computing the node once: the least was taken. A dash
    is a place that was no choice; "never" one that would change bits or lose too much.
    """
    lines = [headline(plan)]
    if plan.changes:
        lines += ["", "tensor stage", *[f"  {text}" for text in plan.changes]]
    lines += ["", "placements (operations per element: inline, local, root)"]
    lines += [_placement(d) for d in plan.decisions]
    if plan.merges:
        lines += ["", "merged kernels", *[f"  {text}" for text in plan.merges]]
    if plan.versions:
        lines += ["", "assignments", *[f"  {what}: {how}" for what, how in plan.versions]]
    lines += ["", "steps"]
    for number, step in enumerate(plan.steps):
        lines.append(f"  {number} {_step(plan, step)}")
    return "\n".join(lines)


def headline(plan: Plan) -> str:
    """Kernels, bytes that they touch, bytes of temporaries."""
    kernels = "1 kernel" if len(plan.kernels) == 1 else f"{len(plan.kernels)} kernels"
    return f"{kernels}, {_bytes(plan.touched)} touched, {_bytes(plan.arena)} of temporaries"


def _placement(decision: Decision) -> str:
    costs = decision.costs
    what = f"{decision.place.value:6s}"
    if costs is None:
        return f"  {what} {decision.why:>27s}  {label(decision.node)}"
    size = max(size_of(decision.node), 1)
    parts = []
    for place in (Place.INLINE, Place.LOCAL, Place.ROOT):
        cost = costs.get(place)
        if cost is None:
            parts.append("-")
        elif cost >= FORBIDDEN:
            parts.append("never")
        else:
            parts.append(f"{cost / size:.4g}")
    return f"  {what} {' '.join(f'{p:>8s}' for p in parts)}   {label(decision.node)}"


def _step(plan: Plan, step: Launch | Fill | Duplicate) -> str:
    if isinstance(step, Fill):
        return f"fill {_array(plan, step.array)} with {step.value}"
    if isinstance(step, Duplicate):
        return f"copy {_array(plan, step.source)} to {_array(plan, step.target)}"
    arrays = ", ".join(_array(plan, a) for a in step.arrays)
    return f"{step.sink.arg.name}({arrays})"


def _array(plan: Plan, number: int) -> str:
    array: Array = plan.arrays[number]
    role = "temporary" if array.offset is not None else "result"
    if array.slot is not None:
        role = f"input {array.slot}"
    return f"{role} {array.dtype}{list(array.shape)}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


__all__ = ["explain", "headline"]
