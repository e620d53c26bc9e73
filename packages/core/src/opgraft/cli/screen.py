"""What commands print: with colours and fitted tables on a terminal that has rich, else plain.

Plain text is for pipes and files: no colours, no lines drawn, nothing cut off.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

STYLES: Final[Mapping[str, str]] = {
    "works": "bold green",
    "loaded": "green",
    "found": "green",
    "runs": "green",
    "compiles": "green",
    "fails": "bold red",
    "broken": "bold red",
    "crashed": "bold red",
    "refused": "red",
    "clash": "red",
    "blocked": "yellow",
    "absent": "dim",
}
"""Words of state and how they look, wherever they stand alone in a cell."""


class Screen(Protocol):
    """Where a command's output goes."""

    def heading(self, text: str) -> None:
        """A line that opens a section."""

    def line(self, text: str = "") -> None:
        """A line as it is."""

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under a head; the last column may be long."""

    def code(self, text: str, language: str) -> None:
        """Source text."""


class Plain:
    """For pipes, files, and terminals without rich."""

    def heading(self, text: str) -> None:
        print(text)

    def line(self, text: str = "") -> None:
        print(text)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        shown = [tuple(h.upper() for h in head), *(tuple(c.replace("\n", " ") for c in r)
                                                   for r in rows)]  # fmt: skip
        widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
        for row in shown:
            cells = [cell.ljust(width) for cell, width in zip(row, widths)]
            print("  ".join(cells).rstrip())

    def code(self, text: str, language: str) -> None:
        print(text.rstrip("\n"))


class Rich:
    """For a terminal, where rich is installed (`pip install "opgraft-core[cli]"`)."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.syntax import Syntax
        from rich.table import Table
        from rich.text import Text

        self._console = Console(highlight=False)
        self._table, self._text, self._syntax = Table, Text, Syntax

    def heading(self, text: str) -> None:
        self._console.print(self._text(text, style="bold"))

    def line(self, text: str = "") -> None:
        self._console.print(self._text(text))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = self._table(box=None, pad_edge=False, header_style="dim")
        for number, title in enumerate(head):
            table.add_column(title, overflow="fold", no_wrap=number < len(head) - 1)
        for row in rows:
            table.add_row(*(self._text(cell, style=STYLES.get(cell, "")) for cell in row))
        self._console.print(table)

    def code(self, text: str, language: str) -> None:
        self._console.print(self._syntax(text.rstrip("\n"), language, background_color="default"))


def screen() -> Screen:
    """The screen for where stdout goes. rich is looked at only if that is a terminal."""
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        return Rich()
    return Plain()
