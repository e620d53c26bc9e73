"""Names a hook that is none, and leaves out the one that it has."""

from __future__ import annotations

from opgraft.api import Command

API = (1, 0)
HOOKS = ("opgraft_comands",)


def opgraft_commands() -> list[Command]:
    return []
