"""`opgraft`: the parser of the command line, and how a command ends."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from opgraft import __version__, settings
from opgraft.cli.cache import COMMAND as CACHE
from opgraft.cli.calibrate import COMMAND as CALIBRATE
from opgraft.cli.compile import COMMAND as COMPILE
from opgraft.cli.devices import COMMAND as DEVICES
from opgraft.cli.explain import COMMAND as EXPLAIN
from opgraft.cli.info import COMMAND as INFO
from opgraft.cli.new_backend import COMMAND as NEW_BACKEND
from opgraft.cli.plugins import COMMAND as PLUGINS
from opgraft.errors import OpgraftError, PluginError, SettingError
from opgraft.plugins.command import RESERVED, Command, UsageError
from opgraft.plugins.registry import REGISTRY

_COMMANDS: Final = (DEVICES, PLUGINS, INFO, CACHE, EXPLAIN, COMPILE, CALIBRATE, NEW_BACKEND)
OWN: Final = {command.name: command for command in _COMMANDS}
assert tuple(OWN) == RESERVED

_EPILOG: Final = """\
settings are OPGRAFT_NAME in the environment and using(NAME=...) in code; `opgraft info --settings`
lists them. exit codes: 0 it went well; 1 something failed; 2 wrong usage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = parser(words).parse_args(words)
        if chosen.command is None:
            parser(["--help"]).print_help()
            return 2
        code: int = chosen.command.run(chosen)
        sys.stdout.flush()
    except OpgraftError as error:
        return _failed(error)
    except BrokenPipeError:
        # the reader has gone, as `opgraft ... | head` does; Python would complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return code


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these words: plugins are asked for commands only if an own one won't do."""
    made = argparse.ArgumentParser(
        "opgraft",
        description="An array-kernel compiler that you assemble with pip.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"opgraft {__version__}")
    made.set_defaults(command=None)
    commands = made.add_subparsers(title="commands", metavar="COMMAND")
    for command in OWN.values():
        _add(commands, command)
    first = next((word for word in words if not word.startswith("-")), None)
    if first not in OWN and ("--version" not in words):
        brought, clashes = REGISTRY.commands()
        for command in brought:
            _add(commands, command)
        for name, error in clashes:
            _add(commands, Command(name, _Raiser(error), f"claimed twice: {error.message}"))
    return made


def _add(commands: argparse._SubParsersAction[argparse.ArgumentParser], command: Command) -> None:
    made = commands.add_parser(
        command.name,
        help=command.help,
        description=command.description or command.help,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(made)
    made.set_defaults(command=command)


class _Raiser:
    """The `run` of a command that cannot be run."""

    def __init__(self, error: PluginError) -> None:
        self.error = error

    def __call__(self, arguments: argparse.Namespace) -> int:
        raise self.error


def _failed(error: OpgraftError) -> int:
    print(f"opgraft: {error}", file=sys.stderr)
    if isinstance(error, (UsageError, SettingError)):
        return 2
    if settings.DEBUG:
        traceback.print_exception(error)
    return 1
