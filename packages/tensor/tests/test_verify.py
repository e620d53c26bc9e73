"""The verifier notices plans that are wrong in each way that it knows of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opgraft.errors import SpecError
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.draft import Draft
from opgraft_tensor.verify import verify
from planning import CPU, array, plan_of


def some() -> Draft:
    """Two kernels: a product, and a sum over what it stores."""
    x, y = array(np.ones((24, 16))), array(np.ones((24, 16)))
    z = graph.materialize(graph.elementwise(Ops.MUL, x, y))
    return plan_of([graph.reduce_axis(graph.flip(z, (0,)), Ops.ADD, (1,))])


def with_sink(made: Draft, number: int, change: Callable[[UOp], UOp]) -> None:
    kernel = made.kernels[number]
    made.kernels[number] = kernel._replace(sink=change(kernel.sink))


def test_a_right_plan_passes() -> None:
    made = some()
    assert len(made.kernels) == 2
    verify(made)


def test_an_open_range() -> None:
    made = some()
    with_sink(made, 0, lambda sink: sink.with_src((sink.src[0].src[0],)))
    with pytest.raises(SpecError, match="ranges are open"):
        verify(made)


def test_a_kernel_before_what_it_reads() -> None:
    made = some()
    made.kernels.reverse()
    with pytest.raises(SpecError, match="read before it is stored"):
        verify(made)


def test_an_output_that_nobody_stores() -> None:
    made = some()
    made.kernels.pop()
    with pytest.raises(SpecError, match="stored by no kernel"):
        verify(made)


def test_an_array_stored_twice() -> None:
    made = some()
    made.kernels.insert(0, made.kernels[0])
    with pytest.raises(SpecError, match="stored twice"):
        verify(made)


def test_too_many_arrays() -> None:
    made = some()
    made.walk.prices = CPU._replace(max_buffers=2)
    with pytest.raises(SpecError, match="3 arrays, 2 allowed"):
        verify(made)


def test_one_range_for_two_axes() -> None:
    made = some()
    groups = made.walk.groups
    root = made.kernels[0].stored[0]
    first = groups.ranges_of_root[root][0]
    groups.ranges_of_root[root] = (first, first)
    with pytest.raises(SpecError, match=r"the ranges of|one range for two axes"):
        verify(made)


def test_a_load_outside_of_its_array() -> None:
    made = some()
    sink = made.kernels[0].sink
    load = next(n for n in sink.toposort() if n.op is Ops.LOAD)
    outside = load.src[0].load(load.src[1] + 1)
    with_sink(made, 0, lambda s: s.substitute({load: outside}))
    with pytest.raises(SpecError, match="of an array of 384"):
        verify(made)


def test_a_reduction_over_the_range_of_a_scan() -> None:
    made = some()
    r = UOp.range(16, 9, AxisKind.REDUCE)
    load = next(n for n in made.kernels[0].sink.toposort() if n.op is Ops.LOAD)
    scan = UOp(Ops.SCAN, load.dtype, (load.src[0].load(r), r), Ops.ADD)
    with_sink(made, 0, lambda s: s.substitute({load: scan.reduce(Ops.ADD, r)}))
    with pytest.raises(SpecError, match="closes the range of a SCAN"):
        verify(made)


def test_a_read_of_an_overwritten_version() -> None:
    x = array(np.ones(1 << 18))
    new = graph.write(x, ((0, 50, 1),), graph.full((50,), x.dtype, 0.0))
    made = plan_of([new, graph.reduce_axis(x, Ops.MAX, (0,))])
    order = sorted(made.kernels, key=lambda k: k.stored[0].op is not Ops.WRITE)
    made.kernels[:] = order
    with pytest.raises(SpecError, match="read after a newer version"):
        verify(made)
