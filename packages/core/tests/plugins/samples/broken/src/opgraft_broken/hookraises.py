"""One hook raises; another is well."""

from opgraft.api import Command

API = (1, 0)


def opgraft_devices():
    raise LookupError("the driver's registry is upside down")


def opgraft_commands():
    return [Command("hookraises", lambda arguments: 0, "does nothing, well")]
