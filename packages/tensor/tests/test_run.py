"""Plans on the devices: bits that do not depend on fusion, threads, and limits of the device."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import programs
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import Tensor, graph
from opgraft_tensor import plan as planner
from opgraft_tensor.assemble import schedule
from opgraft_tensor.devices import open_device
from opgraft_tensor.exchange import storage_values
from opgraft_tensor.facts import Prices
from opgraft_tensor.normalise import canonical
from oracle import evaluate_numpy
from planning import CPU, array
from programs import Node, Nodes
from tested import COMPILED, DEVICES

PRICES = [
    CPU,
    CPU._replace(parallel=1, launch=0.0),
    CPU._replace(dram=0.01, launch=0.0),
    CPU._replace(dram=1e4, launch=1e6),
    CPU._replace(local_bytes=64),
]


def values(outputs: list[UOp], prices: Prices, device: str = COMPILED) -> list[np.ndarray]:
    """The outputs as this device computes them under these prices."""
    found = canonical(outputs, lambda _: False)
    made = planner.run(schedule(found.outputs, prices, device), found.storages, open_device(device))
    return [storage_values(s) for s in made]


@pytest.mark.parametrize("prices", PRICES)
def test_a_sum_equals_the_maximum_that_was_taken_over_it(prices: Prices) -> None:
    """Were a float sum computed twice in different loops, some window would hold no maximum."""
    rng = np.random.default_rng(3)
    x = Node(array(rng.standard_normal((2, 3, 12, 12))))
    w = Node(array(rng.standard_normal((4, 3, 3, 3))))
    y = Nodes.conv(x, w, 1)
    rows = y.reshape(2, 4, 6, 2, 6, 2)
    most = Nodes.max(rows, (3, 5), True)
    full = graph.expand(most.uop, rows.shape)
    same = graph.elementwise(Ops.CMPEQ, rows.uop, full)
    count = graph.reduce_axis(graph.cast(same, graph.dtypes.int32), Ops.ADD, (3, 5))
    (found,) = values([count], prices)
    assert found.min() >= 1
    below = graph.reduce_axis(graph.elementwise(Ops.CMPLT, full, rows.uop), Ops.OR, (3, 5))
    assert not values([below, y.uop], prices)[0].any()


@pytest.mark.parametrize("prices", PRICES)
def test_a_value_has_the_same_bits_for_all_its_readers(prices: Prices) -> None:
    rng = np.random.default_rng(4)
    soft = Nodes.softmax(Node(array(rng.standard_normal((33, 70)))))
    flat = graph.reshape(soft.uop, (70 * 33,))
    turned = graph.flip(graph.flip(graph.permute(soft.uop, (1, 0)), (0,)), (0,))
    back = graph.reshape(graph.permute(turned, (1, 0)), (70 * 33,))
    differ = graph.elementwise(Ops.CMPNE, flat, back)
    total, first, second = values(
        [graph.reduce_axis(differ, Ops.OR, (0,)), soft.uop, turned], prices
    )
    assert not total
    np.testing.assert_array_equal(first, second.T)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("program", [programs.bnorm, programs.mlp_train, programs.cumsum])
def test_whole_programs_run(program: object, device: str) -> None:
    outputs = [o.uop for o in program(programs.SmallNodes)]  # type: ignore[operator]
    expected = [evaluate_numpy(o) for o in outputs]
    for n in UOp.sink(*outputs).toposort():
        if n.op is Ops.BUFFER:
            n.arg.device = device
    for got, want in zip(values(outputs, CPU, device), expected):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-5)


def test_one_plan_serves_many_threads() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for step in range(20):
            x = Tensor(np.full(1000, number + step, np.float32))
            y = (x * 2 + 1).sum()
            if y.item() != 1000 * (2 * (number + step) + 1):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.sampled(2)
@pytest.mark.parametrize("limit", [31, 8])
def test_forty_arrays_on_a_device_that_takes_few(limit: int) -> None:
    prices = CPU._replace(max_buffers=limit)
    parts = [array(np.full(5, float(k))) for k in range(40)]
    total = parts[0]
    for x in parts[1:]:
        total = graph.elementwise(Ops.ADD, total, x)
    assert values([total], prices)[0].tolist() == [780.0] * 5
    joined = None
    for k, x in enumerate(parts):
        padded = graph.pad(x, ((5 * k, 195 - 5 * k),))
        joined = padded if joined is None else graph.elementwise(Ops.ADD, joined, padded)
    assert joined is not None
    expected = np.repeat(np.arange(40.0), 5)
    np.testing.assert_array_equal(values([joined], prices)[0], expected)
