"""`np`: NumPy, imported when something of it is first asked for.

It takes longer to import than all of opgraft, and a program that makes its tensors from lists and
reads them as lists has no use for it. What the user has not imported, the user does not pass:
`is_numpy` and `is_array` need no import to say no.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeGuard

if TYPE_CHECKING:
    import numpy as np
else:

    class _Late(ModuleType):
        """A module whose names are looked up in the one that it stands for, and then kept."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module(self.__name__), name)
            setattr(self, name, found)
            return found

    np: Final = _Late("numpy")

__all__ = ["is_array", "is_numpy", "np"]


def is_numpy(value: object) -> TypeGuard[np.ndarray | np.generic]:
    """A NumPy array or one of NumPy's numbers."""
    return "numpy" in sys.modules and isinstance(value, (np.ndarray, np.generic))


def is_array(value: object) -> TypeGuard[np.ndarray]:
    """A NumPy array; its numbers are none."""
    return "numpy" in sys.modules and isinstance(value, np.ndarray)
