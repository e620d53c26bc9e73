"""Equalities of whole numbers that comparisons are proved by, beside those of opgraft's own `sym`.

They lead both ways where neither side is simpler: an e-graph tries both. All hold for numbers
without limits; the tests prove each of them with an outside prover.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from opgraft.api import EqualitySet, UOp, UPat, dtypes, sym

_a: Final = UPat.var("a", dtypes.index)
_b: Final = UPat.var("b", dtypes.index)
_x: Final = UPat.var("x", dtypes.index)
_y: Final = UPat.var("y", dtypes.index)
_z: Final = UPat.var("z", dtypes.index)
_c: Final = UPat.cvar("c", dtypes.index)
_d: Final = UPat.cvar("d", dtypes.index)


def _if_positive(make: Callable[..., UOp]) -> Callable[..., Any]:
    """The right side, where the constant `c` is at least 1."""

    def right(x: UOp, y: UOp, c: UOp) -> UOp | None:
        return make(x, y, c) if c.vmin > 0 else None

    return right


ORDER: Final = EqualitySet(
    [
        # x < min(a, b) = x < a and x < b, and so on
        (_x < _a.minimum(_b), lambda x, a, b: (x < a) & (x < b), "below_minimum"),
        (_a.minimum(_b) < _x, lambda x, a, b: (a < x) | (b < x), "minimum_below"),
        (_x < _a.maximum(_b), lambda x, a, b: (x < a) | (x < b), "below_maximum"),
        (_a.maximum(_b) < _x, lambda x, a, b: (a < x) & (b < x), "maximum_below"),
        # the same terms on both sides
        (_x + _a < _x + _b, lambda x, a, b: a < b, "shared_term"),
        (_x + _a < _x, lambda x, a: a < 0, "shared_whole_left"),
        (_x < _x + _b, lambda x, b: b > 0, "shared_whole_right"),
        # a comparison is one of a difference with 0
        (_x < _y, lambda x, y: x + y * -1 < 0, "difference"),
        # x // c < y = x < c*y, y < x // c = y*c + c-1 < x, for c > 0
        (_x // _c < _y, _if_positive(lambda x, y, c: x < y * c), "quotient_below"),
        (_y < _x // _c, _if_positive(lambda x, y, c: y * c + (c - 1) < x), "below_quotient"),
    ]
)

EXTREMA: Final = EqualitySet(
    [
        # min(x + a, x + b) = x + min(a, b), both ways
        ((_x + _a).minimum(_x + _b), lambda x, a, b: x + a.minimum(b), "minimum_factor"),
        ((_x + _a).maximum(_x + _b), lambda x, a, b: x + a.maximum(b), "maximum_factor"),
        (_x + _a.minimum(_b), lambda x, a, b: (x + a).minimum(x + b), "minimum_spread"),
        (_x + _a.maximum(_b), lambda x, a, b: (x + a).maximum(x + b), "maximum_spread"),
        # min(x, y) + max(x, y) = x + y
        (_x.minimum(_y) + _x.maximum(_y), lambda x, y: x + y, "both_extrema"),
        # min(a, b) * -1 = max(a * -1, b * -1)
        (_a.minimum(_b) * -1, lambda a, b: (a * -1).maximum(b * -1), "minimum_opposite"),
        (_a.maximum(_b) * -1, lambda a, b: (a * -1).minimum(b * -1), "maximum_opposite"),
        # min(a, b) // c = min(a // c, b // c) for c > 0
        (
            _x.minimum(_y) // _c,
            _if_positive(lambda x, y, c: (x // c).minimum(y // c)),
            "minimum_divided",
        ),
        (
            _x.maximum(_y) // _c,
            _if_positive(lambda x, y, c: (x // c).maximum(y // c)),
            "maximum_divided",
        ),
        # max(min(x, y), y) = y, min(max(x, y), y) = y
        (_x.minimum(_y).maximum(_y), lambda x, y: y, "absorbed_minimum"),
        (_x.maximum(_y).minimum(_y), lambda x, y: y, "absorbed_maximum"),
    ]
)

QUOTIENTS: Final = EqualitySet(
    [
        # (x*c + y) // c = x + y // c for c > 0
        ((_x * _c + _y) // _c, _if_positive(lambda x, y, c: x + y // c), "whole_part"),
        # x + y // c = (x*c + y) // c for c > 0
        (_x + _y // _c, _if_positive(lambda x, y, c: (x * c + y) // c), "into_quotient"),
        # (x // c) * c = x - x % c
        ((_x // _c) * _c, lambda x, c: x + (x % c) * -1, "multiple_below"),
        # (x // c) // d = x // (c*d) for c, d > 0
        (
            (_x // _c) // _d,
            lambda x, c, d: x // (c * d) if c.vmin > 0 and d.vmin > 0 else None,
            "quotients_joined",
        ),
    ]
)

OWN: Final = EqualitySet([*ORDER.rules, *EXTREMA.rules, *QUOTIENTS.rules])
"""Those of this file."""

PROVING: Final = EqualitySet([*sym.rules, *OWN.rules])
"""All that the e-graph of a proof works with."""
