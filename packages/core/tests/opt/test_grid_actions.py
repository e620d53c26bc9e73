"""Actions for groups of threads leave the meaning as it was, or are refused with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.kernels import kernel, loop, over, param
from kernel_forms.memory import expected, fill
from opgraft.devices.invented import LANES32, LANES64
from opgraft.errors import LoweringError
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.launch import group_bytes
from opgraft.ir.linear import LinearProgram
from opgraft.ir.text import parse, to_text
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Action, Fuse, Innermost, Refused, Split, apply_all
from opgraft.opt.axes import Kernel
from opgraft.opt.grid_actions import Grid, GroupReduce, Pad, Stage
from opgraft.opt.grid_scan import GroupScan
from opgraft.target import Target

THREAD, UNROLL, VECTOR = AxisKind.THREAD, AxisKind.UNROLL, AxisKind.VECTOR


def scheduled(sink: UOp, *actions: Action) -> UOp:
    return sink.replace(arg=replace(sink.arg, schedule=actions))


def agree(sink: UOp, *actions: Action, target: Target = LANES32) -> LinearProgram:
    """Run with these actions; the program that ran."""
    program = lower(scheduled(sink, *actions), target)
    memory = fill(sink)
    assert interpret(program, memory) == expected(sink, memory)
    return program


# ---- each action


@pytest.mark.parametrize("threads", [1, 2, 8, 32, 64])
@pytest.mark.parametrize("name", ["elementwise", "rows", "padded", "in_place", "chained_in_place"])
def test_a_loop_goes_to_groups_of_threads(name: str, threads: int) -> None:
    sink = kernels.NAMED[name]()
    program = agree(sink, Grid("i", threads))
    size = int(Kernel(sink).find("i").src[0].arg)  # type: ignore[union-attr]
    assert program.launch == ((-(-size // threads),), (threads,))


@pytest.mark.parametrize("threads", [2, 7, 32, 128])
@pytest.mark.parametrize("name", ["row_sum", "several_outputs", "matmul"])
def test_a_sum_is_shared_by_the_threads_of_a_group(name: str, threads: int) -> None:
    program = agree(kernels.NAMED[name](), Grid("i"), GroupReduce("k", threads))
    assert program.launch[1] == (threads,)
    assert any(n.op is Ops.BARRIER for n in program.instructions)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN])
def test_every_reduction_can_be_shared(op: Ops) -> None:
    k = over(45, "k")
    value = (param(1, 45).load(k) < 10.0).where(
        UOp.const("float32", 1.0), UOp.const("float32", 2.0)
    )
    sink = kernel("shared", param(0, 1).store(0, value.reduce(op, k)))
    agree(sink, GroupReduce("k", 16))
    agree(sink, GroupReduce("k", 64))


@pytest.mark.parametrize(("width", "threads"), [(64, 4), (70, 32), (45, 7), (16, 8)])
def test_a_scan_is_shared_by_the_threads_of_a_group(width: int, threads: int) -> None:
    program = agree(kernels.cumulative(3, width), Grid("i"), GroupScan("j", threads))
    assert program.launch == ((3,), (threads,))
    assert any(n.op is Ops.BARRIER for n in program.instructions)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN])
def test_every_scan_can_be_shared(op: Ops) -> None:
    j = loop(37, "j")
    value = (param(1, 37).load(j) < 10.0).where(
        UOp.const("float32", 1.0), UOp.const("float32", 2.0)
    )
    running = UOp(Ops.SCAN, value.dtype, (value, j), op)
    agree(kernel("shared", param(0, 37).store(j, running + 1.0).end(j)), GroupScan("j", 8))


def test_a_scan_that_cannot_be_shared_is_refused() -> None:
    rows, grid = kernels.cumulative(8, 20), Grid("i", 4)
    for sink, action, why in (
        (rows, GroupScan("j", 11), "no two iterations for each of 11"),
        (grid.apply(rows), GroupScan("j", 4), "scans over j of their own"),
        (kernels.row_sum(3, 20), GroupScan("k", 4), "range k is not scanned"),
    ):
        with pytest.raises(Refused, match=why):
            action.apply(sink)


def test_rows_of_threads_each_share_a_sum_of_their_own() -> None:
    program = agree(kernels.row_sum(5, 70), Grid("i", 4), GroupReduce("k", 8))
    assert sorted(program.launch[1]) == [4, 8]


def test_a_padded_loop_does_nothing_more() -> None:
    agree(kernels.rows(), Pad("j", 8), Split("j", 8), Grid("i"))
    agree(kernels.row_sum(), Pad("i", 4), Pad("k", 32))
    agree(kernels.column_max(), Pad("k", 4), Pad("j", 32), Split("j", 32, THREAD))
    agree(kernels.convolution(), Pad("k", 4), Pad("t", 2), Pad("i", 3), Grid("c"))
    agree(kernels.gather(), Pad("i", 4), Split("j", 4, THREAD))


def test_threads_fill_a_local_together() -> None:
    program = agree(
        kernels.normalised_rows(3, 50),
        Grid("i"),
        Split("l", 16, THREAD),
        Split("j", 16, THREAD),
        GroupReduce("k", 16),
    )
    row = next(n for n in program.instructions if n.op is Ops.LOCAL and n.arg[0] == "row")
    assert row.arg == ("row", 50, Space.GROUP)


TILE = (
    Pad("i", 8),
    Pad("j", 16),
    Pad("k", 4),
    Split("i", 8),
    Split("j", 16),
    Split("i.i", 2, UNROLL),
    Split("i.i.o", 4, THREAD),
    Split("j.i", 4, THREAD),
    Split("j.i.o", 4, UNROLL),
    Grid("i.o"),
    Grid("j.o"),
    Split("k", 4),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pad", [0, 1])
def test_a_tile_of_each_factor_is_staged(pad: int) -> None:
    sink = kernels.matmul(13, 35, 11)
    plain = agree(sink, *TILE)
    assert group_bytes(plain) == 0
    staged = agree(sink, *TILE, Stage(1, "k.o", pad), Stage(2, "k.o", pad))
    assert staged.launch[1] == (4, 4)
    assert group_bytes(staged) == 4 * (8 * (4 + pad) + 4 * (16 + pad))
    fused = (Stage(1, "k.o", pad), Stage(2, "k.o", pad), Fuse("i.i.o.t", "j.i.t"))
    assert agree(sink, *TILE, *fused).launch[1][0] == 16


def test_threads_do_not_share_a_loop_that_stages_anew_in_each_iteration() -> None:
    sink = kernels.matmul(16, 16, 8)
    staged = (Split("i", 8), Split("j", 8), Stage(1, "", 0, 4), Stage(2, "", 0, 4))
    agree(sink, *staged, Grid("j.o", 1), Grid("i.o", 1))
    for name in ("i.o", "j.o"):
        with pytest.raises(Refused, match=f"each iteration of {name} fills group memory"):
            apply_all(sink, (*staged, Grid(name, 2)))


def test_vectors_are_read_from_a_staged_tile() -> None:
    tile = (
        *TILE[:6],
        Split("i.i.o", 4, THREAD),
        Split("j.i", 4, VECTOR),
        Innermost("j.i.v"),
        Split("j.i.o", 4, THREAD),
        *TILE[9:],
        Stage(1, "k.o"),
        Stage(2, "k.o"),
    )
    program = agree(kernels.matmul(13, 35, 11), *tile)
    loads = [n for n in program.instructions if n.op is Ops.LOAD and n.dtype.count == 4]
    assert any(n.src[0].op is Ops.LOCAL and n.src[0].arg[0] == "tile2" for n in loads)


def test_a_whole_row_is_staged_once_for_each_group() -> None:
    sink = kernels.matmul(4, 20, 9)
    program = agree(sink, Pad("j", 8), Split("j", 8, THREAD), Grid("i"), Stage(1))
    assert group_bytes(program) == 4 * 9


# ---- values


EVERY = [
    Grid("i", 32),
    Pad("k", 4),
    GroupReduce("k", 64),
    GroupScan("j", 32),
    Stage(2, "k.o", 1),
    Split("j", 8, THREAD),
]


@pytest.mark.parametrize("action", EVERY, ids=lambda a: type(a).__name__)
def test_a_schedule_prints_and_parses(action: Action) -> None:
    sink = scheduled(kernels.matmul(), action)
    assert parse(to_text(sink)) is sink
    assert parse(to_text(sink)).arg.schedule == (action,)


def test_a_schedule_replays() -> None:
    steps = (*TILE, Stage(1, "k.o"), Stage(2, "k.o"))
    first = apply_all(kernels.matmul(13, 35, 11), steps)
    assert apply_all(kernels.matmul(13, 35, 11), steps) is first
    again = parse(to_text(scheduled(kernels.matmul(13, 35, 11), *steps))).arg.schedule
    assert apply_all(kernels.matmul(13, 35, 11), again) is first


# ---- refused


def shifted() -> UOp:
    i = loop(20, "i")
    x = param(0, 21)
    return kernel("shifted", x.store(i, x.load(i + 1)).end(i))


REFUSED: list[tuple[str, UOp, tuple[Action, ...], str]] = [
    ("an unknown range", kernels.rows(), (Grid("z"),), "no range is named 'z'"),
    ("a sum's range", kernels.row_sum(), (Grid("k"),), "no loop of an effect"),
    ("a loop that goes there already", kernels.rows(), (Grid("i"), Grid("i.g")), "PARALLEL"),
    ("a scan", kernels.cumulative(), (Grid("j"),), "stay in order"),
    ("a shared scan", kernels.cumulative(), (Split("j", 2, THREAD),), "scanned"),
    ("what others read", shifted(), (Grid("i", 4),), "may touch one element of slot 0"),
    ("what other threads read", shifted(), (Split("i", 4, THREAD),), "may load what others store"),
    ("colliding stores", kernels.colliding_stores(), (Split("i", 4, THREAD),), "order counts"),
    ("colliding groups", kernels.colliding_stores(), (Grid("i", 4),), "stay in order"),
    ("a loop as a sum", kernels.rows(), (GroupReduce("i", 2),), "closed by no REDUCE"),
    ("one thread", kernels.row_sum(), (GroupReduce("k", 1),), "share nothing"),
    ("a second share", kernels.row_sum(), (GroupReduce("k", 8), GroupReduce("k.o", 4)), "already"),
    (
        "a local of each thread",
        kernels.normalised_rows(),
        (Grid("i", 2), Split("l", 4, THREAD)),
        "filled by each thread for itself",
    ),
    ("a multiple", kernels.row_sum(5, 64), (Pad("k", 32),), "a multiple of 32 already"),
    (
        "no threads",
        kernels.matmul(),
        (Stage(1),),
        "no range goes to the threads",
    ),
    ("an unread slot", kernels.matmul(), (Grid("j", 4), Stage(7)), "slot 7 is not read"),
    ("a stored slot", kernels.in_place(), (Grid("i", 4), Stage(0)), "stored to by the kernel"),
    ("a whole tile of one", kernels.matmul(), (Grid("i", 4), Stage(2, "k")), "one element"),
    (
        "places from memory",
        kernels.gather(),
        (Grid("i", 4), Stage(1)),
        "at places that don't move evenly",
    ),
]


@pytest.mark.parametrize(
    ("sink", "actions", "reason"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_what_is_not_legal_is_refused_with_the_reason(
    sink: UOp, actions: tuple[Action, ...], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        apply_all(sink, actions)


# ---- tuning lists


def first_legal(sink: UOp, tries: list[tuple[Action, ...]], target: Target) -> LinearProgram:
    """What a tuner does: the first schedule that the target takes, or all the reasons why not."""
    reasons = []
    for schedule in tries:
        try:
            return lower(scheduled(sink, *schedule), target)
        except (Refused, LoweringError) as error:
            reasons.append(f"{schedule}: {error.message}")
    raise LoweringError("no schedule fits:\n" + "\n".join(reasons))


def test_a_tuning_list_with_illegal_entries_is_gone_through() -> None:
    """E02: 128 KiB of group memory, 4096 threads, and one that fits 48 KiB and 1024 threads."""
    fake = replace(LANES64, local_bytes=48 << 10, threads_per_group=1024)
    sink = kernels.matmul(64, 64, 64)
    rows, columns = Split("i", 16, THREAD), Split("j", 16, THREAD)
    large = (rows, columns, Pad("k", 1024), Stage(1), Stage(2))
    many = (Split("i", 64, THREAD), Split("j", 64, THREAD))
    legal = (Grid("i"), Split("j", 64, THREAD), Stage(1))
    program = first_legal(sink, [large, many, legal], fake)
    assert program.launch == ((64,), (64,))
    with pytest.raises(LoweringError) as raised:
        first_legal(sink, [large, many], fake)
    said = str(raised.value)
    assert "131072 bytes of group memory, where 49152 is the most" in said
    assert "the schedule wants 4096 threads of a group; LANES64 has 1024" in said
    assert "Split(name='i', factor=64, kind=AxisKind.THREAD)" in said


# ---- what the scheduler chooses


def test_free_loops_that_are_not_seen_to_be_free_as_one_stay_two() -> None:
    """A sum is shared along the loop between them; a kernel like this once could not be lowered."""
    i0, i1, i2, k = loop(24, "i0"), loop(24, "i1"), loop(2, "i2"), over(3, "k")
    value = param(1, 144).load((k * 2 + i2) * 24 + i0).reduce(Ops.ADD, k)
    sink = kernel("between", param(0, 1152).store((i0 * 24 + i1) * 2 + i2, value).end(i0, i1, i2))
    for target in (LANES32, LANES64):
        program = lower(sink, target)
        memory = fill(sink)
        assert interpret(program, memory) == expected(sink, memory)
        assert program.launch[1]
