"""How the text form writes the arguments of nodes, and how it reads them.

Numbers, strings, tuples, none, true and false are written as one expects; members of `Ops`,
`AxisKind` and `Space` as their names in lower case; dtypes as `dtypes.float32x4`; dataclasses
that are known here as `KernelInfo("name", none)`. Anything else is written between angle
brackets and cannot be read back.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from opgraft.dtype import DType, to_dtype
from opgraft.errors import ParseError
from opgraft.forking import ForkLock
from opgraft.ir.linear import KernelInfo
from opgraft.ir.matrix import DotUnit, MatrixLayout, MatrixUnit
from opgraft.ir.ops import AxisKind, Ops, Space

_ENUMS: Final[tuple[type[Enum], ...]] = (AxisKind, Space, Ops)  # the first that has a name wins
_MEMBERS: Final[dict[str, Enum]] = {
    name.lower(): member for kind in reversed(_ENUMS) for name, member in kind.__members__.items()
}
_CLASSES: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in (KernelInfo, DotUnit, MatrixLayout, MatrixUnit)
}
_ROOMS: Final = ("opgraft.opt",)
"""Packages whose modules make further classes known. They import this one, so they are imported
when a text names what is not known so far: a schedule, read before anything is compiled."""
_lock: Final = ForkLock()
_Class = TypeVar("_Class")


def writable_as_text(kind: type[_Class]) -> type[_Class]:
    """Let the text form write and read a dataclass as an argument; usable as a decorator.

    Its values are written by place: `Name(first field, second field, ...)`.
    """
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass")
    with _lock:
        known = _CLASSES.setdefault(kind.__name__, kind)
    if known is not kind and known.__qualname__ != kind.__qualname__:
        raise ValueError(f"the text form knows another class {kind.__name__} already: {known}")
    return kind


def format_value(value: Any) -> str:
    """`value` as the text form writes it.

    >>> format_value(("i", AxisKind.LOOP, -0.0, None))
    '("i", loop, -0.0, none)'
    """
    kind = type(value)
    if value is None or kind is bool:
        return str(value).lower()
    if kind is int or kind is float:
        return repr(value)
    if kind is str:
        return _quoted(value)
    if kind is tuple:
        return f"({format_values(value)})"
    if isinstance(value, Enum) and kind in _ENUMS:
        name = value.name.lower()
        return name if _MEMBERS[name] is value else f"{kind.__name__}.{value.name}"
    if kind is DType:
        return f"dtypes.{value}"
    if _CLASSES.get(kind.__name__) is kind:
        parts = [format_value(getattr(value, f.name)) for f in dataclasses.fields(value)]
        return f"{kind.__name__}({', '.join(parts)})"
    plain = re.sub(r"[<>\n]", " ", f"{kind.__name__} {value!r}")
    return f"<{plain}>"


def format_values(values: tuple[Any, ...]) -> str:
    """The parts of a tuple without its parentheses; of one part, with a comma after it."""
    return ", ".join(map(format_value, values)) + ("," if len(values) == 1 else "")


_SHORT: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
_LONG: Final = {"n": "\n", "t": "\t"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-f]{4}|U[0-9a-f]{8}|.)")


def _quoted(value: str) -> str:
    """In double quotes on one line: whatever could end a line is escaped."""
    parts = [
        _SHORT.get(c)
        or (
            c if c.isprintable() else f"\\u{ord(c):04x}" if c < "\U00010000" else f"\\U{ord(c):08x}"
        )
        for c in value
    ]
    return f'"{"".join(parts)}"'


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _LONG.get(code, code)


_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>[-+]?(?:inf\b|nan\b|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<name>%?[A-Za-z_0-9][A-Za-z_0-9.]*)
    | (?P<object><[^>]*>)
    | (?P<comment>\#.*)
    | (?P<mark>[()\[\],:=])
    | (?P<end>$)
    | (?P<other>.)
    )""",
    re.VERBOSE,
)


class Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, text: str, number: int) -> None:
        self.text, self.number = text, number
        self._tokens: Iterator[re.Match[str]] = _TOKEN.finditer(text)
        self._advance()

    def _advance(self) -> None:
        found = next(self._tokens)
        kind = found.lastgroup or "end"
        self.kind = "end" if kind == "comment" else kind
        self.token = "" if self.kind == "end" else found[kind]
        self.column = found.start(kind) + 1

    def take(self) -> str:
        token = self.token
        if self.kind == "other":
            self.fail("a number, string, name or one of ()[],:=")
        if self.kind != "end":
            self._advance()
        return token

    def accept(self, token: str) -> bool:
        """Take `token` if it comes next and is not a string."""
        if self.token != token or self.kind == "string":
            return False
        self.take()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"{token!r}")

    def finish(self) -> None:
        if self.kind != "end":
            self.fail("the end of the line")

    def fail(self, expected: str) -> NoReturn:
        found = f"{self.token!r}" if self.kind != "end" else "the end of the line"
        raise ParseError(
            f"line {self.number}, column {self.column}: expected {expected}, found {found}",
            remedy=f"  {self.text.strip()}",
        )


def read_number(line: Line) -> int | float:
    if line.kind != "number":
        line.fail("a number")
    token = line.take()
    if token.lstrip("+-").isdigit():
        return int(token)
    return float(token) if "nan" not in token else math.nan


def read_dtype(line: Line) -> DType:
    name = line.token
    try:
        found = to_dtype(name)
    except TypeError:
        line.fail("a dtype")
    line.take()
    return found


def read_value(line: Line) -> Any:
    """The value that comes next, as `format_value` writes it."""
    if line.kind == "number":
        return read_number(line)
    if line.kind == "string":
        return _ESCAPE.sub(_unescaped, line.take()[1:-1])
    if line.accept("("):
        return read_values(line, ")")
    if line.kind == "object":
        line.fail("a value; an object in <> cannot be read back from text")
    if line.kind != "name":
        line.fail("a value")
    return _read_named(line)


_WORDS: Final[dict[str, Any]] = {"none": None, "true": True, "false": False}


def _read_named(line: Line) -> Any:
    name = line.token
    if name in _WORDS:
        line.take()
        return _WORDS[name]
    if name in _MEMBERS:
        line.take()
        return _MEMBERS[name]
    first, _, rest = name.partition(".")
    if first == "dtypes":
        try:
            found: Any = to_dtype(rest)
        except TypeError:
            line.fail("a dtype")
        line.take()
        return found
    for kind in _ENUMS:
        if first == kind.__name__ and rest in kind.__members__:
            line.take()
            return kind[rest]
    if name not in _CLASSES and name.isidentifier():
        _import_rooms()
    if name not in _CLASSES:
        line.fail(f"a value; names known here: {', '.join([*_WORDS, *_CLASSES])}, ops, kinds")
    line.take()
    line.expect("(")
    values = read_values(line, ")")
    try:
        made = _CLASSES[name](*values)
    except TypeError as problem:
        raise ParseError(f"line {line.number}: {name}: {problem}") from problem
    for field, wanted in _types(name).items():
        value = getattr(made, field)
        if not _fits(value, wanted):
            plain = isinstance(wanted, type) and get_origin(wanted) is None
            shown = f"{field} is {format_value(value)}, not of the type "
            shown += wanted.__name__ if plain else str(wanted)
            raise ParseError(f"line {line.number}: {name}: {shown}")
    return made


def _import_rooms() -> None:
    for room in _ROOMS:
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__):
            importlib.import_module(f"{room}.{module.name}")


@functools.cache
def _types(name: str) -> dict[str, Any]:
    """The types of the fields of a class that is known; of none where some can't be told."""
    made = _CLASSES[name]
    try:
        hints = get_type_hints(made)
    except NameError:  # they are imported for type checkers alone
        return {}
    return {f.name: hints[f.name] for f in dataclasses.fields(made)}


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is of a type, as far as types of arguments go: numbers, members, tuples."""
    if wanted is int:
        return type(value) is int
    if isinstance(wanted, type) and get_origin(wanted) is None:
        return isinstance(value, wanted)
    if get_origin(wanted) is not tuple:
        return True
    parts = get_args(wanted)
    if not isinstance(value, tuple):
        return False
    if parts[-1] is Ellipsis:
        return all(_fits(part, parts[0]) for part in value)
    return len(value) == len(parts) and all(map(_fits, value, parts))


def read_values(line: Line, closing: str) -> tuple[Any, ...]:
    """Values up to `closing`, as a tuple."""
    values: list[Any] = []
    while not line.accept(closing):
        values.append(read_value(line))
        if not line.accept(","):
            line.expect(closing)
            break
    return tuple(values)


def format_argument(value: Any) -> str:
    """The `arg` or `tag` of a node in brackets; a tuple without its parentheses."""
    if type(value) is tuple and value:
        return f"[{format_values(value)}]"
    return f"[{format_value(value)}]"


def read_argument(line: Line) -> Any:
    """What `format_argument` wrote, after its opening bracket."""
    first = read_value(line)
    if line.accept("]"):
        return first
    line.expect(",")
    return (first, *read_values(line, "]"))
