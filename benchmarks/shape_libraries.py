"""One face for each library that `shapes.py` times: the same names, each library's own words.

A library that is not installed raises ImportError when it is opened; one that has no such
operation, or no such dtype, raises Unsupported.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Function = Callable[..., Array]


class Unsupported(Exception):
    """The library has no such operation, or not for these arrays."""


class Library(ABC):
    """Arrays of one library. What is not defined here is an operator or method that all share."""

    name = ""

    @abstractmethod
    def put(self, values: np.ndarray[Any, Any], dtype: str) -> Array:
        """Values as an array of this library."""

    @abstractmethod
    def get(self, result: Array) -> np.ndarray[Any, Any]:
        """A result as float64, or as integers."""

    def compiled(self, function: Function) -> Function:
        """The function as it is best called again and again."""
        return function

    def wait(self, result: Array) -> None:
        """Until a result is there: at once, of a library that does not run ahead."""
        del result

    # ---- operations; NumPy's words, which JAX shares

    np: Any = np

    def copy(self, a: Array) -> Array:
        """The same elements in memory of their own, in order."""
        return self.np.ascontiguousarray(a)

    def permute(self, a: Array, *axes: int) -> Array:
        return self.np.transpose(a, axes)

    def sum(self, a: Array, *axes: int) -> Array:
        return self.np.sum(a, axis=axes or None)

    def max(self, a: Array, *axes: int) -> Array:
        return self.np.max(a, axis=axes or None)

    def mean(self, a: Array, *axes: int) -> Array:
        return self.np.mean(a, axis=axes or None)

    def any(self, a: Array, axis: int) -> Array:
        return self.np.any(a, axis=axis)

    def cumsum(self, a: Array, axis: int) -> Array:
        return self.np.cumsum(a, axis=axis)

    def exp(self, a: Array) -> Array:
        return self.np.exp(a)

    def log(self, a: Array) -> Array:
        return self.np.log(a)

    def sin(self, a: Array) -> Array:
        return self.np.sin(a)

    def tanh(self, a: Array) -> Array:
        return self.np.tanh(a)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        return self.np.where(condition, yes, no)

    def pad(self, a: Array, *sides: tuple[int, int]) -> Array:
        return self.np.pad(a, sides)

    def cat(self, axis: int, *arrays: Array) -> Array:
        return self.np.concatenate(arrays, axis=axis)

    def take(self, table: Array, indices: Array) -> Array:
        return table[indices]

    def softmax(self, a: Array, axis: int = -1) -> Array:
        e = self.np.exp(a - self.np.max(a, axis=axis, keepdims=True))
        return e / self.np.sum(e, axis=axis, keepdims=True)

    def layernorm(self, a: Array, scale: Array, shift: Array) -> Array:
        centred = a - self.np.mean(a, axis=-1, keepdims=True)
        variance = self.np.mean(centred * centred, axis=-1, keepdims=True)
        return centred / self.np.sqrt(variance + 1e-5) * scale + shift

    def matmul(self, a: Array, b: Array) -> Array:
        return a @ b

    def integer_matmul(self, a: Array, b: Array) -> Array:
        return a.astype(np.int32) @ b.astype(np.int32)

    def transposed(self, a: Array) -> Array:
        """The last two axes exchanged, as a view."""
        return self.np.swapaxes(a, -1, -2)

    def conv2d(
        self,
        x: Array,
        w: Array,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
    ) -> Array:
        raise Unsupported("conv2d")

    def attention(self, q: Array, k: Array, v: Array, causal: bool = False) -> Array:
        scores = (q @ self.transposed(k)) * (q.shape[-1] ** -0.5)
        if causal:
            rows, columns = scores.shape[-2:]
            seen = self.np.tril(self.np.ones((rows, columns), dtype=bool), columns - rows)
            scores = self.np.where(seen, scores, -np.inf)
        return self.softmax(scores) @ v


class Numpy(Library):
    name = "numpy"

    def put(self, values: np.ndarray[Any, Any], dtype: str) -> Array:
        if dtype == "bfloat16":
            raise Unsupported(dtype)
        return values.astype(dtype)

    def get(self, result: Array) -> np.ndarray[Any, Any]:
        return _as_checked(np.asarray(result))


class Reference(Numpy):
    """NumPy in float64: what results are compared with."""

    name = "reference"

    def put(self, values: np.ndarray[Any, Any], dtype: str) -> Array:
        if dtype == "bfloat16":
            import ml_dtypes  # late: this dtype alone needs it

            return values.astype(ml_dtypes.bfloat16).astype(np.float64)
        rounded = values.astype(dtype)
        return rounded.astype(np.float64) if "float" in dtype else rounded

    def conv2d(
        self,
        x: Array,
        w: Array,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
    ) -> Array:
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        count, high, wide = w.shape[0], w.shape[2], w.shape[3]
        reach = ((high - 1) * dilation + 1, (wide - 1) * dilation + 1)
        windows = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
        windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
        parts = []
        each, outs = x.shape[1] // groups, count // groups
        for g in range(groups):
            own, weights = windows[:, g * each : (g + 1) * each], w[g * outs : (g + 1) * outs]
            parts.append(np.einsum("ncyxij,ocij->noyx", own, weights, optimize=True))
        return np.concatenate(parts, axis=1)


class Methods(Library):
    """A library whose arrays have these operations as methods, under these names."""

    def permute(self, a: Array, *axes: int) -> Array:
        return a.permute(*axes)

    def any(self, a: Array, axis: int) -> Array:
        return a.any(axis)

    def cumsum(self, a: Array, axis: int) -> Array:
        return a.cumsum(axis)

    def cat(self, axis: int, *arrays: Array) -> Array:
        return self.np.cat(arrays, axis)

    def softmax(self, a: Array, axis: int = -1) -> Array:
        return a.softmax(axis)

    def transposed(self, a: Array) -> Array:
        return a.transpose(-1, -2)


class Opgraft(Methods):
    name = "opgraft"

    def __init__(self) -> None:
        import opgraft_tensor  # late: only this process needs it

        self.np = opgraft_tensor

    def put(self, values: np.ndarray[Any, Any], dtype: str) -> Array:
        return self.np.Tensor(values).cast(dtype).realize()

    def get(self, result: Array) -> np.ndarray[Any, Any]:
        return _as_checked(np.asarray(result.numpy()))

    def compiled(self, function: Function) -> Function:
        return self.np.jit(function)  # type: ignore[no-any-return]

    def copy(self, a: Array) -> Array:
        return a.contiguous()

    def sum(self, a: Array, *axes: int) -> Array:
        return a.sum(axes or None)

    def max(self, a: Array, *axes: int) -> Array:
        return a.max(axes or None)

    def mean(self, a: Array, *axes: int) -> Array:
        return a.mean(axes or None)

    def exp(self, a: Array) -> Array:
        return a.exp()

    def log(self, a: Array) -> Array:
        return a.log()

    def sin(self, a: Array) -> Array:
        return a.sin()

    def tanh(self, a: Array) -> Array:
        return a.tanh()

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        return self.np.where(condition, yes, no)

    def pad(self, a: Array, *sides: tuple[int, int]) -> Array:
        return a.pad(sides)

    def layernorm(self, a: Array, scale: Array, shift: Array) -> Array:
        return a.layernorm(eps=1e-5) * scale + shift

    def integer_matmul(self, a: Array, b: Array) -> Array:
        return a.cast("int32") @ b.cast("int32")

    def conv2d(
        self,
        x: Array,
        w: Array,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
    ) -> Array:
        return x.conv2d(w, stride=stride, padding=padding, dilation=dilation, groups=groups)

    def attention(self, q: Array, k: Array, v: Array, causal: bool = False) -> Array:
        scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5)
        if causal:
            rows, columns = scores.shape[-2:]
            seen = self.np.Tensor.ones(rows, columns, dtype="bool").tril(columns - rows)
            scores = self.np.where(seen, scores, float("-inf"))
        return scores.softmax(-1) @ v


class Torch(Methods):
    name = "torch"

    def __init__(self) -> None:
        import torch  # late: only this process needs it

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        torch.set_grad_enabled(False)
        self.np = torch
        self.functional = torch.nn.functional

    def put(self, values: np.ndarray[Any, Any], dtype: str) -> Array:
        return self.np.from_numpy(values.copy()).to(getattr(self.np, dtype))

    def get(self, result: Array) -> np.ndarray[Any, Any]:
        if result.dtype is self.np.bfloat16:
            result = result.float()
        return _as_checked(result.numpy())

    def copy(self, a: Array) -> Array:
        return a.clone() if a.is_contiguous() else a.contiguous()

    def sum(self, a: Array, *axes: int) -> Array:
        return a.sum(axes) if axes else a.sum()

    def max(self, a: Array, *axes: int) -> Array:
        return a.amax(axes) if axes else a.amax()

    def mean(self, a: Array, *axes: int) -> Array:
        return a.mean(axes) if axes else a.mean()

    def pad(self, a: Array, *sides: tuple[int, int]) -> Array:
        return self.functional.pad(a, [n for side in reversed(sides) for n in side])

    def layernorm(self, a: Array, scale: Array, shift: Array) -> Array:
        return self.functional.layer_norm(a, a.shape[-1:], scale, shift, 1e-5)

    def integer_matmul(self, a: Array, b: Array) -> Array:
        return self.np._int_mm(a, b)

    def conv2d(
        self,
        x: Array,
        w: Array,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
    ) -> Array:
        return self.functional.conv2d(x, w, None, stride, padding, dilation, groups)

    def attention(self, q: Array, k: Array, v: Array, causal: bool = False) -> Array:
        return self.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


class Jax(Library):
    name = "jax"

    def __init__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax  # late: only this process needs it

        jax.config.update("jax_enable_x64", True)
        self.jax = jax
        self.np = jax.numpy

    def put(self, values: np.ndarray[Any, Any], dtype: str) -> Array:
        return self.np.asarray(values).astype(dtype).block_until_ready()

    def get(self, result: Array) -> np.ndarray[Any, Any]:
        if result.dtype == self.np.bfloat16:
            result = result.astype("float32")
        return _as_checked(np.asarray(result))

    def compiled(self, function: Function) -> Function:
        return self.jax.jit(function)  # type: ignore[no-any-return]

    def wait(self, result: Array) -> None:
        result.block_until_ready()

    def copy(self, a: Array) -> Array:
        return a + self.np.zeros((), a.dtype) if a.dtype != bool else a ^ False

    def integer_matmul(self, a: Array, b: Array) -> Array:
        return self.jax.lax.dot(a, b, preferred_element_type=self.np.int32)

    def conv2d(
        self,
        x: Array,
        w: Array,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
    ) -> Array:
        return self.jax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            [(padding, padding)] * 2,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
        )


def _as_checked(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    kind = np.float64 if values.dtype.kind == "f" or values.dtype.kind == "V" else np.int64
    return values.astype(kind)


LIBRARIES: dict[str, type[Library]] = {
    kind.name: kind for kind in (Opgraft, Numpy, Torch, Jax, Reference)
}
