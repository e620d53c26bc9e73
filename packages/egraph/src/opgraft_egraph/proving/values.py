"""What a statement is for given values of its variables: exactly, and for many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from opgraft.api import Ops, UOp, dtypes, errors


def _quotient(a: int, b: int) -> int:
    return a // b if b else 0


def _remainder(a: int, b: int) -> int:
    return a % b if b else 0


_EXACT: Final[Mapping[Ops, Callable[..., Any]]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.MUL: lambda a, b: a * b,
    Ops.IDIV: _quotient,
    Ops.MOD: _remainder,
    Ops.MIN: min,
    Ops.MAX: max,
    Ops.CMPLT: lambda a, b: a < b,
    Ops.CMPEQ: lambda a, b: a == b,
    Ops.CMPNE: lambda a, b: a != b,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.WHERE: lambda c, a, b: a if c else b,
    Ops.CAST: int,
}
_MANY: Final[Mapping[Ops, Callable[..., Any]]] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    # numpy's division gives 0 for a divisor of 0, as the IR's does
    Ops.IDIV: np.floor_divide,
    Ops.MOD: np.remainder,
    Ops.MIN: np.minimum,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.WHERE: np.where,
    Ops.CAST: lambda a: a.astype(np.int64),
}


def value_of(statement: UOp, values: Mapping[str, int]) -> Any:
    """The exact value, in whole numbers without limits.

    >>> from opgraft_egraph.proving import parse_statement
    >>> value_of(parse_statement("( <= ( / v0 2 ) 3 )"), {"v0": 8})
    False
    """
    return _computed(statement, values, _EXACT)


def values_of(statement: UOp, values: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
    """As `value_of` for many values at once, small enough that nothing overflows 64 bits."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(_computed(statement, values, _MANY))


def _computed(
    statement: UOp, values: Mapping[str, Any], operations: Mapping[Ops, Callable[..., Any]]
) -> Any:
    done: dict[UOp, Any] = {}
    for n in statement.toposort():
        if n.op is Ops.VAR:
            done[n] = values[n.arg[0]]
        elif n.is_const:
            value = n.const_value
            done[n] = bool(value) if n.dtype is dtypes.bool else int(value)
        elif n.op in operations:
            done[n] = operations[n.op](*(done[s] for s in n.src))
        else:
            raise errors.OpgraftError(f"statements hold no {n.op.name}")
    return done[statement]
