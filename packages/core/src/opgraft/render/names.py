"""Names that every language of the C family takes, one for each name that a user may give."""

from __future__ import annotations

from typing import Final

from opgraft.digest import blake2b

LONGEST: Final = 64
"""No identifier is longer: linkers and drivers have limits, and so do readers."""


def identifier(name: str) -> str:
    """A C identifier for any text; different texts give different identifiers.

    The prefix keeps clear of keywords, built-in functions and reserved names of all dialects,
    so no list of them is needed. Letters, digits and single underscores within the name stand
    for themselves; Z is written ZZ, anything else is written Z, its code in hexadecimal, z. A long
    name keeps its beginning and gets a digest (after Zh, which no other name contains).

    >>> identifier("softmax_4096"), identifier("if"), identifier("a b"), identifier("__x")
    ('og_softmax_4096', 'og_if', 'og_aZ20zb', 'og_Z5fzZ5fzx')
    """
    parts: list[str] = []
    last = len(name) - 1
    for at, char in enumerate(name):
        if _plain(char):
            parts.append("ZZ" if char == "Z" else char)
        elif char == "_" and 0 < at < last and _plain(name[at - 1]) and _plain(name[at + 1]):
            parts.append("_")
        else:
            parts.append(f"Z{ord(char):x}z")
    text = "og_" + ("".join(parts) or "Zz")
    if len(text) <= LONGEST:
        return text
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: LONGEST - 18]}Zh{digest}"


def _plain(char: str) -> bool:
    return char.isascii() and char.isalnum()
