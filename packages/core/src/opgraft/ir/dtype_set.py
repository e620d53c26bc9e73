"""`DTypeSet`: sets of dtypes for patterns, given by kinds, and the groups that rules ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from opgraft.dtype import DType, to_dtype


class DTypeSet:
    """A set of dtypes given by kinds and by members; vectors count as their scalars.

    >>> from opgraft.dtype import dtypes
    >>> dtypes.int8.vec(4) in ints, dtypes.index in ints, dtypes.index in (ints | index)
    (True, False, True)
    """

    __slots__ = ("kinds", "members")

    def __init__(self, kinds: Iterable[str] = (), members: Iterable[DType] = ()) -> None:
        self.kinds: Final = frozenset(kinds)
        self.members: Final = tuple(dict.fromkeys(members))

    def __contains__(self, dtype: object) -> bool:
        return isinstance(dtype, DType) and (
            dtype.kind in self.kinds or dtype in self.members or dtype.scalar in self.members
        )

    def __or__(self, other: DTypeSet | DType) -> DTypeSet:
        if isinstance(other, DType):
            return DTypeSet(self.kinds, (*self.members, other))
        return DTypeSet(self.kinds | other.kinds, self.members + other.members)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DTypeSet)
            and self.kinds == other.kinds
            and set(self.members) == set(other.members)
        )

    def __hash__(self) -> int:
        return hash((self.kinds, frozenset(self.members)))

    def __bool__(self) -> bool:
        return bool(self.kinds or self.members)

    def __repr__(self) -> str:
        return "{" + ", ".join([*sorted(self.kinds), *(m.name for m in self.members)]) + "}"


# Groups for patterns. By kind, so that unusual widths (a checker's int4) belong to them too.
bools: Final = DTypeSet(["bool"])
signed: Final = DTypeSet(["int"])
unsigned: Final = DTypeSet(["uint"])
ints: Final = DTypeSet(["int", "uint"])
"""Fixed-width integers: they wrap."""
index: Final = DTypeSet(["index"])
"""Unbounded integers."""
integers: Final = ints | index
floats: Final = DTypeSet(["float"])
numbers: Final = integers | floats
values: Final = numbers | bools
"""Everything but void."""


def reachable(dtypes: DTypeSet, kind: str) -> bool:
    """Whether a dtype of this kind is in the set."""
    return kind in dtypes.kinds or any(m.kind == kind for m in dtypes.members)


DTypeSpec: TypeAlias = "DType | DTypeSet | str | Iterable[DType | DTypeSet | str]"


def dtype_set(spec: DTypeSpec | None) -> DTypeSet | None:
    """The set that a pattern's `dtype` stands for; None: any dtype."""
    if spec is None or isinstance(spec, DTypeSet):
        return spec
    if isinstance(spec, (DType, str)):
        return DTypeSet((), (to_dtype(spec),))
    joined = DTypeSet()
    for item in spec:
        joined = joined | (item if isinstance(item, DTypeSet) else to_dtype(item))
    return joined
