"""Every elementwise operation on every dtype means the same folded, interpreted and compiled.

The values are the edges of each dtype, in all pairs. Folding (ir/evaluate.py) is exact Python
arithmetic; the devices run kernels that `lower` made for them. docs/meaning.md is the table.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from opgraft.catalog import Device as DEVICES
from opgraft.dtype import DType, dtypes
from opgraft.errors import DeviceError, OpgraftError
from opgraft.ir import AxisKind, GroupOp, Ops, UOp
from opgraft.ir.evaluate import alu, bits_to_value, value_to_bits
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.rules.simplify import simplify
from opgraft.runtime import compile_kernel
from opgraft.runtime.device import Device
from tested import DEVICES as TESTED


@pytest.fixture(scope="module", params=TESTED)
def device(request: pytest.FixtureRequest) -> Device:
    try:
        return DEVICES[request.param]
    except DeviceError as error:
        if request.param == "CPU" and isinstance(error.__cause__, OpgraftError | None):
            pytest.skip(error.message)  # no compiler here
        raise


def edges(dtype: DType) -> list:
    """Values of a dtype that operations get wrong, and some that they do not."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_int:
        least, greatest = int(dtype.min), int(dtype.max)
        near = [0, 1, 2, 3, 5, 7, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100]
        near += [-1, -2, -3, -7, -dtype.bits]
        ends = [least, least + 1, greatest - 1, greatest, greatest // 2, greatest // 2 + 1]
        return list(dict.fromkeys(v for v in near + ends if least <= v <= greatest))
    unit = 2.0**-dtype.mantissa
    largest = float((2 - Fraction(unit)) * Fraction(2) ** ((1 << (dtype.exponent - 1)) - 1))
    smallest = float(Fraction(2) ** (2 - (1 << (dtype.exponent - 1)) - dtype.mantissa))
    normal = smallest / unit
    plain = [0.0, 1.0, 1.0 + unit, 1.0 - unit / 2, 1.5, 2.5, 1 / 3, 7.0, 1e3]
    ends = [largest, smallest, normal, normal - smallest, math.inf]
    positive = [dtype.const(v) for v in plain + ends]
    return [*positive, *(-v for v in positive), math.nan]


def filled(device: Device, dtype: DType, values: list):
    """A buffer of these values, and the number of them."""
    width = max(dtype.itemsize, 1)
    data = b"".join(value_to_bits(v, dtype).to_bytes(width, "little") for v in values)
    buffer = device.buffer(len(data))
    buffer.copy_in(data)
    return buffer


def read(buffer, dtype: DType) -> list:
    """Bits of the values of a buffer; every nan as the one nan."""
    data, width = buffer.bytes(), max(dtype.itemsize, 1)
    bits = [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
    return [canonical(b, dtype) for b in bits]


def canonical(bits: int, dtype: DType) -> int | str:
    value = bits_to_value(bits, dtype)
    return "nan" if value != value else bits


def computed(device: Device, results: list, sources: list[DType], rows: list) -> list:
    """For each (op, dtype) of `results` what it gives for each row of operands.

    One kernel of the device computes them all.
    """
    count = len(rows)
    i = UOp.range(count, "i")
    operands = [
        UOp(Ops.PARAM, s, (), (len(results) + k, count)).load(i) for k, s in enumerate(sources)
    ]
    stores = []
    for slot, (op, dtype) in enumerate(results):
        value = UOp(op, dtype, tuple(operands))
        stores.append(UOp(Ops.PARAM, dtype, (), (slot, count)).store(i, value).end(i))
    sink = UOp.sink(*stores, arg=KernelInfo("meaning"))
    kernel = compile_kernel(device, sink)
    outputs = [device.buffer(count * dtype.itemsize) for _, dtype in results]
    columns = [filled(device, s, [row[k] for row in rows]) for k, s in enumerate(sources)]
    kernel.run([*outputs, *columns], wait=True)
    return [read(buffer, dtype) for buffer, (_, dtype) in zip(outputs, results)]


def folded(op: Ops, dtype: DType, sources: list[DType], rows: list) -> list:
    results = [alu(op, dtype, tuple(sources), tuple(row)) for row in rows]
    return [canonical(value_to_bits(v, dtype), dtype) for v in results]


def assert_agree(device: Device, results: list, sources: list[DType], rows: list) -> None:
    """That the device computes what folding gives, bit for bit."""
    wrong = []
    for (op, dtype), found in zip(results, computed(device, results, sources, rows)):
        right = folded(op, dtype, sources, rows)
        bad = [(row, f, r) for row, f, r in zip(rows, found, right) if f != r]
        if bad:
            wrong.append(f"{op} {sources} -> {dtype}: {len(bad)} of {len(rows)}, as {bad[:3]}")
    assert not wrong, "\n".join(wrong)


INTEGER_OPS = [Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR]
INTEGER_OPS += [Ops.SHL, Ops.SHR]
FLOAT_OPS = [Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MOD, Ops.MAX, Ops.MIN]
BOOL_OPS = [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR]
COMPARISONS = [Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ]


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_two_operands(device: Device, dtype: DType) -> None:
    rows = list(itertools.product(edges(dtype), repeat=2))
    ops = BOOL_OPS if dtype.is_bool else FLOAT_OPS if dtype.is_float else INTEGER_OPS
    results = [*((op, dtype) for op in ops), *((op, dtypes.bool) for op in COMPARISONS)]
    assert_agree(device, results, [dtype, dtype], rows)


@pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
def test_one_operand(device: Device, dtype: DType) -> None:
    rows = [(v,) for v in edges(dtype)]
    assert_agree(device, [(Ops.SQRT, dtype), (Ops.TRUNC, dtype)], [dtype], rows)


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_select(device: Device, dtype: DType) -> None:
    rows = list(itertools.product([False, True], edges(dtype)[:6], edges(dtype)[-6:]))
    assert_agree(device, [(Ops.WHERE, dtype)], [dtypes.bool, dtype, dtype], rows)


def between(source: DType, target: DType) -> list:
    """Values of `source` at and near what `target` can hold, and halfway between its values."""
    values = edges(source)
    if target.is_int:
        ends = (int(target.min), int(target.max))
        values += [source.const(float(e) if source.is_float else e) for e in ends]
        if source.is_float:
            for e in ends:
                values += [source.const(e + d) for d in (-1.0, -0.5, 0.5, 1.0)]
            values += [source.const(v) for v in (0.5, 0.99, -0.5, -0.99, 2.9, -2.9)]
    if target.is_float:
        for exponent in (-20, -3, 0, 8, 10, 24, 33, 60):
            half = Fraction(2) ** exponent * (1 + Fraction(1, 2 << target.mantissa))
            for near in (
                half,
                half * (1 + Fraction(1, 1 << 40)),
                half * (1 - Fraction(1, 1 << 40)),
            ):
                value = source.const(float(near) if source.is_float else int(near))
                values += [value, source.const(-value)]
    return values


@pytest.mark.parametrize("source", dtypes.all, ids=str)
def test_conversions(device: Device, source: DType) -> None:
    targets = [d for d in dtypes.all if d is not source]
    values = {value_to_bits(v, source): v for t in targets for v in between(source, t)}
    results = [(Ops.CAST, d) for d in targets]
    results += [(Ops.BITCAST, d) for d in targets if d.bits == source.bits]
    assert_agree(device, results, [source], [(v,) for v in values.values()])


def test_threefry(device: Device) -> None:
    rows = list(itertools.product(edges(dtypes.uint64), repeat=2))
    assert_agree(device, [(Ops.THREEFRY, dtypes.uint64)], [dtypes.uint64] * 2, rows)


# ---- what only lowered programs hold


def interpreted(op: Ops, dtype: DType, rows: list) -> list:
    """An op that `lower` alone writes, in a linear program of its own."""
    from opgraft.devices.interp.executor import execute

    count = len(rows)
    params = [UOp(Ops.PARAM, dtype, (), (k, count)) for k in range(len(rows[0]) + 1)]
    i = UOp(Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, count),), ("i", AxisKind.PARALLEL))
    loads = tuple(p.load(i) for p in params[1:])
    value = UOp(op, dtype, loads)
    items = (i, *loads, value, params[0].store(i, value), UOp(Ops.END, dtypes.void, (i,)))
    program = LinearProgram("one", items, tuple(params), (), i, written=(0,))
    device = DEVICES["INTERP"]
    buffers = [filled(device, dtype, [row[k] for row in rows]) for k in range(len(rows[0]))]
    result = device.buffer(count * dtype.itemsize)
    execute(program, [b.handle for b in (result, *buffers)])
    return read(result, dtype)


@pytest.mark.parametrize("dtype", [*dtypes.ints, *dtypes.floats], ids=str)
def test_multiply_accumulate_rounds_once(dtype: DType) -> None:
    values = edges(dtype)
    rng = np.random.default_rng(1)
    if dtype.is_float:
        values = values[::2] + [math.nan]
    rows = list(itertools.product(values, repeat=3))[:: 3 if dtype.is_float else 2]
    if dtype.is_float:
        for _ in range(400):  # sums that nearly cancel show a second rounding
            a, b = (dtype.const(v) for v in rng.normal(size=2))
            c = dtype.const(-a * b)
            rows += [(a, b, c), (a, b, dtype.const(c * (1 + 2.0**-dtype.mantissa)))]
            rows.append((a, b, dtype.const(2.0 ** int(rng.integers(-9, 9)))))
    assert interpreted(Ops.MULACC, dtype, rows) == folded(Ops.MULACC, dtype, [dtype] * 3, rows)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=str)
@pytest.mark.parametrize("op", [Ops.CDIV, Ops.CMOD])
def test_division_of_c(op: Ops, dtype: DType) -> None:
    rows = list(itertools.product(edges(dtype), repeat=2))
    assert interpreted(op, dtype, rows) == folded(op, dtype, [dtype] * 2, rows)


# ---- public reports (facts/cases.json): each as constants and as data that the device loads


def both_ways(
    device: Device, op: Ops, dtype: DType, *operands: object, given: object = None
) -> object:
    """The one value of `op` on constants and on data; `given` is the dtype of the operands."""
    source = dtype if given is None else given
    assert isinstance(source, DType)
    row = tuple(source.const(v) for v in operands)
    constants = UOp(op, dtype, tuple(UOp.const(source, v) for v in row))
    expected = alu(op, dtype, (source,) * len(row), row)
    (found,) = computed(device, [(op, dtype)], [source] * len(row), [row])
    assert found == [canonical(value_to_bits(expected, dtype), dtype)]
    simple = simplify(constants)
    assert simple is UOp.const(dtype, expected), f"{constants} is simplified to {simple}"
    return expected


def test_a07_integer_constants_fold_as_the_machine_computes(device: Device) -> None:
    u8, i32, u32 = dtypes.uint8, dtypes.int32, dtypes.uint32
    assert both_ways(device, Ops.ADD, u8, 250, 10) == 4
    assert both_ways(device, Ops.ADD, u8, 3, -5) == 254
    assert both_ways(device, Ops.ADD, i32, 2147483600, 100) == -2147483596
    assert both_ways(device, Ops.ADD, u32, 0, -1) == 4294967295
    assert both_ways(device, Ops.CMPLT, dtypes.bool, 4294967295, 0, given=u32) is False
    x = UOp.variable("x", 0, 4294967295, u32)
    assert simplify(x - 1 < x).op is not Ops.CONST


def test_a08_shifts_by_the_width_or_more_or_less_than_nothing(device: Device) -> None:
    i32, u32 = dtypes.int32, dtypes.uint32
    assert both_ways(device, Ops.SHL, i32, 1, 33) == 0
    assert both_ways(device, Ops.SHL, i32, 1, -1) == 0
    assert both_ways(device, Ops.SHL, i32, 1, 31) == -(2**31)
    assert both_ways(device, Ops.SHR, i32, -8, 40) == -1
    assert both_ways(device, Ops.SHR, i32, 8, -1) == 0
    assert both_ways(device, Ops.SHR, u32, 4294967288, 40) == 0


@pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
def test_b02_extremes_with_nan_are_nan(device: Device, dtype: DType) -> None:
    for op in (Ops.MAX, Ops.MIN):
        for row in ((2.0, math.nan), (math.nan, 2.0), (math.inf, math.nan)):
            assert math.isnan(both_ways(device, op, dtype, *row))
    values = filled(device, dtype, [dtype.const(v) for v in (1.0, math.nan, 3.0)])
    k = UOp.range(3, "k", AxisKind.REDUCE)
    data, out = UOp(Ops.PARAM, dtype, (), (1, 3)), UOp(Ops.PARAM, dtype, (), (0, 1))
    for op in (Ops.MAX, Ops.MIN):
        sink = UOp.sink(out.store(0, data.load(k).reduce(op, k)), arg=KernelInfo("extreme"))
        result = device.buffer(dtype.itemsize)
        compile_kernel(device, sink).run([result, values], wait=True)
        assert read(result, dtype) == ["nan"]


@pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
def test_b03_the_sign_of_zero_is_kept(device: Device, dtype: DType) -> None:
    def signed(value: object) -> float:
        assert value == 0.0
        return math.copysign(1.0, value)

    assert signed(both_ways(device, Ops.ADD, dtype, -0.0, 0.0)) == 1
    assert signed(both_ways(device, Ops.ADD, dtype, 0.0, -0.0)) == 1  # 0.0 - 0.0
    assert signed(both_ways(device, Ops.MUL, dtype, 0.0, -1.0)) == -1  # its negation
    assert signed(both_ways(device, Ops.ADD, dtype, -0.0, -0.0)) == -1
    for a, b in ((0.0, -0.0), (-0.0, 0.0)):
        assert signed(both_ways(device, Ops.MIN, dtype, a, b)) == -1
        assert signed(both_ways(device, Ops.MAX, dtype, a, b)) == 1
    assert signed(both_ways(device, Ops.MOD, dtype, -6.0, 3.0)) == 1
    assert signed(both_ways(device, Ops.MOD, dtype, 6.0, -3.0)) == -1
    x = UOp.variable("x", -math.inf, math.inf, dtype)
    assert simplify(x + 0.0) is not x
    assert simplify(x + -0.0) is x
    assert simplify(x * 1.0) is x


def test_b05_casts_round_truncate_and_saturate(device: Device) -> None:
    f32, i32, u8 = dtypes.float32, dtypes.int32, dtypes.uint8
    assert both_ways(device, Ops.CAST, i32, 16777217.0, given=f32) == 16777216
    single = both_ways(device, Ops.CAST, f32, 16777219, given=i32)
    assert both_ways(device, Ops.CAST, i32, single, given=f32) == 16777220
    whole = both_ways(device, Ops.CAST, i32, 2.75, given=f32)
    assert both_ways(device, Ops.CAST, f32, whole, given=i32) == 2.0
    for value, expected in ((-2.9, -2), (-0.5, 0), (0.5, 0), (2.9, 2)):
        assert both_ways(device, Ops.CAST, i32, value, given=f32) == expected
    assert both_ways(device, Ops.CAST, i32, 2147483646.0, given=f32) == 2147483647
    assert both_ways(device, Ops.CAST, u8, -1.0, given=f32) == 0
    assert both_ways(device, Ops.CAST, i32, math.nan, given=f32) == 0
    x = UOp.variable("x", -math.inf, math.inf, f32)
    assert simplify(x.cast(i32).cast(f32)) is not x


def test_b06_narrowing_rounds_once(device: Device) -> None:
    f64, f16, bf16 = dtypes.float64, dtypes.float16, dtypes.bfloat16
    assert both_ways(device, Ops.CAST, f16, 1 + 2**-11 + 2**-30, given=f64) == 1.0009765625
    assert both_ways(device, Ops.CAST, bf16, 1 + 2**-8 + 2**-30, given=f64) == 1.0078125
    for kind in (dtypes.int32, dtypes.int64, dtypes.uint32):
        assert both_ways(device, Ops.CAST, bf16, 33685505, given=kind) == 33816576
    assert both_ways(device, Ops.CAST, bf16, 2.7182817, given=dtypes.float32) == 2.71875


def test_the_table_names_every_elementwise_operation() -> None:
    table = (Path(__file__).parents[3] / "docs" / "meaning.md").read_text()
    for op in sorted(GroupOp.ALU):
        assert f"`{op.name}`" in table or f"{op.name} gives" in table, op
