"""The author's list of rows that are known to fail. It is strict: a stale entry is an error.

One row a line: its id, blanks, and the reason. `#` begins a comment line.

    buffers/large      the emulator has 64 MiB
    operations/sin[float16]   https://example.org/mine/issues/7
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Expectation:
    """A row that is expected to fail."""

    row: str
    reason: str
    line: int


def read(path: Path) -> Mapping[str, Expectation]:
    """The entries of a file, by row. Raises `ValueError` with the line that is at fault."""
    found: dict[str, Expectation] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row, _, reason = line.strip().partition(" ")
        if "\t" in row:
            row, _, reason = line.strip().partition("\t")
        if not reason.strip():
            raise ValueError(f"{path}:{number}: {row} has no reason behind it")
        if row in found:
            raise ValueError(f"{path}:{number}: {row} stands in line {found[row].line} already")
        found[row] = Expectation(row, reason.strip(), number)
    return found
