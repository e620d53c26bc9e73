"""Launches on the CPU: a kernel, and lists of them that the C runtime runs in one call."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from opgraft.api import (
    Buffer,
    Executable,
    ForkLock,
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
    show_launch,
)
from opgraft.devices.cpu import library
from opgraft.devices.cpu._abi import ffi
from opgraft.devices.cpu.memory import CpuAllocator

if TYPE_CHECKING:
    from opgraft.devices.cpu.device import CpuDevice

_OPERATIONS: Final = 25.0
"""Operations, loads and stores counted, that one core does in a nanosecond. Measured: 20 to 25
for elementwise kernels and gathers, 50 to 90 for row sums and products of matrices, 1 to 10 where
memory is walked against its grain. It decides only what is worth sharing out."""
_WORD: Final = (1 << 64) - 1
_SHARED_STACK: Final = 4 << 20
"""Bytes of a kernel's own buffers for which the threads of the pool have room."""
_UNKNOWN: Final = 10_000
"""Nanoseconds of one iteration of the parallel range, where the program has no estimate."""


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
        self._blocks: list[ArgumentBlock] = []
        """Of launches that are done, for the next ones."""

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
            if not isinstance(buffer.device.allocator, CpuAllocator):
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
        """Values of variables as 64-bit words: integers, and floats as float64's bits."""
        if True not in self._floats:
            return [int(value) & _WORD for value in variables]
        return [
            struct.unpack("<Q", struct.pack("<d", value))[0] if is_float else int(value) & _WORD
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
        fits = self.program.stack <= _SHARED_STACK
        return extent, (self._whole or extent * _UNKNOWN) if fits else 0

    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[Scalar] = (), wait: bool = False
    ) -> float | None:
        try:
            block = self._blocks.pop()
        except IndexError:
            block = ArgumentBlock([(self, buffers, variables)])
            block.executables.clear()  # this one keeps the block
        else:
            self.check(buffers, variables)
            for slot, buffer in enumerate(buffers):
                block.slots[slot] = buffer.handle
            if variables:
                for place, number in enumerate(self.encode(variables)):
                    block.numbers[place] = number
                step = block.steps[0]
                step.extent, step.work = self.extent(variables)
        shown, threads = self.device.heeded()
        begin = time.perf_counter() if shown else 0.0
        seconds = checked(self.device.library.og_run(block.steps, 1, threads)) * 1e-9
        self._blocks.append(block)
        if shown:
            show_launch(self.program, begin, seconds)
        return seconds if wait else None


def checked(nanoseconds: int) -> int:
    """What og_run gave. Raises `DeviceError` where nothing ran."""
    if nanoseconds < 0:
        no_thread()
    return nanoseconds


def no_thread() -> NoReturn:
    """Raises `DeviceError`: a kernel needs more stack than the thread that calls it has left."""
    raise errors.DeviceError(
        "CPU: a kernel needs a thread with a larger stack, and the system grants none",
        remedy="Start the threads that call kernels with more: threading.stack_size(16 << 20).",
    )


class ArgumentBlock:
    """What the runtime needs of some steps, checked: `steps` for og_run.

    `slots` holds the buffers of all steps, `numbers` their variables; `starts` says where those
    of each step begin in the two. Buffers and executables are not kept alive.
    """

    __slots__ = ("executables", "numbers", "slots", "starts", "steps")

    def __init__(self, steps: Sequence[Step]) -> None:
        handles: list[int] = []
        numbers: list[int] = []
        self.executables: list[CpuExecutable] = []
        self.starts: list[tuple[int, int]] = []
        for executable, buffers, variables in steps:
            assert isinstance(executable, CpuExecutable)
            executable.check(buffers, variables)
            self.executables.append(executable)
            self.starts.append((len(handles), len(numbers)))
            handles += [buffer.handle for buffer in buffers]
            if variables:
                numbers += executable.encode(variables)
        self.slots = ffi.new("unsigned long long[]", handles or 1)
        self.numbers = ffi.new("unsigned long long[]", numbers or 1)
        slots = int(ffi.cast("unsigned long long", self.slots))
        values = int(ffi.cast("unsigned long long", self.numbers))
        rows = []
        for executable, (slot, number), step in zip(self.executables, self.starts, steps):
            extent, work = executable.extent(step[2])
            where = (executable.address, slots + 8 * slot, values + 8 * number)
            rows.append((*where, extent, work, executable.program.stack))
        self.steps = ffi.new("step[]", rows or 1)


class CpuLaunchList(LaunchList):
    """A list that the C runtime runs in one call. One thread at a time runs it."""

    _names = ("DEBUG", "TRACE", "CPU_THREADS")

    def __init__(
        self, device: CpuDevice, steps: Sequence[Step], inputs: Sequence[Buffer] = ()
    ) -> None:
        self._device = device
        self._lock = ForkLock()
        self._sizes = tuple(given.nbytes for given in inputs)
        self._block = ArgumentBlock(steps)
        self._values = [list(variables) for _, _, variables in steps]
        self._bound: Mapping[str, Scalar] = {}
        """The values that were given last: the same again change nothing."""
        self._floating = any(True in e._floats for e in self._block.executables)
        """Whether values may be equal that are not the same: 0.0 and -0.0."""
        places = input_places(steps, inputs)
        self._patch(places)
        # what the list refers to lives as long as it, but for the inputs
        exchanged = {(place.step, place.slot) for place in places}
        self._alive = [
            buffer
            for number, (_, buffers, _) in enumerate(steps)
            for slot, buffer in enumerate(buffers)
            if (number, slot) not in exchanged
        ]
        self._cores = device.cores
        self._run: Any = device.library.og_replay
        self._heed()

    def _patch(self, places: Sequence[InputPlace]) -> None:
        block = self._block
        self._inputs = ffi.new("unsigned long long[]", len(self._sizes) or 1)
        self._patches = ffi.new(
            "patch[]",
            [(block.starts[p.step][0] + p.slot, p.input, p.offset) for p in places] or 1,
        )
        # written through a view, which is faster than through cffi's array
        self._handles = memoryview(ffi.buffer(self._inputs)).cast("B").cast("Q")
        self._list = ffi.new("list *")
        self._list.steps = block.steps
        self._list.count = len(block.executables)
        self._list.slots = block.slots
        self._list.inputs = self._inputs
        self._list.patches = self._patches
        self._list.patch_count = len(places)
        self._list.stack = max((e.program.stack for e in block.executables), default=0)

    def _heed(self) -> None:
        """See what the settings say now."""
        debug, trace, threads = self._read().values
        self._shown = bool(debug or trace)
        self._list.threads = threads or self._cores

    def _timed(self) -> int:
        """A run of which somebody wants to know how long it takes, in nanoseconds."""
        listed, block, run = self._list, self._block, self._device.library.og_run
        listed.count = 0  # the inputs alone
        self._run(listed)
        listed.count = len(block.executables)
        if not (self._shown or self._listeners):
            return checked(run(block.steps, listed.count, listed.threads))
        total = 0
        for number, executable in enumerate(block.executables):
            begin = time.perf_counter()
            took = checked(run(block.steps + number, 1, listed.threads))
            show_launch(executable.program, begin, took * 1e-9)
            total += took
        return total

    def _bind(self, variables: Mapping[str, Scalar]) -> None:
        self._bound = {}
        changed: list[tuple[int, list[Scalar]]] = []
        for number, executable in enumerate(self._block.executables):
            known = executable.program.variables
            if known:
                old = self._values[number]
                new = [variables.get(v.arg[0], o) for v, o in zip(known, old)]
                executable.check_variables(new)
                changed.append((number, new))
        for number, values in changed:
            executable = self._block.executables[number]
            self._values[number] = values
            first = self._block.starts[number][1]
            for place, encoded in enumerate(executable.encode(values), first):
                self._block.numbers[place] = encoded
            step = self._block.steps[number]
            step.extent, step.work = executable.extent(values)
        self._bound = dict(variables)


_RUN: Final = """\
def run(self, inputs=(), variables=None, wait=False):
    lock = self._lock
    lock.acquire()
    try:
        if not self._reading.holds():
            self._heed()
        if len(inputs) != {count}:
            check_inputs(inputs, self._sizes)
        [{names}] = inputs
        if ({sizes}) != self._sizes:
            check_inputs(inputs, self._sizes)
        handles = self._handles
        {stores}
        if variables and (variables != self._bound or self._floating):
            self._bind(variables)
        if not (wait or self._shown or self._listeners):
            if not self._run(self._list):
                no_thread()
            return None
        took = self._timed()
    finally:
        lock.release()
    return took * 1e-9 if wait else None
"""
"""`LaunchList.run` for a number of inputs: a loop over them takes as long as all the rest."""


@cache
def list_of(count: int) -> type[CpuLaunchList]:
    """The lists with so many inputs."""
    names = [f"i{number}" for number in range(count)]
    stores = [f"handles[{number}] = {name}.handle" for number, name in enumerate(names)]
    text = _RUN.format(
        count=count,
        names=", ".join(names),
        sizes=" ".join([f"{name}.nbytes," for name in names]),
        stores="; ".join(stores) or "pass",
    )
    known: dict[str, Any] = {"check_inputs": check_inputs, "no_thread": no_thread}
    exec(compile(text, "<written by opgraft>", "exec"), known)

    class Written(CpuLaunchList):
        run = known["run"]

    return Written
