"""`opgraft info`: what to paste in a bug report."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from opgraft import __version__, calibration, settings
from opgraft.catalog import Device
from opgraft.cli.cache import readable
from opgraft.cli.screen import Screen, screen
from opgraft.errors import SettingError
from opgraft.plugins.command import Command
from opgraft.plugins.handshake import API
from opgraft.plugins.registry import REGISTRY
from opgraft.runtime.cache import compile_cache

NEEDED: Final = ("numpy", "cffi", "pluggy", "ziglang", "rich")
COMPILERS: Final = ("clang", "gcc", "cc", "zig")


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft info`."""
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--settings", action="store_true", help="list every setting instead")


def run(arguments: Namespace) -> int:
    """Print the facts, or the table of settings."""
    if arguments.settings:
        rows = _settings()
        if arguments.json:
            print(json.dumps(rows, indent=2))
        else:
            screen().table(tuple(rows[0]), [tuple(row.values()) for row in rows])
        return 0
    found = facts()
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        _show(screen(), found)
    return 0


def facts() -> dict[str, Any]:
    """Everything that may matter, as data."""
    held = compile_cache().contents()
    return {
        "versions": {
            "opgraft": __version__,
            "API": f"{API[0]}.{API[1]}",
            "Python": f"{platform.python_version()} ({platform.python_implementation()})",
            **_versions(),
        },
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
                         else os.cpu_count()),
            "executable": sys.executable,
        },
        "compilers": {name: _compiler(name) for name in COMPILERS},
        "cache": {
            "folder": str(held.folder or "none"),
            "entries": str(held.entries),
            "size": f"{readable(held.bytes)} of {readable(held.limit)}",
        },
        "calibration": _calibration(),
        "settings": _changed(),
        "plugins": [
            {k: row[k] for k in ("name", "distribution", "version", "state", "reason")}
            for row in [status._asdict() for status in REGISTRY.status(load=True)]
        ],
        "devices": [asdict(row) for row in Device.listing()],
    }  # fmt: skip


def _calibration() -> dict[str, str]:
    """What `opgraft calibrate` has measured, by kind of device."""
    return {
        kind: ", ".join(f"{name} {price:g}" for name, price in prices)
        for kind, prices in calibration.everything().items()
    }


def _versions() -> dict[str, str]:
    ours = {
        str(d.metadata["Name"])
        for d in metadata.distributions()
        if str(d.metadata["Name"] or "").startswith("opgraft")
    }
    others = {row.distribution for row in REGISTRY.status()} - ours - {""}
    found = {}
    for name in (*sorted(ours), *sorted(others), *NEEDED):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    names = [row.partition(":")[2].strip() for row in text.splitlines() if "model name" in row]
    return names[0] if names else platform.machine()


def _compiler(name: str) -> str:
    path = shutil.which(name)
    if name == "zig" and path is None:
        path = _wheel_of_zig()
    if path is None:
        return "not found"
    word = "version" if name == "zig" else "--version"
    try:
        done = subprocess.run([path, word], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    lines = (done.stdout or done.stderr).splitlines()
    return f"{lines[0] if lines else 'says nothing'} ({path})"


def _wheel_of_zig() -> str | None:
    """The program in the `ziglang` wheel, which puts none on the PATH."""
    spec = importlib.util.find_spec("ziglang")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return next((found for folder in folders if (found := shutil.which("zig", path=folder))), None)


def _changed() -> dict[str, str]:
    """Settings that are not at their default, and variables that look like one and are none."""
    try:
        found = {
            name: f"{value!r} ({source})" for name, (value, source) in settings.changed().items()
        }
    except SettingError as error:
        found = {"invalid": str(error).replace("\n", " ")}
    for name, near in settings.stray().items():
        hint = f"; did you mean {near[0]}?" if near else ""
        found[name] = f"is no setting{hint}"
    return found


def _settings() -> list[dict[str, str]]:
    REGISTRY.status(load=True)  # plugins declare settings of their own
    return [
        {
            "name": f"<DEVICE>_{row.name}" if row.family else row.name,
            "takes": row.form,
            "default": "unset" if row.default is None else str(row.default) or "empty",
            "of": row.owner,
            "meaning": row.meaning,
        }
        for row in settings.table()
    ]


def _show(out: Screen, found: dict[str, Any]) -> None:
    for title, held in found.items():
        if isinstance(held, dict):
            rows = [(key, str(value)) for key, value in held.items()] or [("all", "default")]
            out.table((title, ""), rows)
        elif title == "plugins":
            out.table(
                (title, "distribution", "version", "state", "reason"),
                [tuple(map(str, row.values())) for row in held],
            )
        else:
            out.table(
                (title, "there", "why not"),
                [(row["name"], str(row["count"]), row["reason"]) for row in held],
            )
        out.line()
    out.line("`opgraft devices` runs a kernel on each device.")


COMMAND: Final = Command(
    "info",
    run,
    "versions, machine, compilers, cache, settings, plugins: for a bug report",
    configure,
    """Print what a bug report needs. It starts no driver.

  opgraft info                 for people
  opgraft info --json          for programs
  opgraft info --settings      every setting: what it takes, its default, its meaning

exit codes: 0 done; 2 wrong usage.""",
)
