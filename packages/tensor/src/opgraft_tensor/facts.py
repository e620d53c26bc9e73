"""What is known of each node before the walk: work, depth of reductions, what must be stored.

One pass over the graph, sources first. Work is counted in elementwise operations ("flops") per
element since the last leaf; the prices that turn bytes and launches into the same unit come
from the device's target.
"""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.target import Target
from opgraft_tensor.graph import shape

WORK: Final[dict[Ops, float]] = {
    Ops.EXP: 20.0,
    Ops.EXP2: 10.0,
    Ops.LOG2: 13.0,
    Ops.SIN: 16.0,
    Ops.SQRT: 6.0,
    Ops.FDIV: 6.0,
    Ops.IDIV: 12.0,
    Ops.MOD: 12.0,
    Ops.THREEFRY: 120.0,
}
"""Operations that one element of an elementwise op costs; 1 where not listed."""

LEAVES: Final = frozenset(
    {Ops.BUFFER, Ops.REDUCE_AXIS, Ops.SCAN_AXIS, Ops.GATHER, Ops.MATERIALIZE, Ops.COPY}
)
"""Where the count of work starts anew: the value is likely to be read, not computed."""

MOST_LEAVES: Final = 12
"""Leaves of one node that are told apart."""

MOST: Final = 1e12
"""Above this, work is all the same: too dear."""

SHORT: Final = 8
"""Elements of a row up to which schedulers write it out, each row in a lane of its own."""


DRAM, SHARED, CORE, CACHE, LAUNCH = (
    f"plan:{name}" for name in ("dram", "shared", "core", "cache", "launch")
)
"""Names of measured prices (calibrate.py): a byte in memory, in the cache that cores share, in a
core's second, in its first, and a launch."""


class Prices(NamedTuple):
    """The device's facts that shape a plan."""

    dram: float = 4.0
    """Operations that one byte of memory traffic is worth."""
    cache: float = 0.25
    """Operations that one byte read or written in the first cache is worth."""
    launch: float = 4000.0
    """Operations that one more kernel is worth."""
    local_bytes: int = 128 << 10
    """The most that the local arrays of one kernel may take."""
    parallel: int = 16
    """Iterations that the loops shared by a kernel's statements must have."""
    small: int = 16384
    """An array up to this size needs no parallel loops."""
    product: float = 0.1
    """Share of its work that a product loses where its tile is lost."""
    max_buffers: int = 127
    widest: int = 48
    """Atoms in an index from which on a view's value is stored."""
    core: float = 1.5
    """Operations that one byte read or written in a core's second cache is worth."""
    core_bytes: tuple[int, int] = (16 << 10, 256 << 10)
    """Arrays of so many bytes are in that cache when they are read again. Smaller ones are not
    cheaper: their bytes are not what storing them costs."""
    shared: float = 4.0
    """Operations that one byte read or written in the cache that cores share is worth."""
    shared_bytes: int = 0
    """Greater arrays, up to so many bytes, are in that cache when they are read again."""
    parting: float = 16000.0
    """Operations that it is worth not to part the work at a stored array: its loops end and
    others begin, and threads wait for the last."""

    def byte(self, nbytes: int) -> float:
        """Operations that one byte of an array of so many bytes is worth."""
        least, most = self.core_bytes
        if least < nbytes <= most:
            return self.core
        return self.shared if most < nbytes <= self.shared_bytes else self.dram

    @staticmethod
    def of(target: Target) -> Prices:
        """The prices of a target: measured ones, where there are any."""
        measured = dict(target.op_prices)
        dram = measured.get(DRAM, target.dram_price)
        cache = measured.get(CACHE, target.cache_price)
        sizes = target.cache_bytes
        return Prices(
            dram=dram,
            cache=cache,
            launch=measured.get(LAUNCH, target.launch_price),
            core=min(measured.get(CORE, 1.5), dram),
            # half of a cache: what else the kernels touch has a place, too
            core_bytes=(sizes[0] // 2, sizes[1] // 2) if len(sizes) > 1 else (0, 0),
            shared=min(measured.get(SHARED, dram), dram),
            shared_bytes=sizes[2] // 2 if len(sizes) > 2 else 0,
            local_bytes=min(target.local_bytes, 128 << 10),
            parallel=max(16, 4 * target.cores),
            max_buffers=target.max_buffers,
        )


class Orders(NamedTuple):
    """What the walk may not choose, by node."""

    outputs: tuple[UOp, ...]
    stored: frozenset[UOp] = frozenset()
    """Further nodes to store."""
    alone: frozenset[UOp] = frozenset()
    """Stored nodes whose kernel takes nothing else in."""
    partial: frozenset[UOp] = frozenset()
    """WRITEs that store their region alone, in the memory of the old version."""


class Facts:
    """The facts of the nodes of a graph, by node."""

    def __init__(self, order: list[UOp], outputs: list[UOp]) -> None:
        self.size: dict[UOp, int] = {}
        """Elements."""
        self.work: dict[UOp, float] = {}
        """Operations per element, down to the leaves."""
        self.common: dict[UOp, float] = {}
        """Those of them that neighbours have in common, and a loop over these does not repeat."""
        self.depth: dict[UOp, int] = {}
        """Reductions one within another, at most."""
        self.leaf: dict[UOp, int] = {}
        """Elements of the largest leaf read."""
        self.heavy: dict[UOp, bool] = {}
        """A reduction that reads each input several times: a product, a convolution."""
        self.leaves: dict[UOp, tuple[UOp, ...] | None] = {}
        """The leaves that it is computed from; None: too many to list."""
        self.users: dict[UOp, list[UOp]] = {}
        """What has it as a source."""
        for v in order:
            for x in v.src:
                self.users.setdefault(x, []).append(v)
        for v in order:
            self._add(v)
        self.only_summed = self._only_summed(order, outputs)
        """All that is done with it, views apart, is to sum it: its own sum widens that one."""

    def _add(self, v: UOp) -> None:
        op = v.op
        work = 0.0
        depth = leaf = 0
        size = self.size[v] = prod(shape(v))
        for x in v.src:
            below = self.work[x]
            if x.op in LEAVES:
                work += min(below, 1.0)
                read = self.size[x]
            else:
                work += below
                read = self.leaf[x]
            if read > leaf:
                leaf = read
            if self.depth[x] > depth:
                depth = self.depth[x]
        if op in GroupOp.ALU:
            work += WORK.get(op, 1.0)
        elif op is Ops.BUFFER:
            work, leaf = 1.0, size
        elif op is Ops.REDUCE_AXIS:
            times = self.size[v.src[0]] // max(size, 1)
            work = times * (self._summed_below(v, work) + 1.0)
            depth += 1
            self.heavy[v] = bool(leaf) and times > 1 and size * times / leaf >= 4
        elif op in (Ops.PAD, Ops.WRITE, Ops.UNWINDOW, Ops.ARANGE):
            work += 1.0
        elif op is Ops.GATHER:
            work += 2.0
        self.leaves[v] = self._leaves_of(v)
        self.work[v] = min(work, MOST)
        self.common[v] = self._in_common(v)
        self.depth[v] = depth
        self.leaf[v] = leaf

    def _summed_below(self, v: UOp, work: float) -> float:
        """Operations per element below a reduction: a sum of a sum is one sum, inlined as one."""
        below = v.src[0]
        while below.op in GroupOp.VIEW and len(self.users[below]) == 1:
            below = below.src[0]
        nested = below.op is Ops.REDUCE_AXIS and len(self.users[below]) == 1
        if nested and v.arg[0] is Ops.ADD and below.arg[0] is Ops.ADD:
            return self.work[below]
        return work

    def _in_common(self, v: UOp) -> float:
        """Operations per element that are made of reductions alone, and the same for all elements
        of the last axis: a row's mean is computed before the loop over the row."""
        if v.op in GroupOp.ALU:
            return min(sum(self.common[x] for x in v.src), self.work[v])
        if v.op is not Ops.EXPAND:
            return 0.0
        (source,) = v.src
        leaves, size = self.leaves[source], shape(source)
        alone = leaves and all(x.op is Ops.REDUCE_AXIS for x in leaves)
        long = size and size[-1] == 1 and shape(v)[-1] > SHORT
        return self.work[v] if alone and long else 0.0

    def _leaves_of(self, v: UOp) -> tuple[UOp, ...] | None:
        if len(v.src) == 1 and v.src[0].op not in LEAVES:
            return self.leaves[v.src[0]]
        found: dict[UOp, None] = {}
        for x in v.src:
            below = (x,) if x.op in LEAVES else self.leaves[x]
            if below is None:
                return None
            found.update(dict.fromkeys(below))
        return tuple(found) if len(found) <= MOST_LEAVES else None

    def only_for(self, leaf: UOp, v: UOp) -> bool:
        """Whether every way up from `leaf` leads through `v`."""
        seen: dict[UOp, None] = {}
        stack = [leaf]
        while stack:
            for user in self.users.get(stack.pop(), ()):
                if user is v or user in seen:
                    continue
                if user.op in LEAVES or user not in self.users or len(seen) > 4 * MOST_LEAVES:
                    return False
                seen[user] = None
                stack.append(user)
        return True

    def _only_summed(self, order: list[UOp], outputs: list[UOp]) -> dict[UOp, bool]:
        found = dict.fromkeys(order, True)
        for v in order:
            if v.op in GroupOp.VIEW or (v.op is Ops.REDUCE_AXIS and v.arg[0] is Ops.ADD):
                continue
            for x in v.src:
                found[x] = False
        for v in outputs:
            found[v] = False
        for v in reversed(order):
            if v.op in GroupOp.VIEW and not found[v]:
                found[v.src[0]] = False
        return found


def exact_again(v: UOp) -> bool:
    """Whether a reduction computed twice is sure to have the same bits: not a float sum."""
    return not v.dtype.is_float or v.arg[0] in (Ops.MAX, Ops.MIN)


def label(v: UOp) -> str:
    """A short name of a node for reports."""
    text = v.op.name
    if v.op in (Ops.REDUCE_AXIS, Ops.SCAN_AXIS):
        text = f"{v.op.name.split('_')[0]}.{v.arg[0].name}"
    return f"{text}{list(shape(v))}"
