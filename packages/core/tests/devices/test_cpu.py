"""The CPU: kernels of the C calling convention, alone and in lists, on one thread and several."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import opgraft.devices.cpu as plugin
from opgraft.devices.cpu import compilers, host
from opgraft.devices.cpu.device import CpuDevice
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError, DeviceMemoryError, SettingError
from opgraft.ir import UOp
from opgraft.runtime import Buffer, CompilerSet
from opgraft.settings import using

from .abi import FOLDER, generate
from .c_kernels import AFFINE, HEAD, increment, load

N = 1 << 16


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice()


def floats(device: CpuDevice, *values: float, size: int = 0) -> Buffer:
    array = np.full(size, values[0], np.float32) if size else np.array(values, np.float32)
    buffer = device.buffer(array.nbytes)
    buffer.copy_in(array)
    return buffer


def read(buffer: Buffer) -> np.ndarray:
    return np.frombuffer(buffer.bytes(), np.float32)


# ---- kernels


def test_a_kernel_gets_its_buffers_its_variables_and_its_part(device: CpuDevice) -> None:
    n = UOp.variable("n", -5, 5)
    slope = UOp.variable("slope", 0.0, 1.0, dtypes.float64)
    params = ((dtypes.float32, 3), (dtypes.float32, 3))
    kernel = load(device, "affine", AFFINE, params, variables=(n, slope), parallel=3)
    out, x = floats(device, 0, 0, 0), floats(device, 1, 2, 4)
    seconds = kernel.run([out, x], (-3, 0.5), wait=True)
    assert read(out).tolist() == [-2.5, -2.0, -1.0]
    assert seconds is not None
    assert 0 < seconds < 1
    assert kernel.run([out, x], (-3, 0.5)) is None


def test_the_parallel_range_may_depend_on_a_variable(device: CpuDevice) -> None:
    n = UOp.variable("n", 0, 8)
    source = f"void mark{HEAD}{{for(long long i=begin;i<end;i++)((float*)b[0])[i]=v[0];}}"
    params = ((dtypes.float32, 8),)
    kernel = load(device, "mark", source, params, variables=(n,), parallel=(n + 1) // 2)
    out = floats(device, 0, size=8)
    for count, marked in ((0, 0), (1, 1), (5, 3), (8, 4)):
        out.copy_in(np.zeros(8, np.float32))
        kernel.run([out], (count,))
        assert read(out).tolist() == [count] * marked + [0] * (8 - marked)


@pytest.mark.parametrize(
    ("sizes", "variables", "message"),
    [
        ((12,), (0, 0.5), "takes 2 buffers and 2 variables, not 1 and 2"),
        ((12, 12), (0,), "not 2 and 1"),
        ((12, 8), (0, 0.5), "buffer 1 has 8 bytes of 12"),
        ((12, 12), (6, 0.5), "variable n is 6, not in -5 .. 5"),
        ((12, 12), (0, float("nan")), "variable slope is nan"),
    ],
)
def test_a_call_that_would_reach_beyond_its_arguments_is_refused(
    device: CpuDevice, sizes: tuple[int, ...], variables: tuple[float, ...], message: str
) -> None:
    n = UOp.variable("n", -5, 5)
    slope = UOp.variable("slope", 0.0, 1.0, dtypes.float64)
    params = ((dtypes.float32, 3), (dtypes.float32, 3))
    kernel = load(device, "affine", AFFINE, params, variables=(n, slope), parallel=3)
    buffers = [device.buffer(size) for size in sizes]
    with pytest.raises(DeviceError, match=message):
        kernel.run(buffers, variables)
    with pytest.raises(DeviceError, match=message):
        device.prepare([(kernel, buffers, variables)])


def test_a_library_without_the_kernel_is_refused(device: CpuDevice) -> None:
    with pytest.raises(DeviceError, match="no function 'other'"):
        load(device, "other", "void kernel(void){}")


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [64, 4096, N])
def test_every_part_is_run_once_whatever_the_threads(
    device: CpuDevice, threads: int, size: int
) -> None:
    kernel = increment(device, size, operations=10**7)
    out = floats(device, 0, size=size)
    steps = device.prepare([(kernel, [out], ())] * 10)
    with using(CPU_THREADS=threads):
        for _ in range(20):
            steps.run()
    assert (read(out) == 200).all()
    if threads > 1 and size > 64:
        assert device.library.og_workers() >= threads - 1


def test_kernels_of_a_list_see_what_those_before_them_wrote(device: CpuDevice) -> None:
    # each parallel step reads, from other places, what all threads wrote in the step before
    source = f"""void shift{HEAD}{{
 int*o=b[0];const int*x=b[1];
 for(long long i=begin;i<end;i++)for(int j=0;j<64;j++)o[64*i+j]=x[(64*i+j+{N // 2})%{N}]+1;
}}"""
    kernel = load(device, "shift", source, ((dtypes.int32, N),) * 2, parallel=N // 64)
    a, b = device.buffer(4 * N), device.buffer(4 * N)
    a.copy_in(np.zeros(N, np.int32))
    with using(CPU_THREADS=3):
        device.run_list([(kernel, [b, a], ()), (kernel, [a, b], ())] * 50)
    assert (np.frombuffer(a.bytes(), np.int32) == 100).all()


def test_subnormals_are_kept_though_another_library_flushes_them(device: CpuDevice) -> None:
    if host.machine() != "x86-64":
        pytest.skip("the control register is x86's")
    source = f"""
void flush(void){{__builtin_ia32_ldmxcsr(0x9fc0);}}
void reset(void){{__builtin_ia32_ldmxcsr(0x1f80);}}
void halve{HEAD}{{float*o=b[0];o[0]*=0.5f;}}
"""
    kernel = load(device, "halve", source, ((dtypes.float32, 1),))
    tiny = floats(device, float(np.finfo(np.float32).tiny))
    library = ctypes.CDLL(kernel.program.path)
    try:
        library.flush()
        kernel.run([tiny])
    finally:
        library.reset()
    assert read(tiny)[0] == np.finfo(np.float32).tiny / 2


# ---- lists


def test_a_list_takes_other_inputs_and_parts_of_them(device: CpuDevice) -> None:
    source = f"void add{HEAD}{{float*o=b[0];const float*x=b[1],*y=b[2];o[0]=x[0]+10*y[0];}}"
    kernel = load(device, "add", source, ((dtypes.float32, 1),) * 3)
    x, out = floats(device, 0, 0, 0, 0), floats(device, 0)
    steps = device.prepare([(kernel, [out, x.view(4, 4), x.view(12, 4)], ())], [x])
    given = weakref.ref(x)
    del x
    assert given() is None
    for first in (1.0, 2.0):
        fresh = floats(device, 9, first, 9, 3)
        seconds = steps.run([fresh], wait=True)
        assert seconds is not None
        assert read(out)[0] == first + 30
    given = weakref.ref(fresh)
    del fresh
    assert given() is None
    for wrong in ([], [out], [floats(device, 1, 2, 3, 4)] * 2):
        with pytest.raises(ValueError, match="input"):
            steps.run(wrong)


def test_a_list_binds_variables_by_name(device: CpuDevice) -> None:
    n = UOp.variable("n", 0, 8)
    source = f"void mark{HEAD}{{for(long long i=begin;i<end;i++)((float*)b[0])[i]=v[0];}}"
    kernel = load(device, "mark", source, ((dtypes.float32, 8),), variables=(n,), parallel=n)
    out = floats(device, 0, size=8)
    steps = device.prepare([(kernel, [out], (2,))])
    steps.run()
    assert read(out).tolist() == [2, 2, 0, 0, 0, 0, 0, 0]
    steps.run(variables={"n": 4})
    assert read(out).tolist() == [4, 4, 4, 4, 0, 0, 0, 0]
    with pytest.raises(DeviceError, match="variable n is 9"):
        steps.run(variables={"n": 9})


def test_an_empty_list_runs(device: CpuDevice) -> None:
    assert device.run_list([], wait=True) is not None


def test_a_kernel_in_a_list_costs_next_to_nothing(device: CpuDevice) -> None:
    # 0.002 us measured; the bound leaves room for a busy machine
    kernel = load(device, "nothing", f"void nothing{HEAD}{{}}")
    steps = device.prepare([(kernel, [], ())] * 10_000)
    best = min(steps.run(wait=True) or 1.0 for _ in range(10))
    assert best / 10_000 < 0.1e-6


# ---- threads and processes


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


def test_processes_that_start_together_on_an_empty_cache_all_get_right_results(
    tmp_path: Path,
) -> None:
    # F06 with a compiler behind it; tests/runtime has sixteen processes and a killed writer
    code = """
from opgraft.devices.cpu.device import CpuDevice
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


# ---- memory


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 4097, 300_000, (2 << 20) - 1, (2 << 20) + 1])
def test_memory_is_aligned_and_its_own(device: CpuDevice, nbytes: int) -> None:
    buffers = [device.buffer(nbytes) for _ in range(8)]
    for number, buffer in enumerate(buffers):
        assert buffer.handle % (64 if nbytes <= 2 << 20 else 2 << 20) == 0
        buffer.copy_in(bytes([number]) * nbytes)
    for number, buffer in enumerate(buffers):
        assert buffer.bytes() == bytes([number]) * nbytes


def test_freed_memory_is_used_again(device: CpuDevice) -> None:
    for nbytes in (1000, 300_000, 5 << 20):
        address = device.buffer(nbytes).handle
        assert device.buffer(nbytes).handle == address
    before = device.allocator.mapped
    for _ in range(200):
        device.buffer(5 << 20).copy_in(bytes(5 << 20))
    assert device.allocator.mapped == before


def test_what_is_kept_for_reuse_is_bounded_and_can_be_given_back(device: CpuDevice) -> None:
    device.library.og_keep(16 << 20)
    try:
        buffers = [device.buffer(3 << 20) for _ in range(10)]
        assert device.allocator.kept == 0 or device.allocator.kept <= 16 << 20
        buffers.clear()
        assert 0 < device.allocator.kept <= 16 << 20
        device.allocator.trim()
        assert device.allocator.kept == 0
    finally:
        device.library.og_keep(device.allocator.limit // 4)


def test_more_memory_than_there_is_is_an_error_and_the_device_goes_on(device: CpuDevice) -> None:
    gc.collect()
    live = device.allocator.usage.live
    for nbytes in (1 << 46, 1 << 70, device.allocator.limit + 1):
        with pytest.raises(DeviceMemoryError, match=r"does not fit.*in use"):
            device.buffer(nbytes)
    assert device.allocator.usage.live == live
    out = floats(device, 0, size=N)
    increment(device, N).run([out])
    assert (read(out) == 1).all()


def test_memory_that_hangs_in_dead_cycles_is_found_when_it_is_needed(device: CpuDevice) -> None:
    big = device.allocator.limit * 2 // 3 // 4096 * 4096  # never touched: costs no memory
    gc.disable()
    try:
        ring: list[object] = [device.buffer(big)]
        ring.append(ring)
        del ring
        assert device.buffer(big).nbytes == big
    finally:
        gc.enable()
        device.allocator.trim()


def test_the_host_view_is_the_memory_and_keeps_it_alive(device: CpuDevice) -> None:
    buffer = floats(device, 1, 2, 3)
    memory = buffer.memory()
    assert memory is not None
    array = np.frombuffer(memory, np.float32)
    array[1] = 7
    assert read(buffer).tolist() == [1, 7, 3]
    alive = weakref.ref(buffer)
    del buffer, memory
    gc.collect()
    assert alive() is not None
    assert array.tolist() == [1, 7, 3]
    del array
    assert alive() is None


def test_live_bytes_stay_the_same_over_many_runs_without_the_collector(device: CpuDevice) -> None:
    # G06, at this level
    kernel = increment(device, 1 << 18)
    first = floats(device, 0, size=1 << 18)
    steps = device.prepare([(kernel, [first], ())], [first])
    del first
    gc.collect()
    gc.disable()
    try:
        base = device.allocator.usage.bytes
        most = 0
        for _ in range(200):
            fresh = floats(device, 0, size=1 << 18)
            steps.run([fresh])
            kernel.run([fresh])
            most = max(most, device.allocator.usage.bytes)
            with pytest.raises(DeviceError):
                kernel.run([])
        assert most <= base + (3 << 20)
        alive = weakref.ref(fresh)
        del fresh
        assert alive() is None
        assert device.allocator.usage.bytes == base
    finally:
        gc.enable()


@pytest.mark.parametrize("nbytes", [10, (1 << 20) - 1, (1 << 20) + 12345, 10_000_001])
def test_copies_of_every_size_are_exact(device: CpuDevice, nbytes: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    a, b = device.buffer(nbytes), device.buffer(nbytes)
    a.copy_in(data)
    b.copy_from(a)
    out = np.zeros(nbytes, np.uint8)
    b.copy_out(out)
    assert (out == data).all()


# ---- the device


def test_the_table_for_cffi_is_the_headers() -> None:
    assert (FOLDER / "_abi.py").read_text() == generate()


def test_further_indices_are_devices_of_their_own(device: CpuDevice) -> None:
    other = CpuDevice(1)
    assert (device.name, other.name) == ("CPU", "CPU:1")
    a, b = floats(device, 5), other.buffer(4)
    b.copy_from(a)
    assert read(b)[0] == 5
    other.close()
    assert read(b)[0] == 5


def test_it_is_offered_through_the_hooks_like_any_plugin() -> None:
    (spec,) = plugin.opgraft_devices()
    assert spec.name == "CPU"
    assert spec.probe().count == 1
    assert [p.name for p in plugin.opgraft_compiler_pairs("CPU")] == ["GCC", "CLANG", "CC", "ZIG"]
    assert list(plugin.opgraft_compiler_pairs("OTHER")) == []


CPUINFO = "processor : 0\nflags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512bw avx512dq avx512vl\n"


def test_the_facts_are_read_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = "/sys/devices/system/cpu/cpu0/cache/index"
    system = {
        "/proc/cpuinfo": CPUINFO,
        "/sys/fs/cgroup/cpu.max": "150000 100000\n",
        "/sys/fs/cgroup/memory.max": "1000000\n",
        f"{cache}0/size": "48K\n",
        f"{cache}0/level": "1\n",
        f"{cache}0/type": "Data\n",
        f"{cache}1/size": "32K\n",
        f"{cache}1/level": "1\n",
        f"{cache}1/type": "Instruction\n",
        f"{cache}2/size": "2M\n",
        f"{cache}2/level": "2\n",
        f"{cache}2/type": "Unified\n",
    }

    def there(path: str) -> str:
        return system.get(path, "")

    monkeypatch.setattr(host, "machine", lambda: "x86-64")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    target = host.detect(there)
    assert (target.vector_bytes, target.vector_registers, target.cores) == (64, 32, 2)
    assert target.cache_bytes == (48 << 10, 2 << 20)
    assert dtypes.float32 in target.fma
    assert "avx512vl" in target.arch
    assert host.memory(there) == 1000000
    system["/proc/cpuinfo"] = "flags : sse2 avx avx2"
    target = host.detect(there)
    assert (target.vector_bytes, target.vector_registers, target.fma) == (32, 16, frozenset())


def test_an_older_architecture_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "machine", lambda: "x86-64")
    system = {"/proc/cpuinfo": "flags : sse4_2 avx avx2 fma f16c avx512f avx512vl"}

    def there(path: str) -> str:
        return system.get(path, "")

    with using(CPU_ARCH="x86-64-v3"):
        target = host.detect(there)
        assert (target.vector_bytes, target.vector_registers) == (32, 16)
        assert target.arch == "x86-64-v3 sse4_2 avx avx2 fma f16c"
    with using(CPU_ARCH="x86-64-v4"), pytest.raises(DeviceError, match="lacks avx512bw avx512dq"):
        host.detect(there)
    with pytest.raises(SettingError, match="native, x86-64-v2"):
        using(CPU_ARCH="x86-64-v9")
    compiler = CompilerSet("CPU", target, compilers.PAIRS).select().compiler
    assert compiler is not None
    assert "-march=x86-64-v3" in compiler.key


@pytest.mark.parametrize("arch", ["x86-64", "aarch64", "riscv64"])
def test_a_system_that_tells_nothing_gets_facts_that_hold_anywhere(
    monkeypatch: pytest.MonkeyPatch, arch: str
) -> None:
    monkeypatch.setattr(host, "machine", lambda: arch)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    target = host.detect(lambda path: "")
    assert target.vector_bytes == 16
    assert target.cores == (os.cpu_count() or 1)
    assert len(target.cache_bytes) == 3
    assert host.memory(lambda path: "") > 0


def test_the_kernels_of_a_list_are_shown_one_by_one_on_request(
    device: CpuDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = increment(device, N)
    out = floats(device, 0, size=N)
    steps = device.prepare([(kernel, [out], ())] * 2, [out])
    fresh = floats(device, 4, size=N)
    with using(DEBUG=1):
        assert steps.run([fresh], wait=True) is not None
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["increment", "increment"]
    assert (read(fresh) == 6).all()
    assert (read(out) == 0).all()
