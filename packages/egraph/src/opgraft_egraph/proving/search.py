"""Values for which a statement is false, by trying many."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import numpy as np

from opgraft.api import UOp
from opgraft_egraph.proving.statements import variables
from opgraft_egraph.proving.values import value_of, values_of

SEED: Final = 20_240_611
_AT_ONCE: Final = 4_096
_MOST: Final = 1 << 40
"""With constants beyond this, what many values make of a statement would overflow 64 bits."""
_WIDTHS: Final = (2, 9, 40, 250, 2_000, 20_000)
"""Values are drawn between -w and w: where the values for which a statement fails are rare, they
are often small, or near the constants in it."""


def falsify(statement: UOp, rounds: int = 2) -> Mapping[str, int] | None:
    """Values for which it is false, or None: among `rounds` * 6 * 4,096 there were none.

    The same values are tried in every process.
    """
    names = list(variables(statement))
    if not names:
        return None if value_of(statement, {}) else {}
    constants = sorted({abs(int(n.const_value)) for n in statement.toposort() if n.is_const})
    if constants and constants[-1] > _MOST:
        return None
    for number in range(rounds):
        for width in _WIDTHS:
            draw = np.random.default_rng([SEED, number, width])
            near = np.array([0, *constants], dtype=np.int64)
            columns = {}
            for name in names:
                column = draw.integers(-width, width + 1, _AT_ONCE)
                # a third lies close to a constant of the statement
                close = draw.choice(near, _AT_ONCE) * draw.choice([-1, 1], _AT_ONCE)
                close += draw.integers(-2, 3, _AT_ONCE)
                columns[name] = np.where(draw.integers(0, 3, _AT_ONCE) == 0, close, column)
            truths = np.broadcast_to(values_of(statement, columns), (_AT_ONCE,))
            for place in np.flatnonzero(~truths)[:1]:
                found = {name: int(column[place]) for name, column in columns.items()}
                if not value_of(statement, found):
                    return found
    return None


def sample(statement: UOp, count: int, seed: int = SEED) -> list[dict[str, int]]:
    """Values of the variables, small ones and large ones, for checks."""
    names, draw = list(variables(statement)), random.Random(seed)
    return [
        {name: draw.randint(-width, width) for name in names}
        for width in (_WIDTHS[i % len(_WIDTHS)] for i in range(count))
    ]
