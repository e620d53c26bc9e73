"""Operations on constants, in Python: the values that csrc/fold.c computes, or none."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from math import inf
from typing import Any

from opgraft_egraph import codes
from opgraft_egraph.book import DTypeRow, HeadRow
from opgraft_egraph.codes import LEAST, MOST
from opgraft_egraph.reference_known import Known, limits


def _float(value: int) -> float:
    return struct.unpack("<d", struct.pack("<q", value))[0]  # type: ignore[no-any-return]


def _bits(x: float) -> int:
    return struct.unpack("<q", struct.pack("<d", math.nan if x != x else x))[0]  # type: ignore[no-any-return]


def _rounded(d: DTypeRow, x: float) -> float:
    if d.mantissa >= 52 or x == 0.0 or math.isinf(x) or x != x:
        return x
    if d.mantissa == 23:
        try:
            return float(struct.unpack("<f", struct.pack("<f", x))[0])
        except OverflowError:
            return math.copysign(inf, x)
    bias = (1 << d.exponent - 1) - 1
    power = max(math.frexp(x)[1] - 1, 1 - bias)
    unit = math.ldexp(1.0, power - d.mantissa)
    made = round(x / unit) * unit
    if abs(made) >= math.ldexp(1.0, bias + 1):
        return math.copysign(inf, x)
    return math.copysign(made, x)


def fold(dtypes: Sequence[DTypeRow], h: HeadRow, known: Sequence[Known]) -> tuple[int, int] | None:
    """The constant that a head makes of constants, or None where an engine leaves it alone."""
    d, a = dtypes[h.dtype], known[0]
    if h.meaning in (codes.LESS, codes.UNEQUAL, codes.EQUAL):
        x: Any = _float(a.value) if a.number == codes.NUMBER_FLOAT else a.value
        y: Any = _float(known[1].value) if a.number == codes.NUMBER_FLOAT else known[1].value
        truth = x < y if h.meaning == codes.LESS else (x == y) == (h.meaning == codes.EQUAL)
        return codes.NUMBER_BOOL, int(truth)
    if h.meaning == codes.CAST:
        return _cast(d, a)
    if h.meaning == codes.WHERE:
        taken = known[1] if a.value else known[2]
        return taken.number, taken.value
    if h.meaning == codes.SAME:
        return a.number, a.value
    if h.meaning in (codes.SQRT, codes.TRUNC):
        if a.number != codes.NUMBER_FLOAT:
            return None
        x = _float(a.value)
        if h.meaning == codes.TRUNC:
            whole = x if x != x or math.isinf(x) else math.copysign(float(math.trunc(x)), x)
            return codes.NUMBER_FLOAT, _bits(_rounded(d, whole))
        root = math.nan if x < 0 else math.sqrt(x)
        return codes.NUMBER_FLOAT, _bits(_rounded(d, root))
    if h.arity != 2:
        return None
    b = known[1]
    if d.kind == codes.BOOL:
        return _fold_bool(h.meaning, bool(a.value), bool(b.value))
    if d.kind == codes.FLOAT:
        return _fold_float(d, h.meaning, _float(a.value), _float(b.value))
    if a.number != codes.NUMBER_INT or b.number != codes.NUMBER_INT:
        return None
    return _fold_whole(d, h.meaning, a.value, b.value)


def _cast(d: DTypeRow, a: Known) -> tuple[int, int] | None:
    if a.number != codes.NUMBER_FLOAT:
        if d.kind == codes.FLOAT:
            if abs(a.value) > 1 << 53:
                return None
            return codes.NUMBER_FLOAT, _bits(_rounded(d, float(a.value)))
        return _exact(d, a.value)
    x = _float(a.value)
    if d.kind == codes.FLOAT:
        return codes.NUMBER_FLOAT, _bits(_rounded(d, x))
    if d.kind == codes.BOOL:
        return codes.NUMBER_BOOL, int(x != 0.0)
    if x != x:
        return _exact(d, 0)
    if not abs(x) < 9.0e18:
        return None
    whole = math.trunc(x)
    if d.kind != codes.INDEX:
        least, most = limits(d)
        whole = int(min(max(whole, least), most))
    return _exact(d, whole)


def _exact(d: DTypeRow, x: int) -> tuple[int, int] | None:
    if d.kind == codes.BOOL:
        return codes.NUMBER_BOOL, int(x != 0)
    if d.kind != codes.INDEX:
        x &= (1 << d.bits) - 1
        if d.kind == codes.SIGNED and x >> (d.bits - 1):
            x -= 1 << d.bits
    return (codes.NUMBER_INT, x) if LEAST <= x <= MOST else None


def _fold_bool(meaning: int, a: bool, b: bool) -> tuple[int, int] | None:
    if meaning in (codes.ADD, codes.OR, codes.MAX):
        return codes.NUMBER_BOOL, int(a or b)
    if meaning in (codes.MUL, codes.AND, codes.MIN):
        return codes.NUMBER_BOOL, int(a and b)
    return (codes.NUMBER_BOOL, int(a != b)) if meaning == codes.XOR else None


def _fold_float(d: DTypeRow, meaning: int, a: float, b: float) -> tuple[int, int] | None:
    match meaning:
        case codes.ADD:
            x = a + b
        case codes.MUL:
            x = a * b
        case codes.FDIV if b == 0.0:
            x = math.nan
            if a != 0.0 and a == a:
                x = math.copysign(inf, a) * math.copysign(1.0, b)
        case codes.FDIV:
            x = a / b
        case codes.MAX | codes.MIN:
            larger = meaning == codes.MAX
            if a != a or b != b:
                x = math.nan
            elif a == b:
                x = a if (math.copysign(1.0, a) > 0) == larger else b
            else:
                x = a if (a > b) == larger else b
        case _:
            return None
    return codes.NUMBER_FLOAT, _bits(_rounded(d, x))


def _fold_whole(d: DTypeRow, meaning: int, a: int, b: int) -> tuple[int, int] | None:
    index = d.kind == codes.INDEX
    match meaning:
        case codes.ADD:
            x = a + b
        case codes.MUL:
            x = a * b
        case codes.IDIV:
            x = a // b if b else 0
        case codes.MOD:
            x = a % b if b else 0
        case codes.CDIV:
            x = 0 if not b else (abs(a) // abs(b)) * (-1 if (a < 0) != (b < 0) else 1)
        case codes.CMOD:
            x = 0 if not b else (abs(a) % abs(b)) * (-1 if a < 0 else 1)
        case codes.MAX:
            x = max(a, b)
        case codes.MIN:
            x = min(a, b)
        case codes.AND:
            x = a & b
        case codes.OR:
            x = a | b
        case codes.XOR:
            x = a ^ b
        case codes.SHL:
            if b < 0 or (not index and b >= d.bits):
                x = 0
            elif index and b > 62:
                return None if a else (codes.NUMBER_INT, 0)
            else:
                x = a << b
        case codes.SHR:
            outside = b < 0 or (not index and b >= d.bits) or b > 63
            x = (-1 if a < 0 else 0) if outside else a >> b
        case _:
            return None
    if meaning in (codes.IDIV, codes.CDIV) and b == -1 and a == LEAST:
        return None
    return _exact(d, x)
