"""`Storage`: a piece of memory that a BUFFER node stands for, and what a node's value lives in.

A value once computed may be kept with its node (`keep`): nodes are immutable, so the value of a
node never changes, and whoever plans a graph later finds it (`kept`). Memory lives as long as
the nodes and tensors that refer to it. Writing in place ends a storage: its memory goes to a new
one (`Storage.give_to`), and nobody finds the old value any more.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from opgraft.dtype import DType
from opgraft.errors import DeviceError
from opgraft.forking import ForkLock
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp

_serial: Final = itertools.count()


class Storage:
    """Memory for one array, in row-major order; equal only to itself.

    Attributes: `shape`; `dtype` (of an element; bool is a byte of 0 or 1); `device` (its name);
    `buffer` (the runtime's buffer, None until one is needed); `host` (the first content, never
    changed, until it is copied to the buffer: a NumPy array in C order, bfloat16 as its uint16
    bits, or a flat memoryview of the bytes); `pinned`
    (others look at this memory: never write it in place); `lost` (the memory went to a newer
    version); `serial` (order of making, the same in every run of a program); `source` (hands the
    buffer over when it is first needed: the storage stands for another one until then).
    """

    __slots__ = (
        "__weakref__",
        "buffer",
        "device",
        "dtype",
        "host",
        "lost",
        "pinned",
        "serial",
        "shape",
        "source",
    )

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: str, host: Any = None) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.buffer: Any = None
        self.host = host
        self.pinned = False
        self.lost = False
        self.serial = next(_serial)
        self.source: Callable[[], Any] | None = None

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def give_to(self, newer: Storage) -> None:
        """Hand the memory to a newer version of the value; this storage is lost afterwards."""
        if self.pinned or self.lost or self.nbytes != newer.nbytes:
            raise DeviceError(f"{self!r} cannot hand its memory to {newer!r}")
        newer.buffer, newer.host = self.buffer, self.host
        self.buffer, self.host, self.lost = None, None, True

    def __repr__(self) -> str:
        # part of UOp.key: the serial tells two memories of one shape apart
        return f"Storage({self.serial}, {self.shape}, {self.dtype}, {self.device!r})"


class Identity:
    """An argument that makes a node unlike every other: two of them are never equal."""

    __slots__ = ("__weakref__", "serial")

    def __init__(self) -> None:
        self.serial = next(_serial)

    def __repr__(self) -> str:
        return f"Identity({self.serial})"


def buffer_node(storage: Storage) -> UOp:
    """The BUFFER node of this storage."""
    made = UOp(Ops.BUFFER, storage.dtype, (), storage)
    made.remember("shape", storage.shape)
    return made


def keep(uop: UOp, storage: Storage) -> UOp:
    """Record that the value of `uop` is in `storage` from now on; gives the BUFFER node."""
    made = buffer_node(storage)
    if uop is not made:
        uop.remember("kept", made)
    return made


def kept(uop: UOp) -> UOp | None:
    """The BUFFER node that holds the value of `uop` already, if there is one."""
    memo = uop._memo
    found: UOp | None = memo.get("kept") if memo is not None else None
    return None if found is None or found.arg.lost else found


moving: Final = ForkLock()
"""Held while a tensor is told to stand for another node: a capture does so to all tensors of the
process, and what another thread did to one meanwhile must stay."""


class Holder(Protocol):
    """A live object that will want the value of its `uop`: a Tensor."""

    @property
    def uop(self) -> UOp: ...


# Every live Tensor, in order of making: a reference takes itself out when its tensor dies. Asked
# only when memory might be overwritten. Adding and taking out are single steps of the interpreter.
holders: Final[dict[weakref.ref[Any], None]] = {}
forget: Final = holders.__delitem__

looking: Final = ForkLock()
"""Held by who looks at all live tensors, as nothing of them dies meanwhile: with it, a tensor that
is alive is one that somebody waits for."""


class _Watch(threading.local):
    """What a thread that captures a function wants to know of its own tensors."""

    born: list[weakref.ref[Any]] | None = None
    moved: dict[int, None] | None = None
    """The ids of tensors that were told to stand for another node."""


watch: Final = _Watch()


def hold(holder: Holder) -> None:
    """Register a live holder, which is hashed by identity; it leaves by dying."""
    reference = weakref.ref(holder, forget)
    holders[reference] = None
    if watch.born is not None:
        watch.born.append(reference)


def live_holders() -> list[Holder]:
    """Everything registered that is alive, in order of making."""
    found = [reference() for reference in list(holders)]
    return [holder for holder in found if holder is not None]


def live_handles() -> list[UOp]:
    """What all live tensors of the process hold now: nodes whose values may still be asked for."""
    with looking:
        return [h.uop for h in live_holders()]
