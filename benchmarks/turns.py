"""Libraries that are timed in turns: a few calls of one, a few of the next, round after round.

Each library has a process of its own that stays alive. What else the machine does then hits all
alike, where a block of time for each would let a busy second fall on one library alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENOUGH = 0.02
"""Seconds of calls that a library has in each of its turns."""
CORES = sorted(os.sched_getaffinity(0))
"""What this process might use as it was started."""
COUNTS = (
    "OPGRAFT_CPU_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "NUM_CPU_THREADS",
    "POCL_MAX_PTHREAD_COUNT",
    "NPROC",
)
"""Environment variables by which libraries are told their threads."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""`cpu` is the time of a process on its cores: of use on a busy machine, with one thread."""
TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds of the kernel's counters of time."""


@dataclass
class Worker:
    """A process with one library, as its master sees it."""

    name: str
    process: Any
    pipe: multiprocessing.connection.Connection
    times: list[float] = field(default_factory=list)

    def ask(self, *message: Any) -> Any:
        self.pipe.send(message)
        return self.pipe.recv()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.pipe.send(("stop",))
        self.process.join()


def open_all(
    names: Iterable[str], threads: int, serve: Callable[..., None], *arguments: Any
) -> list[Worker]:
    """A worker for each library that is installed, in the order of the names.

    `serve(name, pipe, *arguments)` runs in the process of the library: it sends an empty text once
    the library is there, or why it is not, and answers until it is sent `("stop",)`. This process
    and the workers are bound to the last `threads` cores.
    """
    for variable in COUNTS:
        os.environ[variable] = str(threads)
    # JAX computes on all cores that it may use, whatever else it is told; workers inherit these
    os.sched_setaffinity(0, CORES[-threads:])
    context = multiprocessing.get_context("spawn")
    workers = []
    for name in names:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(name, theirs, *arguments), daemon=True)
        process.start()
        theirs.close()
        try:
            missing = ours.recv()
        except EOFError:
            missing = "it ended"
        if missing:
            print(f"{name}: left out, {missing}")
            process.join()
        else:
            workers.append(Worker(name, process, ours))
    return workers


def turn(
    call: Callable[[], Any],
    clock: Callable[[], float] = time.perf_counter,
    inner: int = 1,
    enough: float = ENOUGH,
) -> list[float]:
    """Seconds of one call, of as many as a turn has time for; `inner` calls are timed as one.

    One call before them is not counted: it brings the caches back from the turns of the others. A
    result is let go before the next call, which may use its memory again.
    """
    call()
    times, begin = [], time.perf_counter()
    while True:
        before = clock()
        for _ in range(inner - 1):
            call()
        result = call()
        times.append((clock() - before) / inner)
        del result
        if time.perf_counter() - begin > enough:
            return times


class Disturbance:
    """How much of the cores others take, from when it is made: other processes and the host."""

    def __init__(self, workers: list[Worker]) -> None:
        self._processes = ["self", *(str(worker.process.pid) for worker in workers)]
        self._begin = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        """Seconds: the clock; busy and stolen on our cores; in our processes."""
        busy = stolen = own = 0.0
        names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        for line in Path("/proc/stat").read_text().splitlines():
            name, *counts = line.split()
            if name in names:
                user, nice, system, _idle, _wait, irq, soft, steal = map(int, counts[:8])
                busy += (user + nice + system + irq + soft) * TICK
                stolen += steal * TICK
        for process in self._processes:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            own += (int(fields[11]) + int(fields[12])) * TICK
        return time.perf_counter(), busy, stolen, own

    def share(self) -> tuple[float, float]:
        """Cores taken by other processes, and by the host (`steal`), on average."""
        wall, busy, stolen, own = (
            now - then for now, then in zip(self._now(), self._begin, strict=True)
        )
        return max(0.0, busy - own - 2 * TICK) / wall, stolen / wall
