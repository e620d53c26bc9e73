"""`Known`: what is known of the values of a class, and what two facts say together.

In Python, as csrc/knowledge.c has it in C; on unbounded integers. An end of an interval that is not
limited is -inf or inf inside, and the least or greatest 64-bit integer outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, inf
from typing import Any, Final

from opgraft_egraph import codes
from opgraft_egraph.book import DTypeRow, HeadRow
from opgraft_egraph.codes import LEAST, MOST
from opgraft_egraph.engine import Fact

LARGE: Final = 1 << 31
WHOLE: Final = (codes.SIGNED, codes.UNSIGNED, codes.INDEX)
COUNTED: Final = (*WHOLE, codes.BOOL)


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
    if d.kind not in COUNTED:
        return Known(dtype)
    return Known(dtype, *limits(d))


def settled(d: DTypeRow, k: Known) -> Known:
    """The fact with what its parts imply for one another."""
    if d.kind not in COUNTED or k.number == codes.ELSEWHERE:
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
    if d.kind in COUNTED:
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


def remainder(modulus: int, rest: int) -> tuple[int, int]:
    modulus = abs(modulus)
    if modulus == 0:
        return 0, rest
    if modulus > LARGE:
        modulus = min(modulus & -modulus, LARGE)
    return modulus, rest % modulus


def modest(*facts: Known) -> bool:
    return all(k.modulus or -LARGE < k.rest < LARGE for k in facts)
