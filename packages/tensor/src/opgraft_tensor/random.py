"""Random numbers: counter-based, so the same on every device and in any order of evaluation.

The generator is Threefry-2x32 with 20 rounds. A call takes the next stream: its key is made of
the seed and the number of the call, its counters are 0, 1, 2, ... The key is data, not a part of
the kernel: drawing again runs the kernel that is compiled already.
"""

from __future__ import annotations

import math
from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.forking import ForkLock
from opgraft.ir.evaluate import alu
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import algebra, functions, graph
from opgraft_tensor.extents import is_variable, stated
from opgraft_tensor.graph import Shape, elementwise, full
from opgraft_tensor.late import np
from opgraft_tensor.recording import host_supplied, refuse_seeding
from opgraft_tensor.storage import buffer_node


class Generator:
    """Streams of random numbers from one seed; any thread may draw."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = ForkLock()
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Begin again with the first stream of this seed (an integer of 64 bits)."""
        with self._lock:
            self._seed = int(seed) & ((1 << 64) - 1)
            self._calls = 0

    def next_key(self) -> int:
        """The key of the next stream."""
        with self._lock:
            count, seed = self._calls, self._seed
            self._calls += 1
        word = dtypes.uint64
        return int(alu(Ops.THREEFRY, word, (word, word), (count, seed)))


_default: Final = Generator()


def manual_seed(seed: int) -> None:
    """Let the random numbers of this process begin again, as this seed says."""
    refuse_seeding()
    _default.seed(seed)


def key_node(device: str) -> UOp:
    """The key of the next stream, in memory, as uint64 of shape ()."""
    (storage,) = host_supplied(_next_key, [(dtypes.uint64, device)])
    return buffer_node(storage)


def _next_key() -> list[int]:
    return [_default.next_key()]


def bits(size: Shape, device: str) -> UOp:
    """64 random bits for each element, uint64."""
    size = tuple([stated(n) for n in size])
    if is_variable(size):
        return elementwise(Ops.THREEFRY, _places(size), key_node(device))
    count = math.prod(size)
    counter = graph.arange((count,), 0, dtypes.uint64)
    made = elementwise(Ops.THREEFRY, counter, graph.broadcast_to(key_node(device), (count,)))
    return graph.reshape(made, size)


def _places(size: Shape) -> UOp:
    """The place of each element in memory, uint64: with a variable first axis that of any size."""
    total = full((), dtypes.uint64, 0)
    stride = 1
    for axis in reversed(range(len(size))):
        along = graph.arange(size, axis, dtypes.uint64)
        total = algebra.add(total, algebra.scale(along, stride))
        stride *= size[axis]
    return total


def _half(word: UOp, upper: bool) -> UOp:
    """The upper or the lower 32 bits, as uint32."""
    if upper:
        word = elementwise(Ops.SHR, word, algebra.like(word, 32))
    return graph.cast(word, dtypes.uint32)


def _fraction(word: UOp, dtype: DType) -> UOp:
    """uint32 or uint64 bits as floats in [0, 1), all multiples of the step of [0.5, 1)."""
    digits = dtype.mantissa + 1
    kept = elementwise(Ops.SHR, word, algebra.like(word, word.dtype.bits - digits))
    # a signed integer converts faster on most machines, and this one is small
    whole = graph.cast(kept, dtypes.int32 if word.dtype.bits == 32 else dtypes.int64)
    return algebra.scale(graph.cast(whole, dtype), 2.0**-digits)


def uniform_node(size: Shape, dtype: DType, device: str) -> UOp:
    """Uniform in [0, 1)."""
    word = bits(size, device)
    return _fraction(word if dtype is dtypes.float64 else _half(word, True), dtype)


def normal_node(size: Shape, dtype: DType, device: str) -> UOp:
    """Normal with mean 0 and deviation 1 (Box and Muller, 1958), both halves of the bits used."""
    word = bits(size, device)
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    # 1 - u is in (0, 1]: its logarithm is finite
    radius = _fraction(_half(word, True), dtypes.float32)
    angle = _fraction(_half(word, False), dtypes.float32)
    radius = graph.cast(algebra.sub(algebra.like(radius, 1), radius), wide)
    square = algebra.scale(functions.log(radius), -2)
    turn = functions.cos(algebra.scale(graph.cast(angle, wide), 2 * math.pi))
    return graph.cast(algebra.mul(functions.sqrt(square), turn), dtype)


def integer_node(low: int, high: int, size: Shape, dtype: DType, device: str) -> UOp:
    """Integers in low .. high-1; the bias is below 2**-32 for ranges below 2**32."""
    word = bits(size, device)
    rest = elementwise(Ops.MOD, word, full((), dtypes.uint64, high - low))
    return algebra.shifted(graph.cast(rest, dtype), low)


def permutation_node(count: int, device: str) -> UOp:
    """0 .. count-1 in random order, int64, drawn on the host: a sort is not a kernel yet."""

    def draw() -> list[np.ndarray]:
        drawn = threefry(np.arange(count, dtype=np.uint64), _default.next_key())
        return [np.argsort(drawn, kind="stable")]

    (storage,) = host_supplied(draw, [(dtypes.int64, device)])
    return buffer_node(storage)


_TURNS: Final = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(counters: np.ndarray, key: int) -> np.ndarray:
    """THREEFRY of `opgraft.ir.evaluate`, of many counters at once on the host."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    first, second = np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)
    keys = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x0 = (counters & low).astype(np.uint32)
    x1 = (counters >> half).astype(np.uint32)
    with np.errstate(over="ignore"):
        x0, x1 = x0 + keys[0], x1 + keys[1]
        for block in range(5):
            for step in range(4):
                turn = _TURNS[block % 2 * 4 + step]
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))) ^ x0
            x0 = x0 + keys[(block + 1) % 3]
            x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0.astype(np.uint64) | (x1.astype(np.uint64) << half)
