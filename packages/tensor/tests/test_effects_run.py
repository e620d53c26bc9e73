"""Assignment as users write it, carried out by the devices, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import opgraft_tensor.plan
from opgraft_tensor import Tensor, realize_all
from tested import DEVICES


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def same(tensor: Tensor, values: object) -> None:
    np.testing.assert_array_equal(tensor.numpy(), np.asarray(values))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_lazy_value_keeps_the_data_from_before_an_assignment(device: str, reverse: bool) -> None:
    x = Tensor([3, 4, 5], device=device)
    r = x * 2
    x[1:] = Tensor([-1, -2], device=device)
    if reverse:
        same(x, [3, -1, -2])
    same(r, [6, 8, 10])
    same(x, [3, -1, -2])


def test_swap_of_halves(device: str) -> None:
    b = Tensor([10, 20, 30, 40, 50, 60], device=device)
    left, right = b[:3], b[3:]
    b[:3] = right
    b[3:] = left
    same(b, [40, 50, 60, 10, 20, 30])


def test_scaled_and_shifted_in_place(device: str) -> None:
    t = Tensor([1, 2, 3, 4, 5], device=device)
    t[:3] = t[:3] * 10
    same(t, [10, 20, 30, 4, 5])
    t = Tensor([1, 2, 3, 4, 5], device=device)
    t[1:] = t[:-1]
    same(t, [1, 1, 2, 3, 4])
    t = Tensor([1, 2, 3, 4, 5], device=device)
    t[:-1] = t[1:]
    same(t, [2, 3, 4, 5, 5])


def test_transposed_and_flipped(device: str) -> None:
    a = Tensor(np.arange(9).reshape(3, 3), device=device)
    a[:] = a.permute(1, 0)
    same(a, [[0, 3, 6], [1, 4, 7], [2, 5, 8]])
    a = Tensor(np.arange(9).reshape(3, 3), device=device)
    a += a.permute(1, 0)
    same(a, [[0, 4, 8], [4, 8, 12], [8, 12, 16]])
    t = Tensor(np.arange(6), device=device)
    t[:] = t.flip(0)
    same(t, [5, 4, 3, 2, 1, 0])


def test_repeated_indices_the_last_wins(device: str) -> None:
    t = Tensor([5.0, 6.0, 7.0], device=device)
    t[[1, 1]] = Tensor([9.0, 0.0], device=device)
    same(t, np.float32([5, 0, 7]))
    t = Tensor([5.0, 6.0, 7.0], device=device)
    t[[1, 1]] = Tensor([9.0, np.nan], device=device)
    same(t, np.float32([5, np.nan, 7]))
    z = Tensor(np.zeros((4, 5, 6)), device=device)
    expected = np.zeros((4, 5, 6))
    values = np.arange(24.0).reshape(4, 2, 3)
    z[:, [0, 3], 1:4] = Tensor(values, device=device)
    expected[:, [0, 3], 1:4] = values
    same(z, expected)


def test_increments_add_up(device: str) -> None:
    x = Tensor(np.arange(8.0), device=device)
    x.realize()
    for _ in range(5):
        x += 1
        x.realize()
    same(x, np.arange(8.0) + 5)


def test_a_version_made_for_another_value_is_not_made_twice(device: str) -> None:
    """The sum needs the assignment; the tensor still finds its new value afterwards."""
    x = Tensor(np.arange(1 << 17, dtype=np.float32), device=device).realize()
    x[10:20] = 7.0
    total = x.max()
    assert total.item() == (1 << 17) - 1
    expected = np.arange(1 << 17, dtype=np.float32)
    expected[10:20] = 7
    same(x, expected)
    x[10:20] = x[10:20] + 1
    x[15:30] = 0.0
    y = x[5:25] * 2
    expected[10:20] += 1
    expected[15:30] = 0
    same(y, expected[5:25] * 2)
    same(x, expected)


def test_an_alias_taken_before_sees_the_old_values(device: str) -> None:
    x = Tensor(np.arange(1 << 17, dtype=np.float32), device=device).realize()
    alias = Tensor(x)
    view = x[3:9]
    x[4:6] = -1.0
    x.realize()
    same(alias[:8], np.arange(8, dtype=np.float32))
    same(view, np.arange(3, 9, dtype=np.float32))
    same(x[:8], np.float32([0, 1, 2, 3, -1, -1, 6, 7]))


def test_a_small_write_into_a_large_array_takes_its_memory() -> None:
    x = Tensor(np.zeros(1 << 18, np.float32), device="CPU").realize()
    x[:1] = 0.0
    x.realize()
    before = x.memory().buffer
    assert before is not None
    for i in range(4):
        x[i * 10 : i * 10 + 5] = float(i)
        x.realize()
        assert x.memory().buffer is before
    expected = np.zeros(1 << 18, np.float32)
    for i in range(4):
        expected[i * 10 : i * 10 + 5] = i
    same(x, expected)


def test_an_equal_program_is_planned_once() -> None:
    plans = opgraft_tensor.plan.plans

    def step() -> np.ndarray:
        x, y = Tensor(np.arange(6.0)), Tensor(np.ones(6))
        return (x * y + 3.5).numpy()

    step()
    before = plans.misses
    for _ in range(3):
        np.testing.assert_array_equal(step(), np.arange(6.0) + 3.5)
    assert plans.misses == before


def test_results_outlive_later_steps(device: str) -> None:
    """G02 of the cases, without capture: what is held outside keeps its value."""
    for value in (1.0, 5.0, 9.0):
        x = Tensor([value], device=device)
        t1 = x + 1
        h = t1 * 10
        t2 = t1 * 2
        out = t1.reshape(1, 1)
        last = t2 + 3
        realize_all([out, last])
        assert (out.item(), last.item()) == (value + 1, 2 * (value + 1) + 3)
        assert h.item() == 10 * (value + 1)
        assert t1.item() == value + 1


def test_a_loop_of_four_steps(device: str) -> None:
    x = Tensor([3.0], device=device)
    acc = Tensor([0.0], device=device)
    for _ in range(4):
        unrelated = x * 100
        acc = acc * x + 1
        realize_all([acc, unrelated])
    assert acc.item() == 40


def test_random_programs_of_assignments_run(device: str) -> None:
    """Assignments to parts of two tensors, now and then realized, with lazy readers."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        size = int(rng.choice([12, 70000]))
        arrays = [rng.standard_normal(size).astype(np.float32) for _ in range(2)]
        tensors = [Tensor(a, device=device) for a in arrays]
        readers: list[tuple[Tensor, np.ndarray]] = []
        for _ in range(int(rng.integers(2, 7))):
            target, source = (int(k) for k in rng.integers(0, 2, 2))
            count = int(rng.integers(1, 6))
            begin, other = (int(k) for k in rng.integers(0, 12 - count, 2))
            add = float(rng.integers(0, 3))
            if rng.random() < 0.4:
                readers.append((tensors[target][:12] * 2, arrays[target][:12] * 2))
            taken = arrays[source][other : other + count] + np.float32(add)
            value = tensors[source][other : other + count] + add
            tensors[target][begin : begin + count] = value
            arrays[target][begin : begin + count] = taken
            if rng.random() < 0.3:
                tensors[int(rng.integers(0, 2))].realize()
            if readers and rng.random() < 0.3:
                same(*readers[int(rng.integers(0, len(readers)))])
        for tensor, expected in [*readers, *zip(tensors, arrays)]:
            same(tensor, expected)
