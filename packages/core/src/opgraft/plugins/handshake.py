"""The version of the plugin interface, and who is let in.

A plugin says `API = (major, minor)`: the interface it was written for. The same major and a
minor that this core has already: welcome. Anything else is refused before its code runs where
the number stands in the source, else right after its import; what follows would be an
AttributeError from deep inside, or worse.
"""

from __future__ import annotations

import ast
import re
from importlib.machinery import PathFinder
from typing import Final, TypeAlias

from opgraft.errors import PluginError

Version: TypeAlias = tuple[int, int]

API: Final[Version] = (1, 0)
"""What `opgraft.api` offers now."""

CORE: Final = "opgraft-core"


def as_version(value: object) -> Version | None:
    """`value` if it is a pair of whole numbers."""
    if isinstance(value, tuple) and len(value) == 2:
        major, minor = value
        if type(major) is int and type(minor) is int:
            return (major, minor)
    return None


def check(value: object, plugin: str, distribution: str, core: Version = API) -> Version:
    """The version that a plugin says, if this core serves it; else PluginError."""
    ours = f"{core[0]}.{core[1]}"
    said = as_version(value)
    if said is None:
        what = "says no API version" if value is None else f"says API = {value!r}"
        raise PluginError(
            f"plugin {plugin} of {distribution} {what}; this core has API {ours} and needs a "
            "line such as `API = (1, 0)` in the plugin's module",
            remedy=_remedy(distribution, plugin, distribution),
        )
    if said[0] == core[0] and said[1] <= core[1]:
        return said
    outdated = distribution if said < core else CORE
    raise PluginError(
        f"plugin {plugin} of {distribution} is written for API {said[0]}.{said[1]}, "
        f"and this core ({CORE}) has API {ours}",
        remedy=_remedy(outdated, plugin, distribution),
    )


def _remedy(outdated: str, plugin: str, distribution: str) -> str:
    return (
        f"Upgrade {outdated} (pip install --upgrade {outdated}), skip the plugin "
        f"(OPGRAFT_PLUGINS=-{plugin}), or remove it (pip uninstall {distribution})."
    )


def stated(module: str, what: str = "API") -> object:
    """The literal `API` in a module's source, or `HOOKS`, found without running any of its package.

    None where there is no such line or it is not a literal; the import will tell.
    """
    source = _source(module)
    if not re.search(rf"^{what}\b", source, re.MULTILINE):
        return None
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target: ast.expr = statement.targets[0]
            value: ast.expr | None = statement.value
        elif isinstance(statement, ast.AnnAssign):
            target, value = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name) and target.id == what and value is not None:
            try:
                found: object = ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError):
                return None
            return found
    return None


def _source(module: str) -> str:
    """The text of a module that lies as a file on `sys.path`; else nothing."""
    path: list[str] | None = None
    spec = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return ""
        path = list(spec.submodule_search_locations or ())
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return ""
    try:
        with open(spec.origin, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
