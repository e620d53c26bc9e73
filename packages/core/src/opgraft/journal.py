"""What happened on the way to a result: told by those who did it, to whoever listens.

`opgraft explain` and the setting TRACE listen. With nobody listening a teller pays for one look
at a list:

    if journal.heard():
        journal.tell("plan", "3 kernels", begin, text=...)

Kinds in use: "kernel" (runtime: one was made; details device and pair by name, the device itself
as `on`, sink, executable, lowering and compiling in seconds, found: in the cache), "launch"
(runtime: one ran; details program, and took in seconds), "plan" (what a scheduler chose and at
what cost; details text). Every event with a text is shown by `explain`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from opgraft import settings


class Event(NamedTuple):
    """Something that was done."""

    kind: str
    name: str
    begin: float
    """As `time.perf_counter` counts."""
    seconds: float
    thread: int
    details: Mapping[str, Any]


# Read and changed in single steps, so without a lock: a fork could find one held.
_listeners: Final[list[Callable[[Event], None]]] = []
_traces: Final[dict[str, list[Event]]] = {}
_parents: Final[list[int]] = []
"""The processes that this one was forked from: the setting's file belongs to the first."""


def heard() -> bool:
    """Whether anybody listens. TRACE counts, and is looked up in the settings of the caller."""
    return bool(_listeners) or bool(settings.get("TRACE"))


def watched() -> bool:
    """Whether somebody listens who wants to see every step, those that a cache saves too."""
    return bool(_listeners)


def listeners() -> list[Callable[[Event], None]]:
    """Those that listen, in the list itself, for what has no time to ask: `watched` as of now."""
    return _listeners


def tell(kind: str, name: str, begin: float, **details: Any) -> None:
    """Tell what was begun at `begin` and is done now."""
    now = time.perf_counter()
    event = Event(kind, name, begin, now - begin, threading.get_native_id(), details)
    if settings.TRACE:
        _traces.setdefault(settings.TRACE, []).append(event)
    for listener in tuple(_listeners):
        listener(event)


@contextmanager
def listening(listener: Callable[[Event], None]) -> Iterator[None]:
    """Have `listener` called with what any thread does, while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def chrome(events: list[Event]) -> dict[str, Any]:
    """The events in the JSON form that Perfetto and chrome://tracing read; times in us."""
    rows = [
        {
            "name": event.name,
            "cat": event.kind,
            "ph": "X",
            "ts": event.begin * 1e6,
            "dur": event.seconds * 1e6,
            "pid": os.getpid(),
            "tid": event.thread,
            "args": {
                key: value
                for key, value in event.details.items()
                if isinstance(value, (str, int, float, bool))
            },
        }
        for event in events
    ]
    return {"traceEvents": rows, "displayTimeUnit": "ms"}


def _write_traces() -> None:
    if not _traces:
        return
    import json  # late: few programs are traced

    for path, events in _traces.items():
        with open(_own_file(path), "w", encoding="utf-8") as file:
            json.dump(chrome(events), file)


def _own_file(path: str) -> str:
    """The file that this process writes: a forked child has one of its own, named for it."""
    if not _parents:
        return path
    stem, suffix = os.path.splitext(path)
    return f"{stem}.{os.getpid()}{suffix}"


def _forked() -> None:
    """In a child: what was done before the fork is the parent's to tell."""
    _parents.append(os.getppid())
    _traces.clear()


atexit.register(_write_traces)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
