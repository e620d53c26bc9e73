"""Making tensors: of values, of a rule, of chance. Nothing is stored before it is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opgraft.dtype import DType, Scalar, dtypes, to_dtype
from opgraft_tensor import algebra, graph, random
from opgraft_tensor.base import Base, check_number, scalar
from opgraft_tensor.devices import device_name
from opgraft_tensor.exchange import dtype_of_number, sequence_shape
from opgraft_tensor.extents import Sized
from opgraft_tensor.graph import Shape

if TYPE_CHECKING:
    from typing import Self

DTypeLike = DType | str | None


def _dtype(dtype: DTypeLike, default: DType) -> DType:
    return default if dtype is None else to_dtype(dtype)


def _size(sizes: Sequence[Any]) -> Shape:
    size = sequence_shape(sizes)
    if any(n < 0 for n in size):
        raise ValueError(f"a shape has no negative extents: {size}")
    return size


def _float(dtype: DTypeLike) -> DType:
    found = _dtype(dtype, dtypes.default_float)
    if not found.is_float:
        raise TypeError(f"random floats of dtype {found}: use randint")
    return found


class Creation(Base):
    """Class methods; shapes as separate numbers or a tuple, `dtype` and `device` by name."""

    __slots__ = ()

    @classmethod
    def full(
        cls,
        size: int | Sequence[int],
        value: Scalar,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> Self:
        """One value everywhere; its dtype, if not given, by the kind of the value."""
        if isinstance(value, Sized):
            made = scalar(value, _dtype(dtype, dtypes.default_int))
            return cls._handle(graph.broadcast_to(made, _size((size,))), device_name(device))
        found = _dtype(dtype, dtype_of_number(value))
        if isinstance(value, int):
            check_number(value, found)
        return cls._handle(graph.full(_size((size,)), found, value), device_name(device))

    @classmethod
    def zeros(cls, *sizes: Any, dtype: DTypeLike = None, device: str | None = None) -> Self:
        """Zeros, of the default float dtype."""
        return cls.full(_size(sizes), 0, _dtype(dtype, dtypes.default_float), device)

    @classmethod
    def ones(cls, *sizes: Any, dtype: DTypeLike = None, device: str | None = None) -> Self:
        """Ones, of the default float dtype."""
        return cls.full(_size(sizes), 1, _dtype(dtype, dtypes.default_float), device)

    empty = zeros

    @classmethod
    def arange(
        cls,
        start: Scalar,
        stop: Scalar | None = None,
        step: Scalar = 1,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> Self:
        """start, start + step, ... below stop (above it, for a negative step).

        Up to a bound size: a tensor of that size.
        """
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ValueError("arange with a step of 0 never ends")
        if isinstance(stop, Sized) and not start and step == 1:
            place = graph.arange((stop.extent,), 0, dtypes.int64)
            made = graph.cast(place, _dtype(dtype, dtypes.default_int))
            return cls._handle(made, device_name(device))
        start, stop, step = (int(n) if isinstance(n, Sized) else n for n in (start, stop, step))
        whole = all(isinstance(n, int) for n in (start, stop, step))
        found = _dtype(dtype, dtypes.default_int if whole else dtypes.default_float)
        count = max(math.ceil((stop - start) / step), 0)
        if whole:
            count = len(range(int(start), int(stop), int(step)))
        wide = found if found.is_int else dtypes.float64 if not whole else dtypes.int64
        place = graph.arange((count,), 0, wide)
        made = (
            algebra.shifted(algebra.scale(place, step), start)
            if start
            else algebra.scale(place, step)
        )
        return cls._handle(graph.cast(made, found), device_name(device))

    @classmethod
    def linspace(
        cls,
        start: float,
        stop: float,
        count: int,
        endpoint: bool = True,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> Self:
        """`count` numbers at equal distances, `stop` the last of them if `endpoint`."""
        if count < 0:
            raise ValueError(f"linspace of {count} numbers")
        found = _dtype(dtype, dtypes.default_float)
        parts = count - 1 if endpoint else count
        place = graph.arange((count,), 0, dtypes.float64)
        made = algebra.scale(place, (stop - start) / parts if parts > 0 else 0.0)
        made = algebra.shifted(made, float(start))
        if endpoint and count > 1:  # the end exactly, whatever the steps add up to
            last = algebra.equal(place, algebra.like(place, count - 1))
            made = algebra.choose(last, float(stop), made)
        return cls._handle(graph.cast(made, found), device_name(device))

    @classmethod
    def eye(
        cls,
        rows: int,
        columns: int | None = None,
        offset: int = 0,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> Self:
        """Ones on a diagonal, zeros elsewhere."""
        size = (rows, rows if columns is None else columns)
        row = graph.arange(size, 0, dtypes.int64)
        column = graph.arange(size, 1, dtypes.int64)
        same = algebra.equal(algebra.shifted(row, offset) if offset else row, column)
        return cls._handle(
            graph.cast(same, _dtype(dtype, dtypes.default_float)), device_name(device)
        )

    # ---- like another tensor

    def full_like(self, value: Scalar, dtype: DTypeLike = None) -> Self:
        return self._new(graph.full(self.shape, _dtype(dtype, self.dtype), value))

    def zeros_like(self, dtype: DTypeLike = None) -> Self:
        return self.full_like(0, dtype)

    def ones_like(self, dtype: DTypeLike = None) -> Self:
        return self.full_like(1, dtype)

    # ---- random

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Let the random numbers of this process begin again."""
        random.manual_seed(seed)

    @classmethod
    def uniform(
        cls,
        *sizes: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> Self:
        """Uniform in [low, high)."""
        place = device_name(device)
        made = random.uniform_node(_size(sizes), _float(dtype), place)
        if high - low != 1.0:
            made = algebra.scale(made, high - low)
        return cls._handle(algebra.shifted(made, low) if low else made, place)

    rand = uniform

    @classmethod
    def normal(
        cls,
        *sizes: Any,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> Self:
        """Normal with this mean and standard deviation."""
        place = device_name(device)
        made = random.normal_node(_size(sizes), _float(dtype), place)
        if std != 1.0:
            made = algebra.scale(made, std)
        return cls._handle(algebra.shifted(made, mean) if mean else made, place)

    randn = normal

    @classmethod
    def randint(
        cls,
        *sizes: Any,
        low: int = 0,
        high: int = 10,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> Self:
        """Integers from low to high - 1."""
        found = _dtype(dtype, dtypes.default_int)
        if high <= low or not found.is_int:
            raise ValueError(f"randint from {low} up to {high} in {found}")
        check_number(low, found)
        check_number(high - 1, found)
        place = device_name(device)
        return cls._handle(random.integer_node(low, high, _size(sizes), found, place), place)

    @classmethod
    def permutation(cls, count: int, device: str | None = None) -> Self:
        """0 .. count-1 in random order, int64; drawn on the host."""
        place = device_name(device)
        return cls._handle(random.permutation_node(count, place), place)

    randperm = permutation
