"""Bit operations and shifts of integers, read as two's complement of their width."""

from __future__ import annotations

from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, bools, index, integers, ints
from opgraft.ir.uop import UOp

_x: Final = UPat.var("x", integers)
_same: Final = UPat.var("x")
_any: Final = UPat.var("x", integers | bools)

SIMPLE: Final = EqualitySet(
    [
        # x & 0 = 0, x & -1 = x
        (_x & 0, lambda x: x.const_like(0), "and_zero"),
        (_x & -1, lambda x: x, "and_ones"),
        # x | 0 = x, x | -1 = -1
        (_x | 0, lambda x: x, "or_zero"),
        (_x | -1, lambda x: x.const_like(-1), "or_ones"),
        # x ^ 0 = x, x ^ x = 0
        (_x ^ 0, lambda x: x, "xor_zero"),
        (_any ^ _same, lambda x: x.const_like(0), "xor_itself"),
        # x & x = x, x | x = x
        (_any & _same, lambda x: x, "and_itself"),
        (_any | _same, lambda x: x, "or_itself"),
        # x << 0 = x, x >> 0 = x
        (_x << 0, lambda x: x, "shift_left_none"),
        (_x >> 0, lambda x: x, "shift_right_none"),
        # 0 << x = 0, 0 >> x = 0
        (UPat.const(0, integers) << _same, lambda x: x.const_like(0), "zero_shifted_left"),
        (UPat.const(0, integers) >> _same, lambda x: x.const_like(0), "zero_shifted_right"),
    ]
)


def mask_of_bounds(x: UOp, a: UOp, m: UOp) -> UOp | None:
    """a & m where m has all the bits that a can have, or none of them."""
    low, high, mask = a.vmin, a.vmax, m.const_value
    if low < 0 or high == float("inf"):
        return None
    used = (1 << int(high).bit_length()) - 1
    if mask & used == used:
        return a
    return x.const_like(0) if mask & used == 0 else None


def mask_is_modulo(a: UOp, m: UOp) -> UOp | None:
    mask = m.const_value
    return a % (mask + 1) if mask > 0 and mask & (mask + 1) == 0 else None


def shift_count_outside(x: UOp, a: UOp, n: UOp) -> UOp | None:
    width = a.dtype.bits
    if 0 <= n.const_value < width:
        return None
    if x.op is Ops.SHR and a.dtype.is_signed:
        return a >> (width - 1)
    return a.const_like(0)


def shift_twice(x: UOp, a: UOp, n: UOp, m: UOp) -> UOp | None:
    width, first, second = a.dtype.bits, n.const_value, m.const_value
    if not (0 <= first < width and 0 <= second < width):
        return None
    total = first + second
    if total < width:
        return a.alu(x.op, a.const_like(total))
    if x.op is Ops.SHR and a.dtype.is_signed:
        return a >> (width - 1)
    return a.const_like(0)


def shift_back(x: UOp, a: UOp, n: UOp) -> UOp | None:
    """(a << n) >> n keeps the low bits of unsigned a; (a >> n) << n clears them."""
    width, count = a.dtype.bits, n.const_value
    if not 0 <= count < width:
        return None
    if x.op is Ops.SHL:
        return a & a.const_like(-1 << count)
    if a.dtype.is_signed:
        return None
    return a & a.const_like((1 << (width - count)) - 1)


def shift_is_product(x: UOp, a: UOp, n: UOp) -> UOp | None:
    count = n.const_value
    if not 0 <= count < 64:
        return None
    power = a.const_like(1 << count)
    return a * power if x.op is Ops.SHL else a // power


def mask_twice(a: UOp, m: UOp, k: UOp) -> UOp | None:
    """(a | m) & k where m has no bit of k, or all of them."""
    common = m.const_value & k.const_value
    if common == 0:
        return a & k
    return a.const_like(k.const_value) if common == k.const_value else None


_a: Final = UPat.var("a")
_n: Final = UPat.cvar("n")
_SHIFTS: Final = (Ops.SHL, Ops.SHR)

FORMS: Final = EqualitySet(
    [
        # a & m = a where m has all the bits of a, 0 where it has none of them
        (UPat(Ops.AND, integers, src=[_a, UPat.cvar("m")], name="x"), mask_of_bounds),
        # a & (2**k - 1) = a % 2**k, of indices, also negative ones
        (UPat.var("a", index) & UPat.cvar("m"), mask_is_modulo),
        # a << k = a * 2**k, a >> k = a // 2**k, of indices
        (UPat(_SHIFTS, index, src=(_a, _n), name="x"), shift_is_product),
        # a << k = 0 for k < 0 or k >= width; a >> k = 0, or the sign
        (UPat(_SHIFTS, ints, src=(_a, _n), name="x"), shift_count_outside),
        # (a << n) << m = a << (n+m), (a >> n) >> m = a >> (n+m)
        (
            UPat(Ops.SHL, ints, src=(UPat(Ops.SHL, src=(_a, _n)), UPat.cvar("m")), name="x"),
            shift_twice,
            "shift_left_twice",
        ),
        (
            UPat(Ops.SHR, ints, src=(UPat(Ops.SHR, src=(_a, _n)), UPat.cvar("m")), name="x"),
            shift_twice,
            "shift_right_twice",
        ),
        # (a << n) >> n = a & the low bits, (a >> n) << n = a & the high bits
        (
            UPat(Ops.SHR, ints, src=(UPat(Ops.SHL, src=(_a, _n)), _n), name="x"),
            shift_back,
            "shift_left_and_back",
        ),
        (
            UPat(Ops.SHL, ints, src=(UPat(Ops.SHR, src=(_a, _n)), _n), name="x"),
            shift_back,
            "shift_right_and_back",
        ),
        # (a | m) & k = a & k where m and k have no common bit
        ((UPat.var("a", integers) | UPat.cvar("m")) & UPat.cvar("k"), mask_twice),
    ]
)
