"""`opgraft calibrate`: what is measured, where it is kept, who reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opgraft import calibration, settings
from opgraft.cli import calibrate, calibrate_arrays
from opgraft.cli.info import facts
from opgraft.cli.main import main
from opgraft.devices.cpu.host import detect
from opgraft.errors import OpgraftError

NAMES = {
    *("IDIV", "MOD", "MUL", "WHERE", "power_of_two", "correction", "beside"),
    *("FDIV:float", "SQRT:float", "EXP2:float", "LOG2:float", "SIN:float"),
    *calibrate_arrays.NAMES,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "inner" / "calibration.json"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ELEMENTS", 256)
    monkeypatch.setattr(calibrate, "RUNS", 1)


def test_prices_are_measured_kept_shown_and_forgotten(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings.using(CALIBRATION=str(file)):
        assert main(["calibrate", "interp", "--show"]) == 0
        assert "was not measured" in capsys.readouterr().out
        assert main(["calibrate", "interp"]) == 0
        held = json.loads(file.read_text())["devices"]["INTERP"]
        assert set(held) == NAMES
        assert all(price >= 0 for price in held.values())
        assert min(price for name, price in held.items() if name != "correction") > 0
        assert str(file) in capsys.readouterr().out
        assert dict(calibration.measured_prices("INTERP")) == held
        assert main(["calibrate", "interp", "--show"]) == 0
        assert f"{held['IDIV']:.2f}" in capsys.readouterr().out
        assert main(["calibrate", "interp", "--forget"]) == 0
        assert calibration.measured_prices("INTERP") == ()


def test_a_device_that_runs_nothing_cannot_be_measured(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings.using(CALIBRATION=str(file)):
        assert main(["calibrate", "null"]) == 1
    assert "runs no kernels" in capsys.readouterr().err
    assert not file.exists()


def test_a_target_holds_what_was_measured_on_its_kind(file: Path) -> None:
    with settings.using(CALIBRATION=str(file)):
        assert detect().op_prices == ()
        calibration.record("CPU", {"MOD": 8.0, "IDIV": 7.5})
        assert detect().op_prices == (("IDIV", 7.5), ("MOD", 8.0))
        assert facts()["calibration"] == {"CPU": "IDIV 7.5, MOD 8"}
    with settings.using(CALIBRATION="off"):
        assert detect().op_prices == ()
        with pytest.raises(OpgraftError, match="CALIBRATION is off"):
            calibration.record("CPU", {})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "devices": {"CPU": {"MOD": 1}}}']
)
def test_a_file_that_says_nothing_is_as_none(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with settings.using(CALIBRATION=str(file)):
        assert calibration.everything() == {}
        calibration.record("CPU", {"MOD": 3.0})
        assert calibration.measured_prices("CPU") == (("MOD", 3.0),)


def test_unset_it_is_in_the_configuration_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with settings.using(CALIBRATION=""):
        assert calibration.file() == str(tmp_path / "opgraft" / "calibration.json")
