"""Kernels made by chance from a seed, and cut down to what fails.

They mix dtypes, casts, comparisons, gates, reductions and scans over shared loops. Every operation
in them is exact by docs/meaning.md, and what a REDUCE adds up is made of small whole numbers, so
that the result does not depend on any choice of lowering or of the device.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from opgraft.api import Device, Target
from opgraft.dtype import DType, dtypes
from opgraft.errors import OpgraftError
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.text import to_text
from opgraft.ir.uop import UOp
from opgraft_conformance.execution import agree, expected, filled
from opgraft_conformance.fault import Fault
from opgraft_conformance.kernels import kernel, loop, over, param
from opgraft_conformance.operations import lacking

DTYPES: Final = (
    *(dtypes.float32, dtypes.float32, dtypes.int32, dtypes.float16, dtypes.bfloat16),
    *(dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int64, dtypes.bool),
    *(dtypes.float64, dtypes.uint64),
)
SIZES: Final = (1, 2, 3, 5, 8, 9, 16, 17, 24)
ATTEMPTS: Final = 60
"""So many smaller kernels are tried for one that fails."""

_INTEGER: Final = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.IDIV,
                   Ops.MOD, Ops.SHL, Ops.SHR)  # fmt: skip
_FLOAT: Final = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.FDIV, Ops.MOD)
_BOOL: Final = (Ops.AND, Ops.OR, Ops.XOR, Ops.ADD, Ops.MUL)
_COMPARE: Final = (Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE)


class RandomKernel:
    """A kernel of random shape: a few outputs over shared loops."""

    def __init__(self, seed: int, target: Target) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.dtypes = [d for d in DTYPES if lacking(target, [d]) is None]
        self.slots = target.max_buffers
        self.slot = 0

    def make(self) -> UOp:
        """The SINK."""
        pick = self.random
        self.spine = [loop(pick.choice(SIZES), f"i{n}") for n in range(pick.choice((1, 2, 2, 3)))]
        self.reduce = over(pick.choice((1, 3, 8, 17, 32)), "k")
        outputs = min(pick.choice((1, 1, 2, 3)), max(1, self.slots // 3))
        self.slot = outputs
        effects = []
        for slot in range(outputs):
            loops = self.spine if slot == 0 else self.spine[: pick.randint(1, len(self.spine))]
            dtype = pick.choice(self.dtypes)
            value = self.value(loops, 3, dtype)
            if pick.random() < 0.15:
                value = self.scan(value, loops)
            store = param(slot, size_of(loops), dtype).store(flat(loops), value)
            effects.append(store.end(*loops))
        return renumbered(kernel(f"random{self.seed}", *effects))

    def value(self, loops: Sequence[UOp], depth: int, dtype: DType) -> UOp:
        """A value of a dtype that stands in these loops."""
        pick, kind = self.random, self.random.random()
        if depth == 0 or kind < 0.15:
            return self.leaf(loops, dtype)
        if kind < 0.3:
            other = pick.choice(self.dtypes)
            return self.value(loops, depth - 1, other).cast(dtype)
        if kind < 0.42 and self.reduce not in loops and not dtype.is_bool:
            return self.reduction([*loops, self.reduce], depth - 1, dtype)
        a = self.value(loops, depth - 1, dtype)
        if kind < 0.5 and dtype.is_float:
            return UOp(pick.choice((Ops.SQRT, Ops.TRUNC)), dtype, (a,))
        if kind < 0.6:
            condition = self.value(loops, depth - 1, dtypes.bool)
            return condition.where(a, self.value(loops, depth - 1, dtype))
        if dtype.is_bool and kind < 0.85:
            other = pick.choice(self.dtypes)
            sides = (self.value(loops, depth - 1, other), self.value(loops, depth - 1, other))
            return UOp(pick.choice(_COMPARE), dtype, sides)
        b = self.value(loops, depth - 1, dtype)
        ops = _BOOL if dtype.is_bool else _FLOAT if dtype.is_float else _INTEGER
        return UOp(pick.choice(ops), dtype, (a, b))

    def reduction(self, loops: list[UOp], depth: int, dtype: DType) -> UOp:
        """A REDUCE that is exact in any order."""
        inner = self.value(loops, depth, dtype)
        if not dtype.is_float:
            op = self.random.choice((Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR))
            return inner.reduce(op, self.reduce)
        # + 0.0: the sign of a zero that is found is free
        op = self.random.choice((Ops.ADD, Ops.ADD, Ops.MAX, Ops.MIN))
        return tame(inner).reduce(op, self.reduce) + dtype.const(0.0)

    def scan(self, value: UOp, loops: Sequence[UOp]) -> UOp:
        """Running sums or extremes along one of the loops."""
        dtype, along = value.dtype, self.random.choice(list(loops))
        if dtype.is_bool:
            return UOp(Ops.SCAN, dtype, (value, along), Ops.OR)
        op = self.random.choice((Ops.ADD, Ops.MAX))
        held = tame(value) if dtype.is_float else value
        made = UOp(Ops.SCAN, dtype, (held, along), op)
        return made + dtype.const(0.0) if dtype.is_float else made

    def leaf(self, loops: Sequence[UOp], dtype: DType) -> UOp:
        """A constant, an index, or an element of a buffer."""
        pick = self.random
        kind = pick.random()
        if kind < 0.12 or self.slot >= self.slots:
            number = pick.choice((0, 1, 2, 3, 7, -1))
            return UOp.const(dtype, bool(number) if dtype.is_bool else number)
        if kind < 0.2 and not dtype.is_bool:
            return pick.choice(list(loops)).cast(dtype)
        used = [r for r in loops if pick.random() < 0.8] or list(loops[:1])
        if pick.random() < 0.3:
            pick.shuffle(used)
        size, at = size_of(used), flat(used)
        if pick.random() < 0.2:
            at = at * -1 + (size - 1)
        buffer = param(self.slot, size, dtype)
        self.slot += 1
        if pick.random() < 0.25:
            at = at + pick.choice((-1, 1, 2))
            return buffer.load(at, (at >= 0) & (at < size), dtype.const(1))
        return buffer.load(at)


def tame(value: UOp) -> UOp:
    """Floats brought to whole numbers from -8 to 8; nan stays."""
    low, high = value.const_like(-8.0), value.const_like(8.0)
    return UOp(Ops.TRUNC, value.dtype, (value.maximum(low).minimum(high),))


def size_of(loops: Sequence[UOp]) -> int:
    """The number of iterations of all these loops."""
    total = 1
    for r in loops:
        total *= int(r.src[0].arg)
    return total


def flat(loops: Sequence[UOp]) -> UOp:
    """The place of an iteration, rows first."""
    at = UOp.const(dtypes.index, 0)
    for r in loops:
        at = at * int(r.src[0].arg) + r
    return at


def random_kernel(seed: int, target: Target) -> UOp:
    """The kernel of a seed: the same one in every process, for the same target."""
    return RandomKernel(seed, target).make()


# ---- cutting down


def renumbered(sink: UOp) -> UOp:
    """The kernel with slots 0, 1, 2, ... for the buffers that are left."""
    left = sorted((n for n in sink.toposort() if n.op is Ops.PARAM), key=lambda n: int(n.arg[0]))
    return sink.substitute({n: n.replace(arg=(k, n.arg[1])) for k, n in enumerate(left)})


def smaller(sink: UOp) -> Iterator[UOp]:
    """Kernels with less in them: an effect left out, a value in place of what is made of it."""
    if len(sink.src) > 1:
        for effect in sink.src:
            yield renumbered(sink.with_src(tuple([e for e in sink.src if e is not effect])))
    for n in reversed(sink.toposort()):
        if n.op not in GroupOp.ALU and n.op not in (Ops.REDUCE, Ops.SCAN, Ops.LOAD):
            continue
        if n.dtype.is_index:
            continue
        inner = dict.fromkeys(s for s in n.src if s.dtype is n.dtype and _stands(s, n))
        for instead in (*inner, n.const_like(1)):
            yield renumbered(sink.substitute({n: instead}))


def _stands(source: UOp, n: UOp) -> bool:
    """Whether a source may stand in the place of its user: it is a value, and no loop is left
    open."""
    return source.op not in GroupOp.MEMORY and all(r in n.ranges for r in source.ranges)


def shrunk(sink: UOp, fails: Callable[[UOp], bool]) -> UOp:
    """A smaller kernel that still fails; each kernel that is tried is compiled and run."""
    left = ATTEMPTS
    while True:
        for candidate in smaller(sink):
            if left == 0:
                return sink
            left -= 1
            if candidate is not sink and fails(candidate):
                sink = candidate
                break
        else:
            return sink


def check(device: Device, reference: Device, sink: UOp, origin: str) -> None:
    """Raise `Fault` with a small kernel that fails where this one does."""
    first = problem(device, reference, sink)
    if first is None:
        return

    def fails(candidate: UOp) -> bool:
        # one that INTERP refuses is wrong itself: without its gate, say, it reads beyond a buffer
        found = problem(device, reference, candidate) if _legal(reference, candidate) else None
        return type(found) is type(first)

    small = shrunk(sink, fails)
    last = problem(device, reference, small) or first
    facts = {"seed": origin, "kernel": to_text(small), "wrong": last}
    raise Fault("a random kernel gives other values than INTERP's", facts) from last


def _legal(reference: Device, sink: UOp) -> bool:
    try:
        expected(reference, sink, filled(sink))
    except OpgraftError:
        return False
    return True


def problem(device: Device, reference: Device, sink: UOp) -> Exception | None:
    """What is wrong with a kernel on a device; None: nothing."""
    try:
        agree(device, reference, sink)
    except (Fault, OpgraftError) as error:
        return error
    return None
