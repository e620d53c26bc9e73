"""Between host data and storages: Python numbers and lists, NumPy arrays, DLPack; always copies.

bfloat16, which NumPy lacks, is its 16 bits (uint16) in memory and comes out as float32, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opgraft.dtype import DType, dtypes
from opgraft_tensor.devices import open_device
from opgraft_tensor.extents import is_variable, numbers, stated
from opgraft_tensor.late import is_array, is_numpy, np
from opgraft_tensor.lists import is_listed, packed, unpacked
from opgraft_tensor.storage import Storage

Shape = tuple[int, ...]

_BY_NAME: Final = {d.name: d for d in dtypes.all}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """How elements of a dtype lie in host memory."""
    return np.dtype(np.uint16 if dtype is dtypes.bfloat16 else dtype.name)


def dtype_of_array(array: np.ndarray) -> DType:
    """The dtype of a NumPy array's elements, whatever their byte order."""
    found = _BY_NAME.get(array.dtype.name)
    if found is None:
        names = ", ".join(d.name for d in dtypes.all)
        raise TypeError(f"no tensor holds NumPy's {array.dtype}; convert it to one of {names}")
    return found


def is_number(data: object) -> bool:
    """A Python number; NumPy's are arrays of no axes."""
    return type(data) in (bool, int, float)


def dtype_of_number(number: object) -> DType:
    """bool, int64 or float32, by the kind of a Python number."""
    if isinstance(number, bool):
        return dtypes.bool
    return dtypes.default_int if isinstance(number, int) else dtypes.default_float


def from_nested(data: Any) -> np.ndarray:
    """An array of nested sequences of numbers: bool, int64, or float64 for anything with a float.

    Raises `ValueError` where rows differ in length, `TypeError` for what is no number.
    """
    size, flat = _flatten(data)
    odd = next((x for x in flat if not (isinstance(x, (int, float)) or is_numpy(x))), None)
    if odd is not None:
        raise TypeError(f"a tensor is made of numbers, not of {type(odd).__name__}")
    if not flat:
        return np.zeros(size, np.float64)
    values = np.array(flat)
    if values.dtype == np.object_ or values.dtype.kind == "u":
        values = np.array(flat, dtype=np.uint64 if min(flat) >= 0 else np.int64)
    if values.dtype.kind == "i":
        values = values.astype(np.int64)
    return values.reshape(size)


def _flatten(data: Any) -> tuple[Shape, list[Any]]:
    """The shape of nested sequences and the numbers in them, one level at a time."""
    size: list[int] = []
    level: list[Any] = [data]
    while level and _is_row(level[0]):
        lengths = {len(x) if _is_row(x) else -1 for x in level}
        if len(lengths) != 1:
            found = sorted("a number" if n < 0 else f"{n} entries" for n in lengths)
            raise ValueError(f"ragged data: at depth {len(size)} there are {' and '.join(found)}")
        size.append(len(level[0]))
        level = [x for row in level for x in row]
    if any(map(_is_row, level)):
        raise ValueError(f"ragged data: a number and a sequence both stand at depth {len(size)}")
    return tuple(size), level


def _is_row(data: object) -> bool:
    return isinstance(data, (list, tuple, range)) or is_array(data)


def host_values(values: np.ndarray, dtype: DType) -> np.ndarray:
    """A new array in C order, its elements converted as a cast converts (docs/meaning.md)."""
    if values.dtype.name == "bfloat16":
        values = (np.asarray(values).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype is dtypes.bfloat16:
        return bfloat16_bits(values)
    target = numpy_dtype(dtype)
    if dtype.is_bool:
        return np.array(values != 0, order="C")
    if values.dtype.kind == "f" and target.kind in "iu":
        return _saturated(values, dtype)
    with np.errstate(over="ignore"):
        return np.array(values, dtype=target, order="C", copy=True)


def _saturated(values: np.ndarray, dtype: DType) -> np.ndarray:
    low, high = int(dtype.min), int(dtype.max)
    with np.errstate(invalid="ignore"):
        above, below = values >= float(high), values <= float(low)
        inside = np.where(above | below | np.isnan(values), 0, values)
        result = inside.astype(numpy_dtype(dtype))
    result[above] = high
    result[below] = low
    return result


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """The values rounded once to bfloat16, nearest even, as bits.

    A float64 goes to float32 rounded to odd first, so that nothing is rounded twice.
    """
    wide = np.ascontiguousarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    bits = narrow.view(np.uint32)
    inexact = np.isfinite(narrow) & (narrow.astype(np.float64) != wide)
    outward = inexact & (np.abs(narrow.astype(np.float64)) > np.abs(wide))
    bits = np.where(outward, bits - 1, bits)
    bits = np.where(inexact, bits | 1, bits)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    result = np.where(np.isnan(narrow), 0x7FC0, rounded).astype(np.uint16)
    return np.ascontiguousarray(result.reshape(np.shape(values)))


def make_storage(values: np.ndarray, dtype: DType, device: str) -> Storage:
    """A storage that starts with a copy of these values, converted to the dtype."""
    return Storage(np.shape(values), dtype, device, host_values(values, dtype))


def storage_of(data: Any, dtype: DType | None, device: str) -> Storage:
    """A storage that starts with a copy of lists, an array, or what exports one.

    Without a dtype it is the array's; of lists that of the kind of their numbers.
    """
    if isinstance(data, (list, tuple, range)) or is_number(data):
        size, flat = _flatten(data)
        found = packed(flat, dtype)
        if found is not None:
            return Storage(size, found[1], device, found[0])
        values = from_nested(data)
        own = dtype_of_array(values)
        return make_storage(
            values, dtype or (dtypes.default_float if own.is_float else own), device
        )
    if is_numpy(data) or (hasattr(data, "__array__") and not hasattr(data, "__dlpack__")):
        values = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        values = np.from_dlpack(data)
    else:
        raise TypeError(f"a tensor is made of numbers, lists or arrays, not of {type(data)}")
    return make_storage(values, dtype or dtype_of_array(values), device)


def fill_buffer(storage: Storage) -> Any:
    """The runtime buffer of a storage, made on first use, with its first content."""
    if storage.buffer is None:
        if storage.source is not None:
            storage.buffer, storage.source = storage.source(), None
            return storage.buffer
        buffer = open_device(storage.device).buffer(storage.nbytes)
        if storage.host is not None:
            buffer.copy_in(storage.host)
        storage.buffer = buffer
        storage.host = None
    return storage.buffer


def storage_bits(storage: Storage) -> np.ndarray:
    """A copy of the content, as it lies in memory."""
    host = storage.host
    if host is not None:
        stored = numpy_dtype(storage.dtype)
        values = np.frombuffer(host, stored) if isinstance(host, memoryview) else host
        return _now(values.reshape(storage.shape), storage).copy()
    result = np.empty(storage.shape, numpy_dtype(storage.dtype))
    if storage.nbytes:
        fill_buffer(storage).copy_out(result)
    return _now(result, storage)


def _now(values: np.ndarray, storage: Storage) -> np.ndarray:
    """The part of the memory that holds elements: variable sizes have room for more."""
    if not is_variable(storage.shape):
        return values
    return values[tuple([slice(n) for n in numbers(storage.shape)])]


def storage_values(storage: Storage) -> np.ndarray:
    """A copy of the content, bfloat16 as float32."""
    bits = storage_bits(storage)
    if storage.dtype is not dtypes.bfloat16:
        return bits
    return (bits.astype(np.uint32) << 16).view(np.float32)


def storage_list(storage: Storage) -> Any:
    """The content as nested lists of Python numbers; of shape (), a number."""
    if not is_listed(storage.dtype, storage.shape) or is_variable(storage.shape):
        return storage_values(storage).tolist()
    host = storage.host
    memory = fill_buffer(storage).bytes() if host is None else host
    return unpacked(memoryview(memory), storage.dtype, storage.shape)


def sequence_shape(sizes: Sequence[Any]) -> Shape:
    """`f(2, 3)` and `f((2, 3))` alike: the sizes as a tuple of ints."""
    if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)):
        sizes = sizes[0]
    return tuple([stated(n) for n in sizes])
