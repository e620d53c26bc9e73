"""Random typed expressions, with leaves and constants that are related to one another."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp
from opgraft.ir.ops import Ops

from .vectors import held, rounded

NARROW: Final = (dtypes.narrow(4, True), dtypes.narrow(4, False), dtypes.int8, dtypes.uint8)
WIDE: Final = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)
SMALL: Final = (0, 1, -1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, -2, -3, -4)
FLOAT_EDGES: Final = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.5, 0.1, 1e4, 65504.0, 6e-8, 1.5,
    float("inf"), float("-inf"), float("nan"), 16777217.0, 1e-40, 3e38,
)  # fmt: skip

_ARITHMETIC: Final = (Ops.ADD, Ops.ADD, Ops.ADD, Ops.MUL, Ops.MUL)
_DIVISION: Final = (Ops.IDIV, Ops.MOD)
_BITS: Final = (Ops.AND, Ops.OR, Ops.XOR)
_EXTREMA: Final = (Ops.MAX, Ops.MIN)
_SHIFTS: Final = (Ops.SHL, Ops.SHR)
_COMPARISONS: Final = (Ops.CMPLT, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE)


class Pool:
    """One instance's leaves and constants: few, reused, and derived from one another.

    `dtypes` are those that leaves and comparisons may have.
    """

    def __init__(self, rng: random.Random, among: Sequence[DType], leaves: int = 2) -> None:
        self.rng, self.among, self.most = rng, tuple(among), leaves
        self.leaves: dict[DType, list[UOp]] = {}
        self.numbers: list[int] = []
        self.made: dict[DType, list[UOp]] = {}
        self.count = 0

    def number(self) -> int:
        """An integer: small, or related to one that is in use: products, quotients, +-1."""
        rng = self.rng
        if self.numbers and rng.random() < 0.6:
            a = rng.choice(self.numbers)
            b = rng.choice(self.numbers)
            kind = rng.randrange(8)
            value = (
                a, a * b, a // b if b else a, a + b, a - b, -a, a + 1, a - 1
            )[kind]  # fmt: skip
            if rng.random() < 0.2:
                value += rng.choice((-1, 1))
            if abs(value) > 1 << 40:
                value = a
        else:
            value = rng.choice(SMALL)
        self.numbers.append(value)
        return value

    def constant(self, dtype: DType) -> UOp:
        """A constant of the dtype; now and then an edge of it."""
        rng = self.rng
        if dtype.is_bool:
            return UOp.const(dtype, rng.random() < 0.5)
        if dtype.is_float:
            return UOp.const(dtype, rng.choice(FLOAT_EDGES))
        if not dtype.is_index and rng.random() < 0.15:
            edge = rng.choice((dtype.min, dtype.max, dtype.max - 1, 1 << (dtype.bits - 2)))
            return UOp.const(dtype, int(edge))
        if dtype.is_index and rng.random() < 0.01:
            return UOp.const(dtype, 5000)  # as a shift count, more than can be folded
        return UOp.const(dtype, self.number())

    def leaf(self, dtype: DType) -> UOp:
        """A variable or range of the dtype: an old one, or a new one while there is room."""
        known = self.leaves.setdefault(dtype, [])
        if known and (len(known) >= self.most or self.rng.random() < 0.4):
            return self.rng.choice(known)
        known.append(self._new_leaf(dtype))
        return known[-1]

    def _new_leaf(self, dtype: DType) -> UOp:
        rng, name = self.rng, f"v{self.count}"
        self.count += 1
        if dtype.is_bool:
            return UOp.variable(name, False, True, dtype)
        if dtype.is_float:
            return UOp.variable(name, float("-inf"), float("inf"), dtype)
        size = max(1, min(abs(self.number()) + rng.choice((0, 0, 0, 1, -1)), 40))
        if dtype.is_index:
            kind = rng.random()
            if kind < 0.5:
                return UOp.range(size, name if kind < 0.4 else self.count)
            if kind < 0.6:
                low = rng.choice((0, -1, -200, 100))
                return UOp.variable(name, low, low + rng.choice((130, 256, 300, 40000)))
            if kind < 0.63:
                return UOp.variable(name, rng.choice((0, -(1 << 33))), 1 << 33)
            low = rng.choice((0, 0, -size, -3, 1, 2))
            return UOp.variable(name, low, low + rng.choice((1, size, size, 7)))
        low, high = int(dtype.min), int(dtype.max)
        kind = rng.randrange(7)
        if kind == 1:
            low, high = 0, min(size, high)
        elif kind == 2:
            low, high = max(-size, low), min(size, high)
        elif kind == 3:
            low, high = (high - size if high - size > low else low), high
        elif kind == 4:
            low, high = 1, min(size + 1, high)
        elif kind == 5 and dtype.is_signed:
            high = -1
        elif kind == 6:
            low = max(0, low)
        return UOp.variable(name, min(low, high), max(low, high), dtype)

    def expression(self, dtype: DType, depth: int) -> UOp:
        """A random expression; now and then one that was made before."""
        rng = self.rng
        old = self.made.setdefault(dtype, [])
        if old and rng.random() < 0.25:
            return rng.choice(old)
        made = self._expression(dtype, depth)
        if made.op is not Ops.CONST:
            old.append(made)
        return made

    def _expression(self, dtype: DType, depth: int) -> UOp:
        rng = self.rng
        if depth <= 0:
            return self.constant(dtype) if rng.random() < 0.2 else self.leaf(dtype)
        if rng.random() < 0.1:
            return self.leaf(dtype)
        if dtype.is_bool:
            return self._truth(depth)
        if dtype.is_float:
            return self._float(dtype, depth)
        return self._integer(dtype, depth)

    def _operand(self, dtype: DType, depth: int, constant: float) -> UOp:
        if self.rng.random() < constant:
            return self.constant(dtype)
        return self.expression(dtype, depth - 1)

    def _flat(self, dtype: DType) -> UOp:
        """A place in an array of mixed radices: what index arithmetic is mostly made of."""
        rng = self.rng
        sizes = [rng.choice((2, 2, 3, 4, 5, 6)) for _ in range(rng.choice((2, 2, 3)))]
        made: UOp | None = None
        stride = 1
        known = self.leaves.setdefault(dtype, [])
        for size in sizes:
            name = f"v{self.count}"
            self.count += 1
            if dtype.is_index and rng.random() < 0.7:
                leaf = UOp.range(size, name)
            else:
                leaf = UOp.variable(name, 0, min(size - 1, int(min(dtype.max, 99))), dtype)
            if len(known) < self.most:
                known.append(leaf)
            if rng.random() < 0.15:
                leaf = size - 1 - leaf
            part = leaf * stride if stride > 1 else leaf
            made = part if made is None else part + made
            self.numbers.append(stride)
            stride *= size
        assert made is not None
        self.numbers += [stride, sizes[0] * sizes[1], sizes[-1]]
        return made + rng.choice((0, 0, 1, stride)) if rng.random() < 0.3 else made

    def _parts(self, dtype: DType, depth: int) -> UOp:
        """Quotient and remainder of one division, scaled so that they belong together."""
        rng = self.rng
        x = self.expression(dtype, depth - 1)
        n, m, k = rng.choice((2, 3, 4, 5)), rng.choice((2, 3, 4)), rng.choice((1, 1, 1, 2, -1))
        kind = rng.randrange(4)
        if kind == 0:
            return x % n * k + x // n * (n * k)
        if kind == 1:
            return x // n % m * (n * k) + x % n * k
        if kind == 2:
            return x // m % n * k + x // (m * n) * (n * k)
        return x * k + x // n * (-n * k)

    def _integer(self, dtype: DType, depth: int) -> UOp:
        rng, kind = self.rng, self.rng.random()
        special = rng.random()
        if special < 0.12:
            return self._flat(dtype)
        if special < 0.17:
            return self._parts(dtype, depth)
        first = self.expression(dtype, depth - 1)
        if kind < 0.45:
            op = rng.choice(_ARITHMETIC)
            constant = 0.8 if op is Ops.MUL and rng.random() < 0.9 else 0.3
            return first.alu(op, self._operand(dtype, depth, constant))
        if kind < 0.75:
            return first.alu(rng.choice(_DIVISION), self._operand(dtype, depth, 0.85))
        if kind < 0.81:
            return first.alu(rng.choice(_EXTREMA), self._operand(dtype, depth, 0.4))
        if kind < 0.86 and not dtype.is_index:
            return first.alu(rng.choice(_BITS), self._operand(dtype, depth, 0.7))
        if kind < 0.90:
            if dtype.is_index:
                return first.alu(rng.choice(_SHIFTS), rng.choice((0, 1, 2, 3, -1)))
            count = rng.choice((0, 1, 2, 3, dtype.bits - 1, dtype.bits, -1, dtype.bits + 1))
            return first.alu(rng.choice(_SHIFTS), count)
        if kind < 0.95:
            condition = self.expression(dtypes.bool, depth - 1)
            return condition.where(first, self._operand(dtype, depth, 0.4))
        source = rng.choice([*self.among, dtypes.bool])
        if source.is_float and dtype.is_index:
            source = dtypes.bool
        if source is dtype:
            return first
        return self.expression(source, depth - 1).cast(dtype)

    def _clause(self) -> UOp:
        """A leaf below or above a constant: what conditions on indices are made of."""
        dtype = self.rng.choice(self.among)
        leaf, limit = self.leaf(dtype), self.constant(dtype)
        if dtype.is_int and self.rng.random() < 0.2:
            leaf = leaf // self.constant(dtype)
        return leaf < limit if self.rng.random() < 0.5 else limit < leaf

    def _truth(self, depth: int) -> UOp:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.2:
            clause = self._clause()
            if kind < 0.1:
                return clause
            return clause.alu(rng.choice((Ops.AND, Ops.OR)), self._truth(depth - 1))
        if kind < 0.55:
            dtype = rng.choice(self.among)
            op = rng.choice(_COMPARISONS)
            a, b = self.expression(dtype, depth - 1), self._operand(dtype, depth, 0.6)
            return (b if rng.random() < 0.3 else a).alu(op, a if rng.random() < 0.3 else b)
        if kind < 0.85:
            first = self.expression(dtypes.bool, depth - 1)
            return first.alu(rng.choice(_BITS), self.expression(dtypes.bool, depth - 1))
        if kind < 0.93:
            return ~self.expression(dtypes.bool, depth - 1)
        condition = self.expression(dtypes.bool, depth - 1)
        return condition.where(
            self.expression(dtypes.bool, depth - 1), self.expression(dtypes.bool, depth - 1)
        )

    def _float(self, dtype: DType, depth: int) -> UOp:
        rng, kind = self.rng, self.rng.random()
        first = self.expression(dtype, depth - 1)
        if kind < 0.6:
            op = rng.choice((Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.MIN))
            return first.alu(op, self._operand(dtype, depth, 0.45))
        if kind < 0.72:
            return first * -1.0
        if kind < 0.8:
            return first.trunc() if rng.random() < 0.7 else first.sqrt()
        if kind < 0.9:
            condition = self.expression(dtypes.bool, depth - 1)
            return condition.where(first, self._operand(dtype, depth, 0.4))
        source = rng.choice([d for d in (*self.among, dtypes.bool) if not d.is_index])
        return first if source is dtype else self.expression(source, depth - 1).cast(dtype)


def columns(
    leaves: Sequence[UOp], rng: random.Random, most: int, samples: int
) -> tuple[list[np.ndarray[Any, Any]], bool]:
    """A column of values per leaf: all combinations if they are at most `most` (each leaf along
    an axis of its own), else samples, `samples` at most."""
    if len(leaves) == 1 and leaves[0].dtype in (dtypes.float16, dtypes.bfloat16):
        return [all_of_16_bits(leaves[0].dtype)], True
    total = 1
    for n in leaves:
        total *= _count(n)
        if total > most:
            return _samples(leaves, rng, min(most, samples)), False
    made = []
    for axis, n in enumerate(leaves):
        form = held(n.dtype)
        values = np.arange(_count(n)).astype(form) + np.asarray(int(n.vmin), form)  # wraps
        made.append(values.reshape([-1 if k == axis else 1 for k in range(len(leaves))]))
    return made, True


@lru_cache(2)
def all_of_16_bits(dtype: DType) -> np.ndarray[Any, Any]:
    """Every value of float16 or bfloat16."""
    patterns = np.arange(1 << 16, dtype=np.uint32)
    if dtype is dtypes.float16:
        return patterns.astype(np.uint16).view(np.float16).astype(held(dtype))
    with np.errstate(invalid="ignore"):
        return (patterns << 16).view(np.float32).astype(held(dtype))


def _samples(leaves: Sequence[UOp], rng: random.Random, most: int) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(rng.getrandbits(64))
    made: list[np.ndarray[Any, Any]] = []
    for n in leaves:
        form = held(n.dtype)
        if n.dtype.is_float:
            edges = np.array([n.dtype.const(v) for v in FLOAT_EDGES], form)
            plain = draw.uniform(-1, 1, most) * 2.0 ** draw.integers(-30, 30, most)
            plain = np.where(draw.random(most) < 0.4, np.rint(draw.uniform(-9, 9, most)), plain)
            plain = rounded(n.dtype, plain)
        else:
            low, high = int(n.vmin), int(n.vmax)
            inside = {low, high, low + 1, high - 1, 0, 1, -1}
            edges = np.array(sorted(v for v in inside if low <= v <= high), form)
            plain = draw.integers(low, high, most, dtype=form, endpoint=True)
        chosen = edges[draw.integers(0, len(edges), most)]
        made.append(np.where(draw.random(most) < 0.35, chosen, plain))
    return made


def assignments(leaves: Sequence[UOp], rng: random.Random, most: int) -> list[tuple[Any, ...]]:
    """Sampled values for the leaves, of any width, edges among them."""
    draw: list[Callable[[], Any]] = [_drawer(n, rng) for n in leaves]
    return [tuple([d() for d in draw]) for _ in range(most if leaves else 1)]


def _count(n: UOp) -> int:
    return 1 << 30 if n.dtype.is_float else int(n.vmax) - int(n.vmin) + 1


def _drawer(n: UOp, rng: random.Random) -> Callable[[], Any]:
    if n.dtype.is_float:
        dtype = n.dtype

        def draw_float() -> float:
            kind = rng.random()
            if kind < 0.35:
                return float(dtype.const(rng.choice(FLOAT_EDGES)))
            if kind < 0.6:
                return float(dtype.const(rng.randint(-8, 8)))
            return float(dtype.const(rng.uniform(-1, 1) * 2.0 ** rng.randint(-30, 30)))

        return draw_float
    low, high = int(n.vmin), int(n.vmax)
    edges = sorted({low, high, min(low + 1, high), max(high - 1, low), min(max(0, low), high)})

    def draw() -> int:
        return rng.choice(edges) if rng.random() < 0.4 else rng.randint(low, high)

    return draw
