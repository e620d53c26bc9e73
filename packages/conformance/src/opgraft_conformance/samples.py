"""Small kernels whose results are known without a reference, and a device's memory as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from opgraft.api import AxisKind as Kind
from opgraft.api import (
    Buffer,
    Device,
    DType,
    Executable,
    KernelInfo,
    Ops,
    Scalar,
    UOp,
    compile_kernel,
    dtypes,
)
from opgraft_conformance.fault import Fault

if TYPE_CHECKING:
    import numpy.typing as npt

SIZE = 100

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


# ---- kernels


def param(slot: int, size: int, dtype: DType = dtypes.int32) -> UOp:
    """A buffer of a kernel."""
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def affine(
    size: int = SIZE,
    dtype: DType = dtypes.int32,
    times: Scalar = 3,
    plus: Scalar = 7,
    name: str = "affine",
) -> UOp:
    """`out[i] = in[i] * times + plus`."""
    i = UOp.range(size, 0)
    value = param(1, size, dtype).load(i) * times + plus
    return UOp.sink(param(0, size, dtype).store(i, value).end(i), arg=KernelInfo(name))


def step(size: int = SIZE, times: int = 3, plus: int = 1, name: str = "step") -> UOp:
    """`out[i] = out[i] * times + plus`, in place."""
    i = UOp.range(size, 0)
    out = param(0, size)
    return UOp.sink(out.store(i, out.load(i) * times + plus).end(i), arg=KernelInfo(name))


def total(size: int = SIZE, name: str = "total") -> UOp:
    """`out[0]` is the sum of `in`: nothing of it is parallel."""
    i = UOp.range(size, 0, Kind.REDUCE)
    value = param(1, size).load(i).reduce(Ops.ADD, i)
    return UOp.sink(param(0, 1).store(0, value), arg=KernelInfo(name))


def sum_of(count: int, size: int = SIZE, name: str = "sum_of") -> UOp:
    """`out[i]` is the sum of element i of `count` buffers."""
    i = UOp.range(size, 0)
    value = param(1, size).load(i)
    for slot in range(2, count + 1):
        value = value + param(slot, size).load(i)
    return UOp.sink(param(0, size).store(i, value).end(i), arg=KernelInfo(name))


def prefix(greatest: int, size: int, name: str = "prefix") -> UOp:
    """`out[i] = i + 1` for i below the variable `n`, which is 0 .. `greatest`."""
    i = UOp.range(UOp.variable("n", 0, greatest), 0)
    value = i.cast(dtypes.int32) + 1
    return UOp.sink(param(0, size).store(i, value).end(i), arg=KernelInfo(name))


# ---- memory


def put(device: Device, array: Array | Sequence[int]) -> Buffer:
    """New memory on the device with this content; int32 where it is a list."""
    given = np.ascontiguousarray(
        array if isinstance(array, np.ndarray) else np.array(array, np.int32)
    )
    buffer = device.buffer(given.nbytes)
    buffer.copy_in(given)
    return buffer


def take(buffer: Buffer, dtype: npt.DTypeLike = np.int32) -> Array:
    """The content of a buffer."""
    return np.frombuffer(buffer.bytes(), dtype)


def run_affine(device: Device, executable: Executable, given: Array) -> Array:
    """What an `affine` of int32 makes of `given`."""
    out = device.buffer(given.nbytes)
    executable.run([out, put(device, given)], wait=True)
    return take(out, given.dtype)


def equal(
    what: str, got: Array, wanted: Array, kernel: Executable | None = None, hint: str = ""
) -> None:
    """Raise `Fault` where two arrays differ, with the first places."""
    got, wanted = np.atleast_1d(got), np.atleast_1d(wanted)
    if got.shape != wanted.shape:
        raise Fault(what, {"got": f"{got.size} elements", "expected": f"{wanted.size} elements"})
    places = np.flatnonzero(got != wanted)
    if len(places) == 0:
        return
    raise Fault(
        what,
        {
            "wrong": f"{len(places)} of {len(got)} elements, the first at {places[0]}",
            "got": _some(got, int(places[0])),
            "expected": _some(wanted, int(places[0])),
        },
        kernel=kernel,
        hint=hint,
    )


def _some(values: Array, first: int, count: int = 8) -> str:
    more = " ..." if len(values) > first + count else ""
    return f"[{first}:] {' '.join(str(v) for v in values[first : first + count])}{more}"


def check_works(device: Device, salt: int = 0, what: str = "a small kernel is wrong") -> None:
    """Compile and run a small kernel; `salt` makes it one that was not compiled before."""
    executable = compile_kernel(device, affine(times=3, plus=salt + 7))
    given = np.arange(SIZE, dtype=np.int32) - 50
    equal(what, run_affine(device, executable, given), given * 3 + 7 + salt, executable)
