"""From a draft to a plan: arrays, the arguments of each launch, an arena for temporaries."""

from __future__ import annotations

from collections.abc import Sequence

from opgraft import settings
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.draft import Draft, draft, is_constant
from opgraft_tensor.effects import base
from opgraft_tensor.facts import Prices, label
from opgraft_tensor.graph import Shape, constant_of, shape
from opgraft_tensor.memory import Life, arrange
from opgraft_tensor.steps import Array, Duplicate, Fill, Launch, Plan
from opgraft_tensor.verify import verify


def schedule(outputs: Sequence[UOp], prices: Prices, device: str = "CPU") -> Plan:
    """The plan of a canonical graph (outputs of `normalise.canonical`)."""
    made = draft(outputs, prices, device)
    if settings.SPEC:
        verify(made)
    return assemble(made)


def assemble(made: Draft) -> Plan:
    """The plan of a draft: arrays, arguments of launches, the arena."""
    outputs = made.graph
    arrays: list[Array] = []
    number: dict[UOp, int] = {}
    steps: list[Launch | Fill | Duplicate] = []
    results: list[tuple[int, Shape]] = []
    taken: dict[int, None] = {}
    home = made.placement.home

    def array_of(v: UOp) -> int:
        v = home.get(v, v)
        found = number.get(v)
        if found is None:
            found = number[v] = len(arrays)
            slot = v.arg.number if v.op is Ops.BUFFER else None
            arrays.append(Array(shape(v), v.dtype, slot))
        return found

    for kernel in made.kernels:
        given = [array_of(v) for v in kernel.memory]
        steps.append(_launch(kernel.sink, given))
    for output in outputs:
        found = base(output)
        fresh = len(arrays)
        constant = constant_of(found)
        if constant is not None and is_constant(found):
            arrays.append(Array(shape(output), output.dtype))
            steps.append(Fill(fresh, constant.arg))
            results.append((fresh, shape(output)))
            continue
        place = array_of(found)
        if found.op is Ops.BUFFER or place in taken:
            # results share no memory: with an input, or with each other
            fresh = len(arrays)
            arrays.append(Array(shape(output), output.dtype))
            steps.append(Duplicate(place, fresh))
            place = fresh
        taken[place] = None
        results.append((place, shape(output)))
    return _arranged(arrays, steps, results, made)


def _launch(sink: UOp, given: list[int]) -> Launch:
    """A launch where parameters of one memory are one parameter."""
    distinct = list(dict.fromkeys(given))
    if len(distinct) != len(given):
        place = {a: i for i, a in enumerate(distinct)}
        changes = {
            n: UOp(Ops.PARAM, n.dtype, (), (place[given[n.arg[0]]], n.arg[1]))
            for n in sink.toposort()
            if n.op is Ops.PARAM
        }
        sink = sink.substitute(changes)
    return Launch(sink, tuple(distinct))


def _arranged(
    arrays: list[Array],
    steps: list[Launch | Fill | Duplicate],
    results: list[tuple[int, Shape]],
    made: Draft,
) -> Plan:
    """The temporaries in an arena."""
    used: dict[int, list[int]] = {}
    for when, step in enumerate(steps):
        if isinstance(step, Launch):
            touched = list(step.arrays)
        elif isinstance(step, Fill):
            touched = [step.array]
        else:
            touched = [step.source, step.target]
        for a in touched:
            used.setdefault(a, []).append(when)
    kept = {a for a, _ in results}
    temporary = [i for i, a in enumerate(arrays) if a.slot is None and i not in kept and i in used]
    lives = [Life(arrays[i].nbytes, used[i][0], used[i][-1]) for i in temporary]
    offsets, arena = arrange(lives)
    for i, offset in zip(temporary, offsets):
        old = arrays[i]
        arrays[i] = Array(old.shape, old.dtype, None, offset)
    placement = made.placement
    versions = [
        (
            label(v),
            f"fresh memory, {placement.refused[v]}" if v in placement.refused else "in place",
        )
        for k in made.kernels
        for v in k.stored
        if v.op is Ops.WRITE
    ]
    merges = [f"{a!r} takes in {b!r}: {why} {label(v)}" for a, b, why, v in made.walk.groups.log]
    return Plan(arrays, steps, results, arena, made.bytes, made.walk.decisions, merges, versions)
