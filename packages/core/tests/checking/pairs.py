"""Two values of 16 bits: chosen ones against all 65,536, or all pairs.

The samples of judge.py look at few of the 2**32 pairs. Here one leaf goes through edge values (as
many as asked for, spread over every exponent, both signs, nan and the infinities among them) and
the other through everything there is; then the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp

from . import judge, vectors
from .generator import all_of_16_bits

ALL: Final = 1 << 16
_BLOCK: Final = 2  # edge values at once: what they give stays in a cache


def suits(before: UOp, after: UOp) -> bool:
    """Whether the graphs depend on two values of one float dtype of 16 bits."""
    leaves = judge.free_leaves(before, after)
    kinds = {n.dtype for n in leaves}
    return (
        len(leaves) == 2
        and len(kinds) == 1
        and kinds <= {dtypes.float16, dtypes.bfloat16}
        and vectors.suits(before, after)
    )


def edges(dtype: DType, count: int) -> np.ndarray:
    """`count` values of the dtype; all of them if they are that many."""
    if count >= ALL:
        return all_of_16_bits(dtype)
    digits = 10 if dtype is dtypes.float16 else 7
    ones = (1 << digits) - 1
    infinite = (ALL >> 1) - (1 << digits)  # the pattern of +inf
    first = [0, infinite, infinite + 1, infinite - 1, 1, 1 << digits, ones]
    one = int(np.float16(1).view(np.uint16)) if digits == 10 else 0x3F80
    first += [one, one + 1, one - 1, one + (1 << digits), one + (1 << (digits - 1))]
    patterns = dict.fromkeys(first)
    # then every exponent, with more and more of its mantissas
    for mantissa in (0, 1, ones, ones >> 1, (ones >> 1) + 1, 2, ones - 1, 5, ones // 3, 3):
        for exponent in range(1 << (15 - digits)):
            patterns.setdefault((exponent << digits) | mantissa)
    signed = [p | sign for p in patterns for sign in (0, ALL >> 1)]
    return all_of_16_bits(dtype)[np.array(signed[:count])]


def compare(before: UOp, after: UOp, count: int) -> tuple[str, int]:
    """(what differs, empty if nothing does; how many assignments)."""
    leaves: Sequence[UOp] = judge.free_leaves(before, after)
    dtype = leaves[0].dtype
    everything, chosen = all_of_16_bits(dtype), edges(dtype, count)
    done = 0
    orders = (leaves,) if count >= ALL else (leaves, leaves[::-1])
    for one, other in orders:
        for start in range(0, len(chosen), _BLOCK):
            block = chosen[start : start + _BLOCK]
            done += len(block) * ALL
            fault = judge.compare_vectors(before, after, {one: block[:, None], other: everything})
            if fault:
                return fault, done
    return "", done
