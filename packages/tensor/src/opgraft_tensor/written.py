"""Functions that are written for one case: what is the same at each call stands in their text.

A function that takes a few microseconds is mostly loops over short lists, look-ups of what never
changes, and questions whose answer is known. Written out for its case it has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple


class Text:
    """The lines of a function, and the objects that they name."""

    def __init__(self, **objects: Any) -> None:
        """`objects`: what lines may name as it is here."""
        self.level = 1
        """Of the next lines' indentation."""
        self.lines: Final[list[str]] = []
        self._objects: Final = objects
        self._names: Final[dict[tuple[str, int], str]] = {}

    def name(self, stem: str, value: Any) -> str:
        """The name of an object: the stem and a number."""
        known = self._names.get((stem, id(value)))
        if known is None:
            known = self._names[stem, id(value)] = f"{stem}{len(self._names)}"
            self._objects[known] = value  # which keeps it alive, and its id its own
        return known

    def add(self, *lines: str) -> None:
        self.lines.extend("    " * self.level + line for line in lines)

    def empty(self) -> Text:
        """A text without lines that names the same objects alike."""
        made = Text(**self._objects)
        made._names.update(self._names)
        return made

    def function(self, head: str) -> Function:
        """The function of this head, which is its name and its parameters."""
        text = "\n".join([f"def {head}:", *self.lines, ""])
        names = dict(self._objects)
        exec(compile(text, "<written by opgraft>", "exec"), names)
        return Function(names.pop(head.partition("(")[0]), text)  # which leaves no cycle


class Function(NamedTuple):
    """A function, and the text that it was written as."""

    call: Callable[..., Any]
    text: str


def listed(items: Sequence[str]) -> str:
    """Items as they stand in a tuple."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
