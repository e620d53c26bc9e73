"""The tensor stage: who sees a graph before it is planned, and what comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from opgraft.api import Budget, CostModel, EqualitySet, Ops, Optimized, UOp, using
from opgraft.errors import RewriteError
from opgraft.rules import simplify
from opgraft_tensor import Tensor
from opgraft_tensor.facts import Prices
from opgraft_tensor.graph import shape
from opgraft_tensor.normalise import numbered
from opgraft_tensor.plan import plans
from opgraft_tensor.stage import LARGEST, has_products, optimized


class Odd:
    """An optimizer that does what the test says."""

    name = "odd"

    def __init__(self) -> None:
        self.seen: list[UOp] = []
        self.models: list[CostModel] = []
        self.make = lambda sink: sink

    def optimize(
        self, sink: UOp, equalities: EqualitySet, *, cost: CostModel, budget: Budget, stage: str
    ) -> Optimized:
        if stage != "tensor":
            return simplify.greedy.optimize(
                sink, equalities, cost=cost, budget=budget, stage="index"
            )
        assert len(equalities) == 0
        self.seen.append(sink)
        self.models.append(cost)
        return Optimized(self.make(sink), 10.0, 5.0, "saturated", 0.0, self.name)


@pytest.fixture
def odd() -> Iterator[Odd]:
    made = Odd()
    before = simplify._find_optimizer[0]
    simplify.set_optimizer_finder(lambda name: made)
    plans.clear()
    with using(OPTIMIZER="odd", EGRAPH=None, FLOAT="reassoc"):
        yield made
    simplify.set_optimizer_finder(before)
    plans.clear()


def tensor(*size: int) -> Tensor:
    return Tensor(np.arange(np.prod(size), dtype=np.float32).reshape(size) / 8)


def test_the_chosen_optimizer_sees_the_outputs_of_a_graph_once(odd: Odd) -> None:
    a, b = tensor(3, 4), tensor(4, 5)
    (a @ b).realize()
    (tensor(3, 4) @ tensor(4, 5)).realize()
    assert len(odd.seen) == 1
    assert [shape(o) for o in odd.seen[0].src] == [(3, 5)]


def test_it_is_told_the_prices_of_the_device(odd: Odd) -> None:
    (tensor(3, 4) @ tensor(4, 5)).realize()
    (model,) = odd.models
    assert model.table[Ops.MATERIALIZE] > model.table[Ops.BUFFER] > 0
    assert model.target is not None


def test_what_it_makes_is_planned(odd: Odd) -> None:
    def twice(sink: UOp) -> UOp:
        return UOp.sink(*[UOp(Ops.ADD, o.dtype, (o, o)) for o in sink.src])

    odd.make = twice
    a, b = tensor(3, 4), tensor(4, 5)
    np.testing.assert_allclose((a @ b).numpy(), 2 * (a.numpy() @ b.numpy()), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda o: UOp(Ops.RESHAPE, o.dtype, (o,), (15,)), r"float32\[3, 5\] became float32\[15\]"),
        (lambda o: UOp(Ops.RESHAPE, o.dtype, (o,), (4, 4)), "cannot reshape"),
        (lambda o: UOp(Ops.CMPLT, o.dtype, (o, o)), "became"),
    ],
)
def test_what_is_no_graph_is_an_error_that_names_the_optimizer(odd: Odd, make, fault) -> None:
    odd.make = lambda sink: UOp.sink(*[make(o) for o in sink.src])
    with pytest.raises(RewriteError, match=f"optimizer odd .*{fault}"):
        (tensor(3, 4) @ tensor(4, 5)).realize()


def test_the_exponential_is_one_node_of_a_graph_that_is_shown(odd: Odd) -> None:
    x = tensor(3, 4)
    np.testing.assert_allclose(x.exp().sum(1).numpy(), np.exp(x.numpy()).sum(1), rtol=1e-6)
    assert sum(n.op is Ops.EXP for n in odd.seen[0].toposort()) == 1


@pytest.mark.parametrize(
    ("level", "make", "there"),
    [
        ("strict", lambda: tensor(3, 4) @ tensor(4, 5), False),
        ("reassoc", lambda: tensor(3, 4) @ tensor(4, 5), True),
        ("strict", lambda: Tensor([[1, 2]]) @ Tensor([[1], [2]]), True),
        ("strict", lambda: Tensor([[True, False]]) @ Tensor([[True], [True]]), False),
        ("reassoc", lambda: tensor(3, 4) * 2 + 1, False),
        ("reassoc", lambda: tensor(3, 4).max(), False),
    ],
)
def test_a_graph_is_shown_where_its_arithmetic_may_be_rearranged(level, make, there) -> None:
    with using(FLOAT=level):
        assert has_products([make().uop]) is there


def test_a_graph_without_end_is_not_shown() -> None:
    made = (tensor(3, 4) @ tensor(4, 5)).uop
    for _ in range(LARGEST):
        made = UOp(Ops.ADD, made.dtype, (made, made))
    with using(FLOAT="reassoc"):
        assert not has_products([made])


def test_greedy_is_not_asked(odd: Odd) -> None:
    found = numbered([(tensor(3, 4) @ tensor(4, 5)).uop], lambda _: False)
    for settings in ({"OPTIMIZER": "greedy"}, {"EGRAPH": False}):
        with using(**settings):
            assert optimized(found.outputs, Prices()) == (found.outputs, [])
    assert odd.seen == []


def test_a_program_without_products_loads_no_rules() -> None:
    script = (
        "import sys; from opgraft_tensor import Tensor\n"
        "from opgraft_tensor.stage import optimized\n"
        "from opgraft_tensor.facts import Prices\n"
        "optimized(((Tensor([1.0, 2.0]) * 2).sum().uop,), Prices())\n"
        "print('opgraft_tensor.equivalents' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"
