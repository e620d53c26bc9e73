"""The report on the terminal: a table by area and level, then each failure in its own words."""

from __future__ import annotations

from collections.abc import Iterator

from opgraft_conformance.ledger import Ledger
from opgraft_conformance.opening import Facts
from opgraft_conformance.rows import RESULTS, Level, Row


def table(ledger: Ledger) -> Iterator[str]:
    """One line per area and level that has rows, and the totals of each level."""
    rows = ledger.judged()
    areas = list(dict.fromkeys(row.area for row in rows))
    lines = [("area", "level", *RESULTS)]
    for area in areas:
        for level in Level:
            chosen = [row for row in rows if row.area == area and row.level is level]
            if chosen:
                lines.append((area, level.word, *_numbers(ledger, chosen)))
    for level in Level:
        chosen = [row for row in rows if row.level is level]
        if chosen:
            lines.append(("all", level.word, *_numbers(ledger, chosen)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        left = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2])]
        right = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:])]
        yield "  ".join([*left, *right])


def _numbers(ledger: Ledger, rows: list[Row]) -> list[str]:
    return [str(number) if number else "-" for number in ledger.counts(rows).values()]


def failures(ledger: Ledger) -> Iterator[str]:
    """Each unexpected failure: the row, its level, and what is wrong."""
    for row in ledger.failures():
        yield f"{row.level.word.upper()} {row.id}"
        yield from (f"    {line}".rstrip() for line in row.message.splitlines())
        yield ""
    for row_name, where in ledger.unknown.items():
        yield f"STALE {row_name}"
        yield f"    {where}: no row has this name"
        yield ""


def not_claimed(ledger: Ledger) -> Iterator[str]:
    """What the device does not claim, each once, with the number of rows that asked for it."""
    found: dict[str, int] = {}
    for row in ledger.judged():
        if row.result == "not claimed":
            found[row.reason] = found.get(row.reason, 0) + 1
    for reason in sorted(found):
        yield f"not claimed: {reason} ({found[reason]} row{'s' if found[reason] > 1 else ''})"


def others(ledger: Ledger) -> Iterator[str]:
    """Rows that failed as expected, and those that were skipped, with the reasons."""
    for row in ledger.judged():
        if row.result in ("expected", "skipped"):
            yield f"{row.result}: {row.id}: {row.reason}"


def verdict(ledger: Ledger, facts: Facts) -> str:
    """The last line."""
    what = facts.device + (f" with {facts.pair}" if facts.pair else "")
    levels = " and ".join(level.word for level in Level if level <= ledger.decides)
    if not ledger.rows:
        return f"{what}: no row was run"
    if not ledger.fails():
        return f"{what} passes every row of {levels} that applies to it"
    failed = [row for row in ledger.failures() if row.level <= ledger.decides]
    return f"{what} fails: {len(failed)} rows of {levels}, {len(ledger.unknown)} stale entries"
