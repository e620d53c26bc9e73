"""The workloads of a bench folder, ours beside the peers and hand-made schedules, in one run.

    python benchmarks/workloads.py --folder ../shared/bench --case all --threads 1,2
    OPGRAFT_GENERATOR=../shared/prototypes/schedules python benchmarks/workloads.py \
        --folder ../shared/bench --case softmax,mm512 --libraries opgraft_,torch_,generator_

The folder holds `cases.py` and `adapters/`, to which ours are added; it may also be named by the
environment variable OPGRAFT_BENCH. A library that is not installed is left out; with `generator_`
among them, OPGRAFT_GENERATOR names the folder of a generator of C.

Each library has a process of its own, and they take turns (`turns.py`). Shown are the least and,
in brackets, the median of each in milliseconds. `peer` is the best peer's least time over ours: 1
is level, above it we are ahead. `gen` is the generator's over ours. Where an adapter has several
forms of a case (`attn:sdpa`), its best one counts; `--case attn:sdpa` runs one alone. Results are
compared with the float64 reference of the case in the same run. A case is NOISY when other
processes or the host took a tenth of a core while it was timed; `--clock cpu` then says more, with
one thread (JAX computes in threads of its own, whose time the system adds late: its least is low).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import multiprocessing.connection
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import turns

HERE = Path(__file__).resolve().parent
LIBRARIES = ("opgraft_", "numpy_", "torch_", "jax_", "generator_")
GENERATOR = "generator_"
CASES = "fused,sum_all,max_all,sum_row,sum_col,softmax,layernorm,mm256,mm512,conv,gather,exp,add16"
ASIDE = {"add16:async"}
"""Forms that do not wait for their result."""
REFERENCES: dict[str, Callable[..., Any]] = {"add16": lambda a, b: a.astype(np.float64) + b}
"""What `cases.py` has no reference for."""
ULPS = ("exp", "log", "sin")
"""Cases whose error is shown in units in the last place of float32, too."""
STEPS = 5
"""Training steps of `mlp` whose losses are compared."""
PAUSE = 0.005
"""Seconds in which the threads of the last library go to sleep."""
NOISY = 0.1
BEHIND = {"peer": 1.0, "gen": 1 / 1.15}
"""Ratios below which a case is listed again at the end."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", default=os.environ.get("OPGRAFT_BENCH", ""))
    parser.add_argument("--case", default=CASES, help="names, or all")
    parser.add_argument("--threads", default="1", help="a number, or several: 1,2")
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--clock", default="wall", choices=tuple(turns.CLOCKS))
    arguments = parser.parse_args()
    folder = Path(arguments.folder)
    if not arguments.folder or not (folder / "cases.py").exists():
        print("workloads: skipped, no bench folder (give --folder or OPGRAFT_BENCH)")
        return 0
    right = True
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "bench"
        shutil.copytree(folder, copy)  # what runs in it writes beside itself
        shutil.copytree(HERE / "adapters", copy / "adapters", dirs_exist_ok=True)
        sys.path.insert(0, str(copy))
        for threads in map(int, arguments.threads.split(",")):
            right &= run(copy, arguments, threads)
    return 0 if right else 1


def run(folder: Path, arguments: argparse.Namespace, threads: int) -> bool:
    """A table for this many threads; whether all results are right."""
    known = importlib.reload(importlib.import_module("cases"))  # inputs as in a fresh process
    workers = turns.open_all(arguments.libraries.split(","), threads, serve, str(folder), threads)
    if not workers:
        return False
    names = list(dict.fromkeys(form for w in workers for form in w.ask("forms")))
    if arguments.case != "all":
        names = [n for n in names if {n, n.partition(":")[0]} & set(arguments.case.split(","))]
        names += [n for n in arguments.case.split(",") if n in ASIDE]
    bare = dict.fromkeys(name.partition(":")[0] for name in known.C)
    print(
        f"\n{threads} threads, load {os.getloadavg()[0]:.1f}; "
        f"least (median) {arguments.clock} time of each in ms"
    )
    heads = "".join(f"{worker.name.rstrip('_'):>20s}" for worker in workers)
    print(f"{'case':10s}{heads}{'peer':>7s}{'gen':>7s}  right", flush=True)
    rows = []
    for name in bare:
        forms = [form for form in names if form.partition(":")[0] == name]
        if forms:
            rows.append(measured(name, forms, known, workers, arguments))
            print(rows[-1].line(workers), flush=True)
    for worker in workers:
        worker.close()
    for ratio, least in BEHIND.items():
        behind = sorted((r.ratios[ratio], r.name) for r in rows if r.ratios.get(ratio, 9) < least)
        listed = ", ".join(f"{name} {value:.2f}" for value, name in behind)
        print(f"{ratio} below {least:.2f}: {listed or 'none'}")
    return not any(row.faults for row in rows)


@dataclass
class Row:
    """What was found of a case. Times are in seconds, by library, of its best form."""

    name: str
    times: dict[str, list[float]] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    disturbance: tuple[float, float] = (0.0, 0.0)

    def line(self, workers: list[turns.Worker]) -> str:
        cells = [
            f"{shown(min(t))} ({shown(statistics.median(t))})" if t else "-"
            for t in (self.times.get(worker.name) for worker in workers)
        ]
        ratios = [f"{self.ratios[r]:.2f}" if r in self.ratios else "" for r in BEHIND]
        parts = ["; ".join(f"{form}: {why}" for form, why in self.faults.items()) or "yes"]
        parts.append(self.errors.get(workers[0].name, ""))
        parts += [form for form in self.forms.values() if ":" in form]
        others, stolen = self.disturbance
        if others + stolen >= NOISY:
            parts.append(f"NOISY (others {others:.2f}, steal {stolen:.2f})")
        return (
            f"{self.name:10s}"
            + "".join(f"{cell:>20s}" for cell in cells)
            + "".join(f"{ratio:>7s}" for ratio in ratios)
            + "  "
            + " ".join(part for part in parts if part)
        )


def shown(seconds: float) -> str:
    """In milliseconds."""
    return f"{seconds * 1e3:.{4 if seconds > 1e-4 else 3}g}"


def measured(
    name: str,
    forms: list[str],
    known: Any,
    workers: list[turns.Worker],
    arguments: argparse.Namespace,
) -> Row:
    """Check the results of all libraries, then time them in turns."""
    case, row = known.C[name], Row(name)
    wanted = reference(case, known)
    times: dict[tuple[str, str], list[float]] = {}
    for worker in workers:
        for form, answer in worker.ask("begin", name, forms).items():
            if answer[0] != "result":
                row.faults[f"{worker.name}{form}"] = answer[1]
                continue
            right, error = judged(case, np.load(answer[1]), wanted)
            Path(answer[1]).unlink()
            row.errors.setdefault(worker.name, error)
            if right:
                times[worker.name, form] = []
            else:
                row.faults[f"{worker.name}{form}"] = f"off by {error}"
    disturbance = turns.Disturbance(workers)
    for _ in range(arguments.rounds):
        for worker in workers:
            for form in forms:
                if (worker.name, form) in times:
                    times[worker.name, form] += worker.ask("time", form, arguments.clock)
                    time.sleep(PAUSE)
    row.disturbance = disturbance.share()
    for (library, form), found in times.items():
        if library not in row.times or min(found) < min(row.times[library]):
            row.times[library], row.forms[library] = found, form
    least = {library: min(found) for library, found in row.times.items()}
    ours = least.pop(workers[0].name, None)
    generator = least.pop(GENERATOR, None)
    if ours and least:
        row.ratios["peer"] = min(least.values()) / ours
    if ours and generator:
        row.ratios["gen"] = generator / ours
    return row


def reference(case: Any, known: Any) -> np.ndarray[Any, Any] | None:
    """The result in float64, or None where a case has nothing to check."""
    if case.name == "mlp":
        return np.asarray(known.mlp_ref_loss(*case.make(), STEPS))
    compute = REFERENCES.get(case.name, case.ref)
    return None if compute is None else np.asarray(compute(*case.make()))


def judged(
    case: Any, got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any] | None
) -> tuple[bool, str]:
    """Whether a result is near enough to the reference, and its error in words."""
    if wanted is None:
        return True, ""
    if got.shape != wanted.shape:
        return False, f"the shape {got.shape}"
    apart = np.abs(got.astype(np.float64) - wanted)
    size = np.abs(wanted)
    if case.name == "mlp":
        error = float(apart.max())
        return error < 1e-3, f"{error:.1e}"
    error = float((apart / (size + 1e-2 * size.max() + 1e-30)).max())
    words = f"{error:.1e}"
    if case.name in ULPS:
        unit = np.spacing(np.maximum(size, 1e-30).astype(np.float32)).astype(np.float64)
        words += f" {float((apart / unit).max()):.2f} ulp"
    return error < case.rtol, words


# ---- the other side


def serve(
    name: str, pipe: multiprocessing.connection.Connection, folder: str, threads: int
) -> None:
    """A process of one library: answers until it is told to stop."""
    sys.path[:0] = [folder, os.path.join(folder, "adapters")]
    try:
        with contextlib.redirect_stdout(None):
            library: Any = importlib.import_module(name)
            library.setup(threads)
    except (ImportError, SystemExit) as error:
        pipe.send(str(error))
        return
    known = importlib.import_module("cases").C
    pipe.send("")
    calls: dict[str, Callable[[], Any]] = {}
    inner = 1
    while True:
        message = pipe.recv()
        if message[0] == "stop":
            return
        if message[0] == "forms":
            pipe.send([form for form in library.CASES if form not in ASIDE])
        elif message[0] == "time":
            _, form, clock = message
            pipe.send(turns.turn(calls[form], turns.CLOCKS[clock], inner))
        else:
            _, case, forms = message
            calls.clear()
            inner = known[case].inner
            inputs = known[case].make()
            answers = {}
            for form in forms:
                if form in library.CASES:
                    path = os.path.join(folder, f"{name}.{form}.npy")
                    try:
                        calls[form] = library.CASES[form](*inputs)
                        np.save(path, result(library, case, calls[form]))
                        answers[form] = ("result", path)
                    except Exception as error:  # whatever a library says is its answer
                        text = f"{type(error).__name__}: {error}".splitlines()[0]
                        answers[form] = ("fault", text[:80])
            pipe.send(answers)


def result(library: Any, case: str, call: Callable[[], Any]) -> np.ndarray[Any, Any]:
    """What a call gives; of training steps the losses of the first."""
    if case == "mlp":
        return np.array([float(library.to_numpy(call())) for _ in range(STEPS)])
    return np.asarray(library.to_numpy(call()))


if __name__ == "__main__":
    raise SystemExit(main())
