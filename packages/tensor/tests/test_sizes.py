"""Variable sizes: one plan and one capture serve every size up to a bound."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opgraft import using
from opgraft.dtype import dtypes
from opgraft.ir import UOp
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import Ops
from opgraft_tensor import Tensor, Variable, jit, manual_seed, nn, plan
from opgraft_tensor.blocks import in_blocks
from opgraft_tensor.jit import CaptureError
from tested import COMPILED, DEVICES, at

DEVICE = DEVICES[0]
ROWS, COLUMNS = 16, 6  # in blocks of 16; the random programs have sizes without blocks, too
N = Variable("n", 1, ROWS)
DATA = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
SIZES = (1, 5, 15, ROWS)


def stored(values: np.ndarray[Any, Any] = DATA, **options: Any) -> Tensor:
    return Tensor(values, device=DEVICE, **options)


def softmax(x: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)  # type: ignore[no-any-return]


WEIGHT = np.random.default_rng(1).standard_normal((COLUMNS, 3)).astype(np.float32)

PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "elementwise": (lambda a: a * 2 + 1, lambda a: a * 2 + 1),
    "broadcast": (lambda a: a - a.max(0), lambda a: a - a.max(0)),
    "sum": (lambda a: a.sum(), lambda a: a.sum()),
    "rows": (lambda a: a.sum(1), lambda a: a.sum(1)),
    "columns": (lambda a: a.sum(0, keepdims=True), lambda a: a.sum(0, keepdims=True)),
    "mean": (lambda a: a.mean(0), lambda a: a.mean(0)),
    "variance": (lambda a: a.var(0, correction=1), lambda a: _variance(a)),
    "softmax": (lambda a: a.softmax(0), lambda a: softmax(a, 0)),
    "softmax of rows": (lambda a: a.softmax(1), lambda a: softmax(a, 1)),
    "product": (lambda a: a @ stored(WEIGHT), lambda a: a @ WEIGHT),
    "inner product": (lambda a: a.T @ a, lambda a: a.T @ a),
    "outer product": (lambda a: a @ a.T, lambda a: a @ a.T),
    "running sum": (lambda a: a.cumsum(0), lambda a: a.cumsum(0)),
    "places": (lambda a: a.argmax(0), lambda a: a.argmax(0)),
    "where": (lambda a: (a > 0).where(a, 0.0), lambda a: np.where(a > 0, a, 0)),
    "views": (
        lambda a: a.reshape(a.shape[0], -1, 3).permute(2, 0, 1).unsqueeze(1).sum(3),
        lambda a: a.reshape(-1, 2, 3).transpose(2, 0, 1)[:, None].sum(3),
    ),
    "parts of other axes": (lambda a: a[:, 1:5:2].flip(1), lambda a: a[:, 1:5:2][:, ::-1]),
    "joined beside": (
        lambda a: a.cat(a * 2, axis=1),
        lambda a: np.concatenate([a, a * 2], 1),
    ),
    "as rows of a table": (
        lambda a: stored(WEIGHT)[(a[:, 0] > 0).cast("int32") + 1],
        lambda a: WEIGHT[(a[:, 0] > 0).astype(int) + 1],
    ),
}


def _variance(a: np.ndarray[Any, Any]) -> Any:
    # of one row: 0/0
    return a.var(0, ddof=1) if len(a) > 1 else np.full(COLUMNS, np.nan, np.float32)


@pytest.mark.parametrize("name", ["sum", "mean", "softmax", "product", "joined beside"])
def test_values_of_every_size_from_one_plan(name: str) -> None:
    program, wanted = PROGRAMS[name]
    whole = stored()
    before: int | None = None
    for rows in SIZES:
        found = program(whole[: N.bind(rows)])
        np.testing.assert_allclose(
            found.numpy(), wanted(DATA[:rows]), rtol=2e-5, atol=1e-5, err_msg=f"{rows} rows"
        )
        if before is not None:
            assert plan.plans.misses == before
        before = plan.plans.misses


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_of_every_size_from_one_capture(name: str) -> None:
    program, wanted = PROGRAMS[name]
    captured = jit(lambda x, n: program(x[:n]))
    whole = stored()
    for rows in SIZES:
        found = captured(whole, N.bind(rows))
        np.testing.assert_allclose(found.numpy(), wanted(DATA[:rows]), rtol=2e-5, atol=1e-5)
        assert found.numpy().shape == wanted(DATA[:rows]).shape
    assert captured.captures == 1


def test_compiled_kernels_have_variable_loops_too() -> None:
    """Two variables, in loops that are spread, vectorised and tiled."""
    query = np.random.default_rng(2).standard_normal((2, 40, 16)).astype(np.float32)
    keys = np.random.default_rng(3).standard_normal((2, 64, 16)).astype(np.float32)
    queries, length = Variable("queries", 1, 40), Variable("length", 1, 64)

    @jit
    def attention(q: Tensor, k: Tensor, m: Any, n: Any) -> Tensor:
        q, k = q[:, :m], k[:, :n]
        return (q @ k.transpose(1, 2) * 0.25).softmax(axis=-1) @ k

    q, k = (Tensor(t, device=COMPILED) for t in (query, keys))
    for m, n in ((1, 1), (7, 33), (40, 64), (16, 5)):
        found = attention(q, k, queries.bind(m), length.bind(n)).numpy()
        scores = softmax(query[:, :m] @ keys[:, :n].transpose(0, 2, 1) * 0.25, 2)
        np.testing.assert_allclose(found, scores @ keys[:, :n], rtol=1e-4, atol=1e-5)
    assert attention.captures == 1


def test_an_argument_of_variable_size_carries_its_size() -> None:
    captured = jit(lambda a: (a + 1, a.sum(0), a.shape))
    whole = stored()
    for rows in (2, 9, 4, 16):
        more, total, size = captured(whole[: N.bind(rows)])
        np.testing.assert_array_equal(more.numpy(), DATA[:rows] + 1)
        np.testing.assert_allclose(total.numpy(), DATA[:rows].sum(0), rtol=1e-5, atol=1e-5)
        assert size == (N.bind(rows), COLUMNS)
        assert more.shape == size
    assert captured.captures == 1


def test_constants_of_variable_size_and_arguments_that_come_back() -> None:
    captured = jit(lambda a, n: (Tensor.zeros(n, device=DEVICE), a, a * 1))
    whole = stored()
    for rows in (2, 9, 4, 16):
        n = N.bind(rows)
        part = whole[:n]
        zeros, same, once = captured(part, n)
        assert zeros.tolist() == [0] * rows
        assert same is part
        np.testing.assert_array_equal(once.numpy(), DATA[:rows])


def test_results_of_separate_calls_share_no_memory() -> None:
    captured = jit(lambda x, n: x[:n] * 2)
    whole = stored()
    live = [captured(whole, N.bind(rows)) for rows in (3, 5, 7, 9, 16, 1)]
    live[4].assign(live[4] * 0)
    live[4].realize()
    for rows, found in zip((3, 5, 7, 9, 16, 1), live):
        np.testing.assert_array_equal(found.numpy(), DATA[:rows] * (0 if rows == 16 else 2))
    assert len({id(t.memory().buffer) for t in live}) == len(live)


def test_gradients_go_back_to_the_rows_that_were_taken() -> None:
    for rows in SIZES:
        leaf = stored(requires_grad=True)
        part = leaf[: N.bind(rows)]
        (part * part * part).mean().backward()
        assert leaf.grad is not None
        wanted = np.zeros_like(DATA)
        wanted[:rows] = 3 * DATA[:rows] ** 2 / (rows * COLUMNS)
        np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-4, atol=1e-6)


class Net(nn.Module):
    def __init__(self) -> None:
        self.first, self.last = nn.Linear(COLUMNS, 8), nn.Linear(8, 3)
        self.norm, self.drop = nn.BatchNorm(8), nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(x)).relu()))


def test_training_with_batches_of_any_size_is_captured_once() -> None:
    """Means over the batch, its statistics and dropout are those of batches of fixed size."""
    labels = np.random.default_rng(5).integers(0, 3, ROWS)

    def losses(size_of: Callable[[int], Any], wrap: Callable[[Any], Any]) -> list[float]:
        manual_seed(3)
        net = Net()
        optimizer = nn.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = nn.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step(loss)
            return loss

        taken = wrap(step)
        x, y = stored(), stored(labels)
        found = [taken(x[: size_of(n)], y[: size_of(n)]).item() for n in (16, 16, 7, 16, 3)]
        assert getattr(taken, "captures", 1) == 1
        return [*found, *net.norm.running_var.tolist()]

    with using(DEVICE=DEVICE):
        wanted = losses(int, lambda f: f)
        assert losses(N.bind, jit) == pytest.approx(wanted, rel=1e-4)


def test_a_part_of_variable_size_is_assigned_to() -> None:
    @jit
    def fill(cache: Tensor, n: Any) -> Tensor:
        cache[:n] = cache[:n] * 10
        return cache.sum(0)

    cache, wanted = stored(), DATA.copy()
    for rows in (3, 1, 7, 16):
        wanted[:rows] *= 10
        np.testing.assert_allclose(fill(cache, N.bind(rows)).numpy(), wanted.sum(0), rtol=1e-4)
        np.testing.assert_allclose(cache.numpy(), wanted, rtol=1e-5)


def test_random_programs_of_two_variables() -> None:
    sizes = {"m": Variable("m", 1, 8), "k": Variable("k", 2, 7)}
    data = np.random.default_rng(4).integers(-3, 4, (8, 7)).astype(np.float32)

    def steps(seed: int, x: Any, m: Any, k: Any) -> Any:
        """On tensors and on arrays alike."""
        pick = random.Random(seed)
        pool = [x[:m, :k], x[:m, :k] * 2]
        for _ in range(pick.randint(2, 6)):
            a, b = pick.choice(pool), pick.choice(pool)
            kind = pick.randrange(6)
            if kind == 0:
                pool.append(a + b)
            elif kind == 1:
                pool.append(a - b.max(0 if pick.random() < 0.5 else 1, keepdims=True))
            elif kind == 2:
                pool.append(a * b.sum(1, keepdims=True))
            elif kind == 3:
                pool.append((a @ b.T) @ a)
            elif kind == 4:
                pool.append(a + b.sum())
            else:
                pool.append(a.cumsum(pick.randrange(2)))
        return pool[-1]

    for seed in range(at(4, 12)):
        captured = jit(lambda x, m, k, seed=seed: steps(seed, x, m, k))
        for m, k in ((8, 7), (1, 2), (3, 5), (5, 7)):
            wanted = steps(seed, data.astype(np.float64), m, k)
            found = captured(stored(data), sizes["m"].bind(m), sizes["k"].bind(k)).numpy()
            scale = max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-5, err_msg=str(seed))


def test_loops_run_in_whole_blocks_and_nothing_beyond_is_seen() -> None:
    """What lies beyond the size is nan here: no reduction takes it, no store spoils its owner."""
    values = np.full((64, 4), np.nan, np.float32)
    values[:5] = 2
    n = Variable("size", 1, 64).bind(5)
    whole = Tensor(values, device=COMPILED)
    part = whole[:n]
    assert part.sum().item() == 40
    assert part.max(0).tolist() == [2] * 4
    assert (part * 3).prod().item() == pytest.approx(6.0**20)
    assert part.softmax(0)[:n, 0].tolist() == pytest.approx([0.2] * 5)
    assert (part > 1).all().item()
    whole[:n] = part + 1
    found = whole.numpy()
    np.testing.assert_array_equal(found[:5], 3)
    assert np.isnan(found[5:]).all()
    out = Tensor(np.zeros((1 << 16, 4), np.float32), device=COMPILED).realize()
    out[: Variable("large", 1, 1 << 16).bind(3)] = 7.0  # in place: the region alone is stored
    np.testing.assert_array_equal(out.numpy(), [[7.0] * 4] * 3 + [[0.0] * 4] * ((1 << 16) - 3))


def test_blocks_are_loops_with_names_of_their_own() -> None:
    """Of a kernel's numbers for loops some may be missing: the next ones are above all of them."""
    i, j = UOp.range(UOp.variable("n", 1, 96), 0), UOp.range(4, 2)
    out, data = (UOp(Ops.PARAM, dtypes.float32, (), (slot, 96 * 4)) for slot in range(2))
    place = i * 4 + j
    kernel = UOp.sink(out.store(place, data.load(place)).end(i, j), arg=KernelInfo("copy"))
    ranges = [r for r in in_blocks(kernel).toposort() if r.op is Ops.RANGE]
    assert sorted(r.src[0].vmax for r in ranges) == [3, 4, 32]  # 3 blocks of 32, and the 4
    assert len({r.arg[0] for r in ranges}) == 3
    assert in_blocks(kernel, frozenset([out])) is kernel


# ---- as numbers


def test_outside_of_a_capture_a_bound_size_is_its_number() -> None:
    n = N.bind(5)
    assert (int(n), n + 1, 2 * n, list(range(n))) == (5, 6, 10, [0, 1, 2, 3, 4])
    assert n == N.bind(5)
    assert n != N.bind(6)
    assert n != 5
    assert repr(stored()[:n].shape) == "(n=5, 6)"
    assert stored()[:n].size == 30


def test_with_a_tensor_a_bound_size_is_a_number_of_every_call() -> None:
    @jit
    def mixed(x: Tensor, n: Any) -> Tensor:
        place = Tensor.arange(n, device=DEVICE).reshape(n, 1)
        return n * x + x[0] - x.sum(0) / x.shape[0] + (x < n).where(x, n) + (place + 1 == n)

    for rows in (4, 4, 9, 2):
        a = DATA[:rows]
        last = (np.arange(rows) == rows - 1)[:, None]
        wanted = rows * a + a[0] - a.mean(0) + np.where(a < rows, a, rows) + last
        found = mixed(stored()[: N.bind(rows)], N.bind(rows)).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_bound_size_makes_tensors_of_integers() -> None:
    n = N.bind(3)
    for made in (Tensor.arange(n), Tensor.arange(1, n), Tensor.full((2,), n), Tensor(n)):
        assert made.dtype is dtypes.int64
    assert repr(Tensor.arange(n).shape) == "(n=3,)"
    assert Tensor.arange(n).tolist() == [0, 1, 2]
    assert Tensor.arange(1, n).tolist() == [1, 2]
    assert Tensor.full((2,), n).tolist() == [3, 3]
    assert Tensor(n).item() == 3
    with pytest.raises(OverflowError, match="300 does not fit int8"):
        Tensor([1], dtype="int8") + Variable("wide", 1, 300).bind(2)


def test_in_a_capture_its_number_is_refused() -> None:
    @jit
    def scaled(x: Tensor, n: Any) -> Tensor:
        return x[:n] * (1 / n)

    assert scaled(stored(), N.bind(4)).shape == (N.bind(4), COLUMNS)
    with pytest.raises(CaptureError, match="number that the size n is bound to"):
        scaled(stored(), N.bind(4))


def test_they_are_copied_and_pickled() -> None:
    found = pickle.loads(pickle.dumps(stored()[: N.bind(3)] + 1))
    np.testing.assert_array_equal(found.numpy(), DATA[:3] + 1)


# ---- what is refused


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda a: a[1:], "take a part of shape"),
        (lambda a: a.flip(0), "take a part of shape"),
        (lambda a: a.pad([(1, 1), None]), "pad shape"),
        (lambda a: a.reshape(N.bind(5) * COLUMNS), "stays an axis of its own"),
        (lambda a: a + stored()[: N.bind(4)], "do not broadcast"),
        (lambda a: a + stored(), "do not broadcast"),
        (
            lambda a: a + stored()[: Variable("n", 1, 8).bind(5)],
            r"n=5 of 1 to 16 and n=5 of 1 to 8 are two variables: bind one Variable",
        ),
        (
            lambda a: (a.sum() + stored()[: Variable("n", 1, 8).bind(5)].sum()).item(),
            "named n: of 1 to 16, and of 1 to 8: bind one Variable for both, or give",
        ),
        (lambda a: a[Tensor([0, 1], device=DEVICE)], "stays an axis of its own"),
    ],
)
def test_what_a_variable_axis_cannot_do_says_so(use: Callable[[Tensor], Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        use(stored()[: N.bind(5)])


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (2, r"index 2 of axis 0 .*n=5, 6\).*1 to 16.*\(Tensor.arange\(n\) == 2\).where\(x, 0\)"),
        (-1, r"index -1 of axis 0 .*\(Tensor.arange\(n\) \+ 1 == n\).where\(x, 0\)"),
        (16, "index 16 is outside axis 0 .* whose greatest size is 16"),
    ],
)
def test_an_index_that_not_every_size_has_says_what_to_do(index: int, told: str) -> None:
    with pytest.raises(IndexError, match=told):
        stored()[: N.bind(5)][index]
    assert stored()[: Variable("more", 3, 16).bind(5)][2].shape == (COLUMNS,)


def test_bounds_and_names_are_checked() -> None:
    with pytest.raises(ValueError, match=r"not in 1 \.\. 16"):
        N.bind(17)
    with pytest.raises(ValueError, match="at least 1"):
        Variable("n", 0, 3)
    with pytest.raises(ValueError, match="must hold the greatest size, 16"):
        stored()[:, : N.bind(3)]
    with pytest.raises(ValueError, match="bound to 3 and to 4"):
        (stored()[: N.bind(3)].sum() + stored()[: N.bind(4)].sum()).numpy()
    other = Variable("n", 1, 4)
    with pytest.raises(ValueError, match="two variables are named n"):
        (stored()[: N.bind(3)].sum() + stored()[: other.bind(3)].sum()).numpy()


def test_one_of_variable_size_from_elsewhere_is_refused() -> None:
    part = stored()[: N.bind(3)]
    captured = jit(lambda x: x + part.sum())
    captured(stored())
    with pytest.raises(CaptureError, match="knows from elsewhere"):
        captured(stored())


def test_bounds_and_values_of_a_variable_are_whole_numbers() -> None:
    assert Variable("n", np.int64(1), np.int64(4)) == Variable("n", 1, 4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integer"):
        Variable("n", 1, 2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integer"):
        N.bind(2.5)  # type: ignore[arg-type]
