"""A device's life: found, opened, used from threads and forks, closed; and what it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from opgraft.api import (
    KernelInfo,
    LaunchList,
    Ops,
    UOp,
    compile_kernel,
    compile_linear,
    dtypes,
    using,
)
from opgraft.catalog import Device as DEVICES
from opgraft.errors import CompileError, DeviceError, DeviceMemoryError
from opgraft.runtime import Device
from opgraft_cl import driver, plugin
from opgraft_cl.memory import ClAllocator

from .gate import held
from .programs import i32, load, param, program, store


def kernel_of(cl: Device, size: int, factor: float = 2.0) -> object:
    i = UOp.range(size, "i")
    value = param(1, dtypes.float32, size).load(i) * factor
    sink = UOp.sink(param(0, dtypes.float32, size).store(i, value).end(i), arg=KernelInfo("scale"))
    return compile_kernel(cl, sink)


def fresh(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600
    )


OPEN = "from opgraft import Device; print(Device['CL'].target.arch)"


# ---- found and opened


def test_importing_and_listing_start_no_driver() -> None:
    code = (
        "import opgraft_cl.plugin as p, sys\n"
        "assert [s.name for s in p.opgraft_devices()] == ['CL']\n"
        "assert [c.name for c in p.opgraft_compiler_pairs('CL')] == ['CL', 'INTEL']\n"
        "assert 'opgraft_cl.driver' not in sys.modules and '_cffi_backend' not in sys.modules\n"
    )
    done = fresh(code)
    assert done.returncode == 0, done.stderr


def test_without_a_driver_the_probe_and_the_error_say_what_was_tried(tmp_path: Path) -> None:
    missing = str(tmp_path / "libNone.so")
    code = "import opgraft_cl.plugin as p; print(p.opgraft_devices()[0].probe())"
    done = fresh(code, OPGRAFT_CL_LIBRARY=missing)
    assert "count=0" in done.stdout
    assert missing in done.stdout
    done = fresh(OPEN, OPGRAFT_CL_LIBRARY=missing)
    assert "DeviceError: no OpenCL library can be loaded" in done.stderr
    assert missing in done.stderr
    assert "pocl-opencl-icd" in done.stderr


def test_a_loader_without_drivers_is_told_apart(cl: Device, tmp_path: Path) -> None:
    done = fresh(OPEN, OCL_ICD_VENDORS=str(tmp_path))
    assert "OpenCL has no device that can be used" in done.stderr


def test_devices_are_chosen_by_a_part_of_the_platforms_or_their_own_name(cl: Device) -> None:
    platform, _, name = cl.target.arch.partition(", ")
    code = "from opgraft import Device, using\n"
    for setting, right in (("CL_PLATFORM", platform[2:8]), ("CL_DEVICE", name[:5].upper())):
        done = fresh(code + f"with using({setting}={right!r}): print(Device['CL'].target.arch)")
        assert done.stdout.strip() == cl.target.arch, done.stderr
        done = fresh(code + f"with using({setting}='nobody'): Device['CL']")
        assert f"{setting} is nobody" in done.stderr


def test_an_index_without_a_device_is_an_error_that_lists_what_there_is(cl: Device) -> None:
    with pytest.raises(DeviceError, match=r"there is no CL:99: OpenCL has \d+ device"):
        DEVICES["CL:99"]


def test_opencl_on_a_processor_is_not_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_GPU_NODES", ("/nowhere",))
    assert plugin.opgraft_devices()[0].priority < 10  # type: ignore[index]


def test_opencl_on_a_gpu_comes_before_the_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plugin, "_GPU_NODES", (str(tmp_path),))
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    (tmp_path / "pocl.icd").touch()
    if sys.platform.startswith("linux"):
        assert plugin.opgraft_devices()[0].priority < 10  # type: ignore[index]
    (tmp_path / "vendor.icd").touch()
    assert plugin.opgraft_devices()[0].priority > 10  # type: ignore[index]


def test_errors_have_names() -> None:
    assert driver.code_name(-5) == "CL_OUT_OF_RESOURCES"
    assert driver.code_name(-54) == "CL_INVALID_WORK_GROUP_SIZE"
    assert driver.code_name(-72) == "CL_MAX_SIZE_RESTRICTION_EXCEEDED"
    assert driver.code_name(-9999) == "CL_error -9999"
    with pytest.raises(DeviceError, match="CL: testing failed: CL_INVALID_VALUE"):
        driver.check(-30, "testing")
    with pytest.raises(DeviceMemoryError):
        driver.check(-4, "testing")


# ---- memory


@pytest.mark.parametrize("offset", [0, 4, 12, 128, 1000, 4096])
def test_kernels_take_views_at_any_offset(cl: Device, offset: int) -> None:
    whole = cl.buffer(8192)
    data = np.arange(2048, dtype=np.float32)
    whole.copy_in(data)
    part, out = whole.view(offset, 400), cl.buffer(800)
    kernel = kernel_of(cl, 100)
    kernel.run([out.view(200, 400), part])  # type: ignore[attr-defined]
    found = np.frombuffer(out.view(200, 400).bytes(), np.float32)
    assert found.tolist() == (data[offset // 4 : offset // 4 + 100] * 2).tolist()
    part.view(40, 80).copy_in(np.full(20, -1, np.float32))
    after = np.frombuffer(whole.bytes(), np.float32)
    begin = offset // 4 + 10
    assert (after[begin : begin + 20] == -1).all()
    assert (after == -1).sum() == 20


def test_copies_inside_the_device(cl: Device) -> None:
    first, second = cl.buffer(1000), cl.buffer(600)
    first.copy_in(bytes(range(250)) * 4)
    second.view(100, 300).copy_from(first.view(7, 300))
    assert second.view(100, 300).bytes() == (bytes(range(250)) * 4)[7:307]
    first.view(10, 500).copy_from(first.view(0, 500))  # overlapping
    assert first.bytes()[10:510] == (bytes(range(250)) * 4)[:500]


def test_buffers_of_no_bytes(cl: Device) -> None:
    empty = cl.buffer(0)
    empty.copy_in(b"")
    assert empty.bytes() == b""
    assert empty.view(0, 0).bytes() == b""


def test_memory_that_does_not_fit_is_an_error_that_leaves_the_device_usable(cl: Device) -> None:
    allocator = cl.allocator
    assert isinstance(allocator, ClAllocator)
    with pytest.raises(DeviceMemoryError, match="CL_DEVICE_MAX_MEM_ALLOC_SIZE"):
        cl.buffer(allocator.largest + 1)
    size = min(allocator.largest, allocator.limit // 3)
    with pytest.raises(DeviceMemoryError, match="does not fit"):
        [cl.buffer(size) for _ in range(2 + allocator.limit // size)]
    test_copies_inside_the_device(cl)


def test_freed_memory_is_used_again_and_can_be_given_back(cl: Device) -> None:
    allocator = cl.allocator
    assert isinstance(allocator, ClAllocator)
    allocator.trim()
    first = cl.buffer(1 << 20)
    mem, live = first.handle.mem, allocator.usage.live
    del first
    assert allocator.usage.live == live - 1
    assert cl.buffer((1 << 20) - 8).handle.mem == mem
    allocator.trim()
    assert not allocator._kept


def test_copies_wait_for_no_kernel_but_those_on_their_memory(cl: Device) -> None:
    """While a kernel is held back, memory that it does not use is copied both ways."""
    kernel, size = kernel_of(cl, 1 << 14), 4 << 14
    data = np.arange(1 << 14, dtype=np.float32)
    x, early, late, other = (cl.buffer(size) for _ in range(4))
    x.copy_in(data)
    late.copy_in(np.zeros_like(data))
    kernel.run([early, x])  # type: ignore[attr-defined]
    found: dict[str, object] = {}

    def beside() -> None:
        other.copy_in(data + 1)
        found["written"] = np.frombuffer(other.bytes(), np.float32).tolist()
        found["made before"] = np.frombuffer(early.bytes(), np.float32).tolist()

    def behind() -> None:
        found["made behind"] = np.frombuffer(late.bytes(), np.float32).tolist()

    with held(cl) as held_back:
        kernel.run([late, x])  # type: ignore[attr-defined]
        threads = [threading.Thread(target=work) for work in (beside, behind)]
        threads[0].start()
        threads[0].join(60)  # far more than it takes: only a copy that waits for all gets there
        threads[1].start()
        assert held_back()
        assert not threads[0].is_alive(), "a copy waits for kernels on other memory"
        assert list(found) == ["written", "made before"]
    threads[1].join()
    assert found["written"] == (data + 1).tolist()
    assert found["made before"] == found["made behind"] == (data * 2).tolist()


def test_of_the_launches_before_the_last_ones_nothing_is_forgotten(cl: Device) -> None:
    """Memory that was used more launches ago than events are kept."""
    from opgraft_cl.context import _EVENTS

    kernel, (out, x, last) = kernel_of(cl, 100), (cl.buffer(400) for _ in range(3))
    data = np.arange(100, dtype=np.float32)
    x.copy_in(data)
    kernel.run([out, x])  # type: ignore[attr-defined]
    for _ in range(_EVENTS + 5):
        kernel.run([last, x])  # type: ignore[attr-defined]
    for made in (out, last):
        assert np.frombuffer(made.bytes(), np.float32).tolist() == (data * 2).tolist()


# ---- launches


def test_what_a_launch_lacks_is_said_before_the_driver_sees_it(cl: Device) -> None:
    kernel, small = kernel_of(cl, 100), cl.buffer(4)
    with pytest.raises(DeviceError, match="takes 2 buffers and 0 variables, not 1 and 0"):
        kernel.run([small])  # type: ignore[attr-defined]
    with pytest.raises(DeviceError, match="buffer 0 has 4 bytes of 400"):
        kernel.run([small, small])  # type: ignore[attr-defined]


def test_a_launch_that_is_waited_for_says_how_long_it_took(cl: Device) -> None:
    kernel, size = kernel_of(cl, 1 << 20), 4 << 20
    out, x = cl.buffer(size), cl.buffer(size)
    assert kernel.run([out, x]) is None  # type: ignore[attr-defined]
    seconds = kernel.run([out, x], wait=True)  # type: ignore[attr-defined]
    assert 0 < seconds < 10


def test_threads_launch_at_the_same_time(cl: Device) -> None:
    kernel, wrong = kernel_of(cl, 1000), []

    def work(number: int) -> None:
        x, out = cl.buffer(4000), cl.buffer(4000)
        for step in range(30):
            x.copy_in(np.full(1000, number * 100 + step, np.float32))
            kernel.run([out, x])  # type: ignore[attr-defined]
            found = np.frombuffer(out.bytes(), np.float32)
            if (found != 2 * (number * 100 + step)).any():
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Counting:
    """A library whose calls are written down."""

    def __init__(self, library: object) -> None:
        self.library = library
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        function = getattr(self.library, name)

        def call(*arguments: object) -> object:
            self.calls.append(name)
            return function(*arguments)

        return call


def test_arguments_that_stay_are_not_given_again(
    cl: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opgraft_cl.device import ClDevice

    assert isinstance(cl, ClDevice)
    kernel, (out, other, x) = kernel_of(cl, 100, 3.0), (cl.buffer(400) for _ in range(3))
    x.copy_in(np.arange(100, dtype=np.float32))
    kernel.run([out, x])  # type: ignore[attr-defined]
    library = Counting(cl._context.library)
    monkeypatch.setattr(cl._context, "library", library)
    for given, changed in (([out, x], 0), ([other, x], 1), ([other, x], 0), ([out, other], 2)):
        library.calls.clear()
        kernel.run(given)  # type: ignore[attr-defined]
        assert library.calls.count("clSetKernelArg") == changed
    assert np.frombuffer(other.bytes(), np.float32).tolist() == (np.arange(100.0) * 3).tolist()
    with pytest.raises(DeviceError, match="buffer 1 has 8 bytes of 400"):
        kernel.run([out, x.view(0, 8)])  # type: ignore[attr-defined]
    kernel.run([other, x])  # type: ignore[attr-defined]
    assert np.frombuffer(other.bytes(), np.float32)[-1] == 297


def test_lists_of_launches_exchange_inputs_and_variables(cl: Device) -> None:
    n = UOp(Ops.VAR, dtypes.int32, (), ("n", 0, 100))
    x, y = param(0, dtypes.int32, 4), param(1, dtypes.int32, 4)
    made = program(
        [store(y, i32(0), load(x, i32(0)) + n), store(y, i32(1), load(x, i32(1)))], "add"
    )
    step = compile_linear(cl, made)
    first, middle, last = (cl.buffer(16) for _ in range(3))
    steps = [(step, [first, middle], [5]), (step, [middle, last], [5])]
    captured = cl.prepare(steps, [first])
    assert isinstance(captured, LaunchList)
    for number in range(3):
        given = cl.buffer(16)
        given.copy_in(np.array([number, 7, 0, 0], np.int32))
        captured.run([given], {"n": number})
        assert np.frombuffer(last.bytes(), np.int32)[:2].tolist() == [3 * number, 7]
    assert captured.run([first], wait=True) is not None
    with pytest.raises(ValueError, match="takes 1 inputs, not 0"):
        captured.run([])


def test_what_goes_wrong_in_a_kernel_comes_out_when_it_is_waited_for(
    cl: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opgraft_cl.device import ClDevice

    assert isinstance(cl, ClDevice)
    library = cl._context.library

    class Failing:
        clFinish = staticmethod(lambda queue: -5)

        def __getattr__(self, name: str) -> object:
            return getattr(library, name)

    monkeypatch.setattr(cl._context, "library", Failing())
    with pytest.raises(DeviceError, match="what was launched failed: CL_OUT_OF_RESOURCES"):
        cl.synchronize()
    monkeypatch.undo()
    cl.synchronize()


def test_buffers_of_another_device_are_refused(cl: Device, interp: Device) -> None:
    with pytest.raises(DeviceError, match="buffer 1 is on INTERP"):
        kernel_of(cl, 4).run([cl.buffer(16), interp.buffer(16)])  # type: ignore[attr-defined]


def test_data_may_change_as_soon_as_it_was_copied(cl: Device) -> None:
    kernel, results = kernel_of(cl, 1000), []
    data = np.zeros(1000, np.float32)
    for number in range(50):
        x, out = cl.buffer(4000), cl.buffer(4000)
        data[:] = number
        x.copy_in(data)
        data[:] = -1
        kernel.run([out, x])  # type: ignore[attr-defined]
        results.append(out)
    for number, out in enumerate(results):
        assert (np.frombuffer(out.bytes(), np.float32) == 2 * number).all()


# ---- compiling


def test_a_refused_source_comes_back_with_the_compilers_words(cl: Device) -> None:
    compiler = cl.pairs.select().compiler
    assert compiler is not None
    with pytest.raises(CompileError, match="undeclared_thing"):
        compiler.compile("__kernel void k(__global int*a){a[0]=undeclared_thing;}")


def test_the_caches_key_names_device_driver_and_options(cl: Device) -> None:
    compiler = cl.pairs.select().compiler
    assert compiler is not None
    platform, _, name = cl.target.arch.partition(", ")
    for part in (platform, name, "OpenCL C", "-cl-std=CL1.2"):
        assert part in compiler.key


def test_a_binary_that_the_driver_refuses_is_made_again_from_the_source(cl: Device) -> None:
    import dataclasses

    kernel = kernel_of(cl, 64)
    stale = dataclasses.replace(kernel.program, binary=b"not a binary")  # type: ignore[attr-defined]
    x, out = cl.buffer(256), cl.buffer(256)
    x.copy_in(np.arange(64, dtype=np.float32))
    cl.load(stale).run([out, x])
    assert np.frombuffer(out.bytes(), np.float32).tolist() == [2.0 * i for i in range(64)]


def test_a_part_of_a_binary_never_reaches_the_driver(cl: Device) -> None:
    """PoCL ends the process on one."""
    code = (
        "import dataclasses, numpy as np\n"
        "from opgraft import Device as DEVICES\n"
        "from opgraft.api import LinearProgram, Ops, UOp, compile_linear, dtypes\n"
        "out = UOp(Ops.PARAM, dtypes.int32, (), (0, 1))\n"
        "zero, seven = (UOp.const(dtypes.int32, n) for n in (0, 7))\n"
        "store = UOp(Ops.STORE, dtypes.void, (out, zero, seven))\n"
        "cl = DEVICES['CL']\n"
        "made = compile_linear(cl, LinearProgram('k', (store,), (out,), written=(0,))).program\n"
        "size = len(made.binary)\n"
        "parts = [made.binary[:n] for n in (1, 4, 12, 60, size // 2, size - 1)]\n"
        "parts += [made.binary[1:], made.binary[:-1] + b'?', b'']\n"
        "for part in parts:\n"
        "    buffer = cl.buffer(4)\n"
        "    cl.load(dataclasses.replace(made, binary=part)).run([buffer])\n"
        "    print(np.frombuffer(buffer.bytes(), np.int32)[0], end=' ', flush=True)\n"
    )
    done = fresh(code)
    assert (done.returncode, done.stdout.split()) == (0, ["7"] * 9), done.stderr


def test_a_driver_that_finds_no_linker_does_not_end_the_process(cl: Device, tmp_path: Path) -> None:
    code = (
        "import os; os.environ['PATH'] = ''\n"
        "from opgraft_tensor import Tensor\n"
        "print((Tensor([1.0, 2.0], device='CL') * 3).tolist())\n"
    )
    empty = {"OPGRAFT_CACHE": str(tmp_path / "ours"), "POCL_CACHE_DIR": str(tmp_path)}
    done = fresh(code, **empty)
    if done.returncode:  # it is PoCL, that has neither a linker nor the kernel in its cache
        assert "links kernels with ld, which is not in PATH=" in done.stderr
        assert "DeviceError" in done.stderr
        assert "apt install binutils" in done.stderr
    else:
        assert done.stdout == "[3.0, 6.0]\n"
    if cl.target.arch.startswith("Portable"):
        whole = fresh(code.replace("PATH'] = ''", "PATH'] += ''"), **empty)
        assert whole.stdout == "[3.0, 6.0]\n", whole.stderr


def test_a_second_process_compiles_nothing(cl: Device, tmp_path: Path) -> None:
    code = (
        "import numpy as np, opgraft_cl.compiler as c\n"
        "from opgraft import Device\n"
        "from opgraft.runtime import compile_cache\n"
        "from opgraft_tensor import Tensor\n"
        "print((Tensor(np.arange(4.0), device='CL') * 3).tolist(), end=' ')\n"
        "print(compile_cache().statistics.misses)\n"
    )
    first = fresh(code, OPGRAFT_CACHE=str(tmp_path))
    again = fresh(code, OPGRAFT_CACHE=str(tmp_path))
    assert first.stdout.startswith("[0.0, 3.0, 6.0, 9.0] "), first.stderr
    assert again.stdout == "[0.0, 3.0, 6.0, 9.0] 0\n", again.stderr


@pytest.mark.parametrize("name", ["if", "kernel", "a b", "π", "x" * 500, "float4", "1", "__x"])
def test_kernels_may_have_any_name(cl: Device, name: str) -> None:
    made = program([store(param(0, dtypes.int32, 1), i32(0), i32(7))], name)
    out = cl.buffer(4)
    compile_linear(cl, made).run([out])
    assert np.frombuffer(out.bytes(), np.int32).tolist() == [7]


# ---- forks, and the end


def test_a_forked_child_gets_an_error_that_says_so(cl: Device) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    code = (
        "import os, numpy as np\n"
        "from opgraft import Device\n"
        "cl = Device['CL']; b = cl.buffer(64); b.copy_in(bytes(64))\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    from opgraft.errors import DeviceError\n"
        "    said = 0\n"
        "    for use in (cl.synchronize, b.bytes, lambda: b.copy_in(bytes(64)),\n"
        "                lambda: cl.buffer(64)):\n"
        "        try: use()\n"
        "        except DeviceError as e: said += 'a fork of it' in str(e)\n"
        "    os._exit(said)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), b.bytes() == bytes(64))\n"
    )
    done = fresh(code)
    assert done.stdout.split() == ["4", "True"], done.stderr


@pytest.mark.parametrize(
    "last",
    [
        "pass",
        "del cl",
        "DEVICES.close()",
        "raise SystemExit(0)",
        "DEVICES.close(); del keep, cl; gc.collect()",
        "sys.keep_for_ever = (keep, cl)",
    ],
)
def test_a_process_ends_well_whatever_is_alive(cl: Device, last: str) -> None:
    code = (
        "import gc, sys\n"
        "from opgraft import Device as DEVICES\n"
        "from opgraft_tensor import Tensor\n"
        "cl = DEVICES['CL']\n"
        "keep = [(Tensor([1.0, 2.0], device='CL') + n).realize() for n in range(3)]\n"
        f"print('fine', flush=True)\n{last}\n"
    )
    done = fresh(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_a_closed_device_can_be_opened_again(cl: Device) -> None:
    code = (
        "from opgraft import Device as DEVICES\n"
        "from opgraft_tensor import Tensor\n"
        "for n in range(3):\n"
        "    x = (Tensor([1.0, 2.0], device='CL') * n).tolist()\n"
        "    buffer = DEVICES['CL'].buffer(64); buffer.copy_in(bytes(range(64)))\n"
        "    DEVICES.close()\n"
        "    assert buffer.bytes() == bytes(range(64))\n"
        "    print(x)\n"
    )
    done = fresh(code)
    assert done.stdout.splitlines() == ["[0.0, 0.0]", "[1.0, 2.0]", "[2.0, 4.0]"], done.stderr


def test_settings_are_the_plugins_own(cl: Device) -> None:
    with using(CL_LANES=0):
        found = DEVICES["CL"]
    assert found is cl
    assert re.search("OpenCL", plugin.opgraft_devices()[0].description)  # type: ignore[index]
