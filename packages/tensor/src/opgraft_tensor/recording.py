"""Who is told of what is computed: the recorder of a capture, in the thread that captures.

Most threads have none, most of the time. What a plan runs, what is copied between devices and
what the host supplies is told to the one there is (see capture.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from opgraft.dtype import DType
from opgraft.errors import OpgraftError
from opgraft_tensor.exchange import fill_buffer, make_storage
from opgraft_tensor.late import np
from opgraft_tensor.storage import Storage

if TYPE_CHECKING:
    from opgraft.ir.uop import UOp
    from opgraft.runtime.buffer import Buffer
    from opgraft.runtime.device import Device
    from opgraft.runtime.program import Step


class CaptureError(OpgraftError):
    """A function that cannot be captured: it asked for what a replay could not give again."""


class Recorder(Protocol):
    """What a capture wants to be told."""

    def may_write(self, storage: Storage) -> bool:
        """Whether a plan may write this memory in place."""

    def reads(self, storages: Sequence[Storage]) -> None:
        """A plan is about to read these."""

    def made(self, storages: Sequence[Storage]) -> None:
        """A plan or a copy gave these their values."""

    def launched(self, device: Device, steps: Sequence[Step]) -> None:
        """Kernels ran, in this order."""

    def copied(self, target: Buffer, source: Buffer) -> None:
        """Memory was copied."""

    def filled(self, target: Buffer, content: Any) -> None:
        """Memory was filled with the same bytes that it would be filled with again."""

    def differentiates(self, nodes: Sequence[UOp]) -> None:
        """Gradients are about to go back through these nodes."""

    def supplied(self, storages: Sequence[Storage], make: Callable[[], Sequence[Any]]) -> None:
        """The host gave these their values, and would give others another time."""


class _Here(threading.local):
    recorder: Recorder | None = None


_here: Final = _Here()
captures: Final[list[Recorder]] = []
"""The recorders of all threads. While there is none nobody needs to look for that of a thread."""


def recorder() -> Recorder | None:
    """The recorder of this thread."""
    return _here.recorder


@contextmanager
def recording(by: Recorder | None) -> Iterator[None]:
    """Tell `by` what this thread computes; None: nobody."""
    before = _here.recorder
    _here.recorder = by
    if by is not None:
        captures.append(by)
    try:
        yield
    finally:
        _here.recorder = before
        if by is not None:
            captures.remove(by)


def refuse_reading(what: str) -> None:
    """Raise CaptureError where a function that is being captured asks for values."""
    if _here.recorder is not None:
        raise CaptureError(
            f"{what}: the function is being captured, and a replay would see this value again "
            "whatever its arguments are",
            remedy="Return the tensor and read it outside, or choose by where() inside; what "
            "depends on numbers alone can be an argument that is a number.",
        )


def refuse_seeding() -> None:
    """Raise CaptureError where a function that is being captured chooses its random numbers."""
    if _here.recorder is not None:
        raise CaptureError(
            "random numbers begin again in a function that is being captured: replays would go on",
            remedy="Call manual_seed outside.",
        )


def host_supplied(
    make: Callable[[], Sequence[Any]], places: Sequence[tuple[DType, str]]
) -> list[Storage]:
    """Memory for numbers that the host makes, one for each (dtype, device).

    `make` gives as many values; a captured function's replays call it again, in the same order.
    """

    storages = [
        make_storage(np.asarray(value), dtype, device)
        for value, (dtype, device) in zip(make(), places)
    ]
    known = _here.recorder
    if known is not None:
        for storage in storages:
            fill_buffer(storage)
        known.supplied(storages, make)
    return storages
