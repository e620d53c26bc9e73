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
        self._stand_ins: Final[dict[UOp, UOp]] = {}
        """What a leaf stands for."""
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
        if n.op in _LEAVES:
            return n
        number = len(self._stand_ins)
        ranges = n.ranges
        if not ranges and (n.dtype.is_index or n.dtype.is_int) and n.dtype.count == 1:
            made = UOp(Ops.VAR, n.dtype, (), (f"cut {number}", n.vmin, n.vmax))
        elif n.op is Ops.AFTER or n.dtype.kind == "void":
            made = UOp(Ops.PARAM, n.dtype, (), (_SLOTS + number, 0))
        else:
            place = UOp.const(dtypes.index, 0)
            for r in ranges:
                place = place + r
            buffer = UOp(Ops.PARAM, n.dtype.scalar, (), (_SLOTS + number, 0))
            made = UOp(Ops.LOAD, n.dtype, (buffer, place))
        self._stand_ins[made] = n
        return made

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
                below = [s for s in _leaves_of(new, self._stand_ins) if s not in done]
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
                changes = {
                    leaf: done[s]
                    for leaf, s in self._stand_ins.items()
                    if s in done and s is not leaf
                }
                done[n] = new.substitute(changes) if changes else new
            else:
                src = tuple([done[s] for s in n.src])
                done[n] = n if src == n.src else n.with_src(src)
            open_.pop(n, None)
            stack.pop()
        return done[self.sink]


def _leaves_of(root: UOp, stand_ins: dict[UOp, UOp]) -> list[UOp]:
    """What the leaves below a root stand for."""
    if not stand_ins:
        return []
    return [stand_ins[n] for n in root.toposort() if n in stand_ins]
