"""The catalogue of devices: names, errors for typos, one open device per name, the default."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from opgraft import Device, errors, using
from opgraft.catalog import Catalog
from opgraft.devices.null import TARGET, NullDevice
from opgraft.plugins.discovery import EntryPoint
from opgraft.plugins.registry import Registry
from opgraft.runtime import DeviceSpec, Probe

Make = Callable[..., Catalog]


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is installed where the tests run."""
    monkeypatch.setenv("OPGRAFT_PLUGINS", "invented")
    monkeypatch.delenv("OPGRAFT_DEVICE", raising=False)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """`devices(spec, ...)`: a catalogue with these beside the built-in ones."""
    made: list[Catalog] = []

    def make(*specs: DeviceSpec) -> Catalog:
        module = ModuleType("opgraft_invented")
        module.API = (1, 0)  # type: ignore[attr-defined]

        def opgraft_devices() -> list[DeviceSpec]:
            return list(specs)

        module.opgraft_devices = opgraft_devices  # type: ignore[attr-defined]
        monkeypatch.setitem(__import__("sys").modules, "opgraft_invented", module)
        entry = EntryPoint("invented", "opgraft_invented", "opgraft-invented", "1.0")
        made.append(Catalog(Registry(read=lambda: [entry])))
        return made[-1]

    yield make
    for catalog in made:
        catalog.close()


class Invented(NullDevice):
    """A NULL device by another name, that counts."""

    opened = 0

    def __init__(self, index: int) -> None:
        super().__init__(index, TARGET)
        type(self).opened += 1
        self.closed = False

    def close(self) -> None:
        super().close()
        self.closed = True


def spec(name: str, priority: int = -1, **more: object) -> DeviceSpec:
    return DeviceSpec(name, **{"open": Invented, "probe": lambda: Probe(1), **more},  # type: ignore[arg-type]
                      priority=priority)  # fmt: skip


# ---- names


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("CPU", "CPU"),
        ("cpu", "CPU"),
        ("Cpu:0", "CPU"),
        ("null:1", "NULL:1"),
        ("NULL:10", "NULL:10"),
    ],
)
def test_case_does_not_matter_and_the_first_index_may_be_left_out(written: str, name: str) -> None:
    assert Device.canonical(written) == name
    assert written in Device


@pytest.mark.parametrize(
    "written",
    [
        "",
        " CPU",
        "CPU ",
        "CPU:",
        "CPU:-1",
        "CPU:x",
        "CPU:00",
        "CPU:1:2",
        "CPU:\u0661",
        ":0",
        "C PU",
    ],
)
def test_anything_else_is_an_error_that_lists_the_known_names(written: str) -> None:
    with pytest.raises(errors.DeviceError) as caught:
        Device[written]
    text = str(caught.value)
    assert f"{written!r} is not the name of a device" in text
    assert "CPU, INTERP, NULL" in text
    assert written not in Device


@pytest.mark.parametrize(
    ("written", "meant"), [("CPV", "CPU"), ("interpreter", "INTERP"), ("NUL:1", "NULL")]
)
def test_a_typo_is_an_error_with_the_nearest_name(written: str, meant: str) -> None:
    for ask in (Device.canonical, Device.__getitem__):
        with pytest.raises(errors.DeviceError) as caught:
            ask(written)
        text = str(caught.value)
        assert f"there is no device {written!r}" in text
        assert "known: CPU, INTERP, NULL" in text
        assert f"Did you mean {meant}?" in text


def test_a_kind_that_nobody_offers_says_what_a_plugin_of_it_may_be_called() -> None:
    with pytest.raises(errors.DeviceError, match="opgraft-quantum"):
        Device["quantum:3"]


@pytest.mark.parametrize("wrong", [None, 0, 1.5, b"CPU"])
def test_what_is_no_string_is_an_error_too(wrong: object) -> None:
    with pytest.raises(errors.DeviceError, match="is not the name of a device"):
        Device[wrong]  # type: ignore[index]


# ---- opening


def test_a_device_is_opened_once_by_whatever_spelling_and_thread(devices: Make) -> None:
    catalog = devices(spec("INVENTED"))
    before = Invented.opened
    found: list[object] = []
    names = ["invented", "INVENTED", "Invented:0", "INVENTED:0"] * 4
    threads = [threading.Thread(target=lambda n=name: found.append(catalog[n])) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(d) for d in found}) == 1
    assert Invented.opened == before + 1
    assert catalog["INVENTED:1"] is not found[0]


def test_an_opened_device_stands_for_itself() -> None:
    device = Device["NULL"]
    assert Device[device] is device


def test_a_named_device_never_falls_back(devices: Make) -> None:
    def absent(index: int) -> NullDevice:
        raise errors.DeviceError("libinvented.so is not there", remedy="Install it.")

    catalog = devices(spec("INVENTED", 100, open=absent))
    with pytest.raises(errors.DeviceError, match=r"libinvented.so is not there\nInstall it."):
        catalog["INVENTED"]
    with using(DEVICE="INVENTED"), pytest.raises(errors.DeviceError, match="libinvented"):
        _ = catalog.default
    with using(DEVICE="INVNETED"), pytest.raises(errors.DeviceError, match="Did you mean INVENTED"):
        _ = catalog.default


def test_a_failed_opening_is_tried_again_when_it_is_asked_for_again(devices: Make) -> None:
    working = []

    def sometimes(index: int) -> NullDevice:
        if not working:
            raise errors.DeviceError("not yet")
        return Invented(index)

    catalog = devices(spec("INVENTED", open=sometimes))
    with pytest.raises(errors.DeviceError, match="not yet"):
        catalog["INVENTED"]
    working.append(True)
    assert catalog["INVENTED"].name == "NULL"


def test_a_factory_that_raises_anything_else_is_told_as_a_fault_of_its_plugin(
    devices: Make,
) -> None:
    def wrong(index: int) -> NullDevice:
        raise KeyError("CUresult")

    with pytest.raises(errors.DeviceError, match="does not open: KeyError") as caught:
        devices(spec("INVENTED", open=wrong))["INVENTED"]
    assert "opgraft-invented" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(errors.PluginError, match="gave a int, not a Device"):
        devices(spec("INVENTED", open=lambda index: 7))["INVENTED"]


def test_a_compiler_that_is_named_and_absent_is_an_error_at_opening(devices: Make) -> None:
    catalog = devices(spec("INVENTED"))
    with using(INVENTED_CC="NOSUCH"), pytest.raises(errors.DeviceError, match="NOSUCH"):
        catalog["INVENTED"]
    assert catalog.opened() == []
    assert catalog["INVENTED"]


def test_closing_closes_all_the_last_opened_first(devices: Make) -> None:
    catalog = devices(spec("INVENTED"))
    first, second = catalog["INVENTED"], catalog["INVENTED:1"]
    assert len(catalog.opened()) == 2
    catalog.close()
    assert first.closed  # type: ignore[attr-defined]
    assert second.closed  # type: ignore[attr-defined]
    assert catalog.opened() == []
    assert catalog["INVENTED"] is not first


# ---- the default


def test_the_default_is_the_one_of_highest_priority_that_opens(devices: Make) -> None:
    catalog = devices(spec("BEST", 1000), spec("BETTER", 500), spec("HIDDEN", 2000,
                      probe=lambda: Probe(0, "no such bus")))  # fmt: skip
    before = Invented.opened
    assert catalog.default is catalog["BEST"]
    assert catalog.default is catalog.default
    assert Invented.opened == before + 1
    with using(DEVICE="better:0"):
        assert catalog.default is catalog["BETTER"]
    with using(PLUGINS=""):
        assert catalog.default.name in ("CPU", "INTERP")
    assert catalog.default is catalog["BEST"]


def test_one_that_is_there_and_does_not_open_is_passed_over_aloud(devices: Make) -> None:
    def absent(index: int) -> NullDevice:
        raise errors.DeviceError("driver 3 is too old")

    catalog = devices(spec("BEST", 1000, open=absent), spec("BETTER", 500))
    with pytest.warns(RuntimeWarning, match=r"(?s)BEST: driver 3 is too old.*OPGRAFT_DEVICE"):
        assert catalog.default is catalog["BETTER"]


def test_a_compiler_that_is_named_and_absent_makes_the_default_an_error_not_another_device(
    devices: Make,
) -> None:
    """F04: a bad CC is an error, not a silent fallback."""
    catalog = devices(spec("BEST", 1000), spec("BETTER", 500))
    with using(BEST_CC="/nonexistent/cc"), pytest.raises(errors.DeviceError, match="nonexistent"):
        _ = catalog.default
    assert catalog.default is catalog["BEST"]


def test_devices_of_negative_priority_are_taken_by_name_alone(devices: Make) -> None:
    assert "NULL" in [row.name for row in Device.listing()]
    catalog = devices(spec("INVENTED", -1))
    assert catalog.default.name in ("CPU", "INTERP")


def test_with_no_device_at_all_the_error_says_why_each_is_not(devices: Make) -> None:
    catalog = devices(spec("INVENTED", 5, probe=lambda: Probe(0, "no bus")))
    with (
        using(PLUGINS="invented,-cpu,-interp,-null"),
        pytest.raises(errors.DeviceError, match="INVENTED: no bus"),
    ):
        _ = catalog.default


# ---- the listing


def test_the_listing_probes_and_opens_nothing(devices: Make) -> None:
    def bad_probe() -> Probe:
        raise OSError("bus error")

    catalog = devices(
        spec("ABSENT", 50, probe=lambda: Probe(0, "no libabsent.so"), install="pip install it"),
        spec("BROKEN", 60, probe=bad_probe),
        spec("INVENTED", 70, description="made up"),
    )
    before = Invented.opened
    rows = {row.name: row for row in catalog.listing()}
    assert list(rows) == ["INVENTED", "BROKEN", "ABSENT", "CPU", "INTERP", "NULL"]
    assert (rows["ABSENT"].count, rows["ABSENT"].reason) == (0, "no libabsent.so")
    assert rows["ABSENT"].install == "pip install it"
    assert rows["BROKEN"].count == 0
    assert "OSError: bus error" in rows["BROKEN"].reason
    assert rows["INVENTED"].description == "made up"
    assert rows["INVENTED"].distribution == "opgraft-invented"
    assert catalog.opened() == []
    assert Invented.opened == before


def test_badly_named_devices_make_their_plugin_broken(devices: Make) -> None:
    catalog = devices(spec("lower"))
    with pytest.raises(errors.PluginError, match="names are upper case"):
        catalog["INVENTED"]
