"""Public bug reports of other array compilers, as whole programs with their right values.

The identifiers are those of the collection of cases that the project keeps; each names its
sources there. Reports about one room alone are tested in that room.
"""

from __future__ import annotations

import numpy as np
import pytest

from opgraft import UOp, dtypes
from opgraft_tensor import Tensor
from opgraft_tensor.tensor import realize_all
from tested import DEVICES

pytestmark = pytest.mark.parametrize("device", DEVICES)


def test_a06_a_cast_to_a_narrower_integer_wraps(device: str) -> None:
    narrow = Tensor.arange(300, device=device).cast("int8")
    assert (narrow < 0).sum().item() == 128
    assert narrow[200].item() == -56


def test_a06_the_same_from_memory(device: str) -> None:
    wide = Tensor(list(range(300)), device=device)
    assert (wide.cast("int8") < 0).sum().item() == 128


def test_a07_constants_wrap_as_the_kernel_does(device: str) -> None:
    rows = [("uint8", 250, 10, 4), ("uint8", 3, -5, 254), ("int32", 2147483600, 100, -2147483596)]
    for dtype, a, b, want in rows:
        data = Tensor([a], dtype=dtype, device=device).realize()
        other = Tensor([b % 256 if dtype == "uint8" else b], dtype=dtype, device=device)
        assert (data + other).tolist() == [want]
        assert (data + other.realize()).tolist() == [want]


def test_a08_a_shift_beyond_the_width_gives_zero_or_the_sign(device: str) -> None:
    counts = Tensor([33, 40, -1, 3], dtype="int32", device=device).realize()
    assert (Tensor([1, 1, 1, 1], dtype="int32", device=device) << counts).tolist() == [0, 0, 0, 8]
    assert (Tensor([-8] * 4, dtype="int32", device=device) >> counts).tolist() == [-1, -1, -1, -1]


def test_b01_nothing_is_lost_where_nan_and_infinity_meet_zero(device: str) -> None:
    x = Tensor([2.5, np.inf, -np.inf, np.nan, -3.0], device=device).realize()
    zero = (x * 0).numpy()
    np.testing.assert_array_equal(zero, np.array([0, np.nan, np.nan, np.nan, -0.0], "f4"))
    assert np.signbit(zero).tolist()[-1]
    np.testing.assert_array_equal((x - x).numpy(), [0, np.nan, np.nan, np.nan, 0])
    y = Tensor([4.0, np.inf, np.nan, 0.0], device=device).realize()
    np.testing.assert_array_equal((y / y).numpy(), [1, np.nan, np.nan, np.nan])


def test_b02_nan_wins_in_both_orders(device: str) -> None:
    two = Tensor([2.0], device=device).realize()
    nan = Tensor([np.nan], device=device).realize()
    for made in (two.maximum(nan), nan.maximum(two), two.minimum(nan), nan.minimum(two)):
        assert np.isnan(made.item())
    row = Tensor([1.0, np.nan, 3.0], device=device).realize()
    assert np.isnan(row.max().item())
    assert row.argmax().item() == 1


def test_c08_the_sign_of_a_zero_constant_reaches_the_bits(device: str) -> None:
    x = Tensor([1.0, -1.0], device=device).realize()
    zeros = (x > 0).where(0.0, -0.0).numpy()
    assert zeros.view(np.uint32).tolist() == [0x00000000, 0x80000000]


def test_c08_numbers_that_compare_equal_are_different_nodes(device: str) -> None:
    nodes = [
        UOp.const(dtypes.int32, 1),
        UOp.const(dtypes.bool, True),
        UOp.const(dtypes.float32, 1.0),
        UOp.const(dtypes.float32, 0.0),
        UOp.const(dtypes.float32, -0.0),
    ]
    assert len(set(nodes)) == len(nodes)
    assert (Tensor([1], device=device) + True).dtype is dtypes.int64


def test_d01_a_value_read_before_an_assignment_keeps_the_old_data(device: str) -> None:
    for first in ("r", "x"):
        x = Tensor([3, 4, 5], device=device).realize()
        r = x * 2
        x[1:] = Tensor([-1, -2], device=device)
        if first == "r":
            assert r.tolist() == [6, 8, 10]
        assert x.tolist() == [3, -1, -2]
        assert r.tolist() == [6, 8, 10]


def test_g03_a_tensor_shares_no_memory_with_numpy(device: str) -> None:
    for size in (8, 5000):
        source = np.arange(size, dtype="f4")
        tensor = Tensor(source, device=device)
        source[0] = -1
        assert tensor[0].item() == 0
        out = tensor.numpy()
        out[0] = -7
        assert tensor[0].item() == 0


def test_computed_values_are_taken_at_places_from_memory(device: str) -> None:
    rows = Tensor([9, 3], device=device).realize()
    taken = Tensor.arange(80, device=device).reshape(10, 8)[rows, 2]
    assert taken.tolist() == [74, 26]


def test_a_joined_column_is_summed_beside_being_stored(device: str) -> None:
    column = Tensor(np.ones((2, 1), "f4"), device=device)
    both = column.cat(column, axis=1)
    realize_all([total := both.sum(axis=0), both])
    assert total.tolist() == [2.0, 2.0]
    assert both.tolist() == [[1.0, 1.0], [1.0, 1.0]]
