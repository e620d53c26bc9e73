"""`Book`: rules in the form that both engines take, with the dtypes and heads that they mention.

A pattern is a list of `Atom`s, from the root inward: each a node whose head a selector accepts,
whose class and children are slots of the match. Slots that occur in two places join them. What
is asked of a class (a constant, a dtype) is a guard on its slot. A rule that can match in several
ways, by alternatives or orders, is several ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from opgraft_egraph.codes import (
    CAPTURES,
    FROM_CHANGED,
    FROM_CHILD,
    FROM_CLASS,
    FROM_FACTS,
    SLOTS,
    UNTYPED,
)


class DTypeRow(NamedTuple):
    """A dtype as the engines see it; `sets` has a bit for each set of dtypes that it is in."""

    kind: int
    bits: int
    exponent: int
    mantissa: int
    lanes: int
    sets: int


class HeadRow(NamedTuple):
    """What the engines know of a head: see csrc/interface.h."""

    meaning: int
    dtype: int
    arity: int
    commutative: bool = False
    number: int = 0
    value: int = 0
    low: int = 0
    high: int = 0
    cost: float = 1.0


class Guard(NamedTuple):
    kind: int
    slot: int
    set: int = 0
    number: int = 0


class Atom(NamedTuple):
    """A node of a pattern."""

    selector: int
    out: int
    row: int
    kids: tuple[int, ...]
    swap: bool = False
    """The first two children may stand the other way round."""
    open: bool = False
    """More children may follow."""
    each: bool = False
    """There may be any number of children; guards of slot EACH are asked of each."""
    guards: tuple[Guard, ...] = ()
    """Those of slot EACH."""


class Step(NamedTuple):
    source: int
    old: bool
    atom: Atom | None
    slot: int
    """FROM_FACTS: of the class."""
    position: int
    known: int
    guards: tuple[Guard, ...]


class Way(NamedTuple):
    """One way in which a rule can match."""

    atoms: tuple[Atom, ...]
    guards: tuple[Guard, ...]
    captures: tuple[int, ...]
    """The slots whose dtypes choose the right side."""
    slots: int
    facts: tuple[int, ...]
    """Slots of classes that are looked at anew when more is known of them."""
    terms: bool
    """Whether a cheaper term counts as "more"."""

    @property
    def root(self) -> int:
        return self.atoms[0].out


class Instruction(NamedTuple):
    kind: int
    out: int
    kids: tuple[int, ...] = ()
    symbol: int = 0
    dtype: int = 0
    number: int = 0
    value: int = 0
    code: tuple[int, ...] = ()


class Test(NamedTuple):
    code: tuple[int, ...]
    expected: bool


class Path(NamedTuple):
    """What a rule does where all its tests come out as expected; result -1: it declines."""

    tests: tuple[Test, ...]
    instructions: tuple[Instruction, ...]
    result: int


class Variant(NamedTuple):
    """The right sides for captures of these dtypes; without paths the function is called."""

    dtypes: tuple[int, ...]
    paths: tuple[Path, ...]


class Book:
    """Grows as dtypes, symbols and variants are met; ways and selectors are there from the start.

    `version` changes whenever something is added: an engine then takes a new copy.
    """

    def __init__(self) -> None:
        self.ways: Final[list[Way]] = []
        self.plans: Final[list[tuple[tuple[Step, ...], ...]]] = []
        self.variants: Final[list[list[Variant]]] = []
        self.dtypes: Final = [DTypeRow(UNTYPED, 0, 0, 0, 1, 0)]
        self.symbols: Final[list[tuple[HeadRow, int]]] = []
        self.selectors = 0
        self.version = 0
        self.copies: Final[dict[str, Any]] = {}
        """Of engines: what they made of this version."""

    def add_way(self, way: Way) -> int:
        if way.slots > SLOTS or len(way.captures) > CAPTURES:
            raise OverflowError("a pattern with too many parts")
        self.ways.append(way)
        self.plans.append(plans_of(way))
        self.variants.append([])
        self.version += 1
        return len(self.ways) - 1

    def add_variant(self, way: int, variant: Variant) -> None:
        self.variants[way].append(variant)
        self.version += 1

    def add_dtype(self, row: DTypeRow) -> int:
        self.dtypes.append(row)
        self.version += 1
        return len(self.dtypes) - 1

    def add_symbol(self, row: HeadRow, selects: int) -> int:
        self.symbols.append((row, selects))
        self.version += 1
        return len(self.symbols) - 1

    @property
    def words(self) -> int:
        """64-bit words that the bits of all selectors take."""
        return max(1, (self.selectors + 63) // 64)


# ---- plans


def plans_of(way: Way) -> tuple[tuple[Step, ...], ...]:
    """One plan for each atom to start from, and one for each class that facts may start from."""
    made = [_plan(way, i, None) for i in range(len(way.atoms))]
    made += [_plan(way, None, slot) for slot in way.facts]
    return tuple(made)


_OUT: Final = 1 << 7


def _plan(way: Way, start: int | None, fact: int | None) -> tuple[Step, ...]:
    bound: set[int] = set()
    steps: list[Step] = []
    todo = list(range(len(way.atoms)))
    if fact is not None:
        bound.add(fact)
        steps.append(Step(FROM_FACTS, False, None, fact, 0, 0, _guards(way, {fact})))
    while todo:
        i, source, position = (
            (start, FROM_CHANGED, 0)
            if start is not None and not steps
            else _next(way.atoms, todo, bound)
        )
        todo.remove(i)
        atom = way.atoms[i]
        known, new = 0, set[int]()
        for k, slot in enumerate(atom.kids):
            if slot in bound or slot in new:
                known |= 1 << k
            new.add(slot)
        if atom.out in bound or atom.out in new:
            known |= _OUT
        new.add(atom.out)
        # of the atoms before the one that it starts from, only those that did not change
        old = start is None or i < start
        guards = _guards(way, new - bound)
        steps.append(Step(source, old, atom, 0, position, known, (*atom.guards, *guards)))
        bound |= new
    return tuple(steps)


def _guards(way: Way, slots: set[int]) -> tuple[Guard, ...]:
    return tuple(g for g in way.guards if g.slot in slots)


def _next(atoms: Sequence[Atom], todo: list[int], bound: set[int]) -> tuple[int, int, int]:
    """The next atom to join: one whose class is known, else one of whose children is."""
    for i in todo:
        if atoms[i].out in bound:
            return i, FROM_CLASS, 0
    for i in todo:
        for k, slot in enumerate(atoms[i].kids):
            if slot in bound:
                return i, FROM_CHILD, k
    raise ValueError("the parts of a pattern hang together")
