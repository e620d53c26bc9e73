"""Which plugins are installed: entry points of the group `opgraft`, read and nothing imported.

`importlib.metadata` takes longer to import than the files take to read, and this stands on the
way to the first kernel of every process. So folders of `sys.path` are read here, by the two
public standards (the names of `.dist-info` folders, the format of `entry_points.txt`), and the
rest (zip files, finders of other tools) is left to the library.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from typing import Final, NamedTuple

GROUP: Final = "opgraft"


class EntryPoint(NamedTuple):
    """One line of a distribution's metadata, and whose it is."""

    name: str
    value: str
    distribution: str = ""
    version: str = ""


class _Found(NamedTuple):
    """A distribution: its name in normal form, and where its metadata is."""

    project: str
    points: tuple[EntryPoint, ...]


def entry_points(path: Iterable[str] | None = None) -> tuple[EntryPoint, ...]:
    """The entry points along `path` (default: wherever Python looks), sorted by (name, value).

    Of a distribution that is there twice the first on the path counts, as for imports.
    """
    if path is None and _foreign_finders():
        found = _by_library(None)
    else:
        found = _along(sys.path if path is None else path)
    first: dict[str, _Found] = {}
    for distribution in found:
        first.setdefault(distribution.project, distribution)
    return tuple(sorted(point for d in first.values() for point in d.points))


def normalized(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503).

    >>> normalized("Opgraft_Core")
    'opgraft-core'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _foreign_finders() -> bool:
    """Whether something beside the path may know distributions."""
    return any(
        finder is not PathFinder and hasattr(finder, "find_distributions")
        for finder in sys.meta_path
    )


def _along(path: Iterable[str]) -> Iterator[_Found]:
    for place in dict.fromkeys(os.path.abspath(p or os.curdir) for p in path):
        if os.path.isdir(place):
            yield from _in_folder(place)
        elif os.path.exists(place):
            yield from _by_library([place])


def _in_folder(place: str) -> Iterator[_Found]:
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return  # as for imports: a folder that cannot be read holds nothing
    for name in names:
        stem, dot, kind = name.rpartition(".")
        if dot and kind in ("dist-info", "egg-info"):
            project = normalized(stem.partition("-")[0])
            yield _Found(project, _of_distribution(os.path.join(place, name), project))


def _of_distribution(folder: str, project: str) -> tuple[EntryPoint, ...]:
    text = _read(os.path.join(folder, "entry_points.txt"))
    lines = list(_section(text, GROUP)) if GROUP in text else []
    if not lines:
        return ()
    metadata = _read(os.path.join(folder, "METADATA")) or _read(os.path.join(folder, "PKG-INFO"))
    head = metadata.partition("\n\n")[0].splitlines()
    fields = dict(reversed([_pair(line, ":") for line in head]))
    named, version = fields.get("Name", project), fields.get("Version", "")
    return tuple(EntryPoint(name, value, named, version) for name, value in lines)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _section(text: str, wanted: str) -> Iterator[tuple[str, str]]:
    """The `name = value` lines of one section of an INI-like file."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{wanted}]"
        elif inside and line and line[0] not in "#;" and "=" in line:
            yield _pair(line, "=")


def _pair(line: str, mark: str) -> tuple[str, str]:
    left, _, right = line.partition(mark)
    return left.strip(), right.strip()


def _by_library(path: list[str] | None) -> Iterator[_Found]:
    metadata = importlib.import_module("importlib.metadata")
    where = {} if path is None else {"path": path}
    for distribution in metadata.distributions(**where):
        name = str(distribution.metadata["Name"] or "")
        points = [
            EntryPoint(p.name, p.value, name, distribution.version or "")
            for p in distribution.entry_points
            if p.group == GROUP
        ]
        yield _Found(normalized(name), tuple(points))
