"""The CPU device: what the processor can do, its compilers, its memory, its threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from opgraft.api import (
    Buffer,
    CompilerSet,
    Device,
    LaunchList,
    Program,
    Step,
    errors,
    settings,
)
from opgraft.devices.cpu import compilers, host, library
from opgraft.devices.cpu.launch import ArgumentBlock, CpuExecutable, CpuLaunchList, checked, list_of
from opgraft.devices.cpu.memory import CpuAllocator


class CpuDevice(Device):
    """The machine's processor. Further indices are devices of their own on the same cores."""

    fork_safe = True
    allocator: CpuAllocator

    def __init__(self, index: int = 0) -> None:
        target = host.detect()
        pairs = CompilerSet("CPU", target, compilers.PAIRS, compilers.custom, compilers.preferred)
        pairs.select(settings.get("CPU_CC"))  # an error now rather than at the first kernel
        self.cores = target.cores
        """Threads that run kernels where the setting CPU_THREADS says nothing."""
        self._reading: settings.Reading | None = None
        allocator = CpuAllocator(lambda: self.library, host.memory(), self.threads)
        super().__init__("CPU", index, target, allocator, pairs)
        library.begin_runtime(self._compilers)

    @cached_property
    def library(self) -> Any:
        """The C runtime."""
        return library.runtime(self._compilers)

    def _compilers(self) -> Iterator[compilers.CCompiler]:
        """C compilers for the runtime: the chosen one alone, if it is one; else all, in order."""
        chosen = settings.get("CPU_CC") or compilers.preferred()
        if chosen:
            found = self.pairs.select(chosen).compiler
            if isinstance(found, compilers.CCompiler):
                yield found
                return
        for pair in self.pairs.pairs:
            with suppress(errors.OpgraftError):
                found = self.pairs.select(pair.name).compiler
                if isinstance(found, compilers.CCompiler):
                    yield found

    def threads(self) -> int:
        """How many threads run kernels: the setting CPU_THREADS, or one per core."""
        return settings.get("CPU_THREADS") or self.cores

    def heeded(self) -> tuple[bool, int]:
        """What settings say now: whether launches are shown, and how many threads run them."""
        known = self._reading
        if known is None or not known.holds():
            known = self._reading = settings.Reading(*CpuLaunchList._names)
        debug, trace, threads = known.values
        return bool(debug or trace or CpuLaunchList._listeners), threads or self.cores

    def load(self, program: Program) -> CpuExecutable:
        return CpuExecutable(self, program)

    def prepare(self, steps: Sequence[Step], inputs: Sequence[Buffer] = ()) -> LaunchList:
        if any(not isinstance(executable, CpuExecutable) for executable, _, _ in steps):
            return super().prepare(steps, inputs)
        return list_of(len(inputs))(self, steps, inputs)

    def run_list(self, steps: Sequence[Step], wait: bool = False) -> float | None:
        if len(steps) == 1:
            executable, buffers, variables = steps[0]
            return executable.run(buffers, variables, wait)
        shown, threads = self.heeded()
        if shown or any(not isinstance(e, CpuExecutable) for e, _, _ in steps):
            return super().run_list(steps, wait)
        block = ArgumentBlock(steps)
        nanoseconds = checked(self.library.og_run(block.steps, len(steps), threads))
        return nanoseconds * 1e-9 if wait else None
