"""Refutation: that no whole numbers fulfil a condition, or the ones that do.

Every atom has a variable of the simplex method and the linear laws of its operation:
`d*q <= a <= d*q + d-1` for `q = a//d`, and `m <= each` for a minimum. What those leave open are
cases: a minimum is one of its operands, a disjunction holds by one of its parts, a number is whole.
A case is looked at only where the solution at hand breaks what it would decide.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from opgraft_egraph.proving.forms import (
    All,
    AtMostZero,
    Chosen,
    Condition,
    Forms,
    Least,
    OneOf,
    Quotient,
    Sum,
    at_most,
    every,
)
from opgraft_egraph.proving.simplex import Simplex

_Undo = tuple[int, bool, "int | None"]


class Refuter:
    """The search for whole numbers that fulfil conditions."""

    def __init__(self, forms: Forms) -> None:
        self.forms: Final = forms
        self.simplex: Final = Simplex()
        self.places: Final[list[int]] = []
        """The variable of each atom."""
        self.laws: Final[list[OneOf]] = []
        """Disjunctions that every atom's meaning brings along."""
        self.cases = 0
        self.stop = ""

    def refute(
        self, condition: Condition, deadline: float, most: int
    ) -> Mapping[str, int] | bool | None:
        """None: the condition never holds. Values: it may hold for these. False: unknown.

        `deadline`: of `time.perf_counter()`; `most`: cases to look at.
        """
        return _Search(self, condition, deadline, most).run()

    def learn(self) -> list[Condition]:
        """The linear laws of atoms that have no variable yet."""
        found: list[Condition] = []
        while len(self.places) < len(self.forms.atoms):
            number = len(self.places)
            self.places.append(self.simplex.variable())
            atom, own = self.forms.atoms[number], Sum(0, ((number, 1),))
            if isinstance(atom, Quotient):
                rest = atom.numerator.plus(own, -atom.divisor)
                found += [at_most(Sum(0), rest), at_most(rest, Sum(atom.divisor - 1))]
            elif isinstance(atom, Least):
                found += [at_most(own, part) for part in atom.operands]
                self.laws.append(OneOf(tuple(at_most(part, own) for part in atom.operands)))
            elif isinstance(atom, Chosen):
                yes = every([at_most(own, atom.yes), at_most(atom.yes, own), atom.condition])
                no = every([at_most(own, atom.no), at_most(atom.no, own), atom.contrary])
                self.laws.append(OneOf((yes, no)))
        return found


class _Search:
    """Depth first, by cases; bounds are taken back on the way up."""

    def __init__(self, owner: Refuter, condition: Condition, deadline: float, most: int) -> None:
        self.owner, self.simplex, self.forms = owner, owner.simplex, owner.forms
        self.deadline, self.most = deadline, most
        self.first = condition
        self.trail: list[_Undo] = []
        self.open: list[OneOf] = []
        self.lost = False
        """Whether a branch was given up."""

    def run(self) -> Mapping[str, int] | bool | None:
        for law in self.owner.learn():
            self._assert(law)
        self.open += self.owner.laws
        if not self._assert(self.first):
            return None
        # of each level of the search: the cases that are left, and what to go back to
        levels: list[tuple[Iterator[Condition], int, int]] = []
        descend = True
        while True:
            if descend:
                if time.perf_counter() > self.deadline or self.owner.cases >= self.most:
                    self.owner.stop = "cases" if self.owner.cases >= self.most else "seconds"
                    return False
                self.owner.cases += 1
                if self.simplex.feasible():
                    cases = self._cases()
                    if cases is None:
                        return self._values()
                    levels.append((iter(cases), len(self.trail), len(self.open)))
            if not levels:
                return None
            cases_left, trail, open_ = levels[-1]
            self._back(trail, open_)
            case = next(cases_left, None)
            if case is None:
                levels.pop()
                descend = False
                continue
            descend = self._assert(case)

    # ---- bounds

    def _assert(self, condition: Condition) -> bool:
        """Take a condition as true; whether it is not plainly false."""
        stack = [condition]
        while stack:
            part = stack.pop()
            if isinstance(part, All):
                stack.extend(part.parts)
            elif isinstance(part, OneOf):
                if not part.parts:
                    return False
                self.open.append(part)
            elif not self._bound(part.sum):
                return False
        return True

    def _bound(self, sum_: Sum) -> bool:
        """sum <= 0, as a bound on the variable of its terms."""
        sign = 1 if sum_.terms[0][1] > 0 else -1
        terms = {self.owner.places[a]: sign * f for a, f in sum_.terms}
        v = self.simplex.form(terms)
        simplex, limit = self.simplex, -sum_.constant
        if sign > 0:
            known = simplex.high[v]
            if known is None or limit < known:
                self.trail.append((v, True, known))
                simplex.high[v] = limit
        else:
            known = simplex.low[v]
            if known is None or -limit > known:
                self.trail.append((v, False, known))
                simplex.low[v] = -limit
        least, most = simplex.low[v], simplex.high[v]
        return least is None or most is None or least <= most

    def _back(self, trail: int, open_: int) -> None:
        while len(self.trail) > trail:
            v, upper, known = self.trail.pop()
            if upper:
                self.simplex.high[v] = known
            else:
                self.simplex.low[v] = known
        del self.open[open_:]

    # ---- cases

    def _holds(self, condition: Condition) -> bool:
        """Whether a condition holds in the solution at hand."""
        if isinstance(condition, AtMostZero):
            return self._value(condition.sum) <= 0
        if isinstance(condition, All):
            return all(self._holds(part) for part in condition.parts)
        return any(self._holds(part) for part in condition.parts)

    def _value(self, sum_: Sum) -> Fraction:
        total = Fraction(sum_.constant)
        for atom, f in sum_.terms:
            total += f * self.simplex.value(self.owner.places[atom])
        return total

    def _cases(self) -> tuple[Condition, ...] | None:
        """What to tell apart next; None: the solution at hand is one."""
        broken = [one for one in self.open if not self._holds(one)]
        if broken:
            return min(broken, key=lambda one: len(one.parts)).parts
        for number, place in enumerate(self.owner.places):
            value = self.simplex.value(place)
            if value.denominator != 1:
                own, below = Sum(0, ((number, 1),)), value.numerator // value.denominator
                return (at_most(own, Sum(below)), at_most(Sum(below + 1), own))
        return None

    def _values(self) -> dict[str, int]:
        return {
            atom: int(self.simplex.value(place))
            for atom, place in zip(self.forms.atoms, self.owner.places)
            if isinstance(atom, str)
        }
