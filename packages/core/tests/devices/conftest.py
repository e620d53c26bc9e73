"""Tests of this room share one compile cache of their own: C compilers are slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from opgraft.devices.cpu.device import CpuDevice


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache_folder(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPGRAFT_CACHE", str(shared_cache))
    monkeypatch.delenv("CC", raising=False)
    return shared_cache


@pytest.fixture(scope="session")
def device() -> CpuDevice:
    return CpuDevice()
