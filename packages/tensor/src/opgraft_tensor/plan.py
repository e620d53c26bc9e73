"""From output nodes to values: plan once, run, remember the plan.

    numbered graph  (normalise.py)      the key of the plan cache
    optimized graph (stage.py)          the cheapest products
    draft           (draft.py)          kernels, and the memory of each version
    plan            (assemble.py)       arrays, launches, an arena for temporaries

A plan holds no memory and no array of the user: it says what to do with inputs by number.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from opgraft import journal, settings
from opgraft.forking import ForkLock
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.runtime.kernels import compile_kernels
from opgraft_tensor.assemble import schedule
from opgraft_tensor.devices import open_device
from opgraft_tensor.draft import Draft, draft
from opgraft_tensor.exchange import fill_buffer, host_values
from opgraft_tensor.explain import explain, headline
from opgraft_tensor.extents import bound, has_variables, in_use, unbound
from opgraft_tensor.facts import Prices
from opgraft_tensor.late import np
from opgraft_tensor.liveness import Liveness
from opgraft_tensor.normalise import Canonical, canonical, in_stages, numbered
from opgraft_tensor.recording import Recorder, recorder
from opgraft_tensor.stage import optimized
from opgraft_tensor.steps import Duplicate, Fill, Launch, Plan
from opgraft_tensor.storage import Storage, buffer_node, keep

if TYPE_CHECKING:
    from opgraft.runtime.buffer import Buffer
    from opgraft.runtime.device import Device
    from opgraft.runtime.program import Executable

PLANS: Final = 1024
"""Plans that the cache holds, by two keys each, the most recently used ones."""


class _PlanCache:
    """Plans by canonical graph, device and prices; least recently used first to go. Those of
    graphs that write nothing are known by `structure`, too."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: tuple[Any, ...]) -> Plan | None:
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
                self.hits += 1
            return found

    def put(self, key: tuple[Any, ...], plan: Plan) -> None:
        """A plan that was made, under its first key."""
        with self._lock:
            self.misses += 1
            self.name(key, plan)

    def name(self, key: tuple[Any, ...], plan: Plan) -> None:
        """A key of a plan, which may have others."""
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > 2 * PLANS:
                self._plans.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self.hits = self.misses = 0


plans: Final = _PlanCache()


def structure(outputs: Sequence[UOp]) -> tuple[tuple[Any, ...], list[Storage]] | None:
    """What tells a settled graph from others, quicker than its canonical form is made, and the
    memory that it reads, in the order of that form. None: a graph that writes."""
    parts: list[tuple[Any, ...]] = []
    storages: list[Storage] = []
    places: dict[UOp, int] = {}
    for place, n in enumerate(toposort(outputs)):
        places[n] = place
        if n.op is Ops.BUFFER:
            storage: Storage = n.arg
            parts.append((storage.shape, storage.dtype, storage.device))
            storages.append(storage)
        elif n.op is Ops.WRITE:
            return None
        else:
            parts.append((n.head, *[places[s] for s in n.src]))
    parts.append(tuple([places[o] for o in outputs]))
    return tuple(parts), storages


def planned(graph: Canonical, device: Device) -> Plan:
    """The plan of a numbered graph on a device, from the cache where it is known."""
    key = (graph.outputs, device.name, device.target, _chosen())
    found = plans.get(key)
    if found is None:
        begin = time.perf_counter()
        prices = _prices(device)
        outputs, changes = graph.outputs, list[str]()
        if not in_use() or not has_variables(outputs):  # both count elements
            outputs, changes = optimized(outputs, prices, device.target)
            outputs = in_stages(outputs)
        found = schedule(outputs, prices, device.name)
        found.changes = changes
        plans.put(key, found)
        if journal.heard():
            journal.tell("plan", headline(found), begin, text=explain(found))
    return found


_HEEDED: Final = ("FLOAT", "OPTIMIZER", "EGRAPH")
_readings: Final[list[settings.Reading]] = []
"""The settings that a plan depends on, as they were last; empty: not read yet."""


def _chosen() -> tuple[Any, ...]:
    """What they are now."""
    for known in _readings:
        if known.holds():
            return known.values
    made = settings.Reading(*_HEEDED)
    _readings[:] = [made]  # another thread, with other settings, may do so at once
    return made.values


def _prices(device: Device) -> Prices:
    return _prices_of(device.target)


@lru_cache(maxsize=64)
def _prices_of(target: Any) -> Prices:
    return Prices.of(target)


def realize(outputs: Sequence[UOp], device: str) -> list[UOp]:
    """The BUFFER of each output, computed now. The graph is settled (see realize.py)."""
    opened = open_device(device)
    told = None if in_use() else structure(outputs)
    key: tuple[Any, ...] | None = None
    if told is not None:
        parts, memory = told
        key = (parts, opened.name, opened.target, _chosen())
        plan = plans.get(key)
        if plan is not None:
            return [buffer_node(s) for s in run(plan, memory, opened)]
    wanted = list(outputs)
    live = _OnDemand(outputs)
    graph = numbered(wanted, live.writable)
    if live.asked is not None and live.asked.versions:
        # versions that a live tensor holds are made once, and found by it
        extra = list(live.asked.versions)
        graph = numbered([*wanted, *extra], live.writable)
        wanted += extra
    values: Mapping[str, int] = {}
    if in_use():
        free, bindings = unbound(graph.outputs)
        graph, values = Canonical(free, graph.storages), bindings.values
    plan = planned(graph, opened)
    if key is not None:
        plans.name(key, plan)
    found = run(plan, graph.storages, opened, values)
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
        known = recorder()
        if known is not None and not known.may_write(buffer.arg):
            return False
        if self.asked is None:
            self.asked = Liveness(self._outputs)
        return self.asked.writable(buffer)


def run(
    plan: Plan,
    storages: Sequence[Storage],
    device: Device,
    values: Mapping[str, int] = MappingProxyType({}),
) -> list[Storage]:
    """Carry out a plan with these values of its variable sizes; a storage for each output."""
    known = recorder()
    if known is not None:
        known.reads(storages)
    # before any memory is asked for: on a first run the device may still be getting ready
    missing = [step for step in plan.steps if isinstance(step, Launch) and not step.executable]
    if missing:
        for launch, made in zip(missing, compile_kernels(device, [step.sink for step in missing])):
            launch.executable = made
    results = [
        Storage(bound(size, values) if values else size, plan.arrays[a].dtype, device.name)
        for a, size in plan.results
    ]
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
    launches: list[tuple[Executable, list[Buffer], list[int]]] = []
    for step in (*plan.steps, None):
        if isinstance(step, Launch):
            assert step.executable is not None
            given = [buffers[a] for a in step.arrays]
            sizes = [values[v.arg[0]] for v in step.executable.program.variables]
            launches.append((step.executable, [b for b in given if b is not None], sizes))
            continue
        if launches:
            device.run_list(launches)
            if known is not None:
                known.launched(device, launches)
            launches = []
        if step is not None:
            _move(step, plan, buffers, known)
    if known is not None:
        known.made(results)
    return results


def _move(
    step: Fill | Duplicate, plan: Plan, buffers: list[Buffer | None], known: Recorder | None
) -> None:
    if isinstance(step, Fill):
        array, target = plan.arrays[step.array], buffers[step.array]
        values = np.full(array.shape, step.value)
        if target is not None and array.nbytes:
            content = host_values(values, array.dtype)
            target.copy_in(content)
            if known is not None:
                known.filled(target, content)
        return
    source, target = buffers[step.source], buffers[step.target]
    assert source is not None
    assert target is not None
    target.copy_from(source)
    if known is not None:
        known.copied(target, source)


def kernel_count(outputs: Sequence[UOp], prices: Prices) -> tuple[int, int]:
    """Kernels and bytes of the plan of some outputs, for reports."""
    graph = canonical(list(outputs), lambda _: False)
    made = draft(graph.outputs, prices)
    return len(made.kernels), made.bytes


__all__ = ["Draft", "Plan", "draft", "kernel_count", "planned", "realize", "run", "schedule"]
