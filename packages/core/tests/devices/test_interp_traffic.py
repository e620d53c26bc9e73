"""INTERP counts what the threads of a launch move, as a device would move it."""

from __future__ import annotations

import numpy as np
import pytest

from opgraft import using
from opgraft.api import compile_linear
from opgraft.catalog import Device as DEVICES
from opgraft.devices.interp.executor import Executor
from opgraft.devices.interp.traffic import LaunchTraffic, counting
from opgraft.ir.text import parse_linear

LANES = 32
PROGRAM = """linear["k"]
%out: float32 = param[0, 64]
%x: float32 = param[1, 4096]
%t: int32 = special["thread0", 64]
params %out %x
body
  %i: int32 = mul(%t, STEP)
  %in: bool = cmplt(%t, COUNT)
  %v: float32 = load(%x, %i, %in, 0.0)
  store(%out, %t, %v)
launch[(1,), (64,)]
written[0,]
"""
GROUP = """linear["k"]
%out: float32 = param[0, 64]
%t: int32 = special["thread0", 64]
params %out
body
  %s: float32 = local["s", 4096, group]
  %i: int32 = mul(%t, STEP)
  store(%s, %i, 1.0)
  barrier
  %v: float32 = load(%s, %i)
  store(%out, %t, %v)
launch[(1,), (64,)]
written[0,]
"""


def counted(text: str, step: int, count: int = 64) -> LaunchTraffic:
    program = parse_linear(text.replace("STEP", str(step)).replace("COUNT", str(count)))
    traffic = LaunchTraffic(program.name, LANES, 64)
    arrays = [np.zeros(p.arg[1], np.float32) for p in program.params]
    Executor(program).run(arrays, traffic=traffic)
    return traffic


@pytest.mark.parametrize(
    ("step", "lines"),
    [(1, 4), (2, 8), (16, 64), (64, 64), (0, 2)],
    ids=["neighbours", "every second", "a line each", "far apart", "all the same"],
)
def test_lines_of_memory_are_counted(step: int, lines: int) -> None:
    """Two blocks of 32 threads; a line holds 16 elements."""
    row = counted(PROGRAM, step).rows["slot 1", "reads"]
    assert (row.elements, row.transactions) == (64, lines)
    assert row.least == (4 if step else 2)


def test_what_a_gate_holds_back_is_not_moved() -> None:
    rows = counted(PROGRAM, 1, 20).rows
    assert (rows["slot 1", "reads"].elements, rows["slot 1", "reads"].transactions) == (20, 2)
    assert rows["slot 0", "writes"].transactions == 4


@pytest.mark.parametrize(
    ("step", "turns"),
    [(1, 2), (2, 4), (3, 2), (32, 64), (33, 2)],
    ids=["neighbours", "every second", "odd", "one bank", "rows set apart"],
)
def test_turns_of_banks_are_counted(step: int, turns: int) -> None:
    """Two blocks of 32 threads, 32 banks."""
    for does in ("reads", "writes"):
        row = counted(GROUP, step).rows["s", does]
        assert row.grouped
        assert (row.transactions, row.least) == (turns, 2)


def test_launches_on_the_device_are_counted_while_somebody_counts() -> None:
    program = parse_linear(PROGRAM.replace("STEP", "1").replace("COUNT", "64"))
    with using(INTERP_CC="LANES32"):
        device = DEVICES["INTERP"]
        executable = compile_linear(device, program)
        buffers = [device.buffer(4 * p.arg[1]) for p in program.params]
        executable.run(buffers)
        with counting() as launches:
            executable.run(buffers)
            executable.run(buffers)
        executable.run(buffers)
    assert [launch.kernel for launch in launches] == ["k", "k"]
    assert str(launches[0]).splitlines() == [
        "k",
        "  slot 1            reads         64     4 transactions, at least 4",
        "  slot 0            writes        64     4 transactions, at least 4",
    ]
