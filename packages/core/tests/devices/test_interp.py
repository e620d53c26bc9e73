"""INTERP carries out linear programs exactly, and says which access of which kernel is wrong."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from opgraft.catalog import Device as DEVICES
from opgraft.devices.interp.executor import Executor, execute
from opgraft.dtype import DType, dtypes
from opgraft.errors import DeviceError
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.text import linear_to_text, parse_linear
from opgraft.runtime import Program, compile_kernel

F32, I32, VOID = dtypes.float32, dtypes.int32, dtypes.void


def number(value: int) -> UOp:
    return UOp.const(I32, value)


def loop(size: int | UOp, name: str, kind: AxisKind = AxisKind.LOOP) -> UOp:
    return UOp(Ops.RANGE, I32, (size if isinstance(size, UOp) else number(size),), (name, kind))


def end(opened: UOp) -> UOp:
    return UOp(Ops.END if opened.op is Ops.RANGE else Ops.ENDIF, VOID, (opened,))


def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def register(dtype: DType = F32, name: str = "r") -> UOp:
    return UOp(Ops.LOCAL, dtype, (), (name, 1, Space.REGISTER))


def program(*items: UOp, parallel: UOp | None = None, name: str = "k") -> LinearProgram:
    """A program of these instructions, its parameters and variables found in them."""
    leaves: dict[UOp, None] = {}
    for item in items:
        leaves.update((n, None) for n in item.toposort() if n.op in (Ops.PARAM, Ops.VAR))
    params = sorted((n for n in leaves if n.op is Ops.PARAM), key=lambda n: n.arg[0])
    variables = sorted((n for n in leaves if n.op is Ops.VAR), key=lambda n: n.arg[0])
    made = LinearProgram(name, items, tuple(params), tuple(variables), parallel)
    assert parse_linear(linear_to_text(made)) == made
    return made


def rows(
    values: np.ndarray, result: np.ndarray, count: int = 5000, width: int = 3
) -> LinearProgram:
    """Sums the rows of a matrix, rows in parallel: more of them than are done at once."""
    data, out = param(0, count * width), param(1, count)
    i, k = loop(count, "i", AxisKind.PARALLEL), loop(width, "k", AxisKind.REDUCE)
    acc = register()
    place = i * width
    at = place + k
    item, old = data.load(at), acc.load(number(0))
    new = old + item
    items = (i, acc, acc.store(number(0), UOp.const(F32, 0.0)), place, k, at, item, old, new)
    items += (acc.store(number(0), new), end(k), old, out.store(i, old), end(i))
    return program(*items, parallel=i)


def test_the_parallel_range_is_carried_out_in_parts() -> None:
    values = np.arange(15000, dtype=np.float32)
    result = np.zeros(5000, np.float32)
    execute(rows(values, result), [values, result])
    assert (result == values.reshape(-1, 3).sum(1)).all()


def test_only_the_asked_part_of_the_parallel_range_is_carried_out() -> None:
    values = np.ones(15000, np.float32)
    result = np.zeros(5000, np.float32)
    executor = Executor(rows(values, result))
    executor.run([values, result], begin=100, end=4900)
    assert result[:100].sum() == result[4900:].sum() == 0
    assert (result[100:4900] == 3).all()
    executor.run([values, result], begin=0, end=100)
    executor.run([values, result], begin=4900, end=9999)
    assert (result == 3).all()


def test_a_program_without_parallel_range_runs_in_its_first_part_alone() -> None:
    out = param(0, 1)
    counts = np.zeros(1, np.float32)
    old = out.load(number(0))
    new = old + 1.0
    executor = Executor(program(old, new, out.store(number(0), new)))
    executor.run([counts], begin=0, end=1)
    executor.run([counts], begin=1, end=2)
    assert counts[0] == 1


def test_what_stands_beside_the_parallel_range_is_done_by_the_part_that_begins_at_0() -> None:
    out = param(0, 9, I32)
    i = loop(8, "i", AxisKind.PARALLEL)
    first = UOp(Ops.SPECIAL, dtypes.int64, (), ("begin", 1 << 62)).eq(0)
    test = UOp(Ops.IF, VOID, (first,))
    items = (first, test, out.store(number(8), number(5)), end(test), i, out.store(i, i), end(i))
    executor = Executor(program(*items, parallel=i))
    result = np.full(9, -1, np.int32)
    executor.run([result], begin=4, end=8)
    assert result.tolist() == [-1, -1, -1, -1, 4, 5, 6, 7, -1]
    executor.run([result], begin=0, end=4)
    assert result.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 5]


def test_a_gate_keeps_loads_and_stores_within_memory() -> None:
    data, out = param(0, 4), param(1, 8)
    i = loop(8, "i", AxisKind.PARALLEL)
    gate, low = i < 4, i < 6
    item = UOp(Ops.LOAD, F32, (data, i, gate, UOp.const(F32, -1.0)))
    far = i * 1000
    away = UOp(Ops.LOAD, F32, (data, far, far < 1, item))
    result = np.full(8, 9, np.float32)
    items = (i, gate, low, item, far, far < 1, away, out.store(i, away, low), end(i))
    execute(program(*items, parallel=i), [np.arange(4, dtype=np.float32), result])
    assert result.tolist() == [0, 1, 2, 3, -1, -1, 9, 9]


def test_a_gated_load_of_an_empty_buffer() -> None:
    empty, out = param(0, 0), param(1, 3)
    i = loop(3, "i", AxisKind.PARALLEL)
    gate = i < 0
    item = UOp(Ops.LOAD, F32, (empty, i, gate, UOp.const(F32, 2.0)))
    result = np.zeros(3, np.float32)
    execute(program(i, gate, item, out.store(i, item), end(i), parallel=i), [np.zeros(0), result])
    assert result.tolist() == [2, 2, 2]


@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("store", [True, False])
def test_an_access_out_of_range_names_kernel_instruction_and_element(
    sequential: bool, store: bool
) -> None:
    data, out = param(0, 6), param(1, 20)
    i = loop(8, "i", AxisKind.LOOP if sequential else AxisKind.PARALLEL)
    there = i + 1 if not store else i * 3
    item = data.load(there) if not store else UOp.const(F32, 1.0)
    save = out.store(there, item)
    items = (i, there, save, end(i)) if store else (i, there, item, save, end(i))
    made = program(*items, data.load(number(0)), name="faulty", parallel=None if sequential else i)
    with pytest.raises(DeviceError) as raised:
        execute(made, [np.zeros(6, np.float32), np.zeros(20, np.float32)])
    message = str(raised.value)
    assert "kernel 'faulty'" in message
    assert ("store(" in message) == store
    assert ("element 21 of a buffer of 20" if store else "element 6 of a buffer of 6") in message


def test_negative_places_are_out_of_range_too() -> None:
    data, out = param(0, 4), param(1, 4)
    item = data.load(number(-1))
    with pytest.raises(DeviceError, match="element -1"):
        execute(program(item, out.store(number(0), item)), [np.zeros(4, np.float32)] * 2)


def test_a_branch_that_differs_between_iterations() -> None:
    out = param(0, 8, I32)
    i = loop(8, "i", AxisKind.PARALLEL)
    odd = UOp(Ops.AND, I32, (i, number(1))).eq(1)
    big = i < 5
    first, second = UOp(Ops.IF, VOID, (odd,)), UOp(Ops.IF, VOID, (big,))
    items = (i, odd.src[0], odd, big, first, out.store(i, i), second, out.store(i, i * 10))
    made = program(
        i, odd.src[0], odd, big, i * 10, *items[4:], end(second), end(first), end(i), parallel=i
    )
    result = np.full(8, -1, np.int32)
    execute(made, [result])
    assert result.tolist() == [-1, 10, -1, 30, -1, 5, -1, 7]


def test_a_loop_whose_length_differs_between_iterations() -> None:
    out = param(0, 6, I32)
    i = loop(6, "i", AxisKind.PARALLEL)
    j = loop(i, "j")
    acc = register(I32)
    old = acc.load(number(0))
    new = old + j
    items = (i, acc, acc.store(number(0), number(0)), j, old, new, acc.store(number(0), new))
    execute(
        program(*items, end(j), old, out.store(i, old), end(i), parallel=i),
        [r := np.zeros(6, np.int32)],
    )
    assert r.tolist() == [0, 0, 1, 3, 6, 10]


def test_vectors_consecutive_gathered_stacked_and_combined() -> None:
    data, out, ones = param(0, 8), param(1, 8), param(2, 2)
    four = F32.vec(4)
    first = UOp(Ops.LOAD, four, (data, number(2)))
    iota = UOp(Ops.IOTA, I32.vec(4))
    three = UOp(Ops.BROADCAST, I32.vec(4), (number(3),))
    back = three + iota * UOp(Ops.BROADCAST, I32.vec(4), (number(-1),))
    gathered = UOp(Ops.LOAD, four, (data, back))
    total = first + gathered
    save = out.store(number(0), total)
    shifted = back + UOp(Ops.BROADCAST, I32.vec(4), (number(4),))
    scatter = UOp(Ops.STORE, VOID, (out, shifted, first))
    top = UOp(Ops.HREDUCE, F32, (first,), Ops.MAX)
    lane = UOp(Ops.EXTRACT, F32, (first,), 1)
    pair = UOp(Ops.STACK, F32.vec(2), (top, lane))
    minus, plus = back.src[1].src[1], shifted.src[1]
    items = (first, three, minus, back.src[1], back, gathered, total, save, plus, shifted, scatter)
    made = program(*items, top, lane, pair, ones.store(number(0), pair))
    values, result, few = (
        np.arange(8, dtype=np.float32),
        np.zeros(8, np.float32),
        np.zeros(2, np.float32),
    )
    execute(made, [values, result, few])
    assert result.tolist() == [2 + 3, 3 + 2, 4 + 1, 5 + 0, 5, 4, 3, 2]
    assert few.tolist() == [5, 3]


def test_a_masked_vector_access_at_the_end_of_memory() -> None:
    data, out = param(0, 5), param(1, 5)
    four = F32.vec(4)
    i = loop(2, "i", AxisKind.PARALLEL)
    place = i * 4
    lanes = UOp(Ops.BROADCAST, I32.vec(4), (place,)) + UOp(Ops.IOTA, I32.vec(4))
    size = UOp(Ops.BROADCAST, I32.vec(4), (number(5),))
    gate = lanes < size
    zero = UOp(Ops.BROADCAST, four, (UOp.const(F32, 0.0),))
    item = UOp(Ops.LOAD, four, (data, place, gate, zero))
    items = (i, place, lanes.src[0], lanes, size, gate, zero, item, out.store(place, item, gate))
    result = np.zeros(5, np.float32)
    execute(program(*items, end(i), parallel=i), [np.arange(5, dtype=np.float32), result])
    assert result.tolist() == [0, 1, 2, 3, 4]


def test_local_memory_belongs_to_one_iteration() -> None:
    data, out = param(0, 40), param(1, 40)
    i, j, k = loop(10, "i", AxisKind.PARALLEL), loop(4, "j"), loop(4, "k")
    local = UOp(Ops.LOCAL, F32, (), ("row", 4, Space.PRIVATE))
    base = i * 4
    at, item = base + j, data.load(base + j)
    turned = number(3) + k * -1
    here = base + k
    found = local.load(turned)
    items = (i, local, base, j, at, item, local.store(j, item), end(j), k, k * -1, turned, here)
    values, result = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    execute(
        program(*items, found, out.store(here, found), end(k), end(i), parallel=i), [values, result]
    )
    assert (result.reshape(10, 4) == values.reshape(10, 4)[:, ::-1]).all()


def test_memory_that_was_not_written_is_poison() -> None:
    out, count = param(0, 1), param(1, 1, I32)
    local = UOp(Ops.LOCAL, F32, (), ("l", 2, Space.PRIVATE))
    counter = register(I32)
    a, b = local.load(number(1)), counter.load(number(0))
    made = program(local, counter, a, b, out.store(number(0), a), count.store(number(0), b))
    execute(made, [x := np.zeros(1, np.float32), n := np.zeros(1, np.int32)])
    assert np.isnan(x[0])
    assert n[0] == -(2**31)


def test_registers_keep_a_value_that_was_read_before_the_next_write() -> None:
    out = param(0, 2)
    acc = register()
    one, two = UOp.const(F32, 1.0), UOp.const(F32, 2.0)
    old = acc.load(number(0))
    kept = old + 0.0
    made = program(
        acc,
        acc.store(number(0), one),
        old,
        kept,
        acc.store(number(0), two),
        out.store(number(0), kept),
        old,
        out.store(number(1), old),
    )
    execute(made, [r := np.zeros(2, np.float32)])
    assert r.tolist() == [1, 2]


def test_an_in_place_kernel() -> None:
    data = param(0, 9)
    i = loop(9, "i", AxisKind.PARALLEL)
    item = data.load(i)
    double = item * 2.0
    execute(
        program(i, item, double, data.store(i, double), end(i), parallel=i),
        [r := np.arange(9, dtype=np.float32)],
    )
    assert r.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16]


def test_bool_and_bfloat16_as_memory_holds_them() -> None:
    flags, halves = param(0, 3, dtypes.bool), param(1, 3, dtypes.bfloat16)
    i = loop(3, "i", AxisKind.PARALLEL)
    half, flag = halves.load(i), flags.load(i)
    turned = ~flag
    triple = half * 3.0
    f, h = np.array([0, 1, 7], np.uint8), np.array([0x3F80, 0x3F81, 0xFFC0], np.uint16)
    made = program(
        i,
        half,
        flag,
        turned,
        triple,
        flags.store(i, turned),
        halves.store(i, triple),
        end(i),
        parallel=i,
    )
    execute(made, [f, h])
    assert f.tolist() == [1, 0, 0]
    assert h[:2].tolist() == [0x4040, 0x4042]  # 3 * 1.0078125 = 3.0234375, a tie to even
    assert h[2] & 0x7FFF > 0x7F80  # nan


def test_variables_are_checked_and_used() -> None:
    n = UOp.variable("n", 1, 4, I32)
    out = param(0, 4, I32)
    i = loop(n, "i", AxisKind.PARALLEL)
    executor = Executor(program(i, out.store(i, n), end(i), parallel=i))
    executor.run([r := np.zeros(4, np.int32)], {"n": 3})
    assert r.tolist() == [3, 3, 3, 0]
    with pytest.raises(DeviceError, match=r"variable 'n' is 5, outside of its limits 1 \.\. 4"):
        executor.run([r], {"n": 5})
    with pytest.raises(DeviceError, match="'n' has no value"):
        executor.run([r])
    with pytest.raises(DeviceError, match="slot 0 has 2 elements of int32, it needs 4"):
        executor.run([r[:2]], {"n": 2})
    with pytest.raises(DeviceError, match="no buffer was given for slot 0"):
        executor.run([], {"n": 2})


def test_what_must_be_lowered_first_is_named() -> None:
    x = UOp.variable("x", 0.0, 1.0, F32)
    with pytest.raises(DeviceError, match="INTERP has no EXP2"):
        Executor(program(x.exp2()))


def test_an_empty_loop_and_loops_within_loops() -> None:
    out = param(0, 1, I32)
    acc = register(I32)
    i, j, none = loop(3, "i"), loop(4, "j"), loop(0, "none")
    old = acc.load(number(0))
    new = old + 1
    count = (old, new, acc.store(number(0), new))
    items = (acc, acc.store(number(0), number(0)), i, j, *count, end(j), none, *count, end(none))
    execute(program(*items, end(i), old, out.store(number(0), old)), [r := np.zeros(1, np.int32)])
    assert r.tolist() == [12]


def test_a_buffer_that_is_not_contiguous_is_refused() -> None:
    made = program(param(0, 2, I32).store(number(0), number(4)))
    with pytest.raises(ValueError, match="slot 0 is not contiguous"):
        execute(made, [np.zeros((4, 2), np.int32)[:, 0]])


# ---- the device


def a_sum(count: int) -> UOp:
    i, k = UOp.range(count, "i"), UOp.range(7, "k", AxisKind.REDUCE)
    value = param(1, count * 7).load(i * 7 + k).reduce(Ops.ADD, k)
    return UOp.sink(param(0, count).store(i, value).end(i), arg=KernelInfo("sums"))


def test_the_device_runs_what_lowering_makes() -> None:
    device = DEVICES["INTERP"]
    kernel = compile_kernel(device, a_sum(50))
    assert kernel.program.source.startswith('linear["sums"]')
    values = np.arange(350, dtype=np.float32)
    data, result = device.buffer(values.nbytes), device.buffer(200)
    data.copy_in(values)
    assert np.isnan(np.frombuffer(result.bytes(), np.float32)).all()  # never written
    seconds = kernel.run([result, data], wait=True)
    assert seconds is not None
    assert (np.frombuffer(result.bytes(), np.float32) == values.reshape(50, 7).sum(1)).all()
    with pytest.raises(DeviceError, match="takes 2 buffers and 0 variables, not 1 and 0"):
        kernel.run([result])


def test_views_share_memory() -> None:
    device = DEVICES["INTERP"]
    whole = device.buffer(16)
    whole.copy_in(np.arange(4, dtype=np.int32))
    part = whole.view(4, 8)
    assert np.frombuffer(part.bytes(), np.int32).tolist() == [1, 2]
    part.copy_in(np.array([8, 9], np.int32))
    assert np.frombuffer(whole.memory(), np.int32).tolist() == [0, 8, 9, 3]


def test_a_text_is_read_once() -> None:
    device = DEVICES["INTERP"]
    source = linear_to_text(program(param(0, 1, I32).store(number(0), number(4))))
    made = parse_linear(source)
    first, second = (device.load(Program.of(made, source)) for _ in range(2))
    assert first._executor is second._executor


def test_threads_may_run_one_executable() -> None:
    device = DEVICES["INTERP"]
    kernel = compile_kernel(device, a_sum(40))
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).integers(0, 9, 280).astype(np.float32)
        data, result = device.buffer(values.nbytes), device.buffer(160)
        data.copy_in(values)
        for _ in range(20):
            kernel.run([result, data], wait=True)
            found = np.frombuffer(result.bytes(), np.float32)
            if not (found == values.reshape(40, 7).sum(1)).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_what_float32_has_no_room_for_is_rounded_once_to_bfloat16() -> None:
    """Below the least float32, and just beside what is halfway between two bfloat16."""
    interp = DEVICES["INTERP"]
    values = [5e-324, -5e-324, 2.0**-150, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40]
    out = UOp(Ops.PARAM, dtypes.bfloat16, (), (0, len(values)))
    x = UOp(Ops.PARAM, dtypes.float64, (), (1, len(values)))
    i = UOp.range(len(values), "i")
    store = out.store(i, x.load(i).cast(dtypes.bfloat16)).end(i)
    kernel = compile_kernel(interp, UOp.sink(store, arg=KernelInfo("narrow")))
    buffers = [interp.buffer(2 * len(values)), interp.buffer(8 * len(values))]
    buffers[1].copy_in(np.array(values))
    kernel.run(buffers)
    found = np.frombuffer(buffers[0].bytes(), np.uint16).tolist()
    assert found == [0x0000, 0x8000, 0x0000, 0x3F81, 0x3F80]
