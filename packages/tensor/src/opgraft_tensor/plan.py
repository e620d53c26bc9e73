"""From output nodes to a plan, and to values: the list of everything else, in order.

    canonical graph (normalise.py)      the key of the plan cache
    walk            (demand.py)         where each value is kept; groups
    kernels         (emit.py)
    limits          (limits.py)         kernels over the buffer limit: cut, and walk again
    memory          (effects.py)        versions in place; a partial write refused: walk again
    arena           (memory.py)         temporaries share memory

A plan holds no memory and no array of the user: it says what to do with inputs by number.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

from opgraft.dtype import DType, Scalar
from opgraft.errors import LoweringError
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.runtime.kernels import compile_kernel
from opgraft_tensor import effects
from opgraft_tensor.demand import Decision, Orders, Walk
from opgraft_tensor.devices import open_device
from opgraft_tensor.effects import Placement, base
from opgraft_tensor.emit import Emitter, Kernel, traffic
from opgraft_tensor.exchange import fill_buffer, host_values
from opgraft_tensor.facts import Prices, label
from opgraft_tensor.graph import Shape, constant_of, shape
from opgraft_tensor.group import bytes_of
from opgraft_tensor.limits import cuts
from opgraft_tensor.liveness import Liveness
from opgraft_tensor.memory import Life, arrange
from opgraft_tensor.normalise import Canonical, canonical
from opgraft_tensor.storage import Storage, buffer_node, keep
from opgraft_tensor.views import covers, size_of

if TYPE_CHECKING:
    from opgraft.runtime.buffer import Buffer
    from opgraft.runtime.device import Device
    from opgraft.runtime.program import Executable

PLANS: Final = 1024
"""Plans that the cache holds, the most recently used ones."""


@dataclass
class Draft:
    """A plan in the making: what the passes found, for verifiers and reports."""

    outputs: tuple[UOp, ...]
    """Without the reshapes on top."""
    walk: Walk
    kernels: list[Kernel]
    """In the order in which they run."""
    placement: Placement
    rounds: int
    """How often the walk ran."""

    @property
    def bytes(self) -> int:
        """Bytes of the kernels' distinct arrays, each once per kernel."""
        return sum(traffic(k) for k in self.kernels)


@dataclass(frozen=True)
class Array:
    """Memory of a plan: an input's (`slot`), an output's (neither), or a temporary's (`offset`)."""

    shape: Shape
    dtype: DType
    slot: int | None = None
    offset: int | None = None

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass
class Launch:
    """A kernel and the arrays of its parameters, by slot."""

    sink: UOp
    arrays: tuple[int, ...]
    executable: Executable | None = None


@dataclass(frozen=True)
class Fill:
    """One value everywhere in an array."""

    array: int
    value: Scalar


@dataclass(frozen=True)
class Duplicate:
    """One array's bytes into another."""

    source: int
    target: int


@dataclass
class Plan:
    """What to do, in order, for the values of some outputs."""

    arrays: list[Array]
    steps: list[Launch | Fill | Duplicate]
    results: list[tuple[int, Shape]]
    """The array of each output, and the output's own shape."""
    arena: int
    """Bytes of the temporaries."""
    decisions: list[Decision] = field(default_factory=list)
    merges: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    @property
    def kernels(self) -> list[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]


# ---- making a plan


def draft(outputs: Sequence[UOp], prices: Prices, device: str = "CPU") -> Draft:
    """Plan the outputs of a canonical graph: kernels and placements, not yet memory.

    Outputs that are in memory already, or one value everywhere, have no kernel and are left out.
    """
    bases = tuple(
        dict.fromkeys(b for b in map(base, outputs) if b.op is not Ops.BUFFER and not _constant(b))
    )
    orders = Orders(bases, partial=frozenset(_partial_writes(bases, prices)))
    for rounds in range(1, 1000):
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
        placement = effects.place(walk, kernels, list(bases))
        if placement.failed:
            partial = orders.partial - frozenset(placement.failed)
            orders = Orders(bases, orders.stored, orders.alone, partial)
            continue
        order = effects.ordered(len(kernels), placement.before)
        return Draft(bases, walk, [kernels[i] for i in order], placement, rounds)
    raise LoweringError("planning does not come to an end")


def _constant(v: UOp) -> bool:
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
        free = (old.op is Ops.BUFFER and old.arg.writable) or (old in found and old not in outputs)
        saved = (bytes_of(n) - 2 * bytes_of(n.src[1])) * prices.dram
        if free and saved > 4 * prices.launch:
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


def schedule(outputs: Sequence[UOp], prices: Prices, device: str = "CPU") -> Plan:
    """The plan of a canonical graph (outputs of `normalise.canonical`)."""
    made = draft(outputs, prices, device)
    return _finished(outputs, made)


def _finished(outputs: Sequence[UOp], made: Draft) -> Plan:
    """Arrays, arguments and the arena of a draft."""
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
        constant = constant_of(found)
        fresh = len(arrays)
        if constant is not None and constant.op is Ops.CONST:
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
    refused = [(f"WRITE{list(shape(v))}", why) for v, why in made.placement.refused.items()]
    merges = [
        f"{a!r} takes in {b!r}: {why} {label(v)}" for a, b, why, v in made.walk.groups.log
    ]
    return Plan(arrays, steps, results, arena, made.walk.decisions, merges, refused)


# ---- running


class _PlanCache:
    """Plans by canonical graph, device and prices; least recently used first to go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: tuple[Any, ...]) -> Plan | None:
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
                self.hits += 1
            else:
                self.misses += 1
            return found

    def put(self, key: tuple[Any, ...], plan: Plan) -> None:
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > PLANS:
                self._plans.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self.hits = self.misses = 0


plans: Final = _PlanCache()


def planned(graph: Canonical, device: Device) -> Plan:
    """The plan of a canonical graph on a device, from the cache where it is known."""
    key = (graph.outputs, device.name, device.target)
    found = plans.get(key)
    if found is None:
        found = schedule(graph.outputs, _prices(device), device.name)
        plans.put(key, found)
    return found


def _prices(device: Device) -> Prices:
    return _prices_of(device.target)


@lru_cache(maxsize=64)
def _prices_of(target: Any) -> Prices:
    return Prices.of(target)


def realize(outputs: Sequence[UOp], device: str) -> list[UOp]:
    """The BUFFER of each output, computed now. The graph is settled (see realize.py)."""
    wanted = list(outputs)
    live = _OnDemand(outputs)
    graph = canonical(wanted, live.writable)
    if live.asked is not None and live.asked.versions:
        # versions that a live tensor holds are made once, and found by it
        extra = list(live.asked.versions)
        graph = canonical([*wanted, *extra], live.writable)
        wanted += extra
    found = run(planned(graph, open_device(device)), graph.storages, device)
    for version, storage in zip(wanted[len(outputs) :], found[len(outputs) :]):
        assert live.asked is not None
        for handle in live.asked.versions[version]:
            keep(handle, storage)
    return [buffer_node(s) for s in found[: len(outputs)]]


class _OnDemand:
    """Liveness, looked up when somebody asks."""

    def __init__(self, outputs: Sequence[UOp]) -> None:
        self._outputs = outputs
        self.asked: Liveness | None = None

    def writable(self, buffer: UOp) -> bool:
        if self.asked is None:
            self.asked = Liveness(self._outputs)
        return self.asked.writable(buffer)


def run(plan: Plan, storages: Sequence[Storage], device_name: str) -> list[Storage]:
    """Carry out a plan; a storage for each output."""
    device = open_device(device_name)
    results = [Storage(size, plan.arrays[a].dtype, device_name) for a, size in plan.results]
    buffers: list[Buffer | None] = [None] * len(plan.arrays)
    arena = device.buffer(plan.arena) if plan.arena else None
    for number, array in enumerate(plan.arrays):
        if array.slot is not None:
            buffers[number] = fill_buffer(storages[array.slot])
        elif array.offset is not None and arena is not None:
            buffers[number] = arena.view(array.offset, array.nbytes)
    for (number, _), storage in zip(plan.results, results):
        array = plan.arrays[number]
        if array.slot is not None:
            storages[array.slot].give_to(storage)
        else:
            buffers[number] = storage.buffer = device.buffer(array.nbytes)
    launches: list[tuple[Executable, list[Buffer], tuple[()]]] = []
    for step in plan.steps:
        if isinstance(step, Launch):
            if step.executable is None:
                step.executable = compile_kernel(device, step.sink)
            given = [buffers[a] for a in step.arrays]
            launches.append((step.executable, [b for b in given if b is not None], ()))
            continue
        if launches:
            device.run_list(launches)
            launches = []
        _move(step, plan, buffers)
    if launches:
        device.run_list(launches)
    return results


def _move(step: Fill | Duplicate, plan: Plan, buffers: list[Buffer | None]) -> None:
    import numpy as np

    if isinstance(step, Fill):
        array, target = plan.arrays[step.array], buffers[step.array]
        values = np.full(array.shape, step.value)
        if target is not None and array.nbytes:
            target.copy_in(host_values(values, array.dtype))
        return
    source, target = buffers[step.source], buffers[step.target]
    assert source is not None
    assert target is not None
    target.copy_from(source)


def kernel_count(outputs: Sequence[UOp], prices: Prices) -> tuple[int, int]:
    """Kernels and bytes of the plan of some outputs, for reports."""
    graph = canonical(list(outputs), lambda _: False)
    made = draft(graph.outputs, prices)
    return len(made.kernels), made.bytes


__all__ = ["Draft", "Plan", "draft", "kernel_count", "planned", "realize", "run", "schedule", "size_of"]
