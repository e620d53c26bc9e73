"""Where an element of a buffer with several axes lies."""

from __future__ import annotations

from collections.abc import Sequence

from opgraft.dtype import dtypes
from opgraft.ir.uop import UOp


def place(at: Sequence[UOp], spans: Sequence[int]) -> UOp:
    """The element of these indices, the last one's neighbours side by side."""
    index: UOp = UOp.const(dtypes.index, 0)
    for one, span in zip(at, spans, strict=True):
        index = index * span + one
    return index
