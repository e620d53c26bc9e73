"""The plugin interface as a text: every export of `opgraft.api`, member by member, and the hooks.

    python packages/core/tests/plugins/interface.py             what has changed since the record
    python packages/core/tests/plugins/interface.py --record    record it as it is now, and write
                                                                docs/api.md anew

The recorded text, `interface.txt`, begins with the API number that it belongs to. An interface
that was released (recorded in a tagged version) is never recorded anew under its number: additions
need a greater minor number in `opgraft/plugins/handshake.py`, anything else a greater major.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import enum
import inspect
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from opgraft import api
from opgraft.plugins import hookspecs

RECORD = Path(__file__).with_name("interface.txt")
ADVICE = "python packages/core/tests/plugins/interface.py --record"


# ---- the text


def describe() -> str:
    """The interface now, one line for each thing that a plugin can rely on."""
    lines = [f"API {api.API[0]}.{api.API[1]}", ""]
    lines += [f"hook {hook}{signature(getattr(hookspecs, hook))}" for hook in hookspecs.HOOKS]
    for name in sorted(api.__all__):
        if name != "API":
            lines += ["", *export(name, getattr(api, name))]
    return "\n".join(lines) + "\n"


def export(name: str, found: Any) -> Iterator[str]:
    """The lines of one export."""
    if isinstance(found, types.ModuleType):
        yield f"module {name}"
        for inner, thing in sorted(vars(found).items()):
            ours = getattr(thing, "__module__", "") == found.__name__
            if _public(inner) and ours and not isinstance(thing, (TypeVar, ParamSpec)):
                yield from (f"  {line}" for line in export(inner, thing))
    elif inspect.isclass(found):
        yield from _class(name, found)
    elif inspect.isfunction(found):
        yield f"function {name}{signature(found)}"
    elif type(found).__module__.startswith("opgraft"):
        yield f"object {name}: {type(found).__name__}"
    else:
        alias = isinstance(found, (types.UnionType, str))
        yield f"name {name}: {found if alias else type(found).__name__}"


def _class(name: str, found: type) -> Iterator[str]:
    ours = [base for base in found.__mro__ if base.__module__.startswith("opgraft")]
    above = [base.__name__ for base in ours[1:]]
    yield f"class {name}" + (f"({', '.join(above)})" if above else "")
    members: dict[str, str] = {}
    for base in reversed(ours):
        for member in (*vars(base).get("__annotations__", {}), *vars(base)):
            if _public(member) or member in ("__init__", "__call__", "__getitem__"):
                line = _member(found, member)
                if line:
                    members[member] = line
        for member in _set_in_init(base):
            members.setdefault(member, f"attribute {member}")
    if issubclass(found, enum.Enum):
        members = {m.name: m.name for m in found}
    nearest = next((base for base in ours[1:] if _listed(base)), None)
    if nearest is not None:  # whose own entry has the rest
        known = {line.strip() for line in _class("", nearest)} | set(_set_in_init(nearest))
        members = {m: line for m, line in members.items() if not {m, line} & known}
    yield from (f"  {members[member]}" for member in sorted(members))


def _listed(base: type) -> bool:
    """Whether a class has an entry of its own."""
    return any(getattr(place, base.__name__, None) is base for place in (api, api.errors))


def _set_in_init(owner: type) -> list[str]:
    """Public attributes that the class itself sets when an instance is made."""
    function = vars(owner).get("__init__")
    if not inspect.isfunction(function) or dataclasses.is_dataclass(owner):
        return []
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and _public(node.attr)
    ]


def _member(owner: type, name: str) -> str:
    """A member of a class; empty for what is no promise."""
    thing = inspect.getattr_static(owner, name, None)
    if thing is None and not any(name in vars(b).get("__annotations__", {}) for b in owner.__mro__):
        return ""
    if isinstance(thing, (staticmethod, classmethod)):
        return f"{type(thing).__name__} {name}{signature(thing.__func__)}"
    if isinstance(thing, property):
        return f"property {name} -> {_annotation(thing.fget, 'return')}"
    if isinstance(thing, cached_property):
        return f"property {name} -> {_annotation(thing.func, 'return')}"
    if inspect.isfunction(thing):
        if name == "__init__" and (dataclasses.is_dataclass(owner) or _named_tuple(owner)):
            return ""  # its fields say it
        if not thing.__module__.startswith("opgraft"):
            return ""  # what Python puts into protocols and the like
        mark = "abstract " if getattr(thing, "__isabstractmethod__", False) else ""
        return f"{mark}method {name}{signature(thing)}"
    if inspect.isclass(thing):
        return ""
    return f"field {name}: {_stated(owner, name)}{_default(owner, name)}"


def _stated(owner: type, name: str) -> str:
    """The annotation of a field, as it is written; of one that has none, what it is."""
    for base in owner.__mro__:
        if name in vars(base).get("__annotations__", {}):
            return _text(vars(base)["__annotations__"][name])
    return type(inspect.getattr_static(owner, name)).__name__


def _default(owner: type, name: str) -> str:
    """The default of a field that is an argument of the class, too."""
    if dataclasses.is_dataclass(owner):
        field = {f.name: f for f in dataclasses.fields(owner)}.get(name)
        if field is not None and field.default is not dataclasses.MISSING:
            return f" = {_value(field.default)}"
        if field is not None and field.default_factory is not dataclasses.MISSING:
            return " = made anew"
    elif _named_tuple(owner) and name in owner._field_defaults:  # type: ignore[attr-defined]
        return f" = {_value(owner._field_defaults[name])}"  # type: ignore[attr-defined]
    return ""


def signature(function: Any) -> str:
    """Parameters and result, as they are written."""
    shown = []
    last = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self" or parameter.name == "cls":
            continue
        text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and last not in ("*", parameter.KEYWORD_ONLY):
            shown.append("*")
        last = "*" if parameter.kind is parameter.VAR_POSITIONAL else parameter.kind
        text += parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_value(parameter.default)}"
        shown.append(text)
    return f"({', '.join(shown)}) -> {_annotation(function, 'return')}"


def _annotation(function: Any, name: str) -> str:
    return _text(getattr(function, "__annotations__", {}).get(name, "not said"))


def _text(annotation: Any) -> str:
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)


def _value(value: Any) -> str:
    """A default, the same in every process: sets in order, functions without their address."""
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(_value, value))) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_value, value)) + ")"
    if inspect.isroutine(value) or inspect.isclass(value):
        return "a function" if value.__name__ == "<lambda>" else value.__name__
    if isinstance(value, enum.Enum):
        return value.name
    return str(value) if type(value).__module__.startswith("opgraft") else repr(value)


def _public(name: str) -> bool:
    return not name.startswith("_")


def _named_tuple(found: type) -> bool:
    return issubclass(found, tuple) and hasattr(found, "_field_defaults")


# ---- recording it


def number(text: str) -> tuple[int, ...]:
    """The API number that a text belongs to; that of an empty one is ()."""
    found = re.match(r"API (\d+)\.(\d+)\n", text)
    return tuple(map(int, found.groups())) if found else ()


def released(repository: Path) -> dict[tuple[int, ...], str]:
    """The interfaces in the tagged versions, the last of each number."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(repository), *words], capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else ""

    place = "packages/core/tests/plugins/interface.txt"
    tags = git("tag", "--list", "v*", "--sort=creatordate").split()
    texts = [git("show", f"{tag}:{place}") for tag in tags]
    return {number(text): text for text in texts if text}


def refusal(now: str, before: Mapping[tuple[int, ...], str]) -> str:
    """Why an interface cannot be recorded, given what was released; empty: it can."""
    api_now = number(now)
    if api_now in before and before[api_now] != now:
        return (
            f"API {'.'.join(map(str, api_now))} was released with another interface: what is added "
            "needs a greater minor number in opgraft/plugins/handshake.py, any other change a "
            "greater major"
        )
    same_major = [n for n in before if n[:1] == api_now[:1] and n < api_now]
    if same_major:
        lost = sorted(set(_names(before[max(same_major)])) - set(_names(now)))
        if lost:
            return f"{', '.join(lost)}: taking away needs a greater major number"
    return ""


def _names(text: str) -> Iterator[str]:
    """The names of a text, members with their class."""
    owner = ""
    for line in text.splitlines():
        kinds = "hook|class|module|function|object|name|abstract|method|field|property|attribute"
        found = re.match(rf"( *)(?:(?:{kinds}|staticmethod|classmethod) )*(\w+)", line)
        if found and found[2] != "API":
            owner = found[2] if not found[1] else owner
            yield f"{owner}.{found[2]}" if found[1] else found[2]


def difference(before: str, now: str) -> str:
    """What has changed, line by line."""
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=0
    )
    return "\n".join(lines)


def main() -> int:
    """Show what has changed, or record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="record the interface as it is now")
    now = describe()
    before = RECORD.read_text(encoding="utf-8") if RECORD.exists() else ""
    print(difference(before, now) or "nothing has changed")
    if not parser.parse_args().record:
        return int(before != now)
    why = refusal(now, released(RECORD.parents[4]))
    if why:
        print(f"not recorded: {why}", file=sys.stderr)
        return 1
    import interface_page  # late: it imports this module

    RECORD.write_text(now, encoding="utf-8")
    told = interface_page.PAGE.read_text(encoding="utf-8") if interface_page.PAGE.exists() else ""
    interface_page.PAGE.write_text(interface_page.page(told), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
