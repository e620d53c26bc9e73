"""Every action leaves the kernel's meaning as it was, or is refused with a reason."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import KernelInfo
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
from opgraft.opt.axes import Kernel


def same(before: UOp, after: UOp) -> None:
    memory = fill(before)
    assert expected(after, memory) == expected(before, memory)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["elementwise", "rows", "row_sum", "matmul", "convolution"])
@pytest.mark.parametrize("kind", [AxisKind.LOOP, AxisKind.VECTOR, AxisKind.UNROLL])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_a_split_of_any_loop_keeps_the_meaning(name: str, kind: AxisKind, factor: int) -> None:
    sink = kernels.NAMED[name]()
    for loop in Kernel(sink).ranges:
        if int(loop.src[0].arg) >= factor:
            same(sink, Split(loop.arg[0], factor, kind).apply(sink))


def test_a_split_that_does_not_divide_leaves_a_loop_for_the_rest() -> None:
    sink = kernels.elementwise(10)
    split = Split("i", 4).apply(sink)
    sizes = {r.arg[0]: int(r.src[0].arg) for r in Kernel(split).ranges}
    assert sizes == {"i.o": 2, "i.i": 4, "i.t": 2}
    same(sink, split)


def test_a_split_that_takes_the_whole_extent_leaves_no_outer_loop() -> None:
    split = Split("i", 8, AxisKind.VECTOR).apply(kernels.elementwise(8))
    assert [r.arg for r in Kernel(split).ranges] == [("i.v", AxisKind.VECTOR)]


def test_a_split_reduce_with_a_rest_combines_both_parts() -> None:
    sink = kernels.row_sum(2, 11)
    split = Split("k", 4, AxisKind.UNROLL).apply(sink)
    assert len(Kernel(split).reduces) == 2
    same(sink, split)


@pytest.mark.parametrize("name", ["row_sum", "matmul", "several_outputs"])
def test_unrolling_a_reduce_keeps_the_meaning(name: str) -> None:
    sink = kernels.NAMED[name]()
    same(sink, Unroll("k").apply(sink))


@pytest.mark.parametrize("name", ["rows", "transposed", "padded"])
def test_fusing_two_output_loops_keeps_the_meaning(name: str) -> None:
    sink = kernels.NAMED[name]()
    fused = Fuse("i", "j").apply(sink)
    assert len(Kernel(fused).spine) == 1
    same(sink, fused)


def test_cores_share_both_of_two_fused_loops() -> None:
    fused = Fuse("i", "j").apply(Parallel("i").apply(kernels.rows()))
    (loop,) = Kernel(fused).spine
    assert loop.arg == ("i.j", AxisKind.PARALLEL)
    same(kernels.rows(), fused)
    lanes = Split("j", 4, AxisKind.VECTOR).apply(Parallel("i").apply(kernels.rows()))
    with pytest.raises(Refused, match="of different kinds"):
        Fuse("i", "j.v").apply(lanes)


@pytest.mark.parametrize("name", ["padded", "convolution", "rows"])
@pytest.mark.parametrize(("begin", "end"), [(1, 5), (0, 3), (2, 6)])
def test_a_partition_keeps_the_meaning(name: str, begin: int, end: int) -> None:
    sink = kernels.NAMED[name]()
    loop = Kernel(sink).spine[-1]
    same(sink, Partition(loop.arg[0], begin, end).apply(sink))


def test_a_partition_needs_an_inner_part() -> None:
    with pytest.raises(Refused, match="no inner part"):
        Partition("i", 0, 37).apply(kernels.elementwise(37))


def test_parallel_puts_the_loop_outermost() -> None:
    sink = Parallel("j").apply(kernels.rows())
    first = sink.src[0].src[1]
    assert first.arg == ("j", AxisKind.PARALLEL)
    same(kernels.rows(), sink)


def test_parallel_leaves_effects_beside_that_have_nothing_to_do_with_it() -> None:
    sink = kernels.several_outputs()
    spread = Parallel("j").apply(sink)
    assert [e.src[1].arg[1] for e in spread.src].count(AxisKind.PARALLEL) == 1
    same(sink, spread)


@pytest.mark.parametrize(
    "sink", [kernels.rows(5), kernels.matmul(), kernels.in_place(), kernels.rows_in_place()]
)
def test_parallel_takes_the_larger_part_of_a_loop_beside_its_rest(sink: UOp) -> None:
    split = Split("i", 4 if sink.arg.name == "in_place" else 2).apply(sink)
    assert len(split.src) == 2 * len(sink.src)
    same(sink, Parallel("i.o").apply(split))


def test_innermost_puts_the_loop_last() -> None:
    sink = Innermost("i").apply(kernels.rows())
    assert sink.src[0].src[-1].arg[0] == "i"
    same(kernels.rows(), sink)


def test_actions_are_values_that_compare_and_print() -> None:
    assert Split("i", 4) == Split("i", 4) != Split("i", 8)
    assert "Split" in repr(Split("i", 4))


def test_a_sequence_of_actions_is_applied_in_order() -> None:
    sink = kernels.matmul(8, 16, 4)
    steps = (Split("j", 8, AxisKind.VECTOR), Split("i", 4, AxisKind.UNROLL), Parallel("i.o"))
    same(sink, apply_all(sink, steps))


REFUSED: list[tuple[str, UOp, Action, str]] = [
    ("an unknown range", kernels.rows(), Split("z", 2), "no range is named 'z'; there are i, j"),
    ("a factor over the extent", kernels.rows(), Split("i", 64), "can't be split by 64"),
    ("a scanned range", kernels.cumulative(), Split("j", 2), "scanned"),
    ("a loop that refills a local", kernels.normalised_rows(), Unroll("i"), "local buffer"),
    (
        "lanes over a local's loop",
        kernels.normalised_rows(8),
        Split("i", 4, AxisKind.VECTOR),
        "local buffer",
    ),
    ("a loop beside stores to its array", kernels.last_store_wins(), Parallel("i"), "not enclose"),
    ("a loop beside reads of its array", kernels.read_beside(), Parallel("i"), "not enclose"),
    ("loops round different things", kernels.several_outputs(), Fuse("i", "j"), "same statements"),
]


@pytest.mark.parametrize(
    ("sink", "action", "reason"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_what_is_not_legal_is_refused_with_the_reason(
    sink: UOp, action: Action, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        action.apply(sink)


def test_a_range_without_constant_extent_is_not_split() -> None:
    n = UOp.variable("n", 1, 10)
    i = UOp.range(n, "i")
    out = kernels.param(0, 10)
    sink = UOp.sink(out.store(i, UOp.const("float32", 1.0)).end(i), arg=KernelInfo("k"))
    with pytest.raises(Refused, match="no constant extent"):
        Split("i", 2).apply(sink)


def test_the_spine_is_what_all_outputs_share() -> None:
    assert [r.arg[0] for r in Kernel(kernels.several_outputs()).spine] == ["i"]
    assert [r.arg[0] for r in Kernel(kernels.cumulative()).spine] == ["i"]
    assert Kernel(kernels.full_sum()).spine == ()


def test_work_counts_each_value_at_its_own_loops() -> None:
    # 3 x 19 of: two loads (one at j alone: 19), one add; index arithmetic at its loops
    sink = kernels.rows(3, 19)
    assert Kernel(sink).work() >= 3 * 19 * 2 + 19
    assert Kernel(sink).accesses[0].node.op in (Ops.LOAD, Ops.STORE)
