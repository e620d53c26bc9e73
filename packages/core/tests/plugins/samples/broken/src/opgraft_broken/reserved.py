"""Wants the name of an own command."""

from opgraft.api import Command

API = (1, 0)


def opgraft_commands():
    return [Command("devices", lambda arguments: 0, "mine")]
