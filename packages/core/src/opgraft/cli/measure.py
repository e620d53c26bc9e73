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
from opgraft.dtype import DType
from opgraft.errors import OpgraftError
from opgraft.ir.text import parse
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
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def measured(
    device: Device, kernels: list[str], least: float, most: float, enough: float
) -> list[float]:
    """The least seconds of each kernel, run in turns.

    They are run RUNS times and for `least` seconds, for no more than `most`, and not again where
    none takes `enough` or less.
    """
    loaded = [compile_kernel(device, parse(text)) for text in kernels]
    arguments = buffers(device, loaded[0].program)
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


def buffers(device: Device, program: Program) -> list[Buffer]:
    """Memory for each slot: zeros, which are in range as indices, or small ordinary floats."""
    made = []
    for dtype, size in program.params:
        buffer = device.buffer(size * dtype.itemsize)
        buffer.copy_in(_content(dtype) * buffer.nbytes)
        made.append(buffer)
    return made


def _content(dtype: DType) -> bytes:
    # in every float format this byte, repeated, is a normal number near 0.01 .. 1
    return b"\x3c" if dtype.is_float else b"\0"


def main() -> None:
    # what a compiler or a driver prints must not get among the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with settings.using(SEARCH=0):
        serve(devices[sys.argv[1]], sys.stdin, answers)


if __name__ == "__main__":
    main()
