"""Tensors made of Python, NumPy and DLPack data, and of rules."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from checks import same, value
from opgraft_tensor import Tensor


@pytest.mark.parametrize(
    ("data", "dtype", "size"),
    [
        (3, "int64", ()),
        (3.0, "float32", ()),
        (True, "bool", ()),
        ([1, 2], "int64", (2,)),
        ([1, 2.5], "float32", (2,)),
        ([True, False], "bool", (2,)),
        ([True, 2], "int64", (2,)),
        ([[1.0], [2.0]], "float32", (2, 1)),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        (range(4), "int64", (4,)),
        ([np.arange(2), np.arange(2)], "int64", (2, 2)),
    ],
)
def test_python_data_has_the_default_dtypes(data, dtype, size) -> None:
    made = Tensor(data)
    assert (made.dtype.name, made.shape) == (dtype, size)


@pytest.mark.parametrize("data", [[[1, 2], [3]], [1, [2]], [[1], 2], [[[1]], [[1, 2]]]])
def test_ragged_lists_are_refused(data) -> None:
    with pytest.raises(ValueError, match="ragged"):
        Tensor(data)


@pytest.mark.parametrize("data", ["abc", ["a", "b"], [None], object(), {1: 2}])
def test_what_is_no_number_is_refused(data) -> None:
    with pytest.raises(TypeError):
        Tensor(data)


@pytest.mark.parametrize("name", ["complex64", "longdouble", "datetime64[s]", "object"])
def test_foreign_numpy_dtypes_are_refused_with_the_known_ones(name) -> None:
    with pytest.raises(TypeError, match="float32"):
        Tensor(np.zeros(2, name))


@pytest.mark.parametrize(
    "name",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
     "float16", "float32", "float64"],
)  # fmt: skip
def test_numpy_arrays_keep_their_dtype(name) -> None:
    array = np.array([0, 1, 100]).astype(name)
    made = Tensor(array)
    assert made.dtype.name == name
    same(made, array)
    assert made.numpy().dtype == array.dtype


def test_byte_order_and_strides_do_not_matter() -> None:
    grid = np.arange(6.0).reshape(2, 3)
    for array in (grid.T, grid[::2], grid[::-1], grid[:, ::-2], grid.astype(">f8"),
                  np.broadcast_to(grid[0], (4, 3))):  # fmt: skip
        same(Tensor(array), array.astype("=f8"))


@pytest.mark.parametrize("count", [8, 5000])
def test_memory_is_never_shared_with_numpy_whatever_the_size(count) -> None:
    """jax-ml/jax#37830, tinygrad/tinygrad#1156 (G03)."""
    array = np.arange(count, dtype=np.float32)
    made = Tensor(array)
    array[0] = -1
    assert made[0].item() == 0
    out = made.numpy()
    out[0] = -7
    assert made[0].item() == 0
    del array, out
    gc.collect()
    assert made.numpy()[-1] == count - 1


def test_a_given_dtype_converts_as_a_cast() -> None:
    assert Tensor([1.9, -1.9, 1e10, np.nan], dtype="int32").tolist() == [1, -1, 2**31 - 1, 0]
    assert Tensor([300, -1], dtype="uint8").tolist() == [44, 255]
    assert Tensor([0.1], dtype="float16").tolist() == [float(np.float16(0.1))]
    assert Tensor(2, dtype="float64").dtype.name == "float64"
    with pytest.raises(TypeError, match="nonsense"):
        Tensor([1], dtype="nonsense")
    with pytest.raises(TypeError, match="index"):
        Tensor([1], dtype="index")


def test_bfloat16_goes_in_rounded_once_and_comes_out_as_float32() -> None:
    # halil/hail#14868 and kin (B06): twice rounded these are 1.0 and 2.703125
    values = np.array([1 + 2.0**-8 + 2.0**-30, 2.7182817, np.inf, -np.inf, np.nan, 1e39, -0.0])
    found = Tensor(values, dtype="bfloat16").numpy()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:4], [1.0078125, 2.71875, np.inf, -np.inf])
    assert np.isnan(found[4])
    assert found[5] == np.inf
    assert np.signbit(found[6])
    array = np.array([1.5, -2.25], ml_dtypes.bfloat16)
    assert Tensor(array).dtype.name == "bfloat16"
    assert Tensor(array).tolist() == [1.5, -2.25]
    assert Tensor(array, dtype="float32").tolist() == [1.5, -2.25]


def test_big_integers() -> None:
    assert Tensor([2**63 - 1]).tolist() == [2**63 - 1]
    assert Tensor([2**64 - 1], dtype="uint64").tolist() == [2**64 - 1]


def test_dlpack_both_ways_is_a_copy() -> None:
    array = np.arange(4, dtype=np.float32)
    made = Tensor.from_dlpack(array)
    array[0] = 9
    assert made.tolist() == [0, 1, 2, 3]
    out = np.from_dlpack(made)
    assert out.tolist() == [0, 1, 2, 3]
    assert made.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="copy"):
        made.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="float32"):
        made.cast("bfloat16").__dlpack__()


def test_tensors_of_tensors_are_the_same_value() -> None:
    first = Tensor([1, 2])
    assert Tensor(first).tolist() == [1, 2]
    assert Tensor(first, dtype="float32").dtype.name == "float32"


def test_rules() -> None:
    same(Tensor.zeros(2, 3), np.zeros((2, 3), np.float32))
    same(Tensor.ones((2,), dtype="int8"), np.ones(2, np.int8))
    same(Tensor.full((2, 2), True), np.ones((2, 2), bool))
    same(Tensor.full(3, 2.5), np.full(3, 2.5, np.float32))
    same(Tensor.eye(3), np.eye(3, dtype=np.float32))
    same(Tensor.eye(2, 4, offset=-1, dtype="int32"), np.eye(2, 4, -1, np.int32))
    like = Tensor([[1, 2]])
    same(like.zeros_like(), np.zeros((1, 2), np.int64))
    same(like.ones_like("float32"), np.ones((1, 2), np.float32))
    same(like.full_like(7), np.full((1, 2), 7))
    with pytest.raises(ValueError, match="negative"):
        Tensor.zeros(-1)
    with pytest.raises(OverflowError, match="uint8"):
        Tensor.full((2,), 300, dtype="uint8")


@pytest.mark.parametrize(
    "args", [(5,), (0,), (2, 9), (2, 9, 3), (9, 2, -2), (5, 5), (0, 1, 0.25), (1.5, -1, -0.5)]
)
def test_arange_counts_as_numpy(args) -> None:
    expected = np.arange(*args)
    kind = np.int64 if expected.dtype.kind == "i" else np.float32
    same(Tensor.arange(*args), expected.astype(kind))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace(count, endpoint) -> None:
    expected = np.linspace(-1, 0.1, count, endpoint, dtype=np.float32)
    same(Tensor.linspace(-1, 0.1, count, endpoint), expected, rtol=1e-6, atol=1e-9)
    if count > 1 and endpoint:
        assert value(Tensor.linspace(-1, 0.1, count))[-1] == np.float32(0.1)
