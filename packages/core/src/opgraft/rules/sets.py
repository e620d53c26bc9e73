"""The built-in equalities as sets, from the least to the most: each holds the one before.

- `symbolic_simple`: constants folded and identities, one node at a time.
- `symbolic`: normal forms of sums, divisions, comparisons, selects and casts.
- `sym`: besides, what a condition proves about the values it guards, and reductions.

The rules of the float levels `reassoc` and `unsafe` are in none of them: see `equalities_at`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from opgraft.ir.matcher import EqualitySet
from opgraft.rules import (
    bits,
    boolean,
    cast,
    compare,
    floating,
    folding,
    integer,
    reassoc,
    reduction,
    select,
    unsafe,
    validity,
)
from opgraft.rules import (
    divmod as division,
)

FloatLevel: TypeAlias = Literal["strict", "reassoc", "unsafe"]


def joined(*sets: EqualitySet) -> EqualitySet:
    """The rules of all these sets, in order."""
    return EqualitySet([rule for one in sets for rule in one.rules])


symbolic_simple: Final = joined(
    folding.RULES,
    integer.SIMPLE,
    division.SIMPLE,
    boolean.SIMPLE,
    compare.SIMPLE,
    select.SIMPLE,
    cast.SIMPLE,
    bits.SIMPLE,
    floating.SIMPLE,
)
symbolic: Final = joined(
    symbolic_simple,
    integer.FORMS,
    division.FORMS,
    boolean.FORMS,
    compare.FORMS,
    select.FORMS,
    cast.FORMS,
    bits.FORMS,
    floating.FORMS,
)
sym: Final = joined(symbolic, reduction.RULES, validity.rules(symbolic))

_LEVELS: Final[Mapping[FloatLevel, EqualitySet]] = {
    "strict": sym,
    "reassoc": joined(sym, reassoc.RULES),
    "unsafe": joined(sym, unsafe.RULES, reassoc.RULES),
}


def equalities_at(level: FloatLevel) -> EqualitySet:
    """`sym` with the rules that this float level allows (the setting FLOAT)."""
    return _LEVELS[level]
