"""float16 and bfloat16 in C: bits in memory, float32 in computation, one rounding."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp

KINDS = {dtypes.float16: np.float16, dtypes.bfloat16: ml_dtypes.bfloat16}
ALL = np.arange(1 << 16, dtype=np.uint16)


def as_bits(dtype: DType, values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(KINDS[dtype]).view(np.uint16)


def equal(dtype: DType, got: np.ndarray, want: np.ndarray) -> bool:
    nan = np.isnan(want.view(KINDS[dtype]).astype(np.float32))
    got_nan = np.isnan(got.view(KINDS[dtype]).astype(np.float32))
    return bool(np.all(np.where(nan, got_nan, got == want)))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_every_16_bit_float_survives_the_way_to_float32_and_back(
    run_elementwise: Callable[..., np.ndarray], dtype: DType, lanes: int
) -> None:
    def there(x: UOp) -> UOp:
        return x.cast(dtypes.float32.vec(lanes))

    wide = run_elementwise(there, [(dtype, ALL)], lanes)
    want = ALL.view(KINDS[dtype]).astype(np.float32)
    same = (wide.view(np.uint32) == want.view(np.uint32)) | (np.isnan(wide) & np.isnan(want))
    assert same.all()

    def back(x: UOp) -> UOp:
        return x.cast(dtype.vec(lanes))

    rng = np.random.default_rng(lanes)
    some = rng.integers(0, 1 << 32, 1 << 15, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        around = np.concatenate([want, np.nextafter(want, np.float32(9)), some])
    got = run_elementwise(back, [(dtypes.float32, around)], lanes)
    assert equal(dtype, got.view(np.uint16), as_bits(dtype, around))


@pytest.mark.parametrize("lanes", [1, 8])
def test_constants_and_selects_of_16_bit_floats_are_bits(
    run_elementwise: Callable[..., np.ndarray], lanes: int
) -> None:
    dtype = dtypes.float16.vec(lanes)

    def positive(x: UOp) -> UOp:
        return (x.cast(dtypes.float32.vec(lanes)) > 0.0).where(x, UOp.const(dtype, -1.5))

    x = np.array([1.0, -2.0, 0.0, 65504.0, 6e-8, -0.0, 3.5, -np.inf], np.float16)
    got = run_elementwise(positive, [(dtypes.float16, x.view(np.uint16))], lanes)
    assert (got.view(np.float16) == np.where(x > 0, x, np.float16(-1.5))).all()
