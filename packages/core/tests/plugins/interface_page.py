"""docs/api.md, made of the docstrings: what `opgraft.api` exports, and since which API.

The page keeps what it says of "since": a name that is not on it yet is as old as the API is now.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import interface

from opgraft import api
from opgraft.plugins import hookspecs

PAGE: Final = Path(__file__).parents[4] / "docs" / "api.md"

AREAS: Final[dict[str, tuple[str, ...]]] = {
    "Devices": ("DeviceSpec", "Probe", "Device"),
    "Memory": ("Allocator", "KeepingAllocator", "Buffer"),
    "Compilers": ("CompilerPair", "Compiler", "CompilerSet", "compile_cache"),
    "Programs and launches": (
        "Program",
        "Executable",
        "LaunchList",
        "Step",
        "InputPlace",
        "input_places",
        "check_inputs",
        "compile_kernel",
        "compile_kernels",
        "compile_linear",
        "over_limits",
        "is_watched",
        "show_launch",
    ),
    "What a device can do": (
        "Target",
        "MatrixUnit",
        "MatrixLayout",
        "DotUnit",
        "DType",
        "dtypes",
        "Scalar",
    ),
    "From instructions to source": (
        "Renderer",
        "CStyleRenderer",
        "VectorRenderer",
        "CRenderer",
        "Writer",
    ),
    "The IR": (
        "UOp",
        "Ops",
        "GroupOp",
        "AxisKind",
        "Space",
        "KernelInfo",
        "LinearProgram",
        "parse_linear",
        "linear_to_text",
        "node_to_text",
        "evaluate",
        "value_to_bits",
        "array_shape",
    ),
    "Rules and optimizers": (
        "UPat",
        "PatternMatcher",
        "EqualitySet",
        "graph_rewrite",
        "symbolic_simple",
        "symbolic",
        "sym",
        "simplify",
        "Optimizer",
        "OptimizerSpec",
        "Optimized",
        "Budget",
        "CostModel",
        "Stage",
        "Loops",
        "alternatives_at",
        "measured_prices",
    ),
    "Settings, commands, errors": (
        "declare",
        "using",
        "Setting",
        "settings",
        "Command",
        "Calibration",
        "hookimpl",
        "errors",
    ),
    "Processes": ("ForkLock", "renewed_in_children"),
}
"""The exports in the order of the page. One that stands nowhere here comes last."""

OWN_WORDS: Final = {
    "Scalar": "A value of a scalar dtype.",
    "Stage": "When equalities are applied: index and scalar of a kernel, tensor of a graph.",
    "Step": "A launch in a list: what, with which buffers, with which values of its variables.",
    "hookimpl": "Marks a hook; needed only to pass options to pluggy.",
    "sym": "All built-in equalities.",
    "symbolic": "Equalities of integers, booleans and indices, without the costly ones.",
    "symbolic_simple": "The cheapest equalities: constants, neutral elements.",
}
"""For what has no docstring of its own."""

HEAD: Final = """\
# The plugin interface

What `opgraft.api` exports and which hooks there are, since which version of the interface. It is
all that a plugin may import of opgraft. The version now is {version}; a plugin says for which it
was written (`API = {api}`). Within a major version names are only added, arguments too, with a
default; a minor version says that some were. What is no longer good stays until the next major.

This page is made of the docstrings, by `python packages/core/tests/plugins/interface.py --record`,
which also records every signature: a test fails where one changes and the version does not.
[Writing a backend](backend.md) and [writing a rule](rules.md) explain how it is meant.
"""


def page(before: str) -> str:
    """The page; `before` is what it was, for what it says of "since"."""
    known = since(before)
    version = f"{api.API[0]}.{api.API[1]}"
    lines = [HEAD.format(version=version, api=api.API)]

    def row(owner: str, name: str, shown: str, what: str) -> str:
        old = known.get((owner, name), version)
        return f"| `{shown}` | {old} | {what} |".replace("  ", " ")

    lines += ["## Hooks", "", "| hook | since | what |", "|---|---|---|"]
    for hook in hookspecs.HOOKS:
        found = getattr(hookspecs, hook)
        lines.append(row("", hook, _escaped(hook + _arguments(found)), words(found)))
    listed = [name for names in AREAS.values() for name in names]
    rest = tuple(n for n in sorted(api.__all__) if n not in listed and n != "API")
    for title, names in {**AREAS, **({"Others": rest} if rest else {})}.items():
        lines += ["", f"## {title}", "", "| name | since | what |", "|---|---|---|"]
        for name in names:
            found = getattr(api, name)
            shown = name + (_escaped(_arguments(found)) if inspect.isfunction(found) else "")
            lines.append(row("", name, shown, OWN_WORDS.get(name) or words(found)))
        for name in names:
            table = list(members(name, getattr(api, name)))
            if table:
                lines += ["", f"### {name}", "", "| member | since | what |", "|---|---|---|"]
                lines += [row(name, member, shown, what) for member, shown, what in table]
    return "\n".join(lines) + "\n"


def since(text: str) -> dict[tuple[str, str], str]:
    """What a page says: the version by section and name, that of the exports under no section."""
    found: dict[tuple[str, str], str] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("#"):
            section = line.removeprefix("### ") if line.startswith("### ") else ""
        elif match := re.match(r"\| `([\w.]+)[^|`]*(?:\\\|[^|`]*)*` \| (\d+\.\d+) \|", line):
            found[section, match[1]] = match[2]
    return found


def members(name: str, found: Any) -> Iterator[tuple[str, str, str]]:
    """The members of an export: name, how it is written, what it is."""
    if isinstance(found, types.ModuleType):
        for line in interface.export(name, found):
            match = re.match(r"  (?:class|function|object) (\w+)", line)
            if match and match[1] not in api.__all__:
                thing = getattr(found, match[1])
                shown = match[1] + (_arguments(thing) if inspect.isfunction(thing) else "")
                yield match[1], _escaped(shown), words(thing)
    elif inspect.isclass(found) and issubclass(found, enum.Enum):
        for member in found:
            yield member.name, member.name, ""
    elif inspect.isclass(found) and name != "GroupOp":
        told = {**_told(found)}
        for line in list(interface.export(name, found))[1:]:
            match = re.match(r"  (?:\w+ )*?(\w+)((?:\(.*)|(?:: .*)|(?: -> .*)|)$", line)
            assert match, line
            member, form = match[1], match[2]
            if member == "__init__":
                member, form = name, re.sub(r" -> None$", "", form)
            elif line.startswith("  field"):
                form = re.sub(r"ClassVar\[(.*)\]$", r"\1", form)
            thing = inspect.getattr_static(found, match[1], None)
            what = told.get(match[1]) or ("" if match[1] == "__init__" else words(thing))
            if "abstract" in line.split(match[1])[0]:
                what = f"To be written. {what}"
            yield member, _escaped(member + form), what


def words(thing: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    if thing is None or isinstance(thing, (str, int, float, dict, tuple, frozenset)):
        return ""
    text = inspect.getdoc(thing) or ""
    if inspect.ismemberdescriptor(thing) or text.startswith("Alias for field"):
        return ""
    return _escaped(" ".join(text.partition("\n\n")[0].split()))


def _told(found: type) -> dict[str, str]:
    """The strings that stand after the fields of a class and of what it is made of."""
    told: dict[str, str] = {}
    for base in reversed([b for b in found.__mro__ if b.__module__.startswith("opgraft")]):
        (made,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(made, ast.ClassDef)
        for one, after in zip(made.body, made.body[1:]):
            if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                told[one.target.id] = _escaped(" ".join(str(after.value.value).split()))
    return told


def _arguments(function: Any) -> str:
    return interface.signature(function)


def _escaped(text: str) -> str:
    """As a cell of a table takes it."""
    return text.replace("|", "\\|")
