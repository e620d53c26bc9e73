"""Views, joins and parts against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from checks import same
from opgraft_tensor import Tensor

GRID = np.arange(24.0).reshape(2, 3, 4)


def test_reshapes() -> None:
    x = Tensor(GRID)
    same(x.reshape(4, 6), GRID.reshape(4, 6))
    same(x.reshape((-1, 2)), GRID.reshape(-1, 2))
    same(x.flatten(), GRID.reshape(-1))
    same(x.flatten(1), GRID.reshape(2, 12))
    same(x.unflatten(2, (2, -1)), GRID.reshape(2, 3, 2, 2))
    same(x.unsqueeze(0), GRID[None])
    same(x.unsqueeze(-1), GRID[..., None])
    same(x.unsqueeze(1).squeeze(1), GRID)
    same(x[:1].squeeze(), GRID[0])
    same(Tensor(3.0).reshape(1, 1), np.full((1, 1), 3, np.float32))
    for wrong in ((5, -1), (-1, -1), (25,), (-2, 12)):
        with pytest.raises(ValueError, match=r"\(2, 3, 4\)"):
            x.reshape(wrong)
    with pytest.raises(ValueError, match="squeeze"):
        x.squeeze(0)


def test_orders_of_axes() -> None:
    x = Tensor(GRID)
    same(x.permute(2, 0, 1), GRID.transpose(2, 0, 1))
    same(x.permute((-1, 0, 1)), GRID.transpose(2, 0, 1))
    same(x.transpose(0, 2), GRID.swapaxes(0, 2))
    same(x.T, GRID.T)
    same(x.mT, GRID.swapaxes(-1, -2))
    with pytest.raises(ValueError, match="permute"):
        x.permute(0, 0, 1)
    with pytest.raises(ValueError, match="two axes"):
        Tensor([1]).mT  # noqa: B018


def test_expansion_and_repetition() -> None:
    row = Tensor(GRID[0, :1])
    same(row.expand(3, 4), np.broadcast_to(GRID[0, :1], (3, 4)))
    same(row.expand(2, -1, 4), np.broadcast_to(GRID[0, :1], (2, 1, 4)))
    same(row.broadcast_to((2, 5, 4)), np.broadcast_to(GRID[0, :1], (2, 5, 4)))
    x = Tensor(GRID)
    same(x.repeat(2, 1, 3), np.tile(GRID, (2, 1, 3)))
    same(x.repeat(2), np.tile(GRID, 2))
    same(Tensor([1, 2]).repeat(2, 2), np.tile([1, 2], (2, 2)))
    same(x.repeat_interleave(2, 1), np.repeat(GRID, 2, 1))
    with pytest.raises(ValueError, match=r"\(2, 3, 4\)"):
        x.expand(3, 3, 4)


def test_borders() -> None:
    x = Tensor(GRID)
    same(x.pad(((1, 0), None, 2)), np.pad(GRID, ((1, 0), (0, 0), (2, 2))))
    same(x.pad(1, 7), np.pad(GRID, 1, constant_values=7))
    same(x.pad(1, -np.inf), np.pad(GRID, 1, constant_values=-np.inf))
    same(Tensor([True]).pad(((1, 1),)), np.array([False, True, False]))
    same(x.shrink(((0, 1), None, (1, 3))), GRID[:1, :, 1:3])
    with pytest.raises(ValueError, match="leaves"):
        x.shrink(((0, 3), None, None))


def test_directions() -> None:
    x = Tensor(GRID)
    same(x.flip(), np.flip(GRID))
    same(x.flip((0, 2)), np.flip(GRID, (0, 2)))
    same(x.roll(1, 2), np.roll(GRID, 1, 2))
    same(x.roll(-7), np.roll(GRID, -7))
    same(x.roll((1, -1), (0, 1)), np.roll(GRID, (1, -1), (0, 1)))


def test_joins() -> None:
    x, y = Tensor(GRID), Tensor(GRID[:, :1] * 10)
    same(x.cat(y, x, axis=1), np.concatenate([GRID, GRID[:, :1] * 10, GRID], 1))
    same(x.cat(x, axis=-1), np.concatenate([GRID, GRID], -1))
    same(x.stack(x + 1, axis=1), np.stack([GRID, GRID + 1], 1))
    same(x.stack(x, axis=-1), np.stack([GRID, GRID], -1))
    same(Tensor([1]).cat(Tensor([2.5])), np.array([1, 2.5], np.float32))
    same(Tensor([-0.0]).cat(Tensor([np.nan])), np.array([-0.0, np.nan], np.float32))
    with pytest.raises(ValueError, match=r"\(2, 3, 4\) and \(2, 1, 4\)"):
        x.cat(y, axis=0)
    with pytest.raises(ValueError, match="stack"):
        x.stack(y)


def test_parts() -> None:
    x = Tensor(GRID)
    for part, wanted in zip(x.split(3, 2), (GRID[:, :, :3], GRID[:, :, 3:])):
        same(part, wanted)
    assert [p.shape[1] for p in x.split((1, 0, 2), 1)] == [1, 0, 2]
    assert [p.shape[2] for p in x.chunk(3, 2)] == [2, 2]
    with pytest.raises(ValueError, match="do not fill"):
        x.split((1, 1), 1)


def test_triangles_and_diagonals() -> None:
    x = Tensor(GRID)
    for offset in (-1, 0, 1, 2):
        same(x.tril(offset), np.tril(GRID, offset))
        same(x.triu(offset), np.triu(GRID, offset))
        same(x.diagonal(offset), np.diagonal(GRID, offset, -2, -1))
    same(Tensor([[np.nan, 1.0], [2.0, np.inf]]).diagonal(), np.array([np.nan, np.inf], np.float32))
