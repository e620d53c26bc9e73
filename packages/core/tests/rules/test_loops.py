"""How often loops have a value computed, hoisted as far as can be."""

from __future__ import annotations

from opgraft import Ops, UOp, dtypes
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import AxisKind
from opgraft.rules.loops import Loops

OUT = UOp(Ops.PARAM, dtypes.float32, (), (0, 4096))
DATA = UOp(Ops.PARAM, dtypes.float32, (), (1, 4096))


def test_the_innermost_loop_is_what_all_else_is_measured_by() -> None:
    i, j = UOp.range(16, 0), UOp.range(32, 1)
    sink = UOp.sink(OUT.store(i * 32 + j, DATA.load(j)).end(i, j), arg=KernelInfo("copy"))
    loops = Loops(sink)
    assert loops.share(i * 32 + j) == loops.share(j + 1) == 1.0
    assert loops.share(i * 32) == 1 / 32
    assert loops.share(UOp.variable("n", 0, 9) + 1) == 1 / (16 * 32)


def test_a_reduction_stands_in_the_loops_that_its_value_depends_on() -> None:
    i, k = UOp.range(16, 0), UOp.range(64, 1, AxisKind.REDUCE)
    total = DATA.load(i * 64 + k).reduce(Ops.ADD, k)
    sink = UOp.sink(OUT.store(i, total * 2.0).end(i), arg=KernelInfo("rows"))
    loops = Loops(sink)
    assert loops.share(DATA.load(i * 64 + k)) == 1.0
    assert loops.share(total) == loops.share(total * 2.0) == 1 / 64
    alone = DATA.load(k).reduce(Ops.ADD, k)
    loops = Loops(UOp.sink(OUT.store(i, alone * DATA.load(i)).end(i), arg=KernelInfo("once")))
    # 64 iterations in all: fewer than none of the other loop, so they count most
    assert loops.share(DATA.load(k)) == 1.0
    assert loops.share(DATA.load(i)) == 16 / 64


def test_statements_beside_each_other_do_not_nest() -> None:
    i, j = UOp.range(10, 0), UOp.range(40, 1)
    sink = UOp.sink(
        OUT.store(i, DATA.load(i)).end(i), OUT.store(j, DATA.load(j)).end(j), arg=KernelInfo("two")
    )
    loops = Loops(sink)
    assert (loops.share(i + 1), loops.share(j + 1)) == (10 / 40, 1.0)


def test_masks_of_sets_add_up_and_unknown_loops_count_for_nothing() -> None:
    i, j, other = UOp.range(10, 0), UOp.range(20, 1), UOp.range(7, 2)
    loops = Loops(i * 20 + j)
    assert loops.mask((i, j)) == loops.mask((i,)) | loops.mask((j,))
    assert loops.mask((other,)) == 0
    assert loops.share_of(loops.mask((i, j))) == 1.0


def test_a_loop_whose_size_varies_counts_at_the_most_that_it_can_be() -> None:
    n = UOp.variable("n", 1, 50)
    i, j = UOp.range(n, 0), UOp.range(2, 1)
    assert Loops(i * 2 + j).share(UOp.const(dtypes.index, 1) + n) == 1 / 100
