"""`Fault`: a failure in words that lead to what is wrong, in place of a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opgraft.api import Executable, Program

LONGEST_SOURCE: Final = 120
"""Lines of a kernel's source that a message shows."""

LONGEST_HEAD: Final = 20
"""Lines of those before the kernel itself: renderers put types, helpers, a runtime there."""


class Fault(AssertionError):
    """The device is at fault. `what` says in one line what is wrong.

    `facts` are lines "name: value" below it, in order; values that are None are left out.
    `kernel` (an executable or a program) has its source shown; `hint` says where to look.

    >>> print(Fault("ADD of int8 is wrong", dict(values="100 + 100", got=200, expected=-56)))
    ADD of int8 is wrong
      values:   100 + 100
      got:      200
      expected: -56
    """

    def __init__(
        self,
        what: str,
        facts: Mapping[str, Any] | None = None,
        *,
        kernel: Executable | Program | None = None,
        hint: str = "",
    ) -> None:
        lines = [what]
        shown = {k: v for k, v in (facts or {}).items() if v is not None}
        width = max((len(name) for name in shown), default=0) + 1
        for name, value in shown.items():
            first, *more = str(value).split("\n")
            lines.append(f"  {name + ':':<{width}} {first}".rstrip())
            lines += [f"  {'':<{width}} {line}".rstrip() for line in more]
        if hint:
            lines.append(f"  look at: {hint}")
        lines += _source(kernel)
        super().__init__("\n".join(lines))
        self.what = what
        self.facts = shown
        self.hint = hint


def _source(kernel: Executable | Program | None) -> list[str]:
    if kernel is None:
        return []
    program = kernel if isinstance(kernel, Program) else kernel.program
    source = program.source.splitlines()
    if not source:
        return [f"  kernel {program.name!r} has no source"]
    name = program.entry or program.name
    at = next((place for place, line in enumerate(source) if name in line), 0)
    begin = max(0, at - LONGEST_HEAD)
    shown = [f"  | {line}" for line in source[begin : begin + LONGEST_SOURCE]]
    if begin:
        shown.insert(0, f"  | ... {begin} lines before, and")
    if len(source) - begin > LONGEST_SOURCE:
        shown.append(f"  | ... and {len(source) - begin - LONGEST_SOURCE} lines more")
    return [f"  source of kernel {program.name!r}:", *shown]
