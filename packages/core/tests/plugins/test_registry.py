"""The registry: states, faults that stay with their plugin, clashes, allow and block."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from opgraft import UOp, dtypes, using
from opgraft.catalog import Catalog
from opgraft.errors import DeviceError, PluginError, SettingError
from opgraft.plugins.discovery import EntryPoint
from opgraft.plugins.plugin import State
from opgraft.plugins.registry import Registry
from opgraft.plugins.roster import PluginStatus

Make = Callable[..., Registry]
BUILT_IN = ["cpu", "interp", "null"]


def by_name(registry: Registry, load: bool = True) -> dict[str, PluginStatus]:
    return {row.name: row for row in registry.status(load)}


# ---- a good plugin


def test_before_anything_asks_plugins_are_found_and_not_loaded(registry: Make) -> None:
    rows = by_name(registry("good"), load=False)
    assert list(rows) == [*BUILT_IN, "sample"]
    row = rows["sample"]
    assert (row.state, row.distribution, row.version) == (State.FOUND, "opgraft-sample", "1.2.3")
    assert (row.seconds, row.api, row.reason) == (0.0, None, "")


def test_a_loaded_plugin_shows_all_that_it_offers(registry: Make) -> None:
    row = by_name(registry("good"))["sample"]
    assert (row.state, row.api, row.reason) == (State.LOADED, (1, 0), "")
    assert row.seconds > 0
    assert row.offers == (
        "device SAMPLE",
        "optimizer patient",
        "command sample",
        "calibration waves",
        "pair CPU/SAMPLE",
        "pair SAMPLE/SAMPLEC",
        "equalities index (1)",
    )


def test_built_in_devices_are_plugins_of_core(registry: Make) -> None:
    rows = by_name(registry())
    assert list(rows) == BUILT_IN
    assert all(r.state is State.LOADED and r.distribution == "opgraft-core" for r in rows.values())
    assert [r.offers[0] for r in rows.values()] == ["device CPU", "device INTERP", "device NULL"]


def test_an_optimizer_is_found_by_name_and_made_once(registry: Make) -> None:
    made = registry("good")
    patient = made.optimizer("patient")
    assert patient.name == "patient"
    assert made.optimizer("PATIENT") is patient
    assert made.optimizer("greedy").name == "greedy"
    # auto takes what ranks above greedy, which is 0
    assert made.optimizer("auto").name == "greedy"


def test_an_unknown_optimizer_is_an_error_with_the_known_and_the_nearest(registry: Make) -> None:
    with pytest.raises(SettingError, match=r"no optimizer 'pasient'; known: auto, greedy, patient"):
        registry("good").optimizer("pasient")
    with pytest.raises(SettingError, match=r"Did you mean patient\?"):
        registry("good").optimizer("pasient")


def test_equalities_of_plugins_come_by_stage_and_as_one_object(registry: Make) -> None:
    made = registry("good")
    found = made.equalities("index")
    assert found is not None
    assert len(found) == 1
    assert made.equalities("index") is found
    assert made.equalities("scalar") is None
    assert registry().equalities("index") is None


# ---- broken ones of every kind (F01, F03)

BROKEN = {
    "raises": ("broken", "import of opgraft_broken.raises: ZeroDivisionError: division by zero"),
    "leaves": ("broken", "SystemExit: a plugin must not do that"),
    "missing": ("broken", "ModuleNotFoundError: No module named 'no_such_module'"),
    "ancient": ("refused", "is written for API 0.9, and this core (opgraft-core) has API 1.0"),
    "attribute": ("refused", "API 0.9"),
    "future": ("refused", "is written for API 2.0, and this core (opgraft-core) has API 1.0"),
    "newer": ("refused", "is written for API 1.99, and this core (opgraft-core) has API 1.0"),
    "silent": ("refused", "says no API version; this core has API 1.0"),
    "two": ("refused", "says API = 'two'; this core has API 1.0"),
    "hookraises": (
        "broken",
        "opgraft_devices(): LookupError: the driver's registry",
    ),
    "junk": ("broken", "opgraft_devices(): gave a str, 'JUNK' among its DeviceSpecs"),
    "lowering": ("broken", "only an EqualitySet may be given to an optimizer"),
    "unknown": ("broken", "there is no hook opgraft_device (did you mean opgraft_devices?)"),
    "arguments": ("broken", "color"),
    "unlisted": (
        "broken",
        "hooks: HOOKS = ('opgraft_comands',), and its hooks are opgraft_commands",
    ),
    "prices": ("broken", "calibration waves has prices a str, 'waves.height', not names"),
    "reserved": ("broken", "gave the command devices, which is opgraft's own"),
}


def test_each_broken_plugin_is_recorded_with_its_cause_and_the_rest_work(registry: Make) -> None:
    made = registry("good", "broken")
    rows = by_name(made)
    for name, (state, reason) in BROKEN.items():
        row = rows[name]
        assert (name, str(row.state)) == (name, state)
        assert reason in row.reason, (name, row.reason)
        assert "\n" not in row.reason
        assert row.distribution == "opgraft-broken"
        assert row.remedy
    assert rows["sample"].state is State.LOADED
    assert all(rows[name].state is State.LOADED for name in BUILT_IN)
    assert made.optimizer("patient").name == "patient"


@pytest.mark.parametrize("name", ["raises", "missing", "hookraises", "junk", "unknown"])
def test_asking_for_a_broken_one_raises_with_its_own_error_as_the_cause(
    name: str, catalog: Callable[..., Catalog]
) -> None:
    with pytest.raises(PluginError) as caught:
        catalog("good", "broken")[name]
    text = str(caught.value)
    assert f"plugin {name} of opgraft-broken 0.0.1 is broken" in text
    assert BROKEN[name][1] in " ".join(text.split())
    assert f"OPGRAFT_PLUGINS=-{name}" in text
    assert caught.value.__cause__ is not None
    kinds = {"raises": ZeroDivisionError, "missing": ModuleNotFoundError, "hookraises": LookupError}
    assert isinstance(caught.value.__cause__, kinds.get(name, PluginError))


@pytest.mark.parametrize("name", ["ancient", "future", "newer", "silent", "two"])
def test_asking_for_one_of_another_interface_says_both_versions_and_how_to_go_on(
    name: str, catalog: Callable[..., Catalog]
) -> None:
    with pytest.raises(PluginError) as caught:
        catalog("broken")[name]
    text = str(caught.value)
    assert "API 1.0" in text
    assert f"skip the plugin (OPGRAFT_PLUGINS=-{name})" in text
    assert "pip uninstall opgraft-broken" in text
    assert "upgrade" in text


def test_the_code_of_a_mismatched_plugin_is_not_run(registry: Make) -> None:
    import sys

    by_name(registry("broken"))
    assert "opgraft_broken.ancient" not in sys.modules
    assert "opgraft_broken.future" not in sys.modules


def test_a_plugin_with_one_bad_hook_keeps_the_others(registry: Make) -> None:
    made = registry("broken")
    by_name(made)
    commands, clashes = made.commands()
    assert [c.name for c in commands] == ["hookraises"]
    assert clashes == ()


def test_an_optimizer_that_cannot_be_made_is_passed_over_by_auto_and_raised_by_name(
    registry: Make,
) -> None:
    made = registry("broken")
    assert made.optimizer("auto").name == "greedy"
    with pytest.raises(PluginError, match="making optimizer hopeless: OSError: engine not found"):
        made.optimizer("hopeless")
    assert by_name(made)["optimizer"].state is State.BROKEN


# ---- clashes


def test_two_distributions_with_one_entry_point_name_are_both_named_when_it_is_used(
    registry: Make, catalog: Callable[..., Catalog]
) -> None:
    rows = [r for r in registry("rival", "twin").status(load=True) if r.name == "twin"]
    assert [r.state for r in rows] == [State.CLASH, State.CLASH]
    for text in (rows[0].reason, rows[1].reason):
        assert "opgraft-rival" in text
        assert "opgraft-twin" in text
    with pytest.raises(PluginError) as caught:
        catalog("rival", "twin")["TWIN"]
    text = str(caught.value)
    assert "opgraft-rival (entry point twin = opgraft_rival.twin)" in text
    assert "opgraft-twin (entry point twin = opgraft_twin)" in text
    assert "OPGRAFT_PLUGINS=-opgraft-rival or OPGRAFT_PLUGINS=-opgraft-twin" in text


def test_a_device_that_two_offer_is_an_error_when_it_is_used_and_only_then(
    catalog: Callable[..., Catalog],
) -> None:
    devices = catalog("good", "rival")
    assert devices["NULL"].name == "NULL"
    assert "LONER" in devices
    with pytest.raises(PluginError) as caught:
        devices["SAMPLE"]
    text = str(caught.value)
    assert "device SAMPLE is claimed by" in text
    assert "opgraft-sample" in text
    assert "opgraft-rival" in text
    with using(PLUGINS="-rival"):
        assert devices["SAMPLE"].name == "SAMPLE"
    with using(PLUGINS=["-opgraft_sample"]), pytest.raises(DeviceError, match="nobody can have"):
        devices["SAMPLE"]


def test_an_optimizer_that_two_offer_is_an_error_when_it_is_named(registry: Make) -> None:
    made = registry("good", "rival")
    assert made.optimizer("auto").name == "greedy"
    with pytest.raises(PluginError, match="optimizer patient is claimed by"):
        made.optimizer("patient")
    with using(PLUGINS="sample"):
        assert made.optimizer("patient").name == "patient"


def test_commands_that_two_offer_are_told_as_a_clash(registry: Make) -> None:
    commands, clashes = registry("good", "rival").commands()
    assert commands == ()
    assert [name for name, _ in clashes] == ["sample"]
    assert "opgraft-sample" in clashes[0][1].message
    assert "opgraft-rival" in clashes[0][1].message


def test_clashing_plugins_are_listed_as_such(registry: Make) -> None:
    rows = by_name(registry("good", "rival"))
    assert rows["sample"].state is State.CLASH
    assert rows["rival"].state is State.CLASH
    assert "device sample is claimed by" in rows["sample"].reason.lower()
    assert "compiler pair CPU sample".lower() in rows["rival"].reason.lower()
    assert rows["cpu"].state is State.LOADED


def test_a_pair_that_two_offer_is_refused_by_name_and_the_device_works_without_it(
    catalog: Callable[..., Catalog],
) -> None:
    device = catalog("good", "rival")["CPU"]
    assert device.pairs.select().pair.name != "SAMPLE"
    with pytest.raises(PluginError, match="compiler pair CPU sample is claimed by"):
        device.pairs.select("SAMPLE")


def test_a_plugins_pair_joins_the_cpus(catalog: Callable[..., Catalog]) -> None:
    device = catalog("good")["CPU"]
    assert device.pairs.select("SAMPLE").pair.note == "a pair for the CPU"
    assert device.pairs.pairs[-1].name == "SAMPLE"  # its priority is the least


# ---- allow and block


@pytest.mark.parametrize(
    ("setting", "state"),
    [
        (None, "loaded"),
        ("sample", "loaded"),
        ("SAMPLE , nobody", "loaded"),
        ("opgraft-sample", "loaded"),
        ("opgraft_sample", "loaded"),
        ("-nobody", "loaded"),
        ("", "blocked"),
        ("nobody", "blocked"),
        ("-sample", "blocked"),
        ("-Opgraft-Sample", "blocked"),
        ("sample,-sample", "blocked"),
    ],
)
def test_the_setting_plugins_allows_and_blocks(
    setting: str | None, state: str, registry: Make
) -> None:
    made = registry("good")
    with using(PLUGINS=setting):
        rows = by_name(made)
        assert rows["sample"].state == state
        assert all(rows[name].state is State.LOADED for name in BUILT_IN)


def test_a_blocked_device_says_that_it_is_blocked(catalog: Callable[..., Catalog]) -> None:
    devices = catalog("good")
    with using(PLUGINS=""):
        assert devices.names() == ["CPU", "INTERP", "NULL"]
        with pytest.raises(DeviceError, match="blocked by the setting PLUGINS = ''"):
            devices["SAMPLE"]
    assert devices["SAMPLE"].name == "SAMPLE"


def test_built_in_devices_can_be_blocked_by_name(catalog: Callable[..., Catalog]) -> None:
    with using(PLUGINS="-null"):
        assert catalog().names() == ["CPU", "INTERP"]


def test_names_in_the_setting_that_fit_nothing_are_told(registry: Make) -> None:
    made = registry("good")
    with using(PLUGINS="sample,-smaple"):
        assert made.unknown_tokens() == ["smaple"]


# ---- hooks that a plugin says it has


def test_a_plugin_that_says_its_hooks_is_imported_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "opgraft_quiet.py").write_text(
        "from opgraft.api import Command\n"
        "API = (1, 0)\n"
        "HOOKS: tuple[str, ...] = ('opgraft_commands',)\n"
        "def opgraft_commands():\n"
        "    return [Command('quiet', lambda arguments: 0, 'say nothing')]\n"
    )
    made = Registry(read=lambda: [EntryPoint("quiet", "opgraft_quiet", "opgraft-quiet", "1")])
    try:
        assert made.device_names() == ["CPU", "INTERP", "NULL"]
        assert made.optimizer("auto").name == "greedy"
        assert made.equalities("index") is None
        assert made.calibrations() == ()
        assert by_name(made, load=False)["quiet"].state is State.FOUND
        assert "opgraft_quiet" not in sys.modules
        assert [c.name for c in made.commands()[0]] == ["quiet"]
        assert by_name(made)["quiet"].offers == ("command quiet",)
    finally:
        sys.modules.pop("opgraft_quiet", None)


# ---- threads, determinism


def test_a_plugin_is_loaded_once_by_many_threads(registry: Make) -> None:
    made = registry("good")
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(made.device("SAMPLE", "SAMPLE").item))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(one is found[0] for one in found)


def test_plugins_stand_in_the_order_of_names_whatever_the_path(
    registry: Make, site: dict[str, Path]
) -> None:
    one = [r.value for r in registry("broken", "good").status()]
    other = [r.value for r in registry("good", "broken").status()]
    assert one == other
    assert one[3:6] == [
        "opgraft_broken.ancient",
        "opgraft_broken.arguments",
        "opgraft_broken.ancient:no.such.thing",
    ]


def test_a_sample_rule_takes_part_in_simplify(registry: Make) -> None:
    made = registry("good")
    rules = made.equalities("index")
    assert rules is not None
    x = UOp.variable("x", 0, 9, dtypes.int32)
    assert rules.rewrite((x ^ 271828) ^ 271828) is x
