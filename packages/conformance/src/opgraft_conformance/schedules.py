"""A kernel of every schedule action that there is: a table from action to kernels.

A trial is a kernel and the actions that make its schedule. Whatever the schedule, the kernel means
what it means without one, which is what INTERP runs. `TRIALS` has a row for each class of action
of opgraft.opt, and the kit's own tests fail when one is added that it lacks: the table grows with
the scheduler.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import opgraft.opt
from opgraft.api import Device, DotUnit, Target
from opgraft.dtype import DType, dtypes
from opgraft.errors import DeviceError, LoweringError, SpecError
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.lower.pipeline import lower
from opgraft.opt import actions as scheduler
from opgraft.opt.accumulate import Accumulate
from opgraft.opt.actions import (
    Action,
    Fuse,
    Innermost,
    Parallel,
    Partition,
    Refused,
    Split,
    Unroll,
)
from opgraft.opt.ahead import FetchAhead
from opgraft.opt.bit_order import BitOrder
from opgraft.opt.blocks import Blocks, SumInBlocks
from opgraft.opt.chunks import InChunks
from opgraft.opt.cover import Cover
from opgraft.opt.distribute import Distribute
from opgraft.opt.dot import Dot
from opgraft.opt.fold import Fold
from opgraft.opt.grid_actions import Grid, GroupReduce, Pad, Stage
from opgraft.opt.grid_scan import GroupScan
from opgraft.opt.inline import Inline
from opgraft.opt.matrix import Matrix
from opgraft.opt.next_row import FetchNext
from opgraft.opt.pack import Pack
from opgraft.opt.partial import Partial
from opgraft.opt.prefetch import Prefetch
from opgraft.opt.reuse import Reuse
from opgraft.opt.scan import ScanLanes
from opgraft.opt.separate import SeparateReduces
from opgraft.opt.stores import Stream
from opgraft.opt.tile import Outermost, Tile
from opgraft_conformance import kernels
from opgraft_conformance.comparison import differ
from opgraft_conformance.execution import expected, filled, parameters

LOOP, REDUCE = AxisKind.LOOP, AxisKind.REDUCE
VECTOR, UNROLL, THREAD = AxisKind.VECTOR, AxisKind.UNROLL, AxisKind.THREAD


@dataclass(frozen=True)
class Trial:
    """A kernel of the tables of kernels.py, and its schedule."""

    kernel: str
    actions: tuple[Action, ...]
    dtype: DType = dtypes.float32

    @property
    def id(self) -> str:
        """Short, and the same wherever it runs."""
        return f"{self.kernel}-{'-'.join(map(_short, self.actions))}"

    def meaning(self) -> UOp:
        """The kernel, one iteration after another."""
        every = kernels.SHAPES | kernels.MOVES | kernels.NARROW | kernels.FLOATS | kernels.LISTED
        return scheduled(every[self.kernel](self.dtype), ())

    def sink(self) -> UOp:
        """The kernel with its schedule."""
        return scheduled(self.meaning(), self.actions)


def scheduled(sink: UOp, actions: tuple[Action, ...]) -> UOp:
    """The kernel with these actions as its schedule."""
    return sink.replace(arg=replace(sink.arg, schedule=actions))


def _short(action: Action) -> str:
    values = vars(action).values()
    words = [v.name.lower() if isinstance(v, AxisKind) else str(v) for v in values]
    return re.sub(r"[^\w.]+", "_", "_".join([type(action).__name__, *words])).strip("_")


def trial(kernel: str, *actions: Action, dtype: DType = dtypes.float32) -> Trial:
    """A row of the table."""
    return Trial(kernel, actions, dtype)


PAIRS: Final = DotUnit("pairs", (dtypes.int16, dtypes.int16, dtypes.int32))
FOURS: Final = DotUnit("fours", (dtypes.uint8, dtypes.int8, dtypes.int32))
OF_UNITS: Final = (Matrix,)
"""Actions whose rows are those of the units that a target claims: see suite/test_matrix.py."""

TRIALS: Final[dict[type[Action], tuple[Trial, ...]]] = {
    Split: (
        trial("elementwise", Split("i", 4)),
        trial("elementwise", Split("i", 5), dtype=dtypes.int8),  # with a rest
        trial("matmul", Split("i", 4), Split("j", 6), Innermost("i.i")),
        trial("row_sums", Split("k", 8, REDUCE)),
        trial("matmul", Split("k", 5, REDUCE)),
        trial("elementwise", Split("i", 4, VECTOR)),
        trial("elementwise", Split("i", 16, VECTOR)),
        trial("elementwise", Split("i", 8, VECTOR), dtype=dtypes.int8),
        trial("elementwise", Split("i", 8, VECTOR), dtype=dtypes.float16),
        trial("elementwise", Split("i", 8, VECTOR), dtype=dtypes.bfloat16),
        trial("elementwise", Split("i", 2, VECTOR), dtype=dtypes.float64),
        trial("rows", Split("j", 4, VECTOR)),
        trial("rows", Split("i", 2, VECTOR)),  # strided: lane by lane, or by gathers
        trial("transposed", Split("j", 4, VECTOR)),
        trial("transposed", Split("i", 4, VECTOR)),
        trial("row_sums", Split("k", 4, VECTOR)),  # lanes joined at the end
        trial("row_sums", Split("k", 4, VECTOR), dtype=dtypes.int16),
        trial("row_sums", Split("k", 4, VECTOR), dtype=dtypes.float16),
        trial("column_maxima", Split("j", 4, VECTOR)),
        trial("full_sum", Split("k", 8, VECTOR)),
        trial("padded", Split("j", 4, VECTOR)),  # gates that differ between lanes
        trial("cumulative", Split("i", 4, VECTOR)),
        trial("several_outputs", Split("j", 8, VECTOR)),
        trial("by_way_of_a_local", Split("j", 8, VECTOR), Split("l", 8, VECTOR)),
        trial("gathered", Split("i", 4, VECTOR)),
        trial("masked_store", Split("i", 4, VECTOR)),
        trial("truth", Split("i", 4, VECTOR)),
        trial("unaligned", Split("i", 8, VECTOR)),
        trial("elementwise", Split("i", 4, UNROLL)),
        trial("matmul", Split("j", 4, VECTOR), Split("i", 4, UNROLL)),  # a tile in registers
        trial("matmul", Split("j", 4, VECTOR), Split("j.o", 2, UNROLL), Split("k", 3, UNROLL)),
        trial("row_sums", Split("k", 4, VECTOR), Split("k.o", 4, UNROLL)),
        trial("full_sum", Split("k", 4, UNROLL)),
        trial("rows", Grid("i"), Split("j", 19, THREAD)),
        trial("matmul", Grid("i"), Split("j", 6, THREAD)),
    ),
    Partition: (
        trial("padded", Partition("j", 1, 10)),
        trial("padded", Partition("i", 1, 5), Partition("j", 1, 10), Split("j.m", 4, VECTOR)),
        trial("gated_load", Partition("i", 7, 36), Split("i.m", 4, VECTOR)),
        trial("elementwise", Partition("i", 0, 9)),
    ),
    Unroll: (
        trial("rows", Unroll("i")),
        trial("matmul", Unroll("k")),
        trial("column_maxima", Unroll("k"), dtype=dtypes.int32),
    ),
    Fold: (
        trial("row_sums", Fold("k", 4, 4)),
        trial("row_sums", Fold("k", 8, 2)),  # a rest in every place where one can be
        trial("row_sums", Fold("k", 8, 3), dtype=dtypes.int32),
        trial("row_sums", Fold("k", 4), dtype=dtypes.float16),
        trial("row_sums", Fold("k", 2, 2), dtype=dtypes.float64),
        trial("full_sum", Fold("k", 8, 2), dtype=dtypes.int16),
        trial("column_maxima", Fold("k", 4, 2)),  # some elements twice
        trial("several_outputs", Fold("k", 8, 2)),
        trial("matmul", Fold("k", 4, 2)),
    ),
    Cover: (
        trial("elementwise", Cover("i", 8)),  # a vector that ends with the range
        trial("elementwise", Cover("i", 4, 4)),  # a vector by itself besides
        trial("elementwise", Cover("i", 4, 3), dtype=dtypes.int8),
        trial("elementwise", Cover("i", 8, 4), dtype=dtypes.float16),
        trial("rows", Cover("j", 4, 3)),
        trial("column_maxima", Cover("j", 8, 2)),
        trial("matmul", Cover("j", 8), Split("i", 4, UNROLL)),
        trial("elementwise", Cover("i", 4, 2), Parallel("i.o")),
    ),
    ScanLanes: (
        trial("cumulative", ScanLanes("j", 4)),
        trial("cumulative", ScanLanes("j", 2), dtype=dtypes.float64),
        trial("cumulative", ScanLanes("j", 4), dtype=dtypes.int16),
        trial("cumulative", ScanLanes("j", 4), Parallel("i")),
    ),
    Stream: (
        trial("elementwise", Split("i", 8, VECTOR), Stream(0)),
        trial("elementwise", Split("i", 4, VECTOR), Parallel("i.o"), Stream(0)),
        trial("elementwise", Split("i", 4, VECTOR), Stream(0), dtype=dtypes.float64),
        trial("elementwise", Split("i", 16, VECTOR), Stream(0), dtype=dtypes.int8),
        trial("transposed", Tile((("j", 1, 4), ("i", 4, 1))), Outermost(("i.o", "j.o"))),
    ),
    Prefetch: (  # where the target fetches nothing ahead, nothing is left of it
        trial("gathered", Prefetch("i", 4)),
        trial("picked_rows", Prefetch("i", 2)),
        trial("picked_rows", Split("j", 8, VECTOR), Parallel("i"), Prefetch("i", 40)),
        trial("picked_rows", Cover("j", 4, 4), Prefetch("i", 1), dtype=dtypes.float64),
        trial("picked_rows", Grid("i"), Prefetch("i.g", 3), dtype=dtypes.int8),
    ),
    FetchAhead: (
        trial("matmul", Split("i", 4), Pack(("i.i", "k"), ("i.o",)), Outermost(("i.o", "j")),
              FetchAhead("pack0", "j")),
        trial("matmul", Tile((("i", 3, 1), ("j", 1, 8))), Blocks("k", 5),
              SumInBlocks("k.o", ("i.o", "j.o", "i.u", "j.v")),
              Pack(("sums0.i.u", "k.i"), ("sums0.k.o", "sums0.i.o")),
              FetchAhead("pack0", "sums0.j.o"), dtype=dtypes.float64),
    ),
    FetchNext: (
        trial("by_way_of_a_local", FetchNext(1, "l")),
        trial("by_way_of_a_local", Parallel("i"), Split("l", 8, VECTOR), FetchNext(1, "l.o"),
              dtype=dtypes.float64),
    ),
    Fuse: (
        trial("rows", Fuse("i", "j")),
        trial("transposed", Fuse("i", "j"), Split("i.j", 8)),
        trial("rows", Parallel("i"), Fuse("i", "j")),  # both for the cores
        trial("last_store_wins", Fuse("k", "m")),
    ),
    Parallel: (
        trial("elementwise", Parallel("i")),
        trial("rows", Parallel("j")),
        trial("matmul", Parallel("i"), Split("j", 4, VECTOR)),
        trial("rows", Fuse("i", "j"), Parallel("i.j")),
        trial("by_way_of_a_local", Parallel("i")),
        trial("several_outputs", Parallel("i")),
        trial("stored_and_read_back", Parallel("i")),
    ),
    Innermost: (
        trial("rows", Innermost("i")),
        trial("matmul", Innermost("i")),
        trial("transposed", Innermost("i"), Split("j", 3)),
    ),
    Grid: (
        trial("elementwise", Grid("i")),
        trial("elementwise", Grid("i", 8)),  # the last group has threads without work
        trial("elementwise", Split("i", 4, VECTOR), Grid("i.o", 4)),
        trial("rows", Grid("i", 2), Grid("j", 8)),
        trial("rows", Fuse("i", "j"), Grid("i.j", 32)),
        trial("matmul", Grid("i", 4), Grid("j", 6)),
        trial("matmul", Split("i", 2, UNROLL), Grid("i.o", 2), Grid("j", 8)),
        trial("row_sums", Grid("i", 4)),
        trial("row_sums", Split("k", 4, VECTOR), Grid("i")),
        trial("column_maxima", Grid("j", 8)),
        trial("padded", Grid("i", 2), Grid("j", 8)),
        trial("cumulative", Grid("i", 4)),
        trial("by_way_of_a_local", Grid("i", 4)),
        trial("several_outputs", Grid("i", 4)),
        trial("in_place", Grid("i", 16)),
        trial("truth", Grid("i", 16)),
    ),
    Pad: (
        trial("elementwise", Pad("i", 8), Split("i", 8, VECTOR)),
        trial("row_sums", Pad("k", 16), Split("k", 4, VECTOR)),
        trial("matmul", Pad("j", 4), Split("j", 4, VECTOR), Pad("k", 8), Split("k", 8, UNROLL)),
        trial("matmul", Pad("i", 3), Pad("j", 8), Grid("i", 3), Grid("j", 8)),
    ),
    GroupReduce: (
        trial("row_sums", Grid("i"), GroupReduce("k", 32)),
        trial("row_sums", Grid("i"), GroupReduce("k", 7), dtype=dtypes.int16),
        trial("row_sums", Grid("i"), GroupReduce("k", 16), dtype=dtypes.float16),
        trial("row_sums", Grid("i"), Split("k", 2, VECTOR), GroupReduce("k.o", 8)),
        trial("column_maxima", Grid("j"), GroupReduce("k", 4)),
        trial("matmul", Grid("i"), Grid("j"), GroupReduce("k", 4)),
        trial("several_outputs", Grid("i"), GroupReduce("k", 8)),
    ),
    GroupScan: (
        trial("cumulative", Grid("i"), GroupScan("j", 4)),
        trial("cumulative", Grid("i"), GroupScan("j", 3), dtype=dtypes.int16),
        trial("cumulative", Grid("i"), GroupScan("j", 2), dtype=dtypes.float16),
        trial("cumulative", GroupScan("j", 4)),
    ),
    Stage: (
        trial("matmul", Grid("i", 4), Grid("j", 6), Stage(1), Stage(2)),
        trial("matmul", Grid("i", 4), Grid("j", 6), Split("k", 4, REDUCE), Stage(1, "k.o", 1),
              Stage(2, "k.o")),
        trial("matmul", Pad("j", 8), Grid("i", 4), Grid("j", 8), Split("k", 3, REDUCE),
              Stage(2, "k.o", 1), dtype=dtypes.int32),
        trial("transposed", Pad("i", 8), Pad("j", 4), Grid("i", 8), Grid("j", 4), Stage(1, "", 1)),
    ),
    Pack: (
        trial("matmul", Pack(("j",))),
        trial("matmul", Pack(("i", "k"), ("j",))),  # as rows, whatever its array's order
        trial("matmul", Split("j", 4, VECTOR), Pack(("j.v",))),
        trial("matmul", Split("i", 4), Pack(("i.i",), ("i.o",)), dtype=dtypes.int32),
    ),
    Tile: (
        trial("elementwise", Tile((("i", 2, 4),))),  # the last tile overlaps the one before
        trial("rows", Tile((("i", 2, 1), ("j", 1, 8)))),
        trial("matmul", Tile((("i", 3, 1), ("j", 2, 4)))),
        trial("matmul", Tile((("j", 1, 4),)), dtype=dtypes.int16),
        trial("matmul", Tile((("i", 3, 1), ("j", 5, 4)))),  # one tile, its last vector moved back
    ),
    Blocks: (
        trial("elementwise", Blocks("i", 8)),  # the last block is shorter
        trial("elementwise", Parallel("i"), Blocks("i", 5), dtype=dtypes.int8),
        trial("matmul", Blocks("k", 5), Blocks("i", 4)),
        trial("by_way_of_a_local", Blocks("i", 3)),
    ),
    SumInBlocks: (
        trial("matmul", Blocks("k", 5), SumInBlocks("k.o", ("i", "j"))),
        trial("matmul", Tile((("i", 3, 1), ("j", 1, 4))), Blocks("k", 4),
              SumInBlocks("k.o", ("i.o", "j.o", "i.u", "j.v"))),
        trial("column_maxima", Blocks("k", 4), SumInBlocks("k.o", ("j",)), dtype=dtypes.int16),
        trial("row_sums", Blocks("k", 32), SumInBlocks("k.o", ("i",)), dtype=dtypes.float16),
    ),
    Partial: (
        trial("weighted_rows", Partial("m", 6)),
        trial("weighted_rows", Partial("m", 8), Distribute("i"), Outermost(("m.b",))),
        trial("weighted_rows", Partial("m", 12), Split("j", 4, VECTOR), dtype=dtypes.float64),
    ),
    Reuse: (
        trial("by_way_of_two_locals", Reuse("raised", "row")),
        trial("by_way_of_two_locals", Reuse("raised", "row"), Distribute("i")),
        trial("by_way_of_two_locals", Reuse("raised", "row"), Split("m", 8, VECTOR),
              Split("k", 8, VECTOR), Unroll("k.o"), dtype=dtypes.int32),
    ),
    Accumulate: (
        trial("column_maxima", Accumulate("k", "j", 3)),
        trial("column_maxima", Accumulate("k", "j", 4), dtype=dtypes.int16),
        trial("matmul", Accumulate("k", "j", 5)),
    ),
    Distribute: (
        trial("by_way_of_a_local", Distribute("i")),
        trial("by_way_of_a_local", Distribute("i"), Split("j", 8, VECTOR), dtype=dtypes.int32),
    ),
    Outermost: (
        trial("rows", Outermost(("j", "i"))),
        trial("matmul", Split("j", 6), Outermost(("j.o",))),
        trial("matmul", Pack(("j",)), Outermost(("pack0.j", "pack0.k"))),  # of a fill
    ),
    BitOrder: (
        trial("column_maxima", BitOrder(), dtype=dtypes.float16),
        trial("column_maxima", BitOrder(), Cover("j", 16), dtype=dtypes.bfloat16),
        trial("column_maxima", BitOrder(), Accumulate("k", "j", 4), dtype=dtypes.float16),
    ),
    Inline: (
        trial("by_way_of_a_local", Inline("row")),
        trial("by_way_of_a_local", Inline("row"), Split("i", 2, VECTOR), dtype=dtypes.int32),
        trial("by_way_of_two_locals", Inline("raised"), Parallel("i")),
        trial("weighted_rows", Inline("row"), Split("j", 4, VECTOR), dtype=dtypes.float64),
    ),
    SeparateReduces: (
        trial("several_outputs", SeparateReduces()),
        trial("by_way_of_a_local", SeparateReduces()),
    ),
    Dot: (  # without the instruction it is plainer ones
        trial("widened", Dot(PAIRS, "k"), dtype=dtypes.int8),
        trial("widened", Dot(PAIRS, "k"), Split("j", 4, VECTOR), Split("i", 2, UNROLL),
              dtype=dtypes.uint8),
        trial("widened", Dot(FOURS, "k"), dtype=dtypes.uint8),
        trial("widened", Dot(FOURS, "k"), Split("j", 4, VECTOR), dtype=dtypes.int8),
        trial("widened", Dot(FOURS, "k"), Grid("i"), Grid("j", 8), dtype=dtypes.int8),
        trial("widened", Pad("k", 8), Dot(PAIRS, "k"), dtype=dtypes.int16),
        trial("widened", Dot(PAIRS, "k"), Fold("k.o", 4, 1), dtype=dtypes.int8),
    ),
    InChunks: (
        trial("elementwise", Parallel("i"), InChunks(4)),  # the last chunk is shorter
        trial("rows", Parallel("j"), InChunks(2), Split("i", 2)),
    ),
}  # fmt: skip


def known_actions() -> list[type[Action]]:
    """Every class of action that can be instantiated, in the order of their names."""
    found: dict[type[Action], None] = {}
    for module in pkgutil.iter_modules(opgraft.opt.__path__):
        importlib.import_module(f"opgraft.opt.{module.name}")
    pending: list[type[Action]] = list(Action.__subclasses__())
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if not getattr(kind, "__abstractmethods__", None):
            found[kind] = None
    return sorted(found, key=lambda kind: kind.__name__)


def without_trials() -> list[str]:
    """Actions, and kinds of a Split, that the table lacks."""
    missing = [k.__name__ for k in known_actions() if k not in TRIALS and k not in OF_UNITS]
    split = {
        action.kind
        for rows in TRIALS.values()
        for row in rows
        for action in row.actions
        if isinstance(action, Split)
    }
    # the kind PARALLEL is what Parallel and Grid make
    kinds = [k for k in AxisKind if k is not AxisKind.PARALLEL]
    missing += [f"Split of kind {k.name}" for k in kinds if k not in split]
    return missing


def lacks(actions: tuple[Action, ...], target: Target) -> str:
    """What the schedule needs and the target does not claim; empty: nothing."""
    grids, threads = 0, 1
    for action in actions:
        if isinstance(action, Parallel) and target.parallel is None:
            return f"{target.name} has no parallel loops"
        for lanes in _lanes(action):
            if target.vector_bytes == 0:
                return f"{target.name} has no vectors"
            if lanes > target.max_lanes:
                return f"{target.name} has no vectors of {lanes} lanes"
        grids += isinstance(action, Grid)
        if isinstance(action, (Grid, GroupReduce, GroupScan)):
            threads *= action.threads
        if isinstance(action, Split) and action.kind is THREAD:
            threads *= action.factor
    if (grids or threads > 1) and target.group_dims == 0:
        return f"{target.name} launches no grids"
    if grids and grids > target.group_dims:
        return f"{target.name} launches grids of {target.group_dims} dimensions"
    if threads > max(1, target.threads_per_group):
        return f"{target.name} has {target.threads_per_group} threads to a group"
    return ""


def _lanes(action: Action) -> list[int]:
    """Lanes of the vectors that an action makes."""
    if isinstance(action, Split) and action.kind is VECTOR:
        return [action.factor]
    if isinstance(action, Tile):
        return [lanes for _, _, lanes in action.parts if lanes > 1]
    if isinstance(action, (Fold, Cover, ScanLanes)):
        return [action.lanes]
    if isinstance(action, Dot):
        return [action.unit.depth]  # a word is read as so many elements at once
    return []


# ---- random schedules


def random_schedule(sink: UOp, target: Target, seed: int) -> tuple[Action, ...]:
    """A few actions that are legal on the kernel one after the other, by chance.

    What an action refuses, and what this target cannot be lowered to, is passed over.
    """
    pick = random.Random(seed)
    chosen: list[Action] = []
    wanted = pick.randint(1, 5)
    for action in _proposals(sink, target, pick, chosen):
        candidate = (*chosen, action)
        if lacks(candidate, target):
            continue
        try:
            scheduler.apply_all(sink, candidate)
            lower(scheduled(sink, candidate), target)
        except (Refused, LoweringError):
            continue
        chosen.append(action)
        if len(chosen) == wanted:
            break
    return tuple(chosen)


def _proposals(
    sink: UOp, target: Target, pick: random.Random, chosen: list[Action]
) -> Iterator[Action]:
    for _ in range(16):
        loops = [
            n for n in scheduler.apply_all(sink, tuple(chosen)).toposort() if n.op is Ops.RANGE
        ]
        if not loops:
            return
        first, second = pick.choice(loops), pick.choice(loops)
        name = first.arg[0]
        size = int(min(first.src[0].vmax, 64))
        kinds = [LOOP, VECTOR, VECTOR, UNROLL]
        kind = pick.choice(kinds)
        if kind is LOOP and first.arg[1] is REDUCE:
            kind = REDUCE
        begin = pick.randint(0, max(0, size - 1))
        choices: list[Action] = [
            Split(name, pick.choice((2, 3, 4, 8)), kind),
            Split(name, pick.choice((2, 4, 5)), kind),
            Innermost(name),
            Fuse(name, second.arg[0]),
            Partition(name, begin, pick.randint(begin, size)),
            Pad(name, pick.choice((2, 4, 8))),
            Tile(((name, pick.choice((1, 2)), pick.choice((1, 2, 4))),)),
            Pack((name,)),
            Outermost((name,)),
            Blocks(name, pick.choice((2, 3, 5))),
        ]
        if size <= 8:
            choices.append(Unroll(name))
        if target.group_dims:
            choices += [Grid(name, pick.choice((1, 2, 4, 8)))] * 3
            choices += [GroupReduce(name, pick.choice((2, 4, 8))), Split(name, 2, THREAD)]
            choices.append(GroupScan(name, pick.choice((2, 4))))
            choices.append(Stage(pick.randint(0, 3), pick.choice(("", second.arg[0])), 1))
        elif target.parallel is not None:
            choices.append(Parallel(name))
        yield pick.choice(choices)


MIXED: Final = (dtypes.float32, dtypes.int32, dtypes.float16, dtypes.int8, dtypes.uint16)


def is_sound(reference: Device, trial: Trial, target: Target) -> bool:
    """Whether what the core makes of a trial for this target means what it ought to.

    INTERP carries out the same instructions that the device's renderer is handed. Where it finds
    them wrong, the scheduler is at fault, not the device: the kit's own tests look for that.
    """
    try:
        lowered = lower(trial.sink(), target)
        memory = filled(trial.meaning())
        wanted = expected(reference, trial.meaning(), memory)
        found = expected(reference, lowered, memory)
    except (DeviceError, LoweringError, SpecError):
        return False
    kinds = parameters(trial.meaning())
    return not any(differ(found[s], wanted[s], dtype).any() for s, (dtype, _) in kinds.items())


def random_trial(target: Target, seed: int) -> Trial:
    """A kernel and a random schedule of it."""
    pick = random.Random(seed * 7919 + 13)
    every = {**kernels.SHAPES, **kernels.MOVES}
    name = pick.choice(list(every))
    dtype = pick.choice([d for d in MIXED if d in target.compute] or [dtypes.int32])
    sink = scheduled(every[name](dtype), ())
    return Trial(name, random_schedule(sink, target, seed), dtype)
