"""`Device`: what every kind of machine looks like from above, and how one is offered."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opgraft.errors import DeviceError
from opgraft.runtime.allocator import Allocator
from opgraft.runtime.buffer import Buffer
from opgraft.runtime.compiler import CompilerSet
from opgraft.runtime.kernels import KernelTable
from opgraft.runtime.program import Executable, LaunchList, Program, Step
from opgraft.target import Target


class Device(ABC):
    """An opened device. A backend sets the attributes in `__init__` and writes `load`.

    `name` is "CPU" for index 0, "CPU:1" for index 1. All methods may be called from any thread.
    Launches and copies happen in the order of their calls.
    """

    name: str
    index: int
    target: Target
    allocator: Allocator
    pairs: CompilerSet

    executes: bool = True
    """False for a device that compiles kernels and runs none: its buffers keep what they held."""
    fork_safe: bool = False
    """Whether the device may be used in a forked child of the process that opened it."""

    def __init__(
        self, kind: str, index: int, target: Target, allocator: Allocator, pairs: CompilerSet
    ) -> None:
        self.kind = kind
        self.index = index
        self.name = kind if index == 0 else f"{kind}:{index}"
        self.target = target
        self.allocator = allocator
        self.pairs = pairs
        self.kernels = KernelTable()
        """Kernels compiled for this device, the most recently used ones."""
        self.process = os.getpid()
        """The process that opened it."""

    def check_process(self) -> None:
        """Raise DeviceError in a forked child of the process that opened the device.

        For devices that are not `fork_safe`: called wherever they touch their driver first.
        """
        if not self.fork_safe and os.getpid() != self.process:
            raise DeviceError(
                f"{self.name} was opened in process {self.process} and cannot be used in process "
                f"{os.getpid()}, a fork of it: drivers do not survive a fork",
                remedy='Start the children with multiprocessing.get_context("spawn"), or open '
                "the device only after the fork.",
            )

    @abstractmethod
    def load(self, program: Program) -> Executable:
        """Make a program ready to run. Raises `DeviceError` where the device refuses it."""

    def prepare(self, steps: Sequence[Step], inputs: Sequence[Buffer] = ()) -> LaunchList:
        """A list of launches (executable, buffers, variables) to run many times."""
        return LaunchList(steps, inputs)

    def run_list(self, steps: Sequence[Step], wait: bool = False) -> float | None:
        """Launch the steps in order; with `wait`, until done, and the seconds they took."""
        return self.prepare(steps).run(wait=wait)

    def buffer(self, nbytes: int) -> Buffer:
        """New memory on this device."""
        return Buffer(self, nbytes)

    def synchronize(self) -> None:
        """Wait until everything that was launched is done. Errors of launches surface here."""
        return

    def close(self) -> None:
        """Let go of what the device holds. Buffers that are still alive stay valid."""
        self.kernels.clear()

    def __repr__(self) -> str:
        return f"<Device {self.name}>"


@dataclass(frozen=True)
class Probe:
    """What a cheap look at a kind of device found, without starting a driver."""

    count: int
    """How many devices seem to be there; 0: none."""
    reason: str = ""
    """Why there is none: what was looked for, and where."""


@dataclass(frozen=True)
class DeviceSpec:
    """A kind of device that a plugin offers."""

    name: str
    """Upper case, without an index: "CPU"."""
    open: Callable[[int], Device]
    """Opens the device of an index. Raises `DeviceError` that says what is missing."""
    probe: Callable[[], Probe]
    """Whether it seems to be there; takes under 10 ms, starts nothing, raises nothing."""
    priority: int = 0
    """The default device is the one with the greatest that opens; below 0: only by name."""
    install: str = ""
    """What to install or set where it is absent."""
    description: str = ""
    """One line for the listing."""
    target: Callable[[], Target] | None = None
    """What a usual device of this kind can do, to compile for one that is not there."""
