"""Errors of an e-graph: which rule, at which match, would put what cannot be one into one class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opgraft.api import UOp, errors
from opgraft_egraph import codes
from opgraft_egraph.codes import NONE
from opgraft_egraph.engine import Fact
from opgraft_egraph.patterns import describe

if TYPE_CHECKING:
    from opgraft_egraph.graph import EGraph


def analysis_error(graph: EGraph, name: str, cls: int, problem: str) -> errors.RewriteError:
    """The error where an analysis of the caller's says that a class holds different things."""
    way = graph.engine.blame(cls)
    who = "the caller's merge" if way == NONE else f"rule {graph.ruleset.rule_of[way]}"
    return errors.RewriteError(
        f"{who} put nodes into one class, {_shown_class(graph, cls)}, that analysis {name} "
        f"holds for different: {problem}"
    )


def conflict_error(
    graph: EGraph, *, merged: tuple[UOp, UOp] | None = None, slots: Sequence[int] = ()
) -> errors.RewriteError:
    """The error where a class would hold what cannot be one.

    `merged`: it follows from what the caller said is equal. `slots`: of the match by which a rule's
    function was called, which the engine does not know.
    """
    c = graph.engine.conflict()
    slots = slots or c.slots
    if merged is not None:
        who = f"the caller's merge of {describe(merged[0])} and {describe(merged[1])}"
    elif c.way == NONE:
        who = "the caller's merge"
    else:
        rule = graph.ruleset.rule_of[c.way]
        who = f"rule {rule}"
        captures = graph.ruleset.matches[c.way].captures if slots else {}
        parts = [f"{n}={_shown_class(graph, slots[p.slot])}" for n, p in captures.items()]
        if parts:
            who += f" on {', '.join(parts)}"
    a, b = graph.engine.fact(c.a), graph.engine.fact(c.b)
    what = {
        codes.DIFFERENT_CONSTANTS: "two constants",
        codes.DIFFERENT_DTYPES: "two dtypes",
        codes.DISJOINT_INTERVALS: "disjoint ranges of values",
        codes.DISJOINT_REMAINDERS: "different remainders",
    }[c.kind]
    both = f"{_shown_class(graph, c.a)} with {_shown_fact(graph, a)}"
    if c.a == c.b:
        # what was to be added to the class has none of its own
        both += ", and what is said to equal it"
    else:
        both += f", and {_shown_class(graph, c.b)} with {_shown_fact(graph, b)}"
    return errors.RewriteError(
        f"{who} would put {what} into one class: {both}",
        remedy="It does not hold for every value, so it is no equality.",
    )


def _shown_class(graph: EGraph, cls: int) -> str:
    for uop, known in graph.ids.items():
        if known == cls:
            return describe(uop)
    root = graph.engine.find(cls)
    for uop, known in graph.ids.items():
        if graph.engine.find(known) == root:
            return describe(uop)
    return f"class {cls}"


def _shown_fact(graph: EGraph, fact: Fact) -> str:
    dtype = graph.language.dtypes[fact.dtype]
    if fact.number:
        return f"the value {graph.number(fact).const_value!r} of {dtype}"
    ends = [
        "-inf" if fact.low == codes.LEAST else fact.low,
        "inf" if fact.high == codes.MOST else fact.high,
    ]
    rest = f", {fact.rest} modulo {fact.modulus}" if fact.modulus > 1 else ""
    return f"values of {dtype} in [{ends[0]}, {ends[1]}]{rest}"
