"""What `opgraft calibrate` fitted is what the planner counts with, level by level."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opgraft import Device, calibration, using
from opgraft.devices.cpu.host import detect
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import calibrate
from opgraft_tensor.facts import CACHE, CORE, DRAM, LAUNCH, SHARED, Prices


def test_a_byte_costs_what_was_measured_of_the_level_it_is_in(tmp_path: Path) -> None:
    with using(CALIBRATION=str(tmp_path / "prices.json")):
        measured = {CACHE: 0.5, CORE: 1.5, SHARED: 3.0, DRAM: 7.0, LAUNCH: 100.0}
        calibration.record("CPU", measured)
        target = replace(detect(), cache_bytes=(32 << 10, 512 << 10, 8 << 20))
    prices = Prices.of(target)
    assert prices.cache == 0.5
    assert prices.byte(100 << 10) == 1.5
    assert prices.byte(1 << 20) == prices.byte(4 << 20) == 3.0
    assert prices.byte((4 << 20) + 1) == 7.0  # half of a cache is others'
    assert prices.byte(64 << 20) == 7.0
    assert prices.launch == 100.0


def test_a_level_further_away_never_costs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small array's time may vanish beside a launch's, or a busy moment fall on one level."""
    device = Device["CPU"]
    sizes = (32 << 10, 512 << 10, 8 << 20)
    monkeypatch.setattr(device, "target", replace(device.target, cache_bytes=sizes))

    def seconds(_: object, sink: UOp, arrays: int, times: int) -> float:
        count = next(n.arg[1] for n in sink.toposort() if n.op is Ops.PARAM)
        if sink.arg.name == "calibrate_work":
            return count * calibrate.OPERATIONS * 1e-9
        nbytes = 4 * count
        slow = 5.0 if nbytes == sizes[1] // 4 else 0.25  # a busy moment
        return 0.0 if count == 1 else 2 * nbytes * slow * 1e-9

    monkeypatch.setattr(calibrate, "_seconds", seconds)
    found = calibrate.calibrate(device)
    levels = [found[name] for name in (CACHE, CORE, SHARED, DRAM)]
    assert levels == sorted(levels)
    assert levels[1:] == [levels[1]] * 3
