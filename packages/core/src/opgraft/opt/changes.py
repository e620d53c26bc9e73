"""What a search tries: schedules that differ from one in one place.

Steps get other numbers, give way to others or are left out, and further ones are offered: vectors
and copies of a loop, tiles in registers, packed factors, sums in a buffer, stores past the caches,
loops for the cores. What is offered follows from the kernel's loops and the target's facts, and is
legal; whether it gains is for a measurement to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.accumulate import Accumulate
from opgraft.opt.actions import Action, Parallel, Refused, Split
from opgraft.opt.axes import Kernel, buffer_of, constant_extent, extent_hint
from opgraft.opt.blocks import Blocks
from opgraft.opt.chunks import InChunks
from opgraft.opt.cover import Cover
from opgraft.opt.fold import Fold
from opgraft.opt.grid_actions import Grid, GroupReduce
from opgraft.opt.grid_scan import GroupScan
from opgraft.opt.heuristic import lanes_along
from opgraft.opt.pack import Pack
from opgraft.opt.partial import Partial
from opgraft.opt.prefetch import Prefetch
from opgraft.opt.stores import Stream
from opgraft.opt.tile import Tile
from opgraft.opt.tile_shape import Extents, tile_shape
from opgraft.target import Target

Steps: TypeAlias = tuple[Action, ...]

_LOOPS: Final = 4
"""The longest loops of a kernel, for which steps are offered."""
_COPIES: Final = (2, 4, 8)
_AT_ONCE: Final = 4
_DISTANCE: Final = 8
"""Iterations that a loop is looked ahead of, where the schedule does not."""


def changed(sink: UOp, target: Target, steps: Steps) -> Iterator[Steps]:
    """Legal schedules that differ from this one in one place, and in what follows from it: a step
    with other numbers, another one in its place, none, or one more.

    `sink` is the kernel as the scheduler of `target` gets it.
    """
    for place, step in enumerate(steps):
        before = steps[:place]
        others = (*_resized(step), *_moved(sink, before, step))
        if loops := _shaped(step):
            further = offers(_after(sink, before), target)
            others += tuple([offer for offer in further if loops & _shaped(offer)])
        for instead in (*others, None):
            chosen = before if instead is None else (*before, instead)
            made = _legal(sink, (*chosen, *steps[place + 1 :]), len(chosen))
            if made is not None and made != steps:
                yield made
    body = tuple([step for step in steps if not step.keeps_loops])
    last = tuple([step for step in steps if step.keeps_loops])
    for step in offers(_after(sink, body), target):
        yield (*body, step, *last)
    for step in () if last else _looking_ahead(sink, steps):
        yield (*steps, step)


def _legal(sink: UOp, steps: Steps, kept: int) -> Steps | None:
    """The schedule without those steps after the first `kept` that are legal no more, or have
    nothing to do."""
    chosen: list[Action] = []
    for place, step in enumerate(steps):
        try:
            after = step.apply(sink)
        except Refused:
            if place < kept:
                return None
            continue
        if after is not sink:
            chosen.append(step)
        sink = after
    return tuple(chosen)


def _resized(step: Action) -> Iterator[Action]:
    """The action with other numbers."""
    if isinstance(step, Split):
        for factor in _near(step.factor):
            yield replace(step, factor=factor)
    elif isinstance(step, Accumulate):
        for at_once in _near(step.at_once):
            yield replace(step, at_once=at_once)
    elif isinstance(step, Prefetch):
        for distance in _near(step.distance):
            yield replace(step, distance=distance)
    elif isinstance(step, InChunks):
        for most in _near(step.most):
            yield replace(step, most=most)
    elif isinstance(step, (Grid, GroupReduce, GroupScan)):
        for threads in _near(step.threads):
            yield replace(step, threads=threads)
    elif isinstance(step, (Blocks, Partial)):
        for size in _near(step.size):
            yield replace(step, size=size)
    elif isinstance(step, (Cover, Fold)):
        for copies in dict.fromkeys((1, *_near(step.copies))):
            if copies != step.copies:
                yield replace(step, copies=copies)
        for lanes in _near(step.lanes):
            yield replace(step, lanes=lanes)
    elif isinstance(step, Tile):
        for place, (name, copies, lanes) in enumerate(step.parts):
            for other in dict.fromkeys((copies - 1, copies + 1, copies // 2, copies * 2)):
                if other >= 1 and other != copies:
                    part = (name, other, lanes)
                    yield Tile((*step.parts[:place], part, *step.parts[place + 1 :]))


def _near(size: int) -> list[int]:
    return [size * 2] if size < 4 else [size // 2, size * 2]


def _moved(sink: UOp, before: Steps, step: Action) -> Iterator[Action]:
    """The cores share another loop."""
    if isinstance(step, Parallel):
        for loop in _after(sink, before).spine:
            if loop.arg[0] != step.name and loop.arg[1] is AxisKind.LOOP:
                yield Parallel(loop.arg[0])


def _shaped(step: Action) -> set[object]:
    """The loops that a step makes vectors, copies or passes of: another shape may be better."""
    if isinstance(step, Tile):
        return {name for name, _, _ in step.parts}
    if isinstance(step, Split):
        return {step.name} if step.kind in (AxisKind.VECTOR, AxisKind.UNROLL) else set()
    return {step.name} if isinstance(step, (Accumulate, Cover, Fold)) else set()


def _after(sink: UOp, steps: Sequence[Action]) -> Kernel:
    """The kernel after these steps."""
    for step in steps:
        sink = step.apply(sink)
    return Kernel(sink)


# ---- one step more


def offers(kernel: Kernel, target: Target) -> Iterator[Action]:
    """Steps that are legal next, each once."""
    plain = [r for r in kernel.ranges if r.arg[1] in (AxisKind.LOOP, AxisKind.REDUCE)]
    loops = [r for r in plain if (constant_extent(r) or 0) > 1]
    loops = sorted(loops, key=extent_hint, reverse=True)[:_LOOPS]
    steps: list[Action] = []
    for loop in loops:
        steps.extend(_at_once(kernel, loop, target))
    for reduce in kernel.reduces:
        steps.extend(_tiles(kernel, reduce, loops, target))
        steps.extend(_buffers(reduce, loops))
    written = {buffer_of(a.node.src[0]): None for a in kernel.accesses if a.node.op is Ops.STORE}
    if target.vector_bytes and not target.group_dims:
        steps.extend(Stream(n.arg[0]) for n in written if n.op is Ops.PARAM)
    if target.parallel is AxisKind.PARALLEL and target.cores > 1:
        steps.extend(Parallel(loop.arg[0]) for loop in loops if loop in kernel.spine)
    for step in dict.fromkeys(steps):
        if _legal(kernel.sink, (step,), 1):
            yield step


def _at_once(kernel: Kernel, loop: UOp, target: Target) -> Iterator[Action]:
    """Vectors and copies of a loop."""
    name, size = loop.arg[0], constant_extent(loop) or 1
    closers = kernel.closers[loop]
    lanes = min((lanes_along(loop, n, target) for n in closers), default=1)
    if loop.arg[1] is AxisKind.REDUCE:
        for copies in _COPIES:
            if size % copies == 0 and size > copies:
                yield Split(name, copies, AxisKind.UNROLL)
    else:
        yield Tile(((name, _AT_ONCE, 1),))
    if lanes > 1:
        whole = Fold if all(n.op is Ops.REDUCE for n in closers) else Cover
        for copies in (1, _AT_ONCE):
            yield whole(name, lanes, copies)
        yield Split(name, lanes, AxisKind.VECTOR)


def _tiles(kernel: Kernel, reduce: UOp, loops: list[UOp], target: Target) -> Iterator[Action]:
    """Tiles of results in registers: rows of vectors, as many as the model of tile_shape.py says,
    and few."""
    outer = [r for r in loops if r in reduce.ranges and r in kernel.spine]
    depth = prod([extent_hint(r) for r in reduce.src[1:]])
    for columns in outer:
        lanes = lanes_along(columns, reduce, target)
        for rows in outer if lanes > 1 else ():
            if rows is columns:
                continue
            extents = Extents(extent_hint(rows), extent_hint(columns), depth)
            shape = tile_shape(target, lanes, extents)
            for copies, vectors in ((shape.copies, shape.vectors), (_AT_ONCE, 1)):
                yield Tile(((rows.arg[0], copies, 1), (columns.arg[0], vectors, lanes)))


def _buffers(reduce: UOp, loops: list[UOp]) -> Iterator[Action]:
    """A factor packed along vectors, once or by each core; results so far in a buffer."""
    cores = tuple([r.arg[0] for r in reduce.ranges if r.arg[1] is AxisKind.PARALLEL])
    for lane in reduce.ranges:
        if lane.arg[1] is AxisKind.VECTOR:
            for inside in dict.fromkeys(((), cores)):
                yield Pack((lane.arg[0],), inside)
    for over in loops:
        if over in reduce.ranges:
            for loop in reduce.src[1:]:
                yield Accumulate(loop.arg[0], over.arg[0], _AT_ONCE)


def _looking_ahead(sink: UOp, steps: Sequence[Action]) -> Iterator[Action]:
    """Fetching what a loop reads at places that memory names."""
    kernel = _after(sink, steps)
    for loop in kernel.ranges:
        step = Prefetch(loop.arg[0], _DISTANCE)
        if _legal(kernel.sink, (step,), 1) is not None:
            yield step
