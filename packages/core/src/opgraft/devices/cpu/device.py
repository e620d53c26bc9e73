"""The CPU device: compiled kernels, called one by one or as lists, by the C runtime."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from opgraft.api import (
    Buffer,
    CompilerSet,
    Device,
    Executable,
    InputPlace,
    LaunchList,
    Program,
    Scalar,
    Step,
    UOp,
    check_inputs,
    errors,
    evaluate,
    input_places,
    is_watched,
    renewed_in_children,
    settings,
    show_launch,
)
from opgraft.devices.cpu import compilers, host, library
from opgraft.devices.cpu._abi import ffi
from opgraft.devices.cpu.memory import CpuAllocator

_OPERATIONS: Final = 4.0
"""Elementwise operations that one core does in a nanosecond, roughly: what to spread, not when."""
_UNKNOWN: Final = 10_000
"""Nanoseconds of one iteration of the parallel range, where the program has no estimate."""


class CpuDevice(Device):
    """The machine's processor. Further indices are devices of their own on the same cores."""

    fork_safe = True
    allocator: CpuAllocator

    def __init__(self, index: int = 0) -> None:
        target = host.detect()
        pairs = CompilerSet("CPU", target, compilers.PAIRS, compilers.custom, compilers.preferred)
        pairs.select(settings.get("CPU_CC"))  # an error now rather than at the first kernel
        self._cores = target.cores
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
        return settings.get("CPU_THREADS") or self._cores

    def load(self, program: Program) -> CpuExecutable:
        return CpuExecutable(self, program)

    def prepare(self, steps: Sequence[Step], inputs: Sequence[Buffer] = ()) -> LaunchList:
        if any(not isinstance(executable, CpuExecutable) for executable, _, _ in steps):
            return super().prepare(steps, inputs)
        return CpuLaunchList(self, steps, inputs)


class CpuExecutable(Executable):
    """A kernel in this process. `address` is that of a function of the contract's C ABI."""

    def __init__(self, device: CpuDevice, program: Program) -> None:
        self.program = program
        self.device = device
        try:
            self._library = library.Library(program.binary, program.path)
        except OSError as error:
            raise errors.DeviceError(
                f"the compiled kernel {program.name} cannot be loaded: {error}"
            ) from None
        self.address = self._library.address(program.entry or program.name)
        self._floats = tuple(v.dtype.is_float for v in program.variables)
        self._needs = tuple(dtype.itemsize * size for dtype, size in program.params)
        whole = int(program.operations / _OPERATIONS)
        self._whole = whole
        self._extent = program.parallel if isinstance(program.parallel, int) else None

    def check(self, buffers: Sequence[Buffer], variables: Sequence[Scalar]) -> None:
        """Raises `DeviceError` where a call would reach beyond its arguments."""
        name, needs = self.program.name, self._needs
        if len(buffers) != len(needs) or len(variables) != len(self._floats):
            raise errors.DeviceError(
                f"{name} takes {len(needs)} buffers and {len(self._floats)} variables, "
                f"not {len(buffers)} and {len(variables)}"
            )
        for slot, (buffer, need) in enumerate(zip(buffers, needs)):
            if buffer.nbytes < need:
                raise errors.DeviceError(
                    f"{name}: buffer {slot} has {buffer.nbytes} bytes of {need}"
                )
            if not isinstance(buffer.device, CpuDevice):
                raise errors.DeviceError(
                    f"{name}: buffer {slot} is on {buffer.device.name}, not on {self.device.name}"
                )
        if variables:
            self.check_variables(variables)

    def check_variables(self, variables: Sequence[Scalar]) -> None:
        """Raises `DeviceError` where a value is outside the bounds that the kernel relies on."""
        for variable, value in zip(self.program.variables, variables):
            name, least, greatest = variable.arg
            if not least <= value <= greatest:
                raise errors.DeviceError(
                    f"{self.program.name}: variable {name} is {value}, not in {least} .. {greatest}"
                )

    def encode(self, variables: Sequence[Scalar]) -> list[int]:
        """Values of variables as the numbers that kernels take: floats as float64's bits."""
        if True not in self._floats:
            return [int(value) for value in variables]
        return [
            struct.unpack("<q", struct.pack("<d", value))[0] if is_float else int(value)
            for value, is_float in zip(variables, self._floats)
        ]

    def extent(self, variables: Sequence[Scalar]) -> tuple[int, int]:
        """Length of the parallel range (1 without), and the nanoseconds of work to share out."""
        parallel = self.program.parallel
        if parallel is None:
            return 1, 0
        extent = self._extent
        if extent is None:
            assert isinstance(parallel, UOp)
            extent = int(evaluate(parallel, dict(zip(self.program.variables, variables))))
        return extent, self._whole or extent * _UNKNOWN

    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[Scalar] = (), wait: bool = False
    ) -> float | None:
        self.check(buffers, variables)
        extent, work = self.extent(variables)
        handles = ffi.new("unsigned long long[]", [buffer.handle for buffer in buffers])
        values = ffi.new("long long[]", self.encode(variables) if variables else 1)
        step = ffi.new("step *", (self.address, handles, values, extent, work))
        threads = self.device.threads() if work else 1
        nanoseconds = self.device.library.og_run(step, 1, threads)
        return nanoseconds * 1e-9 if wait else None


class CpuLaunchList(LaunchList):
    """A list that the C runtime runs in one call. One thread at a time runs it."""

    def __init__(
        self, device: CpuDevice, steps: Sequence[Step], inputs: Sequence[Buffer] = ()
    ) -> None:
        self._device = device
        self.renew_locks()
        renewed_in_children(self)
        self._sizes = tuple(given.nbytes for given in inputs)
        places = input_places(steps, inputs)
        self._fill(steps)
        self._patch(places, len(inputs))
        # what the list refers to lives as long as it, but for the inputs
        exchanged = {(place.step, place.slot) for place in places}
        self._alive = [
            buffer
            for number, (_, buffers, _) in enumerate(steps)
            for slot, buffer in enumerate(buffers)
            if (number, slot) not in exchanged
        ]
        self._run: Any = device.library.og_replay

    def renew_locks(self) -> None:
        """A forked child has none of the threads that may hold them."""
        self._lock = threading.Lock()

    def _fill(self, steps: Sequence[Step]) -> None:
        """The argument block: buffers and variables of all steps in two arrays."""
        self._executables: list[CpuExecutable] = []
        self._values: list[list[Scalar]] = []
        handles: list[int] = []
        numbers: list[int] = []
        self._starts: list[tuple[int, int]] = []
        for executable, buffers, variables in steps:
            assert isinstance(executable, CpuExecutable)
            executable.check(buffers, variables)
            self._executables.append(executable)
            self._values.append(list(variables))
            self._starts.append((len(handles), len(numbers)))
            handles += [buffer.handle for buffer in buffers]
            numbers += executable.encode(variables)
        self._slots = ffi.new("unsigned long long[]", handles or 1)
        self._numbers = ffi.new("long long[]", numbers or 1)
        self._steps_block = ffi.new("step[]", len(steps) or 1)
        for number, executable in enumerate(self._executables):
            step = self._steps_block[number]
            first_slot, first_number = self._starts[number]
            step.function = executable.address
            step.buffers = self._slots + first_slot
            step.variables = self._numbers + first_number
            step.extent, step.work = executable.extent(self._values[number])

    def _patch(self, places: Sequence[InputPlace], inputs: int) -> None:
        self._inputs = ffi.new("unsigned long long[]", inputs or 1)
        self._patches = ffi.new(
            "patch[]",
            [(self._starts[p.step][0] + p.slot, p.input, p.offset) for p in places] or 1,
        )
        self._list = ffi.new("list *")
        self._list.steps = self._steps_block
        self._list.count = len(self._executables)
        self._list.slots = self._slots
        self._list.inputs = self._inputs
        self._list.patches = self._patches
        self._list.patch_count = len(places)

    def run(
        self,
        inputs: Sequence[Buffer] = (),
        variables: Mapping[str, Scalar] | None = None,
        wait: bool = False,
    ) -> float | None:
        sizes = self._sizes
        threads = self._device.threads()
        shown = is_watched()
        with self._lock:
            block = self._inputs
            number = 0
            for given in inputs:
                if number == len(sizes) or given.nbytes != sizes[number]:
                    break
                block[number] = given.handle
                number += 1
            if number != len(sizes) or number != len(inputs):
                check_inputs(inputs, sizes)
            if variables:
                self._bind(variables)
            self._list.threads = threads
            nanoseconds = self._run_shown() if shown else self._run(self._list)
        return nanoseconds * 1e-9 if wait else None

    def _run_shown(self) -> int:
        """Step by step, each timed by itself."""
        total, threads = 0, self._list.threads
        self._list.count = 0  # the inputs alone
        self._run(self._list)
        self._list.count = len(self._executables)
        for number, executable in enumerate(self._executables):
            begin = time.perf_counter()
            took = self._device.library.og_run(self._steps_block + number, 1, threads)
            show_launch(executable.program, begin, took * 1e-9)
            total += took
        return total

    def _bind(self, variables: Mapping[str, Scalar]) -> None:
        changed: list[tuple[int, list[Scalar]]] = []
        for number, executable in enumerate(self._executables):
            known = executable.program.variables
            if known:
                old = self._values[number]
                new = [variables.get(v.arg[0], o) for v, o in zip(known, old)]
                executable.check_variables(new)
                changed.append((number, new))
        for number, values in changed:
            executable = self._executables[number]
            self._values[number] = values
            first = self._starts[number][1]
            for place, encoded in enumerate(executable.encode(values), first):
                self._numbers[place] = encoded
            step = self._steps_block[number]
            step.extent, step.work = executable.extent(values)
