"""`Region`: the part of a kernel that a tier looks at, cut out of it and put back.

Indices, say, and the conditions and accesses that guard them: all else that they use is replaced
by leaves that stand for it, and is neither matched nor copied. A leaf depends on the same loops as
what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from opgraft.api import Ops, UOp, dtypes

_LEAVES: Final = frozenset(
    {Ops.CONST, Ops.VAR, Ops.RANGE, Ops.SPECIAL, Ops.PARAM, Ops.LOCAL, Ops.IOTA}
)
_SLOTS: Final = 1 << 40
"""Slots of the buffers that stand for values: no kernel has so many."""


class Region:
    """The nodes of a graph that `inside` accepts, with leaves for all that they use.

    `roots` are those that others use, cut out; `restored` is the graph with something else for
    each of them.
    """

    def __init__(self, sink: UOp, inside: Callable[[UOp], bool]) -> None:
        self.sink: Final = sink
        self._nodes: Final = sink.toposort()
        self._variables: Final[dict[UOp, UOp]] = {}
        """What a variable stands for."""
        self._arrays: Final[dict[UOp, UOp]] = {}
        """What a buffer stands for, itself or with all that is loaded from it."""
        within = {n: None for n in self._nodes if inside(n)}
        leaves: dict[UOp, UOp] = {}
        self._cut: Final[dict[UOp, UOp]] = {}
        used: dict[UOp, None] = {}
        for n in self._nodes:
            if n in within:
                src = []
                for s in n.src:
                    made = self._cut.get(s)
                    if made is None:
                        made = leaves.get(s)
                        if made is None:
                            made = leaves[s] = self._leaf(s)
                    src.append(made)
                self._cut[n] = n if tuple(src) == n.src else n.with_src(tuple(src))
            else:
                used.update((s, None) for s in n.src if s in within)
        if sink in within:
            used[sink] = None
        self.whole: Final = tuple(used)
        """The roots as they stand in the graph."""
        self.roots: Final = tuple([self._cut[n] for n in used])

    def __len__(self) -> int:
        """How many nodes are inside."""
        return len(self._cut)

    def _leaf(self, n: UOp) -> UOp:
        if n.op in _LEAVES or n.is_const:  # a constant in every lane, too
            return n
        ranges = n.ranges
        if not ranges and (n.dtype.is_index or n.dtype.is_int) and n.dtype.count == 1:
            made = UOp(Ops.VAR, n.dtype, (), (f"cut {len(self._variables)}", n.vmin, n.vmax))
            self._variables[made] = n
            return made
        dtype = n.dtype.scalar if _is_value(n) else n.dtype
        buffer = UOp(Ops.PARAM, dtype, (), (_SLOTS + len(self._arrays), 0))
        self._arrays[buffer] = n
        if not _is_value(n):
            return buffer
        place = UOp.const(dtypes.index, 0)
        for r in ranges:
            place = place + r
        return UOp(Ops.LOAD, n.dtype, (buffer, place))

    def _stood_for(self, n: UOp) -> UOp | None:
        """What a node of a tier's result stands for. A value is known by its buffer, wherever that
        is read by then: equalities may have given the place another form. A load from what
        stands for a buffer is a load of the tier's own."""
        if n.op is Ops.LOAD:
            stood_for = self._arrays.get(n.src[0])
            return stood_for if stood_for is not None and _is_value(stood_for) else None
        if n.op is Ops.PARAM:
            stood_for = self._arrays.get(n)
            return None if stood_for is None or _is_value(stood_for) else stood_for
        return self._variables.get(n)

    def _leaves_of(self, root: UOp) -> dict[UOp, UOp]:
        """The nodes below a root that stand for something, with what they stand for."""
        if not self._arrays and not self._variables:
            return {}
        known = ((n, self._stood_for(n)) for n in root.toposort())
        return {n: stood_for for n, stood_for in known if stood_for is not None}

    def restored(self, roots: Sequence[UOp]) -> UOp | None:
        """The graph with these for its roots; None: they use one another in a circle."""
        instead = dict(zip(self.whole, roots))
        done: dict[UOp, UOp] = {}
        open_: dict[UOp, bool] = {}
        stack = [self.sink]
        while stack:
            n = stack[-1]
            if n in done:
                stack.pop()
                continue
            new = instead.get(n)
            if n.op is Ops.RANGE:
                below = []  # as it stands: it is known by its size
            elif new is not None:
                below = [s for s in self._leaves_of(new).values() if s not in done]
            else:
                below = [s for s in n.src if s not in done]
            if below:
                if n in open_:
                    return None
                open_[n] = True
                stack += below
                continue
            if n.op is Ops.RANGE:
                done[n] = n
            elif new is not None:
                changes = {leaf: done[s] for leaf, s in self._leaves_of(new).items()}
                done[n] = new.substitute(changes) if changes else new
            else:
                src = tuple([done[s] for s in n.src])
                done[n] = n if src == n.src else n.with_src(src)
            open_.pop(n, None)
            stack.pop()
        return done[self.sink]


def _is_value(n: UOp) -> bool:
    """Whether this is a value, and no buffer or effect."""
    return n.op is not Ops.AFTER and n.dtype.kind != "void"
