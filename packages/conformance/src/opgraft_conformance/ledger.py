"""What came of the rows, gathered from pytest's reports, and the judgement on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from opgraft_conformance.rows import RESULTS, Level, Result, Row, area_of, row_id

KEY = "opgraft"
"""The attribute of a report that carries what a row told (`told`); it passes through xdist."""


def told(report: pytest.TestReport) -> dict[str, Any]:
    """What the plugin noted in the process that ran the row."""
    found: dict[str, Any] = getattr(report, KEY, {})
    return found


@dataclass
class Ledger:
    """The rows of a run, in the order in which they were done."""

    decides: Level
    """Failures of rows up to this level make the run fail."""
    rows: dict[str, Row] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """Entries of the file of expected failures that name no row, with their place."""

    def add(self, report: pytest.TestReport) -> None:
        """Take in the report of a phase (setup, call, teardown) of a row."""
        new = row_of(report)
        old = self.rows.get(new.id)
        if old is None:
            if report.when != "setup" or new.result != "passed":
                self.rows[new.id] = new
            return
        worse = new if _rank(new.result) > _rank(old.result) else old
        self.rows[new.id] = Row(
            worse.id,
            worse.area,
            worse.level,
            worse.result,
            old.seconds + new.seconds,
            worse.reason,
            worse.message,
        )

    def judged(self) -> list[Row]:
        """The rows by area, then level, then as they were done; the same under xdist."""
        return sorted(self.rows.values(), key=lambda row: (row.area, row.level, row.id))

    def failures(self) -> list[Row]:
        """The rows that failed unexpectedly, the weightiest first."""
        failed = [row for row in self.judged() if row.result == "failed"]
        return sorted(failed, key=lambda row: row.level)

    def fails(self) -> bool:
        """Whether the run as a whole fails."""
        return bool(self.unknown) or any(r.level <= self.decides for r in self.failures())

    def counts(self, rows: Iterable[Row] | None = None) -> dict[Result, int]:
        """How many rows of each result."""
        found = dict.fromkeys(RESULTS, 0)
        for row in self.rows.values() if rows is None else rows:
            found[row.result] += 1
        return found


def _rank(result: Result) -> int:
    return ("passed", "skipped", "not claimed", "expected", "failed").index(result)


def row_of(report: pytest.TestReport) -> Row:
    """The row as one report tells it."""
    noted = told(report)
    level = Level.named(noted.get("level", "must"))
    result: Result = noted.get("result", "failed" if report.failed else "passed")
    message = noted.get("message", "")
    reason = noted.get("reason", "")
    if report.failed and not message:
        message = str(report.longrepr or f"failed in {report.when}")
    if report.skipped and "result" not in noted:
        result = "skipped"
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
    return Row(
        noted.get("row") or row_id(report.nodeid),
        noted.get("area") or area_of(report.nodeid),
        level,
        result,
        report.duration,
        reason,
        message,
    )
