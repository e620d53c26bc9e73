"""Choose a schedule for a device that launches groups of threads, without running anything.

1. A product of two arrays keeps a tile of results in each thread's registers, or goes to matrix
   units (opt/grid_matrix.py), and the group copies the tiles of its factors to group memory first
   (opt/grid_products.py).
2. A copy that turns an array goes through squares in group memory (opt/grid_turns.py), and the
   threads of a group share a scan along memory (opt/grid_scan.py).
3. Where there are few results, or neighbouring threads would not read neighbouring memory, a
   group works on each result together: its threads share the loops inside. Where the results lie
   side by side, and not what each is made of, it works on neighbouring ones, each by a few threads.
4. Else every thread has results of its own.

Every fact about the device comes from its Target.
"""

from __future__ import annotations

from math import prod
from typing import Final

from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Fuse, Innermost, Refused, Split
from opgraft.opt.axes import Kernel, closed_by, constant_extent, extent_hint
from opgraft.opt.grid_actions import Grid
from opgraft.opt.grid_matrix import matrix_on_grid
from opgraft.opt.grid_products import group_memory, tile_on_grid
from opgraft.opt.grid_rows import rows_on_grid
from opgraft.opt.grid_scan import scan_on_grid
from opgraft.opt.grid_turns import turn_on_grid
from opgraft.opt.threads import independent, unfit
from opgraft.target import Target

THREADS: Final = 256
"""Threads of a group where nothing else decides."""
_TURNS: Final = 4
"""Iterations that a thread of a group that shares a loop gets, if there are enough of them."""
_SCATTERED: Final = 8
"""How many times longer lanes take that read far from each other."""


def schedule_grid(sink: UOp, target: Target) -> UOp:
    """The kernel with its loops on groups and threads."""
    free = free_loops(Kernel(sink))
    for choose in _CHOICES:
        made = choose(sink, free, target)
        if made is not None:
            return made
    return _alone(sink, free, target)


def free_loops(kernel: Kernel) -> list[UOp]:
    """The loops round the whole kernel whose iterations may be carried out at once, outermost
    first. Nothing is left that each of them would have to do anew."""
    found: list[UOp] = []
    fills = [e for n in kernel.nodes if n.op is Ops.AFTER for e in n.src[1:]]
    inner = [n for n in kernel.nodes if n.op is Ops.REDUCE] + fills
    for loop in kernel.spine:
        plain = loop.arg[1] is AxisKind.LOOP and all(loop in n.ranges for n in inner)
        if plain and not independent(kernel, (*found, loop)):
            found.append(loop)
    return found


def attempt(sink: UOp, *actions: Action) -> UOp:
    """The kernel after those of the actions that are legal."""
    for action in actions:
        try:
            sink = action.apply(sink)
        except Refused:
            continue
    return sink


def _enough(target: Target) -> int:
    """Threads that keep the device busy: two for each lane, so that one waits while one works."""
    return 2 * target.cores * target.lanes


# ---- every thread by itself


def _alone(sink: UOp, loops: list[UOp], target: Target) -> UOp:
    """Iterations of the free loops to threads, neighbouring ones to neighbours."""
    if not loops:
        return sink
    sink, loops = _vectors(sink, loops, target)
    sink, loops = _joined(sink, loops, target)
    for place, loop in enumerate(reversed(loops[-target.group_dims :])):
        sink = attempt(sink, Grid(loop.arg[0], 1 if place else _threads(loops, target)))
    return sink


def _vectors(sink: UOp, loops: list[UOp], target: Target) -> tuple[UOp, list[UOp]]:
    """Let each thread move a vector of neighbours, where there are enough of them."""
    kernel, loop = Kernel(sink), loops[-1]
    size = constant_extent(loop)
    widest = max((a.itemsize for a in kernel.accesses), default=1)
    lanes = min(target.vector_bytes // widest, target.max_lanes)
    if size is None or lanes < 2 or size % lanes or kernel.has_locals or kernel.fills_locals(loop):
        return sink, loops
    if prod(extent_hint(r) for r in loops) // lanes < _enough(target):
        return sink, loops
    for access in kernel.accesses:
        gates = access.node.src[2:3] if access.node.op is Ops.LOAD else access.node.src[3:4]
        if access.stride(loop) not in (0, 1) or any(loop in g.ranges for g in gates):
            return sink, loops
    try:
        made = Split(loop.arg[0], lanes, AxisKind.VECTOR).apply(sink)
        made = Innermost(_new(kernel, made, AxisKind.VECTOR).arg[0]).apply(made)
        return made, [*loops[:-1], _new(kernel, made, AxisKind.LOOP)]
    except Refused:
        return sink, loops


def _new(before: Kernel, after: UOp, kind: AxisKind) -> UOp:
    """The range of that kind that an action made."""
    known = {r.arg[0] for r in before.ranges}
    made = [r for r in Kernel(after).ranges if r.arg[0] not in known and r.arg[1] is kind]
    if not made:
        raise Refused(f"no range of kind {kind.name} is left")
    return made[0]


def _joined(sink: UOp, loops: list[UOp], target: Target) -> tuple[UOp, list[UOp]]:
    """Join loops until the innermost is long enough for a group, and all fit the launch."""
    while len(loops) > 1:
        if extent_hint(loops[-1]) < THREADS:
            at = len(loops) - 2
        elif len(loops) > target.group_dims:
            at = 0
        else:
            break
        kernel = Kernel(sink)
        try:
            made = Fuse(loops[at].arg[0], loops[at + 1].arg[0]).apply(sink)
            one = _new(kernel, made, AxisKind.LOOP)
            if independent(Kernel(made), (one,)):
                break  # what is known of each is not seen of the two in one
            loops = [*loops[:at], one, *loops[at + 2 :]]
        except Refused:
            break
        sink = made
    return sink, loops


def _threads(loops: list[UOp], target: Target) -> int:
    """Threads of a group: a multiple of the lanes, fewer where that leaves cores without work."""
    most = min(THREADS, target.threads_per_group)
    total = extent_hint(loops[-1])
    others = prod(extent_hint(r) for r in loops[:-1])
    threads = min(most, -(-total // target.lanes) * target.lanes)
    while threads > target.lanes and others * -(-total // threads) < 2 * target.cores:
        threads = max(target.lanes, threads // 2 // target.lanes * target.lanes)
    return threads


# ---- a group together


def _together(sink: UOp, free: list[UOp], target: Target) -> UOp | None:
    """Threads of a group share the loops inside of the free ones; None where that is no gain."""
    kernel = Kernel(sink)
    shared = _loops_to_share(kernel, free, target)
    longest = max((constant_extent(r) or 1 for r in shared), default=1)
    if longest < target.lanes // 2:
        return None
    results = prod(extent_hint(r) for r in free)
    if free:
        lacking = _enough(target) / results
        if lacking > 1 and (made := _columns_together(sink, free, shared, target)) is not None:
            return made
        if not _gains(kernel, free[-1], shared, lacking):
            return None
    threads = min(THREADS, target.threads_per_group, longest // _TURNS)
    threads = max(target.lanes, threads // target.lanes * target.lanes)
    made, loops = _fitting_launch(sink, free, target.group_dims)
    made = attempt(made, *(Grid(r.arg[0]) for r in loops))
    made = attempt(made, *(Split(r.arg[0], threads, AxisKind.THREAD) for r in shared))
    return None if group_memory(made, threads) > target.local_bytes else made


def _columns_together(sink: UOp, free: list[UOp], shared: list[UOp], target: Target) -> UOp | None:
    """Groups of neighbouring results, each shared by several threads, where what these results
    are made of lies side by side, and not what each is made of. None where it does not."""
    kernel, column = Kernel(sink), free[-1]
    width = constant_extent(column) or 0
    if width < target.lanes // 4 or not all(_sums_alone(kernel, r) for r in shared):
        return None
    alone, together = _lies(kernel, column, shared)
    if together >= alone:
        return None
    across = min(target.lanes, 1 << (width - 1).bit_length())
    longest = max(constant_extent(r) or 1 for r in shared)
    down = min(THREADS, target.threads_per_group) // across
    while down > 1 and down * _TURNS > longest:
        down //= 2
    if down < 2:
        return None
    made, loops = _fitting_launch(sink, free[:-1], target.group_dims - 1)
    made = attempt(made, Grid(column.arg[0], across), *(Grid(r.arg[0]) for r in loops))
    made = attempt(made, *(Split(r.arg[0], down, AxisKind.THREAD) for r in shared))
    return None if group_memory(made, across * down) > target.local_bytes else made


def _sums_alone(kernel: Kernel, loop: UOp) -> bool:
    """Whether all that closes a loop are sums."""
    return all(n.op is Ops.REDUCE for n in kernel.closers[loop])


def _fitting_launch(sink: UOp, loops: list[UOp], dims: int) -> tuple[UOp, list[UOp]]:
    """The kernel with the outermost of these loops joined until there are so many, and they."""
    while len(loops) > max(dims, 1):
        before = Kernel(sink)
        try:
            sink = Fuse(loops[0].arg[0], loops[1].arg[0]).apply(sink)
        except Refused:
            break
        loops = [_new(before, sink, AxisKind.LOOP), *loops[2:]]
    return sink, loops[-dims:] if dims > 0 else []


def _loops_to_share(kernel: Kernel, free: list[UOp], target: Target) -> list[UOp]:
    """For each statement a loop that threads of a group can share: of the loops in which memory
    is closest, a long one. None where a statement around it is shared already."""
    nested = [n for n in reversed(kernel.nodes) if n.op in (Ops.REDUCE, Ops.END)]
    statements = [*kernel.effects, *(n for n in nested if n not in kernel.effects)]
    beside: dict[UOp, dict[UOp, None]] = {}
    for n in statements:
        around = (*(n.src[1:] if n.op is Ops.REDUCE else closed_by(n)), *n.ranges)
        for r in around:
            beside.setdefault(r, {}).update(dict.fromkeys(around))
    chosen: dict[UOp, None] = {}
    for n in statements:
        own = n.src[1:] if n.op is Ops.REDUCE else closed_by(n)
        own = tuple(r for r in own if not any(c in beside[r] for c in chosen))
        best: tuple[int, int] | None = None
        loop: UOp | None = None
        for r in own:
            size = constant_extent(r)
            if r in free or size is None or size < target.lanes // 2 or unfit(kernel, r):
                continue
            score = (_closeness(kernel, n, r), size)
            if best is None or score >= best:
                best, loop = score, r
        if loop is not None:
            chosen[loop] = None
    return list(chosen)


def _closeness(kernel: Kernel, statement: UOp, loop: UOp) -> int:
    """How many accesses of a statement move by one element with the loop, less those by more."""
    below = dict.fromkeys(statement.toposort())
    score = 0
    for access in kernel.accesses:
        if access.node in below and loop in access.node.ranges:
            stride = access.stride(loop)
            score += 1 if stride == 1 else 0 if stride == 0 else -1
    return score


def _gains(kernel: Kernel, outer: UOp, shared: list[UOp], lacking: float) -> bool:
    """Whether a group does better together, where threads by themselves would be neighbours along
    `outer` and fill the device 1 / `lacking` times.

    What neighbours read should be neighbours in memory: else lanes wait for each other.
    """
    alone, together = _lies(kernel, outer, shared)
    if together > alone:
        return True
    return lacking > (1 if together == alone else _SCATTERED)


def _lies(kernel: Kernel, outer: UOp, shared: list[UOp]) -> tuple[int, int]:
    """How much of what is read lies side by side, or is the same, along `outer`, and how much
    lies side by side along loops that are `shared`."""
    alone = together = 0
    for access in kernel.accesses:
        times = prod(extent_hint(r) for r in access.node.ranges)
        alone += times * (access.stride(outer) in (0, 1))
        together += times * any(access.stride(r) == 1 for r in shared)
    return alone, together


_CHOICES: Final = (
    matrix_on_grid,
    rows_on_grid,
    tile_on_grid,
    turn_on_grid,
    scan_on_grid,
    _together,
)
"""The first that has a schedule for a kernel decides; else each thread works by itself."""
