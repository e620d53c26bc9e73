"""Losses: one number (or one per sample) that says how far an output is from what was wanted."""

from __future__ import annotations

from typing import Literal

from opgraft_tensor.tensor import Tensor

Reduction = Literal["mean", "sum", "none"]


def _reduced(losses: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f'a reduction is "mean", "sum" or "none", not {reduction!r}')


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    reduction: Reduction = "mean",
    axis: int = -1,
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log of the probability that softmax(logits) gives the label.

    `labels`: integers of the shape of the logits without `axis`, or probabilities of their whole
    shape. `label_smoothing`: the part of the label that is spread over all classes.
    """
    logarithms = logits.log_softmax(axis)
    place = axis % logits.ndim
    classes = logits.shape[place]
    if labels.dtype.is_float:
        if labels.shape != logits.shape:
            raise ValueError(
                f"probabilities of shape {labels.shape} for logits of shape {logits.shape}"
            )
        losses = -(labels * logarithms).sum(place)
    else:
        wanted = tuple([n for i, n in enumerate(logits.shape) if i != place])
        if labels.shape != wanted or not labels.dtype.is_int:
            raise ValueError(
                f"labels are integers of shape {wanted} for logits of shape {logits.shape}, "
                f"not {labels.dtype} of shape {labels.shape}"
            )
        size = tuple([classes if i == place else 1 for i in range(logits.ndim)])
        index = Tensor.arange(classes, dtype=labels.dtype, device=logits.device).reshape(size)
        # a sum over one class that counts: its gradient is a selection, without a scatter
        losses = -(labels.unsqueeze(place) == index).where(logarithms, 0.0).sum(place)
    if label_smoothing:
        even = -logarithms.mean(place)
        losses = losses * (1 - label_smoothing) + even * label_smoothing
    return _reduced(losses, reduction)


def mse_loss(output: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:
    """The squared distance."""
    return _reduced((output - target).square(), reduction)


def binary_cross_entropy_with_logits(
    logits: Tensor, labels: Tensor, reduction: Reduction = "mean"
) -> Tensor:
    """-log of the probability that sigmoid(logits) gives to labels of 0 and 1, without overflow."""
    return _reduced(logits.softplus() - logits * labels, reduction)
