"""Prices of memory by level of cache, and what plans make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opgraft import Device, calibration, errors, using
from opgraft.cli.main import main
from opgraft.devices.cpu.host import detect
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.plugins.discovery import EntryPoint
from opgraft.plugins.plugin import State
from opgraft.plugins.registry import Registry
from opgraft.target import Target
from opgraft_tensor import Tensor, calibrate
from opgraft_tensor.facts import CACHE, CORE, DRAM, LAUNCH, SHARED, Prices
from opgraft_tensor.normalise import canonical
from opgraft_tensor.plan import kernel_count
from opgraft_tensor.realize import settle

ROWS = ((8, 3000), (64, 3000), (8, 1000))


def kernels_of(tensor: Tensor, prices: Prices) -> int:
    return kernel_count(canonical(settle([tensor.uop]), lambda _: False).outputs, prices)[0]


def test_bytes_cost_less_where_the_array_stays_in_a_cache() -> None:
    target = replace(Target("any"), cache_bytes=(32 << 10, 512 << 10, 8 << 20))
    prices = Prices.of(target)
    costs = [prices.byte(nbytes) for nbytes in (4 << 10, 64 << 10, 256 << 10, 1 << 20, 64 << 20)]
    assert costs == [4.0, 1.5, 1.5, 4.0, 4.0]
    assert Prices.of(replace(target, cache_bytes=())).byte(64 << 10) == 4.0


def test_measured_prices_take_the_place_of_the_usual_ones() -> None:
    measured = ((CORE, 0.75), (DRAM, 7.0), (LAUNCH, 123.0), ("SIN:float", 9.0))
    prices = Prices.of(replace(Target("any"), op_prices=measured))
    assert (prices.core, prices.dram, prices.launch) == (0.75, 7.0, 123.0)
    assert prices.cache == Target("any").cache_price


def test_the_cache_that_cores_share_has_a_price_of_its_own() -> None:
    target = replace(Target("any"), cache_bytes=(32 << 10, 512 << 10, 8 << 20))
    prices = Prices.of(replace(target, op_prices=((SHARED, 2.0), (DRAM, 7.0))))
    costs = [prices.byte(nbytes) for nbytes in (256 << 10, 1 << 20, 4 << 20, 5 << 20)]
    assert costs == [1.5, 2.0, 2.0, 7.0]
    dear = Prices.of(replace(target, op_prices=((SHARED, 9.0), (DRAM, 7.0))))
    assert dear.byte(1 << 20) == 7.0
    two = replace(target, cache_bytes=(32 << 10, 512 << 10), op_prices=((SHARED, 2.0),))
    assert Prices.of(two).byte(1 << 20) == Prices.of(two).dram


def test_what_stays_in_the_shared_cache_is_stored_rather_than_computed_again() -> None:
    """Sines that three results each read: 2 MB of them are not in a cache of 1 MB."""
    for count, wanted in ((1 << 18, 2), (1 << 19, 1)):
        x = Tensor(np.ones((1, count), np.float32)).sin()
        shifted = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
        assert kernels_of(shifted, Prices(shared=0.5, shared_bytes=1 << 20)) == wanted
        assert kernels_of(shifted, Prices()) == 1


def shares(x: Tensor) -> Tensor:
    """Dear values, each used twice: kept for a row, where there are rows enough for all cores."""
    dear = (x * x).sin().exp().sin()
    return dear / dear.sum(1, keepdims=True)


def test_rows_too_few_for_all_cores_are_not_kept_in_one_loop() -> None:
    few, many, short = (Tensor(np.ones(size, np.float32)) for size in ROWS)
    assert kernels_of(shares(few), Prices(parallel=16)) == 1
    assert kernels_of(shares(few), Prices(parallel=256)) == 2
    assert kernels_of(shares(many), Prices(parallel=256)) == 1
    assert kernels_of(shares(short), Prices(parallel=256)) == 1


def test_calibration_measures_every_level_and_is_kept_beside_the_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command for all: this package's step is one of `opgraft calibrate`."""
    device = Device["CPU"]
    monkeypatch.setattr(
        device, "target", replace(device.target, cache_bytes=(32 << 10, 512 << 10, 8 << 20))
    )

    def seconds(_: object, sink: UOp, arrays: int, times: int) -> float:
        """A machine of 1 operation and 2 to 16 bytes in a nanosecond, and launches of 50."""
        count = next(n.arg[1] for n in sink.toposort() if n.op is Ops.PARAM)
        if sink.arg.name == "calibrate_work":
            return (50 + count * calibrate.OPERATIONS) * 1e-9
        speed = 16 if count * 8 <= 32 << 10 else 8 if count * 8 <= 512 << 10 else 2
        return (50 + (8 * count / speed if count > 1 else 0)) * 1e-9

    monkeypatch.setattr(calibrate, "_seconds", seconds)
    with using(CALIBRATION=str(tmp_path / "prices.json")):
        calibration.record("CPU", {"SIN:float": 9.0, DRAM: 1.0})
        assert main(["calibrate", "--only", "planner"]) == 0
        kept = dict(calibration.measured_prices("CPU"))
        assert "planner: bytes by level of cache and launches" in capsys.readouterr().out
        assert Prices.of(detect()).launch == 50.0
    wanted = {CACHE: 1 / 16, CORE: 1 / 8, SHARED: 1 / 2, DRAM: 1 / 2, LAUNCH: 50.0}
    assert kept == pytest.approx({**wanted, "SIN:float": 9.0}, abs=1e-3)


def test_this_package_is_a_plugin_that_no_device_and_no_optimizer_imports() -> None:
    entry = EntryPoint("tensor", "opgraft_tensor.plugin", "opgraft-tensor", "1")
    registry = Registry(read=lambda: [entry])
    assert "CPU" in registry.device_names()
    assert registry.optimizer("auto").name == "greedy"
    assert registry.status()[-1].state is State.FOUND
    assert registry.status(load=True)[-1].offers == ("calibration planner",)
    (step,) = (claim.item for claim in registry.calibrations())
    assert set(step.prices) == {CACHE, CORE, SHARED, DRAM, LAUNCH}


def test_what_calibration_runs_is_right_and_timed() -> None:
    device = Device["INTERP"]
    for sink in (calibrate._copy(64), calibrate._work(64)):
        assert calibrate._seconds(device, sink, 2, 2) > 0


def test_a_device_that_runs_nothing_is_not_calibrated() -> None:
    with pytest.raises(errors.DeviceError, match="runs no kernels"):
        calibrate.calibrate(Device["NULL"])
