"""Linear constraints on whole numbers: is there a rational solution?

The general simplex method of Dutertre and de Moura (2006), exact: every linear form has a variable
of its own, and a constraint is a bound on one. A bound is taken back by setting the former one;
the tableau may stay as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

_MOST_STEPS: Final = 2_000


class Simplex:
    """Variables 0, 1, ... with bounds, some of which are sums of others."""

    def __init__(self) -> None:
        self.low: list[int | None] = []
        self.high: list[int | None] = []
        self._value: list[int] = []
        """Of variables that are not basic: always a whole number."""
        self._rows: dict[int, tuple[int, dict[int, int]]] = {}
        """Basic variable to (d, terms): d times it is the sum of the terms, of variables that
        are not basic."""
        self._forms: dict[tuple[tuple[int, int], ...], int] = {}
        self.steps = 0

    def variable(self) -> int:
        """A new variable without bounds."""
        self.low.append(None)
        self.high.append(None)
        self._value.append(0)
        return len(self.low) - 1

    def form(self, terms: Mapping[int, int]) -> int:
        """The variable of a sum: `terms` are factors by variable, with no common divisor."""
        key = tuple(sorted(terms.items()))
        if len(key) == 1 and key[0][1] == 1:
            return key[0][0]
        found = self._forms.get(key)
        if found is not None:
            return found
        made = self._forms[key] = self.variable()
        divisor, row = 1, dict[int, int]()
        for v, factor in key:
            if v in self._rows:
                d, own = self._rows[v]
                divisor, row = _added(divisor, row, factor, d, own)
            else:
                divisor, row = _added(divisor, row, factor, 1, {v: 1})
        self._rows[made] = divisor, row
        return made

    def feasible(self) -> bool:
        """Whether all bounds can hold together, over the rationals. Too many steps: True."""
        for v, least in enumerate(self.low):
            most = self.high[v]
            if least is not None and most is not None and least > most:
                return False
        for v in range(len(self.low)):
            if v not in self._rows:
                self._value[v] = self._within(v, self._value[v])
        for step in range(_MOST_STEPS):
            self.steps += 1
            broken = self._broken(step > 50)
            if broken is None:
                return True
            basic, target = broken
            d, row = self._rows[basic]
            up = target * d > sum(f * self._value[v] for v, f in row.items())
            entering = self._entering(row, up, step > 50)
            if entering is None:
                return False
            self._pivot(basic, entering)
            self._value[basic] = target
        return True

    def _within(self, v: int, value: int) -> int:
        least, most = self.low[v], self.high[v]
        if least is not None and value < least:
            return least
        if most is not None and value > most:
            return most
        return value

    def _broken(self, smallest: bool) -> tuple[int, int] | None:
        """A basic variable beyond a bound, and that bound: the first, or the farthest off."""
        worst: tuple[int, int] | None = None
        distance = Fraction(0)
        for v in sorted(self._rows):
            least, most = self.low[v], self.high[v]
            if least is None and most is None:
                continue
            d, row = self._rows[v]
            total = sum(f * self._value[w] for w, f in row.items())
            if least is not None and total < least * d:
                bound, off = least, Fraction(least * d - total, d)
            elif most is not None and total > most * d:
                bound, off = most, Fraction(total - most * d, d)
            else:
                continue
            if smallest:
                return v, bound
            if off > distance:
                worst, distance = (v, bound), off
        return worst

    def _entering(self, row: dict[int, int], up: bool, smallest: bool) -> int | None:
        """A variable that can move so that the row's goes up, or down."""
        best: int | None = None
        fewest = math.inf
        for v in sorted(row):
            rising = (row[v] > 0) == up
            bound = self.high[v] if rising else self.low[v]
            if bound is not None and self._value[v] == bound:
                continue
            if smallest:
                return v
            uses = sum(1 for _, other in self._rows.values() if v in other)
            if uses < fewest:
                best, fewest = v, uses
        return best

    def _pivot(self, basic: int, entering: int) -> None:
        d, row = self._rows.pop(basic)
        factor = row.pop(entering)
        # factor * entering = d * basic - the rest
        solved = {v: -f for v, f in row.items()}
        solved[basic] = d
        if factor < 0:
            factor, solved = -factor, {v: -f for v, f in solved.items()}
        for v, (other_d, other) in self._rows.items():
            share = other.get(entering)
            if share is None:
                continue
            rest = {w: f for w, f in other.items() if w != entering}
            # other_d * v = share * entering + rest
            common = math.gcd(share, factor)
            a, b = share // common, factor // common
            made = {w: f * b for w, f in rest.items()}
            for w, f in solved.items():
                total = made.get(w, 0) + a * f
                if total:
                    made[w] = total
                else:
                    made.pop(w, None)
            self._rows[v] = _reduced(other_d * b, made)
        self._rows[entering] = _reduced(factor, solved)

    def value(self, v: int) -> Fraction:
        """The value of a variable in the solution that `feasible` found."""
        if v not in self._rows:
            return Fraction(self._value[v])
        d, row = self._rows[v]
        return Fraction(sum(f * self._value[w] for w, f in row.items()), d)


def _added(
    d: int, row: Mapping[int, int], factor: int, other_d: int, other: Mapping[int, int]
) -> tuple[int, dict[int, int]]:
    """row / d + factor * other / other_d, as a divisor and terms."""
    made = {v: f * other_d for v, f in row.items()}
    for v, f in other.items():
        total = made.get(v, 0) + factor * f * d
        if total:
            made[v] = total
        else:
            made.pop(v, None)
    return _reduced(d * other_d, made)


def _reduced(d: int, row: dict[int, int]) -> tuple[int, dict[int, int]]:
    common = math.gcd(d, *row.values())
    if common > 1:
        return d // common, {v: f // common for v, f in row.items()}
    return d, row
