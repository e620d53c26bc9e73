"""`Command`: a subcommand of `opgraft` that a plugin brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from opgraft.errors import OpgraftError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

RESERVED: Final = (
    "devices",
    "plugins",
    "info",
    "cache",
    "explain",
    "compile",
    "calibrate",
    "new-backend",
)
"""Opgraft's own commands: a plugin cannot have these names."""


class UsageError(OpgraftError):
    """A command that was asked for wrongly: exit code 2."""


class Command(NamedTuple):
    """`opgraft NAME ...`.

    `configure` adds the arguments to the parser of this subcommand; `run` does the work and
    returns the exit code: 0 it went well, 1 something failed, 2 it was asked for wrongly. An
    `OpgraftError` that `run` raises is printed, without a traceback, and exits with 1
    (`UsageError` and `SettingError` with 2).
    """

    name: str
    """Lower case, words joined by `-`."""
    run: Callable[[Namespace], int]
    help: str
    """One line, for the list of commands."""
    configure: Callable[[ArgumentParser], None] = lambda parser: None
    description: str = ""
    """For `opgraft NAME --help`; examples are welcome. Empty: `help`."""
