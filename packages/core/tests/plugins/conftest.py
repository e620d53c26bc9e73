"""Installed sample plugins, and processes and registries that see them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import opgraft
from opgraft.catalog import Catalog
from opgraft.plugins.discovery import entry_points
from opgraft.plugins.registry import Registry

sys.path.insert(0, str(Path(__file__).parent))
installing = importlib.import_module("installing")

NAMES = ("broken", "circle", "rival", "twin")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a sample distribution each, by name: the good one installed by pip, the
    others laid out as pip would."""
    work, good = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("good")
    laid = {name: installing.lay(name, tmp_path_factory.mktemp(name)) for name in NAMES}
    return {"good": installing.install(["good"], good, work), **laid}


@pytest.fixture
def python(site: dict[str, Path], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """`python(code or arguments, *distributions, NAME=value)`: a new process that sees them."""

    def run(code: str | list[str], *names: str, **variables: str) -> subprocess.CompletedProcess:
        here = [str(site[name]) for name in names]
        source = str(Path(opgraft.__file__).parents[1])
        kept = {k: v for k, v in os.environ.items() if not k.startswith("OPGRAFT_")}
        environment = {
            **kept,
            "PYTHONPATH": os.pathsep.join([*here, source]),
            # whatever else is installed where the tests run
            "OPGRAFT_PLUGINS": ",".join(f"opgraft-{n}" for n in ("sample", *NAMES)),
            "OPGRAFT_CACHE": os.environ.get("OPGRAFT_CACHE", str(tmp_path / "cache")),
            **variables,
        }
        arguments = ["-c", code] if isinstance(code, str) else code
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
        )

    return run


@pytest.fixture
def registry(
    site: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Registry]]:
    """`registry(*distributions)`: a registry of this process that sees them."""
    before = set(sys.modules)

    def make(*names: str) -> Registry:
        for name in names:
            monkeypatch.syspath_prepend(str(site[name]))
        return Registry(read=lambda: entry_points([str(site[name]) for name in names]))

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("opgraft_"):
            del sys.modules[name]


@pytest.fixture
def catalog(registry: Callable[..., Registry]) -> Iterator[Callable[..., Catalog]]:
    """`catalog(*distributions)`: a catalogue over such a registry, closed afterwards."""
    made: list[Catalog] = []

    def make(*names: str) -> Catalog:
        made.append(Catalog(registry(*names)))
        return made[-1]

    yield make
    for one in made:
        one.close()
