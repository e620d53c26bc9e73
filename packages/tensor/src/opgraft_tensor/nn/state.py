"""States in safetensors files: names, dtypes, shapes and bytes; nothing that can run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from opgraft.dtype import dtypes
from opgraft_tensor.exchange import numpy_dtype, storage_bits
from opgraft_tensor.nn.module import Module
from opgraft_tensor.storage import Storage, buffer_node
from opgraft_tensor.tensor import Tensor, realize_all

try:
    import safetensors as _safetensors
except ModuleNotFoundError:  # an extra: opgraft-tensor[safetensors]
    _safetensors = None

_NAMES: Final = {
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


def _library() -> Any:
    if _safetensors is None:
        raise ModuleNotFoundError(
            'safetensors files need a package: pip install "opgraft-tensor[safetensors]"'
        )
    return _safetensors


def save(state: Mapping[str, Tensor] | Module, path: str | Path) -> None:
    """Write the tensors of a state (or of a module) to a safetensors file."""
    library = _library()
    tensors = state.state_dict() if isinstance(state, Module) else dict(state)
    realize_all(list(tensors.values()))
    entries = {}
    for name, tensor in tensors.items():
        bits = storage_bits(tensor.memory())
        entries[name] = {
            "dtype": tensor.dtype.name,
            "shape": list(tensor.shape),
            "data": bits.tobytes(),
        }
    library.serialize_file(entries, str(path), None)


def load(path: str | Path, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    library = _library()
    found = {}
    for name, entry in library.deserialize(Path(path).read_bytes()):
        dtype = _NAMES.get(entry["dtype"])
        if dtype is None:
            raise TypeError(f"{path}: {name} has dtype {entry['dtype']}, which no tensor holds")
        size = tuple(entry["shape"])
        bits = np.frombuffer(entry["data"], numpy_dtype(dtype)).reshape(size).copy()
        place = Tensor(0, device=device).device
        found[name] = Tensor._handle(buffer_node(Storage(size, dtype, place, bits)), place)
    return found
