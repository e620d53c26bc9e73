"""A row of the kit: its name, its level, what came of it."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

import pytest

Result: TypeAlias = Literal["passed", "failed", "not claimed", "expected", "skipped"]
RESULTS: Final[tuple[Result, ...]] = ("passed", "failed", "not claimed", "expected", "skipped")


class Level(enum.IntEnum):
    """How much a row weighs."""

    MUST = 0
    """Without it programs give wrong results, or crash."""
    SHOULD = 1
    """Without it a user is worse off: a message that does not help, a case that nobody meets."""
    MAY = 2
    """Good to have."""

    @property
    def word(self) -> str:
        """As options, markers and reports write it."""
        return self.name.lower()

    @classmethod
    def named(cls, word: str) -> Level:
        """The level of this word."""
        return cls[word.upper()]


class NotClaimed(pytest.skip.Exception):  # type: ignore[name-defined,misc]
    """Raised in a row that asks for what the device does not claim to do."""

    def __init__(self, what: str) -> None:
        super().__init__(f"not claimed: {what}")
        self.what = what


def not_claimed(what: str) -> NoReturn:
    """End a row: the device's target does not claim `what`, so nothing is asked of it."""
    __tracebackhide__ = True
    raise NotClaimed(what)


@dataclass(frozen=True)
class Row:
    """What came of one row."""

    id: str
    area: str
    level: Level
    result: Result
    seconds: float = 0.0
    reason: str = ""
    """What is not claimed, why it is expected to fail, why it was skipped."""
    message: str = ""
    """What is wrong, for a row that failed, as expected or not."""


def row_id(nodeid: str) -> str:
    """The name of a row, made of pytest's: short, without blanks, the same wherever it runs.

    >>> row_id("some/where/suite/test_buffers.py::test_views[of views]")
    'buffers/views[of_views]'
    """
    path, _, name = nodeid.partition("::")
    return re.sub(r"\s", "_", f"{area_of(path)}/{_bare(name.replace('::', '.'))}")


def row_of_item(item: pytest.Item) -> tuple[str, str]:
    """Id and area of a row. By its file: outside of pytest's root, node ids may lack it."""
    place = f"{item.path.name}::{item.nodeid.partition('::')[2]}"
    return row_id(place), area_of(place)


def area_of(nodeid: str) -> str:
    """The area of a row: its file's name.

    >>> area_of("suite/test_buffers.py::test_views")
    'buffers'
    """
    path = nodeid.partition("::")[0].replace("\\", "/")
    return _bare(path.rpartition("/")[2].removesuffix(".py"))


def _bare(name: str) -> str:
    return name.removeprefix("test_")
