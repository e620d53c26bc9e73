"""From a kernel in the IR to one that runs: lower, render, compile, load; each step once."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from opgraft import journal, settings
from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.trace import recording
from opgraft.ir.uop import UOp
from opgraft.runtime import lowered
from opgraft.runtime.cache import Entry, compile_cache
from opgraft.runtime.compiler import Selected
from opgraft.runtime.program import Executable, Program
from opgraft.target import Target

if TYPE_CHECKING:
    from opgraft.runtime.device import Device

_FORM: Final = "1"
"""Part of every key; to be changed when what a key does not name changes its meaning."""
_SHAPING: Final = ("OPTIMIZER", "EGRAPH", "FLOAT", "SEARCH", "PLUGINS")
"""Settings that decide what a sink is lowered to."""


class _Making:
    """A kernel that some thread is making, or has made."""

    __slots__ = ("done", "error", "made")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.made: Executable | None = None
        self.error: Exception | None = None


class KernelTable:
    """The kernels of one device, the most recently used `limit` of them.

    A kernel that one thread is making is waited for by the others that want it.
    """

    def __init__(self, limit: int = 4096) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[object, _Making] = OrderedDict()
        _tables.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_make(self, key: object, make: Callable[[], Executable]) -> Executable:
        """The kernel under `key`, made now if nobody has. What `make` raises is not kept.

        Those who wait for a maker that fails get its error; one that was interrupted (by
        KeyboardInterrupt, say) leaves the work to the next.
        """
        while True:
            with self._lock:
                entry = self._entries.get(key)
                if entry is None:
                    mine = self._entries[key] = _Making()
                    while len(self._entries) > self.limit:
                        self._entries.popitem(last=False)
                    break
                self._entries.move_to_end(key)
            if entry.made is None:
                entry.done.wait()
            if entry.made is not None:
                return entry.made
            if entry.error is not None:
                raise entry.error
        try:
            mine.made = make()
        except Exception as error:
            mine.error = error
            raise
        finally:
            if mine.made is None:
                with self._lock:
                    if self._entries.get(key) is mine:
                        del self._entries[key]
            mine.done.set()
        return mine.made

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._entries.clear()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        for key, entry in list(self._entries.items()):
            if entry.made is None:  # the thread that makes it is not here
                del self._entries[key]


_tables: Final[weakref.WeakSet[KernelTable]] = weakref.WeakSet()


def _after_fork() -> None:
    for table in list(_tables):
        table._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def compile_kernel(device: Device, sink: UOp) -> Executable:
    """The kernel of this sink, ready to run on `device`; found where it was made before.

    The setting `<DEVICE>_CC` chooses the compiler. Raises `DeviceError` where none works,
    `LoweringError` or `CompileError` where the kernel does not pass.
    """
    choice = settings.get(f"{device.kind}_CC")
    shaping = tuple(settings.get(name) for name in _SHAPING)
    return device.kernels.get_or_make(
        (sink, choice, *shaping), lambda: _make(device, sink, choice, shaping)
    )


def _make(device: Device, sink: UOp, choice: str, shaping: tuple[object, ...]) -> Executable:
    begin = time.perf_counter()
    selected = device.pairs.select(choice)
    debug = settings.DEBUG
    program = None
    key = ""
    # whoever wants to see or check the passes wants them to be run
    shown = recording() is not None or journal.watched()
    if debug < 3 and not settings.SPEC and not shown:
        key = "\n".join((cache_key(selected), repr(shaping), lowered.fingerprint(), sink.key))
        program = lowered.recall(key)
    found = program is not None
    if program is None:
        program = lower_and_render(sink, selected)
        if key:
            lowered.remember(key, program)
    middle = time.perf_counter()
    if debug >= 2:
        print(program.source, file=sys.stderr)
    entry = compiled(selected, program.source)
    program = replace(program, binary=entry.data, path=entry.path)
    executable = device.load(program)
    if debug:
        end = time.perf_counter()
        print(
            f"{device.name} {selected.pair.name} {program.name}: "
            f"{'found' if found else 'lowered'} in {(middle - begin) * 1e3:.1f} ms, "
            f"compiled in {(end - middle) * 1e3:.1f} ms",
            file=sys.stderr,
        )
    if journal.heard():
        journal.tell(
            "kernel",
            program.name,
            begin,
            device=device.name,
            on=device,
            pair=selected.pair.name,
            found=found,
            lowering=middle - begin,
            compiling=time.perf_counter() - middle,
            sink=sink,
            executable=executable,
        )
    return executable


def lower_and_render(sink: UOp, selected: Selected) -> Program:
    """The program of a sink for a pair, not compiled yet."""
    # late: where kernels come from the cache, no pass and no rule is imported
    from opgraft.lower.pipeline import lower

    linear = lower(sink, selected.renderer.target)
    source = selected.renderer.render(linear)
    return Program.of(linear, source, entry=selected.renderer.entry(linear.name))


def compiled(selected: Selected, source: str) -> Entry:
    """What the pair's compiler makes of a source, from the cache where it is there."""
    compiler = selected.compiler
    if compiler is None:
        return Entry(b"")
    key = "\n".join((cache_key(selected), source))
    return compile_cache().get_or_make(key, lambda: compiler.compile(source))


def cache_key(selected: Selected) -> str:
    """All that decides a binary beside its source, as a text that is the same in every process."""
    inner = "" if selected.compiler is None else selected.compiler.key
    return "\n".join(
        (_FORM, selected.pair.device, selected.pair.name, inner, describe(selected.renderer.target))
    )


def describe(target: Target) -> str:
    """The facts of a target in a fixed order: sets print in the order of their names."""
    return " ".join(f"{f.name}={_plain(getattr(target, f.name))}" for f in fields(target))


def _plain(value: Any) -> str:
    if isinstance(value, (frozenset, set)):
        return "{" + ",".join(sorted(_plain(v) for v in value)) + "}"
    if isinstance(value, (Ops, DType)):
        return value.name
    return repr(value)
