"""Paths through an engine's proof forest: why two terms are one, step by step.

Independent of what terms are: `Explanation` in explanation.py reads them as nodes of the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from opgraft_egraph import codes
from opgraft_egraph.codes import AGAINST, NONE
from opgraft_egraph.engine import Engine, TermRow


class Link(NamedTuple):
    """One step from term `left` to term `right`.

    `kind`: BY_RULE, BY_CALLER, BY_VALUE, or BY_CONGRUENCE: then the children are equal in pairs,
    those of the right turned round if `turned`. `forward`: in the direction of the rule `data`.
    """

    left: int
    right: int
    kind: int
    data: int
    forward: bool
    turned: bool = False


def path(engine: Engine, a: int, b: int) -> list[Link]:
    """The links from one term to another of the same class."""
    above: dict[int, int] = {}
    rows: dict[int, TermRow] = {}
    at, place = a, 0
    while at != NONE:
        above[at] = place
        rows[at] = engine.term(at)
        at, place = rows[at].parent, place + 1
    down: list[Link] = []
    at = b
    while at not in above:
        row = engine.term(at)
        if row.parent == NONE:
            raise ValueError("terms of two classes")
        down.append(_link(engine, row.parent, at, row, backward=True))
        at = row.parent
    up: list[Link] = []
    meeting, at = at, a
    while at != meeting:
        up.append(_link(engine, at, rows[at].parent, rows[at], backward=False))
        at = rows[at].parent
    return [*up, *reversed(down)]


def _link(engine: Engine, left: int, right: int, row: TermRow, backward: bool) -> Link:
    kind = row.kind & ~AGAINST
    forward = bool(row.kind & AGAINST) == backward
    turned = False
    if kind == codes.BY_CONGRUENCE:
        ours, theirs = engine.term(left).kids, engine.term(right).kids
        pairs = zip(ours, theirs)
        turned = any(engine.find(x) != engine.find(y) for x, y in pairs)
    return Link(left, right, kind, row.data, forward, turned)


Place = tuple[int, ...]
"""Which child of which child ... a step happens in."""


class FlatStep(NamedTuple):
    """One application at a place; `link` is no congruence, but `turned` stands for one step."""

    place: Place
    link: Link


def flat(engine: Engine, a: int, b: int) -> Iterator[FlatStep]:
    """The links with congruences taken apart into what happens to the children, in order."""
    stack: list[Iterator[FlatStep | tuple[int, int, Place]]] = [_parts(engine, a, b, ())]
    while stack:
        item = next(stack[-1], None)
        if item is None:
            stack.pop()
        elif isinstance(item, FlatStep):
            yield item
        else:
            stack.append(_parts(engine, *item))


def _parts(
    engine: Engine, a: int, b: int, place: Place
) -> Iterator[FlatStep | tuple[int, int, Place]]:
    if a == b:
        return
    for link in path(engine, a, b):
        if link.kind != codes.BY_CONGRUENCE:
            yield FlatStep(place, link)
            continue
        ours, theirs = engine.term(link.left).kids, engine.term(link.right).kids
        if link.turned:
            theirs = (theirs[1], theirs[0])
        for i, (x, y) in enumerate(zip(ours, theirs)):
            if x != y:
                yield x, y, (*place, i)
        if link.turned:
            yield FlatStep(place, link)


def rebuilt(
    engine: Engine, term: int, make: Callable[[int, list[object]], object], done: dict[int, object]
) -> object:
    """What `make` makes of the head and parts of a term, parts first. Without recursion."""
    stack = [term]
    while stack:
        t = stack[-1]
        if t in done:
            stack.pop()
            continue
        row = engine.term(t)
        missing = [k for k in row.kids if k not in done]
        if missing:
            stack += missing
            continue
        done[t] = make(row.head, [done[k] for k in row.kids])
        stack.pop()
    return done[term]
