"""Lazy arrays that compile to fused kernels: the public names."""

from __future__ import annotations

from opgraft_tensor.functional import cat, einsum, grad, stack, where
from opgraft_tensor.jit import jit
from opgraft_tensor.random import manual_seed
from opgraft_tensor.sizes import Variable
from opgraft_tensor.tensor import Tensor, realize_all

__all__ = [
    "Tensor",
    "Variable",
    "cat",
    "einsum",
    "grad",
    "jit",
    "manual_seed",
    "realize_all",
    "stack",
    "where",
]
