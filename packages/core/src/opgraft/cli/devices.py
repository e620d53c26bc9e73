"""`opgraft devices`: which devices and compilers work here, why the others don't, what to do."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Final

from opgraft import settings
from opgraft.catalog import Device, Listed
from opgraft.cli.screen import Screen, screen
from opgraft.cli.trial import Trial, try_apart, try_device
from opgraft.plugins.command import Command
from opgraft.plugins.registry import REGISTRY

GOOD: Final = ("works", "compiles")


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft devices`."""
    parser.add_argument("device", nargs="*", help="only these, such as CPU or CPU:0")
    parser.add_argument("--list", action="store_true", help="probe only: run no kernel")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--here",
        action="store_true",
        help="try in this process, not in one per device (for debuggers)",
    )


def run(arguments: Namespace) -> int:
    """Try the devices and print the table."""
    listing = {row.name: row for row in Device.listing()}
    wanted = [Device.canonical(name) for name in arguments.device]
    names = wanted or [row.name for row in listing.values() if row.count]
    rows = [row for row in listing.values() if not wanted or row.name in _kinds(wanted)]
    if arguments.list:
        trials = []
    elif arguments.here:
        trials = [trial for name in names for trial in try_device(name)]
    else:
        trials = try_apart(names)
    default = settings.DEVICE or _default(listing, trials)
    if arguments.json:
        print(json.dumps(_as_json(rows, trials, default), indent=2))
    else:
        _show(screen(), rows, trials, default, arguments.list)
    return _verdict(names, trials) if not arguments.list else 0


def _kinds(names: list[str]) -> list[str]:
    return [name.partition(":")[0] for name in names]


def _default(listing: dict[str, Listed], trials: list[Trial]) -> str:
    """As the catalogue chooses: the first, by priority, that opens."""
    opens = {t.device for t in trials if t.state != "absent"}
    ranked = [r.name for r in listing.values() if r.priority >= 0 and r.name in opens]
    return ranked[0] if ranked else ""


def _verdict(names: list[str], trials: list[Trial]) -> int:
    """1 if a device that was tried works with no pair."""
    working = {t.device for t in trials if t.state in GOOD}
    return int(any(name not in working for name in names) or not names)


def _as_json(rows: list[Listed], trials: list[Trial], default: str) -> dict[str, object]:
    return {
        "default": default,
        "devices": [
            {
                **asdict(row),
                "pairs": [
                    {**asdict(t), "select": t.select}
                    for t in trials
                    if t.device.partition(":")[0] == row.name
                ],
            }
            for row in rows
        ],
        "plugins": [asdict(status) for status in REGISTRY.status()],
    }


def _show(out: Screen, rows: list[Listed], trials: list[Trial], default: str, probed: bool) -> None:
    lines: list[tuple[str, ...]] = []
    for row in rows:
        mine = [t for t in trials if t.device.partition(":")[0] == row.name]
        if not mine:
            state = "absent" if row.count == 0 else "found"
            why = _join(row.reason, row.install) if row.count == 0 else row.description
            lines.append((row.name, "", state, "", why))
        for trial in mine:
            mark = "*" if trial.device == default and trial.chosen else ""
            took = f"{trial.milliseconds:.0f} ms" if trial.state in GOOD else ""
            install = row.install if trial.state == "absent" and not trial.pair else ""
            why = trial.select or _join(trial.reason, trial.remedy, install)
            lines.append((trial.device, trial.pair + mark, trial.state, took, why))
    out.table(("device", "compiler", "state", "time", "how to select, or why not"), lines)
    out.line()
    if default:
        how = "by the setting DEVICE" if settings.DEVICE else "set OPGRAFT_DEVICE to change it"
        out.line(f"The default device is {default} ({how}).")
    elif not probed:
        out.line("No device works.")
    for status in REGISTRY.status():
        if status.state in ("broken", "refused", "clash"):
            out.line(f"Plugin {status.name} is {status.state}: {status.reason}")
            out.line(f"  {status.remedy}")


def _join(*parts: str) -> str:
    """Sentences in a row, each once."""
    kept = dict.fromkeys(p.strip().replace("\n", " ") for p in parts if p.strip())
    return " ".join(p if p.endswith((".", "!", "?")) else p + "." for p in kept)


COMMAND: Final = Command(
    "devices",
    run,
    "which devices and compilers work here, and why the others don't",
    configure,
    """Run a tiny kernel on each device with each of its compilers, each device in a process of
its own, and say what works, why the rest does not, and what to set or install.

  opgraft devices              all that seem to be there
  opgraft devices CPU          one; exit code 1 if it does not work
  opgraft devices --list       a cheap look: no kernel, no driver
  opgraft devices --json       for programs

"*" marks the compiler that is used when none is named. exit codes: 0 every device that was tried
works with some compiler; 1 one does not; 2 wrong usage.""",
)
