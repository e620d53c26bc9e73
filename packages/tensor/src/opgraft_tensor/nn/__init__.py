"""Neural networks: layers, losses, optimizers, and their states."""

from __future__ import annotations

from opgraft_tensor.nn.layers import BatchNorm, Conv2d, Dropout, Embedding, LayerNorm, Linear
from opgraft_tensor.nn.loss import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from opgraft_tensor.nn.module import Module, Sequential
from opgraft_tensor.nn.optim import SGD, Adam, AdamW, Optimizer
from opgraft_tensor.nn.state import load, save

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "BatchNorm",
    "Conv2d",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "Optimizer",
    "Sequential",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "load",
    "mse_loss",
    "save",
]
