"""Forms of the values of settings: each makes a value from what code or the environment gave.

They raise ValueError with a phrase that completes "NAME takes ...".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final


def flag(value: object) -> bool:
    """Yes or no: True, 1, "on", "0", "false"."""
    if isinstance(value, str):
        given = value.strip().lower()
        if given in ("1", "true", "yes", "on"):
            return True
        if given in ("0", "false", "no", "off"):
            return False
    elif isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise ValueError("0 or 1")


def optional_flag(value: object) -> bool | None:
    """The same, or None."""
    return None if value is None else flag(value)


def text(value: object) -> str:
    """Any text, or a path."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise ValueError("a string")


def count(value: object) -> int:
    """A number of things, 0 or more."""
    try:
        number = int(value) if isinstance(value, (str, int)) else -1
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError("a whole number, 0 or more")
    return number


_SIZE: Final = re.compile(r"\s*(\d+)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)


def size(value: object) -> int:
    """Bytes: 1000000, "512M", "2 GiB"."""
    found = _SIZE.fullmatch(str(value)) if isinstance(value, (str, int)) else None
    if found is None:
        raise ValueError('a size in bytes such as 500000, "512M" or "2G"')
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2].upper()]


def names(value: object) -> tuple[str, ...] | None:
    """A list of names: "a,-b" or ("a", "-b")."""
    if value is None:
        return None
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ValueError('a list such as "this,-that"')
    result = tuple(str(p).strip().lower() for p in parts)
    return tuple(p for p in result if p)


def word(value: object) -> str:
    """A name, without the blanks around it."""
    if isinstance(value, str):
        return value.strip()
    raise ValueError("a name")


def lower_word(value: object) -> str:
    """A name in lower case."""
    return word(value).lower()


def closest(word: str, choices: Iterable[str], most: int, cutoff: float) -> list[str]:
    """The choices that are spelt like the word, the nearest first."""
    import difflib  # late: only an error needs it, and every process imports this module

    return difflib.get_close_matches(word, list(choices), most, cutoff)
