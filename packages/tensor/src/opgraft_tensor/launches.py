"""The parts of a replay: launches on one device in one list, copies, fills.

Before: the events of a recording (capture.py), on the buffers of the call that was recorded.
After: functions of the buffers that are exchanged from call to call; what lives only inside is
packed into one arena per device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from opgraft.runtime.buffer import Buffer
from opgraft.runtime.device import Device
from opgraft_tensor.capture import Copied, Event, Filled, Launched
from opgraft_tensor.memory import Life, arrange

if TYPE_CHECKING:
    from opgraft.runtime.program import Step

Run: TypeAlias = "Callable[[Sequence[Buffer], Mapping[str, int]], object]"
"""A part of a replay, given the exchanged buffers that it uses, and values of variables."""


def arranged(events: list[Event], outside: set[int]) -> list[Event]:
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


def runs(events: list[Event], exchanged: list[Buffer]) -> list[tuple[Run, list[int]]]:
    """The parts of a replay in order, each with the exchanged buffers that it takes, by number."""
    found: list[tuple[Run, list[int]]] = []
    steps: list[Step] = []
    device: Device | None = None
    for event in (*events, None):
        if steps and not (isinstance(event, Launched) and event.device is device):
            assert device is not None
            found.append(_launches(device, steps, exchanged))
            steps = []
        if isinstance(event, Launched):
            device = event.device
            steps += event.steps
        elif event is not None:
            run = _copy(event, exchanged) if isinstance(event, Copied) else _fill(event, exchanged)
            found.append((run, [*range(len(exchanged))]))
    return found


def _launches(device: Device, steps: list[Step], exchanged: list[Buffer]) -> tuple[Run, list[int]]:
    used = {id(b.root) for _, buffers, _ in steps for b in buffers}
    places = [place for place, b in enumerate(exchanged) if id(b.root) in used]
    return device.prepare(steps, [exchanged[p] for p in places]).run, places


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
