"""`opgraft devices`: which devices and compilers work here, why the others don't, what to do."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Final

from opgraft import settings
from opgraft.catalog import Device, Listed
from opgraft.cli.plugins import BAD
from opgraft.cli.screen import Screen, screen
from opgraft.cli.trial import Trial, try_apart, try_device
from opgraft.errors import OpgraftError
from opgraft.plugins.command import Command
from opgraft.plugins.registry import REGISTRY


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
    names = wanted or [name for row in listing.values() for name in _each(row)]
    kinds = [name.partition(":")[0] for name in names]
    rows = [row for row in listing.values() if not wanted or row.name in kinds]
    trials = _tried(names, arguments)
    default, fault = _default(listing, trials)
    if arguments.json:
        print(json.dumps(_as_json(rows, trials, default), indent=2))
    else:
        out = screen()
        _table(out, rows, trials)
        out.line()
        if fault:
            out.line(fault)
        elif default:
            how = "by the setting DEVICE" if settings.DEVICE else "set OPGRAFT_DEVICE to change it"
            out.line(f"The default device is {default} ({how}).")
        for status in REGISTRY.status():
            if status.state in BAD:
                out.line(f"Plugin {status.name} is {status.state}: {status.reason}")
                out.line(f"  {status.remedy}")
    return int(bool(fault) or not (arguments.list or _all_work(names, trials)))


def _each(row: Listed) -> list[str]:
    """The names of the devices of a kind that seem to be there."""
    return [Device.canonical(f"{row.name}:{index}") for index in range(row.count)]


def _tried(names: list[str], arguments: Namespace) -> list[Trial]:
    if arguments.list:
        return []
    if arguments.here:
        return [trial for name in names for trial in try_device(name)]
    return try_apart(names)


def _default(listing: dict[str, Listed], trials: list[Trial]) -> tuple[str, str]:
    """The default device as the catalogue chooses it, as far as was tried; or what is wrong."""
    chosen = settings.DEVICE
    if chosen:
        try:
            return Device.canonical(chosen), ""
        except OpgraftError as error:
            return "", f"The setting DEVICE: {error}"
    opens = [trial.device for trial in trials if trial.chosen and trial.good]
    for row in listing.values():
        if row.priority >= 0 and row.count:
            if row.name in opens:
                return row.name, ""
            if not any(trial.device == row.name for trial in trials):
                return "", ""  # it was not tried
    return "", "No device works." if trials else ""


def _all_work(names: list[str], trials: list[Trial]) -> bool:
    """Whether every device that was tried works with the compiler that it would take."""
    working = [trial.device for trial in trials if trial.chosen and trial.good]
    return bool(names) and all(name in working for name in names)


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
        "plugins": [status._asdict() for status in REGISTRY.status()],
    }


def _table(out: Screen, rows: list[Listed], trials: list[Trial]) -> None:
    lines: list[tuple[str, ...]] = []
    for row in rows:
        mine = [t for t in trials if t.device.partition(":")[0] == row.name]
        if not mine:
            state = "found" if row.count else "absent"
            why = row.description if row.count else _join(row.reason, row.install)
            lines.append((row.name, "", state, "", why))
        for trial in mine:
            took = f"{trial.milliseconds:.0f} ms" if trial.good else ""
            install = row.install if trial.state == "absent" and not trial.pair else ""
            why = trial.select or _join(trial.reason, trial.remedy, install)
            mark = "*" if trial.chosen and not trial.alone else ""
            lines.append((trial.device, trial.pair + mark, trial.state, took, why))
    out.table(("device", "compiler", "state", "time", "how to select, or why not"), lines)


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

"*" marks the compiler that is used: the one that <DEVICE>_CC names, else the first that works.
exit codes: 0 every device that was tried works with it; 1 one does not; 2 wrong usage.""",
)
