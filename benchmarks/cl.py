"""OpenCL: what a launch costs, and the workloads, beside pyopencl and tinygrad's CL in one run.

    python benchmarks/cl.py --folder ../shared/bench [--case softmax,mm256] [--threads 1]

All three use the same driver. Launches are timed by the clock, the least of many; of the
workloads see workloads.py. pyopencl has arrays, each operation on them a kernel, for some of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
LIBRARIES = "opgraft_cl_,pyopencl_arrays_,tinygrad_cl_"
CASES = "fused,sum_all,max_all,sum_row,sum_col,softmax,layernorm,mm256,mm512,gather,exp,log,add16"
RUNS, MANY = 30, 100
SOURCE = """__kernel __attribute__((reqd_work_group_size(1,1,1)))
void tiny(__global float*out,__global const float*x){vstore16(vload16(0,x)*2.0f,0,out);}"""


def least(work: Callable[[], object], done: Callable[[], object]) -> tuple[float, float]:
    """Microseconds of one call among many, and of one call until it is done."""
    queued, alone = [], []
    for _ in range(RUNS):
        begin = time.perf_counter()
        for _ in range(MANY):
            work()
        queued.append((time.perf_counter() - begin) / MANY)
        done()
        begin = time.perf_counter()
        work()
        done()
        alone.append(time.perf_counter() - begin)
    return min(queued) * 1e6, min(alone) * 1e6


def ours() -> tuple[float, float]:
    """A kernel of opgraft's, launched by itself."""
    from opgraft import Device, UOp, dtypes
    from opgraft.api import KernelInfo, Ops, compile_kernel

    device = Device["CL"]
    out, x = (UOp(Ops.PARAM, dtypes.float32, (), (slot, 16)) for slot in (0, 1))
    i = UOp.range(16, "i")
    sink = UOp.sink(out.store(i, x.load(i) * 2.0).end(i), arg=KernelInfo("tiny"))
    kernel, buffers = compile_kernel(device, sink), [device.buffer(64), device.buffer(64)]
    return least(lambda: kernel.run(buffers), device.synchronize)


def pyopencl() -> tuple[float, float]:
    """The same kernel through pyopencl, its arguments set once."""
    import pyopencl as cl

    context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "tiny")
    buffers = [cl.Buffer(context, 0, 64) for _ in range(2)]  # set_args keeps none alive
    kernel.set_args(*buffers)
    return least(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,)), queue.finish)


def tinygrad() -> tuple[float, float]:
    """The replay of a captured kernel, which is the least that tinygrad offers in public."""
    os.environ["DEV"] = "CL"
    from tinygrad import Device, Tensor, TinyJit

    x: Any = Tensor(np.ones(16, np.float32)).realize()
    step = TinyJit(lambda x: (x * 2.0).realize())
    for _ in range(3):
        step(x)
    return least(lambda: step(x), Device["CL"].synchronize)


def replay() -> tuple[float, float]:
    """The same of opgraft."""
    from opgraft import Device
    from opgraft_tensor import Tensor, jit

    x = Tensor(np.ones(16, np.float32), device="CL").realize()
    step = jit(lambda x: x * 2.0)
    for _ in range(3):
        step(x)
    return least(lambda: step(x), Device["CL"].synchronize)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--folder", default=os.environ.get("OPGRAFT_BENCH", ""))
    parser.add_argument("--case", default=CASES)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{'microseconds of a launch':34s}{'queued':>10s}{'until done':>12s}")
    rows = (
        ("opgraft, a kernel", ours),
        ("pyopencl, a kernel", pyopencl),
        ("opgraft, replay of jit", replay),
        ("tinygrad, replay of TinyJit", tinygrad),
    )
    found = {}
    for name, measure in rows:
        try:
            found[name] = measure()
        except Exception as error:  # a peer that is not installed, or finds no driver
            print(f"{name:34s}  {type(error).__name__}: {error}")
            continue
        print(f"{name:34s}{found[name][0]:10.2f}{found[name][1]:12.2f}")
    for a, b in ((rows[1][0], rows[0][0]), (rows[3][0], rows[2][0])):
        if a in found and b in found:
            ratios = [f"{p / o:.2f}" for p, o in zip(found[a], found[b])]
            print(f"ratio {a} / {b}: {', '.join(ratios)}")
    command = [sys.executable, str(HERE / "workloads.py"), "--folder", arguments.folder]
    command += ["--case", arguments.case, "--threads", str(arguments.threads)]
    return subprocess.run([*command, "--libraries", LIBRARIES], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
