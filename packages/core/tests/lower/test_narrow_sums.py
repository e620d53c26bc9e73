"""Sums of small integers are added up in the narrowest integers that hold them."""

from __future__ import annotations

import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from kernel_forms.random_kernels import Made, compare
from opgraft import Device, DType, dtypes
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.lower.narrow_sums import narrow_sums
from tested import DEVICES


def row_sums(dtype: DType, width: int, height: int = 2) -> UOp:
    """int64 sums of rows"""
    i, k = kernels.loop(height, "i"), UOp.range(width, "k", AxisKind.REDUCE)
    out, a = kernels.param(0, height, dtypes.int64), kernels.param(1, height * width, dtype)
    total = a.load(i * width + k).cast(dtypes.int64).reduce(Ops.ADD, k)
    return kernels.kernel("sums", out.store(i, total).end(i))


def accumulators(sink: UOp) -> set[DType]:
    return {n.dtype for n in sink.toposort() if n.op is Ops.REDUCE}


@pytest.mark.parametrize(
    ("dtype", "width", "narrow"),
    [
        (dtypes.bool, 1000, dtypes.int16),
        (dtypes.int8, 200, dtypes.int16),
        (dtypes.int8, 256, dtypes.int16),  # 256 times -128 is the least int16
        (dtypes.int8, 257, dtypes.int32),
        (dtypes.uint8, 129, dtypes.int32),
        (dtypes.int16, 60_000, dtypes.int32),
        (dtypes.int16, 70_000, dtypes.int64),
        (dtypes.int32, 2, dtypes.int64),
    ],
)
def test_the_bounds_of_the_sum_decide(dtype: DType, width: int, narrow: DType) -> None:
    assert accumulators(narrow_sums(row_sums(dtype, width))) == {narrow}


def test_sums_of_products_and_floats_stay() -> None:
    k = UOp.range(8, "k", AxisKind.REDUCE)
    out, a = kernels.param(0, 1, dtypes.int64), kernels.param(1, 8, dtypes.int8)
    product = a.load(k).cast(dtypes.int16) * a.load(k).cast(dtypes.int16)
    total = product.cast(dtypes.int64).reduce(Ops.ADD, k)
    sink = kernels.kernel("squares", out.store(UOp.const(dtypes.index, 0), total))
    assert narrow_sums(sink) is sink
    assert narrow_sums(kernels.row_sum()) is kernels.row_sum()


def test_it_changes_no_result() -> None:
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int16):
        sink = row_sums(dtype, 40)
        memory = fill(sink)
        assert expected(narrow_sums(sink), memory) == expected(sink, memory)


@pytest.mark.parametrize("name", DEVICES)
def test_devices_agree_with_the_oracle(name: str) -> None:
    for dtype in (dtypes.int8, dtypes.uint8):
        assert not compare(Made(row_sums(dtype, 77), {}), [Device[name]], 4)
