"""`opgraft calibrate`: what is measured, where it is kept, who reads it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opgraft import calibration, settings
from opgraft.cli import calibrate, calibrate_arrays
from opgraft.cli.info import facts
from opgraft.cli.main import main
from opgraft.devices.cpu.host import detect
from opgraft.errors import OpgraftError
from opgraft.plugins.discovery import EntryPoint
from opgraft.plugins.registry import Registry

NAMES = {
    *("IDIV", "MOD", "MUL", "WHERE", "power_of_two", "correction", "beside"),
    *("FDIV:float", "SQRT:float", "EXP:float", "EXP2:float", "LOG2:float", "SIN:float"),
    *calibrate_arrays.NAMES,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "inner" / "calibration.json"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ELEMENTS", 256)
    monkeypatch.setattr(calibrate, "RUNS", 1)
    # whatever else is installed where the tests run
    monkeypatch.setattr(calibrate, "REGISTRY", Registry(read=lambda: ()))


def test_prices_are_measured_kept_shown_and_forgotten(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings.using(CALIBRATION=str(file)):
        assert main(["calibrate", "interp", "--show"]) == 0
        assert "operations: not measured on INTERP" in capsys.readouterr().out
        assert main(["calibrate", "interp"]) == 0
        held = json.loads(file.read_text())["devices"]["INTERP"]
        assert set(held) == NAMES
        assert all(price >= 0 for price in held.values())
        assert min(price for name, price in held.items() if name != "correction") > 0
        assert str(file) in capsys.readouterr().out
        assert dict(calibration.measured_prices("INTERP")) == held
        assert main(["calibrate", "interp", "--show"]) == 0
        assert f"{held['IDIV']:.3g}" in capsys.readouterr().out
        assert main(["calibrate", "interp", "--forget"]) == 0
        assert calibration.measured_prices("INTERP") == ()


# ---- steps of packages

STEP = """
from opgraft.api import Calibration

API = (1, 0)
HOOKS = ("opgraft_calibrations",)

def measure(device):
    {measure}

def opgraft_calibrations():
    return [Calibration({name!r}, "waves, in metres", {prices!r}, measure)]
"""
Waves = Callable[..., None]


@pytest.fixture
def waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waves]:
    """`waves(**changes)`: a package that brings a step is there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    usual = {"name": "waves", "prices": ("height",), "measure": "return {'height': 1.5}"}
    point = EntryPoint("waves", "opgraft_waves", "opgraft-waves", "1")

    def lay(**changes: object) -> None:
        (tmp_path / "opgraft_waves.py").write_text(STEP.format(**{**usual, **changes}))
        monkeypatch.setattr(calibrate, "REGISTRY", Registry(read=lambda: [point]))

    yield lay
    sys.modules.pop("opgraft_waves", None)


def test_a_step_of_a_package_is_measured_kept_shown_and_forgotten_with_the_rest(
    file: Path, waves: Waves, capsys: pytest.CaptureFixture[str]
) -> None:
    waves()
    with settings.using(CALIBRATION=str(file)):
        assert main(["calibrate", "interp"]) == 0
        assert set(dict(calibration.measured_prices("INTERP"))) == {*NAMES, "height"}
        assert "waves: waves, in metres" in capsys.readouterr().out
        assert main(["calibrate", "interp", "--show"]) == 0
        assert ["height", "1.5"] in [line.split() for line in capsys.readouterr().out.splitlines()]
        assert main(["calibrate", "interp", "--forget"]) == 0
        assert calibration.measured_prices("INTERP") == ()


def test_one_step_alone_is_measured_or_forgotten_and_others_stay(
    file: Path, waves: Waves, capsys: pytest.CaptureFixture[str]
) -> None:
    waves()
    with settings.using(CALIBRATION=str(file)):
        calibration.record("INTERP", {"IDIV": 3.0, "height": 9.0, "old": 7.0})
        assert main(["calibrate", "interp", "--only", "waves"]) == 0
        assert dict(calibration.measured_prices("INTERP")) == {"IDIV": 3, "height": 1.5, "old": 7}
        assert "IDIV" not in capsys.readouterr().out
        assert main(["calibrate", "interp", "--forget", "--only", "waves"]) == 0
        assert dict(calibration.measured_prices("INTERP")) == {"IDIV": 3, "old": 7}
        assert main(["calibrate", "interp", "--show"]) == 0
        assert "measured by a package that is not here" in capsys.readouterr().out
        assert main(["calibrate", "interp", "--only", "wavs"]) == 2
        assert "known: operations, arrays, waves" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "arrays"}, "opgraft-core and opgraft-waves both have arrays to be measured"),
        ({"prices": ("IDIV",)}, "opgraft-core and opgraft-waves both have IDIV to be measured"),
        ({"measure": "return {'depth': 2.0}"}, "calibration waves measured depth, not its own"),
        ({"measure": "return device.no_such_thing"}, "calibration waves failed: "),
    ],
)
def test_a_step_that_goes_wrong_is_told_with_its_name_and_what_others_measured_stays(
    changes: dict[str, object],
    told: str,
    file: Path,
    waves: Waves,
    capsys: pytest.CaptureFixture[str],
) -> None:
    waves(**changes)
    with settings.using(CALIBRATION=str(file)):
        calibration.record("INTERP", {"MOD": 5.0})
        assert main(["calibrate", "interp", "--only", "waves"]) == 1
        assert told in capsys.readouterr().err
        assert calibration.measured_prices("INTERP") == (("MOD", 5.0),)


# ---- where prices are kept, and who reads them


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
