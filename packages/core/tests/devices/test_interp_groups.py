"""INTERP carries out groups of threads, and names what is wrong with a kernel and where."""

from __future__ import annotations

import re

import numpy as np
import pytest

from opgraft import using
from opgraft.api import LinearProgram, Program, compile_linear, linear_to_text
from opgraft.catalog import Device as DEVICES
from opgraft.devices.interp.executor import execute
from opgraft.errors import DeviceError, SpecError
from opgraft.ir.text import parse_linear

F32 = np.float32


def run(text: str, *arrays: np.ndarray, **variables: int) -> None:
    """Carry out a program; lines of `text` are those of the text form from the third on."""
    execute(parse_linear('linear["k"]\n' + text), arrays, variables)


GROUP_SUMS = """
%out: float32 = param[0, 2]
%x: float32 = param[1, 10]
%g: int32 = special["group0", 2]
%t: int32 = special["thread0", 8]
params %out %x
body
  %s: float32 = local["s", 8, group]
  %base: int32 = mul(%g, 8)
  %i: int32 = add(%base, %t)
  %in: bool = cmplt(%i, 10)
  %v: float32 = load(%x, %i, %in, 0.0)
  store(%s, %t, %v)
  barrier
  %acc: float32 = local["acc", 1, register]
  store(%acc, 0:int32, 0.0)
  %k: int32 = range["k", reduce](8)
    %one: float32 = load(%s, %k)
    %old: float32 = load(%acc, 0:int32)
    %new: float32 = add(%old, %one)
    store(%acc, 0:int32, %new)
  end(%k)
  again %old
  %first: bool = cmpeq(%t, 0)
  store(%out, %g, %old, %first)
launch[(2,), (8,)]
written[0,]
"""


def group_sums(text: str) -> np.ndarray:
    out = np.zeros(2, F32)
    run(text, out, np.arange(10, dtype=F32))
    return out


def test_threads_of_a_group_hand_each_other_values_through_group_memory() -> None:
    """E06: per-group sums of 0 .. 9 in groups of 8, the last one half empty."""
    assert group_sums(GROUP_SUMS).tolist() == [28, 17]


def test_a_missing_barrier_is_a_race_that_names_the_line_and_both_threads() -> None:
    with pytest.raises(DeviceError) as raised:
        group_sums(GROUP_SUMS.replace("  barrier\n", ""))
    said = str(raised.value)
    # the instruction as the text form writes it, its line, who reads, what, and who wrote
    assert re.search(r"kernel 'k': `%\d+: float32 = load\(%\d+, %\d+\)` \(line \d+\)", said)
    assert "in thread 1 of group 0 reads element 0 of the local 's'" in said
    assert "which thread 0 of group 0 wrote without a barrier between" in said
    assert "Put a barrier between" in said


def test_a_barrier_that_not_all_threads_reach_is_named() -> None:
    some = GROUP_SUMS.replace(
        "  barrier\n",
        "  %few: bool = cmplt(%t, 5)\n  %odd: float32 = load(%x, %t)\n"
        "  %big: bool = cmplt(%odd, 5.0)\n"
        "  %if: void = if(%big)\n    barrier\n  endif(%if)\n",
    )
    with pytest.raises(
        DeviceError, match=r"`barrier` \(line \d+\) in thread 5 of group 0 is never"
    ):
        group_sums(some)


def test_a_barrier_in_a_loop_of_differing_length_is_named() -> None:
    some = GROUP_SUMS.replace(
        "  barrier\n",
        "  %odd: float32 = load(%x, %t)\n  %n: int32 = cast(%odd)\n"
        '  %l: int32 = range["l", loop](%n)\n    barrier\n  end(%l)\n',
    )
    with pytest.raises(DeviceError, match="in thread 0 of group 0 is never reached"):
        group_sums(some)


def test_a_barrier_that_a_whole_group_leaves_out_is_right() -> None:
    text = """
%out: float32 = param[0, 8]
%g: int32 = special["group0", 2]
%t: int32 = special["thread0", 4]
params %out
body
  %s: float32 = local["s", 4, group]
  %b: int32 = mul(%g, 4)
  %i: int32 = add(%b, %t)
  %v: float32 = cast(%t)
  %only: bool = cmpeq(%g, 1)
  %if: void = if(%only)
    store(%s, %t, %v)
    barrier
    %m: int32 = mul(%t, -1)
    %o: int32 = add(%m, 3)
    %w: float32 = load(%s, %o)
    store(%out, %i, %w)
  endif(%if)
launch[(2,), (4,)]
written[0,]
"""
    out = np.full(8, -1, F32)
    run(text, out)
    assert out.tolist() == [-1, -1, -1, -1, 3, 2, 1, 0]


def test_group_memory_that_nobody_wrote_is_not_read() -> None:
    text = GROUP_SUMS.replace("store(%s, %t, %v)", "store(%s, %t, %v, %in)")
    with pytest.raises(DeviceError, match=r"reads element 2 of the local 's', which nobody has"):
        group_sums(text)


def test_an_access_out_of_range_names_its_thread() -> None:
    text = GROUP_SUMS.replace("load(%x, %i, %in, 0.0)", "load(%x, %i)")
    with pytest.raises(DeviceError) as raised:
        group_sums(text)
    assert "in thread 2 of group 1 touches element 10 of a buffer of 10" in str(raised.value)


EACH = """
%out: float32 = param[0, 64]
%g: int32 = special["group0", 4]
%t: int32 = special["thread0", 16]
params %out
body
  %b: int32 = mul(%g, 16)
  %i: int32 = add(%b, %t)
  %v: float32 = cast(%i)
  INSERT
launch[(4,), (16,)]
written[0,]
"""


def each(body: str) -> np.ndarray:
    out = np.zeros(64, F32)
    run(EACH.replace("INSERT", body), out)
    return out


RACES = [
    ("two threads of a group write", "store(%out, %g, %v)", "writes element 0 of slot 0", "thread"),
    ("two groups write", "store(%out, %t, %v)", "writes element 0 of slot 0", "several groups"),
    (
        "a group reads what another wrote",
        "store(%out, %i, %v)\n  %w: float32 = load(%out, 40:int32)\n  store(%out, %i, %w)",
        "reads element 40 of slot 0, which thread 8 of group 2 wrote in the same launch",
        "use an atomic, or a second kernel",
    ),
    (
        "a thread overwrites what another reads",
        "%x: int32 = xor(%i, 1)\n  %w: float32 = load(%out, %x)\n  store(%out, %i, %w)",
        "in thread 0 of group 0 writes element 0 of slot 0, which thread 1 of group 0 read",
        "without a barrier between",
    ),
    (
        "an atomic meets a plain store",
        "atomic[add](%out, %g, 1.0)\n  store(%out, %g, 0.0)",
        "writes element 0 of slot 0",
        "several threads of group 0 wrote",
    ),
]


@pytest.mark.parametrize(
    ("body", "says", "more"), [r[1:] for r in RACES], ids=[r[0] for r in RACES]
)
def test_races_in_buffers_are_named(body: str, says: str, more: str) -> None:
    with pytest.raises(DeviceError) as raised:
        each(body)
    assert says in str(raised.value)
    assert more in str(raised.value)


def test_a_barrier_orders_a_group_and_not_two_groups() -> None:
    swap = (
        "%x: int32 = xor(%i, CHANGED)\n  store(%out, %i, %v)\n  barrier\n"
        "  %w: float32 = load(%out, %x)\n  barrier\n  store(%out, %i, %w)"
    )
    assert each(swap.replace("CHANGED", "1"))[:4].tolist() == [1, 0, 3, 2]
    with pytest.raises(DeviceError, match="of group 1 wrote in the same launch"):
        each(swap.replace("CHANGED", "16"))


def test_a_race_is_seen_between_groups_that_are_not_carried_out_together() -> None:
    text = """
%out: float32 = param[0, 100000]
%g: int32 = special["group0", 100000]
params %out
body
  %i: int32 = MOD(%g, 99999)
  store(%out, %i, 1.0)
launch[(100000,), (1,)]
written[0,]
"""
    out = np.zeros(100000, F32)
    with pytest.raises(DeviceError, match=r"thread 0 of group 99999 writes element 0"):
        run(text.replace("MOD", "mod"), out)
    run(text.replace("MOD", "and").replace("99999)", "131071)"), out)
    assert out.sum() == 100000


def test_atomics_of_all_threads_count_and_floats_are_added_in_the_order_of_threads() -> None:
    assert each("atomic[add](%out, 3:int32, 1.0)")[3] == 64
    assert each("atomic[max](%out, %g, %v)")[:4].tolist() == [15, 31, 47, 63]
    gated = each("%o: bool = cmplt(%t, 3)\n  atomic[add](%out, %g, 1.0, %o)")
    assert gated[:4].tolist() == [3, 3, 3, 3]
    # 2**24 + 1 - 2**24 + ... depends on the order: it is that of the threads
    ordered = each(
        "%z: bool = cmpeq(%i, 0)\n  %c: float32 = where(%z, 16777216.0, 1.0)\n"
        "  atomic[add](%out, 0:int32, %c)"
    )
    assert ordered[0] == 16777216.0


INTEGERS = """
%out: int32 = param[0, 2]
%t: int32 = special["thread0", 8]
params %out
body
  %b: int32 = shl(1, %t)
  atomic[OP](%out, 0:int32, %b)
launch[(1,), (8,)]
written[0,]
"""


@pytest.mark.parametrize(
    ("op", "start", "end"),
    [("add", 1, 256), ("max", 5, 128), ("min", 5, 1), ("and", 255, 0), ("or", 0, 255)]
    + [("xor", 1, 254)],
)
def test_every_atomic_combines(op: str, start: int, end: int) -> None:
    out = np.array([start, 7], np.int32)
    run(INTEGERS.replace("OP", op), out)
    assert out.tolist() == [end, 7]


def test_dimensions_count_from_the_innermost() -> None:
    text = """
%out: int32 = param[0, 48]
%g0: int32 = special["group0", 2]
%g1: int32 = special["group1", 3]
%t0: int32 = special["thread0", 4]
%t1: int32 = special["thread1", 2]
params %out
body
  %a: int32 = mul(%g1, 2)
  %b: int32 = add(%a, %g0)
  %c: int32 = mul(%b, 2)
  %d: int32 = add(%c, %t1)
  %e: int32 = mul(%d, 4)
  %i: int32 = add(%e, %t0)
  %v: int32 = mul(%g1, 1000)
  %w: int32 = mul(%g0, 100)
  %x: int32 = mul(%t1, 10)
  %y: int32 = add(%v, %w)
  %z: int32 = add(%x, %t0)
  %s: int32 = add(%y, %z)
  store(%out, %i, %s)
launch[(2, 3), (4, 2)]
written[0,]
"""
    out = np.zeros(48, np.int32)
    run(text, out)
    want = [
        g1 * 1000 + g0 * 100 + t1 * 10 + t0
        for g1 in range(3)
        for g0 in range(2)
        for t1 in range(2)
        for t0 in range(4)
    ]
    assert out.tolist() == want
    with pytest.raises(DeviceError, match=r"in thread \(0, 0\) of group \(0, 1\) touches"):
        run(text.replace("store(%out, %i", "store(%out, %v"), out)


def test_a_variable_decides_the_number_of_groups() -> None:
    text = """
%out: int32 = param[0, 20]
%n: int32 = var["n", 0, 10]
%m: int32 = mul(%n, 2)
%g: int32 = special["group0", 20]
params %out
variables %n
body
  store(%out, %g, 1)
launch[(%m,), (1,)]
written[0,]
"""
    for n in (0, 3, 10):
        out = np.zeros(20, np.int32)
        run(text, out, n=n)
        assert out.sum() == 2 * n


def test_a_program_that_exceeds_the_limits_of_a_target_is_not_loaded() -> None:
    device = DEVICES["INTERP"]
    wide = EACH.replace("INSERT", "store(%out, %i, %v)").replace("16", "512").replace("64", "2048")
    program = parse_linear('linear["k"]\n' + wide)
    assert compile_linear(device, program).program.launch == ((4,), (512,))
    with using(INTERP_CC="LANES32"):
        with pytest.raises(SpecError, match="512 threads of a group, where 256 is the most"):
            compile_linear(device, program)
        with pytest.raises(DeviceError, match=r"kernel 'k' needs 512 threads .* on LANES32"):
            device.load(_rendered(program))
    with using(INTERP_CC="LANES64"):
        compile_linear(device, program)


def _rendered(program: LinearProgram) -> Program:
    return Program.of(program, linear_to_text(program))


def test_group_memory_is_limited() -> None:
    device = DEVICES["INTERP"]
    program = parse_linear('linear["k"]\n' + GROUP_SUMS.replace('"s", 8', '"s", 4097'))
    with using(INTERP_CC="LANES32"), pytest.raises(SpecError, match="16388 bytes of group memory"):
        compile_linear(device, program)


def test_atomics_are_for_targets_that_have_them() -> None:
    device = DEVICES["INTERP"]
    program = parse_linear('linear["k"]\n' + EACH.replace("INSERT", "atomic[add](%out, %g, 1.0)"))
    with using(INTERP_CC="LANES32"), pytest.raises(SpecError, match="no atomic ADD of float32"):
        compile_linear(device, program)
    with using(INTERP_CC="LANES64"):
        compile_linear(device, program)
