"""Choose a schedule without running anything: a few readable steps, each on its own.

1. A loop that indices take apart becomes loops of its parts (divisors.py); neighbouring output
   loops that memory walks through as one become one.
2. One loop of each statement becomes vector lanes, where memory is consecutive along it.
3. A product keeps a tile of results in registers; a plain reduction several accumulators.
4. The outermost output loop goes to the cores.

Every fact about the device comes from its Target.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.accumulate import accumulate_columns, is_added_to
from opgraft.opt.actions import (
    Action,
    Fuse,
    Innermost,
    Parallel,
    Refused,
    Split,
    follow,
)
from opgraft.opt.ahead import fetch_ahead
from opgraft.opt.axes import Access, Kernel, constant_extent, extent_hint
from opgraft.opt.bit_order import order_by_bits
from opgraft.opt.borders import settle_choices, settle_gates
from opgraft.opt.chunks import in_chunks
from opgraft.opt.cover import Cover
from opgraft.opt.divisors import split_at_divisors
from opgraft.opt.dot_products import use_dots
from opgraft.opt.fold import Fold, copies_of
from opgraft.opt.grid import schedule_grid
from opgraft.opt.inline import rows_in_lanes
from opgraft.opt.join import join_loops
from opgraft.opt.next_row import fetch_next
from opgraft.opt.notes import noting
from opgraft.opt.partial import in_parts
from opgraft.opt.prefetch import prefetch_rows
from opgraft.opt.products import block_rows, tile_products
from opgraft.opt.reuse import reuse_buffers
from opgraft.opt.scan import ScanLanes
from opgraft.opt.separate import SeparateReduces
from opgraft.opt.stores import stream_outputs
from opgraft.opt.transpose import tile_copies
from opgraft.target import Target


def schedule(sink: UOp, target: Target) -> UOp:
    """The kernel with the kinds and the order of its loops chosen for `target`."""
    if sink.arg is not None and sink.arg.schedule is not None:
        return follow(sink, sink.arg.schedule)
    sink = SeparateReduces().apply(sink)
    grid = target.group_dims and target.lanes > 1
    sink = fuse_outputs(sink if grid else split_at_divisors(sink))
    if grid:
        return schedule_grid(sink, target)
    sink = order_by_bits(tile_copies(sink, target), target)
    if target.vector_bytes:
        sink = use_dots(sink, target)
        sink = rows_in_lanes(reuse_buffers(in_parts(join_loops(sink), target)), target)
        sink = tile_products(block_rows(sink, target), target)
        sink = accumulate_columns(sink, target)
        sink = scan_lanes(settle_gates(settle_choices(sink)), target)
        sink = vectorize(sink, target)
    if target.parallel is not None and not _is_parallel(sink):
        sink = parallelize(sink, target)
    if target.vector_bytes and not target.group_dims:
        sink = stream_outputs(sink, target)
    sink = prefetch_rows(in_chunks(sink, target) if target.group_dims else sink, target)
    return fetch_next(fetch_ahead(sink, target), target)


def choose(sink: UOp, target: Target) -> tuple[Action, ...]:
    """The actions of `schedule`, in order: as a kernel's own schedule they give the same again."""
    with noting() as notes:
        return notes.between(sink, schedule(sink, target))


def _is_parallel(sink: UOp) -> bool:
    return any(r.arg[1] is AxisKind.PARALLEL for r in Kernel(sink).ranges)


def fuse_outputs(sink: UOp) -> UOp:
    """Join neighbouring output loops as long as no index gets a division by it."""
    kernel = Kernel(sink)
    if kernel.has_locals or kernel.reduces:
        return sink
    while True:
        kernel = Kernel(sink)
        spine = kernel.spine
        if any(len(e.src) - 1 != len(spine) for e in kernel.effects):
            return sink
        before = _divisions(sink)
        for outer, inner in zip(spine[-2::-1], spine[:0:-1], strict=False):
            if constant_extent(outer) is None:
                continue  # what is left in vectors has a constant extent
            try:
                fused = Fuse(outer.arg[0], inner.arg[0]).apply(sink)
            except Refused:
                continue
            if _divisions(fused) <= before:
                sink = fused
                break
        else:
            return sink


def _divisions(sink: UOp) -> int:
    return sum(n.op in (Ops.IDIV, Ops.MOD) and n.dtype.is_index for n in sink.toposort())


# ---- vectors

_SHORTEST: Final = 4
"""The fewest lanes of vectors that overlap at the end of a loop."""
SPREAD: Final = 4
"""The longest step through memory that is taken by whole vectors (see lower/shuffles.py)."""


def scan_lanes(sink: UOp, target: Target) -> UOp:
    """Scans along memory by vectors, where rows are long enough for it to pay."""
    kernel = Kernel(sink)
    for effect in kernel.effects:
        for loop in effect.src[1:] if effect.op is Ops.END else ():
            size = constant_extent(loop) or 0
            moving = [a for a in kernel.accesses if loop in a.node.ranges or loop in a.index.ranges]
            if kernel.is_scanned(loop) and all(a.stride(loop) == 1 for a in moving):
                lanes = lanes_along(loop, effect, target)
                if lanes > 1 and size >= 4 * lanes:
                    sink = _try(sink, ScanLanes(loop.arg[0], lanes))
    return sink


def vectorize(sink: UOp, target: Target) -> UOp:
    """Choose the vector loop of each statement, then tiles and accumulators around it."""
    kernel = Kernel(sink)
    chosen: dict[UOp, int] = {}
    for n in kernel.nodes:
        if n.op is Ops.END or n.op is Ops.REDUCE:
            loop = _vector_loop(kernel, n, chosen)
            if loop is not None:
                lanes = lanes_along(loop, n, target)
                size = constant_extent(loop) or 0
                while lanes > size:
                    lanes //= 2
                if lanes > 1 and lanes < _SHORTEST and size % lanes:
                    continue  # by vectors that overlap, which costs more than it gains
                if lanes > 1:
                    chosen[loop] = lanes
    _drop_conflicts(kernel, chosen)
    tiles = _tiles(kernel, chosen, target)
    for loop, lanes in chosen.items():
        name, copies = loop.arg[0], tiles.pop(loop, 1)
        whole = _whole(kernel, loop, lanes, copies)
        if whole is not None and (made := _try(sink, whole)) is not sink:
            sink = made
            continue
        # the tile is taken from whole vectors, so split them off first
        sink = _try(sink, Split(name, lanes, AxisKind.VECTOR))
        if copies > 1:
            sink = _try(sink, Split(f"{name}.o", copies, AxisKind.UNROLL))
        sink = _try(sink, Innermost(f"{name}.v"))
    for loop, copies in tiles.items():
        sink = _try(sink, Split(loop.arg[0], copies, AxisKind.UNROLL))
    return sink


def _whole(kernel: Kernel, loop: UOp, lanes: int, copies: int) -> Action | None:
    """What takes a loop by vectors and leaves no element; None where something must be left: cores
    can share out this loop alone, and a vector over its end would cross their parts."""
    if _only_reduced(kernel, loop):
        return Fold(loop.arg[0], lanes, copies)
    size = constant_extent(loop) or 0
    alone = all(r is loop for r in kernel.spine)
    if alone and size % lanes and size // lanes > copies:
        return None
    return Cover(loop.arg[0], lanes, copies)


def _only_reduced(kernel: Kernel, loop: UOp) -> bool:
    return all(n.op is Ops.REDUCE for n in kernel.closers[loop])


def _try(sink: UOp, action: Action) -> UOp:
    try:
        return action.apply(sink)
    except Refused:
        return sink


def _vector_loop(kernel: Kernel, statement: UOp, chosen: dict[UOp, int]) -> UOp | None:
    """The loop of this statement along which memory is consecutive most."""
    if _has_vectors(statement):
        return None
    below = set(statement.src[0].toposort())
    if statement.op is Ops.REDUCE and any(r in chosen for r in statement.ranges):
        return None
    if statement.op is Ops.REDUCE and _is_short(kernel, statement):
        return None
    accesses = [a for a in kernel.accesses if a.node in below]
    best: tuple[float, int, UOp] | None = None
    for place, loop in enumerate(statement.src[1:]):
        if kernel.is_scanned(loop) or kernel.fills_locals(loop) or kernel.collides(loop):
            continue
        if constant_extent(loop) is None:
            continue
        score = _score(accesses, loop)
        if score > 0 and (best is None or (score, place) > best[:2]):
            best = (score, place, loop)
    return best[2] if best else None


def _is_short(kernel: Kernel, reduce: UOp) -> bool:
    """Whether a REDUCE has so few elements, close together, that the results of several are better
    computed at once, each in a lane."""
    size = 1
    for loop in reduce.src[1:]:
        size *= extent_hint(loop)
    below = set(reduce.src[0].toposort())
    loads = [a for a in kernel.accesses if a.node in below and a.node.op is Ops.LOAD]
    outer = kernel.spine[-1:]
    return size <= SPREAD and any(
        constant_extent(r) and all(abs(a.stride(r) or SPREAD + 1) <= SPREAD for a in loads)
        for r in outer
    )


def _has_vectors(statement: UOp) -> bool:
    """Whether a statement stands in vectors already, or opens a loop of them."""
    around = (*statement.ranges, *statement.src[1:])
    return any(r.arg[1] is AxisKind.VECTOR for r in around)


def _score(accesses: list[Access], loop: UOp) -> float:
    """How well vectors along `loop` move memory: consecutive is good, scattered is bad."""
    score = 0.0
    for access in accesses:
        if loop not in access.node.ranges:
            continue
        stride = access.stride(loop)
        gates = access.node.src[2:3] if access.node.op is Ops.LOAD else access.node.src[3:4]
        gated = any(loop in g.ranges for g in gates)
        weight = float(_times(access.node))
        if stride == 1 and not gated:
            score += weight
        elif stride and abs(stride) <= SPREAD and not gated and access.node.op is Ops.LOAD:
            score += weight / (1 + abs(stride))  # a few vectors, and lanes picked out of them
        elif stride != 0 or gated:
            score -= weight
    return score


def _times(n: UOp) -> int:
    """How often a node is evaluated, each of its loops at its greatest extent."""
    total = 1
    for loop in n.ranges:
        total *= extent_hint(loop)
    return total


def lanes_along(loop: UOp, statement: UOp, target: Target) -> int:
    """Lanes of the statement's vectors along a loop: registers full of its widest values."""
    widest = 1
    for n in statement.src[0].toposort():
        if n.op is not Ops.REDUCE and loop not in n.ranges:
            continue  # the same in all lanes
        if n.op in GroupOp.ALU or n.op in (Ops.LOAD, Ops.REDUCE):
            if n.dtype.is_int and n.dtype.bits > 32 and n.dtype not in target.compute:
                return 1  # such a value will be two words, which don't lie side by side
            widest = max(widest, n.dtype.itemsize)
    if statement.op is Ops.REDUCE:
        widest = max(widest, statement.dtype.itemsize)
    lanes = max(1, target.vector_bytes // widest)
    return min(1 << (lanes.bit_length() - 1), target.max_lanes)


def _drop_conflicts(kernel: Kernel, chosen: dict[UOp, int]) -> None:
    """Let no value stand in two vector loops: one that is there stays, of those that were chosen
    the loop of less work gives way."""
    for n in kernel.nodes:
        both = [r for r in n.ranges if r in chosen]
        if both and any(r.arg[1] is AxisKind.VECTOR for r in n.ranges):
            for loop in both:
                del chosen[loop]
            continue
        while len(both) > 1:
            loser = min(both, key=lambda r: (_is_reduce(r) is False, extent_hint(r)))
            del chosen[loser]
            both.remove(loser)


def _is_reduce(loop: UOp) -> bool:
    return loop.arg[1] is AxisKind.REDUCE


# ---- tiles


def _tiles(kernel: Kernel, chosen: dict[UOp, int], target: Target) -> dict[UOp, int]:
    """How many copies of which loops to keep in registers.

    For a REDUCE over a product: copies of the output loops that one of its factors does not
    depend on, as many as registers hold. For another REDUCE along vectors, and for elementwise
    loops: a few, so that the latency of one is hidden by the others.
    """
    tiles: dict[UOp, int] = {}
    budget = max(4, target.vector_registers * 3 // 4)
    for reduce in kernel.reduces:
        if _has_vectors(reduce):
            continue
        loads = [n for n in reduce.src[0].toposort() if n.op is Ops.LOAD]
        loops = [r for r in reduce.ranges if not kernel.fills_locals(r)]
        loops = [r for r in loops if constant_extent(r) and not kernel.is_scanned(r)]
        shared = [r for r in loops if r in kernel.spine and any(r not in n.ranges for n in loads)]
        vector = [r for r in shared if r in chosen]
        others = [r for r in shared if r not in chosen]
        if len(loads) > 1 and shared and not any(r in tiles for r in shared):
            left = budget
            for loop in vector[:1]:
                whole = (constant_extent(loop) or 1) // chosen[loop]
                copies = _fitting(whole, 2)
                if copies > 1:
                    tiles[loop] = copies
                left //= max(1, copies)
            for loop in others[-1:]:
                copies = _fitting(constant_extent(loop) or 1, min(6, left))
                if copies > 1:
                    tiles[loop] = copies
            continue
        # along vectors of its own, or over rows with columns in lanes: hide the latency of adds
        along = [r for r in reduce.src[1:] if r in chosen]
        row = _row_of_several(kernel, reduce, target) if along else None
        if row is not None and row not in tiles:
            tiles[row] = _fitting(constant_extent(row) or 1, _ROWS)
            tiles.update(dict.fromkeys(along, 2))
            continue
        across = [r for r in loops if r in chosen and r in kernel.spine]
        wide = max(4, budget // len(kernel.reduces))
        for loop, most in [(r, 8) for r in along] + [(r, wide) for r in across]:
            whole = (constant_extent(loop) or 1) // chosen[loop]
            copies = copies_of(whole, most)
            if copies > 1 and loop not in tiles and len(kernel.reduces) <= 4:
                tiles[loop] = copies
    for scan in kernel.nodes:
        # down the columns, whole lines of a row at a time
        for loop in scan.ranges if scan.op is Ops.SCAN else ():
            if loop in chosen and loop not in tiles and not kernel.is_scanned(loop):
                tiles[loop] = copies_of((constant_extent(loop) or 1) // chosen[loop], 8)
    for effect in kernel.nodes:
        # one row after another added to sums in memory: little is done for each vector
        for loop in effect.src[1:] if is_added_to(effect) else ():
            if loop in chosen and loop not in tiles:
                tiles[loop] = copies_of((constant_extent(loop) or 1) // chosen[loop], 4)
    return tiles


_ROWS: Final = 4
"""Rows of which a reduction reads a part in turn: memory is faster from several places than from
one (measured: 1.4 times, and in the caches no slower)."""
_LONG: Final = 4096
"""Bytes from a row to the next from which that is so: short ones are better read as they lie."""


def _row_of_several(kernel: Kernel, reduce: UOp, target: Target) -> UOp | None:
    """The loop over long rows, enough of them to take several at a time, that a REDUCE adds up and
    nothing else is done with."""
    loops = [r for r in reduce.ranges if r in kernel.spine]
    if not loops or kernel.has_locals or len(kernel.reduces) > 1:
        return None
    row = loops[-1]
    below = set(reduce.src[0].toposort())
    strides = [
        abs(a.stride(row) or 0) * a.itemsize
        for a in kernel.accesses
        if a.node.op is Ops.LOAD and a.node in below
    ]
    enough = (constant_extent(row) or 0) >= 4 * target.cores * _ROWS
    return row if enough and strides and min(strides) >= _LONG else None


def _fitting(size: int, most: int) -> int:
    """A number of copies up to `most` that divides `size`, or `most` if none is near it."""
    for copies in range(min(most, size), max(1, most // 2), -1):
        if size % copies == 0:
            return copies
    return min(most, size)


# ---- cores

_PRELUDE: Final = 0.1
"""The greatest share of a kernel's work that each core may repeat."""
_SPREAD: Final = 0.75
"""The least share of a kernel's work that a parallel loop must hold."""


def parallelize(sink: UOp, target: Target) -> UOp:
    """Spread the outermost output loop over the cores; a short one together with the next."""
    kernel = Kernel(sink)
    if kernel.prelude > _PRELUDE and any(e.op is Ops.END for e in kernel.effects):
        return sink  # every core would have to do it first
    enough = 4 * target.cores
    while True:
        spine = [r for r in kernel.spine if r.arg[1] is AxisKind.LOOP]
        if len(spine) < 2 or extent_hint(spine[0]) >= enough or kernel.has_locals:
            break
        if constant_extent(spine[0]) is None:
            break
        try:
            sink = Fuse(spine[0].arg[0], spine[1].arg[0]).apply(sink)
        except Refused:
            break
        kernel = Kernel(sink)
    candidates = [r for r in _parallel_candidates(kernel) if extent_hint(r) > 1]
    return _try(sink, Parallel(candidates[0].arg[0])) if candidates else sink


def _parallel_candidates(kernel: Kernel) -> list[UOp]:
    """Loops that every effect closes; or the one that holds nearly all of the work, beside which
    the remains of splits are done once."""
    spine = [r for r in kernel.spine if r.arg[1] is AxisKind.LOOP]
    if spine:
        return spine
    work: dict[UOp, int] = {}
    total = 0
    for effect in kernel.effects:
        loops = effect.src[1:] if effect.op is Ops.END else ()
        iterations = 1
        for loop in loops:
            iterations *= extent_hint(loop)
        total += iterations
        for loop in loops:
            if loop.arg[1] is AxisKind.LOOP and kernel.may_reorder(loop):
                work[loop] = work.get(loop, 0) + iterations
    best = max(work, key=lambda r: work[r], default=None)
    return [best] if best is not None and work[best] >= _SPREAD * total else []
