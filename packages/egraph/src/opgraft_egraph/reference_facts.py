"""What is known of the values of a class, in Python: the analyses of csrc/facts.c and fold.c.

Written apart from the C, on unbounded integers, so that each checks the other. An end of an
interval that is not limited is -inf or inf inside this file, and the least or greatest 64-bit
integer outside.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, inf
from typing import Any, Final

from opgraft_egraph import codes
from opgraft_egraph.book import DTypeRow, HeadRow
from opgraft_egraph.codes import LEAST, MOST
from opgraft_egraph.engine import Fact

_LARGE: Final = 1 << 31
_WHOLE: Final = (codes.SIGNED, codes.UNSIGNED, codes.INDEX)
_COUNTED: Final = (*_WHOLE, codes.BOOL)


@dataclass(frozen=True)
class Known:
    """A fact, its ends real infinities."""

    dtype: int
    low: Any = -inf
    high: Any = inf
    number: int = codes.NO_NUMBER
    value: int = 0
    modulus: int = 1
    rest: int = 0
    nonzero: bool = False

    def fact(self) -> Fact:
        low = LEAST if self.low < LEAST else MOST - 1 if self.low > MOST - 1 else int(self.low)
        high = MOST if self.high > MOST else LEAST + 1 if self.high < LEAST + 1 else int(self.high)
        return Fact(
            *(low, high, self.number, self.value, self.modulus, self.rest, self.dtype),
            self.nonzero,
        )


class Clash(Exception):
    """Facts of one class that cannot both hold; `kind` says which."""

    def __init__(self, kind: int) -> None:
        super().__init__(kind)
        self.kind: Final = kind


def limits(d: DTypeRow) -> tuple[Any, Any]:
    """What the dtype holds, as far as a 64-bit integer does."""
    if d.kind == codes.BOOL:
        return 0, 1
    if d.kind == codes.SIGNED:
        return (-inf, inf) if d.bits >= 64 else (-(1 << d.bits - 1), (1 << d.bits - 1) - 1)
    if d.kind == codes.UNSIGNED:
        return 0, inf if d.bits >= 63 else (1 << d.bits) - 1
    return -inf, inf


def anything(d: DTypeRow, dtype: int) -> Known:
    if d.kind not in _COUNTED:
        return Known(dtype)
    return Known(dtype, *limits(d))


def settled(d: DTypeRow, k: Known) -> Known:
    """The fact with what its parts imply for one another."""
    if d.kind not in _COUNTED or k.number == codes.ELSEWHERE:
        return k
    if k.number:
        k = replace(k, low=k.value, high=k.value, modulus=0, rest=k.value)
    else:
        low, high = k.low, k.high
        if k.modulus == 0:
            low = high = k.rest
        elif k.modulus > 1:
            if low > -inf:
                low += (k.rest - low) % k.modulus
            if high < inf:
                high -= (high - k.rest) % k.modulus
        k = replace(k, low=low, high=high)
        if low == high and LEAST < low < MOST:
            kind = codes.NUMBER_BOOL if d.kind == codes.BOOL else codes.NUMBER_INT
            k = replace(k, number=kind, value=low, modulus=0, rest=low)
    sure = k.low > 0 or k.high < 0 or (k.modulus > 1 and k.rest != 0)
    return replace(k, nonzero=k.nonzero or sure)


def constant(dtypes: Sequence[DTypeRow], dtype: int, number: int, value: int) -> Known:
    d = dtypes[dtype]
    return settled(d, replace(anything(d, dtype), number=number, value=value))


def leaf(dtypes: Sequence[DTypeRow], h: HeadRow) -> Known:
    d = dtypes[h.dtype]
    k = anything(d, h.dtype)
    if d.kind in _COUNTED:
        low = max(k.low, -inf if h.low == LEAST else h.low)
        high = min(k.high, inf if h.high == MOST else h.high)
        k = replace(k, low=low, high=high, nonzero=low > 0 or high < 0)
    return k


def met(a: Known, b: Known) -> Known:
    """Both hold. Raises `Clash` where they cannot."""
    if a.dtype != b.dtype:
        raise Clash(codes.DIFFERENT_DTYPES)
    if a.number and b.number and (a.number, a.value) != (b.number, b.value):
        raise Clash(codes.DIFFERENT_CONSTANTS)
    low, high = max(a.low, b.low), min(a.high, b.high)
    if low > high:
        raise Clash(codes.DISJOINT_INTERVALS)
    modulus, rest = _both_remainders(a, b)
    number, value = (a.number, a.value) if a.number else (b.number, b.value)
    nonzero = a.nonzero or b.nonzero
    return Known(a.dtype, low, high, number, value, modulus, rest, nonzero)


def _both_remainders(a: Known, b: Known) -> tuple[int, int]:
    if a.modulus == 1:
        return b.modulus, b.rest
    if b.modulus == 1:
        return a.modulus, a.rest
    common = gcd(a.modulus, b.modulus)
    if (a.rest - b.rest) % common if common else a.rest != b.rest:
        raise Clash(codes.DISJOINT_REMAINDERS)
    if not a.modulus or not b.modulus:
        return 0, a.rest if not a.modulus else b.rest
    both = a.modulus // common * b.modulus
    if both > 1 << 20:
        return (b.modulus, b.rest) if b.modulus > a.modulus else (a.modulus, a.rest)
    rest = a.rest
    while rest % b.modulus != b.rest:
        rest += a.modulus
    return both, rest


# ---- remainders of operations


def _remainder(modulus: int, rest: int) -> tuple[int, int]:
    modulus = abs(modulus)
    if modulus == 0:
        return 0, rest
    if modulus > _LARGE:
        modulus = min(modulus & -modulus, _LARGE)
    return modulus, rest % modulus


def _modest(*facts: Known) -> bool:
    return all(k.modulus or -_LARGE < k.rest < _LARGE for k in facts)


def _wrapped(d: DTypeRow, modulus: int, rest: int) -> tuple[int, int]:
    if modulus == 0:
        return 1, 0
    power = modulus & -modulus
    if d.bits < 31:
        power = min(power, 1 << d.bits)
    return _remainder(power, rest)


def _fitted(d: DTypeRow, k: Known, low: Any, high: Any, modulus: int = 1, rest: int = 0) -> Known:
    """`k` with the unbounded result [low, high], as the dtype holds it."""
    if low != -inf and not LEAST < low < MOST:
        low = -inf if low <= LEAST else MOST - 1
    if high != inf and not LEAST < high < MOST:
        high = inf if high >= MOST else LEAST + 1
    least, most = limits(d)
    inside = least <= low and high <= most
    if d.kind == codes.INDEX or (inside and (d.bits < 64 or (low > -inf and high < inf))):
        return replace(k, low=low, high=high, modulus=modulus, rest=rest)
    if d.bits < 62 and low > -(1 << 62) and high < 1 << 62:
        size = 1 << d.bits
        turns = (low - least) // size
        if turns == (high - least) // size:
            modulus, rest = _wrapped(d, modulus, rest)
            return replace(
                k, low=low - turns * size, high=high - turns * size, modulus=modulus, rest=rest
            )
    modulus, rest = _wrapped(d, modulus, rest)
    return replace(k, low=least, high=most, modulus=modulus, rest=rest)


def _times(x: Any, y: Any) -> Any:
    if not x or not y:
        return 0
    made = x * y
    return -inf if made <= LEAST else inf if made >= MOST else made


def _product(a: Known, b: Known) -> tuple[Any, Any]:
    corners = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(corners), max(corners)


def _hull(k: Known, a: Known, b: Known) -> Known:
    modulus, rest = 1, 0
    if _modest(a, b):
        modulus, rest = _remainder(gcd(gcd(a.modulus, b.modulus), a.rest - b.rest), a.rest)
    return replace(
        k,
        low=min(a.low, b.low),
        high=max(a.high, b.high),
        nonzero=a.nonzero and b.nonzero,
        modulus=modulus,
        rest=rest,
    )


def _divided(d: DTypeRow, k: Known, a: Known, b: Known) -> Known:
    if b.low <= 0:
        if b.high < 0 and b.low > -inf and -inf < a.low and a.high < inf:
            turned = Known(0, -a.high, -a.low), Known(0, -b.high, -b.low)
            return _divided(d, k, *turned)
        if b.high >= 0 and a.low > -inf and a.high < inf:
            size = max(-a.low, a.high)
            return _fitted(d, k, -abs(size), abs(size))
        return k

    def end(x: Any, y: Any) -> Any:
        if math.isinf(x):
            return x
        if math.isinf(y):
            return 0 if x >= 0 else -1
        return x // y

    modulus, rest = 1, 0
    if b.low == b.high and a.modulus and a.modulus % b.low == 0:
        modulus, rest = _remainder(a.modulus // b.low, a.rest // b.low)
    low = end(a.low, b.high if a.low >= 0 else b.low)
    high = end(a.high, b.low if a.high >= 0 else b.high)
    return _fitted(d, k, low, high, modulus, rest)


def _modulo(d: DTypeRow, k: Known, a: Known, b: Known) -> Known:
    if b.low <= 0:
        if b.low == -inf:
            return k
        return _fitted(d, k, min(b.low + 1, 0), max(b.high - 1, 0))
    modulus, rest, by = 1, 0, b.low
    if b.low == b.high and _modest(b):
        if a.modulus == 0 or a.modulus % by == 0:
            modulus, rest = 0, a.rest % by
        else:
            modulus, rest = _remainder(gcd(a.modulus, by), a.rest)
    if a.low >= 0 and a.high < b.low:
        return _fitted(d, k, a.low, a.high, modulus, rest)
    if b.low == b.high and a.low > -inf and a.high < inf and a.low // by == a.high // by:
        return _fitted(d, k, a.low % by, a.high % by, modulus, rest)
    top = b.high - 1
    return _fitted(d, k, 0, min(top, a.high) if a.low >= 0 else top, modulus, rest)


def _compared(meaning: int, kids: Sequence[int], a: Known, b: Known, counted: bool) -> Known:
    holds, may = False, True
    if meaning == codes.LESS:
        if kids[0] == kids[1]:
            may = False
        elif counted:
            holds, may = a.high < b.low, a.low < b.high
    elif counted:
        same = -inf < a.low == a.high == b.low == b.high < inf
        holds = kids[0] == kids[1] or same
        apart = a.high < b.low or b.high < a.low
        if not apart and _modest(a, b):
            common = gcd(a.modulus, b.modulus)
            apart = bool((a.rest - b.rest) % common) if common else a.rest != b.rest
        may = holds or not apart
        if meaning == codes.UNEQUAL:
            holds, may = not may, not holds
    return Known(0, int(holds), int(may))


def _converted(d: DTypeRow, source: DTypeRow, k: Known, a: Known) -> Known:
    if source.kind not in _COUNTED or d.kind not in _COUNTED:
        return k
    if d.kind == codes.BOOL:
        zero = a.low <= 0 <= a.high and not a.nonzero
        return replace(k, low=int(not zero), high=int(not (zero and a.low == a.high)))
    if source.kind == codes.UNSIGNED and source.bits >= 64 and a.high == inf:
        modulus, rest = _wrapped(d, a.modulus, a.rest)
        return replace(k, modulus=modulus, rest=rest)
    if source.bits >= 64 and d.bits >= 64 and source.kind == d.kind:
        return replace(k, low=a.low, high=a.high, modulus=a.modulus, rest=a.rest)
    return _fitted(d, k, a.low, a.high, a.modulus, a.rest)


def _all_ones(x: int) -> int:
    return (1 << x.bit_length()) - 1


def _whole(d: DTypeRow, meaning: int, kids: Sequence[int], k: Known, a: Known, b: Known) -> Known:
    modulus, rest = 1, 0
    match meaning:
        case codes.ADD:
            if _modest(a, b):
                modulus, rest = _remainder(gcd(a.modulus, b.modulus), a.rest + b.rest)
            return _fitted(d, k, a.low + b.low, a.high + b.high, modulus, rest)
        case codes.MUL:
            low, high = _product(a, b)
            if kids[0] == kids[1]:
                low = 0 if a.low <= 0 <= a.high else max(low, 0)
            if _modest(a, b):
                by = gcd(a.modulus * b.modulus, a.modulus * b.rest, b.modulus * a.rest)
                modulus, rest = _remainder(by, a.rest * b.rest)
            k = _fitted(d, k, low, high, modulus, rest)
            sure = d.kind == codes.INDEX and a.nonzero and b.nonzero
            return replace(k, nonzero=sure)
        case codes.IDIV:
            return _divided(d, k, a, b)
        case codes.MOD:
            return _modulo(d, k, a, b)
        case codes.CDIV:
            return _divided(d, k, a, b) if a.low >= 0 else k
        case codes.CMOD:
            return _modulo(d, k, a, b) if a.low >= 0 and b.low > 0 else k
        case codes.MAX | codes.MIN:
            pick = max if meaning == codes.MAX else min
            both = replace(_hull(k, a, b), nonzero=False)
            return replace(both, low=pick(a.low, b.low), high=pick(a.high, b.high))
        case codes.AND:
            if a.low < 0 and b.low < 0:
                return k
            high = b.high if a.low < 0 else a.high if b.low < 0 else min(a.high, b.high)
            return replace(k, low=0, high=high)
        case codes.OR | codes.XOR:
            if a.low < 0 or b.low < 0:
                return k
            high = inf
            if a.high < inf and b.high < inf:
                high = _all_ones(int(a.high) | int(b.high))
            return replace(k, low=max(a.low, b.low) if meaning == codes.OR else 0, high=high)
        case codes.SHL | codes.SHR:
            count = b.low
            if (
                b.low != b.high
                or not 0 <= count <= 62
                or (d.kind != codes.INDEX and count >= d.bits)
            ):
                if meaning == codes.SHR and a.low >= 0:
                    return replace(k, low=0, high=a.high)
                return k
            power = Known(0, 1 << count, 1 << count, modulus=0, rest=1 << count)
            if meaning == codes.SHR:
                return _divided(d, k, a, power)
            return replace(_whole(d, codes.MUL, (0, 1), k, a, power), nonzero=False)
    return k


def fact_of(
    dtypes: Sequence[DTypeRow], h: HeadRow, kids: Sequence[int], known: Sequence[Known]
) -> Known:
    """What a node of this head on children of which this is known has for values."""
    d = dtypes[h.dtype]
    if h.meaning == codes.OPAQUE:
        return anything(d, h.dtype)
    if h.meaning == codes.CONST:
        return constant(dtypes, h.dtype, h.number, h.value)
    if h.meaning == codes.LEAF:
        return leaf(dtypes, h)
    k = anything(d, h.dtype)
    if 1 <= len(known) <= 3 and all(o.number and o.number != codes.ELSEWHERE for o in known):
        folded = fold(dtypes, h, known)
        if folded is not None:
            return settled(d, replace(k, number=folded[0], value=folded[1]))
    return settled(d, replace(_unfolded(dtypes, d, h, kids, known, k), dtype=h.dtype))


def _unfolded(
    dtypes: Sequence[DTypeRow],
    d: DTypeRow,
    h: HeadRow,
    kids: Sequence[int],
    known: Sequence[Known],
    k: Known,
) -> Known:
    counted = d.kind in _COUNTED
    match h.meaning:
        case codes.WHERE:
            condition, yes, no = known
            if condition.number == codes.NUMBER_BOOL:
                return yes if condition.value else no
            return _hull(k, yes, no) if counted else k
        case codes.LESS | codes.UNEQUAL | codes.EQUAL:
            source = dtypes[known[0].dtype].kind in _COUNTED
            return _compared(h.meaning, kids, known[0], known[1], source)
        case codes.CAST:
            return _converted(d, dtypes[known[0].dtype], k, known[0])
        case codes.SAME:
            return known[0] if counted else k
        case codes.LANES:
            if counted and known:
                a = known[0]
                k = replace(
                    k,
                    low=a.low,
                    high=a.high,
                    modulus=a.modulus,
                    rest=a.rest,
                    nonzero=a.nonzero,
                )
                for other in known[1:]:
                    k = _hull(k, k, other)
            return k
    if d.kind == codes.BOOL and len(known) == 2:
        a, b = known
        if h.meaning in (codes.AND, codes.MUL, codes.MIN):
            return replace(k, low=min(a.low, b.low), high=min(a.high, b.high))
        if h.meaning in (codes.OR, codes.ADD, codes.MAX):
            return replace(k, low=max(a.low, b.low), high=max(a.high, b.high))
        return k
    if d.kind in _WHOLE and len(known) == 2:
        return _whole(d, h.meaning, kids, k, known[0], known[1])
    return k


# ---- constants


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
