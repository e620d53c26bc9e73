"""NULL: a device that compiles and runs nothing, for tests and dry runs.

Its target is invented and the same on every machine, so what is generated for it can be compared
between machines. Buffers have a size and no memory: reading one gives zeros. Launches are
recorded. `NULL_CC=GCC` (or another C compiler) has kernels compiled as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opgraft.api import (
    Allocator,
    Buffer,
    CompilerPair,
    CompilerSet,
    Device,
    DeviceSpec,
    Executable,
    ForkLock,
    Probe,
    Program,
    Scalar,
    Target,
    dtypes,
    errors,
    settings,
)

if TYPE_CHECKING:
    from opgraft.api import Renderer

API: Final = (1, 0)

TARGET: Final = Target(
    name="NULL",
    arch="invented",
    compute=frozenset(dtypes.all) - {dtypes.float16, dtypes.bfloat16},
    fma=frozenset((dtypes.float32, dtypes.float64)),
    vector_bytes=32,
    vector_registers=16,
    prefetch=True,
    cores=4,
)
_RECORDED: Final = 10_000


class NullAllocator(Allocator):
    """Handles are sizes."""

    def alloc(self, nbytes: int) -> int:
        if nbytes > 1 << 48:
            raise errors.DeviceMemoryError(f"NULL: a buffer of {nbytes} bytes is beyond 2**48")
        return nbytes

    def free(self, handle: int, nbytes: int) -> None:
        return

    def copy_in(self, handle: int, source: memoryview) -> None:
        return

    def copy_out(self, handle: int, target: memoryview) -> None:
        target[:] = bytes(target.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        return

    def view(self, handle: int, offset: int, nbytes: int) -> int:
        return nbytes


@dataclass(frozen=True)
class Launch:
    """A launch that did not happen."""

    program: Program
    variables: tuple[Scalar, ...]


class NullDevice(Device):
    """Holds the last launches in `launches`, oldest first; `count` is the number of all."""

    executes = False
    fork_safe = True

    def __init__(self, index: int = 0, target: Target = TARGET) -> None:
        pairs = CompilerSet("NULL", target, opgraft_compiler_pairs("NULL"))
        super().__init__("NULL", index, target, NullAllocator(), pairs)
        self.launches: deque[Launch] = deque(maxlen=_RECORDED)
        self.count = 0
        self._lock = ForkLock()

    @property
    def target(self) -> Target:
        """That of the device, or of the invented one that NULL_CC chooses."""
        choice: str = settings.get("NULL_CC").upper()
        if not choice:
            return self._target
        from opgraft.devices.invented import TARGETS  # late: loads the text form

        return TARGETS.get(choice, self._target)

    @target.setter
    def target(self, target: Target) -> None:
        self._target = target

    def load(self, program: Program) -> NullExecutable:
        return NullExecutable(self, program)

    def record(self, launch: Launch) -> None:
        """Note a launch."""
        with self._lock:
            self.launches.append(launch)
            self.count += 1

    def forget(self) -> None:
        """Begin a new record."""
        with self._lock:
            self.launches.clear()
            self.count = 0


class NullExecutable(Executable):
    """A kernel that is noted instead of run."""

    def __init__(self, device: NullDevice, program: Program) -> None:
        self.device = device
        self.program = program
        if program.linear is not None:  # else it comes from the cache, and was checked before
            from opgraft.devices.invented import check_limits  # late, as above

            check_limits(program.linear, device.target)

    def run(
        self, buffers: Sequence[Buffer], variables: Sequence[Scalar] = (), wait: bool = False
    ) -> float | None:
        if len(buffers) != len(self.program.params):
            raise errors.DeviceError(
                f"{self.program.name} takes {len(self.program.params)} buffers, not {len(buffers)}"
            )
        self.device.record(Launch(self.program, tuple(variables)))
        return 0.0 if wait else None


def _renderer(target: Target) -> Renderer:
    from opgraft.api import CRenderer  # late: most processes never open NULL

    return CRenderer(target)


def opgraft_devices() -> Iterable[DeviceSpec]:
    """NULL, only by name."""
    return [
        DeviceSpec(
            name="NULL",
            open=NullDevice,
            probe=lambda: Probe(1),
            priority=-1,
            description="compiles and runs nothing: for tests and dry runs",
            target=lambda: TARGET,
        )
    ]


def opgraft_compiler_pairs(device: str) -> Iterable[CompilerPair]:
    """C as text by default; with a C compiler behind it where one is named."""
    if device.upper() != "NULL":
        return []
    from opgraft.devices.cpu.compilers import PAIRS  # late: only a NULL that compiles needs it
    from opgraft.devices.invented import pairs_of  # late, as above

    text = CompilerPair("C", "NULL", _renderer, None, 100, "C source, not compiled")
    behind = [
        CompilerPair(p.name, "NULL", p.renderer, p.compiler, p.priority, p.note) for p in PAIRS
    ]
    return [text, *behind, *pairs_of("NULL")]
