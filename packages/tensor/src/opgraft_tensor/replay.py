"""A recorded call, made ready to be carried out again with other inputs.

Before: a recording (capture.py), which knows the buffers of one call. After: lists of launches
whose inputs and results are exchanged at each replay, so that no result shares memory with
another call's; what lives only inside is packed into one arena per device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from opgraft.errors import OpgraftError
from opgraft.forking import ForkLock
from opgraft_tensor.capture import (
    Address,
    Copied,
    Event,
    Filled,
    Known,
    Launched,
    Recording,
    known_argument,
)
from opgraft_tensor.devices import open_device
from opgraft_tensor.exchange import fill_buffer, host_values
from opgraft_tensor.late import np
from opgraft_tensor.memory import Life, arrange
from opgraft_tensor.storage import Storage
from opgraft_tensor.tensor import Tensor

if TYPE_CHECKING:
    from opgraft.runtime.buffer import Buffer
    from opgraft.runtime.device import Device
    from opgraft.runtime.program import Step

Run: TypeAlias = "Callable[[Sequence[Buffer]], object]"
"""A part of a replay, given the buffers of inputs and results."""


class Stale(OpgraftError):
    """What was recorded no longer fits: a tensor that the function knew is gone or another."""


class Replay:
    """A recording that can be carried out any number of times, by one thread at a time."""

    def __init__(self, recording: Recording) -> None:
        self._lock: Final = ForkLock()
        self.results: Final = recording.results
        self.cleared: Final = recording.cleared
        self._bare = recording.bare
        self._apart = {id(k.reference()): k.reference for k in recording.apart}
        self._supplied = recording.supplied
        self._inputs = [
            (address, s.shape, s.dtype, s.device) for s, address in recording.inputs.items()
        ]
        events = list(recording.events)
        values = _with_own_memory(recording, events)
        fresh = dict.fromkeys(s for s in values if s in recording.made)
        self._outputs = [(open_device(s.device), s.shape, s.dtype, s.nbytes) for s in fresh]
        exchanged = [*recording.inputs, *fresh]
        place = {s: number for number, s in enumerate(exchanged)}
        self._values: list[tuple[int | Storage, Address | None]] = [
            (place[s] if s in place else _constant(s), address)
            for s, (_, address) in zip(values, recording.values)
        ]
        self._left = [
            address
            for address in (*[a for _, a in self._values], *recording.results)
            if isinstance(address, Known) and address.reference() is not None
        ]
        """Tensors that must be there: what the function moved, put somewhere, or returned."""
        self.passed: Final = frozenset(
            number
            for number, (value, _) in enumerate(self._values)
            if not isinstance(value, int) or value < len(recording.inputs)
        )
        """Values that are inputs or constants as they are: other tensors stand for them, too."""
        buffers = [fill_buffer(s) for s in exchanged]
        fixed = [s for item in self._supplied for s in item.storages]
        self._kept = [fill_buffer(s) for s in (*recording.constants, *fixed)]
        events = _packed(events, {id(b.root) for b in (*buffers, *self._kept)})
        self._runs = _runs(events, buffers)
        self.kernels: Final = sum(len(e.steps) for e in events if isinstance(e, Launched))
        """How many kernels a replay launches."""

    def run(self, arguments: Sequence[Tensor]) -> list[tuple[Storage, Address | None]]:
        """Carry it out: the memory of each value, and which tensor it is for (a new one: None).

        Raises Stale before anything is done.
        """
        if self._apart:
            for given in arguments:
                known = self._apart.get(id(given))
                if known is not None and known() is given:
                    raise known_argument()
        with self._lock:
            for owner in self._bare:
                found = owner.tensor(arguments)
                if found is None or found.grad is not None:
                    raise Stale("a tensor that had no gradient has one")
            if any(known.reference() is None for known in self._left):
                raise Stale("a tensor that the function moved, put somewhere or returned is gone")
            storages = [self._find(number, arguments) for number in range(len(self._inputs))]
            buffers = [fill_buffer(s) for s in storages]
            for device, size, dtype, nbytes in self._outputs:
                storage = Storage(size, dtype, device.name)
                storage.buffer = device.buffer(nbytes)
                storages.append(storage)
                buffers.append(storage.buffer)
            for item in self._supplied:
                for storage, value in zip(item.storages, item.make()):
                    storage.buffer.copy_in(host_values(np.asarray(value), storage.dtype))
            for run in self._runs:
                run(buffers)
        return [
            (storages[value] if isinstance(value, int) else value, address)
            for value, address in self._values
        ]

    def _find(self, number: int, arguments: Sequence[Tensor]) -> Storage:
        """The memory of an input now."""
        address, size, dtype, device = self._inputs[number]
        tensor = address.tensor(arguments)
        if tensor is None:
            raise Stale("a tensor that the function knew from elsewhere is gone")
        storage = tensor.memory()
        if storage.shape != size or storage.dtype is not dtype or storage.device != device:
            raise Stale(f"a tensor that the function knew from elsewhere is another: {tensor!r}")
        return storage


def _with_own_memory(recording: Recording, events: list[Event]) -> list[Storage]:
    """The memory of each value; of what the host supplies a copy, as the next call changes it."""
    supplied = {s for item in recording.supplied for s in item.storages}
    copies: dict[Storage, Storage] = {}
    for storage, _ in recording.values:
        if storage in supplied and storage not in copies:
            made = copies[storage] = Storage(storage.shape, storage.dtype, storage.device)
            recording.made[made] = None
            events.append(Copied(fill_buffer(made), fill_buffer(storage)))
    return [copies.get(s, s) for s, _ in recording.values]


def _constant(storage: Storage) -> Storage:
    """A value that is the same in every call: they share it, so nobody may write it."""
    storage.pinned = True
    return storage


# ---- memory that lives inside only


def _packed(events: list[Event], outside: set[int]) -> list[Event]:
    """The events with all other buffers in one arena per device.

    `outside` holds the ids of the buffers that inputs, results and constants are in.
    """
    used: dict[int, tuple[Buffer, list[int]]] = {}
    when = 0
    for event in events:
        for touched in _touched(event):
            for buffer in touched:
                if id(buffer.root) not in outside:
                    used.setdefault(id(buffer.root), (buffer.root, []))[1].append(when)
            when += 1
    devices = list(dict.fromkeys(root.device for root, _ in used.values()))
    places: dict[int, tuple[Buffer, int]] = {}
    for device in devices:
        own = [(key, root, at) for key, (root, at) in used.items() if root.device is device]
        offsets, total = arrange([Life(root.nbytes, at[0], at[-1]) for _, root, at in own])
        arena = device.buffer(total)
        for (key, _, _), offset in zip(own, offsets):
            places[key] = (arena, offset)

    def moved(buffer: Buffer) -> Buffer:
        found = places.get(id(buffer.root))
        if found is None:
            return buffer
        arena, offset = found
        return arena.view(offset + buffer.offset, buffer.nbytes)

    result: list[Event] = []
    for event in events:
        if isinstance(event, Launched):
            steps = tuple([(e, [moved(b) for b in given], v) for e, given, v in event.steps])
            result.append(Launched(event.device, steps))
        elif isinstance(event, Copied):
            result.append(Copied(moved(event.target), moved(event.source)))
        else:
            result.append(Filled(moved(event.target), event.content))
    return result


def _touched(event: Event) -> list[Sequence[Buffer]]:
    """The buffers of each step of an event."""
    if isinstance(event, Launched):
        return [buffers for _, buffers, _ in event.steps]
    if isinstance(event, Copied):
        return [(event.target, event.source)]
    return [(event.target,)]


# ---- what a replay calls


def _runs(events: list[Event], exchanged: list[Buffer]) -> list[Run]:
    """The parts of a replay, launches on one device in one list."""
    runs: list[Run] = []
    steps: list[Step] = []
    device: Device | None = None
    for event in (*events, None):
        if steps and not (isinstance(event, Launched) and event.device is device):
            assert device is not None
            runs.append(_launches(device, steps, exchanged))
            steps = []
        if isinstance(event, Launched):
            device = event.device
            steps += event.steps
        elif isinstance(event, Copied):
            runs.append(_copy(event, exchanged))
        elif isinstance(event, Filled):
            runs.append(_fill(event, exchanged))
    return runs


def _launches(device: Device, steps: list[Step], exchanged: list[Buffer]) -> Run:
    used = {id(b.root) for _, buffers, _ in steps for b in buffers}
    places = [place for place, b in enumerate(exchanged) if id(b.root) in used]
    run = device.prepare(steps, [exchanged[p] for p in places]).run
    if len(places) == len(exchanged):
        return run
    return lambda buffers: run([buffers[p] for p in places])


def _copy(event: Copied, exchanged: list[Buffer]) -> Run:
    target, source = _place(event.target, exchanged), _place(event.source, exchanged)
    return lambda buffers: target(buffers).copy_from(source(buffers))


def _fill(event: Filled, exchanged: list[Buffer]) -> Run:
    target, content = _place(event.target, exchanged), event.content
    return lambda buffers: target(buffers).copy_in(content)


def _place(buffer: Buffer, exchanged: list[Buffer]) -> Callable[[Sequence[Buffer]], Buffer]:
    """Where a replay finds a buffer: among those that are exchanged, or where it was."""
    for place, candidate in enumerate(exchanged):
        if candidate.root is buffer.root:
            offset, nbytes = buffer.offset - candidate.offset, buffer.nbytes
            if nbytes == candidate.nbytes:
                return lambda buffers: buffers[place]
            return lambda buffers: buffers[place].view(offset, nbytes)
    return lambda buffers: buffer
