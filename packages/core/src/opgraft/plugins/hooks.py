"""The hooks that one plugin implements, as pluggy sees them.

Each plugin has a manager of its own: pluggy stops a call at the first implementation that
raises, and tells unknown hook names of all plugins together.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

import pluggy

from opgraft.errors import PluginError
from opgraft.plugins import hookspecs


class Hooks:
    """The implementations in a plugin's module (or any object), under the plugin's name.

    Raises PluginError for a name that begins like a hook and is none, and what pluggy raises for
    an implementation that takes other arguments than its hook has.
    """

    def __init__(self, found: Any, name: str) -> None:
        self._manager = _Manager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._manager.register(found, name)
        try:
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise _unknown_hooks(self._manager) or error from error
        _compare(getattr(found, "HOOKS", None), [h for h in hookspecs.HOOKS if hasattr(found, h)])

    def call(self, hook: str, arguments: Mapping[str, Any]) -> list[Any]:
        """What the implementations return: none or one result, as a plugin has one module."""
        results: list[Any] = getattr(self._manager.hook, hook)(**arguments)
        return results


class _Manager(pluggy.PluginManager):
    """pluggy's manager, that takes every function named `opgraft_...` for a hook."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith(hookspecs.PREFIX):
            function = getattr(plugin, name, None)
            if isinstance(function, (types.FunctionType, types.MethodType)):
                return dict.fromkeys(
                    ("wrapper", "hookwrapper", "optionalhook", "tryfirst", "trylast"), False
                ) | {"specname": None}
        return options


def _compare(stated: object, there: Sequence[str]) -> None:
    """Raise unless HOOKS, where a plugin has it, names the hooks that are there: others would
    never be called."""
    if stated is None:
        return
    if not isinstance(stated, tuple) or sorted(map(str, stated)) != sorted(there):
        raise PluginError(f"HOOKS = {stated!r}, and its hooks are {', '.join(there) or 'none'}")


def _unknown_hooks(manager: pluggy.PluginManager) -> PluginError | None:
    """Names that begin like hooks and are none, each with the nearest that exists."""
    unknown = sorted(n for n in vars(manager.hook) if n not in hookspecs.HOOKS and n[0] != "_")
    if not unknown:
        return None
    import difflib  # late: for errors alone

    near = {n: difflib.get_close_matches(n, hookspecs.HOOKS, 1, 0.6) for n in unknown}
    hints = [f"{n} (did you mean {near[n][0]}?)" if near[n] else n for n in unknown]
    return PluginError(f"there is no hook {', '.join(hints)}")
