"""Random array programs, and what an array graph is worth by NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from random import Random

import numpy as np

from opgraft.api import Ops, UOp
from opgraft_tensor import Tensor

_UFUNCS = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.XOR: np.bitwise_xor,
    Ops.CMPLT: np.less,
    Ops.EXP: np.exp,
}
_REDUCTIONS = {Ops.ADD: np.add, Ops.MAX: np.maximum}


def value_of(node: UOp, inputs: Mapping[int, np.ndarray]) -> np.ndarray:
    """The value of a numbered graph, in the dtype of its inputs."""
    done: dict[UOp, np.ndarray] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in node.toposort():
            done[n] = _value(n, [done[s] for s in n.src], inputs)
    return done[node]


def _value(n: UOp, of: list[np.ndarray], inputs: Mapping[int, np.ndarray]) -> np.ndarray:
    op, arg = n.op, n.arg
    if op is Ops.CONST:
        kind = bool if n.dtype.is_bool else np.int32 if n.dtype.is_int else np.float64
        return np.array(arg, kind)
    if op is Ops.BUFFER:
        return inputs[arg.number]
    if op is Ops.ARANGE:
        size, axis = arg
        return np.broadcast_to(
            np.arange(size[axis]).reshape([-1 if i == axis else 1 for i in range(len(size))]), size
        )
    if op is Ops.RESHAPE:
        return of[0].reshape(arg)
    if op is Ops.PERMUTE:
        return of[0].transpose(arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(of[0], arg)
    if op is Ops.PAD:
        return np.pad(of[0], arg)
    if op is Ops.REDUCE_AXIS:
        how = _REDUCTIONS[arg[0]]
        return np.asarray(how.reduce(of[0], axis=arg[1], dtype=of[0].dtype))
    if op is Ops.WHERE:
        return np.where(*of)
    if op is Ops.CAST:
        return of[0]
    return np.asarray(_UFUNCS[op](*of))


SIZES = (3, 4, 6, 9)


class Programs:
    """Matrices multiplied, added, scaled, transposed, summed, joined, and put into powers."""

    def __init__(self, seed: int, dtype: type = np.float32) -> None:
        self.rng = Random(seed)
        self.dtype = dtype
        self.numbers = np.random.default_rng(seed)
        self.inputs: dict[tuple[int, int], Tensor] = {}

    def leaf(self, m: int, n: int) -> Tensor:
        if (m, n) not in self.inputs or self.rng.random() < 0.3:
            if self.dtype is np.float32:
                made = self.numbers.uniform(-1, 1, (m, n)).astype(np.float32)
            else:
                made = self.numbers.integers(-(2**31), 2**31, (m, n)).astype(np.int32)
            self.inputs[m, n] = Tensor(made)
        return self.inputs[m, n]

    def matrix(self, m: int, n: int, depth: int) -> Tensor:
        if depth == 0:
            return self.leaf(m, n)
        made = self.rng.choice(
            [self.product, self.product, self.product, self.total, self.turned, self.scaled]
            + [self.joined, self.rows]
            + ([self.power] if self.dtype is np.float32 else [])
        )(m, n, depth - 1)
        if depth > 1 and self.rng.random() < 0.3:
            self.shared.append(made)
        return made

    def product(self, m: int, n: int, depth: int) -> Tensor:
        k = self.rng.choice(SIZES)
        return self.matrix(m, k, depth) @ self.matrix(k, n, depth)

    def total(self, m: int, n: int, depth: int) -> Tensor:
        a, b = self.matrix(m, n, depth), self.matrix(m, n, depth)
        return a - b if self.rng.random() < 0.3 else a + b

    def turned(self, m: int, n: int, depth: int) -> Tensor:
        return self.matrix(n, m, depth).transpose(0, 1)

    def scaled(self, m: int, n: int, depth: int) -> Tensor:
        by = self.rng.choice(
            [lambda: 3, lambda: self.leaf(m, 1), lambda: self.leaf(1, n), lambda: self.leaf(m, n)]
        )()
        return self.matrix(m, n, depth) * by

    def rows(self, m: int, n: int, depth: int) -> Tensor:
        """What is the same in every row, or column, added."""
        if self.rng.random() < 0.5:
            return self.matrix(m, n, depth) + self.matrix(m, 4, 0).sum(1, keepdims=True)
        return self.matrix(m, n, depth).sum(0, keepdims=True) + self.leaf(m, n)

    def joined(self, m: int, n: int, depth: int) -> Tensor:
        if m < 6:
            return self.product(m, n, depth)
        return self.matrix(m - 3, n, depth).cat(self.matrix(3, n, depth), axis=0)

    def power(self, m: int, n: int, depth: int) -> Tensor:
        return ((self.leaf(m, 1) + self.leaf(1, n)) * 0.5).exp() * self.matrix(m, n, depth)

    def outputs(self) -> list[Tensor]:
        self.shared: list[Tensor] = []
        rng = self.rng
        made = [
            self.matrix(rng.choice(SIZES), rng.choice(SIZES), 3) for _ in range(rng.choice((1, 2)))
        ]
        return [*made, *self.shared[:2]]
