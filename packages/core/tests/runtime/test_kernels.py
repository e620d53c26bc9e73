"""From a sink to a kernel that runs: made once, by whoever comes first, and kept."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from opgraft import settings
from opgraft.devices.null import NullDevice
from opgraft.dtype import DType, dtypes
from opgraft.errors import CompileError, DeviceError
from opgraft.ir import Ops, Space, UOp
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.trace import tracing
from opgraft.runtime import (
    Compiler,
    CompilerPair,
    Executable,
    KernelTable,
    Program,
    compile_cache,
    compile_kernel,
    compile_kernels,
    lowered,
)
from opgraft.runtime.compiler import describe
from opgraft.target import Target

from .host_device import HostDevice


def param(slot: int, size: int, dtype: DType = dtypes.float32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def scaled(factor: float, size: int = 64) -> UOp:
    i = UOp.range(size, 0)
    return UOp.sink(
        param(0, size).store(i, param(1, size).load(i) * factor).end(i), arg=KernelInfo("scaled")
    )


class Counting(Compiler):
    """Hands the source back as the binary, and counts."""

    key = "counting"
    compiled: list[str]

    def __init__(self, target: Target) -> None:
        self.compiled = []

    def compile(self, source: str) -> bytes:
        self.compiled.append(source)
        if "7.0f" in source:
            raise CompileError("TOY refused a source:\nline 1: I don't like sevens")
        return source.encode()


def device_with(compiler: type[Compiler] = Counting) -> tuple[NullDevice, Compiler]:
    device = NullDevice()
    text = device.pairs.select("C").pair
    device.pairs.extend([CompilerPair("TOY", "NULL", text.renderer, compiler, 1000)])
    made = device.pairs.select().compiler
    assert made is not None
    return device, made


def test_a_kernel_is_made_once_per_sink_and_compiler() -> None:
    device, compiler = device_with()
    assert isinstance(compiler, Counting)
    kernel = compile_kernel(device, scaled(2.0))
    assert compile_kernel(device, scaled(2.0)) is kernel
    assert compile_kernel(device, scaled(3.0)) is not kernel
    assert len(compiler.compiled) == 2
    with settings.using(NULL_CC="C"):
        assert compile_kernel(device, scaled(2.0)) is not kernel
    assert len(compiler.compiled) == 2
    assert kernel.program.binary == kernel.program.source.encode()
    assert kernel.program.params == ((dtypes.float32, 64),) * 2
    assert kernel.program.written == (0,)


def test_another_device_finds_lowering_and_binary_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, _ = device_with()
    made = compile_kernel(first, scaled(2.0)).program
    second, compiler = device_with()
    assert isinstance(compiler, Counting)
    monkeypatch.setattr("opgraft.lower.pipeline.lower", None)
    found = compile_kernel(second, scaled(2.0)).program
    assert compiler.compiled == []
    assert (found.source, found.binary, found.params) == (made.source, made.binary, made.params)
    assert found.parallel == made.parallel
    assert found.path == made.path != ""


def test_who_watches_the_passes_has_them_run() -> None:
    device, _ = device_with()
    compile_kernel(device, scaled(2.0))
    device.close()
    with tracing() as trace:
        program = compile_kernel(device, scaled(2.0)).program
    assert program.linear is not None
    assert trace.rules


def test_edited_code_and_other_settings_lower_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = device_with()
    assert compile_kernel(device, scaled(2.0)).program.linear is not None
    device.close()
    assert compile_kernel(device, scaled(2.0)).program.linear is None
    with settings.using(FLOAT="reassoc"):
        assert compile_kernel(device, scaled(2.0)).program.linear is not None
    device.close()
    monkeypatch.setattr(lowered, "fingerprint", lambda: "another")
    assert compile_kernel(device, scaled(2.0)).program.linear is not None


def test_a_damaged_cache_is_made_anew() -> None:
    device, _ = device_with()
    compile_kernel(device, scaled(2.0))
    folder = compile_cache().folder
    assert folder is not None
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "r+b") as file:
            file.write(b"rotten")
    device.close()
    program = compile_kernel(device, scaled(2.0)).program
    assert program.binary == program.source.encode()
    assert program.linear is not None


def test_a_compilers_own_words_reach_the_user_each_time() -> None:
    device, compiler = device_with()
    assert isinstance(compiler, Counting)
    for _ in range(2):
        with pytest.raises(CompileError, match=r"kernel scaled: TOY(.|\n)*don't like sevens"):
            compile_kernel(device, scaled(7.0))
    assert len(compiler.compiled) == 2
    assert len(device.kernels) == 0


def test_the_source_and_the_times_are_shown_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    device, _ = device_with()
    with settings.using(DEBUG=1):
        compile_kernel(device, scaled(2.0))
    said = capsys.readouterr().err
    assert said.startswith("NULL TOY scaled: lowered in ")
    assert len(said.splitlines()) == 1
    with settings.using(DEBUG=2):
        program = compile_kernel(device, scaled(4.0)).program
    assert program.source in capsys.readouterr().err


def test_the_instructions_and_the_rewrites_are_shown_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    device, _ = device_with()
    with settings.using(DEBUG=3):
        compile_kernel(device, scaled(3.0))
    said = capsys.readouterr().err
    assert 'linear["scaled"]' in said
    assert "floating.py" not in said
    with settings.using(DEBUG=4):
        compile_kernel(device, scaled(1.0))
    assert "float_multiply_by_one (floating.py" in capsys.readouterr().err


def test_a_program_survives_its_way_through_the_cache() -> None:
    n = UOp.variable("n", 1, 100)
    x = UOp.variable("x", -1.5, 2.5, dtypes.float64)
    program = Program(
        "name",
        "source",
        params=((dtypes.bfloat16, 3), (dtypes.bool, 0)),
        entry="og_name",
        variables=(n, x),
        parallel=(n + 3) // 4,
        launch=((4, n.vmax), (32,)),
        written=(1,),
        operations=12,
        stack=40,
    )
    assert lowered.unpack(lowered.pack(program)) == program


def test_a_program_says_what_its_buffers_take_of_the_stack() -> None:
    own = UOp(Ops.LOCAL, dtypes.float32.vec(4), (), ("own", 3, Space.PRIVATE))
    group = UOp(Ops.LOCAL, dtypes.float32, (), ("group", 5, Space.GROUP))
    assert Program.of(LinearProgram("p", (own, group, own), ())).stack == 48


def test_targets_are_described_alike_in_every_process() -> None:
    # sets of dtypes and ops print in another order each time
    text = describe(NullDevice().target)
    assert text == describe(NullDevice().target)
    assert "compute={bool,float32,float64,int16" in text
    assert "AxisKind.PARALLEL" in text


# ---- the table


def kernel(device: HostDevice) -> Executable:
    return device.kernel(lambda: None, 0)


def test_only_the_recently_used_stay() -> None:
    device, table = HostDevice(), KernelTable(limit=2)
    first, second = (table.get_or_make(key, lambda: kernel(device)) for key in "ab")
    table.get_or_make("a", lambda: kernel(device))
    table.get_or_make("c", lambda: kernel(device))
    assert table.get_or_make("a", lambda: kernel(device)) is first
    assert table.get_or_make("b", lambda: kernel(device)) is not second
    assert len(table) == 2


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    """What `count` threads that start together return or raise."""
    results: list[object] = [None] * count
    ready = threading.Barrier(count)

    def run(number: int) -> None:
        ready.wait()
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_threads_that_want_one_kernel_wait_for_the_one_that_makes_it() -> None:
    device, table, made = HostDevice(), KernelTable(), []

    def make() -> Executable:
        time.sleep(0.05)
        made.append(kernel(device))
        return made[-1]

    results = in_threads(8, lambda _: table.get_or_make("key", make))
    assert len(made) == 1
    assert results == made * 8


def test_a_failure_reaches_all_that_wait_and_is_not_kept() -> None:
    device, table, tries = HostDevice(), KernelTable(), []

    def make() -> Executable:
        tries.append(1)
        time.sleep(0.02)
        raise DeviceError("no")

    results = in_threads(4, lambda _: table.get_or_make("key", make))
    assert all(isinstance(result, DeviceError) for result in results)
    assert len(tries) < 4
    assert table.get_or_make("key", lambda: kernel(device)).program.name == "<lambda>"


def test_an_interrupted_maker_leaves_the_work_to_the_next() -> None:
    device, table, tries = HostDevice(), KernelTable(), []

    def make() -> Executable:
        tries.append(1)
        if len(tries) == 1:
            time.sleep(0.02)
            raise KeyboardInterrupt
        return kernel(device)

    results = in_threads(4, lambda _: table.get_or_make("key", make))
    assert sum(isinstance(result, KeyboardInterrupt) for result in results) == 1
    assert sum(isinstance(result, Executable) for result in results) == 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_while_a_kernel_is_made_makes_its_own() -> None:
    # F08: the thread that makes it is not in the child
    device, table = HostDevice(), KernelTable()
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Executable:
        begun.set()
        go_on.wait(10)
        return kernel(device)

    maker = threading.Thread(target=lambda: table.get_or_make("key", slow))
    maker.start()
    begun.wait(10)
    child = os.fork()
    if child == 0:
        table.get_or_make("key", lambda: kernel(device))
        os._exit(7)
    deadline = time.monotonic() + 10
    status = (0, 0)
    while status[0] == 0 and time.monotonic() < deadline:
        status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.005)
    if status[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    go_on.set()
    maker.join(10)
    assert os.waitstatus_to_exitcode(status[1]) == 7


def test_eight_threads_compile_different_kernels_at_once() -> None:
    # G05, first part, at this level
    device, _ = device_with()

    def work(number: int) -> bool:
        factors = [number + step / 64 for step in range(1, 13)]
        kernels = [compile_kernel(device, scaled(factor)) for factor in factors]
        return all(f"{f}f" in k.program.source for f, k in zip(factors, kernels, strict=True))

    assert in_threads(8, work) == [True] * 8


# ---- several at once


class Slow(Counting):
    """Takes a while, and notes how many compile at one time."""

    together = 0
    most = 0
    lock = threading.Lock()

    def compile(self, source: str) -> bytes:
        with Slow.lock:
            Slow.together += 1
            Slow.most = max(Slow.most, Slow.together)
        time.sleep(0.03)
        with Slow.lock:
            Slow.together -= 1
        return super().compile(source)


def test_several_kernels_are_compiled_on_all_cores_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    device, compiler = device_with(Slow)
    assert isinstance(compiler, Counting)
    sinks = [scaled(factor) for factor in (2.0, 3.0, 2.0, 4.0, 5.0)]
    kernels = compile_kernels(device, sinks)
    assert kernels == [compile_kernel(device, sink) for sink in sinks]
    assert kernels[0] is kernels[2]
    assert len(compiler.compiled) == 4
    assert Slow.most > 1
    assert compile_kernels(device, []) == []


def test_an_error_among_several_is_raised_and_settings_hold_for_all() -> None:
    device, _ = device_with()
    with pytest.raises(CompileError, match="sevens"):
        compile_kernels(device, [scaled(2.0), scaled(7.0), scaled(3.0)])
    with settings.using(NULL_CC="C"):
        kernels = compile_kernels(device, [scaled(2.0), scaled(7.0), scaled(3.0)])
    assert [kernel.program.binary for kernel in kernels] == [b""] * 3
