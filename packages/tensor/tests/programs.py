"""The twenty programs whose kernels are counted, each written once against a backend.

A backend has `rand(*shape)`, and functions named as below; its arrays have operators, `exp`,
`log`, `sqrt`, `reshape`. `Nodes` is the backend of the planner alone: array nodes without memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opgraft.dtype import dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.autograd import gradients
from opgraft_tensor.functions import LN_2, LOG2_E
from opgraft_tensor.storage import Storage, buffer_node
from tested import COMPILED


class Node:
    """A float32 array node with operators."""

    __array_ufunc__ = None

    def __init__(self, uop: UOp) -> None:
        self.uop = uop

    @property
    def shape(self) -> tuple[int, ...]:
        return graph.shape(self.uop)

    def _of(self, other: Any) -> UOp:
        return other.uop if isinstance(other, Node) else graph.full((), self.uop.dtype, other)

    def _do(self, op: Ops, *others: Any) -> Node:
        return Node(graph.elementwise(op, self.uop, *map(self._of, others)))

    def __add__(self, other: Any) -> Node:
        return self._do(Ops.ADD, other)

    def __mul__(self, other: Any) -> Node:
        return self._do(Ops.MUL, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Node:
        return self * -1.0

    def __sub__(self, other: Any) -> Node:
        return self + (-other)

    def __truediv__(self, other: Any) -> Node:
        return self._do(Ops.FDIV, other)

    def __matmul__(self, other: Node) -> Node:
        *batch, rows, inner = self.shape
        columns = other.shape[-1]
        left = self.reshape(*batch, rows, 1, inner)
        right = other.tr().reshape(*other.shape[:-2], 1, columns, inner)
        return (left * right).reduce(Ops.ADD, (left.ndim - 1,), False)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def maximum(self, other: Any) -> Node:
        return self._do(Ops.MAX, other)

    def exp(self) -> Node:
        return Node(graph.elementwise(Ops.EXP2, (self * LOG2_E).uop))

    def log(self) -> Node:
        return Node(graph.elementwise(Ops.LOG2, self.uop)) * LN_2

    def sqrt(self) -> Node:
        return self._do(Ops.SQRT)

    def reshape(self, *size: int) -> Node:
        return Node(graph.reshape(self.uop, size))

    def permute(self, *axes: int) -> Node:
        return Node(graph.permute(self.uop, axes))

    def tr(self) -> Node:
        n = self.ndim
        return self.permute(*range(n - 2), n - 1, n - 2)

    def flip(self, axis: int) -> Node:
        return Node(graph.flip(self.uop, (axis,)))

    def pad(self, widths: tuple[tuple[int, int], ...]) -> Node:
        return Node(graph.pad(self.uop, widths))

    def window(self, axis: int, size: int) -> Node:
        return Node(graph.window(self.uop, axis, size))

    def __getitem__(self, key: Any) -> Node:
        key = key if isinstance(key, tuple) else (key,)
        region = []
        dropped = []
        for i, n in enumerate(self.shape):
            k = key[i] if i < len(key) else slice(None)
            if isinstance(k, int):
                region.append((k % n, 1, 1))
                dropped.append(i)
            else:
                begin, end, step = k.indices(n)
                region.append((begin, len(range(begin, end, step)), step))
        made = Node(graph.slice_(self.uop, tuple(region)))
        left = [n for i, n in enumerate(made.shape) if i not in dropped]
        return made.reshape(*left) if dropped else made

    def reduce(self, op: Ops, axes: Sequence[int], keep: bool) -> Node:
        axes = tuple(sorted(a % self.ndim for a in axes))
        made = Node(graph.reduce_axis(self.uop, op, axes))
        if keep:
            return made.reshape(*[1 if i in axes else n for i, n in enumerate(self.shape)])
        return made


class Nodes:
    """The backend of array nodes."""

    @staticmethod
    def n(extent: int) -> int:
        """An extent of a program, as it stands."""
        return extent

    @staticmethod
    def rand(*size: int) -> Node:
        return Node(buffer_node(Storage(size, dtypes.float32, COMPILED)))

    @staticmethod
    def sum(x: Node, axes: Sequence[int], keep: bool = False) -> Node:
        return x.reduce(Ops.ADD, axes, keep)

    @staticmethod
    def max(x: Node, axes: Sequence[int], keep: bool = False) -> Node:
        return x.reduce(Ops.MAX, axes, keep)

    @staticmethod
    def cumsum(x: Node, axis: int) -> Node:
        return Node(graph.scan_axis(x.uop, Ops.ADD, axis))

    @staticmethod
    def tr(x: Node) -> Node:
        return x.tr()

    @staticmethod
    def perm(x: Node, axes: tuple[int, ...]) -> Node:
        return x.permute(*axes)

    @staticmethod
    def relu(x: Node) -> Node:
        return x.maximum(0.0)

    @staticmethod
    def softmax(x: Node) -> Node:
        e = (x - Nodes.stop(Nodes.max(x, (-1,), True))).exp()
        return e / Nodes.sum(e, (-1,), True)

    @staticmethod
    def stop(x: Node) -> Node:
        """No gradient goes through here: that of a maximum cancels in a softmax."""
        return Node(graph.mark(x.uop, "detach"))

    @staticmethod
    def ln(x: Node) -> Node:
        n = x.shape[-1]
        d = x - Nodes.sum(x, (-1,), True) * (1 / n)
        return d / (Nodes.sum(d * d, (-1,), True) * (1 / n) + 1e-5).sqrt()

    @staticmethod
    def conv(x: Node, w: Node, pad: int) -> Node:
        n, ci, _, _ = x.shape
        co, _, kh, kw = w.shape
        x = x.pad(((0, 0), (0, 0), (pad, pad), (pad, pad))).window(2, kh).window(3, kw)
        oy, ox = x.shape[2:4]
        x = x.permute(0, 2, 3, 1, 4, 5).reshape(n, 1, oy, ox, ci, kh, kw)
        w = w.reshape(1, co, 1, 1, ci, kh, kw)
        return Nodes.sum(x * w, (4, 5, 6))

    @staticmethod
    def pool2(x: Node) -> Node:
        n, c, h, w = x.shape
        return Nodes.max(x.reshape(n, c, h // 2, 2, w // 2, 2), (3, 5))

    @staticmethod
    def grad(loss: Node, wanted: Sequence[Node]) -> list[Node]:
        one = graph.full(loss.shape, loss.uop.dtype, 1.0)
        found = gradients([(loss.uop, one)], [w.uop for w in wanted])
        return [Node(found[w.uop]) for w in wanted]


_SMALL = {4: 2, 8: 3, 16: 6, 28: 8, 32: 5, 56: 8, 64: 8, 128: 12, 256: 16}


class SmallNodes(Nodes):
    """The same programs on small arrays with values."""

    numbers = np.random.default_rng(7)

    @staticmethod
    def n(extent: int) -> int:
        return _SMALL.get(extent, 20 if extent > 600 else 14)

    @staticmethod
    def rand(*size: int) -> Node:
        values = (SmallNodes.numbers.random(size) + 0.1).astype(np.float32)
        return Node(buffer_node(Storage(size, dtypes.float32, COMPILED, values)))


# ---- the programs


def softmax(B: Any) -> list[Any]:
    return [B.softmax(B.rand(B.n(4096), B.n(1024)))]


def layernorm(B: Any) -> list[Any]:
    x, w, b = B.rand(B.n(4096), B.n(1024)), B.rand(B.n(1024)), B.rand(B.n(1024))
    return [B.ln(x) * w + b]


def product(B: Any) -> Any:
    return B.rand(B.n(512), B.n(512)) @ B.rand(B.n(512), B.n(512))


def mlp_layer(B: Any) -> list[Any]:
    return [B.relu(product(B) + B.rand(B.n(512)))]


def mm_ln(B: Any) -> list[Any]:
    return [B.ln(product(B) + B.rand(B.n(512)))]


def conv(B: Any) -> list[Any]:
    x = B.conv(B.rand(B.n(8), B.n(64), B.n(56), B.n(56)), B.rand(B.n(64), B.n(64), 3, 3), 1)
    return [B.relu(x + B.rand(B.n(64)).reshape(1, B.n(64), 1, 1))]


def conv_relu_conv(B: Any) -> list[Any]:
    h = B.relu(B.conv(B.rand(2, B.n(16), B.n(28), B.n(28)), B.rand(B.n(16), B.n(16), 3, 3), 1))
    return [B.conv(h, B.rand(B.n(16), B.n(16), 3, 3), 1)]


def attention(B: Any) -> list[Any]:
    q, k, v = (
        B.rand(2, 2, B.n(512), B.n(64)) if B.n(4) == 2 else B.rand(4, 8, 512, 64) for _ in range(3)
    )
    return [B.softmax((q @ B.tr(k)) * 0.125) @ v]


def cumsum(B: Any) -> list[Any]:
    return [B.cumsum(B.rand(B.n(1000), B.n(1000)), 1) * 2.0 + 1.0]


def diamond(B: Any) -> list[Any]:
    d = (B.rand(B.n(1024), B.n(1024)) + 1.0).exp()
    return [d * 2.0, B.sum(d, (1,))]


def two_consumers(B: Any) -> list[Any]:
    x = B.rand(B.n(1024), B.n(1024))
    r = B.sum(x, (1,), True)
    return [x / r, r * r]


def stats3(B: Any) -> list[Any]:
    x = B.rand(B.n(1024), B.n(1024))
    return [B.sum(x, (1,)), B.max(x, (1,)), x * 2.0]


def bnorm(B: Any) -> list[Any]:
    x = B.rand(B.n(32), B.n(16), B.n(16), B.n(16))
    m = B.sum(x, (0, 2, 3), True) * (1 / 8192)
    d = x - m
    v = B.sum(d * d, (0, 2, 3), True) * (1 / 8192)
    return [B.relu(d / (v + 1e-5).sqrt()), m, v]


def loss_of(B: Any, z: Any, y: Any) -> Any:
    m = B.stop(B.max(z, (1,), True))
    loss = z - m - B.sum((z - m).exp(), (1,), True).log()
    return B.sum(loss * y, (0, 1)) * (-1.0 / z.shape[0])


def xent(B: Any) -> list[Any]:
    return [loss_of(B, B.rand(B.n(128), 10), B.rand(B.n(128), 10))]


def mlp_train(B: Any) -> list[Any]:
    x, y = B.rand(B.n(128), B.n(784)), B.rand(B.n(128), 10)
    P = [B.rand(B.n(784), B.n(128)), B.rand(B.n(128)), B.rand(B.n(128), 10), B.rand(10)]
    loss = loss_of(B, B.relu(x @ P[0] + P[1]) @ P[2] + P[3], y)
    return [loss] + [p - g * 0.1 for p, g in zip(P, B.grad(loss, P))]


def conv_train(B: Any) -> list[Any]:
    n, s, c, e = B.n(16), B.n(28), B.n(8), B.n(16)
    x, y = B.rand(n, 1, s, s), B.rand(n, 10)
    flat = e * (s // 4) ** 2
    P = [B.rand(c, 1, 3, 3), B.rand(c), B.rand(e, c, 3, 3), B.rand(e)]
    P += [B.rand(flat, 10), B.rand(10)]
    h = B.pool2(B.relu(B.conv(x, P[0], 1) + P[1].reshape(1, c, 1, 1)))
    h = B.pool2(B.relu(B.conv(h, P[2], 1) + P[3].reshape(1, e, 1, 1)))
    loss = loss_of(B, h.reshape(n, flat) @ P[4] + P[5], y)
    return [loss] + [p - g * 0.1 for p, g in zip(P, B.grad(loss, P))]


def _block(B: Any, x: Any, P: list[Any], n: int, t: int, d: int, h: int) -> Any:
    a = B.ln(x) * P[0] + P[1]

    def heads(z: Any) -> Any:
        return B.perm(z.reshape(n, t, h, d // h), (0, 2, 1, 3))

    q, k, v = heads(a @ P[2]), heads(a @ P[3]), heads(a @ P[4])
    o = B.softmax((q @ B.tr(k)) * 0.125) @ v
    x = x + B.perm(o, (0, 2, 1, 3)).reshape(n, t, d) @ P[5]
    a = B.ln(x) * P[6] + P[7]
    return x + B.relu(a @ P[8] + P[9]) @ P[10] + P[11]


def _parameters(B: Any, d: int) -> list[Any]:
    P = [B.rand(d), B.rand(d), *[B.rand(d, d) for _ in range(4)], B.rand(d), B.rand(d)]
    return P + [B.rand(d, 4 * d), B.rand(4 * d), B.rand(4 * d, d), B.rand(d)]


def block_fwd(B: Any) -> list[Any]:
    n, t, d = B.n(4), B.n(128), B.n(256)
    return [_block(B, B.rand(n, t, d), _parameters(B, d), n, t, d, 4)]


def block_train(B: Any) -> list[Any]:
    n, t, d = B.n(4), B.n(128), B.n(256)
    x = B.rand(n, t, d)
    P = _parameters(B, d)
    o = _block(B, x, P, n, t, d, 4)
    loss = B.sum(o * o, (0, 1, 2)) * (1 / 131072)
    return [loss, *B.grad(loss, P)]


def adam(B: Any) -> list[Any]:
    o = []
    t = B.rand(1)
    for i in range(20):
        s = (B.n(64) + 8 * i, B.n(128))
        p, g, m, v = (B.rand(*s) for _ in range(4))
        m2 = m * 0.9 + g * 0.1
        v2 = v * 0.999 + g * g * 0.001
        o += [p - (m2 * t) / ((v2 * t).sqrt() + 1e-8) * 0.001, m2, v2]
    return o


def stencil(B: Any) -> list[Any]:
    x = B.rand(B.n(4096))
    for _ in range(12):
        x = (x[1:] + x[:-1]) * 0.5
    return [x]


def double24(B: Any) -> list[Any]:
    x = B.rand(B.n(4096))
    for _ in range(24):
        x = x + x
    return [x]


ALL: list[Callable[[Any], list[Any]]] = [
    softmax, layernorm, mlp_layer, mm_ln, conv, conv_relu_conv, attention, cumsum, diamond,
    two_consumers, stats3, bnorm, xent, mlp_train, conv_train, block_fwd, block_train, adam,
    stencil, double24,
]  # fmt: skip
