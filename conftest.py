"""How much the tests do: OPGRAFT_CHECK is `quick` (the default), `full` (CI, nox) or `long`.

Tests marked `thorough` are left out of the quick run, which README promises to take little time.
"""

from __future__ import annotations

import pytest

from tested import EFFORT


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if EFFORT != "quick":
        return
    kept = [item for item in items if item.get_closest_marker("thorough") is None]
    left = [item for item in items if item.get_closest_marker("thorough") is not None]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
