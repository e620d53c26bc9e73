"""How much the tests do: OPGRAFT_CHECK is `quick` (the default), `full` (CI, nox) or `long`.

The quick run, which README promises to take little time, leaves out the tests that are marked
`thorough`, and takes the first of each n cases of a test that is marked `sampled(n)`.
"""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from tested import EFFORT


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if EFFORT != "quick":
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        every = item.get_closest_marker("sampled")
        test = item.nodeid.partition("[")[0]
        chosen = every is None or seen[test] % every.args[0] == 0
        seen[test] += 1
        (kept if chosen and item.get_closest_marker("thorough") is None else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_collection_finish() -> None:
    """What stands at the start stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
