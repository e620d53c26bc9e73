"""`Tensor`: a lazy array. Operations build a graph; asking for values computes what they need."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opgraft.dtype import DType, dtypes, to_dtype
from opgraft.ir.ops import Ops
from opgraft_tensor import autograd, graph
from opgraft_tensor.base import Base, Operand, check_number, scalar
from opgraft_tensor.conversion import Conversion
from opgraft_tensor.convolution import Convolutions
from opgraft_tensor.creation import Creation
from opgraft_tensor.devices import device_name
from opgraft_tensor.elementwise import Elementwise
from opgraft_tensor.exchange import (
    dtype_of_number,
    is_number,
    storage_list,
    storage_of,
    storage_values,
)
from opgraft_tensor.extents import Sized
from opgraft_tensor.indexing import Indexing
from opgraft_tensor.late import np
from opgraft_tensor.linalg import Products
from opgraft_tensor.movement import Movement
from opgraft_tensor.realize import memory_of, realize
from opgraft_tensor.recording import recorder, refuse_reading
from opgraft_tensor.reductions import Reductions
from opgraft_tensor.storage import Identity, Storage, buffer_node

if TYPE_CHECKING:
    from typing import Self

    from opgraft.ir.uop import UOp


class Tensor(
    Elementwise,
    Conversion,
    Reductions,
    Movement,
    Indexing,
    Products,
    Convolutions,
    Creation,
):
    """An array on a device, known by how it is computed until its values are asked for.

    `Tensor(data, dtype=None, device=None, requires_grad=False)`: data is a number, nested lists
    of numbers, a NumPy array or another tensor, and is copied. Python's int becomes int64, float
    float32, bool bool. Numbers in operations take the tensor's dtype.

    Tensors are values: an operation never changes its operands. Assignment (`x[i] = y`,
    `x += y`, `x.assign(y)`) changes this tensor from there on; what was made from it before,
    computed or not, keeps the old values, parts of it (`x[1:]`) too.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], device="CPU")
    >>> x.softmax(axis=1)
    Tensor(shape=(2, 2), dtype=float32, device='CPU')
    """

    __slots__ = ()

    def __init__(
        self,
        data: Any,
        dtype: DType | str | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        place = device_name(device)
        wanted = None if dtype is None else to_dtype(dtype)
        if wanted is not None and wanted not in dtypes.all:
            raise TypeError(f"no tensor holds {wanted}")
        if isinstance(data, Base):
            node = data.uop if device is None else _moved(data, place)
            place = data.device if device is None else place
            node = node if wanted is None else graph.cast(node, wanted)
        elif is_number(data):
            if wanted is None:
                check_number(data, dtype_of_number(data))
            node = graph.full((), wanted or dtype_of_number(data), data)
        elif isinstance(data, Sized):
            node = scalar(data, wanted or dtypes.default_int)
        else:
            node = buffer_node(storage_of(data, wanted, place))
        self._uop = node
        self._device = place
        self._begin()
        if requires_grad:
            self.requires_grad_()

    # ---- values

    def realize(self, *others: Tensor) -> Self:
        """Compute this tensor (and others, together) now; gives this tensor."""
        realize_all([self, *others])
        return self

    def numpy(self) -> np.ndarray:
        """A copy of the values; bfloat16 comes as float32, which holds them exactly."""
        return storage_values(self.memory())

    def memory(self) -> Storage:
        """The memory that holds the value, computed now if it was not."""
        refuse_reading("the values of a tensor are asked for")
        found = self._memory()
        if found is None:
            realize_all([self])
            found = self._memory()
        assert found is not None
        return found

    def _memory(self) -> Storage | None:
        """The memory that holds the value already, if there is one."""
        known = self._storage
        if known is not None and not known.lost:
            return known
        node = self._uop
        found = memory_of(node)
        if found is None:
            return None
        storage: Storage = found.arg
        if self._uop is node:  # no other thread captures just now
            self._storage = storage
        return storage

    def item(self) -> bool | int | float:
        """The value of a tensor of one element, as a Python number."""
        if self.size != 1:
            raise ValueError(f"item of a tensor of shape {self.shape}: it has {self.size} elements")
        found: Any = storage_list(self.memory())
        while isinstance(found, list):
            found = found[0]
        return found  # type: ignore[no-any-return]

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; of shape (), a number."""
        return storage_list(self.memory())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a tensor's values cannot be had without a copy")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        """CPU: what is exported is a copy in host memory."""
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule of a copy of the values, in host memory."""
        if options.pop("copy", None) is False:
            raise BufferError("a tensor is exported as a copy; copy=False cannot be had")
        if self.dtype is dtypes.bfloat16:
            raise BufferError("bfloat16 is not exported: cast to float32")
        return self.numpy().__dlpack__(**options)

    @classmethod
    def from_dlpack(cls, other: Any, device: str | None = None) -> Self:
        """A copy of anything that exports DLPack from host memory."""
        return cls(np.from_dlpack(other), device=device)

    @classmethod
    def from_numpy(cls, values: np.ndarray, device: str | None = None) -> Self:
        """A copy of a NumPy array, in its dtype."""
        return cls(values, device=device)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a tensor of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        for i in range(len(self)):
            yield self[i]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any().item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth of a tensor of shape {self.shape} is not one value; use any() or all()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise TypeError(f"a tensor of {self.dtype} is no index")
        return int(self.item())

    def __copy__(self) -> Self:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        """As values: `pickle`, and `copy.deepcopy`."""
        return _rebuilt, (type(self), self.numpy(), self.dtype.name, self._device, self._leaf)

    def __repr__(self) -> str:
        gradient = ", requires_grad=True" if self._leaf else ""
        return f"Tensor(shape={self.shape}, dtype={self.dtype}, device={self._device!r}{gradient})"

    # ---- memory

    def contiguous(self) -> Self:
        """The same value, in memory of its own once it is computed."""
        return self._new(graph.materialize(self._uop))

    materialize = contiguous

    def clone(self) -> Self:
        """The same value; tensors are values, so nothing is copied before one is assigned to."""
        return self._new(self._uop)

    def to(self, device: str) -> Self:
        """The value on another device."""
        place = device_name(device)
        return self._handle(_moved(self, place), place)

    def _move(self, uop: UOp) -> None:
        self._stand_for(uop)
        if self._leaf:
            autograd.mark_leaf(uop, self)

    def _mark(self, uop: UOp) -> None:
        autograd.mark_leaf(uop, self)

    # ---- in place

    def __iadd__(self, other: Operand) -> Self:
        return self.assign(self + other)

    def __isub__(self, other: Operand) -> Self:
        return self.assign(self - other)

    def __imul__(self, other: Operand) -> Self:
        return self.assign(self * other)

    def __itruediv__(self, other: Operand) -> Self:
        return self.assign(self / other)

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` of a result would reach this tensor or one that it is made of."""
        return self._leaf or autograd.depends_on_leaf(self._uop)

    @property
    def is_leaf(self) -> bool:
        """Whether `backward` fills this tensor's own `grad`."""
        return self._leaf

    def requires_grad_(self, wanted: bool = True) -> Self:
        """Let `backward` fill this tensor's `grad` (or no longer); gives this tensor."""
        if wanted and not self.dtype.is_float:
            raise TypeError(f"only floats have gradients, not {self.dtype}")
        if wanted and not self._leaf:
            if self._uop.op is not Ops.BUFFER:
                # a place of its own: an equal expression elsewhere is not this leaf
                self._stand_for(graph.materialize(self._uop, Identity()))
            autograd.mark_leaf(self._uop, self)
        self._leaf = wanted
        return self

    def detach(self) -> Self:
        """The same value, through which no gradient flows."""
        return self._new(graph.mark(self._uop, "detach"))

    def backward(self, gradient: Tensor | None = None) -> None:
        """Add the gradients of this value to `grad` of every leaf that it depends on.

        A value of one element needs no `gradient`; any other takes the gradient of its own.
        """
        if not self.dtype.is_float:
            raise TypeError(f"only floats have gradients, not {self.dtype}")
        upstream = self._upstream(gradient)
        order = autograd.differentiable_order([self._uop])
        known = recorder()
        if known is not None:
            known.differentiates(order)
        leaves = [n for n in order if autograd.leaf_owners(n)]
        if not leaves:
            raise RuntimeError(
                "backward of a tensor that depends on nothing with requires_grad=True"
            )
        for node, found in autograd.gradients([(self._uop, upstream)], leaves).items():
            for reference in autograd.leaf_owners(node):
                owner = reference()
                if owner is not None and owner._leaf:
                    owner._add_gradient(found, self)
        self._spent = True
        memory = memory_of(self._uop)
        if memory is not None and not self._leaf:
            self._stand_for(memory)

    def _add_gradient(self, found: UOp, origin: Tensor) -> Self:
        fresh = self._new(found)
        if self.grad is not None:
            known = self.grad._origins
            fresh = self.grad + fresh
            fresh._origins = known
        fresh._origins = (*fresh._origins, weakref.ref(origin))
        self.grad = fresh
        return self

    def origins(self) -> list[Tensor]:
        """Of a gradient that `backward` made: the live tensors that it was called on."""
        return [t for t in [r() for r in self._origins] if t is not None]

    def gradient(self, *wrt: Tensor) -> list[Tensor]:
        """The gradients of this value (of its sum) by each of the tensors."""
        for tensor in (self, *wrt):
            if not tensor.dtype.is_float:
                raise TypeError(f"only floats have gradients, not {tensor.dtype}")
        ones = graph.full(self.shape, self.dtype, 1)
        return gradients_of([(self._uop, ones)], wrt)

    def _upstream(self, gradient: Tensor | None) -> UOp:
        if gradient is None:
            if self.size != 1:
                raise ValueError(
                    f"backward of shape {self.shape}: sum it first, or give the gradient of its own"
                )
            return graph.full(self.shape, self.dtype, 1)
        if gradient.shape != self.shape:
            raise ValueError(f"a gradient of shape {gradient.shape} for a value of {self.shape}")
        return graph.cast(self._as_node(gradient), self.dtype)


def _rebuilt(kind: type[Tensor], values: Any, dtype: str, device: str, leaf: bool) -> Tensor:
    return kind(values, dtype=dtype, device=device, requires_grad=leaf)


def _moved(tensor: Base, place: str) -> UOp:
    return tensor.uop if tensor.device == place else graph.copy(tensor.uop, place)


def realize_all(tensors: Sequence[Tensor]) -> None:
    """Compute several tensors together, so that kernels may serve more than one."""
    groups: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device, []).append(tensor)
    for place, members in groups.items():
        for tensor, node in zip(members, realize([t.uop for t in members], place)):
            if tensor._leaf:
                tensor._move(node)
            elif tensor._spent or not tensor.requires_grad:
                tensor._stand_for(node)


def gradients_of(outputs: Sequence[tuple[UOp, UOp]], wrt: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of pairs of a node and its upstream gradient; zeros where none arrives."""
    for source in wrt:
        if graph.constant_of(source.uop) is not None:
            raise ValueError(
                f"{source!r} is one constant, which is folded into what is made of it; "
                "make it with requires_grad=True, or from an array, to have its gradient"
            )
    known = recorder()
    if known is not None:
        known.differentiates(autograd.differentiable_order([o for o, _ in outputs]))
    found = autograd.gradients(outputs, [s.uop for s in wrt])
    zeros = [graph.full(s.shape, s.dtype, 0) for s in wrt]
    return [s._new(found.get(s.uop, zero)) for s, zero in zip(wrt, zeros)]
