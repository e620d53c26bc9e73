"""What each instruction of a linear program does to a running frame (see executor.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from opgraft.api import Ops, Space, UOp, errors, node_to_text
from opgraft.devices.interp.alu import OPS, Array, Function, function_of
from opgraft.devices.interp.memory import Fail, Memory, places_of, poison


@dataclass
class Frame:
    """One run: the value of every node by its slot, and what is active."""

    values: list[Any]
    begin: int
    end: int | None
    instances: int = 1
    mask: Array | None = None
    loops: list[Loop] = field(default_factory=list)


@dataclass
class Loop:
    """A loop that is running."""

    index: int
    last: int
    sizes: Array
    mask: Array | None
    step: int = 1


Action: TypeAlias = Callable[[Frame], None]
SlotOf: TypeAlias = Callable[[UOp], int]


def both(mask: Array | None, condition: Array) -> Array:
    return condition if mask is None else mask & condition


def action_of(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    """The action of one instruction; `slot_of` says where the values of nodes are kept."""
    if n.op in OPS:
        function = function_of(n.op, n.dtype, n.src[0].dtype)
        return _elementwise(function, slot_of(n), [slot_of(s) for s in n.src])
    make = _ACTIONS.get(n.op)
    if make is None:
        raise errors.DeviceError(
            f"kernel {kernel!r}: INTERP has no {n.op.name}: {node_to_text(n)}",
            remedy="Lowering must rewrite it for the target of INTERP.",
        )
    return make(n, slot_of, kernel)


def _elementwise(function: Function, slot: int, sources: list[int]) -> Action:
    if len(sources) == 1:
        (only,) = sources

        def unary(frame: Frame) -> None:
            frame.values[slot] = function(frame.values[only])

        return unary
    if len(sources) == 2:
        first, second = sources

        def binary(frame: Frame) -> None:
            values = frame.values
            values[slot] = function(values[first], values[second])

        return binary
    first, second, third = sources

    def ternary(frame: Frame) -> None:
        values = frame.values
        values[slot] = function(values[first], values[second], values[third])

    return ternary


def _in_register(n: UOp) -> bool:
    return n.op is Ops.LOCAL and n.arg[2] is Space.REGISTER and n.arg[1] == 1


def _local(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    slot = slot_of(n)
    dtype, size = n.dtype, n.arg[1]
    empty = np.broadcast_to(poison(dtype), (1, dtype.count))

    def register(frame: Frame) -> None:
        frame.values[slot] = empty

    def memory(frame: Frame) -> None:
        frame.values[slot] = Memory.local(frame.instances, dtype.scalar, size * dtype.count)

    return register if _in_register(n) else memory


def _load(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    slot, buffer, index = slot_of(n), slot_of(n.src[0]), slot_of(n.src[1])
    if _in_register(n.src[0]):

        def from_register(frame: Frame) -> None:
            frame.values[slot] = frame.values[buffer]

        return from_register
    lanes, fail, element = n.dtype.count, Fail(kernel, node_to_text(n)), n.src[0].dtype.count

    def load(frame: Frame) -> None:
        values = frame.values
        memory: Memory = values[buffer]
        places = places_of(values[index], element, lanes, memory.size, frame.mask, fail)
        values[slot] = memory.load(places)

    if len(n.src) == 2:
        return load
    gate, other = slot_of(n.src[2]), slot_of(n.src[3])

    def gated(frame: Frame) -> None:
        values = frame.values
        memory: Memory = values[buffer]
        active = both(frame.mask, values[gate])
        places = places_of(values[index], element, lanes, memory.size, active, fail)
        values[slot] = np.where(values[gate], memory.load(places), values[other])

    return gated


def _store(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    buffer, index, value = (slot_of(s) for s in n.src[:3])
    gate = slot_of(n.src[3]) if len(n.src) == 4 else None
    if _in_register(n.src[0]):

        def to_register(frame: Frame) -> None:
            values = frame.values
            active = frame.mask if gate is None else both(frame.mask, values[gate])
            new = values[value]
            values[buffer] = new if active is None else np.where(active, new, values[buffer])

        return to_register
    lanes, fail, element = n.src[2].dtype.count, Fail(kernel, node_to_text(n)), n.src[0].dtype.count

    def store(frame: Frame) -> None:
        values = frame.values
        memory: Memory = values[buffer]
        active = frame.mask if gate is None else both(frame.mask, values[gate])
        places = places_of(values[index], element, lanes, memory.size, active, fail)
        memory.store(places, values[value], active)

    return store


def _stack(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    slot, sources = slot_of(n), [slot_of(s) for s in n.src]

    def stack(frame: Frame) -> None:
        parts = [frame.values[s] for s in sources]
        rows = max(p.shape[0] for p in parts)
        frame.values[slot] = np.concatenate([np.broadcast_to(p, (rows, 1)) for p in parts], axis=1)

    return stack


def _broadcast(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    slot, source, lanes = slot_of(n), slot_of(n.src[0]), n.dtype.count

    def broadcast(frame: Frame) -> None:
        value = frame.values[source]
        frame.values[slot] = np.broadcast_to(value, (value.shape[0], lanes))

    return broadcast


def _extract(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    slot, source, lane = slot_of(n), slot_of(n.src[0]), n.arg

    def extract(frame: Frame) -> None:
        frame.values[slot] = frame.values[source][:, lane : lane + 1]

    return extract


def _across_lanes(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    """The lanes combined in halves: the order inside a reduction is free."""
    slot, source = slot_of(n), slot_of(n.src[0])
    combine = function_of(n.arg, n.dtype, n.dtype)

    def across(frame: Frame) -> None:
        value = frame.values[source]
        while value.shape[1] > 1:
            half = value.shape[1] // 2
            rest = value[:, 2 * half :]
            value = combine(value[:, :half], value[:, half : 2 * half])
            if rest.shape[1]:
                value = np.concatenate([value, rest], axis=1)
        frame.values[slot] = value

    return across


def _nothing(n: UOp, slot_of: SlotOf, kernel: str) -> Action:
    return lambda frame: None


_ACTIONS: Final[dict[Ops, Callable[[UOp, SlotOf, str], Action]]] = {
    Ops.LOCAL: _local,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.STACK: _stack,
    Ops.BROADCAST: _broadcast,
    Ops.EXTRACT: _extract,
    Ops.HREDUCE: _across_lanes,
    Ops.BARRIER: _nothing,
}
