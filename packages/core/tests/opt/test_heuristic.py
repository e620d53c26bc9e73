"""What the scheduler chooses without running anything, and that it changes no result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft import dtypes
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Split
from opgraft.opt.axes import Kernel
from opgraft.opt.heuristic import schedule
from opgraft.opt.separate import SeparateReduces
from opgraft.target import Target
from tested import sampled

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2, fma=frozenset({dtypes.float32}))
TARGETS = {
    "cpu": CPU,
    "scalar": replace(CPU, vector_bytes=0, max_lanes=1),
    "wide": replace(CPU, vector_bytes=4096, max_lanes=1024, gather=True, cores=512),
    "one core": replace(CPU, parallel=None),
}


def kinds(sink: UOp) -> dict[str, AxisKind]:
    return {str(r.arg[0]): r.arg[1] for r in Kernel(sink).ranges}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", sampled(kernels.NAMED, 2))
def test_a_schedule_keeps_the_meaning(name: str, target: Target) -> None:
    sink = kernels.NAMED[name]()
    memory = fill(sink)
    assert expected(schedule(sink, target), memory) == expected(sink, memory)


@pytest.mark.parametrize("seed", sampled(range(25), 3))
def test_a_schedule_of_a_random_kernel_keeps_the_meaning(seed: int) -> None:
    sink = kernels.RandomKernel(seed).make()
    memory = fill(sink, seed)
    assert expected(schedule(sink, CPU), memory) == expected(sink, memory)


def test_an_elementwise_kernel_is_vectorised_and_parallel() -> None:
    found = kinds(schedule(kernels.elementwise(64), CPU))
    assert found == {"i.o": AxisKind.PARALLEL, "i.v": AxisKind.VECTOR}


def test_rows_that_memory_walks_through_become_one_loop() -> None:
    i, j = kernels.loop(6, "i"), kernels.loop(40, "j")
    out, a = kernels.param(0, 240), kernels.param(1, 240)
    at = i * 40 + j
    sink = UOp.sink(out.store(at, a.load(at) * 2.0).end(i, j), arg=KernelInfo("k"))
    assert len(Kernel(schedule(sink, TARGETS["scalar"])).ranges) == 1


def test_the_border_of_a_padded_access_is_split_off() -> None:
    found = schedule(kernels.convolution(3, 40, 3), CPU)
    middle = [
        n for n in Kernel(found).accesses if "i.m.v" in {str(r.arg[0]) for r in n.node.ranges}
    ]
    loads = [a.node for a in middle if a.node.op is Ops.LOAD]
    assert loads
    assert all(len(n.src) == 2 for n in loads)  # no gate is left


def test_conditions_on_other_loops_do_not_keep_the_border_from_being_split_off() -> None:
    c, i, j = kernels.over(3, "c"), kernels.loop(20, "i"), kernels.loop(40, "j")
    out, a = kernels.param(0, 800), kernels.param(1, 2400)
    inside = (i >= 1) & (j >= 1) & (j < 39)
    value = a.load(c * 800 + (i - 1) * 40 + j, inside).reduce(Ops.ADD, c)
    sink = UOp.sink(out.store(i * 40 + j, value).end(i, j), arg=KernelInfo("k"))
    found = schedule(sink, CPU)
    assert kinds(found)["j.m.v"] is AxisKind.VECTOR
    memory = fill(sink)
    assert expected(found, memory) == expected(sink, memory)


def test_a_row_reduction_runs_along_vectors_with_several_accumulators() -> None:
    found = kinds(schedule(kernels.row_sum(64, 512), CPU))
    assert found["i"] is AxisKind.PARALLEL
    assert found["k.v"] is AxisKind.VECTOR
    assert AxisKind.UNROLL in found.values()


def test_long_rows_are_reduced_several_at_a_time() -> None:
    def at_a_time(height: int, width: int) -> int:
        found = Kernel(schedule(kernels.row_sum(height, width), CPU)).ranges
        rows = [r for r in found if r.arg == ("i.u", AxisKind.UNROLL)]
        return rows[0].src[0].const_value if rows else 1  # type: ignore[return-value]

    assert at_a_time(64, 1024) == at_a_time(62, 3000) == at_a_time(65, 1025) == 4
    assert at_a_time(64, 1000) == 1, "they are better read as they lie"
    assert at_a_time(8, 1024) == 1, "too few for the cores"
    # no more is in registers than of one row
    one, four = (
        len([n for n in lower(kernels.row_sum(64, n), CPU).instructions if n.op is Ops.LOAD])
        for n in (960, 1024)
    )
    assert one == four


def test_a_column_reduction_keeps_its_columns_in_lanes() -> None:
    found = kinds(schedule(kernels.column_max(100, 64), CPU))
    assert found["j.v"] is AxisKind.VECTOR
    assert found["k"] is AxisKind.REDUCE


def test_a_product_keeps_a_tile_in_registers() -> None:
    found = kinds(schedule(kernels.matmul(16, 16, 16), CPU))
    assert found["j.v"] is AxisKind.VECTOR
    assert sum(kind is AxisKind.UNROLL for kind in found.values()) == 2


def test_a_target_without_vectors_or_threads_gets_none() -> None:
    target = replace(CPU, vector_bytes=0, parallel=None)
    found = kinds(schedule(kernels.matmul(64, 64, 64), target))
    assert set(found.values()) <= {AxisKind.LOOP, AxisKind.REDUCE}


def test_a_given_schedule_is_carried_out_and_nothing_else() -> None:
    steps = (Split("i", 4, AxisKind.VECTOR),)
    sink = kernels.elementwise(8)
    sink = sink.replace(arg=KernelInfo("k", schedule=steps))
    assert kinds(schedule(sink, CPU)) == {"i.o": AxisKind.LOOP, "i.v": AxisKind.VECTOR}


def test_reductions_in_different_loops_get_loops_of_their_own() -> None:
    i, j, k = kernels.loop(3, "i"), kernels.loop(4, "j"), kernels.over(5, "k")
    out, a, b = kernels.param(0, 12), kernels.param(1, 15), kernels.param(2, 20)
    per_row = a.load(i * 5 + k).reduce(kernels.Ops.MAX, k)
    product = ((a.load(i * 5 + k) - per_row) * b.load(k * 4 + j)).reduce(kernels.Ops.ADD, k)
    sink = UOp.sink(out.store(i * 4 + j, product).end(i, j), arg=KernelInfo("k"))
    apart = SeparateReduces().apply(sink)
    assert len({r for n in Kernel(apart).reduces for r in n.src[1:]}) == 2
    memory = fill(sink)
    assert expected(apart, memory) == expected(sink, memory)


def test_the_lanes_of_a_gather_are_those_of_what_is_gathered() -> None:
    """The wide index is the same in all lanes."""
    found = Kernel(schedule(kernels.gather(40, 100, 64), CPU))
    lanes = [int(r.src[0].arg) for r in found.ranges if r.arg[1] is AxisKind.VECTOR]
    assert lanes == [CPU.vector_bytes // 4]


def test_cores_don_t_share_a_loop_beside_one_that_stores_to_the_same_array() -> None:
    """Four stores of every element forwards, and one backwards among them: the last one wins."""
    i, j = kernels.loop(41, "i"), kernels.loop(41, "j")
    out, a = kernels.param(0, 41), kernels.param(1, 41)
    forwards = [out.store(i, a.load(i) * float(n)).end(i) for n in range(4)]
    backwards = out.store(j * -1 + 40, a.load(j)).end(j)
    sink = kernels.kernel("crossed", *forwards[:2], backwards, *forwards[2:])
    made = schedule(sink, CPU)
    assert all(r.arg[1] is not AxisKind.PARALLEL for r in Kernel(made).ranges)
