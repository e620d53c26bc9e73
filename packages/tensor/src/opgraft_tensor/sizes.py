"""Sizes that are variables: one kernel for every size up to a bound.

    n = Variable("n", 1, 1024)
    x[: n.bind(5)].softmax()        # a tensor whose size is n, which is 5 now

In a captured function a bound size is a symbol, and asking for its number is refused: a replay's
number is another. Elsewhere it may be used as the number that it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from opgraft_tensor.extents import Extent, Sized, Symbolic
from opgraft_tensor.recording import refuse_reading


@dataclass(frozen=True)
class Variable:
    """A size that is known when a kernel runs: `low` to `high`, both included.

    >>> Variable("n", 1, 1024).bind(5)
    n=5
    """

    name: str
    low: int
    high: int

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"a variable's name is an identifier, not {self.name!r}")
        object.__setattr__(self, "low", index(self.low))  # np.int64(3) and True are numbers
        object.__setattr__(self, "high", index(self.high))
        if not 1 <= self.low <= self.high:
            raise ValueError(f"{self.name}: sizes from {self.low} to {self.high}; at least 1")

    def bind(self, value: int) -> Bound:
        """The size with its value for what is computed next."""
        number = index(value)
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.name} is bound to {number}, not in {self.low} .. {self.high}")
        return Bound(self, number)


class Bound(Sized):
    """A variable and its value: usable as the end of a slice, and wherever a shape is given.

    Equal to a size of the same variable and value, and to no number. Its number is `int(n)`.
    """

    __slots__ = ("value", "variable")

    def __init__(self, variable: Variable, value: int) -> None:
        self.variable: Final = variable
        self.value: Final = value
        """Of this call, for those who know that the next call has another."""

    @property
    def extent(self) -> Extent:
        """The size as it stands in shapes of the graph."""
        return Extent(self.variable.name, self.variable.low, self.variable.high, self.value)

    def __index__(self) -> int:
        refuse_reading(f"the number that the size {self.variable.name} is bound to is asked for")
        return self.value

    __int__ = __index__

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Bound)
            and other.variable == self.variable
            and other.value == self.value
        )

    def __hash__(self) -> int:
        return hash((self.variable, self.value))

    def __repr__(self) -> str:
        return f"{self.variable.name}={self.value}"

    def _with(self, op: Callable[[Any, Any], Any], other: Any) -> Any:
        # a tensor takes the size as a scalar of its own, which may be another in each call
        return NotImplemented if isinstance(other, Symbolic) else op(int(self), other)

    def __lt__(self, other: Any) -> Any:
        return self._with(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._with(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._with(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._with(operator.ge, other)

    def __add__(self, other: Any) -> Any:
        return self._with(operator.add, other)

    def __sub__(self, other: Any) -> Any:
        return self._with(operator.sub, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(operator.mul, other)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(operator.floordiv, other)

    def __mod__(self, other: Any) -> Any:
        return self._with(operator.mod, other)

    def __truediv__(self, other: Any) -> Any:
        return self._with(operator.truediv, other)

    def __radd__(self, other: Any) -> Any:
        return operator.add(other, int(self))

    def __rsub__(self, other: Any) -> Any:
        return operator.sub(other, int(self))

    def __rmul__(self, other: Any) -> Any:
        return operator.mul(other, int(self))

    def __rfloordiv__(self, other: Any) -> Any:
        return operator.floordiv(other, int(self))

    def __rmod__(self, other: Any) -> Any:
        return operator.mod(other, int(self))

    def __rtruediv__(self, other: Any) -> Any:
        return operator.truediv(other, int(self))

    def __neg__(self) -> int:
        return -int(self)


def shown(size: tuple[int, ...]) -> tuple[Any, ...]:
    """A shape of the graph as users see it."""
    return tuple([_bound(n) if isinstance(n, Extent) else n for n in size])


def _bound(extent: Extent) -> Bound:
    assert extent.value is not None
    return Bound(Variable(*extent.variable), extent.value)
