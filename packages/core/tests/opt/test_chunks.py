"""Launches on cores without lanes: few groups, each walking through neighbouring iterations."""

from __future__ import annotations

import numpy as np
import pytest

from opgraft import Device, dtypes
from opgraft.ir import Ops, UOp
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.lower.pipeline import lower
from opgraft.runtime import compile_linear
from opgraft.target import Target

CORES = Target("CORES", vector_bytes=0, cores=2, group_dims=3, threads_per_group=64, max_lanes=1)
VECTORS = Target("VECTORS", vector_bytes=32, cores=2, group_dims=3, threads_per_group=64)


def doubled(size: int | UOp, room: int) -> UOp:
    x, out = (UOp(Ops.PARAM, dtypes.float32, (), (slot, room)) for slot in (1, 0))
    i = UOp.range(size, "i")
    return UOp.sink(out.store(i, x.load(i) * 2.0).end(i), arg=KernelInfo("doubled"))


def run(program: LinearProgram, room: int, variables: tuple[int, ...] = ()) -> np.ndarray:
    device = Device["INTERP"]
    x, out = device.buffer(4 * room), device.buffer(4 * room)
    x.copy_in(np.arange(room, dtype=np.float32))
    out.copy_in(np.full(room, -1, np.float32))
    compile_linear(device, program).run([out, x], variables)
    return np.frombuffer(out.bytes(), np.float32)


@pytest.mark.parametrize("target", [CORES, VECTORS], ids=lambda t: t.name)
@pytest.mark.parametrize("size", [1, 7, 16, 17, 100, 1000])
def test_few_groups_of_one_thread_do_all_of_the_work(target: Target, size: int) -> None:
    program = lower(doubled(size, size), target)
    groups, threads = program.launch
    assert set(threads) <= {1}
    assert len(groups) == 1
    assert 1 <= groups[0] <= 16
    assert run(program, size).tolist() == [2.0 * i for i in range(size)]


def test_a_number_of_iterations_that_a_variable_says_is_spread_as_well() -> None:
    n = UOp.variable("n", 0, 500)
    program = lower(doubled(n, 500), CORES)
    for count in (0, 1, 15, 17, 500):
        found = run(program, 500, (count,))
        assert found[:count].tolist() == [2.0 * i for i in range(count)]
        assert (found[count:] == -1).all()


def test_a_group_takes_neighbours() -> None:
    """So that memory is walked in order: the index is its group times a constant, and a loop."""
    program = lower(doubled(1000, 1000), CORES)
    (loop,) = [n for n in program.instructions if n.op is Ops.RANGE]
    (store,) = [n for n in program.instructions if n.op is Ops.STORE]
    (group,) = [n for n in store.toposort() if n.op is Ops.SPECIAL]
    at = store.src[1]
    step = at.substitute({loop: UOp.const(loop.dtype, 1)}) - at.substitute(
        {loop: UOp.const(loop.dtype, 0)}
    )
    assert step.substitute({group: UOp.const(group.dtype, 0)}).vmax == 1
    assert loop.src[0].const_value == 63
