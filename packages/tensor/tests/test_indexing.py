"""Reading by NumPy's indexing rules."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from checks import same
from opgraft_tensor import Tensor

CUBE = np.arange(60.0).reshape(3, 4, 5)
I2 = np.array([2, 0])
I22 = np.array([[0, -1], [1, 2]])


@pytest.mark.parametrize(
    "key",
    [
        0, -1, slice(1, None), slice(None, None, -1), slice(-1, -5, -2), slice(2, 2), ..., None,
        (0, 1), (..., 0), (slice(None), None, 1), (None, ..., None), (0, ..., slice(1, 4, 2)),
        (slice(None, None, 2), slice(3, 0, -1), -1), (1, 2, 3), (), np.int64(1),
        I2, I22, [1, 1, 0], (I2, 0), (I2, I2), (I2, I2, I2), (slice(None), I2), (slice(None), I22),
        (slice(None), I2, I2), (I2, slice(None), I2), (0, slice(None), I2), (I2, None, I2),
        (None, I2), (I22, I2), (slice(None), slice(1, 3), [0, 4]), (..., I2, slice(None)),
        (slice(None, None, -1), I2, None, slice(0, 2)), (I2[:, None], I2), (I2, ..., 0),
        (0, I2, I2), (slice(0, 2), 0, I2), np.array([], int), (range(2), [0, 1]),
        np.array([True, False, True]), (slice(None), [True, False, True, True]),
        CUBE > 30, (0, CUBE[0] > 7), (CUBE[:, :, 0] > 10, slice(1, 3)), np.uint8([1, 2]),
    ],
    ids=str,
)  # fmt: skip
def test_reading_equals_numpy(key) -> None:
    same(Tensor(CUBE)[key], CUBE[key])


def test_indices_may_be_tensors_computed_later() -> None:
    x, index = Tensor(CUBE), Tensor([0, -1, 1])
    same(x[index], CUBE[[0, -1, 1]])
    same(x[:, index * 1, 0], CUBE[:, [0, -1, 1], 0])
    same(x[index.cast("int8")], CUBE[[0, -1, 1]])
    same(x[Tensor([2, 0], dtype="uint8")], CUBE[[2, 0]])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (3, "index 3 is outside axis 0"), ((0, -5), "index -5"), ((0, 0, 0, 0), "4 indices"),
        ([0, 3], "index 3 is outside"), ((..., ...), "one Ellipsis"), ("a", "'a'"),
        (1.5, "1.5"), ([0.5], "integers"), (True, "bool"), (np.ones(4, bool), "mask"),
    ],
)  # fmt: skip
def test_wrong_keys_are_explained(key, words) -> None:
    with pytest.raises(IndexError, match=words):
        Tensor(CUBE)[key]


def test_arrays_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        Tensor(CUBE)[[0, 1], [0, 1, 2]]


def test_a_lazy_mask_is_refused_with_the_ways_out() -> None:
    with pytest.raises(IndexError, match=r"mask\.where"):
        Tensor(CUBE)[Tensor(CUBE) > 3]


def test_selection_along_an_axis() -> None:
    x = Tensor(CUBE)
    same(x.take([3, 1], axis=1), CUBE.take([3, 1], 1))
    same(x.take(I22, axis=-1), CUBE.take(I22, -1))
    same(x.take([59, 0]), CUBE.take([59, 0]))
    order = np.argsort(-CUBE, axis=1)
    same(x.take_along_axis(Tensor(order), 1), np.take_along_axis(CUBE, order, 1))
    same(x.take_along_axis(order[:, :2], 1), np.take_along_axis(CUBE, order[:, :2], 1))
    same(x.gather(2, Tensor([[[1, 0]]])), CUBE[:1, :1, [1, 0]])


def test_one_hot() -> None:
    same(Tensor([0, 2, 5]).one_hot(3), np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]]))
    with pytest.raises(TypeError, match="float32"):
        Tensor([1.0]).one_hot(2)


def random_key(rng: random.Random, size: tuple[int, ...]) -> tuple[object, ...]:
    """A key of every kind of entry, mostly a legal one."""
    key: list[object] = []
    common = rng.choice([(2,), (3,), (2, 3), (1,), (2, 1)])
    place = 0
    while place < len(size) and rng.random() < 0.85:
        extent, kind = size[place], rng.random()
        if kind < 0.15:
            key.append(None)
            continue
        if kind < 0.35:
            key.append(rng.randrange(-extent, extent))
        elif kind < 0.65:
            ends = [rng.choice([None, *range(-extent - 2, extent + 3)]) for _ in range(2)]
            key.append(slice(*ends, rng.choice([None, 1, -1, 2, -2, 3])))
        elif kind < 0.9:
            own = rng.choice([common, common[-1:], ()])
            count = math.prod(own)
            picked = [rng.randrange(-extent, extent) for _ in range(count)]
            key.append(np.array(picked, np.int64).reshape(own))
        else:
            key.append(np.array([rng.random() < 0.5 for _ in range(extent)]))
        place += 1
    if rng.random() < 0.2:
        key.insert(rng.randrange(len(key) + 1), ...)
    return tuple(key)


def test_random_keys_read_and_write_as_numpy() -> None:
    rng = random.Random(1)
    tried = 0
    for _ in range(400):
        size = tuple(rng.choice([1, 2, 3, 4]) for _ in range(rng.randrange(1, 4)))
        array = np.arange(float(math.prod(size))).reshape(size)
        key = random_key(rng, size)
        try:
            wanted = array[key]
        except IndexError:
            with pytest.raises((IndexError, ValueError)):
                Tensor(array)[key]
            continue
        tried += 1
        same(Tensor(array)[key], wanted)
        fresh = -1.0 - np.arange(float(wanted.size)).reshape(wanted.shape)
        x = Tensor(array)
        x[key] = Tensor(fresh)
        array[key] = fresh
        same(x, array)
    assert tried > 250
