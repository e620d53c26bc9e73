"""`Base`: what a tensor is made of, for the files that give it its operations by topic.

A tensor is a handle: a node of the graph, and the name of a device. Operations make new handles;
only assignment moves one.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from opgraft.dtype import DType, dtypes, promote
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.exchange import is_number, storage_of
from opgraft_tensor.extents import Sized, Symbolic, in_use, is_variable
from opgraft_tensor.graph import Shape, shape
from opgraft_tensor.realize import device_of
from opgraft_tensor.sizes import shown
from opgraft_tensor.storage import Storage, buffer_node, forget, hold, holders, moving, watch

if TYPE_CHECKING:
    from typing import Self

    import numpy as np

Operand: TypeAlias = "Base | bool | int | float | np.generic | np.ndarray | Sequence[Any]"
Axis: TypeAlias = int | Sequence[int] | None


class Base(Symbolic):
    """The handle: `uop` (the node), `device` (a name), `grad` (filled by `backward`)."""

    __slots__ = (
        "__weakref__",
        "_device",
        "_leaf",
        "_origins",
        "_spent",
        "_storage",
        "_uop",
        "grad",
    )

    _uop: UOp  # missing while `_storage` is there and nobody has asked
    _storage: Storage | None  # the memory that holds the value, where that was found already
    _device: str
    _leaf: bool  # `backward` fills `grad`
    _spent: bool  # `backward` was called: the way back is not needed once the value is there
    _origins: tuple[weakref.ref[Any], ...]  # of a gradient: the tensors it is a gradient of
    grad: Self | None

    # NumPy leaves `array + tensor` to the tensor
    __array_ufunc__ = None

    @property
    def uop(self) -> UOp:
        """The node that stands for the value now."""
        return self._uop

    @property
    def shape(self) -> Shape:
        """The extents; a variable one as the `Bound` that was given."""
        found = shape(self._uop)
        return shown(found) if in_use() and is_variable(found) else found

    @property
    def dtype(self) -> DType:
        return self._uop.dtype

    @property
    def device(self) -> str:
        """The name of the device that the value lives on."""
        return self._device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def _new(self, uop: UOp) -> Self:
        """A tensor of another node, on the same device."""
        return self._handle(uop, self._device)

    @classmethod
    def _handle(cls, uop: UOp, device: str) -> Self:
        made = object.__new__(cls)
        made._uop = uop
        made._device = device
        made._begin()
        return made

    @classmethod
    def _of_memory(cls, storage: Storage) -> Self:
        """A tensor of this memory; its node is made when somebody asks."""
        made = object.__new__(cls)  # as `_begin`, in line: replays make nothing else
        made._device = storage.device
        made._storage = storage
        made._leaf = made._spent = False
        made._origins = ()
        made.grad = None
        holders[weakref.ref(made, forget)] = None  # as `hold`: none is made in a capture
        return made

    def __getattr__(self, name: str) -> Any:
        """Called for what is missing: the node of a tensor that was made of memory."""
        if name != "_uop":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        storage = self._storage
        assert storage is not None
        made = self._uop = buffer_node(storage)
        if self._leaf:
            self._mark(made)
        return made

    def _mark(self, uop: UOp) -> None:
        """Let a node be known as that of this leaf."""
        raise NotImplementedError

    def _begin(self) -> None:
        self._storage = None
        self._leaf = self._spent = False
        self._origins = ()
        self.grad = None
        hold(self)

    def _stand_for(self, uop: UOp) -> None:
        """Let this tensor stand for another node from now on."""
        if watch.moved is not None:
            watch.moved[id(self)] = None
        moving.acquire()
        self._storage = None
        self._uop = uop
        moving.release()

    def _stand_for_memory(self, storage: Storage) -> None:
        """Let this tensor stand for the value in this memory; its node is made when asked for."""
        if watch.moved is not None:
            watch.moved[id(self)] = None
        moving.acquire()
        try:
            self._storage = storage
            del self._uop
        except AttributeError:
            return  # it was missing already
        finally:
            moving.release()

    # ---- operands

    def _as_node(self, other: Operand) -> UOp:
        """Any operand that is not a Python number, as a node on this tensor's device."""
        if isinstance(other, Base):
            if other._device != self._device and device_of(other._uop) is not None:
                raise ValueError(
                    f"tensors on {self._device} and {other._device} do not mix; "
                    f"move one with .to({self._device!r})"
                )
            return other._uop
        return buffer_node(storage_of(other, None, self._device))

    def _pair(self, other: Operand) -> tuple[UOp, UOp]:
        """Both operands in their common dtype; a Python number takes the tensor's where it can."""
        if is_scalar(other):
            dtype = weak_dtype(self.dtype, other)
            return graph.cast(self._uop, dtype), scalar(other, dtype)
        right = self._as_node(other)
        common = promote(self.dtype, right.dtype)
        return graph.cast(self._uop, common), graph.cast(right, common)

    def _float(self) -> UOp:
        """The value as floats: integers and bool in the default float dtype."""
        return self._uop if self.dtype.is_float else graph.cast(self._uop, dtypes.default_float)

    # ---- axes

    def _axis(self, axis: int) -> int:
        """An axis counted from the front. Raises `IndexError` where there is none."""
        rank = self.ndim
        place = axis.__index__()
        if not -rank <= place < rank:
            raise IndexError(f"axis {axis} of a tensor of shape {self.shape}, which has {rank}")
        return place % rank

    def _axes(self, axis: Axis) -> tuple[int, ...]:
        """The axes named, counted from the front, in order; None: all of them."""
        if axis is None:
            return tuple(range(self.ndim))
        if isinstance(axis, (list, tuple)):
            found = tuple([self._axis(a) for a in axis])
            if len(set(found)) != len(found):
                raise ValueError(f"an axis occurs twice in {tuple(axis)}")
            return tuple(sorted(found))
        return (self._axis(axis),)  # type: ignore[arg-type]


def is_scalar(data: object) -> bool:
    """A Python number, or a size that a variable is bound to."""
    return is_number(data) or isinstance(data, Sized)


def scalar(number: Any, dtype: DType) -> UOp:
    """A Python number, or a bound size, as a node. Raises `OverflowError` where it does not fit."""
    if isinstance(number, Sized):
        check_number(int(number.extent), dtype)  # the greatest: a plan serves all
        return graph.count(number.extent, dtype)
    check_number(number, dtype)
    return graph.full((), dtype, number)


def weak_dtype(dtype: DType, number: Any) -> DType:
    """The dtype of an operation of `dtype` with a Python number: by the kind of the number."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, (int, Sized)):
        return dtypes.default_int if dtype.is_bool else dtype
    return dtype if dtype.is_float else dtypes.default_float


def check_number(number: bool | int | float, dtype: DType) -> None:
    """Raise `OverflowError` for a Python integer that the dtype cannot hold."""
    if isinstance(number, int) and dtype.is_int and not dtype.min <= number <= dtype.max:
        raise OverflowError(f"{number} does not fit {dtype} ({dtype.min} .. {dtype.max})")
