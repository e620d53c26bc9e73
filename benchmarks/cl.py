"""OpenCL: what a launch costs, and the workloads, beside pyopencl and tinygrad's CL in one run.

    python benchmarks/cl.py --folder ../shared/bench [--case softmax,mm256] [--threads 1]

All three use the same driver, in this process, and take turns. Launches: microseconds of this
thread on the processor, and by the clock until done. Workloads: milliseconds until done by the
clock, and of all threads on the processor, which other processes disturb less; each the least of
its runs, in `--seconds` for a workload. pyopencl has arrays, each operation on them a kernel, for
some workloads.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
LIBRARIES = ("opgraft_cl_", "pyopencl_arrays_", "tinygrad_cl_")
LARGE = ("mm2048",)
"""Left out unless they are asked for."""
RUNS, MANY = 200, 20
Work = Callable[[], object]
Launch = tuple[Work, Work]
"""What launches, and what waits until it is done."""
SOURCE = """__kernel __attribute__((reqd_work_group_size(1,1,1)))
void tiny(__global float*out,__global const float*x){vstore16(vload16(0,x)*2.0f,0,out);}"""


def ours() -> Launch:
    """A kernel of opgraft's, launched by itself."""
    from opgraft import Device, UOp, dtypes
    from opgraft.api import KernelInfo, Ops, compile_kernel

    device = Device["CL"]
    out, x = (UOp(Ops.PARAM, dtypes.float32, (), (slot, 16)) for slot in (0, 1))
    i = UOp.range(16, "i")
    sink = UOp.sink(out.store(i, x.load(i) * 2.0).end(i), arg=KernelInfo("tiny"))
    kernel, buffers = compile_kernel(device, sink), [device.buffer(64), device.buffer(64)]
    return lambda: kernel.run(buffers), device.synchronize


def pyopencl() -> Launch:
    """The same kernel through pyopencl, its arguments set once."""
    import pyopencl as cl

    context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "tiny")
    buffers = [cl.Buffer(context, 0, 64) for _ in range(2)]
    kernel.set_args(*buffers)

    def launch() -> object:
        return buffers and cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))

    return launch, queue.finish  # set_args keeps no buffer alive, launch does


def tinygrad() -> Launch:
    """The replay of a captured kernel, which is the least that tinygrad offers in public."""
    os.environ["DEV"] = "CL"
    tiny: Any = importlib.import_module("tinygrad")
    x = tiny.Tensor(np.ones(16, np.float32)).realize()
    step = tiny.TinyJit(lambda x: (x * 2.0).realize())
    for _ in range(3):
        step(x)
    return lambda: step(x), tiny.Device["CL"].synchronize


def replay() -> Launch:
    """The same of opgraft."""
    from opgraft import Device
    from opgraft_tensor import Tensor, jit

    x = Tensor(np.ones(16, np.float32), device="CL").realize()
    step = jit(lambda x: x * 2.0)
    for _ in range(3):
        step(x)
    return lambda: step(x), Device["CL"].synchronize


def launches() -> None:
    """Each many times, then until the last is done."""
    makers = {
        "opgraft, a kernel": ours,
        "pyopencl, a kernel": pyopencl,
        "opgraft, replay of jit": replay,
        "tinygrad, replay of TinyJit": tinygrad,
    }
    made: dict[str, Launch] = {}
    for name, make in makers.items():
        try:
            made[name] = make()
        except Exception as error:  # a peer that is not installed, or finds no driver
            print(f"{name:34s}  {type(error).__name__}: {error}")
    best = {name: (float("inf"), float("inf")) for name in made}
    for _ in range(RUNS):
        for name, (work, done) in made.items():
            begin = time.thread_time()
            for _ in range(MANY):
                work()
            queued = (time.thread_time() - begin) / MANY
            done()
            begin = time.perf_counter()
            work()
            done()
            alone = time.perf_counter() - begin
            best[name] = min(best[name][0], queued * 1e6), min(best[name][1], alone * 1e6)
    print(f"{'microseconds of a launch':34s}{'queued':>10s}{'until done':>12s}")
    for name, (queued, alone) in best.items():
        print(f"{name:34s}{queued:10.2f}{alone:12.2f}", flush=True)


def adapters(folder: Path, threads: int) -> dict[str, Any]:
    """Those of the libraries that are there."""
    sys.path[:0] = [str(HERE / "adapters"), str(folder / "adapters"), str(folder)]
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.import_module(name)
            found[name].setup(threads)
        except Exception as error:  # a peer, as above
            print(f"{name.rstrip('_')}: {type(error).__name__}: {error}")
    return found


def is_right(case: Any, inputs: Any, found: Any) -> bool:
    """Whether a result is that of the case's reference, computed in float64."""
    if case.ref is None:
        return True
    wanted = np.asarray(case.ref(*inputs))
    error = np.abs(found.astype(np.float64) - wanted)
    scale = np.abs(wanted) + 1e-2 * np.abs(wanted).max() + 1e-30
    return found.shape == wanted.shape and bool((error / scale).max() < case.rtol)


def in_turns(works: dict[str, Work], seconds: float) -> dict[str, tuple[float, float]]:
    """Milliseconds of each by the clock and on the processor, the least of at least 3 runs; of
    what takes longer than all is to take, of one."""
    best = {name: (float("inf"), float("inf")) for name in works}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        for name, work in works.items():
            if rounds and best[name][0] > seconds * 1e3:
                continue
            used, begin = time.process_time(), time.perf_counter()
            work()
            taken, used = time.perf_counter() - begin, time.process_time() - used
            best[name] = min(best[name][0], taken * 1e3), min(best[name][1], used * 1e3)
        rounds += 1
    return best


def workloads(folder: Path, chosen: str, threads: int, seconds: float) -> bool:
    """A line for each workload; whether ours were all right."""
    libraries = adapters(folder, threads)
    cases = importlib.import_module("cases").C
    names = [n for n in cases if n not in LARGE] if chosen == "all" else chosen.split(",")
    print(f"\n{'ms, by the clock | processor':30s}", end="")
    print("".join(f"{name.rstrip('_'):>20s}" for name in libraries), end="")
    print(f"{'best peer / ours':>22s}")
    good = True
    for name in names:
        case = cases[name]
        works: dict[str, Work] = {}
        notes: list[str] = []
        inputs = case.make()
        for library, adapter in libraries.items():
            if name not in adapter.CASES:
                continue
            try:
                work = adapter.CASES[name](*inputs)
                right = is_right(case, inputs, np.asarray(adapter.to_numpy(work())))
                work()  # captured
            except Exception as error:  # what a library cannot do is said, and the rest goes on
                right, notes = False, [*notes, f"{library} {type(error).__name__}: {error}"[:120]]
            else:
                works[library] = work
                notes += [] if right else [f"{library} is wrong"]
            good &= right or library != LIBRARIES[0]
        times = in_turns(works, seconds)
        cells = [f"{times[n][0]:.2f} | {times[n][1]:.2f}" if n in times else "-" for n in libraries]
        peers = [t for n, t in times.items() if n != LIBRARIES[0]]
        ratios = ""
        if peers and LIBRARIES[0] in times:
            both = zip(map(min, zip(*peers)), times[LIBRARIES[0]])
            ratios = " | ".join(f"{theirs / mine:.2f}" for theirs, mine in both)
        print(f"{name:30s}{''.join(f'{c:>20s}' for c in cells)}{ratios:>22s}", *notes, flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--folder", default=os.environ.get("OPGRAFT_BENCH", ""))
    parser.add_argument("--case", default="all", help="names, or all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each workload")
    arguments = parser.parse_args()
    # read by the driver when it starts
    os.environ["POCL_MAX_PTHREAD_COUNT"] = str(arguments.threads)
    launches()
    folder = Path(arguments.folder)
    if not arguments.folder or not (folder / "cases.py").exists():
        print("workloads: skipped, no bench folder (give --folder or OPGRAFT_BENCH)")
        return 0
    return 0 if workloads(folder, arguments.case, arguments.threads, arguments.seconds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
