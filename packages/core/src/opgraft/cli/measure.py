"""Kernels run and timed in a process of their own, for the search (runtime/search.py).

`python -m opgraft.cli.measure CPU` reads requests, a line of JSON each, and answers each with a
line of JSON. Whatever hangs or crashes is this process, which the searching one then replaces.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import IO, Any, Final

from opgraft import settings
from opgraft.catalog import Device as devices
from opgraft.cli.inputs import content, places_of
from opgraft.errors import OpgraftError
from opgraft.ir.ops import Ops
from opgraft.ir.text import parse
from opgraft.ir.uop import UOp
from opgraft.runtime import Buffer, Device, Executable, Program, compile_kernel

RUNS: Final = 20


def serve(device: Device, requests: IO[str], answers: IO[str]) -> None:
    """Say that the device is open, then answer until there are no more requests."""
    answers.write("ready\n")
    answers.flush()
    for line in requests:
        try:
            answer: dict[str, Any] = {"seconds": measured(device, **json.loads(line))}
        except OpgraftError as lost:
            answer = {"lost": str(lost)}
        except Exception as lost:  # memory that is not there, a compiler that can't be started
            answer = {"lost": f"{type(lost).__name__}: {lost}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def measured(
    device: Device, kernels: list[str], least: float, most: float, enough: float
) -> list[float]:
    """The least seconds of each kernel, run in turns.

    They are run RUNS times and for `least` seconds, for no more than `most`, and not again where
    none takes `enough` or less.
    """
    sinks = [parse(text) for text in kernels]
    loaded = [compile_kernel(device, sink) for sink in sinks]
    arguments = buffers(device, loaded[0].program, sinks[0])
    best = [float("inf")] * len(loaded)
    begin = time.perf_counter()
    for turn in itertools.count(1):
        for place, executable in enumerate(loaded):
            best[place] = min(best[place], _once(executable, arguments))
        spent = time.perf_counter() - begin
        if min(best) > enough or spent > most or (turn >= RUNS and spent > least):
            break
    return best


def _once(executable: Executable, arguments: list[Buffer]) -> float:
    # variables at their most: what was measured holds for as much work as there can be
    variables = [v.arg[2] for v in executable.program.variables]
    begin = time.perf_counter()
    took = executable.run(arguments, variables, wait=True)
    return time.perf_counter() - begin if took is None else took


def buffers(device: Device, program: Program, sink: UOp) -> list[Buffer]:
    """Memory for each array of the kernel, filled as inputs.py says."""
    slots = sorted({n.arg[0] for n in sink.toposort() if n.op is Ops.PARAM})
    places = places_of(sink)
    made = []
    for slot, (dtype, size) in zip(slots, program.params, strict=True):
        buffer = device.buffer(size * dtype.itemsize)
        buffer.copy_in(content(dtype, size, places.get(slot), seed=slot))
        made.append(buffer)
    return made


def main() -> None:
    # what a compiler or a driver prints must not get among the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with settings.using(SEARCH=0):
        serve(devices[sys.argv[1]], sys.stdin, answers)


if __name__ == "__main__":
    main()
