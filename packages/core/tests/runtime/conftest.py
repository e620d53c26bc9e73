"""Every test of this room has a compile cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from opgraft import settings


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPGRAFT_CACHE", str(folder))
    assert str(folder) == settings.CACHE
    return folder
