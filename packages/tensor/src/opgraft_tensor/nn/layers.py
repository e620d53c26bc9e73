"""Layers: linear, convolutional, normalising, embedding, dropout."""

from __future__ import annotations

import math
from typing import Any

from opgraft.dtype import dtypes
from opgraft.ir.ops import Ops
from opgraft_tensor import algebra, graph, random
from opgraft_tensor.convolution import PerPlace, per_place
from opgraft_tensor.extents import is_variable
from opgraft_tensor.nn.module import Module, note_update
from opgraft_tensor.tensor import Tensor


def _uniform(size: tuple[int, ...], fan_in: int, device: str | None) -> Tensor:
    """Within 1 / sqrt(fan in) of zero (LeCun et al., Efficient BackProp, 4.6)."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return Tensor.uniform(*size, low=-bound, high=bound, device=device).requires_grad_()


class Linear(Module):
    """x @ weight.T + bias, over the last axis; weight (out, in)."""

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, device: str | None = None
    ) -> None:
        self.weight = _uniform((outputs, inputs), inputs, device)
        self.bias = _uniform((outputs,), inputs, device) if bias else None

    def forward(self, *inputs: Any) -> Tensor:
        (x,) = inputs
        result: Tensor = x @ self.weight.T
        return result if self.bias is None else result + self.bias


class Conv2d(Module):
    """`Tensor.conv2d` with a weight (out, in / groups, kh, kw) and a bias (out)."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: PerPlace,
        stride: PerPlace = 1,
        padding: PerPlace | str = 0,
        dilation: PerPlace = 1,
        groups: int = 1,
        bias: bool = True,
        device: str | None = None,
    ) -> None:
        kernel = per_place(size, 2)
        each = inputs // groups
        fan_in = each * math.prod(kernel)
        self.weight = _uniform((outputs, each, *kernel), fan_in, device)
        self.bias = _uniform((outputs,), fan_in, device) if bias else None
        self.stride, self.padding = stride, padding
        self.dilation, self.groups = dilation, groups

    def forward(self, *inputs: Any) -> Tensor:
        (x,) = inputs
        return x.conv2d(  # type: ignore[no-any-return]
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class LayerNorm(Module):
    """Each sample brought to mean 0 and variance 1 over its last axes, then scaled and moved."""

    def __init__(
        self,
        size: int | tuple[int, ...],
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
    ) -> None:
        self.size = (size,) if isinstance(size, int) else tuple(size)
        self.eps = eps
        self.weight = Tensor.ones(self.size, device=device).requires_grad_() if affine else None
        self.bias = Tensor.zeros(self.size, device=device).requires_grad_() if affine else None

    def forward(self, *inputs: Any) -> Tensor:
        (x,) = inputs
        if x.shape[-len(self.size) :] != self.size:
            raise ValueError(f"a LayerNorm of {self.size} was given shape {x.shape}")
        result: Tensor = x.layernorm(tuple(range(-len(self.size), 0)), self.eps)
        if self.weight is None or self.bias is None:
            return result
        return result * self.weight + self.bias


class BatchNorm(Module):
    """Each channel (axis 1) brought to mean 0 and variance 1 over the batch, scaled and moved.

    In training the batch's own statistics count, and the running ones move toward them by
    `momentum`; in use (`eval`) the running ones count.
    """

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        device: str | None = None,
    ) -> None:
        self.eps, self.momentum = eps, momentum
        size = (channels,)
        self.weight = Tensor.ones(size, device=device).requires_grad_() if affine else None
        self.bias = Tensor.zeros(size, device=device).requires_grad_() if affine else None
        self.running_mean = Tensor.zeros(size, device=device)
        self.running_var = Tensor.ones(size, device=device)

    def forward(self, *inputs: Any) -> Tensor:
        (x,) = inputs
        channels = self.running_mean.shape[0]
        if x.ndim < 2 or x.shape[1] != channels:
            raise ValueError(f"a BatchNorm of {channels} channels was given shape {x.shape}")
        size = (1, channels, *(1,) * (x.ndim - 2))
        axes = (0, *range(2, x.ndim))
        if self.training:
            mean = x.mean(axes, keepdims=True)
            away = x - mean
            spread = away.square().mean(axes, keepdims=True)
            self._update(mean, spread * _unbiased(x, axes))
        else:
            away = x - self.running_mean.reshape(size)
            spread = self.running_var.reshape(size)
        result: Tensor = away * (spread + self.eps).rsqrt()
        if self.weight is None or self.bias is None:
            return result
        return result * self.weight.reshape(size) + self.bias.reshape(size)

    def _update(self, mean: Tensor, spread: Tensor) -> None:
        unbiased = spread.detach()
        for running, fresh in ((self.running_mean, mean.detach()), (self.running_var, unbiased)):
            step = fresh.reshape(running.shape) - running
            running.assign(running + step * self.momentum)
            note_update(running)


def _unbiased(x: Tensor, axes: tuple[int, ...]) -> float | Tensor:
    """count / (count - 1), of the elements along some axes: Bessel's correction."""
    size = [graph.shape(x.uop)[axis] for axis in axes]
    if is_variable(size):
        count = Tensor.ones(tuple(size), device=x.device).sum()
        return count / (count - 1).maximum(1)
    whole = math.prod(size)
    return whole / max(whole - 1, 1)


class Embedding(Module):
    """Rows of a table by integer: `weight[ids]`; weight (count, width), normal at first."""

    def __init__(self, count: int, width: int, device: str | None = None) -> None:
        self.weight = Tensor.normal(count, width, device=device).requires_grad_()

    def forward(self, *inputs: Any) -> Tensor:
        (ids,) = inputs
        return self.weight[ids]


class Dropout(Module):
    """In training each value is zero with probability `rate`, the others grow by 1/(1-rate)."""

    def __init__(self, rate: float = 0.5) -> None:
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate is in 0 .. 1 (1 not included): {rate}")
        self.rate = rate

    def forward(self, *inputs: Any) -> Tensor:
        (x,) = inputs
        found: Tensor = x
        if not self.training or self.rate == 0:
            return found
        drawn = graph.cast(
            graph.elementwise(
                Ops.SHR,
                random.bits(found.shape, found.device),
                graph.full((), dtypes.uint64, 33),
            ),
            dtypes.int32,
        )
        limit = graph.full((), dtypes.int32, int(self.rate * (1 << 31)))
        dropped = algebra.less(drawn, limit)
        grown = found * (1 / (1 - self.rate))
        return found._new(algebra.choose(dropped, 0, grown.uop))
