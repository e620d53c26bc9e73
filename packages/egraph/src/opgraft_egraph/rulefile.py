"""Rules as text, a line each, over terms written as S-expressions.

    # comments and empty lines are skipped
    commute:  (+ ?a ?b) => (+ ?b ?a)
    factor:   (+ (* ?a ?b) (* ?a ?c)) <=> (* ?a (+ ?b ?c))
    one:      (/ ?a ?a) => 1                  if ?a is nonzero
    powers:   (^ (^ ?a ?m) ?n) => (^ ?a (* ?m ?n))   if ?m is number, ?n is number

A name and a colon, what may be rewritten, `=>` (or `<=>`: both ways), what by, and conditions on
the variables, which begin with `?`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from opgraft.api import errors
from opgraft_egraph.terms import Rewrite

_LINE: Final = re.compile(
    r"(?P<name>[^\s:]+)\s*:\s+(?P<left>.*?)\s+(?P<arrow><=>|=>)\s+(?P<right>.*?)"
    r"(?:\s+if\s+(?P<conditions>\?.*))?"
)
_CONDITION: Final = re.compile(r"(?P<name>\?[^\s,]+)\s+is\s+(?P<kind>number|nonzero)")


def read_rules(path: str | Path) -> list[Rewrite]:
    """The rules in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise errors.ParseError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.ParseError(f"{path} is no text in UTF-8: {error}") from error
    return parse_rules(text, str(path))


def parse_rules(text: str, name: str = "rules") -> list[Rewrite]:
    """The rules in a text.

    >>> for rule in parse_rules("double: (+ ?a ?a) <=> (* 2 ?a)"):
    ...     print(rule)
    double ((+ ?a ?a) -> (* 2 ?a))
    double-reversed ((* 2 ?a) -> (+ ?a ?a))
    """
    found: list[Rewrite] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.partition("#")[0].strip()
        if stripped:
            try:
                found += _rules_of(stripped)
            except errors.OpgraftError as error:
                raise errors.ParseError(f"{name}, line {number}: {error}") from error
    return found


def _rules_of(line: str) -> list[Rewrite]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise errors.ParseError(f"{line!r} is not of the form `name: left => right`")
    name, left, right = match["name"], match["left"], match["right"]
    asked: dict[str, list[str]] = {"number": [], "nonzero": []}
    for part in (match["conditions"] or "").split(","):
        condition = _CONDITION.fullmatch(part.strip())
        if condition is not None:
            asked[condition["kind"]].append(condition["name"])
        elif part.strip():
            raise errors.ParseError(
                f"{part.strip()!r} is no condition: `?x is number` and `?x is nonzero` are"
            )
    numbers, nonzero = tuple(asked["number"]), tuple(asked["nonzero"])
    rules = [Rewrite(name, left, right, constant=numbers, nonzero=nonzero)]
    if match["arrow"] == "<=>":
        turned = Rewrite(f"{name}-reversed", right, left, constant=numbers, nonzero=nonzero)
        rules.append(turned)
    return rules
