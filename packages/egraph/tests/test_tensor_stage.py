"""The tensor tier among all that tensors do: gradients, capture, assignment, random numbers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("opgraft_tensor", reason="the programs are written with opgraft-tensor")

from opgraft import journal
from opgraft.api import Target, using
from opgraft.cli.main import main
from opgraft_egraph.tensors.prices import USUAL, TensorPrices
from opgraft_tensor import Tensor, equivalents, grad, jit
from opgraft_tensor.facts import Prices
from opgraft_tensor.random import manual_seed
from tensor_cases.programs import Case


@pytest.fixture(autouse=True)
def explored():
    with using(EGRAPH=True, FLOAT="reassoc"):
        yield


def numbers(*size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


X, U, V = numbers(96, 96), numbers(96, 2, seed=1), numbers(2, 96, seed=2)


def low_rank(x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return x @ (u @ v)


def test_gradients_of_a_program_that_is_rearranged() -> None:
    case = Case(low_rank, X.shape, U.shape, V.shape)
    assert (96, 96, 2) in case.sums(egraph=False)
    assert sorted(case.sums()) == [(96, 2, 96), (96, 96, 2)]
    x, u, v = Tensor(X), Tensor(U, requires_grad=True), Tensor(V, requires_grad=True)
    (low_rank(x, u, v) * Tensor(X)).sum().backward()
    wide = [a.astype(np.float64) for a in (X, U, V)]
    g = wide[0].T @ wide[0]
    for found, exact in ((u.grad, g @ wide[2].T), (v.grad, wide[1].T @ g)):
        np.testing.assert_allclose(found.numpy(), exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def test_a_captured_program_is_rearranged_once_and_replayed() -> None:
    @jit
    def run(x: Tensor) -> Tensor:
        return low_rank(x, Tensor(U), Tensor(V))

    wide = U.astype(np.float64) @ V
    heard: list[journal.Event] = []
    with journal.listening(heard.append):
        for seed in range(4):
            x = numbers(96, 96, seed=seed + 5)
            np.testing.assert_allclose(run(Tensor(x)).numpy(), x @ wide, rtol=1e-4, atol=1e-3)
    texts = [e.details["text"] for e in heard if e.kind == "plan"]
    assert any("tensor stage" in text and "with " in text for text in texts)


def test_an_assignment_before_and_one_after_a_product_are_in_order() -> None:
    x = Tensor(X.copy())
    before = low_rank(x, Tensor(U), Tensor(V))
    x[0] = 1.0
    after = low_rank(x, Tensor(U), Tensor(V))
    before.realize(after)
    changed = X.copy()
    changed[0] = 1.0
    wide = U.astype(np.float64) @ V
    np.testing.assert_allclose(before.numpy(), X @ wide, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(after.numpy(), changed @ wide, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(x.numpy(), changed)


def test_random_numbers_are_the_same_whoever_optimizes() -> None:
    found = []
    for egraph in (False, True):
        with using(EGRAPH=egraph):
            manual_seed(5)
            x = Tensor.randn(96, 96)
            made = low_rank(x, Tensor(U), Tensor(V))
            made.realize(x)
            found.append((x.numpy(), made.numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-3)


def test_what_changed_is_explained() -> None:
    heard: list[journal.Event] = []
    with journal.listening(heard.append):
        low_rank(Tensor(X[:64]), Tensor(U), Tensor(V)).realize()
    (text,) = [e.details["text"] for e in heard if e.kind == "plan"]
    lines = [line.strip() for line in text.splitlines()]
    start = lines.index("tensor stage")
    assert lines[start + 1].startswith("egraph: cost ")
    assert " -> " in lines[start + 1]
    assert lines[start + 2] == "without product [96, 96] over 2: 18,432 steps"
    assert "with    product [64, 2] over 96: 12,288 steps" in lines


def gradient_of_three(x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    return grad(((x @ q) * (x @ k) * (x @ v)).sum(), x)


def test_a_gradient_that_three_products_share_is_three_products_not_one_sum() -> None:
    """Nobody listed it: autograd adds the three before it sums, so the sum is of no products."""
    case = Case(gradient_of_three, (128, 64), *[(64, 64)] * 3)
    written, found = case.sums(egraph=False), case.sums()
    assert len(found) == len(written) + 2
    assert case.error() < 1e-5


def test_prices_come_from_the_device_and_from_what_was_measured_on_it() -> None:
    model = equivalents.cost_model(Prices(dram=2.0, launch=50.0))
    made = TensorPrices.of(model)
    assert (made.byte, made.launch, made.cached) == (2.0, 50.0, USUAL.cached)
    measured = Target("any", op_prices=(("tensor.product", 0.5), ("tensor.launch", 70.0)))
    made = TensorPrices.of(equivalents.cost_model(Prices(dram=2.0), measured))
    assert (made.byte, made.launch, made.product) == (2.0, 70.0, 0.5)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_rows_of_one_1_times_a_table_pick_its_rows(kind: type) -> None:
    """For integers at strict, too: it is exact."""
    table = (numbers(400, 16) * 100).astype(kind)
    picked = np.array([3, 399, 0, 7, 7, 400, -1], np.int32)
    rows = [table[i] if 0 <= i < 400 else table[0] * 0 for i in picked]
    heard: list[journal.Event] = []
    with (
        using(FLOAT="strict" if kind is np.int32 else "reassoc"),
        journal.listening(heard.append),
    ):
        t = Tensor(table)
        made = Tensor(picked).one_hot(400).cast(t.dtype) @ t
        np.testing.assert_array_equal(made.numpy(), np.array(rows))
    (text,) = [e.details["text"] for e in heard if e.kind == "plan"]
    assert "without product [7, 16] over 400" in text
    assert "with    product" not in text


def test_explain_tells_it_of_the_plans_of_a_script(tmp_path, capsys) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import numpy as np\n"
        "from opgraft_tensor import Tensor\n"
        "x, u, v = (Tensor(np.ones(s, np.float32)) for s in ((80, 72), (72, 3), (3, 72)))\n"
        "(x @ (u @ v)).realize()\n"
    )
    assert main(["explain", "--no-ir", "--no-source", str(script)]) == 0
    shown = capsys.readouterr().out
    assert "tensor stage" in shown
    assert "with    product [80, 3] over 72: 17,280 steps" in shown
