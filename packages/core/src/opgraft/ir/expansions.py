"""Operations at their exact meaning, written in operations that every machine has.

C's float-to-integer conversion, shifts, division and the usual maximum instructions are
undefined, or differ from docs/meaning.md, for some operands. `expand` writes such an operation
as a graph that is right for all of them. What bounds exclude costs nothing.

In the result the plain machine operation carries the tag `PROVEN`: its operands are in the
range where every machine agrees.
"""

from __future__ import annotations

from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.bounds import may_be_nan
from opgraft.ir.matrix import SIDES, Operand
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp

PROVEN: Final = "proven"
"""Tag of CAST, CDIV, CMOD: the operands are in the range where the plain instruction is right."""

ANY_ZERO: Final = "any zero"
"""Tag of a float MAX or MIN: the sign of a zero result is free (nan is not)."""

NUMBERS: Final = "numbers"
"""Tag of a float MAX or MIN, as `ANY_ZERO`: and where an operand is nan, nobody uses the result."""

UNSIGNED: Final = {
    8: dtypes.uint8,
    16: dtypes.uint16,
    32: dtypes.uint32,
    64: dtypes.uint64,
}
SIGNED: Final = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}


def expand(u: UOp) -> UOp | None:
    """A graph for `u` of operations whose plain form is exact; None where its own is already."""
    op = u.op
    if op is Ops.MAX or op is Ops.MIN:
        if not u.dtype.is_float:
            return None
        return _extreme(u.src[0], u.src[1], op is Ops.MAX, u.tag)
    if op is Ops.CAST:
        if u.tag == PROVEN or not u.src[0].dtype.is_float or not u.dtype.is_int:
            return None
        return float_to_int(u.src[0], u.dtype)
    if op is Ops.SHL or op is Ops.SHR:
        return _shift(u)
    if op is Ops.CDIV or op is Ops.CMOD:
        return _division(u)
    return None


def lanes_of(dtype: DType, like: UOp) -> DType:
    """`dtype` with as many lanes as the node has."""
    return dtype.scalar.vec(like.dtype.count)


def proven(op: Ops, dtype: DType, *src: UOp) -> UOp:
    """The plain machine operation."""
    return UOp(op, dtype, src, None, PROVEN)


def bits_of(x: UOp) -> UOp:
    """The bits of a float as an unsigned integer of its width."""
    return x.bitcast(lanes_of(UNSIGNED[x.dtype.bits], x))


def _extreme(a: UOp, b: UOp, greatest: bool, tag: str | None) -> UOp:
    """numpy.maximum or minimum, with -0.0 below 0.0; but for what a tag leaves free."""
    any_zero = tag in (ANY_ZERO, NUMBERS)

    def beats(x: UOp, y: UOp) -> UOp:
        return y < x if greatest else x < y

    # a number on the right, and not nan: the first operand wins ties and nan by itself
    if a.is_const and not b.is_const:
        a, b = b, a
    value = b.const_value
    if value is not None and value == value:
        preferred = value != 0.0 or any_zero
        sign = str(value)[0] == "-"
        if preferred or sign == greatest:
            return beats(b, a).where(b, a)
        # b is the zero that wins over the other one, so it wins ties
        return (beats(b, a) | a.eq(b)).where(b, a)
    # the form of the machines' own instruction, which hands on the second operand where either is
    # nan; what it loses is put back by a test that hardly ever holds
    picked = beats(a, b).where(a, b)
    if tag != NUMBERS and may_be_nan(a):
        picked = a.ne(a).where(a, picked)
    if any_zero or a.vmin > 0 or a.vmax < 0 or b.vmin > 0 or b.vmax < 0:
        return picked
    # of equal numbers only the signs of zeros can differ: + wins a maximum, - a minimum
    left, right = bits_of(a), bits_of(b)
    joined = (left & right) if greatest else (left | right)
    return a.eq(b).where(joined.bitcast(a.dtype), picked)


def float_to_int(x: UOp, target: DType) -> UOp:
    """Truncation; out of range the nearest integer of the dtype, of nan 0."""
    if target.is_index:
        return proven(Ops.CAST, target, x)
    if x.dtype.bits < 32:
        x = x.cast(lanes_of(dtypes.float32, x))
    scalar = target.scalar
    least, greatest = int(scalar.min), int(scalar.max)
    low, high = x.vmin < least, x.vmax >= greatest + 1
    nan = may_be_nan(x)
    if not (low or high or nan):
        return proven(Ops.CAST, target, x)
    if x.dtype.scalar.const(greatest) == greatest:
        # both ends are floats: clamp first
        y = x
        if low:
            y = (y < least).where(y.const_like(least), y)
        if high:
            y = (y > greatest).where(y.const_like(greatest), y)
        if nan:
            y = x.eq(x).where(y, y.const_like(0.0))
        return proven(Ops.CAST, target, y)
    limit = x.const_like(float(greatest + 1))
    inside = x < limit
    if low or nan:
        inside = inside & (x >= float(least))
    result = proven(Ops.CAST, target, inside.where(x, x.const_like(0.0)))
    if high:
        result = (x >= limit).where(result.const_like(greatest), result)
    if low and least != 0:
        result = (x < float(least)).where(result.const_like(least), result)
    return result


def _shift(u: UOp) -> UOp | None:
    """A shift whose count may be out of range: 0, or the sign for an arithmetic right shift."""
    value, count = u.src
    if u.dtype.is_index:
        return None
    width = u.dtype.bits
    if count.vmin >= 0 and count.vmax < width:
        return None
    inside = count < width
    if count.vmin < 0:
        inside = inside & (count >= 0)
    if u.op is Ops.SHR and u.dtype.is_signed:
        return value >> (inside.where(count, count.const_like(width - 1)) & (width - 1))
    masked = count & (width - 1)
    shifted = value << masked if u.op is Ops.SHL else value >> masked
    return inside.where(shifted, shifted.const_like(0))


def _division(u: UOp) -> UOp | None:
    """C's division for every divisor: by 0 the result is 0, and the least // -1 wraps."""
    a, b = u.src
    if u.tag == PROVEN or u.dtype.is_index:
        return None
    zero = b.vmin <= 0 <= b.vmax
    minus = u.dtype.is_signed and b.vmin <= -1 <= b.vmax and a.vmin == u.dtype.min
    if not (zero or minus):
        return None
    is_zero, is_minus = b.eq(0), b.eq(-1) if minus else None
    bad = is_minus if not zero else is_zero if is_minus is None else is_zero | is_minus
    assert bad is not None
    plain = proven(u.op, u.dtype, a, bad.where(b.const_like(1), b))
    if u.op is Ops.CMOD:
        return plain  # the remainder by 1 is the 0 that both cases want
    result = is_zero.where(plain.const_like(0), plain) if zero else plain
    return is_minus.where(-a, result) if is_minus is not None else result


def sum_of_products(n: UOp) -> UOp:
    """A DOT by way of plainer operations, its products added up in order."""
    (first, second, _), (a, b, total) = n.arg.dtypes, n.src
    for k in range(n.arg.depth):
        total = total + _part_of(a, first, k).cast(n.dtype) * _part_of(b, second, k).cast(n.dtype)
    return total


def matrix_products(n: UOp) -> UOp:
    """A MATRIX of one thread by way of plainer operations, element by element."""
    unit, (a, b, c) = n.arg, n.src

    def elements(source: UOp, operand: Operand) -> dict[tuple[int, int], UOp]:
        layout, (row, column) = unit.layout(operand), SIDES[operand]
        return {
            (place.get(row, 0), place.get(column, 0)): (
                source if layout.size == 1 else source.extract(register)
            ).cast(unit.dtype("c"))
            for register in range(layout.size)
            for place in (layout.at(0, register),)
        }

    left, right, sums = elements(a, "a"), elements(b, "b"), elements(c, "c")
    for (i, j), total in sums.items():
        for k in range(unit.shape[2]):
            total = total + left[i, k] * right[k, j]
        sums[i, j] = total
    lanes = tuple(sums.values())  # in the order of their registers
    return lanes[0] if len(lanes) == 1 else UOp(Ops.STACK, n.dtype, lanes)


def _part_of(words: UOp, dtype: DType, number: int) -> UOp:
    """A part of each word."""
    count, bits = words.dtype.count, dtype.bits
    shifted = words >> (number * bits) if number else words
    held = dtypes.uint16 if dtype.is_float else dtype
    part = shifted.cast(held.vec(count))
    return part.bitcast(dtype.vec(count)) if held is not dtype else part
