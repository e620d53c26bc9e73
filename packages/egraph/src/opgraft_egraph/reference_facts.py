"""What is known of the values of a node, in Python: the analyses of csrc/facts.c.

Written apart from the C, on unbounded integers, so that each checks the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import gcd, inf
from typing import Any

from opgraft_egraph import codes
from opgraft_egraph.book import DTypeRow, HeadRow
from opgraft_egraph.codes import LEAST, MOST
from opgraft_egraph.reference_fold import fold
from opgraft_egraph.reference_known import (
    COUNTED,
    WHOLE,
    Known,
    anything,
    constant,
    leaf,
    limits,
    modest,
    remainder,
    settled,
)


def _wrapped(d: DTypeRow, modulus: int, rest: int) -> tuple[int, int]:
    if modulus == 0:
        return 1, 0
    power = modulus & -modulus
    if d.bits < 31:
        power = min(power, 1 << d.bits)
    return remainder(power, rest)


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
    if modest(a, b):
        modulus, rest = remainder(gcd(gcd(a.modulus, b.modulus), a.rest - b.rest), a.rest)
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
        modulus, rest = remainder(a.modulus // b.low, a.rest // b.low)
    low = end(a.low, b.high if a.low >= 0 else b.low)
    high = end(a.high, b.low if a.high >= 0 else b.high)
    return _fitted(d, k, low, high, modulus, rest)


def _modulo(d: DTypeRow, k: Known, a: Known, b: Known) -> Known:
    if b.low <= 0:
        if b.low == -inf:
            return k
        return _fitted(d, k, min(b.low + 1, 0), max(b.high - 1, 0))
    modulus, rest, by = 1, 0, b.low
    if b.low == b.high and modest(b):
        if a.modulus == 0 or a.modulus % by == 0:
            modulus, rest = 0, a.rest % by
        else:
            modulus, rest = remainder(gcd(a.modulus, by), a.rest)
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
        if not apart and modest(a, b):
            common = gcd(a.modulus, b.modulus)
            apart = bool((a.rest - b.rest) % common) if common else a.rest != b.rest
        may = holds or not apart
        if meaning == codes.UNEQUAL:
            holds, may = not may, not holds
    return Known(0, int(holds), int(may))


def _converted(d: DTypeRow, source: DTypeRow, k: Known, a: Known) -> Known:
    if source.kind not in COUNTED or d.kind not in COUNTED:
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
            if modest(a, b):
                modulus, rest = remainder(gcd(a.modulus, b.modulus), a.rest + b.rest)
            return _fitted(d, k, a.low + b.low, a.high + b.high, modulus, rest)
        case codes.MUL:
            low, high = _product(a, b)
            if kids[0] == kids[1]:
                low = 0 if a.low <= 0 <= a.high else max(low, 0)
            if modest(a, b):
                by = gcd(a.modulus * b.modulus, a.modulus * b.rest, b.modulus * a.rest)
                modulus, rest = remainder(by, a.rest * b.rest)
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
    counted = d.kind in COUNTED
    match h.meaning:
        case codes.WHERE:
            condition, yes, no = known
            if condition.number == codes.NUMBER_BOOL:
                return yes if condition.value else no
            return _hull(k, yes, no) if counted else k
        case codes.LESS | codes.UNEQUAL | codes.EQUAL:
            source = dtypes[known[0].dtype].kind in COUNTED
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
    if d.kind in WHOLE and len(known) == 2:
        return _whole(d, h.meaning, kids, k, known[0], known[1])
    return k
