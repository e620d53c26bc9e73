"""64-bit integer arithmetic in 32-bit words: a value is (low, high), both uint32.

Operands are in the range where the plain operations are defined: counts of shifts in 0 .. 63,
divisors not 0, floats in the range of the result.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.expansions import lanes_of, proven
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp

Pair: TypeAlias = "tuple[UOp, UOp]"

_SIGN: Final = 1 << 31


def _word(flag: UOp) -> UOp:
    """0 or 1."""
    return flag.cast(lanes_of(dtypes.uint32, flag))


def add(a: Pair, b: Pair) -> Pair:
    low = a[0] + b[0]
    return low, a[1] + b[1] + _word(low < a[0])


def negate(a: Pair) -> Pair:
    return -a[0], ~a[1] + _word(a[0].eq(0))


def select(condition: UOp, yes: Pair, no: Pair) -> Pair:
    return condition.where(yes[0], no[0]), condition.where(yes[1], no[1])


def multiply(a: Pair, b: Pair) -> Pair:
    low, high = _product(a[0], b[0])
    return low, high + a[0] * b[1] + a[1] * b[0]


def _product(a: UOp, b: UOp) -> Pair:
    """The whole product of two words, by halves of words."""
    a0, a1, b0, b1 = a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16
    first = a0 * b0
    middle = a1 * b0 + (first >> 16)
    other = a0 * b1 + (middle & 0xFFFF)
    return a * b, a1 * b1 + (middle >> 16) + (other >> 16)


def compare(op: Ops, a: Pair, b: Pair, signed: bool) -> UOp:
    """CMPLT, CMPEQ or CMPNE."""
    if op is Ops.CMPEQ:
        return a[0].eq(b[0]) & a[1].eq(b[1])
    if op is Ops.CMPNE:
        return a[0].ne(b[0]) | a[1].ne(b[1])
    high_a, high_b = (a[1] ^ _SIGN, b[1] ^ _SIGN) if signed else (a[1], b[1])
    return (high_a < high_b) | (a[1].eq(b[1]) & (a[0] < b[0]))


def binary(op: Ops, a: Pair, b: Pair, signed: bool) -> Pair:
    """ADD, MUL, AND, OR, XOR, MAX or MIN."""
    if op is Ops.ADD:
        return add(a, b)
    if op is Ops.MUL:
        minus_one = b[0].const_value == b[1].const_value == 2 * _SIGN - 1
        return negate(a) if minus_one else multiply(a, b)
    if op is Ops.MAX or op is Ops.MIN:
        left_wins = compare(Ops.CMPLT, a, b, signed) ^ (op is Ops.MAX)
        return select(left_wins, a, b)
    if op in (Ops.AND, Ops.OR, Ops.XOR):
        return a[0].alu(op, b[0]), a[1].alu(op, b[1])
    raise LoweringError(f"{op} of 64-bit integers is not there in 32 bits")


def shift(op: Ops, a: Pair, count: UOp, signed: bool) -> Pair:
    """SHL, or SHR with zeros or copies of the sign."""
    by, far = count & 31, count >= 32
    low, high = a
    # the bits that pass from word to word; a shift by 32 - by in two steps, as by may be 0
    if op is Ops.SHL:
        moved = low << by
        crossed = (high << by) | ((low >> 1) >> (by ^ 31))
        return far.where(moved.const_like(0), moved), far.where(moved, crossed)
    crossed = (low >> by) | ((high << 1) << (by ^ 31))
    if not signed:
        moved, fill = high >> by, high.const_like(0)
    else:
        word = lanes_of(dtypes.int32, high)
        as_signed = high.bitcast(word)
        moved = (as_signed >> by.bitcast(word)).bitcast(high.dtype)
        fill = (as_signed >> 31).bitcast(high.dtype)
    return far.where(moved, crossed), far.where(fill, moved)


def divide(a: Pair, b: Pair, signed: bool) -> tuple[Pair, Pair]:
    """C's quotient and remainder."""
    if not signed:
        return _long_division(a, b)
    negative_a, negative_b = a[1] >= _SIGN, b[1] >= _SIGN
    quotient, rest = _long_division(
        select(negative_a, negate(a), a), select(negative_b, negate(b), b)
    )
    return (
        select(negative_a ^ negative_b, negate(quotient), quotient),
        select(negative_a, negate(rest), rest),
    )


def _long_division(a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """By 16-bit digits where the divisor is a small constant, else bit by bit."""
    divisor = b[0].const_value
    if divisor is not None and b[1].const_value == 0 and divisor < 1 << 16:
        return _short_division(a, int(divisor))
    zero = a[0].const_like(0)
    rest: Pair = (zero, zero)
    digits: list[list[UOp]] = [[], []]
    for place in reversed(range(64)):
        bit = (a[place // 32] >> (place % 32)) & 1
        carried = rest[1] >= _SIGN
        rest = ((rest[0] << 1) | bit, (rest[1] << 1) | (rest[0] >> 31))
        fits = carried | ~compare(Ops.CMPLT, rest, b, False)
        rest = select(fits, add(rest, negate(b)), rest)
        digits[place // 32].append(_word(fits) << (place % 32))
    low, high = (_join(d) for d in digits)
    return (low, high), rest


def _join(parts: list[UOp]) -> UOp:
    result = parts[0]
    for part in parts[1:]:
        result = result | part
    return result


def _short_division(a: Pair, divisor: int) -> tuple[Pair, Pair]:
    rest = a[0].const_like(0)
    quotient: list[UOp] = []
    for word in (a[1], a[0]):
        for digit in (word >> 16, word & 0xFFFF):
            total = (rest << 16) | digit
            divided = proven(Ops.CDIV, total.dtype, total, total.const_like(divisor))
            rest = total - divided * divisor
            quotient.append(divided)
    high = (quotient[0] << 16) | quotient[1]
    low = (quotient[2] << 16) | quotient[3]
    return (low, high), (rest, rest.const_like(0))


# ---- conversions


def from_narrow(x: UOp) -> Pair:
    """An integer of at most 32 bits, or a bool."""
    low = x.cast(lanes_of(dtypes.uint32, x))
    zero = low.const_like(0)
    if not x.dtype.is_int or not x.dtype.is_signed:
        return low, zero
    return low, (x < 0).where(low.const_like(-1), zero)


def from_float(x: UOp, signed: bool) -> Pair:
    """Truncation of a float that is in range."""
    word = lanes_of(dtypes.uint32, x)
    size = (x < 0.0).where(-x, x) if signed else x
    high = proven(Ops.CAST, word, size * 2.0**-32)
    low = proven(Ops.CAST, word, size + high.cast(x.dtype) * -(2.0**32))
    return select(x < 0.0, negate((low, high)), (low, high)) if signed else (low, high)


def to_float(a: Pair, dtype: DType, signed: bool) -> UOp:
    """The nearest float, rounded once."""
    negative = a[1] >= _SIGN
    low, high = select(negative, negate(a), a) if signed else a
    if dtype.scalar is dtypes.float64:
        result = high.cast(dtype) * 2.0**32 + low.cast(dtype)
    elif dtype.scalar is dtypes.float32:
        result = _to_float32(low, high, dtype)
    else:
        raise LoweringError(f"a 64-bit integer becomes a {dtype} by way of float32")
    return negative.where(-result, result) if signed else result


def _to_float32(low: UOp, high: UOp, dtype: DType) -> UOp:
    """The highest 32 bits and one sticky bit for the rest, which float32 then rounds."""
    length = high.const_like(0)
    left = high
    scale = UOp.const(dtype, 1.0)
    for step in (16, 8, 4, 2, 1):
        long = left >= (1 << step)
        left = long.where(left >> step, left)
        length = long.where(length + step, length)
        scale = long.where(scale * 2.0**step, scale)
    # length is that of high less one; take high's bits and as many of low as fill the word
    taken = (high << (length ^ 31)) | ((low >> 1) >> length)
    dropped = low & ((low.const_like(2) << length) - 1)
    value = (taken | _word(dropped.ne(0))).cast(dtype) * (scale * 2.0)
    return high.eq(0).where(low.cast(dtype), value)
