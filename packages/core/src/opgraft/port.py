"""`Port`: a function that an inner room calls and an outer room has.

The rules know no plugins, and `settings` knows nothing at all; yet an unknown optimizer or
setting may be a plugin's. A port names the function and imports its module at the first call.
These few are all the places where the arrows of the layering are turned round.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class Port(Generic[P, R]):
    """Calls `home` ("module:function").

    >>> Port("math:hypot")(3, 4)
    5.0
    """

    def __init__(self, home: str) -> None:
        self.home: Final = home
        self._function: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._function is None:
            module, _, name = self.home.partition(":")
            self._function = getattr(importlib.import_module(module), name)
        return cast(R, self._function(*args, **kwargs))


find_optimizer: Final[Port[[str], Any]] = Port("opgraft.plugins.registry:find_optimizer")
"""The optimizer of a name."""
find_equalities: Final[Port[[str], Any]] = Port("opgraft.plugins.registry:find_equalities")
"""What plugins add to the equalities of a stage."""
find_setting: Final[Port[[str], None]] = Port("opgraft.plugins.registry:find_setting")
"""Loads the plugin that may declare a setting."""
installed_plugins: Final[Port[[], tuple[tuple[str, str, str], ...]]] = Port(
    "opgraft.plugins.registry:installed"
)
"""Module, distribution and version of every plugin that there is."""
