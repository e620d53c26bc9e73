"""Conversion of a tensor to other dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opgraft.dtype import DType, dtypes, to_dtype
from opgraft_tensor import algebra, graph
from opgraft_tensor.base import Base

if TYPE_CHECKING:
    from typing import Self


class Conversion(Base):
    """Casts; apart from the other operations, since their names hide the built-in types."""

    __slots__ = ()

    def cast(self, dtype: DType | str) -> Self:
        """The values converted: floats to integers truncate and saturate, narrower ones wrap."""
        target = to_dtype(dtype)
        if target not in dtypes.all:
            raise TypeError(f"no tensor holds {target}")
        return self._new(graph.cast(self._uop, target))

    astype = cast

    def bitcast(self, dtype: DType | str) -> Self:
        """The same bits as another dtype of the same width."""
        return self._new(algebra.bitcast(self._uop, to_dtype(dtype)))

    def float(self) -> Self:
        return self.cast(dtypes.float32)

    def int(self) -> Self:
        return self.cast(dtypes.int32)

    def bool(self) -> Self:
        return self.cast(dtypes.bool)

    def half(self) -> Self:
        return self.cast(dtypes.float16)

    def double(self) -> Self:
        return self.cast(dtypes.float64)
