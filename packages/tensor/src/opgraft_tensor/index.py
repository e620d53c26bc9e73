"""Index expressions of the planner in one normal form: a constant plus multiples of atoms.

An atom is a range (a loop index), a floor quotient or remainder of an index by a positive
number, or a datum: the value of an integer node at some index, clamped to 0 .. extent-1. All are
interned in an `Indices` table that belongs to one plan, so `is` compares indices, and equal
demands are found by a look-up. Every index knows its bounds, its free ranges and its width.

The form serves to compare demands while a graph is planned; it must be cheap and the same in
every process. What an index costs to compute is the optimizer's business, after emission.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from math import gcd
from typing import Any, Final, TypeAlias


class AtomKind(Enum):
    """What an atom is."""

    OUTER = auto()  # a loop over a stored array
    REDUCE = auto()  # a loop that a reduction closes
    INNER = auto()  # a loop over a local array
    QUOTIENT = auto()
    REMAINDER = auto()
    DATUM = auto()


_EMPTY: Final[frozenset[Atom]] = frozenset()


class Atom:
    """A range, quotient, remainder or datum. Equal only to itself; ordered by `serial`."""

    __slots__ = ("divisor", "extent", "free", "high", "inside", "kind", "low", "serial", "width")

    kind: AtomKind
    serial: int
    low: int
    high: int
    extent: int
    """Of a range or a datum: values are 0 .. extent-1."""
    inside: Any
    """The Lin that is divided; of a datum (node, its index)."""
    divisor: int
    free: frozenset[Atom]
    width: int

    def __repr__(self) -> str:
        if self.kind is AtomKind.QUOTIENT:
            return f"(({self.inside!r})//{self.divisor})"
        if self.kind is AtomKind.REMAINDER:
            return f"(({self.inside!r})%{self.divisor})"
        if self.kind is AtomKind.DATUM:
            return f"data{self.serial}"
        return f"{'k' if self.kind is AtomKind.REDUCE else 'i'}{self.serial}"


class Lin:
    """constant + sum of coefficient * atom; made by `Indices` alone."""

    __slots__ = ("bare", "constant", "free", "high", "low", "terms", "width")

    constant: int
    terms: tuple[tuple[Atom, int], ...]
    low: int
    high: int
    free: frozenset[Atom]
    width: int
    """How many atoms it takes to write it down."""
    bare: Atom | None
    """The range, where this is a range and nothing else."""

    def __repr__(self) -> str:
        parts = [(f"{m}*" if m != 1 else "") + repr(a) for a, m in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return "+".join(parts)


Index: TypeAlias = tuple[Lin, ...]


def ranges_of(index: Sequence[Lin]) -> frozenset[Atom]:
    """All free ranges of an index."""
    if len(index) == 1:
        return index[0].free
    return _EMPTY.union(*[x.free for x in index])


class Indices:
    """The table of one plan."""

    def __init__(self) -> None:
        self._lins: dict[tuple[int, tuple[tuple[Atom, int], ...]], Lin] = {}
        self._atoms: dict[tuple[object, ...], Atom] = {}
        self._serial = 0
        self.moved: dict[tuple[Any, Index], Any] = {}
        """What views.py made of (view, index)."""
        self.zero = self.const(0)

    # ---- making

    def _atom(
        self,
        kind: AtomKind,
        low: int,
        high: int,
        *,
        inside: Any = None,
        divisor: int = 0,
        free: frozenset[Atom] = _EMPTY,
        width: int = 1,
    ) -> Atom:
        made = Atom()
        made.kind, made.low, made.high, made.extent = kind, low, high, high + 1
        made.inside, made.divisor, made.width = inside, divisor, width
        made.serial = self._serial
        self._serial += 1
        made.free = free
        return made

    def range(self, extent: int, kind: AtomKind) -> Atom:
        """A new loop index 0 .. extent-1."""
        made = self._atom(kind, 0, extent - 1)
        made.extent = extent  # as it is: it may be a variable size
        made.free = frozenset((made,))
        return made

    def datum(self, node: Any, index: Index, extent: int) -> Lin:
        """The value of an integer node at `index`, clamped to 0 .. extent-1."""
        if extent == 1:
            return self.zero
        key = (AtomKind.DATUM, node, index, extent)
        found = self._atoms.get(key)
        if found is None:
            width = 1 + sum(x.width for x in index)
            found = self._atoms[key] = self._atom(
                AtomKind.DATUM,
                0,
                extent - 1,
                inside=(node, index),
                free=ranges_of(index) if index else _EMPTY,
                width=width,
            )
        return self._lin(0, ((found, 1),))

    def _lin(self, constant: int, terms: tuple[tuple[Atom, int], ...]) -> Lin:
        key = (constant, terms)
        found = self._lins.get(key)
        if found is None:
            found = self._lins[key] = Lin()
            found.constant, found.terms = constant, terms
            low = high = constant
            width = 1
            free: frozenset[Atom] = _EMPTY
            for atom, m in terms:
                a, b = m * atom.low, m * atom.high
                low += a if a < b else b
                high += b if a < b else a
                free = atom.free if not free else free | atom.free
                width += atom.width
            found.low, found.high, found.free, found.width = low, high, free, width
            found.bare = None
            if constant == 0 and len(terms) == 1 and terms[0][1] == 1:
                atom = terms[0][0]
                if atom.kind in (AtomKind.OUTER, AtomKind.REDUCE, AtomKind.INNER):
                    found.bare = atom
        return found

    def const(self, value: int) -> Lin:
        return self._lin(value, ())

    def of(self, atom: Atom) -> Lin:
        """A range as an index; of extent 1 it is 0."""
        return self._lin(0, ((atom, 1),)) if atom.extent != 1 else self.zero

    def _sum(self, constant: int, parts: dict[Atom, int]) -> Lin:
        """The sum, where m*(x%n) + m*n*(x//n) has become m*x again."""
        again = True
        while again:
            again = False
            for atom, m in list(parts.items()):
                if atom.kind is not AtomKind.REMAINDER or not m:
                    continue
                other = self._atoms.get((AtomKind.QUOTIENT, atom.inside, atom.divisor))
                if other is None or parts.get(other) != m * atom.divisor:
                    continue
                del parts[atom], parts[other]
                constant += m * atom.inside.constant
                for inner, k in atom.inside.terms:
                    parts[inner] = parts.get(inner, 0) + m * k
                again = True
                break
        terms = [(a, m) for a, m in parts.items() if m]
        if len(terms) > 1:
            terms.sort(key=_serial)
        return self._lin(constant, tuple(terms))

    # ---- arithmetic

    def add(self, x: Lin, y: Lin, times: int = 1) -> Lin:
        """x + times*y."""
        if not y.terms:
            return self._lin(x.constant + times * y.constant, x.terms) if y.constant else x
        if not x.terms and times == 1:
            return self._lin(x.constant + y.constant, y.terms)
        parts = dict(x.terms)
        for atom, m in y.terms:
            parts[atom] = parts.get(atom, 0) + times * m
        return self._sum(x.constant + times * y.constant, parts)

    def mul(self, x: Lin, by: int) -> Lin:
        if by == 1:
            return x
        if by == 0:
            return self.zero
        return self._lin(x.constant * by, tuple([(a, m * by) for a, m in x.terms]))

    def shift(self, x: Lin, by: int) -> Lin:
        return self._lin(x.constant + by, x.terms) if by else x

    def _split(self, x: Lin, by: int) -> tuple[Lin, Lin]:
        """x as by*quotient + rest, the coefficients split toward zero.

        With floor, -64 under 128 would become +64 and -128, and flips would never cancel.
        """
        quotient: dict[Atom, int] = {}
        rest: dict[Atom, int] = {}
        for atom, m in x.terms:
            whole = abs(m) // by * (1 if m > 0 else -1)
            if whole:
                quotient[atom] = whole
            if m != whole * by:
                rest[atom] = m - whole * by
        return self._sum(x.constant // by, quotient), self._sum(x.constant % by, rest)

    def div(self, x: Lin, by: int) -> Lin:
        """floor(x / by), by > 0."""
        total = self.zero
        while True:
            if by == 1:
                return self.add(total, x)
            quotient, rest = self._split(x, by)
            total = self.add(total, quotient)
            if rest.low // by == rest.high // by:
                return self.shift(total, rest.low // by)
            common = by
            for _, m in rest.terms:
                common = gcd(common, m)
            if common > 1:
                # the constant's part below the common factor never reaches the next multiple
                x = self._lin(
                    rest.constant // common, tuple([(a, m // common) for a, m in rest.terms])
                )
                by //= common
                continue
            if len(rest.terms) == 1 and rest.constant == 0 and rest.terms[0][1] == 1:
                atom = rest.terms[0][0]
                if atom.kind is AtomKind.QUOTIENT:  # (x//a)//b = x//(a*b)
                    x, by = atom.inside, atom.divisor * by
                    continue
            return self.add(total, self._divided(AtomKind.QUOTIENT, rest, by))

    def mod(self, x: Lin, by: int) -> Lin:
        """x - by*floor(x / by), by > 0."""
        times, offset = 1, 0
        while True:
            if by == 1:
                return self.const(offset)
            _, rest = self._split(x, by)
            if rest.low // by == rest.high // by:
                found = self.shift(rest, -(rest.low // by) * by)
                return self.shift(self.mul(found, times), offset)
            common = by
            for _, m in rest.terms:
                common = gcd(common, m)
            if common > 1:
                offset += times * (rest.constant % common)
                times *= common
                x = self._lin(
                    rest.constant // common, tuple([(a, m // common) for a, m in rest.terms])
                )
                by //= common
                continue
            flat: dict[Atom, int] = {}
            constant = rest.constant
            changed = False
            for atom, m in rest.terms:
                if atom.kind is AtomKind.REMAINDER and atom.divisor % by == 0:
                    changed = True
                    constant += m * atom.inside.constant
                    for inner, k in atom.inside.terms:
                        flat[inner] = flat.get(inner, 0) + m * k
                else:
                    flat[atom] = flat.get(atom, 0) + m
            if changed:  # (x % ab) % b = x % b
                x = self._sum(constant, flat)
                continue
            found = self._divided(AtomKind.REMAINDER, rest, by)
            return self.shift(self.mul(found, times), offset)

    def _divided(self, kind: AtomKind, x: Lin, by: int) -> Lin:
        key = (kind, x, by)
        found = self._atoms.get(key)
        if found is None:
            low, high = (x.low // by, x.high // by)
            if kind is AtomKind.REMAINDER:
                low, high = 0, by - 1
            found = self._atoms[key] = self._atom(
                kind, low, high, inside=x, divisor=by, free=x.free, width=1 + x.width
            )
        return self._lin(0, ((found, 1),))

    def substitute(self, x: Lin, replaced: Callable[[Atom], Lin], memo: dict[Lin, Lin]) -> Lin:
        """x with other indices in place of its ranges; recursion as deep as divisions nest."""
        found = memo.get(x)
        if found is not None:
            return found
        total = self.const(x.constant)
        for atom, m in x.terms:
            kind = atom.kind
            if kind is AtomKind.QUOTIENT:
                part = self.div(self.substitute(atom.inside, replaced, memo), atom.divisor)
            elif kind is AtomKind.REMAINDER:
                part = self.mod(self.substitute(atom.inside, replaced, memo), atom.divisor)
            elif kind is AtomKind.DATUM:
                node, index = atom.inside
                moved = tuple([self.substitute(y, replaced, memo) for y in index])
                part = self.datum(node, moved, atom.extent)
            else:
                part = replaced(atom)
            total = self.add(total, part, m)
        memo[x] = total
        return total

    # ---- many dimensions

    def ravel(self, index: Sequence[Lin], shape: Sequence[int]) -> Lin:
        """The position in row-major order."""
        flat = self.zero
        for x, extent in zip(index, shape):
            flat = self.add(self.mul(flat, extent), x)
        return flat

    def unravel(self, flat: Lin, shape: Sequence[int]) -> Index:
        """The index of a position; of the first dimension no remainder is taken."""
        found: list[Lin] = []
        for extent in reversed(shape[1:]):
            found.append(self.mod(flat, extent))
            flat = self.div(flat, extent)
        if shape:
            found.append(flat)
        return tuple(reversed(found))


def _serial(term: tuple[Atom, int]) -> int:
    return term[0].serial
