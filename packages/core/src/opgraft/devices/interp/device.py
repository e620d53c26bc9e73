"""The INTERP device: its memory is NumPy arrays, its source the text form of linear programs."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np

from opgraft.api import (
    Allocator,
    Buffer,
    CompilerPair,
    CompilerSet,
    Device,
    Executable,
    GroupOp,
    Ops,
    Program,
    Scalar,
    Target,
    dtypes,
    errors,
    parse_linear,
    settings,
)
from opgraft.devices.interp.alu import OPS, Array
from opgraft.devices.interp.executor import Executor
from opgraft.devices.interp.traffic import LaunchTraffic, counted
from opgraft.devices.invented import TextRenderer, check_limits, pairs_of

TARGET: Final = Target(
    name="INTERP",
    arch="numpy",
    compute=frozenset(dtypes.all),
    storage=frozenset(dtypes.all),
    ops=OPS & GroupOp.ALU,
    # an instruction costs a microsecond however wide it is: the wider the better
    vector_bytes=8192,
    vector_registers=64,
    max_lanes=1024,
    gather=True,
    prefetch=True,
    local_bytes=64 << 20,
    max_buffers=1 << 16,
    index_bits=64,
    atomics=frozenset(
        (op, dtype)
        for op in GroupOp.ATOMIC
        for dtype in dtypes.all
        if not dtype.is_float or op in (Ops.ADD, Ops.MAX, Ops.MIN)
    ),
)


PAIRS: Final = (
    CompilerPair("NUMPY", "INTERP", TextRenderer, None, 0, "the text form, interpreted with NumPy"),
    *pairs_of("INTERP"),
)


class InterpAllocator(Allocator):
    """Handles are arrays of bytes."""

    def alloc(self, nbytes: int) -> Array:
        try:
            # all ones is nan in every float dtype: what was never written is seen
            return np.full(nbytes, 0xFF, dtype=np.uint8)
        except MemoryError:
            raise errors.DeviceMemoryError(
                f"INTERP: no memory for a buffer of {nbytes} bytes",
                remedy="Let go of arrays that are no longer needed, or work on smaller parts.",
            ) from None

    def free(self, handle: Array, nbytes: int) -> None:
        """NumPy does it when the handle is gone."""

    def copy_in(self, handle: Array, source: memoryview) -> None:
        handle[: source.nbytes] = np.frombuffer(source, dtype=np.uint8)

    def copy_out(self, handle: Array, target: memoryview) -> None:
        np.frombuffer(target, dtype=np.uint8)[...] = handle[: target.nbytes]

    def copy(self, target: Array, source: Array, nbytes: int) -> None:
        target[:nbytes] = source[:nbytes]

    def view(self, handle: Array, offset: int, nbytes: int) -> Array:
        return handle[offset : offset + nbytes]

    def memory(self, handle: Array, nbytes: int, owner: object) -> memoryview:
        return handle[:nbytes].data


class InterpDevice(Device):
    """Interprets kernels with NumPy: slow, exact, there on every machine."""

    fork_safe = True

    def __init__(self, index: int = 0) -> None:
        super().__init__(
            "INTERP", index, TARGET, InterpAllocator(), CompilerSet("INTERP", TARGET, PAIRS)
        )

    @property
    def target(self) -> Target:
        """That of the pair which INTERP_CC chooses: planning and lowering follow it."""
        return self.pairs.select(settings.get("INTERP_CC")).renderer.target

    @target.setter
    def target(self, target: Target) -> None:
        """What the device itself can do is told to its pairs."""

    def load(self, program: Program) -> InterpExecutable:
        return InterpExecutable(self, program)


class InterpExecutable(Executable):
    """A program that was read from its text."""

    def __init__(self, device: InterpDevice, program: Program) -> None:
        self.device = device
        self.program = program
        self._executor = _executors.get(program.source)
        check_limits(self._executor.program, device.target)

    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[Scalar] = (), wait: bool = False
    ) -> float | None:
        known = self._executor.program
        if len(buffers) != len(known.params) or len(variables) != len(known.variables):
            raise errors.DeviceError(
                f"{known.name} takes {len(known.params)} buffers and {len(known.variables)} "
                f"variables, not {len(buffers)} and {len(variables)}"
            )
        for slot, buffer in enumerate(buffers):
            if not isinstance(buffer.device, InterpDevice):
                raise errors.DeviceError(
                    f"{known.name}: buffer {slot} is on {buffer.device.name}, "
                    f"the kernel on {self.device.name}"
                )
        begin = time.perf_counter()
        values = {v.arg[0]: value for v, value in zip(known.variables, variables)}
        launches, target = counted(), self.device.target
        traffic = None
        if launches is not None and known.launch[0]:
            traffic = LaunchTraffic(known.name, target.lanes, target.line_bytes)
            launches.append(traffic)
        self._executor.run([b.handle for b in buffers], values, traffic=traffic)
        return time.perf_counter() - begin if wait else None


class _Executors:
    """The programs read last, by their text."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Executor] = OrderedDict()

    def get(self, source: str) -> Executor:
        with self._lock:
            found = self._known.get(source)
            if found is not None:
                self._known.move_to_end(source)
                return found
        made = Executor(parse_linear(source))
        with self._lock:
            self._known[source] = made
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        return made


_executors: Final = _Executors(1024)
