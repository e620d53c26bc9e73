"""A schedule given by hand is legal, and then keeps the meaning, or is refused with the reason.

Each row is a kernel, actions that are legal, the one that is not after them, and what it says.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.kernels import kernel, loop, over, param
from kernel_forms.memory import expected, fill
from opgraft import dtypes
from opgraft.devices.invented import LANES32
from opgraft.errors import LoweringError
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.lower.pipeline import lower, prepared
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
    apply_all,
)
from opgraft.opt.blocks import Blocks, SumInBlocks
from opgraft.opt.chunks import InChunks
from opgraft.opt.cover import Cover
from opgraft.opt.distribute import Distribute
from opgraft.opt.fold import Fold
from opgraft.opt.grid_actions import Grid, GroupReduce, Pad, Stage
from opgraft.opt.grid_scan import GroupScan
from opgraft.opt.pack import Pack
from opgraft.opt.scan import ScanLanes
from opgraft.opt.separate import SeparateReduces
from opgraft.opt.tile import Outermost, Tile

LOOP, REDUCE, PARALLEL = AxisKind.LOOP, AxisKind.REDUCE, AxisKind.PARALLEL
VECTOR, UNROLL = AxisKind.VECTOR, AxisKind.UNROLL

COLLIDING = kernels.colliding_stores()
LOCALS = kernels.normalised_rows(8)
PRODUCT = kernels.matmul(8, 16, 12)
ROWS = kernels.rows(8, 16)
ONE_ROW = prepared(kernels.stored_and_read_back(1))
SHARED = (Parallel("i"),)
LANES = (Split("j", 4, VECTOR),)


def of_variable_depth() -> UOp:
    """A product whose depth is a variable."""
    depth = UOp.variable("n", 1, 12)
    i, j = loop(4, "i"), loop(8, "j")
    k = UOp.range(depth, "k", REDUCE)
    out, a, b = param(0, 32), param(1, 48), param(2, 96)
    value = (a.load(i * 12 + k) * b.load(k * 8 + j)).reduce(Ops.ADD, k)
    return kernel("of_variable_depth", out.store(i * 8 + j, value).end(i, j))


def sum_of_scanned() -> UOp:
    """The sum of a running sum, for each row."""
    i, j, k = loop(3, "i"), loop(4, "j"), over(5, "k")
    out, a = param(0, 12), param(1, 60)
    running = UOp(Ops.SCAN, dtypes.float32, (a.load((i * 4 + j) * 5 + k), k), Ops.ADD)
    return kernel("sum_of_scanned", out.store(i * 4 + j, running.reduce(Ops.ADD, k)).end(i, j))


def scanned(gated: bool = False, beside: bool = False) -> UOp:
    """A running sum, stored in part, or added up as well."""
    i, j = loop(3, "i"), loop(16, "j")
    out, a, total = param(0, 48), param(1, 48), param(2, 3)
    running = UOp(Ops.SCAN, dtypes.float32, (a.load(i * 16 + j), j), Ops.ADD)
    gate = j < 9 if gated else None
    effects = [out.store(i * 16 + j, running, gate).end(i, j)]
    if beside:
        effects.append(total.store(i, running.reduce(Ops.ADD, j)).end(i))
    return kernel("scanned", *effects)


def read_twice() -> UOp:
    i, k = loop(8, "i"), over(16, "k")
    out, a = param(0, 8), param(1, 136)
    return kernel(
        "read_twice",
        out.store(i, (a.load(i * 16 + k) * a.load(i * 16 + k + 1)).reduce(Ops.ADD, k)).end(i),
    )


def product_into_its_factor() -> UOp:
    """b of the second half of a is overwritten; it is read in the first."""
    i, j, k = loop(8, "i"), loop(8, "j"), over(8, "k")
    a, b = param(0, 128), param(1, 64)
    value = (a.load(i * 8 + k) * b.load(k * 8 + j)).reduce(Ops.ADD, k)
    return kernel("product_into_its_factor", a.store(64 + i * 8 + j, value).end(i, j))


def row_in_part() -> UOp:
    """Only a sum is written to the local on the way: an END of something that is no STORE."""
    i, j, own = loop(4, "i"), loop(8, "j"), loop(8, "l")
    out, a = param(0, 32), param(1, 32)
    row = UOp(Ops.LOCAL, dtypes.float32, (), ("row", 8, Space.PRIVATE))
    filled = row.after(row.store(own, a.load(i * 8 + own)).end(own))
    return kernel("row_in_part", out.store(j * 4 + i, filled.load(j)).end(j).end(i))


Row = tuple[str, UOp, tuple[Action, ...], Action, str]
ORDER, ONCE = "order counts", "local buffer is filled anew"
ROWS_OF: list[Row] = [
    ("lanes of colliding stores", COLLIDING, (), Split("i", 4, VECTOR), ORDER),
    ("copies of colliding stores", COLLIDING, (), Split("j", 4, UNROLL), ORDER),
    ("a rest of colliding stores", COLLIDING, (), Split("j", 5), ORDER),
    ("all of colliding stores", COLLIDING, (), Unroll("i"), ORDER),
    ("parts of colliding stores", COLLIDING, (), Partition("i", 1, 3), ORDER),
    ("colliding stores the other way round", COLLIDING, (), Fuse("j", "i"), ORDER),
    ("colliding stores inside out", COLLIDING, (), Innermost("i"), ORDER),
    ("cores that overwrite what others read", kernels.less_its_maximum(), (), Parallel("i"),
     "may touch one element of slot 0"),
    ("cores that overwrite what all read first", kernels.less_its_maximum(400), (Unroll("k"),),
     Parallel("i"), "may touch one element of slot 0"),
    ("a split for the cores", ROWS, (), Split("i", 2, PARALLEL), "not Split"),
    ("a sum over a loop of results", ROWS, (), Split("i", 2, REDUCE), "not only reduced"),
    ("two loops for the cores", ROWS, SHARED, Parallel("j"), "share range i already"),
    ("lanes for the cores", ROWS, LANES, Parallel("j.v"), "of kind VECTOR already"),
    ("a rest beside the cores' loop", ROWS, SHARED, Split("i", 3), "of kind PARALLEL: it stays"),
    ("parts of the cores' loop", ROWS, SHARED, Partition("i", 1, 3), "of kind PARALLEL: it stays"),
    ("parts of a vector", ROWS, LANES, Partition("j.v", 1, 3), "of kind VECTOR: it stays one"),
    ("the cores' loop innermost", ROWS, SHARED, Innermost("i"), "stays outermost"),
    ("a loop around the cores'", ROWS, SHARED, Outermost(("j", "i")), "stays outermost"),
    ("a loop scanned outermost", kernels.cumulative(), (), Outermost(("j",)), "stay in order"),
    ("cores at a loop as long as another says", ROWS, (Blocks("j", 3),), Parallel("j.i"),
     "extent of range j.i depends on j.o"),
    ("groups at a loop as long as another says", ROWS, (Blocks("j", 3),), Grid("j.i", 2),
     "extent of range j.i"),
    ("a loop inside one that it says the end of", ROWS, (Blocks("j", 3),), Innermost("j.o"),
     "extent of range j.i depends on j.o"),
    ("a loop around one that says its end", ROWS, (Blocks("j", 3),), Outermost(("j.i",)),
     "extent of range j.i depends on j.o"),
    ("a range joined to itself", ROWS, (), Fuse("i", "i"), "no neighbour in itself"),
    ("a loop as long as another says", ROWS, (Blocks("j", 3),), Fuse("j.i", "i"),
     "depends on other ranges"),
    ("a range tiled twice", ROWS, (), Tile((("j", 2, 1), ("j", 1, 4))), "is tiled once"),
    ("tiles of a cores' loop that overlap", ROWS, SHARED, Tile((("i", 3, 1),)), "last tile"),
    ("tiles over a local's loop", LOCALS, (), Tile((("i", 2, 1),)), ONCE),
    ("a range covered in lanes", ROWS, LANES, Cover("j.v", 2), "at once already"),
    ("a cover over a local's loop", LOCALS, (), Cover("i", 4), ONCE),
    ("folding what is in lanes", kernels.row_sum(), (Split("k", 4, VECTOR),), Fold("k.v", 2),
     "at once already"),
    ("folding in lanes", PRODUCT, LANES, Fold("k", 4), "stands in lanes or threads already"),
    ("folding blocks of varying length", kernels.row_sum(), (Blocks("k", 3),), Fold("k.o", 4),
     "extent of range k.i depends on k.o"),
    ("folding a local's loop", LOCALS, (), Fold("i", 2), "not only reduced"),
    ("sums in lanes", PRODUCT, LANES, Accumulate("k", "i", 4), "stands in lanes or copies"),
    ("sums over lanes", PRODUCT, LANES, Accumulate("k", "j.v", 4), "stands in lanes or copies"),
    ("sums of copies", PRODUCT, (Split("k", 4, UNROLL),), Accumulate("k.o", "i", 3),
     "stands in lanes or copies"),
    ("sums over a loop that another one follows", PRODUCT, (Blocks("j", 5),),
     Accumulate("k", "j.o", 2), "extent of range j.i depends on j.o"),
    ("sums of all cores", PRODUCT, SHARED, Accumulate("k", "i", 4), "each has its own sums"),
    ("sums in blocks of all cores", PRODUCT, (*SHARED, Blocks("k", 5)),
     SumInBlocks("k.o", ("i",)), "each has its own sums"),
    ("sums of what is scanned", sum_of_scanned(), (), Accumulate("k", "j", 2), "is scanned"),
    ("sums in blocks, in lanes", PRODUCT, (*LANES, Blocks("k", 5)), SumInBlocks("k.o", ("i",)),
     "stands in lanes or copies"),
    ("sums in blocks that another block says the end of", PRODUCT, (Blocks("k", 5),),
     SumInBlocks("k.i", ("i",)), "extent of range k.i depends on k.o"),
    ("sums in blocks for rows that another says the end of", PRODUCT,
     (Blocks("i", 3), Blocks("k", 5)), SumInBlocks("k.o", ("i.i", "i.o")),
     "extent of range i.i depends on i.o"),
    ("sums in blocks of a local's loop", LOCALS, (Blocks("l", 5),), SumInBlocks("l.o", ("i",)),
     "no single REDUCE"),
    ("reductions in blocks of varying length, apart", kernels.row_sum(),
     (Blocks("k", 16), Partition("i", 1, 4)), SeparateReduces(),
     "extent of range k.i depends on k.o"),
    ("a longer loop of blocks", ROWS, (Blocks("j", 3),), Pad("j.o", 4),
     "extent of range j.i depends on j.o"),
    ("groups of tiles that overlap", ROWS, (Pad("i", 3), Tile((("i", 2, 1),))), Grid("i.o"),
     "stay in order"),
    ("cores at a loop that what it reads is stored before", ONE_ROW, (), Parallel("i"),
     "slot 0 is stored to outside of range i"),
    ("groups at a loop that what it reads is stored before", ONE_ROW, (), Grid("i"),
     "slot 0 is stored to outside of range i"),
    ("threads for one iteration", ROWS, (Grid("i", 16),), Split("i.g", 3, AxisKind.THREAD),
     "nothing to share"),
    ("more groups than there are", ROWS, (Grid("i", 4),), Pad("i.g", 3), "of kind PARALLEL"),
    ("parts of a group's threads", ROWS, (Grid("i", 4),), Partition("i.t", 1, 3),
     "of kind THREAD: it stays one"),
    ("no chunks", ROWS, (), InChunks(0), "range of 0 chunks"),
    ("one chunk", ROWS, SHARED, InChunks(1), "nothing to share"),
    ("a loop of each statement that is not there", LOCALS, (), Distribute("z"), "no range 'z'"),
    ("a loop of blocks of each statement", LOCALS, (Blocks("i", 3),), Distribute("i.o"),
     "extent of range i.i depends on i.o"),
    ("groups of nobody", ROWS, (), Grid("i", 0), "groups of 0 threads"),
    ("sums by nobody", kernels.row_sum(), (), GroupReduce("k", 0), "0"),
    ("a copy of what is read twice", read_twice(), (Grid("i", 4),), Stage(1), "at 2 places"),
    ("a copy for threads of which some are away", kernels.row_sum(), (Grid("i", 4),), Stage(1),
     "not all threads of a group are in range i.w: Pad first"),
    ("a copy in a thread's loop", ROWS, (Grid("i", 4),), Stage(1, "i.t"), "different iterations"),
    ("a copy in copies", PRODUCT, (Split("i", 4, UNROLL),), Stage(1, "i.u", 0, 4),
     "stands in lanes or copies"),
    ("scans of threads in copies", kernels.cumulative(4, 16), (Split("i", 2, UNROLL),),
     GroupScan("j", 4), "stands in lanes or copies"),
    ("a copy of a copy", PRODUCT, (Grid("i", 4), Grid("j", 4), Stage(1)), Stage(1),
     "copied already"),
    ("a copy of variable size", of_variable_depth(), (Grid("i", 4), Grid("j", 4)), Stage(1),
     "no constant extent"),
    ("a packed factor in lanes", PRODUCT, LANES, Pack(("k",), ("j.v",)), "stands in lanes"),
    ("a packed factor that is stored to", product_into_its_factor(), (), Pack(("k",)),
     "the kernel stores to the array"),
    ("a packed factor of loops that guard", kernels.matmul_transposed(),
     (Parallel("j"), InChunks(3)), Pack(("j.g",), ("j.i", "k")), "extent of range j.w depends"),
    ("parts of sums, the middle first", kernels.convolution(), (SumInBlocks("k", ("c",)),),
     Partition("sums0.k", 1, 2), ORDER),
    ("copies of sums that go on", kernels.column_max(), (Accumulate("k", "j", 1),), Unroll("k.o"),
     ORDER),
    ("a rest of sums that go on", kernels.column_max(), (Accumulate("k", "j", 1),),
     Split("k.o", 4), ORDER),
    ("scanned by vectors twice", kernels.cumulative(3, 16), (ScanLanes("j", 4),),
     ScanLanes("j.o", 2), ""),
    ("a scan stored in part", scanned(gated=True), (), ScanLanes("j", 4), "not all elements"),
    ("a scan that is added up", scanned(beside=True), (), ScanLanes("j", 4), "not only results"),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("sink", "before", "action", "reason"), [r[1:] for r in ROWS_OF], ids=[r[0] for r in ROWS_OF]
)
def test_what_is_not_legal_is_refused_with_the_reason(
    sink: UOp, before: tuple[Action, ...], action: Action, reason: str
) -> None:
    made = apply_all(sink, before)
    with pytest.raises(Refused) as refused:
        action.apply(made)
    assert reason in str(refused.value)
    assert str(refused.value)


LEGAL: list[tuple[UOp, tuple[Action, ...]]] = [
    (COLLIDING, (Split("j", 4),)),
    (COLLIDING, (Fuse("i", "j"),)),
    (COLLIDING, (Fuse("i", "j"), Split("i.j", 16))),
    (ROWS, (Parallel("i"), Split("i", 4), Split("j", 4, VECTOR))),
    (ROWS, (Parallel("i"), Outermost(("i", "j")))),
    (kernels.rows_in_place(), (Parallel("i"),)),
    (kernels.in_place(), (Split("i", 4), Parallel("i.o"))),
    (kernels.stored_and_read_back(), (Parallel("i"),)),
    (kernels.row_sum(), (Blocks("k", 3), Split("k.o", 4, REDUCE))),
    (kernels.matmul(3, 8, 7), (Blocks("k", 5), SumInBlocks("k.o", ("i",)))),
    (kernels.column_max(), (Accumulate("k", "j", 1), Split("k.o", 3), Unroll("sums0.j"))),
    (kernels.matmul(3, 8, 7), (*LANES, Blocks("k", 5), SumInBlocks("k.o", ("i", "j.v")))),
    (kernels.convolution(), (SumInBlocks("k", ("i",)), Distribute("c"))),
    (kernels.convolution(), (Pack(("t",)),)),
]


@pytest.mark.parametrize(("sink", "steps"), LEGAL)
def test_what_is_legal_beside_it_keeps_the_meaning(sink: UOp, steps: tuple[Action, ...]) -> None:
    memory = fill(sink)
    assert expected(apply_all(sink, steps), memory) == expected(sink, memory)


@pytest.mark.parametrize(
    "steps",
    [(Partition("i", 1, 2),), (Split("i", 3), Partition("i.t", 0, 1)), (Partition("i", 0, 3),)],
)
def test_a_part_of_a_loop_has_buffers_of_its_own(steps: tuple[Action, ...]) -> None:
    """What fills that of a single iteration stands in no loop: others still read theirs."""
    sink = kernels.normalised_rows(5, 6)
    memory = fill(sink)
    wanted = expected(sink, memory)
    assert expected(apply_all(sink, steps), memory) == wanted
    program = lower(sink.replace(arg=replace(sink.arg, schedule=steps)), LANES32)
    assert interpret(program, memory) == wanted


def test_both_factors_of_a_product_are_packed_each_in_a_buffer_of_its_own() -> None:
    made = Pack(("t",)).apply(kernels.convolution())
    assert {n.arg[0] for n in made.toposort() if n.op is Ops.LOCAL} == {"pack0", "pack1"}


def test_lanes_of_a_statement_and_of_one_around_it_are_refused() -> None:
    sink = kernels.stored_and_read_back(8)
    steps = (Split("j", 2, VECTOR), Split("i", 2, VECTOR))
    with pytest.raises(LoweringError, match="two VECTOR ranges"):
        lower(sink.replace(arg=replace(sink.arg, schedule=steps)), LANES32)


def test_a_store_that_is_read_again_happens_once_under_all_its_gates() -> None:
    """One thread does it, and only where the loop was before it was made longer."""
    sink = kernels.in_place_and_read_back()
    steps: tuple[Action, ...] = (Pad("i", 4), GroupReduce("k", 8))
    program = lower(sink.replace(arg=replace(sink.arg, schedule=steps)), LANES32)
    memory = fill(sink)
    assert interpret(program, memory) == expected(sink, memory)
