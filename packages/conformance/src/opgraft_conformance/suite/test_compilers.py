"""Compiler pairs: good sources, bad sources, the cache and its keys. One row for each pair."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import opgraft
from opgraft.api import (
    CompilerPair,
    Device,
    Executable,
    compile_cache,
    compile_kernel,
    compile_kernels,
    errors,
    using,
)
from opgraft_conformance import Fault, apart, not_claimed
from opgraft_conformance.samples import SIZE, affine, check_works, equal, run_affine

PLANTED = "opgraft_planted_this_error"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A row for each pair of the device."""
    if "pair" in metafunc.fixturenames:
        name: str | None = metafunc.config.getoption("--opgraft-device")
        pairs = [] if name is None else list(opgraft.Device[name].pairs.pairs)
        metafunc.parametrize("pair", pairs, ids=[pair.name for pair in pairs])


@pytest.fixture
def chosen(device: Device, pair: CompilerPair) -> Iterator[CompilerPair]:
    """The pair, chosen by its setting; not claimed where it says what it lacks on this machine."""
    with using(**{f"{device.kind}_CC": pair.name}):
        try:
            device.pairs.select(pair.name)
        except errors.OpgraftError as error:
            if not error.message.strip():
                raise Fault(f"pair {pair.name} does not say why it cannot be used") from None
            why = textwrap.shorten(error.message.splitlines()[0], 60, placeholder=" ...")
            not_claimed(f"pair {pair.name} on this machine: {why}")
        yield pair


@pytest.fixture
def fresh_cache(tmp_path: Path) -> Iterator[Path]:
    """An empty folder for the compile cache."""
    with using(CACHE=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def built(device: Device, salt: int) -> Executable:
    """A kernel that this process compiles anew: the table of kernels has forgotten it."""
    device.kernels.clear()
    return compile_kernel(device, affine(plus=salt, name=f"cached_{salt}"))


def check_built(device: Device, executable: Executable, salt: int) -> None:
    """The kernel of `built` is right."""
    given = np.arange(SIZE, dtype=np.int32)
    equal("a kernel", run_affine(device, executable, given), given * 3 + salt, executable)


@pytest.mark.must
def test_good_source(device: Device, chosen: CompilerPair) -> None:
    """A kernel is compiled and right, and its program carries its source and its entry."""
    executable = built(device, 41)
    check_built(device, executable, 41)
    program = executable.program
    if not program.source or not program.entry:
        raise Fault("the program has no source or no entry", {"entry": repr(program.entry)})
    if program.entry not in program.source:
        raise Fault(
            "the program's entry is not in its source",
            {"entry": program.entry},
            kernel=program,
            hint="Renderer.entry",
        )


@pytest.mark.must
def test_bad_source(device: Device, chosen: CompilerPair, fresh_cache: Path) -> None:
    """A source that is wrong is a CompileError with the compiler's own words; then all goes on."""
    good = built(device, 42).program
    bad = f"{good.source}\nint planted(void) {{ return {PLANTED}; }}\n"
    selected = device.pairs.select(chosen.name)
    words = ""
    try:
        if selected.compiler is None:
            device.load(replace(good, source=bad, binary=b"", path="", linear=None))
        else:
            selected.compiler.compile(bad)
    except errors.OpgraftError as error:
        words = str(error)
        if selected.compiler is not None and not isinstance(error, errors.CompileError):
            raise Fault(
                "a source that is wrong is refused with the wrong error",
                {"got": type(error).__name__, "expected": "CompileError"},
                hint="Compiler.compile",
            ) from None
    except Exception as error:
        raise Fault(
            "a source that is wrong is refused with an error that is not opgraft's",
            {"got": f"{type(error).__name__}: {error}", "expected": "CompileError"},
            hint="Compiler.compile",
        ) from None
    else:
        raise Fault(
            "a source that is wrong was compiled", {"with the last line": bad.splitlines()[-1]}
        )
    if PLANTED not in words:
        raise Fault(
            "the error of a wrong source does not have the compiler's own words",
            {"got": words, "expected": f"a message about {PLANTED}"},
            hint="Compiler.compile",
        )
    check_built(device, built(device, 43), 43)


@pytest.mark.must
def test_cache(device: Device, chosen: CompilerPair, fresh_cache: Path) -> None:
    """What was compiled once is found the second time, counted as a hit, and right."""
    cache = compile_cache()
    check_built(device, built(device, 44), 44)
    first = cache.statistics
    if first.hits or not first.misses:
        raise Fault("the first compilation was found in an empty cache", {"got": first})
    check_built(device, built(device, 44), 44)
    second = cache.statistics
    if second.misses != first.misses or second.hits <= first.hits:
        raise Fault(
            "the second compilation of one kernel was not found in the cache",
            {"got": f"{second.hits} hits, {second.misses} misses", "before": first},
            hint="Compiler.key, which must be the same each time",
        )
    check_built(device, built(device, 45), 45)
    third = cache.statistics
    if third.misses <= second.misses:
        raise Fault("another kernel was found in the cache", {"got": third, "before": second})


@pytest.mark.must
def test_cache_in_another_process(device: Device, chosen: CompilerPair, fresh_cache: Path) -> None:
    """Another process finds what this one compiled: keys do not depend on the process."""
    check_built(device, built(device, 46), 46)
    code = """
import numpy as np
import opgraft
from opgraft.api import compile_cache, compile_kernel
from opgraft_conformance.samples import *
device = opgraft.Device[arguments[0]]
check_works(device)  # what the device itself compiles, it has now
before = compile_cache().statistics
kernel = compile_kernel(device, affine(plus=46, name="cached_46"))
given = np.arange(SIZE, dtype=np.int32)
equal("a kernel from the cache", run_affine(device, kernel, given), given * 3 + 46, kernel)
found = compile_cache().statistics
answer([device.pairs.select(arguments[1]).key, found.hits - before.hits])
"""
    env = apart.environment(
        {"OPGRAFT_CACHE": str(fresh_cache), f"OPGRAFT_{device.kind}_CC": chosen.name}
    )
    key, hits = apart.run(code, device.name, chosen.name, env=env)
    selected = device.pairs.select(chosen.name)
    # where the driver compiles, only what opgraft lowered is kept, under a key of its own files
    if key != selected.key or (selected.compiler is not None and not hits):
        raise Fault(
            "another process did not find a kernel in the cache",
            {"its key": key, "ours": selected.key, "hits": hits},
            hint="Compiler.key: no addresses, no order of sets, no names of temporary files",
        )


@pytest.mark.must
def test_keys(device: Device) -> None:
    """No two pairs share a key, and no key holds what changes from process to process."""
    keys: dict[str, str] = {}
    for pair in device.pairs.pairs:
        try:
            selected = device.pairs.select(pair.name)
        except errors.OpgraftError:
            continue
        if selected.key in keys:
            raise Fault("two pairs have one key", {"pairs": f"{keys[selected.key]}, {pair.name}"})
        keys[selected.key] = pair.name
        if selected.compiler is None:
            continue
        key = selected.compiler.key
        if not key.strip():
            raise Fault(f"the compiler of pair {pair.name} has no key", {"got": repr(key)})
        if found := re.search(r"\b(0x[0-9a-f]{8,}|/tmp/\S*tmp\S*)", key):
            raise Fault(
                f"the key of pair {pair.name} changes from process to process",
                {"key": key, "look at": found[0]},
                hint="Compiler.key",
            )
        again = pair.compiler(device.pairs.target) if pair.compiler else selected.compiler
        if again.key != key:
            raise Fault(
                f"two compilers that pair {pair.name} makes have different keys",
                {"one": key, "other": again.key},
            )
        other = replace(device.pairs.target, extra=(("of another device", 1),))
        if type(selected)(pair, other, selected.compiler).key == selected.key:
            raise Fault(f"the key of pair {pair.name} does not depend on the target")
    if not keys:
        not_claimed("a compiler pair")


@pytest.mark.must
def test_unknown_pair(device: Device) -> None:
    """A pair that nobody has is an error that lists those that there are; none is taken instead."""
    if not device.pairs.pairs:
        not_claimed("a compiler pair")
    with using(**{f"{device.kind}_CC": "NOSUCHPAIR"}):
        try:
            compile_kernel(device, affine(plus=47))
        except errors.OpgraftError as error:
            text = str(error)
        else:
            raise Fault(f"{device.kind}_CC=NOSUCHPAIR was taken in silence")
    if "NOSUCHPAIR" not in text.upper():
        raise Fault("the error does not name the pair that was asked for", {"got": text})
    check_works(device)


@pytest.mark.must
def test_many_at_once(device: Device, fresh_cache: Path) -> None:
    """A list of kernels, compiled in threads, comes back in order; one given twice is one."""
    device.kernels.clear()
    sinks = [affine(plus=n, name=f"many_{n}") for n in range(12)]
    made = compile_kernels(device, [*sinks, sinks[0]])
    assert made[-1] is made[0]
    for number, executable in enumerate(made[:-1]):
        check_built(device, executable, number)


@pytest.mark.may
def test_disassembly(device: Device, chosen: CompilerPair) -> None:
    """A compiler that offers `disassemble(binary)` gives a text for people."""
    selected = device.pairs.select(chosen.name)
    offered = getattr(selected.compiler, "disassemble", None)
    if offered is None:
        not_claimed("disassembly")
    text = offered(built(device, 48).program.binary)
    if not isinstance(text, str) or len(text.splitlines()) < 2:
        raise Fault("the disassembly is no text", {"got": repr(text)[:200]})
