"""The CPU in several threads and processes: pools, forks, ends in the middle, sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opgraft.devices.cpu.device import CpuDevice
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError
from opgraft.runtime import Buffer
from opgraft.settings import using

from .abi import FOLDER
from .c_kernels import HEAD, N, floats, increment, load, read


def test_eight_threads_run_one_kernel_on_data_of_their_own(device: CpuDevice) -> None:
    # G05, second part, at this level
    kernel = increment(device, N, operations=10**6)
    buffers = [floats(device, start, size=N) for start in range(8)]
    prepared = device.prepare([(kernel, [buffers[0]], ())], [buffers[0]])

    def work(buffer: Buffer) -> None:
        for round_ in range(100):
            if round_ % 2:
                prepared.run([buffer])
            else:
                kernel.run([buffer])

    threads = [threading.Thread(target=work, args=(b,)) for b in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for start, buffer in enumerate(buffers):
        assert (read(buffer) == start + 100).all()


SCRATCH = f"""
void scratch{HEAD}{{
 volatile char own[1<<20];float*o=b[0];
 for(int i=0;i<1<<20;i++)own[i]=1;
 for(long long i=begin;i<end;i++)o[i]+=own[i];
}}
"""


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_kernels_with_large_buffers_run_in_threads_with_a_small_stack(device: CpuDevice) -> None:
    kernel = load(device, "scratch", SCRATCH, ((dtypes.float32, 64),), parallel=64, stack=1 << 20)
    out = floats(device, 0, size=64)
    prepared = device.prepare([(kernel, [out], ())])

    def launch() -> None:
        kernel.run([out])
        prepared.run()
        assert prepared.run(wait=True) is not None
        device.run_list([(kernel, [out], ()), (kernel, [out], ())])

    def in_small_thread() -> bool:
        before = threading.stack_size(128 << 10)
        thread = threading.Thread(target=launch)
        thread.start()
        threading.stack_size(before)
        thread.join()
        return bool((read(out) == 5).all())

    assert in_child(in_small_thread) == 0


def test_a_kernel_for_which_no_stack_can_be_had_is_refused(device: CpuDevice) -> None:
    kernel = load(device, "scratch", SCRATCH, ((dtypes.float32, 64),), stack=1 << 60)
    out = floats(device, 0, size=64)
    prepared = device.prepare([(kernel, [out], ())])
    steps = [(kernel, [out], ()), (kernel, [out], ())]
    with pytest.raises(DeviceError, match="a thread with a larger stack"):
        kernel.run([out])
    with pytest.raises(DeviceError, match="a thread with a larger stack"):
        prepared.run()
    with pytest.raises(DeviceError, match="a thread with a larger stack"):
        device.run_list(steps)
    assert (read(out) == 0).all()


def in_child(work: Callable[[], bool], limit: float = 10.0) -> int:
    """The exit code of a forked child that does `work`: 0 if it returned True in time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_the_pool_works_in_a_child_forked_after_its_use(device: CpuDevice) -> None:
    # F08, third part
    kernel = increment(device, N, operations=10**7)
    out = floats(device, 0, size=N)

    def work() -> bool:
        with using(CPU_THREADS=3):
            kernel.run([out])
            fresh = floats(device, 1, size=N)
            kernel.run([fresh])
        return bool((read(out) == 2).all() and (read(fresh) == 2).all())

    with using(CPU_THREADS=3):
        kernel.run([out])
        assert in_child(work) == 0
        assert (read(out) == 1).all()
        kernel.run([out])
    assert (read(out) == 2).all()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_while_other_threads_allocate_and_run_goes_on(device: CpuDevice) -> None:
    kernel = increment(device, N, operations=10**7)
    stop = threading.Event()

    def churn() -> None:
        out = floats(device, 0, size=N)
        while not stop.is_set():
            kernel.run([out])
            device.buffer(3 << 20)

    def work() -> bool:
        out = floats(device, 0, size=N)
        kernel.run([out])
        return bool((read(out) == 1).all()) and device.buffer(5 << 20).nbytes > 0

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert [in_child(work) for _ in range(10)] == [0] * 10
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    """A fresh process that runs `code`, which may import what this room has."""
    path = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def test_a_process_ends_cleanly_in_the_middle_of_work() -> None:
    code = """
import threading
from opgraft.devices.cpu.device import CpuDevice
from opgraft.dtype import dtypes
from devices.c_kernels import increment
device = CpuDevice()
kernel = increment(device, 1 << 20)
buffer = device.buffer(4 << 20)
steps = device.prepare([(kernel, [buffer], ())] * 10)
ring = [device.buffer(100), buffer.memory(), kernel]; ring.append(ring)
def work():
    while True: steps.run()
for _ in range(2): threading.Thread(target=work, daemon=True).start()
steps.run()
print("done")
"""
    process = start(code, OPGRAFT_CPU_THREADS="2")
    said = process.communicate(timeout=60)
    assert (process.returncode, *said) == (0, "done\n", "")


@pytest.mark.thorough
def test_processes_that_start_together_on_an_empty_cache_all_get_right_results(
    tmp_path: Path,
) -> None:
    # F06 with a compiler behind it; tests/runtime has sixteen processes and a killed writer
    code = """
from opgraft.devices.cpu.device import CpuDevice
from opgraft.dtype import dtypes
from devices.c_kernels import increment, INCREMENT
import devices.c_kernels as c
device = CpuDevice()
for step in (1, 2, 3):
    c.INCREMENT = INCREMENT.replace("+=1", f"+={step}")
    buffer = device.buffer(256); buffer.copy_in(bytes(256))
    increment(device, 64).run([buffer])
    assert set(buffer.memory().cast("f")) == {float(step)}
print("done")
"""
    processes = [start(code, OPGRAFT_CACHE=str(tmp_path / "cache")) for _ in range(6)]
    for process in processes:
        said = process.communicate(timeout=60)
        assert (process.returncode, *said) == (0, "done\n", "")
    # three kernels, the runtime, and what the compiler is
    files = sorted(file.suffix for file in (tmp_path / "cache").iterdir())
    assert files == [".entry"] * 5 + [".txt"]


SANITIZERS = ["thread", "address,undefined"]


@pytest.mark.thorough
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_the_runtime_has_no_races_and_no_stray_accesses(tmp_path: Path, sanitizer: str) -> None:
    """Four callers, the pool, and the allocator at once, under the compiler's sanitizers."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no compiler with sanitizers is here")
    source, program = Path(__file__).with_name("stress.c"), tmp_path / "stress"
    flags = ["-g", "-O1", "-w", "-pthread", f"-fsanitize={sanitizer}", f"-I{FOLDER}"]
    built = subprocess.run(
        [compiler, *flags, str(source), "-o", str(program)], capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip(f"{compiler} has no -fsanitize={sanitizer}")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    if "unexpected memory mapping" in done.stderr:  # a sanitizer older than the kernel's layout
        pytest.skip("the sanitizer does not run here")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def own_program(name: str, folder: Path, *arguments: str) -> list[int]:
    """The numbers that a C program beside this file prints, which has the runtime in it."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no compiler of whole programs is here")
    source, program = Path(__file__).with_name(f"{name}.c"), folder / name
    flags = ["-O1", "-w", "-pthread", f"-I{FOLDER}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return [int(number) for number in re.findall(r"\d+", done.stdout)]


def test_threads_that_come_late_are_not_asked_again_for_a_while(tmp_path: Path) -> None:
    """By a clock of the test's: 2,000 small kernels, 100 us apart. After each time that the other
    thread is late they stay whole twice as long: 1, 2, 4, ... ms."""
    asked, whole = own_program("late", tmp_path)
    assert 6 <= asked <= 9
    assert asked + whole == 2000


@pytest.mark.parametrize(("milliseconds", "most"), [(2, 1024 // 4), (20, 1024 // 20)])
def test_who_loses_a_core_holds_up_one_part_alone(
    tmp_path: Path, milliseconds: int, most: int
) -> None:
    """A thread is gone in the middle of its first part until the caller has done the rest: with
    halves handed out beforehand it would be half of the kernel. Parts of a large kernel take a
    millisecond at most."""
    held, done = own_program("held", tmp_path, str(milliseconds * 1_000_000))
    assert held + done == 1024
    assert held <= most
