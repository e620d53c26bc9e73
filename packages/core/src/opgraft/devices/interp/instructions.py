"""What each instruction of a linear program does to a running frame (see executor.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from opgraft.api import Ops, Space, UOp
from opgraft.devices.interp.alu import OPS, Array, Function, function_of
from opgraft.devices.interp.frame import Frame
from opgraft.devices.interp.matrix import dot_action, matrix_action
from opgraft.devices.interp.memory import Memory, places_of, poison
from opgraft.devices.interp.place import Place

Action: TypeAlias = Callable[[Frame], None]
SlotOf: TypeAlias = Callable[[UOp], int]


def both(mask: Array | None, condition: Array) -> Array:
    return condition if mask is None else mask & condition


def action_of(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    """The action of one instruction; `slot_of` says where the values of nodes are kept."""
    if n.op in OPS:
        function = function_of(n.op, n.dtype, n.src[0].dtype)
        return _elementwise(function, slot_of(n), [slot_of(s) for s in n.src])
    make = _ACTIONS.get(n.op)
    if make is None:
        by.missing(n)
    return make(n, slot_of, by)


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


def _local(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    slot = slot_of(n)
    dtype, (name, size, _) = n.dtype, n.arg
    empty = np.broadcast_to(poison(dtype), (1, dtype.count))

    def register(frame: Frame) -> None:
        frame.values[slot] = empty

    def memory(frame: Frame) -> None:
        frame.values[slot] = Memory.local(frame.instances, dtype.scalar, size * dtype.count)

    def shared(frame: Frame) -> None:
        frame.values[slot] = Memory.shared(frame, name, dtype, size)

    if n.arg[2] is Space.GROUP:
        return shared
    return register if _in_register(n) else memory


def _load(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    slot, buffer, index = slot_of(n), slot_of(n.src[0]), slot_of(n.src[1])
    if _in_register(n.src[0]):

        def from_register(frame: Frame) -> None:
            frame.values[slot] = frame.values[buffer]

        return from_register
    lanes, element = n.dtype.count, n.src[0].dtype.count

    def load(frame: Frame) -> None:
        values = frame.values
        memory: Memory = values[buffer]
        places = places_of(frame, values[index], memory, element, lanes, frame.mask, by)
        values[slot] = memory.read(frame, places, frame.mask, by)

    if len(n.src) == 2:
        return load
    gate, other = slot_of(n.src[2]), slot_of(n.src[3])

    def gated(frame: Frame) -> None:
        values = frame.values
        memory: Memory = values[buffer]
        active = both(frame.mask, values[gate])
        places = places_of(frame, values[index], memory, element, lanes, active, by)
        found = memory.read(frame, places, active, by)
        values[slot] = np.where(values[gate], found, values[other])

    return gated


def _store(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    buffer, index, value = (slot_of(s) for s in n.src[:3])
    gate = slot_of(n.src[3]) if len(n.src) == 4 else None
    if _in_register(n.src[0]):

        def to_register(frame: Frame) -> None:
            values = frame.values
            active = frame.mask if gate is None else both(frame.mask, values[gate])
            new = values[value]
            values[buffer] = new if active is None else np.where(active, new, values[buffer])

        return to_register
    lanes, element = n.src[2].dtype.count, n.src[0].dtype.count

    def store(frame: Frame) -> None:
        values = frame.values
        memory: Memory = values[buffer]
        active = frame.mask if gate is None else both(frame.mask, values[gate])
        places = places_of(frame, values[index], memory, element, lanes, active, by)
        memory.write(frame, places, values[value], active, by)

    return store


def _atomic(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    buffer, index, value = (slot_of(s) for s in n.src[:3])
    gate = slot_of(n.src[3]) if len(n.src) == 4 else None
    element = n.src[0].dtype
    combine = function_of(n.arg, element, element)

    def atomic(frame: Frame) -> None:
        values = frame.values
        memory: Memory = values[buffer]
        active = frame.mask if gate is None else both(frame.mask, values[gate])
        places = places_of(frame, values[index], memory, 1, 1, active, by)
        memory.combine(frame, places, values[value], active, combine, by)

    return atomic


def _prefetch(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    """No value comes of it, so nothing is done, wherever the index points."""

    def prefetch(frame: Frame) -> None:
        return

    return prefetch


def _stack(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    slot, sources = slot_of(n), [slot_of(s) for s in n.src]

    def stack(frame: Frame) -> None:
        parts = [frame.values[s] for s in sources]
        rows = max(p.shape[0] for p in parts)
        frame.values[slot] = np.concatenate([np.broadcast_to(p, (rows, 1)) for p in parts], axis=1)

    return stack


def _broadcast(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    slot, source, lanes = slot_of(n), slot_of(n.src[0]), n.dtype.count

    def broadcast(frame: Frame) -> None:
        value = frame.values[source]
        frame.values[slot] = np.broadcast_to(value, (value.shape[0], lanes))

    return broadcast


def _extract(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    slot, source, lane = slot_of(n), slot_of(n.src[0]), n.arg

    def extract(frame: Frame) -> None:
        frame.values[slot] = frame.values[source][:, lane : lane + 1]

    return extract


def _across_lanes(n: UOp, slot_of: SlotOf, by: Place) -> Action:
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


def _barrier(n: UOp, slot_of: SlotOf, by: Place) -> Action:
    """Instances run in lockstep: all of them are here, or the rest never comes."""

    def barrier(frame: Frame) -> None:
        grid, mask = frame.grid, frame.mask
        if grid is None:
            return
        if mask is None:
            grid.phase = grid.phase + 1
            return
        here = np.broadcast_to(mask[:, :1], (frame.instances, 1)).reshape(grid.count, grid.each)
        some, every = here.any(axis=1), here.all(axis=1)
        if (some & ~every).any():
            group = int(np.flatnonzero(some & ~every)[0])
            away = group * grid.each + int(np.flatnonzero(~here[group])[0])
            by.fail(
                frame,
                away,
                "is never reached, though other threads of the group wait there",
                "A barrier stands under no condition, and in no loop, that differs between "
                "threads of a group.",
            )
        grid.phase = grid.phase + here.reshape(-1, 1)

    return barrier


_ACTIONS: Final[dict[Ops, Callable[[UOp, SlotOf, Place], Action]]] = {
    Ops.LOCAL: _local,
    Ops.LOAD: _load,
    Ops.STORE: _store,
    Ops.STACK: _stack,
    Ops.BROADCAST: _broadcast,
    Ops.EXTRACT: _extract,
    Ops.HREDUCE: _across_lanes,
    Ops.ATOMIC: _atomic,
    Ops.PREFETCH: _prefetch,
    Ops.BARRIER: _barrier,
    Ops.DOT: dot_action,
    Ops.MATRIX: matrix_action,
}
