"""States in safetensors files: names, dtypes, shapes and bytes; nothing that can run.

The format (https://github.com/huggingface/safetensors, "Format"): eight bytes with the length of
a header, little-endian; the header, JSON, from names to dtype, shape and place; then the data,
C order, little-endian, without holes. It is short enough to be read and written here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft_tensor.devices import device_name
from opgraft_tensor.exchange import numpy_dtype, storage_bits
from opgraft_tensor.nn.module import Module
from opgraft_tensor.storage import Storage, buffer_node
from opgraft_tensor.tensor import Tensor, realize_all

_DTYPES: Final = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "U8": dtypes.uint8,
    "U16": dtypes.uint16,
    "U32": dtypes.uint32,
    "U64": dtypes.uint64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
}
_CODES: Final = {dtype: code for code, dtype in _DTYPES.items()}
_LONGEST_HEADER: Final = 100_000_000
"""Bytes; the format's own bound, against files that are none."""


def save(state: Mapping[str, Tensor] | Module, path: str | Path) -> None:
    """Write the tensors of a state (or of a module) to a safetensors file."""
    tensors = state.state_dict() if isinstance(state, Module) else dict(state)
    realize_all(list(tensors.values()))
    header: dict[str, Any] = {}
    begin = 0
    # wide elements first, so that each array starts at a multiple of its element
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    for name in order:
        tensor = tensors[name]
        end = begin + tensor.nbytes
        header[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            bits = storage_bits(tensors[name].memory())
            file.write(bits.astype(bits.dtype.newbyteorder("<"), copy=False).tobytes())


def load(path: str | Path, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name, in the order of the file.

    Raises `ValueError` for a file that is not one, `TypeError` for a dtype that no tensor holds.
    """
    content = Path(path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(_LONGEST_HEADER, len(content) - 8):
        raise ValueError(f"{path} is no safetensors file: its header is cut off")
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError as error:
        raise ValueError(f"{path} is no safetensors file: its header is not JSON") from error
    data = memoryview(content)[8 + length :]
    place = device_name(device)
    return {
        name: Tensor._handle(buffer_node(_entry(path, name, entry, data, place)), place)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _entry(path: str | Path, name: str, entry: Any, data: memoryview, device: str) -> Storage:
    dtype: DType | None = _DTYPES.get(entry["dtype"])
    if dtype is None:
        raise TypeError(f"{path}: {name} has dtype {entry['dtype']}, which no tensor holds")
    size = tuple([int(n) for n in entry["shape"]])
    begin, end = entry["data_offsets"]
    wanted = math.prod(size) * dtype.itemsize
    if not 0 <= begin <= end <= len(data) or end - begin != wanted or any(n < 0 for n in size):
        raise ValueError(f"{path}: {name} of {dtype} {size} does not fit its {end - begin} bytes")
    stored = numpy_dtype(dtype).newbyteorder("<")
    bits = np.frombuffer(data[begin:end], stored).reshape(size)
    return Storage(size, dtype, device, bits.astype(numpy_dtype(dtype)))
