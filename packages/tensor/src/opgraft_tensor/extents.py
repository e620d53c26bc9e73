"""`Extent`: a variable size as it stands in the shapes of the graph.

It is an int, the greatest size, and equal only to itself. Memory is laid out for the greatest
size and costs are reckoned with it, so everything that only counts or lays out elements needs to
know nothing of variables. In canonical graphs an extent has no value: a plan serves every value.
What users hold is a `Bound` (sizes.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opgraft.ir.uop import UOp, head_of, node, toposort

_in_use: Final[list[bool]] = []
"""Not empty once there was a variable size in this process: until then nobody looks for one."""


class Extent(int):
    """The greatest size, of a variable by name; `value` is the size now, None: any."""

    name: str
    low: int
    value: int | None

    def __new__(cls, name: str, low: int, high: int, value: int | None) -> Extent:
        made = int.__new__(cls, high)
        made.name, made.low, made.value = name, low, value
        if not _in_use:
            _in_use.append(True)
        return made

    @property
    def variable(self) -> tuple[str, int, int]:
        """Its name, and the least and the greatest size."""
        return self.name, self.low, int(self)

    @property
    def symbol(self) -> UOp:
        """The variable of kernels."""
        return UOp.variable(*self.variable)

    def bound(self, value: int | None) -> Extent:
        """The same variable with another value."""
        return Extent(*self.variable, value)

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is Extent and other.variable == self.variable and other.value == self.value
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.variable, self.value))

    def __repr__(self) -> str:
        return f"{self.name}<={int(self)}" if self.value is None else f"{self.name}={self.value}"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return Extent, (*self.variable, self.value)


def told_apart(one: int, other: int) -> str:
    """Why two sizes are not one; with the remedy where it is about variables."""
    if not (isinstance(one, Extent) and isinstance(other, Extent)):
        return f"{one}, {other}"
    if one.variable == other.variable:
        return f"{one}, {other}: a variable has one value in a computation"
    kinds = [f"{n} of {n.low} to {int(n)}" for n in (one, other)]
    return (
        f"{kinds[0]} and {kinds[1]} are two variables: bind one Variable, with one name and one "
        "pair of bounds, for both"
    )


class Symbolic:
    """What a size is combined with as an array is, not as the number that it is now."""

    __slots__ = ()


class Sized:
    """What users give for a variable size: it has an `extent`."""

    __slots__ = ()

    @property
    def extent(self) -> Extent:
        raise NotImplementedError


def in_use() -> bool:
    """Whether there is any variable size in this process."""
    return bool(_in_use)


def is_variable(size: Sequence[int]) -> bool:
    """Whether a shape has a variable size."""
    return any(isinstance(n, Extent) for n in size)


def stated(n: Any) -> int:
    """A size as users give it, as one of the graph."""
    if isinstance(n, Sized):
        return n.extent
    return n if isinstance(n, int) else int(n.__index__())


def up_to(end: Sized, extent: int) -> int:
    """The count of a part from the beginning of an axis up to a variable size."""
    count = end.extent
    if isinstance(extent, Sized) or int(count) > extent:
        raise ValueError(
            f"a part of {count!r} of an axis of {extent!r}: the axis must hold the greatest size, "
            f"{int(count)}"
        )
    return count


def numbers(size: Sequence[int]) -> tuple[int, ...]:
    """The sizes now."""
    return tuple([(n.value or 0) if isinstance(n, Extent) else n for n in size])


def limit(extent: int) -> int | UOp:
    """A size as kernels know it."""
    return extent.symbol if isinstance(extent, Extent) else extent


def label(extent: int) -> str:
    """A size in the name of a kernel."""
    return extent.name if isinstance(extent, Extent) else str(extent)


def free(size: Sequence[int]) -> tuple[int, ...]:
    """A shape with any values."""
    return tuple([n.bound(None) if isinstance(n, Extent) else n for n in size])


def bound(size: Sequence[int], values: Mapping[str, int]) -> tuple[int, ...]:
    """A shape with these values of its variables; the others keep theirs."""
    return tuple(
        [n.bound(values.get(n.name, n.value)) if isinstance(n, Extent) else n for n in size]
    )


class Bindings:
    """The values of the variables of one computation, which has one value for each."""

    def __init__(self) -> None:
        self._extents: dict[str, Extent] = {}

    @property
    def values(self) -> dict[str, int]:
        """By name."""
        return {name: n.value for name, n in self._extents.items() if n.value is not None}

    def add(self, extent: Extent) -> None:
        """Raises `ValueError` where the variable has another value, or its name other bounds."""
        known = self._extents.setdefault(extent.name, extent)
        if known.variable != extent.variable:
            raise ValueError(
                f"two variables are named {extent.name}: of {known.low} to {int(known)}, and of "
                f"{extent.low} to {int(extent)}: bind one Variable for both, or give one of them "
                "another name"
            )
        if known.value != extent.value:
            raise ValueError(
                f"{extent.name} is bound to {known.value} and to {extent.value} in one "
                "computation: use another variable, or compute one of the two first"
            )

    def of(self, size: Sequence[int]) -> None:
        """Those of a shape."""
        for n in size:
            if isinstance(n, Extent) and n.value is not None:
                self.add(n)


def unbound(outputs: Sequence[UOp]) -> tuple[tuple[UOp, ...], Bindings]:
    """A graph for any values of its variables, and the values that it had."""
    found: dict[UOp, UOp] = {}
    bindings = Bindings()
    for n in toposort(outputs):
        src = tuple([found[s] for s in n.src])
        arg = _freed(n.arg, bindings)
        if arg is n.arg and src == n.src:
            found[n] = n
            continue
        made = found[n] = node(head_of(n.op, n.dtype, arg, n.tag), src)
        size = (n._memo or {}).get("shape")
        if size is not None:
            bindings.of(size)
            made.remember("shape", free(size))
    return tuple([found[n] for n in outputs]), bindings


def has_variables(outputs: Sequence[UOp]) -> bool:
    """Whether a graph has variable sizes anywhere."""
    return any(
        is_variable((n._memo or {}).get("shape") or ()) or _freed(n.arg, Bindings()) is not n.arg
        for n in toposort(outputs)
    )


def _freed(arg: Any, bindings: Bindings) -> Any:
    if isinstance(arg, Extent):
        if arg.value is None:
            return arg
        bindings.add(arg)
        return arg.bound(None)
    if isinstance(arg, tuple):
        parts = [_freed(a, bindings) for a in arg]
        if all(a is b for a, b in zip(parts, arg)):
            return arg
        return type(arg)(*parts) if hasattr(arg, "_fields") else tuple(parts)
    return arg
