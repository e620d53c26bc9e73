"""What kernels read while they are timed: places all over an array, plain numbers elsewhere."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest

from kernel_forms import kernels
from kernel_forms.kernels import f32, kernel, loop, param
from opgraft import Device
from opgraft.cli.inputs import BLOCK, SMALL, content, places_of
from opgraft.cli.measure import buffers
from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp
from opgraft.runtime import compile_kernel

FLOATS = [d for d in dtypes.all if d.is_float]
WHOLE = [d for d in dtypes.all if d.is_int]


def index(slot: int, count: int, at: UOp, dtype: DType = dtypes.int64) -> UOp:
    return param(slot, count, dtype).load(at)


def clamped(place: UOp, size: int) -> UOp:
    """A place as arrays are asked for it: from the end where negative, and kept inside."""
    place = (place < 0).where(place + size, place)
    return place.maximum(0).minimum(size - 1)


def test_an_integer_that_names_rows_is_spread_over_all_of_them() -> None:
    assert places_of(kernels.gather(40, 10, 16)) == {2: 10}


def test_each_axis_has_places_of_its_own() -> None:
    i = loop(30, "i")
    at = clamped(index(2, 30, i), 20) * 50 + clamped(
        index(3, 30, i, dtypes.int32).cast(dtypes.int64), 50
    )
    sink = kernel(
        "points", param(0, 30).store(i, param(1, 1000).load(at.cast(dtypes.index))).end(i)
    )
    assert places_of(sink) == {2: 20, 3: 50}


def test_a_place_within_rows_ends_with_the_row() -> None:
    i, j = loop(8, "i"), loop(30, "j")
    at = i * 50 + index(2, 30, j).cast(dtypes.index)
    sink = kernel("columns", param(0, 240).store(i * 30 + j, param(1, 400).load(at)).end(i, j))
    assert places_of(sink) == {2: 50}


def test_where_results_are_stored_is_spread_too() -> None:
    i, j = loop(20, "i"), loop(4, "j")
    at = index(2, 20, i).cast(dtypes.index) * 4 + j
    sink = kernel("scatter", param(0, 80).store(at, param(1, 80).load(i * 4 + j)).end(i, j))
    assert places_of(sink) == {2: 20}


def test_what_no_gate_guards_stays_inside_the_array() -> None:
    i, j = loop(20, "i"), loop(5, "j")
    at = index(2, 20, i).cast(dtypes.index) + j
    sink = kernel("windows", param(0, 100).store(i * 5 + j, param(1, 64).load(at)).end(i, j))
    (places,) = places_of(sink).values()
    assert 30 <= places <= 60
    far = index(2, 20, i).cast(dtypes.index) * 3 + 61
    sink = kernel("far", param(0, 20).store(i, param(1, 64).load(far)).end(i))
    assert places_of(sink) == {2: 1}


def test_integers_that_are_only_numbers_have_no_places() -> None:
    i = loop(20, "i")
    sink = kernel("sum", param(0, 20).store(i, index(1, 20, i, dtypes.int32).cast(f32)).end(i))
    assert places_of(sink) == {}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_are_ordinary_and_of_either_sign(dtype: DType) -> None:
    size, data = dtype.itemsize, content(dtype, 1000)
    assert len(data) == 1000 * size
    exponents, signs = set(), set()
    for place in range(0, len(data), size):
        bits = int.from_bytes(data[place : place + size], "little")
        exponents.add((bits >> dtype.mantissa) & ((1 << dtype.exponent) - 1))
        signs.add(bits >> (8 * size - 1))
    bias = (1 << (dtype.exponent - 1)) - 1
    assert exponents == {bias - 1, bias}
    assert signs == {0, 1}


def test_float_values_are_from_a_half_to_two() -> None:
    values = struct.unpack("<1000f", content(f32, 1000))
    assert all(0.5 <= abs(x) < 2 for x in values)
    assert len(set(values)) > 990


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_integers_are_small_or_places_as_wide_as_they_can_be(dtype: DType) -> None:
    size = dtype.itemsize
    for places, least in ((None, SMALL), (40, 40), (100_000, 120)):
        data = content(dtype, 2000, places)
        values = {int.from_bytes(data[n : n + size], "little") for n in range(0, 2000 * size, size)}
        assert least * 0.95 <= len(values)
        assert max(values) < min(places or SMALL, 1 << (8 * size - 1))


def test_bools_are_both() -> None:
    assert 400 < sum(content(dtypes.bool, 1000)) < 600


def test_most_rows_of_a_table_are_read_and_long_arrays_repeat_late() -> None:
    rows = array("q", content(dtypes.int64, 4000, 1000))
    assert len(set(rows)) > 950
    long = array("i", content(dtypes.int32, BLOCK + 100, 1 << 20))
    assert len(set(long)) > BLOCK * 0.8
    assert long[:100] == long[BLOCK:]


def test_all_schedules_of_a_kernel_get_the_same_inputs() -> None:
    device, sink = Device["INTERP"], kernels.gather(40, 10, 2)
    program = compile_kernel(device, sink).program

    def values() -> list[Any]:
        held = []
        for buffer in buffers(device, program, sink):
            data = bytearray(buffer.nbytes)
            buffer.copy_out(memoryview(data))
            held.append(bytes(data))
        return held

    first = values()
    assert values() == first
    assert len(set(array("q", first[2]))) == 10  # all rows are read
    assert first[0][:20] != first[1][:20]
