"""Python numbers as they lie in memory, and back, without NumPy.

For the dtypes that Python's own arrays hold, and values that need no conversion but rounding to
float32; None everywhere else, where exchange.py does the work with NumPy.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import prod
from typing import Any, Final

from opgraft.dtype import DType, dtypes

_CODES: Final = {
    dtypes.int8: "b",
    dtypes.uint8: "B",
    dtypes.int16: "h",
    dtypes.uint16: "H",
    dtypes.int32: "i",
    dtypes.uint32: "I",
    dtypes.int64: "q",
    dtypes.uint64: "Q",
    dtypes.float32: "f",
    dtypes.float64: "d",
}


def dtype_of_numbers(numbers: Sequence[Any]) -> DType | None:
    """bool, int64 or float32, by the kinds of some Python numbers; None: there are others."""
    kinds = set(map(type, numbers))
    if not kinds or not kinds <= {bool, int, float}:
        return None
    if float in kinds:
        return dtypes.default_float
    return dtypes.default_int if int in kinds else dtypes.bool


def packed(numbers: Sequence[Any], dtype: DType | None) -> tuple[memoryview, DType] | None:
    """The numbers in memory, in a dtype (None: the one of their kind); None: use NumPy."""
    own = dtype_of_numbers(numbers)
    if own is None:
        return None
    wanted = dtype or own
    # an integer that becomes a float must be rounded once, not by way of float64
    if wanted.kind != own.kind and not (own.is_int and wanted.is_int):
        return None
    if wanted is dtypes.bool:
        return memoryview(bytes(numbers)), wanted
    code = _CODES.get(wanted)
    if code is None:
        return None
    try:
        return memoryview(array(code, numbers)).cast("B"), wanted
    except OverflowError:  # it wraps, or is unsigned: NumPy says which
        return None


def unpacked(memory: memoryview, dtype: DType, shape: tuple[int, ...]) -> Any:
    """The values of this memory as nested lists; of shape (), a number. See `is_listed`."""
    code = "?" if dtype.is_bool else _CODES[dtype]
    return memory.cast("B").cast(code, shape).tolist()  # type: ignore[call-overload]


def is_listed(dtype: DType, shape: tuple[int, ...]) -> bool:
    """Whether `unpacked` serves such an array."""
    return (dtype.is_bool or dtype in _CODES) and prod(shape) > 0 and len(shape) <= 64
