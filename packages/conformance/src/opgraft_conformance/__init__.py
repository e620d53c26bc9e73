"""The conformance kit: what a backend author runs against their device.

`python -m opgraft_conformance MINE`, or, through pytest,
`pytest -p opgraft_conformance.plugin --pyargs opgraft_conformance.suite --opgraft-device=MINE`.
A suite of one's own may use the same plugin: its fixtures, markers and these names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opgraft_conformance.fault import Fault
    from opgraft_conformance.rows import Level, NotClaimed, not_claimed

_HOMES: Final = {"Fault": "fault", "Level": "rows", "NotClaimed": "rows", "not_claimed": "rows"}
"""Looked up late: rows start many processes, which need kernels and no pytest."""

__all__ = ["Fault", "Level", "NotClaimed", "not_claimed"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"opgraft_conformance has no name {name!r}")
    return getattr(importlib.import_module(f"opgraft_conformance.{_HOMES[name]}"), name)
