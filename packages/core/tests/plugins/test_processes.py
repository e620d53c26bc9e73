"""Plugins as a new process meets them: cases F01, F03 and F08, and opening, closing, forking."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from opgraft.cli.trial import tiny_kernel
from opgraft.ir.text import to_text

Python = Callable[..., "CompletedProcess[str]"]


def good(done: CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_core_imports_no_plugin_however_broken(python: Python) -> None:
    """F01: a plugin that raises, or points to a missing module, does not reach the import."""
    out = good(
        python(
            "import sys, opgraft\n"
            "opgraft.UOp, opgraft.settings.DEBUG\n"
            "print([m for m in sys.modules if m.startswith('opgraft_')])",
            *("good", "broken", "circle", "rival", "twin"),
        )
    )
    assert out.strip() == "[]"


def test_the_good_device_and_the_cpu_work_beside_every_broken_plugin(python: Python) -> None:
    """F01 and F03: the rest work, on the CPU and on the good plugin's device."""
    out = good(
        python(
            "from opgraft.cli.trial import try_device\n"
            "from opgraft.plugins.registry import REGISTRY\n"
            "print([t.state for t in try_device('sample')])\n"
            "print(any(t.state == 'works' for t in try_device('CPU')), "
            "[t.state for t in try_device('INTERP')])\n"
            "rows = {r.name: r for r in REGISTRY.status(load=True)}\n"
            "print(rows['circular'].state, rows['circular'].distribution, "
            "rows['circular'].reason)\n",
            *("good", "broken", "circle"),
        )
    )
    lines = out.splitlines()
    assert lines[0] == "['works']"
    assert lines[1] == "True ['works', 'works', 'works']"
    assert lines[2].startswith("broken opgraft-circle import of opgraft_circle: a plugin asks for")
    assert "while it is being loaded" in lines[2]


def test_a_plugin_that_is_imported_by_hand_and_works_at_top_level_is_told_so(
    python: Python,
) -> None:
    """F01: plugin and core import each other in a circle, entered from the plugin's side."""
    out = good(
        python(
            "import opgraft_circle\n"
            "from opgraft.plugins.registry import REGISTRY\n"
            "row = [r for r in REGISTRY.status() if r.name == 'circular'][0]\n"
            "print(row.state, row.reason)",
            "circle",
        )
    )
    assert out.startswith("broken")
    assert "while it is being imported" in out


def test_the_environment_turns_discovery_off(python: Python) -> None:
    out = good(
        python(
            "from opgraft import Device; print(Device.names())",
            *("good", "broken", "circle"),
            OPGRAFT_PLUGINS="",
        )
    )
    assert out.strip() == "['CPU', 'INTERP', 'NULL']"


def test_naming_and_listing_devices_start_none(python: Python) -> None:
    """F08, first part."""
    out = good(
        python(
            "import os\nfrom opgraft import Device\n"
            "print(Device.canonical('sample:0'), Device.canonical('Sample:1'))\n"
            "print([r.name for r in Device.listing()], Device.opened())\n"
            "print(os.environ.get('SAMPLE_OPENED'))\n"
            "Device['sample'], Device['SAMPLE:0'], Device['Sample:1']\n"
            "print(os.environ.get('SAMPLE_OPENED'), Device.opened())\n",
            "good",
        )
    )
    assert out.splitlines() == [
        "SAMPLE SAMPLE:1",
        "['CPU', 'INTERP', 'NULL', 'SAMPLE'] []",
        "None",
        "2 ['SAMPLE', 'SAMPLE:1']",
    ]


def test_devices_are_closed_at_exit_the_last_first(python: Python) -> None:
    code = "from opgraft import Device\nDevice['SAMPLE'], Device['SAMPLE:1']\nprint('end')"
    out = good(python(code, "good", SAMPLE_TELL="1"))
    assert out.splitlines() == ["end", "closed SAMPLE:1", "closed SAMPLE"]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_device_opened_before_a_fork_says_so_in_the_child(python: Python) -> None:
    """F08, second and third part: an error that says fork and spawn; the CPU goes on."""
    out = good(
        python(
            "import os, sys\n"
            "from opgraft import Device\n"
            "from opgraft.cli.trial import try_device\n"
            "from opgraft.errors import DeviceError\n"
            "device = Device['SAMPLE']\n"
            "first = [t.state for t in try_device('CPU')]\n"
            "sys.stdout.flush()\n"
            "if os.fork() == 0:\n"
            "    try: Device['SAMPLE']\n"
            "    except DeviceError as error: print(error)\n"
            "    print([t.state for t in try_device('CPU')] == first)\n"
            "    sys.stdout.flush()\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "print(Device['SAMPLE'] is device)",
            "good",
        )
    )
    text = out.splitlines()
    assert "SAMPLE was opened in process" in text[0]
    assert "fork" in text[0]
    assert "spawn" in text[1]
    assert text[2:] == ["True", "True"]


def test_a_default_that_seems_to_be_there_and_does_not_open_is_not_passed_over_in_silence(
    python: Python,
) -> None:
    done = python("from opgraft import Device; print(Device.default.name)", "broken")
    assert good(done).strip() in ("CPU", "INTERP")
    assert "RuntimeWarning" in done.stderr
    assert "MIRAGE does not open: ValueError: error 999" in done.stderr
    # a probe that raises has found nothing: no word about it, but the listing says why
    assert "UNPROBED" not in done.stderr


def test_the_setting_device_never_falls_back(python: Python) -> None:
    code = "from opgraft import Device; Device.default"
    done = python(code, "broken", OPGRAFT_DEVICE="MIRAGE")
    assert done.returncode == 1
    assert "opgraft.errors.DeviceError: MIRAGE does not open: ValueError: error 999" in done.stderr
    assert "water" in done.stderr


def test_a_plugin_declares_settings_that_are_found_when_they_are_named(python: Python) -> None:
    out = good(
        python(
            "from opgraft import using, settings\n"
            "with using(SAMPLE_VOLUME=5):\n"
            "    print(settings.get('SAMPLE_VOLUME'))\n"
            "print(settings.SAMPLE_VOLUME)\n"
            "try: using(SAMPLE_VOLUMN=1)\n"
            "except Exception as error: print(type(error).__name__, error)\n",
            "good",
            OPGRAFT_SAMPLE_VOLUME="7",
        )
    )
    lines = out.splitlines()
    assert lines[:2] == ["5", "7"]
    assert lines[2] == "SettingError there is no setting SAMPLE_VOLUMN"
    assert "SAMPLE_VOLUME" in lines[3]


def test_optimizers_and_equalities_of_plugins_reach_simplify(python: Python) -> None:
    out = good(
        python(
            "from opgraft import UOp, dtypes, simplify, using\n"
            "from opgraft.rules.simplify import optimize\n"
            "x = UOp.variable('x', 0, 9, dtypes.int32)\n"
            "with using(OPTIMIZER='patient'):\n"
            "    made = optimize((x ^ 271828) ^ 271828)\n"
            "    print(made.sink is x, made.stop)\n"
            "print(simplify((x ^ 271828) ^ 271828) is x)\n"
            "with using(OPTIMIZER='absent'):\n"
            "    try: simplify(x + 1)\n"
            "    except Exception as error: print(type(error).__name__, error)\n",
            "good",
        )
    )
    lines = out.splitlines()
    assert lines[:2] == ["True had the patience", "True"]
    assert lines[2].startswith("SettingError there is no optimizer 'absent'; known: auto, greedy")


def test_a_device_listing_shows_each_broken_plugin_and_does_not_raise(python: Python) -> None:
    """F04: the listing says what is unavailable and why; F01: which plugins are broken."""
    done = python(["-m", "opgraft", "devices", "--json", "NULL"], "good", "broken")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [d["name"] for d in told["devices"]] == ["NULL"]
    states = {p["name"]: p["state"] for p in told["plugins"]}
    assert states["raises"] == "broken"
    assert states["future"] == "refused"
    assert states["sample"] == "loaded"


def test_import_and_interpreter_work_without_any_compiler(python: Python) -> None:
    """F04: PATH empty, CC unset; then a C device, then a compiler that is not there."""
    code = (
        "from opgraft import Device, using\n"
        "from opgraft.cli.trial import try_device\n"
        "print({t.state for t in try_device('INTERP')})\n"
        "for cc in ('', '/nonexistent/cc', 'GCC'):\n"
        "    with using(CPU_CC=cc):\n"
        "        try: print(Device['CPU'].pairs.select(cc).pair.name)\n"
        "        except Exception as error: print(type(error).__name__, str(error).split())\n"
    )
    done = python(code, PATH="", CC="", PYTHONSAFEPATH="1")
    lines = good(done).splitlines()
    assert lines[0] == "{'works'}"
    zig = "ZIG" in lines[1]
    assert zig or "CPU_CC" in lines[1]
    assert "/nonexistent/cc" in lines[2]
    assert lines[2].split()[0] in ("DeviceError", "CompileError")
    assert lines[3].split()[0] in ("DeviceError", "CompileError")
    assert "PATH" in lines[3]
    assert sys.executable  # the interpreter itself is found without PATH


# ---- the command line with plugins


def test_a_plugins_command_joins_the_own_ones(python: Python) -> None:
    done = python(["-m", "opgraft", "sample", "a", "b"], "good", OPGRAFT_SAMPLE_VOLUME="2")
    assert good(done) == "sample!! a b\n"
    told = good(python(["-m", "opgraft", "--help"], "good"))
    assert "sample speak" in [" ".join(line.split()) for line in told.splitlines()]


def test_a_command_that_two_offer_says_so_when_it_is_used(python: Python) -> None:
    done = python(["-m", "opgraft", "sample"], "good", "rival")
    assert done.returncode == 1
    assert done.stderr.startswith("opgraft: command sample is claimed by opgraft-")
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_the_listing_of_plugins_is_one_for_programs_too(python: Python) -> None:
    done = python(["-m", "opgraft", "plugins", "--json"], "good", "broken")
    assert done.returncode == 1  # some are broken
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["sample"]["state"] == "loaded"
    assert rows["sample"]["version"] == "1.2.3"
    assert "device SAMPLE" in rows["sample"]["offers"]
    assert rows["raises"]["reason"].endswith("ZeroDivisionError: division by zero")
    assert rows["raises"]["value"] == "opgraft_broken.raises"
    assert rows["future"]["state"] == "refused"
    assert good(python(["-m", "opgraft", "plugins"], "good")).count("loaded") == 4


@pytest.mark.thorough
def test_a_kernel_is_compiled_for_a_device_that_is_not_there(
    python: Python, tmp_path: Path
) -> None:
    (tmp_path / "kernel.ir").write_text(to_text(tiny_kernel()))
    for choice in (["--pair", "LONERC"], ["--device", "loner"]):
        out = good(python(["-m", "opgraft", "compile", "kernel.ir", *choice], "rival"))
        assert "og_trial" in out
    for pair in ("GCC", "CLANG"):
        words = ["-m", "opgraft", "compile", "kernel.ir", "--device", "cpu", "--pair", pair]
        assert "og_trial" in good(python(words, PATH=""))
    done = python(["-m", "opgraft", "devices", "--list"], "rival")
    assert "there is none on earth. a telescope." in good(done)
