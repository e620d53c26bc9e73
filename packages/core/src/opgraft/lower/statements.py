"""Statements of a kernel, as linearize orders them: what each needs, and the loops around it."""

from __future__ import annotations

from dataclasses import dataclass, field

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.axes import store_of, target_of


@dataclass(eq=False)
class Statement:
    """An effect or a REDUCE: what it computes, the loops of its own, what must be done before."""

    node: UOp
    own: tuple[UOp, ...]
    free: frozenset[UOp]
    needs: list[Statement] = field(default_factory=list)
    readers: list[Statement] = field(default_factory=list)
    """Statements that read what this one overwrites: before it, where both are carried out."""

    @property
    def is_reduce(self) -> bool:
        return self.node.op is Ops.REDUCE


def fill_together(statements: list[Statement]) -> None:
    """Let all that fills one LOCAL stand in the same loops, whether it depends on them or not: the
    buffer begins anew in each of their iterations."""
    fills: dict[UOp, list[Statement]] = {}
    for statement in statements:
        if not statement.is_reduce and target_of(statement.node).op is Ops.LOCAL:
            fills.setdefault(target_of(statement.node), []).append(statement)
    for together in fills.values():
        free = frozenset().union(*(s.free for s in together))
        for statement in together:
            statement.free |= free


def fetch_beside(statements: list[Statement]) -> None:
    """Let what is fetched ahead open no loops of its own: it stands in all the loops that an effect
    of the same loops stands in, and waits for all that is done before them."""
    fetches = [s for s in statements if store_of(s.node).op is Ops.PREFETCH]
    if not fetches:
        return
    others = [s for s in statements if not s.is_reduce and s not in fetches]
    shared = frozenset(r for s in others for r in s.own)
    for fetch in fetches:
        loops = shared.intersection(fetch.own)
        for other in (s for s in others if loops and loops.issubset(s.own)):
            fetch.free |= other.free
            before = _done_before(other, loops)
            fetch.needs += [n for n in before if n not in fetch.needs]


def _done_before(statement: Statement, loops: frozenset[UOp]) -> list[Statement]:
    """What a statement, or a REDUCE in these of its loops, needs: the fills of the buffers that it
    reads, and each REDUCE outside of the loops."""
    found, stack = dict.fromkeys(statement.needs), list(statement.needs)
    while stack:
        need = stack.pop()
        if need.is_reduce and loops.issubset(need.free):
            stack += [n for n in need.needs if n not in found]
            found.update(dict.fromkeys(need.needs))
    return [n for n in found if not (n.is_reduce and loops.issubset(n.free))]


def keep_inside(ordered: list[Statement]) -> None:
    """Keep statements inside of loops that may have no iterations, as their users are: what they
    load may not be there otherwise. `ordered`: each after those it needs."""
    users: dict[Statement, list[frozenset[UOp]]] = {}
    for statement in reversed(ordered):
        around = users.get(statement)
        if around:
            statement.free |= frozenset.intersection(*around)
        inside = statement.free | frozenset(statement.own)
        maybe_empty = frozenset(r for r in inside if r.src[0].vmin < 1)
        for need in statement.needs:
            users.setdefault(need, []).append(maybe_empty - frozenset(need.own))


def in_order(statements: list[Statement]) -> list[Statement]:
    """The statements, each after those it needs, else in the given order."""
    done: dict[Statement, None] = {}
    for start in statements:
        stack = [(start, False)]
        while stack:
            top, ready = stack.pop()
            if top in done:
                continue
            if ready:
                done[top] = None
                continue
            stack.append((top, True))
            stack.extend((n, False) for n in reversed(top.needs) if n not in done)
    return list(done)
