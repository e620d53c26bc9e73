"""What the CPU device says about itself and this machine."""

from __future__ import annotations

import os

import pytest

import opgraft.devices.cpu as plugin
from opgraft.devices.cpu import compilers, host
from opgraft.devices.cpu.device import CpuDevice
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError, SettingError
from opgraft.runtime import CompilerSet
from opgraft.settings import using

from .abi import FOLDER, generate
from .c_kernels import N, floats, increment, read


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
        f"{cache}0/coherency_line_size": "128\n",
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
    assert (target.cache_bytes, target.line_bytes) == ((48 << 10, 2 << 20), 128)
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
    assert (len(target.cache_bytes), target.line_bytes) == (3, 64)
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


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("sse4_2", ["pairs16"]),
        ("sse4_2 avx avx2 fma f16c", ["pairs16"]),
        ("sse4_2 avx avx2 fma f16c avx_vnni", ["fours8", "pairs16"]),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni", ["fours8", "pairs16"]),
    ],
)
def test_dot_instructions_follow_the_extensions(
    monkeypatch: pytest.MonkeyPatch, flags: str, names: list[str]
) -> None:
    monkeypatch.setattr(host, "machine", lambda: "x86-64")
    target = host.detect(lambda path: f"flags : {flags}" if path == "/proc/cpuinfo" else "")
    assert [unit.name for unit in target.dot_units] == names
    monkeypatch.setattr(host, "machine", lambda: "aarch64")
    assert host.detect(lambda path: "").dot_units == ()
