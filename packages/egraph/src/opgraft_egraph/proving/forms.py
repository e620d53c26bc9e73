"""Normal forms: a whole number as a sum of atoms with factors, a truth as a tree of conditions.

Sums are n-ary. A division takes what its divisor divides out of its numerator, divisions of
divisions are one, a remainder is `a - b*(a//b)`, and a maximum is a minimum of the opposites, less
the part that all its operands share. So what is equal by these laws is one atom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from opgraft.api import Ops, UOp, dtypes


@dataclass(frozen=True)
class Sum:
    """`constant` and factors of atoms, by the number of the atom, in order."""

    constant: int
    terms: tuple[tuple[int, int], ...] = ()

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """self + factor * other"""
        terms = dict(self.terms)
        for atom, f in other.terms:
            total = terms.get(atom, 0) + factor * f
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Sum(self.constant + factor * other.constant, tuple(sorted(terms.items())))

    def times(self, factor: int) -> Sum:
        return Sum(0).plus(self, factor)


@dataclass(frozen=True)
class Quotient:
    """numerator // divisor, the divisor at least 2."""

    numerator: Sum
    divisor: int


@dataclass(frozen=True)
class Least:
    """The least of several sums."""

    operands: tuple[Sum, ...]


@dataclass(frozen=True)
class Chosen:
    """One sum where a condition holds, another where it does not."""

    condition: Condition
    contrary: Condition
    yes: Sum
    no: Sum


@dataclass(frozen=True)
class Unknown:
    """A number of which no more is known than which operation on which sums it is."""

    op: str
    operands: tuple[Sum, ...]


@dataclass(frozen=True)
class AtMostZero:
    """sum <= 0"""

    sum: Sum


@dataclass(frozen=True)
class All:
    """Each of them holds. With none: true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class OneOf:
    """One of them holds, at least. With none: false."""

    parts: tuple[Condition, ...]


Atom: TypeAlias = "str | Quotient | Least | Chosen | Unknown"
"""A variable's name, or what an operation makes of sums."""
Condition: TypeAlias = "AtMostZero | All | OneOf"

TRUE: Final = All(())
FALSE: Final = OneOf(())


class Forms:
    """The atoms of some statements, each with its number."""

    def __init__(self) -> None:
        self.atoms: Final[list[Atom]] = []
        self._numbers: Final[dict[Atom, int]] = {}
        self._sums: Final[dict[UOp, Sum]] = {}
        self._conditions: Final[dict[tuple[UOp, bool], Condition]] = {}

    def _atom(self, atom: Atom) -> Sum:
        number = self._numbers.get(atom)
        if number is None:
            number = self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
        return Sum(0, ((number, 1),))

    # ---- of nodes

    def condition(self, truth: UOp, holds: bool = True) -> Condition:
        """What it takes for a truth to hold, or not to hold."""
        for n in truth.toposort():
            if n.dtype is dtypes.bool:
                for wanted in (True, False):
                    self._conditions.setdefault((n, wanted), self._of_truth(n, wanted))
            elif n not in self._sums:
                self._sums[n] = self._of_number(n)
        return self._conditions[truth, holds]

    def _of_number(self, n: UOp) -> Sum:
        if n.op is Ops.VAR:
            return self._atom(n.arg[0])
        if n.is_const:
            return Sum(int(n.const_value))
        if n.op is Ops.WHERE:
            return self._chosen(n.src[0], self._sums[n.src[1]], self._sums[n.src[2]])
        if n.op is Ops.CAST and n.src[0].dtype is dtypes.bool:
            return self._chosen(n.src[0], Sum(1), Sum(0))
        parts = [self._sums[s] for s in n.src]
        if n.op is Ops.ADD:
            return parts[0].plus(parts[1])
        if n.op is Ops.MUL:
            return self._product(parts[0], parts[1])
        if n.op is Ops.MIN:
            return self.least(parts)
        if n.op is Ops.MAX:
            return self.least([p.times(-1) for p in parts]).times(-1)
        if n.op is Ops.IDIV and not parts[1].terms:
            return self.quotient(parts[0], parts[1].constant)
        if n.op is Ops.MOD and not parts[1].terms:
            divisor = parts[1].constant
            if not divisor:
                return Sum(0)
            return parts[0].plus(self.quotient(parts[0], divisor), -divisor)
        return self._atom(Unknown(n.op.name, tuple(parts)))

    def _of_truth(self, n: UOp, holds: bool) -> Condition:
        if n.is_const:
            return TRUE if n.const_value == holds else FALSE
        known, sums = self._conditions, self._sums
        truths = all(s.dtype is dtypes.bool for s in n.src)
        if n.op is Ops.CMPLT and not truths:
            low, high = sums[n.src[0]], sums[n.src[1]]
            return at_most(low.plus(Sum(1)), high) if holds else at_most(high, low)
        if n.op in (Ops.CMPEQ, Ops.CMPNE) and not truths:
            low, high = sums[n.src[0]], sums[n.src[1]]
            if (n.op is Ops.CMPEQ) == holds:
                return every([at_most(low, high), at_most(high, low)])
            return either([at_most(low.plus(Sum(1)), high), at_most(high.plus(Sum(1)), low)])
        if n.op is Ops.WHERE:
            c, a, b = n.src
            return either(
                [
                    every([known[c, True], known[a, holds]]),
                    every([known[c, False], known[b, holds]]),
                ]
            )
        if truths and len(n.src) == 2:
            a, b = n.src
            if n.op in (Ops.AND, Ops.MUL, Ops.MIN, Ops.OR, Ops.ADD, Ops.MAX):
                both = n.op in (Ops.AND, Ops.MUL, Ops.MIN)
                join = every if both == holds else either
                return join([known[a, holds], known[b, holds]])
            if n.op in (Ops.XOR, Ops.CMPNE, Ops.CMPEQ, Ops.CMPLT):
                if n.op is Ops.CMPLT:
                    pairs = (
                        [(False, True)] if holds else [(True, True), (False, False), (True, False)]
                    )
                elif (n.op is Ops.CMPEQ) == holds:
                    pairs = [(True, True), (False, False)]
                else:
                    pairs = [(True, False), (False, True)]
                return either([every([known[a, p], known[b, q]]) for p, q in pairs])
        parts = tuple(sums[s] for s in n.src if s in sums)
        own = self._atom(Unknown(n.op.name, parts))
        # a truth that nothing is known of, as a number: 0 or less is false
        return at_most(Sum(1), own) if holds else at_most(own, Sum(0))

    # ---- normal forms

    def _product(self, a: Sum, b: Sum) -> Sum:
        if not a.terms:
            return b.times(a.constant)
        if not b.terms:
            return a.times(b.constant)
        total = Sum(a.constant * b.constant)
        total = total.plus(Sum(0, a.terms), b.constant).plus(Sum(0, b.terms), a.constant)
        for p, f in a.terms:
            for q, g in b.terms:
                pair = tuple(Sum(0, ((atom, 1),)) for atom in sorted((p, q)))
                total = total.plus(self._atom(Unknown("MUL", pair)), f * g)
        return total

    def quotient(self, a: Sum, divisor: int) -> Sum:
        """a // divisor"""
        if not divisor:
            return Sum(0)
        if divisor < 0:
            return self.quotient(a.times(-1), -divisor)
        # the multiples of the divisor come out
        whole = Sum(a.constant // divisor, tuple((v, f // divisor) for v, f in a.terms))
        whole = Sum(whole.constant, tuple((v, f) for v, f in whole.terms if f))
        rest = a.plus(whole, -divisor)
        common = math.gcd(divisor, *(f for _, f in rest.terms))
        if common > 1:
            # (g*s + r) // (g*d) is s // d where 0 <= r < g
            rest = Sum(rest.constant // common, tuple((v, f // common) for v, f in rest.terms))
            divisor //= common
        if divisor == 1:
            return whole.plus(rest)
        if not rest.terms:
            return whole.plus(Sum(rest.constant // divisor))
        if len(rest.terms) == 1 and rest.terms[0][1] == 1:
            inner = self.atoms[rest.terms[0][0]]
            if isinstance(inner, Quotient):
                # (a//b + c) // d is (a + b*c) // (b*d)
                moved = inner.numerator.plus(Sum(inner.divisor * rest.constant))
                return whole.plus(self.quotient(moved, inner.divisor * divisor))
        return whole.plus(self._atom(Quotient(rest, divisor)))

    def least(self, operands: Iterable[Sum]) -> Sum:
        """The least of sums, less the part that all share."""
        flat: dict[Sum, None] = {}
        for one in operands:
            for part in self._least_parts(one):
                flat[part] = None
        shared = shared_part(list(flat))
        lowest: dict[tuple[tuple[int, int], ...], int] = {}
        for one in flat:
            rest = one.plus(shared, -1)
            known = lowest.get(rest.terms)
            lowest[rest.terms] = rest.constant if known is None else min(known, rest.constant)
        parts = [Sum(constant, terms) for terms, constant in sorted(lowest.items())]
        base = parts[0].constant
        parts = [part.plus(Sum(-base)) for part in parts]
        shared = shared.plus(Sum(base))
        if len(parts) == 1:
            return shared.plus(parts[0])
        return shared.plus(self._atom(Least(tuple(parts))))

    def _least_parts(self, a: Sum) -> list[Sum]:
        """The operands, where a sum is a minimum plus something."""
        for atom, factor in a.terms:
            inner = self.atoms[atom]
            if factor == 1 and isinstance(inner, Least):
                rest = a.plus(Sum(0, ((atom, 1),)), -1)
                return [part.plus(rest) for part in inner.operands]
        return [a]

    def _chosen(self, truth: UOp, yes: Sum, no: Sum) -> Sum:
        condition, contrary = self._conditions[truth, True], self._conditions[truth, False]
        if condition == TRUE or yes == no:
            return yes
        if condition == FALSE:
            return no
        return self._atom(Chosen(condition, contrary, yes, no))


def shared_part(sums: list[Sum]) -> Sum:
    """The terms that stand in every sum with the same factor."""
    common: Mapping[int, int] = dict(sums[0].terms)
    for one in sums[1:]:
        own = dict(one.terms)
        common = {atom: f for atom, f in common.items() if own.get(atom) == f}
    return Sum(0, tuple(sorted(common.items())))


def at_most(a: Sum, b: Sum) -> Condition:
    """a <= b, in whole numbers: the factors have no common divisor."""
    difference = a.plus(b, -1)
    if not difference.terms:
        return TRUE if difference.constant <= 0 else FALSE
    common = math.gcd(*(f for _, f in difference.terms))
    if common > 1:
        # g*s + c <= 0 is s <= floor(-c / g)
        terms = tuple((v, f // common) for v, f in difference.terms)
        difference = Sum(-(-difference.constant // common), terms)
    return AtMostZero(difference)


def every(parts: Iterable[Condition]) -> Condition:
    """The conjunction, flat."""
    flat: dict[Condition, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, All) else (part,):
            if inner == FALSE:
                return FALSE
            flat[inner] = None
    return next(iter(flat)) if len(flat) == 1 else All(tuple(flat))


def either(parts: Iterable[Condition]) -> Condition:
    """The disjunction, flat."""
    flat: dict[Condition, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, OneOf) else (part,):
            if inner == TRUE:
                return TRUE
            flat[inner] = None
    return next(iter(flat)) if len(flat) == 1 else OneOf(tuple(flat))
