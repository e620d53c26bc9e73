"""Random sums of products, as large as tiles and packed factors begin at.

`python -m kernel_forms.random_products --seeds 0:500 --devices CPU` runs that many: lowered for
several targets and carried out by the interpreter, and compiled by devices, each compared with the
kernel carried out loop by loop. Numbers are small integers, so that every order of a sum is exact.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from opgraft import Device, DType, dtypes, using
from opgraft.devices.interp.executor import execute
from opgraft.ir import Ops, Space, UOp
from opgraft.ir.linear import LinearProgram
from opgraft.ir.spec import check
from opgraft.lower.pipeline import lower
from opgraft.runtime import compile_kernel
from opgraft.target import Target

from .kernels import kernel, loop, over, param
from .memory import parameters
from .seeds import try_seeds

Arrays = dict[int, np.ndarray[Any, Any]]

_STEPS: Final = 60_000
"""Instructions of a run that the interpreter is still asked for."""
TARGETS: Final = (
    Target("wide", vector_bytes=64, vector_registers=32, cores=2),
    Target("avx", vector_bytes=32, vector_registers=16, cores=1, fma=frozenset((dtypes.float32,))),
    Target("many", vector_bytes=16, vector_registers=8, cores=16),
    Target("small", vector_bytes=32, vector_registers=16, cores=2, local_bytes=2048),
    Target("tiny", vector_bytes=16, cores=2, cache_bytes=(2048, 4096), local_bytes=16 << 10),
    Target("scalar", vector_bytes=0, cores=2),
    Target("groups", vector_bytes=32, cores=4, group_dims=1),
)


def plain(sink: UOp) -> UOp:
    """The kernel loop by loop, as it stands."""
    return sink.replace(arg=replace(sink.arg, name=f"{sink.arg.name}_plain", schedule=()))


def steps_of(program: LinearProgram) -> int:
    """Instructions that one run carries out."""
    total, times = 0, [1]
    for n in program.instructions:
        if n.op is Ops.RANGE:
            times.append(times[-1] * max(1, int(n.src[0].vmax)))
        elif n.op is Ops.END and n.src[0].op is Ops.RANGE:
            times.pop()
        else:
            total += times[-1]
    return total


def filled(sink: UOp, seed: int) -> Arrays:
    """Bytes for each parameter: small integers in its dtype."""
    draw = np.random.default_rng(seed)
    return {slot: _encoded(draw, p.dtype, p.arg[1]) for slot, p in parameters(sink).items()}


def _encoded(draw: np.random.Generator, dtype: DType, size: int) -> np.ndarray[Any, Any]:
    values = draw.integers(0, 3, size) if dtype.name.startswith("u") else draw.integers(-2, 3, size)
    if dtype.is_bool:
        made: Any = (values & 1).astype(np.uint8)
    elif dtype is dtypes.bfloat16:
        made = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        made = values.astype(dtype.name)
    return np.frombuffer(bytearray(made.tobytes()), np.uint8)


def interpreted(program: LinearProgram, memory: Arrays, variables: dict[str, int]) -> Arrays:
    """The memory after the interpreter carried a program out."""
    held = {slot: values.copy() for slot, values in memory.items()}
    execute(program, [held[s] for s in sorted(held)], variables)
    return held


def compiled(device: Any, sink: UOp, memory: Arrays, variables: dict[str, int]) -> Arrays:
    """The memory after the kernel ran on a device."""
    executable = compile_kernel(device, sink)
    held, buffers = {s: v.copy() for s, v in sorted(memory.items())}, []
    for values in held.values():
        buffers.append(device.buffer(values.nbytes))
        buffers[-1].copy_in(values)
    given = tuple(variables[v.arg[0]] for v in executable.program.variables)
    executable.run(buffers, given, wait=True)
    for buffer, values in zip(buffers, held.values(), strict=True):
        buffer.copy_out(values)
    return held


@dataclass(frozen=True)
class Made:
    """A kernel, and values for its variables."""

    sink: UOp
    variables: dict[str, int] = field(default_factory=dict)


_NARROW: Final = {
    dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32, dtypes.int8: dtypes.int32,
    dtypes.uint8: dtypes.int32, dtypes.int16: dtypes.int64, dtypes.bool: dtypes.int32,
}  # fmt: skip
_KINDS: Final = (
    dtypes.float32, dtypes.float32, dtypes.float32, dtypes.float64, dtypes.float16,
    dtypes.bfloat16, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64,
    dtypes.bool, dtypes.uint64,
)  # fmt: skip


class AnyProduct:
    """Draws a kernel. The same seed gives the same one in every process."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed

    def make(self) -> Made:
        pick = self.random
        self.slot = self.locals = 0
        self.variables: dict[UOp, int] = {}
        self.dtype = pick.choice(_KINDS)
        self.wide = self.dtype
        if pick.random() < 0.8:
            self.wide = _NARROW.get(self.dtype, self.dtype)
        draw = pick.choice((self._products, self._products, self._chain, self._windows))
        sink = kernel(f"product{self.seed}", *draw())
        check(sink, "kernel")
        there = {n for n in sink.toposort() if n.op is Ops.VAR}
        return Made(sink, {v.arg[0]: n for v, n in self.variables.items() if v in there})

    # ---- pieces

    def _size(self, most: int = 70) -> int:
        return self.random.choice((1, 2, 3, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 40, 48, 64, most))

    def _loop(self, size: int, name: str) -> UOp:
        if self.random.random() < 0.06:
            made = UOp.variable(f"n{len(self.variables)}", 0, size)
            self.variables[made] = self.random.randint(0, size)
            return UOp.range(made, name)
        return loop(size, name)

    def _param(self, size: int, dtype: DType) -> UOp:
        self.slot += 1
        return param(self.slot - 1, size, dtype)

    def _number(self, value: int, dtype: DType | None = None) -> UOp:
        dtype = dtype or self.wide
        return UOp.const(dtype, dtype.const(float(value) if dtype.is_float else value))

    @staticmethod
    def flat(loops: Sequence[UOp]) -> UOp:
        at = UOp.const(dtypes.index, 0)
        for r in loops:
            at = at * int(r.src[0].vmax) + r
        return at

    @staticmethod
    def size(loops: Sequence[UOp]) -> int:
        return math.prod([int(r.src[0].vmax) for r in loops])

    def _array(self, loops: Sequence[UOp]) -> UOp:
        """An element of an array over these loops: as they come, permuted, gated, mirrored, taken
        from wherever an array of integers says, converted, and worked on."""
        pick = self.random
        axes = list(loops)
        if pick.random() < 0.5:
            pick.shuffle(axes)
        at, size = self.flat(axes), self.size(axes)
        kind = pick.random()
        if kind < 0.1:
            shift = pick.choice((-1, 1, 2))
            axis = pick.choice(axes)
            moved = axis + shift
            inside = (moved >= 0) & (moved < int(axis.src[0].vmax))
            index = UOp.const(dtypes.index, 0)
            for r in axes:
                index = index * int(r.src[0].vmax) + (moved if r is axis else r)
            value = self._param(size, self.dtype).load(index, inside, self._number(0, self.dtype))
        elif kind < 0.18:
            axis = pick.choice(axes)
            extent = int(axis.src[0].vmax)
            where = self._param(extent, dtypes.int32).load(axis).cast(dtypes.index)
            index = UOp.const(dtypes.index, 0)
            for r in axes:
                index = index * int(r.src[0].vmax) + (where % extent if r is axis else r)
            value = self._param(size, self.dtype).load(index)
        elif kind < 0.25:
            value = self._param(size, self.dtype).load(at * -1 + (size - 1))
        elif kind < 0.32:
            value = self._param(size * 2 + 3, self.dtype).load(at * 2 + 3)
        else:
            value = self._param(size, self.dtype).load(at)
        value = value.cast(self.wide) if self.wide is not self.dtype else value
        if pick.random() < 0.25 and not self.wide.is_bool:
            if pick.random() < 0.5:
                value = value * self._number(2) + self._number(1)
            else:
                value = value.maximum(self._number(0))
        if pick.random() < 0.08:
            axis = pick.choice(axes)
            value = (axis < pick.randint(0, 40)).where(value, self._number(0))
        return value

    def _product(self, rows: list[UOp], columns: list[UOp], batch: list[UOp]) -> UOp:
        pick = self.random
        count = pick.choice((1, 1, 1, 2, 3))
        most = {1: 70, 2: 9, 3: 4}[count]
        ks = [over(min(self._size(), most), f"k{self.slot}_{n}") for n in range(count)]
        left = [*[b for b in batch if pick.random() < 0.8], *rows, *ks]
        right = [*[b for b in batch if pick.random() < 0.8], *ks, *columns]
        a, b = self._array(left), self._array(right)
        product = a * b if pick.random() < 0.7 else b * a
        if pick.random() < 0.1:
            product = product * self._array(ks)
        return product.reduce(Ops.ADD, *ks)

    def _epilogue(self, value: UOp, loops: list[UOp]) -> UOp:
        pick = self.random
        if pick.random() < 0.3:
            value = value + self._array([pick.choice(loops)])
        if pick.random() < 0.2:
            value = value.maximum(self._number(0))
        if pick.random() < 0.1:
            value = (loops[-1] < 9).where(value, self._number(1))
        return value

    def _store(self, value: UOp, loops: list[UOp], closed: list[UOp] | None = None) -> UOp:
        pick = self.random
        axes = list(loops)
        if pick.random() < 0.2:
            pick.shuffle(axes)
        at, size = self.flat(axes), self.size(axes)
        if pick.random() < 0.1:
            at, size = at * -1 + (size - 1), size
        elif pick.random() < 0.1:
            at, size = at * 2 + 1, size * 2 + 1
        dtype = value.dtype
        if dtype in (dtypes.float32, dtypes.int32) and pick.random() < 0.2:
            dtype = {dtypes.float32: dtypes.float16, dtypes.int32: dtypes.int8}[dtype]
        buffer = self._param(size, dtype)
        gate = None
        if pick.random() < 0.1:
            gate = loops[-1] < pick.randint(0, 40)
        value = value.cast(dtype) if dtype is not value.dtype else value
        if pick.random() < 0.15:
            old = buffer.load(at) if gate is None else None
            value = value if old is None else value + old
        order = list(closed or loops)
        return buffer.store(at, value, gate).end(*order)

    # ---- whole kernels

    def _products(self) -> list[UOp]:
        pick = self.random
        i, j = self._loop(self._size(), "i"), self._loop(self._size(), "j")
        batch = [self._loop(pick.choice((1, 2, 3, 5)), "b")] if pick.random() < 0.35 else []
        extra = [self._loop(pick.choice((2, 3)), "h")] if pick.random() < 0.15 else []
        rows, columns = [i], [j]
        (rows if pick.random() < 0.5 else columns).extend(extra)
        loops = [*batch, *rows, *columns]
        if pick.random() < 0.15:
            pick.shuffle(loops)
        value = self._product(rows, columns, batch)
        if pick.random() < 0.15:
            value = value + self._product(rows, columns, batch)
        effects = []
        if pick.random() < 0.1:  # a reduction of reductions: its columns are gone
            best = value.substitute({})
            kinds = {r: over(r.src[0].vmax, f"m{n}") for n, r in enumerate(columns)}
            if all(r.src[0].op is Ops.CONST for r in columns):
                best = value.substitute(kinds).reduce(Ops.MAX, *kinds.values())
                effects.append(self._store(best, [*batch, *rows]))
        effects.append(self._store(self._epilogue(value, loops), loops))
        if pick.random() < 0.25:
            effects.append(self._store(self._product(rows, columns, batch), loops))
        if pick.random() < 0.15:
            effects.append(self._store(self._array([*batch, *rows]), [*batch, *rows]))
        return effects

    def _chain(self) -> list[UOp]:
        """Products through rows kept beside, as attention has them."""
        pick = self.random
        q, d = self._loop(self._size(48), "q"), self._loop(self._size(40), "d")
        batch = [self._loop(pick.choice((2, 3)), "b")] if pick.random() < 0.4 else []
        keys = self._size(48)
        s, t = loop(keys, "s"), over(self._size(33), "t")
        scores = (self._array([*batch, q, t]) * self._array([*batch, s, t])).reduce(Ops.ADD, t)
        if pick.random() < 0.3:
            scores = (s < q + 1).where(scores, self._number(-3 if not self.wide.is_bool else 0))
        filled = self._row(s, scores)
        for _ in range(pick.choice((0, 1, 1, 2))):
            e, m = loop(keys, f"e{self.locals}"), over(keys, f"m{self.locals}")
            top = filled.load(m).reduce(pick.choice((Ops.MAX, Ops.ADD)), m)
            value = filled.load(e)
            value = value.maximum(top) if pick.random() < 0.5 else value + top
            filled = self._row(e, value)
        r = over(keys, "r")
        total = (filled.load(r) * self._array([*batch, r, d])).reduce(Ops.ADD, r)
        loops = [*batch, q, d]
        effects = [self._store(self._epilogue(total, loops), loops)]
        if pick.random() < 0.3:
            z = over(keys, "z")
            effects.append(self._store(filled.load(z).reduce(Ops.MAX, z), [*batch, q]))
        return effects

    def _row(self, own: UOp, value: UOp) -> UOp:
        row = UOp(
            Ops.LOCAL, value.dtype, (), (f"row{self.locals}", self.size([own]), Space.PRIVATE)
        )
        self.locals += 1
        return row.after(row.store(own, value).end(own))

    def _windows(self) -> list[UOp]:
        """A convolution: strides, dilation, groups, borders, windows larger than the image."""
        pick = self.random
        stride, dilation = pick.choice((1, 1, 1, 2, 3)), pick.choice((1, 1, 2))
        taps, padding = pick.choice((1, 2, 3, 5)), pick.choice((0, 1, 2, 4))
        high, wide = pick.choice((1, 3, 7, 12)), pick.choice((2, 6, 9, 17, 32))
        groups, out, inner = pick.choice((1, 1, 2)), pick.choice((1, 8, 20)), pick.choice((1, 3, 6))
        lines = max(1, (high + 2 * padding - (taps - 1) * dilation - 1) // stride + 1)
        columns = max(1, (wide + 2 * padding - (taps - 1) * dilation - 1) // stride + 1)
        g, c = loop(groups, "g"), self._loop(out, "c")
        n, y, x = loop(pick.choice((1, 2)), "n"), loop(lines, "y"), self._loop(columns, "x")
        r, p, t = over(inner, "r"), over(min(taps, 3), "p"), over(taps, "t")
        row, column = y * stride + p * dilation - padding, x * stride + t * dilation - padding
        inside = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
        count = self.size([n]) * groups * inner * high * wide
        image = self._param(count, self.dtype)
        at = (((n * groups + g) * inner + r) * high + row) * wide + column
        value = image.load(at, inside, self._number(0, self.dtype)).cast(self.wide)
        weight = self._array([g, c, r, p, t])
        total = (value * weight).reduce(Ops.ADD, r, p, t)
        loops = [n, g, c, y, x]
        return [self._store(self._epilogue(total, loops), loops)]


def compare(made: Made, devices: Sequence[Any], seed: int, targets: Sequence[Target]) -> str:
    """What is wrong with this kernel on these targets and devices; empty if nothing is."""
    memory = filled(made.sink, seed)
    wanted = compiled(devices[0], plain(made.sink), memory, made.variables)
    for target in targets:
        with using(SPEC=True):
            program = lower(made.sink, target)
        taken = sum(
            n.arg[1] * n.dtype.itemsize
            for n in program.instructions
            if n.op is Ops.LOCAL and n.arg[2] is not Space.REGISTER
        )
        given = sum(n.arg[1] * n.dtype.itemsize for n in made.sink.toposort() if n.op is Ops.LOCAL)
        if taken > max(given, target.local_bytes):
            return f"{target.name}: {taken} bytes of buffers of its own, of {target.local_bytes}"
        if steps_of(program) <= _STEPS:
            told = _differs(made, interpreted(program, memory, made.variables), wanted)
            if told:
                return f"{target.name}: {told}"
    for device in devices:
        told = _differs(made, compiled(device, made.sink, memory, made.variables), wanted)
        if told:
            return f"{device.name}: {told}"
    return ""


def _differs(made: Made, found: Arrays, wanted: Arrays) -> str:
    for slot, p in parameters(made.sink).items():
        got, right = (_words(held[slot], p.dtype) for held in (found, wanted))
        if not np.array_equal(got, right):
            at = int(np.argmax(got != right))
            return f"slot {slot} [{at}] is {got[at]:#x}, should be {right[at]:#x}"
    return ""


def _words(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """The bits of each element; zeros of both signs are one, as in sums of any order."""
    words = values.view(f"uint{8 * dtype.itemsize}")
    zero = words == 1 << (dtype.bits - 1) if dtype.is_float else np.zeros(words.shape, bool)
    return np.where(zero, 0, words)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--devices", default="CPU")
    parser.add_argument("--targets", default=",".join(t.name for t in TARGETS))
    given = parser.parse_args(arguments)
    first, last = map(int, given.seeds.split(":"))
    devices = [Device[name] for name in given.devices.split(",") if name]
    targets = [t for t in TARGETS if t.name in given.targets.split(",")]
    faults = try_seeds(
        range(first, last), lambda seed: compare(AnyProduct(seed).make(), devices, seed, targets)
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
