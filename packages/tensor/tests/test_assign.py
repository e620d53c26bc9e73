"""Assignment in program order: who reads before keeps the old values, parts are values."""

from __future__ import annotations

import numpy as np
import pytest

from checks import same, value
from opgraft_tensor import Tensor, grad
from tested import DEVICES


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    return request.param


def tensor(data, device, dtype=None) -> Tensor:
    return Tensor(data, dtype=dtype, device=device)


@pytest.mark.parametrize("first", ["r", "x"])
def test_a_lazy_reader_keeps_the_old_data(device, first) -> None:
    """tinygrad/tinygrad#17074, #17508 (D01)."""
    x = tensor([3, 4, 5], device)
    r = x * 2
    x[1:] = tensor([-1, -2], device)
    (r if first == "r" else x).realize()
    assert r.tolist() == [6, 8, 10]
    assert x.tolist() == [3, -1, -2]


def test_source_and_target_may_overlap(device) -> None:
    """tinygrad/tinygrad#15093, #9940, #12299, #9210, #16766 (D02)."""

    def line() -> Tensor:
        return tensor([1, 2, 3, 4, 5], device)

    b = tensor([10, 20, 30, 40, 50, 60], device)
    left, right = b[:3], b[3:]
    b[:3] = right
    b[3:] = left
    assert b.tolist() == [40, 50, 60, 10, 20, 30]
    t = line()
    t[:3] *= 10
    assert t.tolist() == [10, 20, 30, 4, 5]
    t = line()
    t[1:] = t[:-1]
    assert t.tolist() == [1, 1, 2, 3, 4]
    t = line()
    t[:-1] = t[1:]
    assert t.tolist() == [2, 3, 4, 5, 5]
    a = Tensor.arange(9, device=device).reshape(3, 3)
    a[:] = a.T
    assert a.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    a = Tensor.arange(9, device=device).reshape(3, 3)
    a += a.T
    assert a.tolist() == [[0, 4, 8], [4, 8, 12], [8, 12, 16]]
    t = tensor(list(range(6)), device)
    t[:] = t[::-1]
    assert t.tolist() == [5, 4, 3, 2, 1, 0]


def test_the_last_of_repeated_indices_wins(device) -> None:
    """tinygrad/tinygrad#7739, #12128, #15050 (D03)."""
    t = tensor([5.0, 6.0, 7.0], device)
    t[[1, 1]] = tensor([9.0, 0.0], device)
    assert t.tolist() == [5, 0, 7]
    t[[1, 1]] = tensor([9.0, np.nan], device)
    np.testing.assert_array_equal(t.numpy(), [5, np.nan, 7])
    z = Tensor.zeros(4, 5, 6, device=device)
    z[:, [0, 3], 1:4] = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    wanted = np.zeros((4, 5, 6), np.float32)
    wanted[:, [0, 3], 1:4] = np.arange(24).reshape(4, 2, 3)
    np.testing.assert_array_equal(z.numpy(), wanted)


CUBE = np.arange(60.0).reshape(3, 4, 5)
I2 = np.array([2, 0])


@pytest.mark.parametrize(
    "key",
    [
        0, (1, 2, 3), slice(None, None, -2), (slice(None), slice(3, 0, -1)), ..., (0, ..., 1),
        (None, 1), I2, [1, 1, 0], (slice(None), I2), (I2, slice(None), I2), (0, slice(None), I2),
        (slice(1, None), I2, slice(0, 4, 2)), (slice(None, None, -1), I2, None),
        np.array([True, False, True]), (slice(None), [True, False, True, True]), CUBE > 30,
        slice(2, 2),
    ],
    ids=str,
)  # fmt: skip
def test_every_key_assigns_as_numpy(key) -> None:
    part = np.asarray(CUBE[key])
    values = [7.0, part * -1 - 100]
    if part.ndim:
        values.append(part[..., :1] * 2)
    for fresh in values:
        wanted = CUBE.copy()
        wanted[key] = fresh
        x = Tensor(CUBE)
        x[key] = fresh if isinstance(fresh, float) else Tensor(fresh)
        same(x, wanted)


def test_values_broadcast_and_are_cast() -> None:
    x = Tensor([[1, 2], [3, 4]])
    x[0] = 9.7
    same(x, np.array([[9, 9], [3, 4]]))
    x[:, 0] = Tensor([[[5.5, 6.5]]])
    same(x, np.array([[5, 9], [6, 4]]))
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        x[0] = Tensor([1, 2, 3])
    with pytest.raises(OverflowError):
        Tensor([1], dtype="int8")[0] = 1000


def test_a_mask_takes_one_value() -> None:
    x = Tensor([1.0, -2.0, 3.0])
    x[x < 0] = 0
    same(x, np.array([1, 0, 3], np.float32))
    grid = Tensor(CUBE)
    grid[Tensor([True, False, True])] = Tensor(7.0)
    wanted = CUBE.copy()
    wanted[[0, 2]] = 7
    same(grid, wanted)
    with pytest.raises(IndexError, match="one value"):
        x[x > 0] = Tensor([1.0, 2.0])


def test_assign_replaces_everything_and_keeps_the_dtype() -> None:
    x = Tensor([1, 2, 3])
    old = x * 1
    assert x.assign(Tensor([4.5, 5.5, 6.5])) is x
    same(x, np.array([4, 5, 6]))
    same(old, np.array([1, 2, 3]))
    x.assign(0)
    same(x, np.zeros(3, np.int64))


def test_operators_in_place_change_one_handle() -> None:
    x = Tensor([1.0, 2.0])
    other, part = x.clone(), x[1:]
    x += 1
    x *= 10
    x -= 1
    x /= 2
    same(x, np.array([9.5, 14.5], np.float32))
    same(other, np.array([1, 2], np.float32))
    same(part, np.array([2], np.float32))


def test_a_part_is_a_value_not_a_window() -> None:
    x = Tensor([1, 2, 3])
    part = x[1:]
    part[0] = 9
    same(x, np.array([1, 2, 3]))
    same(part, np.array([9, 3]))


def test_many_assignments_in_order(device) -> None:
    x = tensor([0.0] * 6, device)
    seen = []
    for i in range(6):
        x[i] = i + x.sum()
        seen.append(x * 1)
    assert x.tolist() == [0, 1, 3, 7, 15, 31]
    assert [s.tolist()[5] for s in seen] == [0, 0, 0, 0, 0, 31]


def test_a_loop_of_updates_with_reads_between(device) -> None:
    x = tensor([1.0, 2.0], device)
    before = x + 0
    for step in range(3):
        x += 1
        x.realize()
        assert x.tolist() == [2 + step, 3 + step]
    assert before.tolist() == [1, 2]


def test_gradients_go_through_assignment() -> None:
    x, y = Tensor(CUBE[0]), Tensor([10.0, 20.0], dtype="float64")
    z = x * 2
    z[1:3, 0] = y * 3
    (to_x, to_y) = grad((z * z).sum(), [x, y])
    wanted = 8 * CUBE[0]
    wanted[1:3, 0] = 0
    same(to_x, wanted)
    same(to_y, 18 * np.array([10.0, 20.0]))
    w = x * 1
    w[[0, 0]] = Tensor(CUBE[0][:2])
    source = Tensor(CUBE[0][:2])
    w = x * 1
    w[[0, 0]] = source
    to_x, to_source = grad(w.sum(), [x, source])
    assert value(to_x)[0].tolist() == [0] * 5
    assert value(to_source).tolist() == [[0] * 5, [1] * 5]


def test_a_leaf_stays_a_leaf_when_assigned() -> None:
    p = Tensor([1.0, 2.0], device="INTERP", requires_grad=True)
    for _ in range(3):
        p.grad = None
        (p * p).sum().backward()
        p.assign(p - 0.25 * p.grad)
        p.realize()
    assert p.is_leaf
    assert p.tolist() == [0.125, 0.25]


def test_no_method_gives_the_tensor_itself(device) -> None:
    """A roll by nothing was its own operand, and an assignment to it changed both."""
    x = tensor([[1.0, 2.0, 3.0]], device)
    same_values = [
        x.roll(0, 1), x.roll(3, 1), x.roll(-2, 0), x.clip(), x.cast("float32"), x.reshape(1, 3),
        x.flip(0), x[:], x.expand(1, 3), x.pad(0), x.clone(), +x, x.permute(0, 1), x.detach(),
        x.contiguous(), x.squeeze(()), x.repeat(1), x.to(device), x.round(), x.cat(axis=1), x[...],
    ]  # fmt: skip
    for made in same_values:
        made[:] = 0
    assert x.tolist() == [[1, 2, 3]]
    for made in same_values:
        assert made.shape == (1, 3)
        assert made.tolist() == [[0, 0, 0]]
