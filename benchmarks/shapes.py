"""Shapes off the beaten track: ours beside NumPy, PyTorch and JAX, in one run.

    python benchmarks/shapes.py --threads 2 --group rows,views
    python benchmarks/shapes.py --case "copy of a.T" --libraries opgraft,torch

Each library that is installed runs in a process of its own, and they take turns: a few calls of
one, a few of the next, several rounds of that, so that what else the machine does hits all alike.
The least time of each is kept. Results are compared with a float64 reference in the same run.
`ratio` is the best peer's time over ours: 1 is level, above it we are ahead.
"""

from __future__ import annotations

import argparse
import multiprocessing.connection
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import turns
from shape_cases import Case, cases
from shape_libraries import LIBRARIES, Library, Reference, Unsupported

FAR = 1.2
"""Behind the best peer by more than this, a case is listed again at the end."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--group", default="", help="of rows,views,dtypes,reduce,scans,math,products"
    )
    parser.add_argument("--case", default="", help="part of a name")
    parser.add_argument("--libraries", default="opgraft,numpy,torch,jax")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--clock",
        default="wall",
        choices=("wall", "cpu"),
        help="cpu: the time of the process on its cores; of use on a busy machine, with 1 thread "
        "(JAX computes in threads of its own, whose time the system adds late: its least is low)",
    )
    arguments = parser.parse_args()
    chosen = [
        case
        for case in cases()
        if (not arguments.group or case.group in arguments.group.split(","))
        and arguments.case in case.name
    ]
    with tempfile.TemporaryDirectory() as folder:
        workers = turns.open_all(arguments.libraries.split(","), arguments.threads, serve, folder)
        load = os.getloadavg()[0]
        print(
            f"{arguments.threads} threads, load {load:.1f}; "
            f"least {arguments.clock} time of each in ms; ratio: best/ours"
        )
        print(
            f"{'case':32s}" + "".join(f"{w.name:>10s}" for w in workers) + f"{'ratio':>8s}  right"
        )
        behind = []
        for case in chosen:
            ratio = report(case, workers, arguments.rounds, arguments.clock)
            if ratio is not None and ratio * FAR < 1:
                behind.append((ratio, case.name))
        for worker in workers:
            worker.close()
    print(f"\n{len(behind)} of {len(chosen)} behind by more than {FAR}:")
    for ratio, name in sorted(behind):
        print(f"  {ratio:5.2f}  {name}")
    return 0


def report(case: Case, workers: list[turns.Worker], rounds: int, clock: str) -> float | None:
    """One line; the best peer's time over ours."""
    wanted = reference(case)
    wrong: dict[str, str] = {}
    for worker in workers:
        worker.times = []
        answer = worker.ask("begin", case.name)
        if isinstance(answer, str):
            wrong[worker.name] = answer
            continue
        worker.times.append(float("inf"))
        error = distance(np.load(answer[0]), wanted)
        Path(answer[0]).unlink()
        if not error <= case.tolerance:
            wrong[worker.name] = f"off by {error:.1e}"
    for _ in range(rounds):
        for worker in workers:
            if worker.times:
                worker.times.append(worker.ask("time", clock))
    least = {w.name: min(w.times) for w in workers if w.times}
    cells = "".join(
        f"{least[w.name] * 1e3:10.3f}" if w.name in least else f"{'-':>10s}" for w in workers
    )
    ours = workers[0].name
    peers = [t for n, t in least.items() if n != ours and n not in wrong]
    ratio = min(peers) / least[ours] if peers and ours in least else None
    shown = f"{ratio:8.2f}" if ratio is not None else f"{'':8s}"
    faults = "; ".join(f"{n}: {why}" for n, why in wrong.items() if why != "-")
    print(f"{case.name:32s}{cells}{shown}  {faults or 'yes'}", flush=True)
    return ratio


def reference(case: Case) -> np.ndarray[Any, Any]:
    library = Reference()
    arrays = [
        library.put(a, dtype) for a, (_, dtype) in zip(case.arrays(), case.inputs, strict=True)
    ]
    return library.get(case.run(library, *arrays))


def distance(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """The greatest error, relative to numbers around 1 and greater."""
    if got.shape != wanted.shape:
        return float("inf")
    return float(np.max(np.abs(got - wanted) / np.maximum(np.abs(wanted), 1.0), initial=0.0))


# ---- the other side


def serve(name: str, pipe: multiprocessing.connection.Connection, folder: str) -> None:
    """A process of one library: answers until it is told to stop."""
    try:
        library: Library = LIBRARIES[name]()
    except ImportError as error:
        pipe.send(str(error))
        return
    pipe.send("")
    known = {case.name: case for case in cases()}
    call: Any = None
    while True:
        message = pipe.recv()
        if message[0] == "stop":
            return
        if message[0] == "time":
            pipe.send(min(turns.turn(call, turns.CLOCKS[message[1]])))
            continue
        case = known[message[1]]
        call = None
        try:
            call = prepared(library, case)
            result = library.get(call())
        except Unsupported:
            pipe.send("-")
            continue
        except Exception as error:  # whatever a library says is its answer
            pipe.send(f"{type(error).__name__}: {error}".splitlines()[0][:80])
            continue
        path = os.path.join(folder, f"{name}.npy")
        np.save(path, result)
        pipe.send((path,))


def prepared(library: Library, case: Case) -> Any:
    """The call to be timed: inputs in place, the result waited for."""
    arrays = [
        library.put(a, dtype) for a, (_, dtype) in zip(case.arrays(), case.inputs, strict=True)
    ]
    function = library.compiled(lambda *xs: case.run(library, *xs))

    def call() -> Any:
        result = function(*arrays)
        library.wait(result)
        return result

    return call


if __name__ == "__main__":
    sys.exit(main())
