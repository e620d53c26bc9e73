"""THREEFRY by operations on 32-bit words: add, rotate, xor (Salmon et al., SC 2011)."""

from __future__ import annotations

from opgraft.dtype import dtypes
from opgraft.ir.evaluate import ROTATIONS
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp

PARITY = 0x1BD11BDA


def rounds(n: UOp) -> UOp:
    """The random bits of a counter under a key."""
    word = dtypes.uint32.vec(n.dtype.count)
    counter, key = n.src
    x0, x1 = counter.cast(word), (counter >> 32).cast(word)
    k0, k1 = key.cast(word), (key >> 32).cast(word)
    keys = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for block in range(5):
        for step in range(4):
            turn = ROTATIONS[(block % 2) * 4 + step]
            x0 = x0 + x1
            x1 = ((x1 << turn) | (x1 >> (32 - turn))) ^ x0
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + (block + 1)
    return x0.cast(n.dtype) | (x1.cast(n.dtype) << 32)


threefry = PatternMatcher([(UPat(Ops.THREEFRY, name="n"), rounds)])
"""Where the target has no THREEFRY of its own: everywhere so far."""
