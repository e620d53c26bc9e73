"""`opgraft plugins`: what is installed beside the core, its state, and what it offers."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Final

from opgraft.cli.screen import Screen, screen
from opgraft.plugins.command import Command
from opgraft.plugins.plugin import State
from opgraft.plugins.registry import REGISTRY
from opgraft.plugins.roster import PluginStatus

BAD: Final = (State.BROKEN, State.REFUSED, State.CLASH)


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft plugins`."""
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--found", action="store_true", help="metadata only: load no plugin")


def run(arguments: Namespace) -> int:
    """Load the plugins and print the table."""
    rows = REGISTRY.status(load=not arguments.found)
    unknown = REGISTRY.unknown_tokens()
    if arguments.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
    else:
        _show(screen(), rows)
        for token in unknown:
            print(f"The setting PLUGINS names {token!r}; no plugin of that name is installed.")
    return int(any(row.state in BAD for row in rows))


def _show(out: Screen, rows: tuple[PluginStatus, ...]) -> None:
    out.table(
        ("plugin", "distribution", "state", "API", "load", "offers, or why not"),
        [
            (
                row.name,
                f"{row.distribution} {row.version}",
                str(row.state),
                f"{row.api[0]}.{row.api[1]}" if row.api else "",
                f"{row.seconds * 1e3:.0f} ms" if row.seconds else "",
                f"{row.reason}. {row.remedy}" if row.reason else ", ".join(row.offers),
            )
            for row in rows
        ],
    )


COMMAND: Final = Command(
    "plugins",
    run,
    "which plugins are installed, their state and what they offer",
    configure,
    """List the plugins: entry points of the group "opgraft" of all installed distributions.

States: found (not loaded yet), loaded, broken (it raised), refused (written for another version
of the interface), blocked (by the setting PLUGINS), clash (two claim one name).

  OPGRAFT_PLUGINS=this,that    only these may load (names of plugins or of distributions)
  OPGRAFT_PLUGINS=-this        all but this
  OPGRAFT_PLUGINS=             none

An entry point is code of whoever published the package: it runs when it is loaded.
exit codes: 0 all are well; 1 one is broken, refused or in a clash; 2 wrong usage.""",
)
