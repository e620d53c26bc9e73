"""Reduction of large floats modulo pi with integers alone (Payne and Hanek, 1983).

x = m * 2**e is divided by pi by multiplying m with a window of the bits of 1/pi: those in front
of the window contribute multiples of 2*pi, which sin can't see, and those behind it too little to
matter. Windows are chosen by comparing bits of the exponent, without memory look-ups, so that
vectors do it too.
"""

from __future__ import annotations

import math
from typing import Final

from opgraft.dtype import dtypes
from opgraft.ir.expansions import SIGNED, UNSIGNED, lanes_of
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp

INVERSE_PI: Final = int(
    "517cc1b727220a94fe13abe8fa9a6ee06db14acc9e21c820ff28b1d5ef5de2b0db92371d2126e9700324977504"
    "e8c90e7f0ef58e5894d39f74411afa975da24274ce38135a2fbf209cc8eb1cc1a99cfa4e422fc5defc941d8ffc"
    "4bffef02cc07f79788c5ad05368fb69b3f6793e584dba7a31fb34f2ff516ba93dd63f5f2f8bd9e839cfbc52949"
    "7535fdafd88fc6ae842b019823",
    16,
)
"""floor(2**1184 / pi)."""
BITS: Final = 1184

PI32: Final = (3.140625, 0.0009676535846665502)
PI64: Final = (3.1415926218032837, 3.178650954705639e-08)
"""pi in two parts, the first so short that its product with half a mantissa is exact."""


def reduce_huge(size: UOp) -> tuple[UOp, UOp]:
    """r and k modulo 2 (an unsigned integer) of size = k*pi + r, |r| <= pi/2.

    For float32 from 2**12, for float64 from 2**20 on; nan for inf. Below, anything (but no trap).
    """
    if size.dtype.scalar is dtypes.float32:
        r, k = _reduce32(size)
    else:
        r, k = _reduce64(size)
    return (size < math.inf).where(r, r.const_like(math.nan)), k


def _words(first: int, width: int, count: int) -> list[int]:
    """`count` words of 1/pi from the bit of weight 2**-first on (first may be negative)."""
    last = first + width * count - 1
    value = INVERSE_PI >> (BITS - last)
    return [(value >> (width * (count - 1 - j))) & ((1 << width) - 1) for j in range(count)]


def _window(table: list[int], place: UOp, width: int, count: int) -> list[UOp]:
    """`count` words of the table from bit `place` on, in the dtype of `place`."""
    at = place >> (width.bit_length() - 1)
    stride = 1 << max(0, (len(table) - count - 1)).bit_length() - 1
    level: list[UOp] = [place.const_like(word) for word in table]
    while stride:
        chosen = (at & stride).ne(0)
        keep = min(len(level) - stride, count + stride)
        level = [chosen.where(level[j + stride], level[j]) for j in range(keep)]
        stride >>= 1
    shift = place & (width - 1)
    back = shift ^ (width - 1)  # width - 1 - shift
    return [(level[j] << shift) | ((level[j + 1] >> 1) >> back) for j in range(count - 1)]


def _reduce32(size: UOp) -> tuple[UOp, UOp]:
    word, wide = lanes_of(dtypes.uint32, size), lanes_of(dtypes.uint64, size)
    bits = size.bitcast(word)
    m = ((bits & 0x7FFFFF) | 0x800000).cast(wide)
    # x = m * 2**s with s = exponent - 150; from 2**12 on s is -11 or more
    place = ((bits >> 23) - 139) & 127
    w2, w1, w0 = (w.cast(wide) for w in _window(_words(-11, 32, 7), place, 32, 4))
    # m * window modulo 2**96, of which the upper 64 bits are kept: x/pi modulo 2, in 2**-63
    low = m * w0
    middle = m * w1 + (low >> 32)
    turn = ((m * w2) << 32) + middle
    k = (turn + (1 << 62)) >> 63
    rest = (turn - (k << 63)).bitcast(lanes_of(dtypes.int64, size))
    # |rest| <= 2**62 in units of 2**-63: three exact floats
    f = _pieces(rest, size, 24)
    total = f[0] + f[1]
    small = (f[0] - total) + f[1] + f[2]
    return _times_pi(total, small, PI32), k.cast(word)


def _pieces(rest: UOp, size: UOp, width: int) -> list[UOp]:
    """A signed 64-bit fraction (in 2**-63) as floats of `width` bits each."""
    narrow = lanes_of(dtypes.int32, size)
    pieces: list[UOp] = []
    shift = 64
    while shift > 0:
        taken = min(width, shift)
        shift -= taken
        part = rest >> shift
        if pieces:
            part = part & ((1 << taken) - 1)
        pieces.append(part.cast(narrow).cast(size.dtype) * 2.0 ** (shift - 63))
    return pieces


def _times_pi(total: UOp, small: UOp, pi: tuple[float, float]) -> UOp:
    """pi * (total + small), |small| far below |total|, rounded in the last addition alone."""
    bits = UNSIGNED[total.dtype.bits]
    cleared = (total.dtype.mantissa + 1) // 2
    mask = (1 << bits.bits) - (1 << cleared)
    high = (total.bitcast(lanes_of(bits, total)) & mask).bitcast(total.dtype)
    low = (total - high) + small
    return high * pi[0] + (high * pi[1] + low * (pi[0] + pi[1]))


def _reduce64(size: UOp) -> tuple[UOp, UOp]:
    word = lanes_of(dtypes.uint64, size)
    bits = size.bitcast(word)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    # x = m * 2**s with s = exponent - 1075; from 2**20 on s is -32 or more
    place = ((bits >> 52) - 1043) & 1023
    window = _window(_words(-32, 64, 19), place, 64, 4)
    # schoolbook by halves of words, lowest first, modulo 2**192
    halves = [h for w in reversed(window) for h in (w & 0xFFFFFFFF, w >> 32)]
    m0, m1 = m & 0xFFFFFFFF, m >> 32
    digits: list[UOp] = []
    carry = m0.const_like(0)
    for j, half in enumerate(halves):
        # each sum is below 2**64: (2**32-1)**2 + 2*(2**32-1)
        first = m0 * half + (carry & 0xFFFFFFFF)
        if j == 0:
            digits.append(first & 0xFFFFFFFF)
            carry = first >> 32
            continue
        second = m1 * halves[j - 1] + (first & 0xFFFFFFFF)
        digits.append(second & 0xFFFFFFFF)
        carry = (carry >> 32) + (first >> 32) + (second >> 32)
    high = (digits[5] << 32) | digits[4]
    low = (digits[3] << 32) | digits[2]
    k = (high + (1 << 62)) >> 63
    rest = (high - (k << 63)).bitcast(lanes_of(SIGNED[64], size))
    unsigned_rest = rest.bitcast(lanes_of(UNSIGNED[64], size))
    # 2**-63 * rest + 2**-127 * low as three floats of at most 53 bits, each exact
    f0 = _float64(rest >> 11, size) * 2.0**-52
    f1 = _float64(((unsigned_rest & 0x7FF) << 42) | (low >> 22), size) * 2.0**-105
    f2 = _float64(low & 0x3FFFFF, size) * 2.0**-127
    total = f0 + f1
    small = (f0 - total) + f1 + f2
    return _times_pi(total, small, PI64), k


def _float64(value: UOp, like: UOp) -> UOp:
    return UOp(Ops.CAST, like.dtype, (value,))
