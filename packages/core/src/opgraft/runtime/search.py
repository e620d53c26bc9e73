"""Search on a device: candidates are timed in a process of their own, what is found is kept.

What searches is opt/search.py; here is what it needs from the runtime. A candidate that hangs or
crashes takes the measuring process along, which is replaced. Results lie in the compile cache,
under the kernel, the device, the compiler and the code that lowers.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from queue import Empty, Queue
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from opgraft import settings
from opgraft.errors import DeviceError, LoweringError
from opgraft.ir.argument import Line, format_value, read_value
from opgraft.ir.launch import over_limits, private_bytes
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.text import to_text
from opgraft.ir.uop import UOp
from opgraft.lower.pipeline import lower, prepared, schedule_of
from opgraft.opt.changes import Steps
from opgraft.opt.search import GAIN, Make, Trials, search
from opgraft.render.renderer import Renderer
from opgraft.runtime import lowered
from opgraft.runtime.cache import compile_cache
from opgraft.runtime.compiler import Selected
from opgraft.target import Target

if TYPE_CHECKING:
    from opgraft.runtime.device import Device

LIMIT: Final = 20.0
"""Seconds that a candidate may take, its compiler's included."""
START: Final = 60.0
"""Seconds that the measuring process may take to start and to open the device."""
ONCE: Final = (0.02, 0.3)
"""Seconds for which a candidate is run again and again, at least and at most."""
AGAIN: Final = (0.2, 3.0)
"""As `ONCE`, of the best few and the heuristic's choice beside each other."""
RIVALS: Final = 3
_RUN: Final = "import sys; sys.path[:] = sys.argv[2:]; from opgraft.cli.measure import main; main()"
SAID: Final = 2000
"""Characters of what a process printed before it ended, the last ones, that an error repeats."""


def worker(device: str) -> tuple[str, ...]:
    """What starts the process for a device. It finds what this one would import: not more, as a
    module of the current folder that is called as one of Python's, and not less."""
    return (sys.executable, "-c", _RUN, device, *map(os.path.abspath, sys.path))


def searched(device: Device, sink: UOp, selected: Selected, width: int) -> UOp:
    """The kernel with the best schedule that a beam of `width` finds, from the cache where a
    search as wide was done before; the kernel itself where the heuristic's is the best."""
    if sink.arg is None or sink.arg.schedule is not None:
        return sink
    key = "\n".join(("search", device.name, selected.key, lowered.fingerprint(), sink.key))
    known = _recall(key, width)
    if known is None:
        with Measuring(device.name) as measuring:
            try:
                known = find(sink, selected, width, measuring)
            except DeviceError as error:
                message = f"kernel {sink.arg.name} is not searched on {device.name}: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
                return sink
        compile_cache().put(key, f"{width}\n{format_value(known.steps)}".encode())
    return sink if known.steps is None else with_schedule(sink, known.steps)


class Found(NamedTuple):
    """What a search found; None: nothing better than the heuristic's choice."""

    steps: Steps | None


def with_schedule(sink: UOp, steps: Steps) -> UOp:
    """The kernel with a schedule of its own."""
    return sink.replace(arg=replace(sink.arg or KernelInfo(), schedule=steps))


def _recall(key: str, width: int) -> Found | None:
    """What a search found before, if one as wide was done."""
    entry = compile_cache().get(key)
    if entry is None:
        return None
    wide, _, text = entry.data.decode().partition("\n")
    return Found(read_value(Line(text, 1))) if int(wide) >= width else None


def find(sink: UOp, selected: Selected, width: int, measuring: Measuring) -> Found:
    """The result of a search. Raises DeviceError where the heuristic's choice cannot be timed."""
    renderer = selected.renderer

    def measure(steps: Steps, enough: float) -> float:
        return measuring.seconds([to_text(with_schedule(sink, steps))], ONCE, enough)[0]

    start = schedule_of(sink, renderer.target)
    with progress(sink.arg.name) as watch:
        trials = Trials(maker(sink, renderer), measure, watch=watch)
        search(prepared(sink), renderer.target, start, width, trials)
        for trial in trials.done if settings.DEBUG else ():
            took = trial.reason if trial.seconds is None else f"{trial.seconds * 1e3:.3f} ms"
            print(f"{sink.arg.name}: {format_value(trial.steps)}: {took}", file=sys.stderr)
        usual = trials.done[0]
        if usual.seconds is None:
            raise DeviceError(usual.reason)
        # single measurements favour the lucky: the best few once more, in turns with the usual one
        rivals = [t.steps for t in trials.running if (t.seconds or 0.0) < usual.seconds][:RIVALS]
        if not rivals:
            return Found(None)
        texts = [to_text(with_schedule(sink, steps)) for steps in (start, *rivals)]
        try:
            first, *others = measuring.seconds(texts, AGAIN)
        except DeviceError:
            return Found(None)  # one of them fails now and then
    best = min(others)
    return Found(rivals[others.index(best)] if best < (1 - GAIN) * first else None)


def maker(sink: UOp, renderer: Renderer) -> Make:
    """What gives the source of the kernel with a schedule, and refuses one that is over a limit."""

    def make(steps: Steps) -> str:
        program = lower(with_schedule(sink, steps), renderer.target)
        exceeded = excess(program, renderer.target)
        if exceeded:
            raise LoweringError(f"it needs {'; '.join(exceeded)}")
        return renderer.render(program)

    return make


def excess(program: LinearProgram, target: Target) -> tuple[str, ...]:
    """The limits that a program exceeds, those of a processor's own buffers too."""
    over, taken = over_limits(program, target), private_bytes(program)
    if taken > target.local_bytes:
        over += (f"{taken} bytes of local memory, where {target.local_bytes} is the most",)
    return over


# ---- the process that measures


class Measuring:
    """A process that times kernels on a device, started when first needed, replaced when lost."""

    def __init__(
        self, device: str, limit: float = LIMIT, command: Sequence[str] | None = None
    ) -> None:
        self.device = device
        self.limit = limit
        self._command = command or worker(device)
        self._process: subprocess.Popen[str] | None = None
        self._said: IO[bytes] | None = None
        self._answers: Queue[str] = Queue()

    def __enter__(self) -> Measuring:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()

    def seconds(
        self, kernels: list[str], spend: tuple[float, float] = ONCE, enough: float = math.inf
    ) -> list[float]:
        """The least time of each kernel, in turns; once, where it takes longer than `enough`.

        Raises DeviceError where they don't run, take longer than the limit, or end the process.
        """
        least, most = spend
        request = {"kernels": kernels, "least": least, "most": most, "enough": min(enough, 1e9)}
        answer = self._ask(request)
        if "lost" in answer:
            raise DeviceError(str(answer["lost"]))
        return [float(seconds) for seconds in answer["seconds"]]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:
            pass  # it has ended, which the answer will tell
        answer: dict[str, Any] = json.loads(self._line(self.limit))
        return answer

    def _line(self, limit: float) -> str:
        """The next answer. Raises DeviceError, and ends the process, where there is none."""
        process = self._process
        assert process is not None
        try:
            line = self._answers.get(timeout=limit)
        except Empty:
            self.stop()
            raise DeviceError(f"it took longer than {limit:g} s") from None
        if not line:
            code, said = process.wait(), self._last_words()
            self.stop()
            raise DeviceError(f"its process ended with code {code}{said}")
        return line

    def _last_words(self) -> str:
        """The end of what the process printed, from after a traceback: the error's own text."""
        if self._said is None:
            return ""
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - SAID))
        lines = self._said.read().decode(errors="replace").splitlines()
        own = takewhile(lambda line: not line.startswith(" "), reversed(lines))
        text = " ".join(reversed([line.strip() for line in own if line]))
        return text and f": {text}"

    def _start(self) -> subprocess.Popen[str]:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**os.environ, **_environment()},
        )
        self._answers = Queue()
        arguments = (self._process.stdout, self._answers)
        threading.Thread(target=_listen, args=arguments, daemon=True).start()
        process = self._process
        self._line(START)  # it is ready
        return process

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        said, self._said = self._said, None
        if said is not None:
            said.close()
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):  # it may be full of what nobody reads
                        stream.close()


def _listen(lines: IO[str], answers: Queue[str]) -> None:
    """Hand on lines until there are no more; an empty one is the end."""
    with contextlib.suppress(ValueError):  # closed meanwhile
        for line in lines:
            answers.put(line)
    answers.put("")


def _environment() -> dict[str, str]:
    """The settings of this thread as the environment of a child that is to have the same."""
    found = {}
    for name, (value, source) in settings.changed().items():
        if source == "code" and value is not None:
            flat = ",".join(value) if isinstance(value, tuple) else value
            found[settings.PREFIX + name] = str(int(flat) if isinstance(flat, bool) else flat)
    return {**found, settings.PREFIX + "TRACE": "", settings.PREFIX + "DEBUG": "0"}


# ---- the bar


@contextmanager
def progress(name: str) -> Iterator[Callable[[int, float], None]]:
    """Shows how many candidates were measured, on a terminal; else nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda count, best: None
        return
    try:
        # late: an optional package, and only a search on a terminal needs it
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        yield lambda count, best: print(f"\r{_state(name, count, best)} ", end="", file=sys.stderr)
        print(file=sys.stderr)
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name)
        yield lambda count, best: bar.update(task, description=_state(name, count, best))


def _state(name: str, count: int, best: float) -> str:
    return f"search {name}: {count} candidates, best {best * 1e3:.3f} ms"
