"""Big graphs stay cheap: seconds for 100,000 nodes, kernels of bounded length for tangled views."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

import programs
from opgraft.ir.uop import UOp
from opgraft_tensor.draft import Draft
from opgraft_tensor.normalise import canonical
from opgraft_tensor.plan import draft
from opgraft_tensor.realize import device_of
from planning import CPU, array, check
from programs import Node, Nodes

SHAPES = [(24, 64), (64, 24), (12, 128), (48, 32), (96, 16), (8, 192)]


def planned(outputs: list[Node]) -> tuple[Draft, float]:
    """The plan of some outputs, and the processor's seconds that it took."""
    begin = time.process_time()
    graph = canonical([o.uop for o in outputs], lambda _: False)
    made = draft(graph.outputs, CPU)
    return made, time.process_time() - begin


def length(made: Draft) -> int:
    """Nodes in all kernels."""
    return sum(len(k.sink.toposort()) for k in made.kernels)


def doubled() -> Node:
    a = Nodes.rand(64)
    for _ in range(24):
        a = a + a
    return a


def stacked() -> Node:
    """Stack with itself, take the rows, add: 24 deep, 2^24 paths."""
    x = Nodes.rand(16)
    for _ in range(24):
        row = x.reshape(1, 16)
        s = row.pad(((0, 1), (0, 0))) + row.pad(((1, 0), (0, 0)))
        x = s[0] + s[1]
    return x


def reshaped() -> Node:
    x = Nodes.sum(Nodes.rand(24, 64, 10), (2,))
    for i in range(24):
        x = x.reshape(*SHAPES[i % 6]) + 1.0
    return x


def transposed() -> Node:
    """Reshapes that no index arithmetic merges."""
    x = Nodes.sum(Nodes.rand(24, 64, 10), (2,))
    for i in range(24):
        x = (x.reshape(*SHAPES[i % 6]).tr() * 1.5).reshape(*SHAPES[(i + 1) % 6]) + 1.0
    return x


def flipped() -> Node:
    x = Nodes.sum(Nodes.rand(24, 64, 10), (2,))
    for i in range(24):
        size = SHAPES[i % 6]
        x = x.reshape(*size) + x.reshape(1536).flip(0).reshape(*size)
    return x


def mirrored() -> Node:
    x = Nodes.rand(64, 64)
    for _ in range(20):
        x = x + x.tr()
    return x


def softened() -> Node:
    x = Nodes.rand(64, 64)
    for _ in range(12):
        x = Nodes.softmax(x)
    return x


def both_ways() -> Node:
    x = Nodes.rand(64, 64)
    for _ in range(8):
        x = Nodes.softmax(Nodes.softmax(x.tr()).tr())
    return x


@pytest.mark.parametrize(
    ("build", "kernels", "nodes"),
    [
        (doubled, 1, 60),
        (stacked, 1, 200),
        (reshaped, 1, 80),
        (transposed, 6, 400),
        (flipped, 2, 200),
        (mirrored, 1, 100),
        (softened, 1, 400),
        (both_ways, 16, 900),
    ],
    ids=lambda x: x.__name__ if callable(x) else "",
)
def test_planned_in_under_a_second(build: Callable[[], Node], kernels: int, nodes: int) -> None:
    made, seconds = planned([build()])
    assert len(made.kernels) <= kernels
    assert length(made) <= nodes
    assert seconds < 1.0


@pytest.mark.parametrize("build", [doubled, stacked, reshaped, mirrored])
def test_equal_graphs_give_the_same_kernel(build: Callable[[], Node]) -> None:
    first, second = (planned([build()])[0] for _ in range(2))
    assert [k.sink for k in first.kernels] == [k.sink for k in second.kernels]


@pytest.mark.parametrize("build", [reshaped, transposed, flipped, stacked])
def test_tangled_views_have_the_right_value(
    build: Callable[[], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)

    def values(*size: int) -> Node:
        return Node(array(rng.integers(0, 3, size) / 2**24))

    monkeypatch.setattr(Nodes, "rand", staticmethod(values))
    check([build().uop], tolerance=1e-5)


def test_a_chain_of_10000_adds_is_one_kernel() -> None:
    x = Nodes.rand(64)
    for _ in range(10000):
        x = x + 1.0
    made, seconds = planned([x])
    assert len(made.kernels) == 1
    assert seconds < 10


def test_each_value_of_a_long_chain_finds_its_device_at_once() -> None:
    chain = [Nodes.rand(4)]
    for _ in range(4000):
        chain.append(chain[-1] + 1.0)
    begin = time.thread_time()
    assert len({device_of(n.uop) for n in reversed(chain)}) == 1
    assert time.thread_time() - begin < 0.5


def test_a_wide_tree_of_products_is_planned() -> None:
    outputs: list[UOp] = []
    x = Nodes.rand(64, 64)
    for _ in range(16):
        x = x @ Nodes.rand(64, 64)
    outputs = programs.block_fwd(Nodes)
    made, seconds = planned([x, *outputs])
    assert made.kernels
    assert seconds < 5
