"""A recorded call, made ready to be carried out again with other inputs.

Before: a recording (capture.py), which knows the buffers of one call. After: a function written
for it (written.py), which finds the inputs, makes memory for the results, so that none of them
shares it with another call's, launches the kernels, and moves what the function moved.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

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
    Gradient,
    Known,
    Launched,
    Recording,
    Supplied,
    Value,
    known_argument,
    undisturbed,
)
from opgraft_tensor.devices import open_device
from opgraft_tensor.exchange import fill_buffer, host_values
from opgraft_tensor.extents import Extent, bound, is_variable
from opgraft_tensor.forms import TENSOR, put_together
from opgraft_tensor.late import np
from opgraft_tensor.launches import Run, arranged, runs
from opgraft_tensor.lists import packed
from opgraft_tensor.recording import CaptureError
from opgraft_tensor.storage import Storage
from opgraft_tensor.tensor import Tensor
from opgraft_tensor.written import Text, listed


class Stale(OpgraftError):
    """What was recorded no longer fits: a tensor that the function knew is gone or another."""


class Replay:
    """A recording that can be carried out any number of times, by one thread at a time.

    `call` does so, with the tensors of the arguments, their memory as `memories` gives it, and the
    values of variable sizes. It gives the function's result, once everything that the function
    moves is moved, or raises Stale before anything is done. `text` is what it does, `kernels` how
    many it launches.
    """

    call: Callable[[Sequence[Tensor], Sequence[Storage | None], Mapping[str, int]], Any]

    def __init__(self, recording: Recording, form: Any) -> None:
        """`form`: of the function's result."""
        events = list(recording.events)
        values = _with_own_memory(recording, _followed(recording.values), events)
        for storage, address in values:
            if isinstance(address, Known):
                _refuse_variable(storage)
        fresh = dict.fromkeys(s for s, _ in values if s in recording.made)
        exchanged = [*recording.inputs, *fresh]
        buffers = [fill_buffer(s) for s in exchanged]
        fixed = [s for item in recording.supplied for s in item.storages]
        self._kept = [fill_buffer(s) for s in (*recording.constants, *fixed)]
        events = arranged(events, {id(b.root) for b in (*buffers, *self._kept)})
        self.kernels: Final = sum(len(e.steps) for e in events if isinstance(e, Launched))
        self._read = {a.place for a in recording.inputs.values() if isinstance(a, Argument)}
        self.body: Final = _written(recording, values, exchanged, runs(events, buffers), form)
        """What is done once `given`, `values`, and memory0 and so on of the arguments are there."""
        text = self.body.empty()
        text.add(*[f"memory{place} = memories[{place}]" for place in sorted(self._read)])
        text.lines.extend(self.body.lines)
        self.call, self.text = text.function("replay(given, memories, values)")

    def memories(self, given: Sequence[Tensor]) -> list[Storage | None]:
        """The memory of each argument that is read, computed now where it was not."""
        return [t.memory() if place in self._read else None for place, t in enumerate(given)]


# ---- the function


def _written(
    recording: Recording,
    values: Sequence[Value],
    exchanged: Sequence[Storage],
    parts: Sequence[tuple[Run, list[int]]],
    form: Any,
) -> Text:
    """What a replay does. Inputs and new memory are exchanged from call to call: the buffer of each
    is called b0, b1, ..., its storage m0, m1, ... or, of an argument, memory0, memory1, ..."""
    text = Text(
        Buffer=Buffer, Storage=Storage, tensor_of=Tensor._of_memory, fill=fill_buffer,
        known=_known, bare=_bare, left=_left, alive=_alive, resized=_resized, lock=ForkLock(),
        refuse=partial(_refuse_known, [k.reference for k in recording.apart]),
        supply=_Supply(recording.supplied), put_together=put_together,
    )  # fmt: skip
    if recording.apart:
        text.add("refuse(given)")
    # one list of launches is run by one thread at a time anyway
    effects = recording.supplied or recording.cleared or any(a is not None for _, a in values)
    locked = len(parts) > 1 or effects
    if locked:
        text.add("lock.acquire()", "try:")
        text.level += 1
    _write_conditions(text, recording, values)
    memories: dict[Storage, str] = {}
    for number, storage in enumerate(exchanged):
        if storage in recording.inputs:
            memories[storage] = _write_input(text, number, storage, recording.inputs[storage])
        else:
            memories[storage] = _write_output(text, number, storage)
    if recording.supplied:
        text.add("supply()")
    for run, places in parts:
        buffers = listed([f"b{place}" for place in places])
        text.add(f"{text.name('run', run)}({buffers}, values)")
    for number, (storage, address) in enumerate(values):
        memory = memories.get(storage) or _constant(text, storage)
        if address is None:
            # other tensors stand for what is an input or a constant
            apart = "" if storage in recording.made else ".detach()"
            text.add(f"r{number} = tensor_of({memory}){apart}")
        elif isinstance(address, Gradient):
            _write_move(text, address.of, f"grad = tensor_of({memory})")
        else:
            _write_move(text, address, f"_stand_for_memory({memory})")
    for owner in recording.cleared:
        _write_move(text, owner, "grad = None")
    if locked:
        text.level -= 1
        text.add("finally:", "    lock.release()")
    results = [
        f"r{r}" if isinstance(r, int) else f"alive({_found(text, r)})" for r in recording.results
    ]
    text.add(f"return {_put_together(text, form, results)}")
    return text


def _write_conditions(text: Text, recording: Recording, values: Sequence[Value]) -> None:
    """Lines that refuse a call in which tensors are not as they were."""
    for owner in recording.bare:
        text.add(f"bare({_found(text, owner)})")
    # what the function moved, put somewhere, or returned must be there, if it was kept until now
    known = [a for a in (*[a for _, a in values], *recording.results) if isinstance(a, Known)]
    kept = [_found(text, address) for address in known if address.reference() is not None]
    text.add(*[f"left({found})" for found in dict.fromkeys(kept)])


def _write_input(text: Text, number: int, storage: Storage, address: Address) -> str:
    """Lines that find an input; what its memory is called."""
    memory = f"m{number}"
    if isinstance(address, Argument):  # its kind is known
        memory = f"memory{address.place}"
    else:
        _refuse_variable(storage)
        size, dtype = text.name("size", storage.shape), text.name("dtype", storage.dtype)
        found = _found(text, address)
        text.add(f"{memory} = known({found}, {size}, {dtype}, {storage.device!r})")
    text.add(f"b{number} = {memory}.buffer or fill({memory})")
    return memory


def _write_output(text: Text, number: int, storage: Storage) -> str:
    """Lines that make new memory; what it is called."""
    device = open_device(storage.device)
    size, dtype = text.name("size", storage.shape), text.name("dtype", storage.dtype)
    if is_variable(storage.shape):
        size = _sized(text, storage.shape)
    if type(device).buffer is Device.buffer:  # what it does, without the call
        made = f"Buffer({text.name('device', device)}, {storage.nbytes})"
    else:
        made = f"{text.name('make', device.buffer)}({storage.nbytes})"
    text.add(
        f"m{number} = Storage({size}, {dtype}, {device.name!r})",
        f"m{number}.buffer = b{number} = {made}",
    )
    return f"m{number}"


def _sized(text: Text, size: tuple[int, ...]) -> str:
    """What gives a shape with the values of its variables: the last ones are remembered."""
    known = {n.name: n.value for n in size if isinstance(n, Extent)}
    made = lru_cache(16)(lambda *now: bound(size, dict(zip(known, now))))
    now = [f"values.get({name!r}, {value})" for name, value in known.items()]
    return f"{text.name('size', made)}({', '.join(now)})"


def _write_move(text: Text, address: Argument | Known, how: str) -> None:
    """Lines that do something to a tensor, if it is there."""
    text.add(f"t = {_found(text, address)}", "if t is not None:", f"    t.{how}")


def _found(text: Text, address: Address) -> str:
    """What gives the tensor at an address, or None where it is gone."""
    if isinstance(address, Argument):
        return f"given[{address.place}]"
    if isinstance(address, Known):
        return f"{text.name('tensor', address.reference)}()"
    return f"{text.name('gradient', address.tensor)}(given)"


def _constant(text: Text, storage: Storage) -> str:
    """A value that is the same in every call: they share it, so nobody may write it."""
    storage.pinned = True
    name = text.name("constant", storage)
    return f"resized({name}, values)" if is_variable(storage.shape) else name


def _put_together(text: Text, form: Any, results: list[str]) -> str:
    """The function's result, of these tensors."""
    if form is TENSOR:
        return results[0]
    if form[0] is tuple and all(part is TENSOR for part in form[1:]):
        return listed(results)
    return f"put_together({text.name('form', form)}, {listed(results)}, values)"


# ---- what it calls


def _known(tensor: Tensor | None, size: tuple[int, ...], dtype: DType, device: str) -> Storage:
    """The memory of a tensor that the function knows from elsewhere, which is as it was."""
    if tensor is None:
        raise Stale("a tensor that the function knew from elsewhere is gone")
    storage = tensor._storage
    if storage is None or storage.lost:
        storage = tensor.memory()
    if storage.shape != size or storage.dtype is not dtype or storage.device != device:
        raise Stale("a tensor that the function knew from elsewhere is another")
    return storage


def _refuse_known(apart: Sequence[weakref.ref[Tensor]], given: Sequence[Tensor]) -> None:
    for reference in apart:
        known = reference()
        if any(known is tensor for tensor in given):
            raise known_argument()


def _bare(tensor: Tensor | None) -> None:
    if tensor is None or tensor.grad is not None:
        raise Stale("a tensor that had no gradient has one")


def _left(tensor: Tensor | None) -> None:
    if tensor is None:
        raise Stale("a tensor that the function moved, put somewhere or returned is gone")


def _alive(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise CaptureError("a tensor that the captured function returned is gone")
    return tensor


def _resized(storage: Storage, values: Mapping[str, int]) -> Storage:
    """A constant of variable size, with these values: the memory is that of the greatest size."""
    made = Storage(bound(storage.shape, values), storage.dtype, storage.device)
    made.buffer, made.pinned = fill_buffer(storage), True
    return made


class _Supply:
    """What the host makes anew for each call, into the memory that kernels read it from."""

    def __init__(self, supplied: Sequence[Supplied]) -> None:
        self._supplied = supplied
        self._numbers: dict[Storage, float] = {}
        """Numbers that are there from the last call."""

    def __call__(self) -> None:
        for item in self._supplied:
            for storage, value in zip(item.storages, item.make()):
                number = type(value) is float or type(value) is int
                if number and self._numbers.get(storage) == value != 0:
                    continue
                found = packed((value,), storage.dtype) if number else None
                if found is not None:
                    storage.buffer.copy_in(found[0])
                else:
                    storage.buffer.copy_in(host_values(np.asarray(value), storage.dtype))
                if number:
                    self._numbers[storage] = value


# ---- what it is made of


def _refuse_variable(storage: Storage) -> None:
    """Raise for a tensor of variable size that the function knows from elsewhere."""
    if is_variable(storage.shape):
        raise CaptureError(
            f"a captured function reads or moves a tensor of shape {storage.shape} that it knows "
            "from elsewhere: its size would be another in the next call",
            remedy="Hand it over as an argument, or keep the whole array and take the part of it "
            "inside.",
        )


def _followed(values: list[Value]) -> list[Value]:
    """The values that somebody waits for: a temporary of the function is gone by now."""
    with undisturbed():
        return [
            (storage, address)
            for storage, address in values
            if not isinstance(address, Known) or address.reference() is not None
        ]


def _with_own_memory(recording: Recording, values: list[Value], events: list[Event]) -> list[Value]:
    """The values, each in memory of the call's own: the next call changes what the host supplies,
    so of that there is a copy."""
    supplied = {s for item in recording.supplied for s in item.storages}
    copies: dict[Storage, Storage] = {}
    for storage, _ in values:
        if storage in supplied and storage not in copies:
            made = copies[storage] = Storage(storage.shape, storage.dtype, storage.device)
            recording.made[made] = None
            events.append(Copied(fill_buffer(made), fill_buffer(storage)))
    return [(copies.get(s, s), address) for s, address in values]
