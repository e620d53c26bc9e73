"""The device under test, and a compile cache of its own for each session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opgraft import Device, settings
from opgraft.errors import DeviceError
from opgraft.runtime import Device as OpenDevice


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPGRAFT_CACHE", str(folder))
        assert str(folder) == settings.CACHE
        yield folder


@pytest.fixture(scope="session")
def cl() -> OpenDevice:
    try:
        return Device["CL"]
    except DeviceError as error:
        pytest.skip(f"no OpenCL device here: {error.message}")


@pytest.fixture(scope="session")
def interp() -> OpenDevice:
    return Device["INTERP"]
