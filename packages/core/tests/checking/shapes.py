"""Narrower patterns to draw instances from, where an alternative's own is so wide that it would
hardly ever fire; and the families of alternatives, which are checked with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from opgraft import EqualitySet, Ops, UPat
from opgraft.ir.pattern import bools, index, ints
from opgraft.rules import choice, exchange, regroup

FAMILIES: Final[Mapping[str, EqualitySet]] = {
    "exchange": exchange.RULES,
    "fixed": exchange.FIXED,
    "choice": choice.RULES,
    "regroup": regroup.STRICT,
}

_a, _b, _c = UPat.var("a", index), UPat.var("b"), UPat.cvar("c")
_rest = UPat.var("rest", index) % UPat.cvar("c")
_quotient = UPat.var("rest") // UPat.cvar("c")
_inner = _quotient.named("q")
_outer = (_inner + UPat.cvar("e")) // UPat.cvar("d")
_flipped = _a * UPat.const(-1) + UPat.cvar("d")


def _bounded(n: UPat) -> UPat:
    """n between two constants, as a gate."""
    return UPat(
        Ops.AND,
        bools,
        src=(
            UPat(Ops.CMPLT, src=(n, UPat.cvar())),
            UPat(Ops.CMPLT, src=(UPat.cvar(), n)),
        ),
    )


def _gated(op: Ops) -> UPat:
    known = UPat(Ops.MOD, index, src=(_a, UPat.cvar("d")), name="known")
    index_ = UPat(Ops.MOD, index, src=(_a + UPat.cvar(), UPat.cvar("d")))
    if op is Ops.LOAD:
        return UPat(op, src=(UPat(), index_, _bounded(known), UPat()), name="x")
    return UPat(op, src=(UPat(), index_, UPat(), _bounded(known)), name="x")


def _chain(op: Ops, dtype: object) -> UPat:
    inner = UPat(op, dtype, src=(UPat(), UPat()))  # type: ignore[arg-type]
    return UPat(op, dtype, src=(inner, UPat()), name="x")  # type: ignore[arg-type]


SHAPES: Final[Mapping[str, Sequence[UPat]]] = {
    "sum_without_modulos": [_rest * UPat.cvar() + _b],
    "sum_without_any_modulo": [_rest + _rest * UPat.cvar() + _b],
    "sum_by_known_quotients": [_quotient * UPat.cvar() + _rest * UPat.cvar()],
    "sum_by_modulos": [
        _quotient * UPat.cvar("c") + _b,
        _outer * UPat.cvar("d") + _inner * UPat.cvar("c"),
    ],
    "sum_by_comparison": [_rest * UPat.cvar() + _b, _quotient * UPat.cvar() + _b],
    "division_flipped": [UPat(Ops.IDIV, index, src=(_flipped, _c), name="x")],
    "modulo_flipped": [UPat(Ops.MOD, index, src=(_flipped, _c), name="x")],
    "congruent_under_gate": [_gated(Ops.LOAD)],
    "congruent_store_under_gate": [_gated(Ops.STORE)],
    "outer_integers_first": [_chain(op, ints) for op in (Ops.ADD, Ops.MUL, Ops.XOR)],
    "outer_clauses_first": [_chain(Ops.AND, bools)],
}
