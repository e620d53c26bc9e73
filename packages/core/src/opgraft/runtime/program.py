"""A compiled kernel as data (`Program`), loaded (`Executable`), and in a list (`LaunchList`)."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from opgraft import journal, settings
from opgraft.dtype import DType, Scalar
from opgraft.errors import DeviceError
from opgraft.forking import ForkLock
from opgraft.ir.evaluate import evaluate
from opgraft.ir.launch import private_bytes
from opgraft.ir.linear import Launch, LinearProgram
from opgraft.ir.uop import UOp

if TYPE_CHECKING:
    from opgraft.runtime.buffer import Buffer


@dataclass(frozen=True)
class Program:
    """All that is needed to load a kernel and to call it."""

    name: str
    source: str = field(default="", repr=False)
    binary: bytes = field(default=b"", repr=False)
    """What the compiler made; empty where the driver takes the source."""
    path: str = ""
    """A file that holds the binary (with the cache's mark behind it), if there is one."""
    params: tuple[tuple[DType, int], ...] = ()
    """Dtype and number of elements of the buffer in each slot."""
    entry: str = ""
    """The symbol of the kernel in what was compiled; empty: its name."""
    variables: tuple[UOp, ...] = ()
    """The VARs, in the order in which their values are handed over: by name."""
    parallel: int | UOp | None = None
    """Extent of the parallel range; an expression in the variables, or None: in one piece."""
    launch: Launch = ((), ())
    """Groups and threads of a launch, for devices that launch grids; see `grid`."""
    written: tuple[int, ...] = ()
    """Slots that the kernel stores to."""
    operations: int = 0
    """An estimate of the elementwise operations of one run."""
    linear: LinearProgram | None = field(default=None, repr=False, compare=False)
    """The program itself, for devices that interpret it; None where it came from a cache."""
    stack: int = 0
    """Bytes of the buffers that a thread which runs the kernel has for itself."""

    @staticmethod
    def of(
        linear: LinearProgram,
        source: str = "",
        binary: bytes = b"",
        entry: str = "",
        path: str = "",
    ) -> Program:
        """The program of a linear program and what was made from it."""
        extent: int | UOp | None = None
        if linear.parallel is not None:
            size = linear.parallel.src[0]
            known = size.const_value
            extent = size if known is None else int(known)
        return Program(
            name=linear.name,
            source=source,
            binary=binary,
            params=tuple((p.dtype, p.arg[1]) for p in linear.params),
            path=path,
            entry=entry or linear.name,
            variables=linear.variables,
            parallel=extent,
            launch=linear.launch,
            written=linear.written,
            operations=linear.operations,
            stack=private_bytes(linear),
            linear=linear,
        )

    def grid(self, variables: Sequence[Scalar] = ()) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Groups and threads of a launch in each dimension, with these values of the variables.

        For devices that launch grids. Where a dimension has no groups there is nothing to run.
        """
        groups, threads = self.launch
        values = dict(zip(self.variables, variables, strict=True))
        counts = [n if isinstance(n, int) else max(0, int(evaluate(n, values))) for n in groups]
        return tuple(counts), threads

    def check_arguments(self, buffers: Sequence[Buffer], variables: Sequence[Scalar]) -> None:
        """Raise `DeviceError` where a launch would reach beyond what it is given: another number
        of buffers or variables, a buffer that is too small, a value outside of its bounds."""
        takes = (len(self.params), len(self.variables))
        if (len(buffers), len(variables)) != takes:
            raise DeviceError(
                f"{self.name} takes {takes[0]} buffers and {takes[1]} variables, "
                f"not {len(buffers)} and {len(variables)}"
            )
        for slot, (buffer, (dtype, size)) in enumerate(zip(buffers, self.params)):
            if buffer.nbytes < dtype.itemsize * size:
                raise DeviceError(
                    f"{self.name}: buffer {slot} has {buffer.nbytes} bytes "
                    f"of {dtype.itemsize * size}"
                )
        for variable, value in zip(self.variables, variables):
            name, least, greatest = variable.arg
            if not least <= value <= greatest:
                raise DeviceError(
                    f"{self.name}: variable {name} is {value}, not in {least} .. {greatest}"
                )


class Executable(ABC):
    """A program that is loaded on a device and can be run."""

    program: Program

    @abstractmethod
    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[Scalar] = (), wait: bool = False
    ) -> float | None:
        """Launch with one buffer per slot and one value per variable, in the program's order.

        Launches of a device happen in order. With `wait`, returns when it is done and the seconds
        that the kernel took; else None, perhaps before it is done.
        """


Step: TypeAlias = "tuple[Executable, Sequence[Buffer], Sequence[Scalar]]"


class LaunchList:
    """A list of launches that is run many times, with other inputs and variables each time.

    This one runs step after step from Python; a device whose runtime takes a whole list in one
    call has its own. `inputs` are the buffers among those of the steps that `run` exchanges: it
    takes as many, of the same sizes, in the same order. A step's buffer that is a view of an
    input is exchanged for the same part of the new one. Variables are exchanged by name. The
    list keeps its other buffers alive, and no input beyond a run. One thread at a time runs it.
    """

    _names: ClassVar[tuple[str, ...]] = ("DEBUG", "TRACE")
    """The settings that a run heeds, those that have launches shown in front."""
    _reading: settings.Reading | None = None
    _listeners: ClassVar = journal.listeners()
    """Those for whom each launch is to be timed by itself."""

    def __init__(self, steps: Sequence[Step], inputs: Sequence[Buffer] = ()) -> None:
        self._lock = ForkLock()
        self._executables = [executable for executable, _, _ in steps]
        self._runs = [executable.run for executable in self._executables]
        self._values: list[list[Scalar]] = [list(values) for _, _, values in steps]
        self._buffers: list[list[Any]] = [list(buffers) for _, buffers, _ in steps]
        self._sizes = tuple(given.nbytes for given in inputs)
        self._whole: list[tuple[int, int, int]] = []
        """Step and slot where an input belongs, and which."""
        self._parts: list[InputPlace] = []
        """Where a part of one belongs."""
        for place in input_places(steps, inputs):
            self._buffers[place.step][place.slot] = None
            if place.offset == 0 and place.nbytes == self._sizes[place.input]:
                self._whole.append((place.step, place.slot, place.input))
            else:
                self._parts.append(place)

    def _read(self) -> settings.Reading:
        """The values of `_names` now, remembered as long as they hold."""
        self._reading = settings.Reading(*self._names)
        return self._reading

    def run(
        self,
        inputs: Sequence[Buffer] = (),
        variables: Mapping[str, Scalar] | None = None,
        wait: bool = False,
    ) -> float | None:
        """Launch all steps in order; variables that are not named keep their last value."""
        check_inputs(inputs, self._sizes)
        with self._lock:
            return self._run_steps(inputs, variables, wait)

    def _run_steps(
        self, inputs: Sequence[Buffer], variables: Mapping[str, Scalar] | None, wait: bool
    ) -> float | None:
        if variables:
            for executable, values in zip(self._executables, self._values):
                for place, variable in enumerate(executable.program.variables):
                    if variable.arg[0] in variables:
                        values[place] = variables[variable.arg[0]]
        ready = [buffers.copy() for buffers in self._buffers]
        for step, slot, number in self._whole:
            ready[step][slot] = inputs[number]
        for number, step, slot, offset, nbytes in self._parts:
            ready[step][slot] = inputs[number].view(offset, nbytes)
        reading = self._reading
        if reading is None or not reading.holds():
            reading = self._read()
        shown = reading.values[0] or reading.values[1] or self._listeners
        if shown or wait:
            total = self._run_timed(ready, bool(shown))
            return total if wait else None
        for run, buffers, values in zip(self._runs, ready, self._values):
            run(buffers, values)
        return None

    def _run_timed(self, ready: list[list[Any]], shown: bool) -> float:
        """Step by step, each until it is done; the seconds of all."""
        total = 0.0
        for executable, buffers, values in zip(self._executables, ready, self._values):
            begin = time.perf_counter()
            seconds = executable.run(buffers, values, True) or 0.0
            if shown:
                show_launch(executable.program, begin, seconds)
            total += seconds
        return total


def is_watched() -> bool:
    """Whether each launch is to be timed by itself, for the settings DEBUG or TRACE."""
    return bool(settings.get("DEBUG")) or journal.heard()


def show_launch(program: Program, begin: float, seconds: float) -> None:
    """Tell those who want to know that a kernel ran."""
    if settings.get("DEBUG"):
        print(f"{program.name}: {seconds * 1e3:.3f} ms", file=sys.stderr)
    if journal.heard():
        journal.tell("launch", program.name, begin, took=seconds, program=program)


def check_inputs(inputs: Sequence[Buffer], sizes: Sequence[int]) -> None:
    """Raises `ValueError` where the inputs of a list are not as many and as large as it takes."""
    if len(inputs) != len(sizes):
        raise ValueError(f"the list takes {len(sizes)} inputs, not {len(inputs)}")
    for number, (given, size) in enumerate(zip(inputs, sizes)):
        if given.nbytes != size:
            raise ValueError(f"input {number} takes {size} bytes, not {given.nbytes}")


class InputPlace(NamedTuple):
    """A buffer of a step that is an input of its list, or `nbytes` of it from `offset`."""

    input: int
    step: int
    slot: int
    offset: int
    nbytes: int


def input_places(steps: Sequence[Step], inputs: Sequence[Buffer]) -> list[InputPlace]:
    """Where the steps use memory of the inputs."""
    roots: dict[int, list[int]] = {}
    for number, given in enumerate(inputs):
        roots.setdefault(id(given.root), []).append(number)
    places = []
    for step, (_, buffers, _) in enumerate(steps):
        for slot, buffer in enumerate(buffers):
            for number in roots.get(id(buffer.root), ()):
                offset = buffer.offset - inputs[number].offset
                if offset >= 0 and offset + buffer.nbytes <= inputs[number].nbytes:
                    places.append(InputPlace(number, step, slot, offset, buffer.nbytes))
                    break
    return places
