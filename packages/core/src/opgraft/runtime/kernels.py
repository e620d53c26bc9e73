"""From a kernel in the IR to one that runs: lower, render, compile, load; each step once."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from opgraft import journal, settings
from opgraft.errors import CompileError
from opgraft.forking import ForkLock, renewed_in_children
from opgraft.ir.collector import paused
from opgraft.ir.linear import LinearProgram
from opgraft.ir.recording import recording
from opgraft.ir.uop import UOp
from opgraft.runtime import lowered
from opgraft.runtime.cache import Entry, compile_cache
from opgraft.runtime.compiler import Selected
from opgraft.runtime.program import Executable, Program

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opgraft.runtime.device import Device

_SHAPING: Final = ("OPTIMIZER", "EGRAPH", "FLOAT", "PLUGINS", "SEARCH")
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
        self._entries: OrderedDict[object, _Making] = OrderedDict()
        self._lock = ForkLock()
        renewed_in_children(self)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        """Whether the kernel is made, or some thread is making it."""
        return key in self._entries

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

    def renew(self) -> None:
        """See forking.py: what another thread was making, it makes no more."""
        for key, entry in list(self._entries.items()):
            if entry.made is None:  # the thread that makes it is not here
                del self._entries[key]


def compile_kernel(device: Device, sink: UOp) -> Executable:
    """The kernel of this sink, ready to run on `device`; found where it was made before.

    The setting `<DEVICE>_CC` chooses the compiler. Raises `DeviceError` where none works,
    `LoweringError` or `CompileError` where the kernel does not pass.
    """
    choice, shaping = _settings(device)
    return device.kernels.get_or_make(
        (sink, choice, shaping), lambda: _finish(_draft(device, sink, choice, shaping))
    )


def compile_linear(device: Device, program: LinearProgram) -> Executable:
    """A linear program rendered, compiled (through the cache) and loaded as it stands.

    Nothing is lowered: the program may hold only what the device's renderer takes. Raises
    `SpecError` where it is not legal, and what `compile_kernel` raises.
    """
    from opgraft.ir.spec import check  # late: most processes load kernels from the cache

    selected = device.pairs.select(settings.get(f"{device.kind}_CC"))
    check(program, "linear", selected.renderer.target)
    source = selected.renderer.render(program)
    if settings.DEBUG >= 2:
        print(source, file=sys.stderr)
    made = Program.of(program, source, entry=selected.renderer.entry(program.name))
    return device.load(_with_binary(made, selected))


def _with_binary(program: Program, selected: Selected) -> Program:
    try:
        entry = compiled(selected, program.source)
    except CompileError as error:
        message = f"kernel {program.name}: {error.message}"
        raise CompileError(message, tried=error.tried, remedy=error.remedy) from None
    return replace(program, binary=entry.data, path=entry.path)


def compile_kernels(device: Device, sinks: Sequence[UOp]) -> list[Executable]:
    """As `compile_kernel` for each; while one is lowered, compilers work on those before it."""
    choice, shaping = _settings(device)
    keys = dict.fromkeys((sink, choice, shaping) for sink in sinks)
    missing = [key for key in keys if key not in device.kernels]
    with ExitStack() as stack:
        submit: Callable[..., Future[Executable]] | None = None
        started = []
        for key in missing:
            draft = _draft(device, *key)
            make = partial(device.kernels.get_or_make, key, partial(_finish, draft))
            if draft.found or draft.selected.compiler is None or len(missing) == 1:
                make()
                continue
            if submit is None:
                # late: a process that finds its kernels in the cache needs no threads
                from concurrent.futures import ThreadPoolExecutor

                threads = min(len(missing), os.cpu_count() or 1)
                submit = stack.enter_context(ThreadPoolExecutor(threads)).submit
            # threads see the settings of this one
            started.append(submit(contextvars.copy_context().run, make))
        for future in started:
            future.result()
    return [compile_kernel(device, sink) for sink in sinks]


def _settings(device: Device) -> tuple[str, tuple[object, ...]]:
    """The chosen compiler, and the values of what decides how kernels are lowered."""
    choice: str = settings.get(f"{device.kind}_CC")
    return choice, tuple(settings.get(name) for name in _SHAPING)


class _Draft(NamedTuple):
    """A kernel that is lowered and rendered, not compiled yet."""

    device: Device
    sink: UOp
    selected: Selected
    program: Program
    found: bool
    """Whether it comes from the cache."""
    begin: float
    seconds: float


def _draft(device: Device, sink: UOp, choice: str, shaping: tuple[object, ...]) -> _Draft:
    begin = time.perf_counter()
    selected = device.pairs.select(choice)
    if settings.SEARCH and device.executes:
        from opgraft.runtime.search import searched  # late: it brings all passes and rules

        sink = searched(device, sink, selected, settings.SEARCH)
    program = None
    key = ""
    # whoever wants to see or check the passes wants them to be run
    shown = settings.DEBUG >= 3 or settings.SPEC or recording() is not None or journal.watched()
    if not shown:
        key = "\n".join((selected.key, repr(shaping), lowered.fingerprint(), sink.key))
        program = lowered.recall(key)
    found = program is not None
    if program is None:
        program = lower_and_render(sink, selected)
        if key:
            lowered.remember(key, program)
    return _Draft(device, sink, selected, program, found, begin, time.perf_counter() - begin)


def _finish(draft: _Draft) -> Executable:
    device, program, debug = draft.device, draft.program, settings.DEBUG
    begin = time.perf_counter()
    if debug >= 2:
        print(program.source, file=sys.stderr)
    executable = device.load(_with_binary(program, draft.selected))
    seconds = time.perf_counter() - begin
    name = draft.selected.pair.name
    if debug:
        print(
            f"{device.name} {name} {program.name}: "
            f"{'found' if draft.found else 'lowered'} in {draft.seconds * 1e3:.1f} ms, "
            f"compiled in {seconds * 1e3:.1f} ms",
            file=sys.stderr,
        )
    if journal.heard():
        journal.tell(
            "kernel",
            program.name,
            draft.begin,
            device=device.name,
            on=device,
            pair=name,
            found=draft.found,
            lowering=draft.seconds,
            compiling=seconds,
            sink=draft.sink,
            target=draft.selected.renderer.target,
            executable=executable,
        )
    return executable


@paused
def lower_and_render(sink: UOp, selected: Selected) -> Program:
    """The program of a sink for a pair, not compiled yet."""
    # late: where kernels come from the cache, no pass and no rule is imported
    from opgraft.lower.pipeline import lower

    debug = settings.DEBUG
    if debug >= 4:
        from opgraft.ir.trace import tracing  # late, as above

        with tracing() as trace:
            linear = lower(sink, selected.renderer.target)
        for step in trace.steps:
            print(step, file=sys.stderr)
    else:
        linear = lower(sink, selected.renderer.target)
    if debug >= 3:
        from opgraft.ir.text import linear_to_text  # late, as above

        print(linear_to_text(linear), file=sys.stderr)
    source = selected.renderer.render(linear)
    return Program.of(linear, source, entry=selected.renderer.entry(linear.name))


def compiled(selected: Selected, source: str) -> Entry:
    """What the pair's compiler makes of a source, from the cache where it is there."""
    compiler = selected.compiler
    if compiler is None:
        return Entry(b"")
    key = "\n".join((selected.key, source))
    return compile_cache().get_or_make(key, lambda: compiler.compile(source))
