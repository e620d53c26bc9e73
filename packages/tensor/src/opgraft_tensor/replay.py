"""A recorded call, made ready to be carried out again with other inputs.

Before: a recording (capture.py), which knows the buffers of one call. After: lists of launches
whose inputs and results are exchanged at each replay, so that no result shares memory with
another call's; what lives only inside is packed into one arena per device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from opgraft.dtype import DType
from opgraft.errors import OpgraftError
from opgraft.forking import ForkLock
from opgraft.runtime.buffer import Buffer
from opgraft.runtime.device import Device
from opgraft_tensor.capture import (
    Address,
    Argument,
    Copied,
    Event,
    Filled,
    Gradient,
    Known,
    Launched,
    Recording,
    known_argument,
    undisturbed,
)
from opgraft_tensor.devices import open_device
from opgraft_tensor.exchange import fill_buffer, host_values
from opgraft_tensor.extents import bound, is_variable
from opgraft_tensor.late import np
from opgraft_tensor.memory import Life, arrange
from opgraft_tensor.recording import CaptureError
from opgraft_tensor.storage import Storage
from opgraft_tensor.tensor import Tensor

if TYPE_CHECKING:
    from opgraft.runtime.program import Step

Run: TypeAlias = "Callable[[Sequence[Buffer], Mapping[str, int]], object]"
"""A part of a replay, given the buffers of inputs and results, and values of variables."""


Value: TypeAlias = "tuple[Storage, Address | None]"
"""What a call leaves behind, and the tensor that it is for; None: a new one."""

Input: TypeAlias = "tuple[int, Callable[[Sequence[Tensor]], Tensor | None] | None, tuple[Any, ...]]"
"""Where a replay finds an input: at a place of the arguments, whose kind is known; or by a
function, and what its shape, dtype and device must be. (Plain tuples are taken apart fastest.)"""

Output: TypeAlias = "tuple[Callable[[int], Buffer], int, tuple[int, ...], DType, str]"
"""New memory that each replay makes: by what, its bytes, and the facts of its storage."""


class Stale(OpgraftError):
    """What was recorded no longer fits: a tensor that the function knew is gone or another."""


class Replay:
    """A recording that can be carried out any number of times, by one thread at a time."""

    def __init__(self, recording: Recording) -> None:
        self._lock: Final = ForkLock()
        self._results = recording.results
        self._cleared = recording.cleared
        self._bare = recording.bare
        self._apart = {id(k.reference()): k.reference for k in recording.apart}
        self._supplied = recording.supplied
        self._numbers: dict[Storage, tuple[float, Any]] = {}
        self._inputs = [_input(storage, address) for storage, address in recording.inputs.items()]
        places = [place if find is None else -1 for place, find, _ in self._inputs]
        self._in_order = len(places) if places == [*range(len(places))] else -1
        """How many inputs there are, where they are the first arguments in their order."""
        events = list(recording.events)
        followed = _followed(recording.values)
        values = _with_own_memory(recording, [s for s, _ in followed], events)
        fresh = dict.fromkeys(s for s in values if s in recording.made)
        self._outputs = [_output(storage) for storage in fresh]
        exchanged = [*recording.inputs, *fresh]
        place = {s: number for number, s in enumerate(exchanged)}
        for storage, address in followed:
            if isinstance(address, Known):
                _refuse_variable(storage)
        self._values: list[tuple[int | Storage, Address | None]] = [
            (place[s] if s in place else _constant(s), address)
            for s, (_, address) in zip(values, followed)
        ]
        self._left = [
            address
            for address in (*[a for _, a in self._values], *recording.results)
            if isinstance(address, Known) and address.reference() is not None
        ]
        """Tensors that must be there: what the function moved, put somewhere, or returned."""
        self._passed = frozenset(
            number
            for number, (value, _) in enumerate(self._values)
            if not isinstance(value, int) or value < len(recording.inputs)
        )
        """Values that are inputs or constants as they are: other tensors stand for them, too."""
        self._plain = self._new_alone()
        self._conditions = bool(self._bare or self._left)
        buffers = [fill_buffer(s) for s in exchanged]
        fixed = [s for item in self._supplied for s in item.storages]
        self._kept = [fill_buffer(s) for s in (*recording.constants, *fixed)]
        events = _packed(events, {id(b.root) for b in (*buffers, *self._kept)})
        self._runs = _runs(events, buffers)
        self.kernels: Final = sum(len(e.steps) for e in events if isinstance(e, Launched))
        """How many kernels a replay launches."""

    def _new_alone(self) -> tuple[int, ...] | None:
        """Of a call that gives new tensors and leaves nothing else behind: the memory of each
        tensor of its result, by number. None: there is more to do."""
        if self._passed or self._cleared or any(a is not None for _, a in self._values):
            return None
        found = [self._values[r][0] for r in self._results if isinstance(r, int)]
        if len(found) < len(self._results) or len(set(found)) < len(found):
            return None
        return tuple([value for value in found if isinstance(value, int)])

    def call(
        self,
        arguments: Sequence[Tensor],
        values: Mapping[str, int],
        memories: list[Storage] | None = None,
    ) -> list[Tensor]:
        """The tensors of the result, once everything that the function moves is moved.

        `values`: of the variable sizes of the arguments; `memories`: of the arguments, where they
        are known, a list for this call to use. Raises Stale before anything is done.
        """
        if self._apart:
            self._refuse_known(arguments)
        lock = self._lock
        lock.acquire()
        try:
            if self._conditions:
                self._refuse_stale(arguments)
            if memories is not None and len(memories) == self._in_order:
                storages = memories
            else:
                storages = self._memories(arguments)
            buffers = [storage.buffer or fill_buffer(storage) for storage in storages]
            for make, nbytes, size, dtype, device in self._outputs:
                storage = Storage(bound(size, values) if values else size, dtype, device)
                storage.buffer = buffer = make(nbytes)
                storages.append(storage)
                buffers.append(buffer)
            for item in self._supplied:
                for storage, value in zip(item.storages, item.make()):
                    storage.buffer.copy_in(self._converted(storage, value))
            for run in self._runs:
                run(buffers, values)
        finally:
            lock.release()
        plain = self._plain
        if plain is None:
            return self._settled(storages, arguments, values)
        if len(plain) == 1:
            return [Tensor._of_memory(storages[plain[0]])]
        return [Tensor._of_memory(storages[number]) for number in plain]

    def _converted(self, storage: Storage, value: Any) -> Any:
        """What the host supplies, as it lies in memory; a number that is the last one as then."""
        known = self._numbers.get(storage)
        if known is not None and known[0] is value:
            return known[1]
        made = host_values(np.asarray(value), storage.dtype)
        if type(value) is float or type(value) is int:
            self._numbers[storage] = value, made
        return made

    def _memories(self, arguments: Sequence[Tensor]) -> list[Storage]:
        """The memory of each input."""
        found: list[Storage] = []
        for place, find, facts in self._inputs:
            tensor = arguments[place] if find is None else find(arguments)
            if tensor is None:
                raise Stale("a tensor that the function knew from elsewhere is gone")
            storage = tensor._storage
            if storage is None or storage.lost:
                storage = tensor.memory()
            if find is not None and facts != (storage.shape, storage.dtype, storage.device):
                raise Stale("a tensor that the function knew from elsewhere is another")
            found.append(storage)
        return found

    def _settled(
        self,
        storages: list[Storage],
        arguments: Sequence[Tensor],
        values: Mapping[str, int],
    ) -> list[Tensor]:
        """The tensors of the result, once everything that the function moves stands for the
        memory of this call."""
        new: list[Tensor] = []
        for number, (value, address) in enumerate(self._values):
            storage = storages[value] if isinstance(value, int) else _resized(value, values)
            if address is None:
                made = Tensor._of_memory(storage)
                new.append(made.detach() if number in self._passed else made)
            elif isinstance(address, Gradient):
                owner = address.of.tensor(arguments)
                if owner is not None:
                    owner.grad = Tensor._of_memory(storage)
            else:
                moved = address.tensor(arguments)
                if moved is not None:
                    moved._stand_for_memory(storage)
        for address in self._cleared:
            owner = address.tensor(arguments)
            if owner is not None:
                owner.grad = None
        return [new[r] if isinstance(r, int) else _alive(r, arguments) for r in self._results]

    def _refuse_known(self, arguments: Sequence[Tensor]) -> None:
        for given in arguments:
            known = self._apart.get(id(given))
            if known is not None and known() is given:
                raise known_argument()

    def _refuse_stale(self, arguments: Sequence[Tensor]) -> None:
        for owner in self._bare:
            found = owner.tensor(arguments)
            if found is None or found.grad is not None:
                raise Stale("a tensor that had no gradient has one")
        for known in self._left:
            if known.reference() is None:
                raise Stale("a tensor that the function moved, put somewhere or returned is gone")


def _input(storage: Storage, address: Address) -> Input:
    facts = (storage.shape, storage.dtype, storage.device)
    if isinstance(address, Argument):
        return address.place, None, facts
    _refuse_variable(storage)
    return -1, address.tensor, facts


def _output(storage: Storage) -> Output:
    device = open_device(storage.device)
    make: Callable[[int], Buffer] = device.buffer
    if type(device).buffer is Device.buffer:
        make = partial(Buffer, device)  # what it does, without the call
    return make, storage.nbytes, storage.shape, storage.dtype, device.name


def _refuse_variable(storage: Storage) -> None:
    """Raise for a tensor of variable size that the function knows from elsewhere."""
    if is_variable(storage.shape):
        raise CaptureError(
            f"a captured function reads or moves a tensor of shape {storage.shape} that it knows "
            "from elsewhere: its size would be another in the next call",
            remedy="Hand it over as an argument, or keep the whole array and take the part of it "
            "inside.",
        )


def _resized(storage: Storage, values: Mapping[str, int]) -> Storage:
    """A constant of variable size, with these values: the memory is that of the greatest size."""
    if not is_variable(storage.shape):
        return storage
    made = Storage(bound(storage.shape, values), storage.dtype, storage.device)
    made.buffer, made.pinned = fill_buffer(storage), True
    return made


def _alive(address: Address, tensors: Sequence[Tensor]) -> Tensor:
    found = address.tensor(tensors)
    if found is None:
        raise CaptureError("a tensor that the captured function returned is gone")
    return found


def _followed(values: list[Value]) -> list[Value]:
    """The values that somebody waits for: a temporary of the function is gone by now."""
    with undisturbed():
        return [
            (storage, address)
            for storage, address in values
            if not isinstance(address, Known) or address.reference() is not None
        ]


def _with_own_memory(
    recording: Recording, values: list[Storage], events: list[Event]
) -> list[Storage]:
    """The memory of each value; of what the host supplies a copy, as the next call changes it."""
    supplied = {s for item in recording.supplied for s in item.storages}
    copies: dict[Storage, Storage] = {}
    for storage in values:
        if storage in supplied and storage not in copies:
            made = copies[storage] = Storage(storage.shape, storage.dtype, storage.device)
            recording.made[made] = None
            events.append(Copied(fill_buffer(made), fill_buffer(storage)))
    return [copies.get(s, s) for s in values]


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
    return lambda buffers, values: run([buffers[p] for p in places], values)


def _copy(event: Copied, exchanged: list[Buffer]) -> Run:
    target, source = _place(event.target, exchanged), _place(event.source, exchanged)
    return lambda buffers, _: target(buffers).copy_from(source(buffers))


def _fill(event: Filled, exchanged: list[Buffer]) -> Run:
    target, content = _place(event.target, exchanged), event.content
    return lambda buffers, _: target(buffers).copy_in(content)


def _place(buffer: Buffer, exchanged: list[Buffer]) -> Callable[[Sequence[Buffer]], Buffer]:
    """Where a replay finds a buffer: among those that are exchanged, or where it was."""
    for place, candidate in enumerate(exchanged):
        if candidate.root is buffer.root:
            offset, nbytes = buffer.offset - candidate.offset, buffer.nbytes
            if nbytes == candidate.nbytes:
                return lambda buffers: buffers[place]
            return lambda buffers: buffers[place].view(offset, nbytes)
    return lambda buffers: buffer
