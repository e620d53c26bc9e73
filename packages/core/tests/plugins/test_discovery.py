"""Discovery reads metadata, as the standard library would, and imports nothing."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from opgraft.plugins.discovery import EntryPoint, entry_points, normalized


def distribution(folder: Path, name: str, entries: str, version: str = "1.0") -> Path:
    made = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nName: not this one\n"
    )
    (made / "entry_points.txt").write_text(entries)
    return folder


def by_library(path: list[str]) -> list[EntryPoint]:
    # of one name the first counts: what a build leaves beside its source comes after what is
    # installed
    first: dict[str, importlib.metadata.Distribution] = {}
    for d in importlib.metadata.distributions(path=path):
        first.setdefault(d.metadata["Name"], d)
    return sorted(
        EntryPoint(p.name, p.value, name, d.version)
        for name, d in first.items()
        for p in d.entry_points
        if p.group == "opgraft"
    )


def test_entry_points_are_read_as_the_standard_library_reads_them(tmp_path: Path) -> None:
    distribution(
        tmp_path,
        "opgraft-zeta",
        "[console_scripts]\nopgraft-zeta = zeta:main\n\n"
        "[opgraft]\n# a comment\nzeta = zeta.plugin\n  beta=zeta.beta:PLUGIN \n\n[other]\nx = y\n",
        "2.0.1",
    )
    distribution(tmp_path, "opgraft-alpha", "[opgraft]\nalpha = alpha\n")
    distribution(tmp_path, "unconcerned", "[opgraft_not]\nno = no\n")
    found = entry_points([str(tmp_path)])
    assert list(found) == by_library([str(tmp_path)])
    assert found == (
        EntryPoint("alpha", "alpha", "opgraft-alpha", "1.0"),
        EntryPoint("beta", "zeta.beta:PLUGIN", "opgraft-zeta", "2.0.1"),
        EntryPoint("zeta", "zeta.plugin", "opgraft-zeta", "2.0.1"),
    )


def test_what_is_installed_here_is_found_alike() -> None:
    assert list(entry_points(sys.path)) == by_library([p for p in sys.path if p])


def test_the_installed_samples_are_found_with_distribution_and_version(
    site: dict[str, Path],
) -> None:
    path = [str(site["good"])]
    assert entry_points(path) == (
        EntryPoint("sample", "opgraft_sample.plugin", "opgraft-sample", "1.2.3"),
    )
    assert len(entry_points([str(site["broken"])])) == 19


def test_a_distribution_that_is_there_twice_counts_once_the_first_on_the_path(
    tmp_path: Path,
) -> None:
    first = distribution(tmp_path / "a", "opgraft-Thing", "[opgraft]\nthing = new\n", "2.0")
    second = distribution(tmp_path / "b", "opgraft_thing", "[opgraft]\nthing = old\n", "1.0")
    assert [p.value for p in entry_points([str(first), str(second)])] == ["new"]
    assert [p.value for p in entry_points([str(second), str(first)])] == ["old"]


def test_the_order_does_not_depend_on_the_path(tmp_path: Path) -> None:
    a = distribution(tmp_path / "a", "one", "[opgraft]\nz = z\nb = b2\n")
    b = distribution(tmp_path / "b", "two", "[opgraft]\nb = b1\na = a\n")
    names = [(p.name, p.value) for p in entry_points([str(a), str(b)])]
    assert names == [("a", "a"), ("b", "b1"), ("b", "b2"), ("z", "z")]
    assert entry_points([str(b), str(a)]) == entry_points([str(a), str(b)])


def test_folders_and_files_that_do_not_exist_or_cannot_be_read_hold_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "text.txt").write_text("no zip")
    assert entry_points([str(tmp_path), str(tmp_path / "gone"), str(tmp_path / "text.txt")]) == ()


@pytest.mark.parametrize("name", ["Opgraft_Core", "opgraft--core", "opgraft.core", "OPGRAFT-CORE"])
def test_names_of_distributions_compare_as_indexes_compare_them(name: str) -> None:
    assert normalized(name) == "opgraft-core"
