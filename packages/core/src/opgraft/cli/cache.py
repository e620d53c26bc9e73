"""`opgraft cache`: where compiled kernels are kept, how much there is, and how to be rid of it."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Final

from opgraft.cli.screen import screen
from opgraft.plugins.command import Command
from opgraft.runtime.cache import compile_cache


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft cache`."""
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: Namespace) -> int:
    """Show the cache, or empty it."""
    cache = compile_cache()
    if arguments.action == "clear":
        removed = cache.clear()
        if arguments.json:
            print(json.dumps({"removed": removed}))
        else:
            print(f"removed {removed} entries")
        return 0
    held = cache.contents()
    if arguments.json:
        facts = {
            "folder": held.folder,
            "entries": held.entries,
            "bytes": held.bytes,
            "limit": held.limit,
            "hits": held.hits,
            "misses": held.misses,
        }
        print(json.dumps(facts, indent=2))
        return 0
    screen().table(
        ("what", "value"),
        [
            ("folder", held.folder or "none: nothing is kept"),
            ("entries", str(held.entries)),
            ("size", readable(held.bytes)),
            ("limit", readable(held.limit)),
            ("hits", _share(held.hits, held.hits + held.misses)),
        ],
    )
    return 0


def _share(hits: int, looked: int) -> str:
    if not looked:
        return "not used yet"
    return f"{hits} of {looked} look-ups ({100 * hits / looked:.0f} %), since it was last cleared"


def readable(nbytes: int) -> str:
    """Bytes for people: "1.5 MiB"."""
    size, units = float(nbytes), ["TiB", "GiB", "MiB", "KiB"]
    if size < 1024:
        return f"{nbytes} B"
    while size >= 1024 and units:
        size, unit = size / 1024, units.pop()
    return f"{size:.1f} {unit}"


COMMAND: Final = Command(
    "cache",
    run,
    "where compiled kernels are kept, how much there is; clear",
    configure,
    """Show or empty the folder of compiled kernels.

  opgraft cache                where it is, entries, size, hits of all processes
  opgraft cache clear          remove all entries
  OPGRAFT_CACHE=/some/folder   keep it elsewhere ("off": nowhere)
  OPGRAFT_CACHE_SIZE=512M      keep it smaller

exit codes: 0 done; 1 it could not be read or emptied; 2 wrong usage.""",
)
