"""C compilers: found, chosen, refused, and what is said."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from opgraft import settings
from opgraft.devices.cpu import compilers, invoke, library
from opgraft.devices.cpu.device import CpuDevice
from opgraft.dtype import dtypes
from opgraft.errors import CompileError, DeviceError
from opgraft.runtime import CompilerSet, compile_cache
from opgraft.target import Target

from .c_kernels import increment

TARGET = Target("CPU", "test")


def pairs() -> CompilerSet:
    return CompilerSet("CPU", TARGET, compilers.PAIRS, compilers.custom, compilers.preferred)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def absent(name: str) -> bool:
    try:
        pairs().select(name)
    except DeviceError:
        return True
    return False


@pytest.mark.parametrize("name", ["GCC", "CLANG", "CC", "ZIG"])
def test_each_compiler_makes_the_runtime_and_kernels_that_work(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if absent(name):
        pytest.skip(f"{name} is not here")
    monkeypatch.setattr(library, "_loaded", [])
    with settings.using(CPU_CC=name, CPU_THREADS=2):
        device = CpuDevice()
        kernel = increment(device, 1 << 14, operations=10**7)
        buffer = device.buffer(4 << 14)
        buffer.copy_in(bytes(4 << 14))
        for _ in range(5):
            kernel.run([buffer])
    memory = buffer.memory()
    assert memory is not None
    assert set(memory.cast("f")) == {5.0}
    assert kernel.program.params == ((dtypes.float32, 1 << 14),)


def test_the_runtime_takes_the_next_compiler_where_one_has_no_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("gcc") or shutil.which("cc")
    if real is None:
        pytest.skip("no gcc or cc is here")
    script(
        tmp_path / "gcc",
        'source=$(/bin/cat); case "$source" in *"#include"*)'
        f" echo no pthread.h >&2; exit 1;; esac\n"
        f'printf "%s" "$source" | {real} "$@"',
    )
    monkeypatch.setattr(library, "_loaded", [])
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("OPGRAFT_CACHE", str(tmp_path / "fresh"))
    with (
        settings.using(CPU_CC="GCC"),
        pytest.raises(DeviceError, match=r"no pthread\.h(.|\n)*libc6"),
    ):
        CpuDevice().buffer(1)
    os.symlink(real, tmp_path / "cc")
    device = CpuDevice()
    assert device.pairs.select().pair.name == "GCC"
    increment(device, 64).run([device.buffer(256)])


def test_a_source_that_is_wrong_gives_the_compilers_own_words() -> None:
    compiler = pairs().select().compiler
    assert compiler is not None
    with pytest.raises(CompileError) as caught:
        compiler.compile("void kernel(void){ int x = does_not_exist; }")
    assert "does_not_exist" in str(caught.value)
    assert "undeclared" in str(caught.value)
    assert "DEBUG=1" in caught.value.remedy


def test_a_refused_source_is_kept_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compiler = pairs().select().compiler
    assert compiler is not None
    with settings.using(DEBUG=1), pytest.raises(CompileError) as caught:
        compiler.compile("int wrong = ;")
    (kept,) = tmp_path.iterdir()
    assert kept.read_text() == "int wrong = ;"
    assert str(kept) in caught.value.remedy


def test_without_any_compiler_the_error_says_what_was_looked_for_and_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # F04
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    with pytest.raises(DeviceError) as caught:
        CpuDevice()
    said = str(caught.value)
    assert [name for name, _ in caught.value.tried] == ["GCC", "CLANG", "CC", "ZIG"]
    for part in (f"gcc is not in PATH={tmp_path}", "ziglang", "pip install", "CPU_CC"):
        assert part in said
    seen = compilers.probe()
    assert seen.count == 0
    assert str(tmp_path) in seen.reason


@pytest.mark.parametrize(
    ("variable", "origin"),
    [("OPGRAFT_CPU_CC", "the setting CPU_CC"), ("CC", "CC in the environment")],
)
def test_a_bad_choice_is_an_error_and_nothing_else_is_tried(
    monkeypatch: pytest.MonkeyPatch, variable: str, origin: str
) -> None:
    # F04
    monkeypatch.setenv(variable, "/nonexistent")
    with pytest.raises(DeviceError, match=f"{origin} names /nonexistent, which is no program"):
        CpuDevice()


def test_a_misspelt_name_is_answered_with_the_names_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with settings.using(CPU_CC="gccc"), pytest.raises(DeviceError, match="GCC, CLANG, CC, ZIG"):
        CpuDevice()
    monkeypatch.setenv("CC", "gccc")
    with pytest.raises(DeviceError, match="CC in the environment names gccc"):
        CpuDevice()


def test_a_path_with_options_is_a_choice_too(tmp_path: Path) -> None:
    real = shutil.which("gcc") or shutil.which("cc")
    if real is None:
        pytest.skip("no gcc or cc is here")
    folder = tmp_path / "with space; and $HOME"
    folder.mkdir()
    os.symlink(real, folder / "my-gcc")
    selected = pairs().select(f"'{folder}/my-gcc' -O1 -DVALUE=3")
    compiler = selected.compiler
    assert compiler is not None
    assert compiler.compile("int value(void){return VALUE;}")
    assert "-DVALUE=3" in compiler.key


def test_tcc_is_refused_whatever_it_is_called(tmp_path: Path) -> None:
    fake = script(tmp_path / "gcc", "echo '#define __TINYC__ 927'; echo '#define __GNUC__ 4'")
    with pytest.raises(DeviceError, match="tcc, which miscompiles vectors"):
        pairs().select(str(fake))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 0", "says nothing"),
        ("echo first; echo broken here >&2; exit 3", "broken here"),
        ("kill -9 $$", "says nothing"),
    ],
)
def test_a_program_that_is_no_compiler_is_refused(tmp_path: Path, text: str, said: str) -> None:
    fake = script(tmp_path / "cc", text)
    with pytest.raises(DeviceError, match="does not work as a C compiler") as caught:
        pairs().select(str(fake))
    assert said in str(caught.value)


def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "cc"
    fake.write_bytes(b"\x7fELF not really")
    fake.chmod(0o755)
    with pytest.raises(DeviceError, match="cannot be run"):
        pairs().select(str(fake))
    fake.chmod(0o644)
    with pytest.raises(DeviceError, match="is no program"):
        pairs().select(str(fake))


def test_a_compiler_is_asked_once_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    real = shutil.which("gcc") or shutil.which("cc")
    if real is None:
        pytest.skip("no gcc or cc is here")
    fake = script(tmp_path / "cc", f'echo x >> {calls}; exec {real} "$@"')
    first = pairs().select(str(fake)).compiler
    second = pairs().select(str(fake)).compiler
    assert first is not None
    assert second is not None
    assert first.key == second.key
    assert calls.read_text() == "x\n"
    script(tmp_path / "cc", f'echo y >> {calls}; exec {real}  "$@"')  # it was upgraded
    pairs().select(str(fake))
    assert calls.read_text() == "x\ny\n"
    monkeypatch.setattr(invoke, "run", None)
    assert pairs().select(str(fake)).compiler is not None


def test_a_compiler_without_a_native_option_is_used_without(tmp_path: Path) -> None:
    fake = script(
        tmp_path / "cc",
        'case "$*" in *native*) exit 1;; esac\n'
        "echo '#define __GNUC__ 9'; echo '#define __VERSION__ \"9.9 (old)\"'",
    )
    compiler = pairs().select(str(fake)).compiler
    assert isinstance(compiler, compilers.CCompiler)
    assert compiler.identity == compilers.Identity("gcc", "9.9 (old)", "")
    assert "native" not in compiler.key


def test_the_key_names_what_decides_the_binary() -> None:
    compiler = pairs().select().compiler
    assert isinstance(compiler, compilers.CCompiler)
    for part in (compiler.identity.version, "test", "-fwrapv", "-ffp-contract=off"):
        assert part in compiler.key
    other = CompilerSet("CPU", Target("CPU", "other"), compilers.PAIRS).select().compiler
    assert other is not None
    assert other.key != compiler.key


def test_no_temporary_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    compiler = pairs().select().compiler
    assert compiler is not None
    compiler.compile("int value(void){return 1;}")
    with pytest.raises(CompileError):
        compiler.compile("int value(void){return x;}")
    assert list(tmp_path.iterdir()) == []


# ---- bringing what was compiled into the process


def test_a_library_is_loaded_from_its_bytes_where_its_file_is_gone_or_barred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = pairs().select().compiler
    assert compiler is not None
    data = compiler.compile("int value(void){return 1;}")
    assert library.Library(data, "").address("value")
    assert library.Library(data, str(tmp_path / "gone.so")).address("value")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no folder"))
    if hasattr(os, "memfd_create"):
        assert library.Library(data, "").address("value")


def test_a_library_that_cannot_be_loaded_says_why() -> None:
    with pytest.raises(OSError, match=r"ELF|invalid|too short"):
        library.Library(b"no library at all", "")


def test_without_a_cache_everything_works() -> None:
    with settings.using(CACHE="off"):
        device = CpuDevice()
        kernel = increment(device, 64)
        assert kernel.program.path == ""
        buffer = device.buffer(256)
        buffer.copy_in(bytes(256))
        kernel.run([buffer])
        assert set(buffer.memory().cast("f")) == {1.0}  # type: ignore[union-attr]
        assert compile_cache().folder is None
