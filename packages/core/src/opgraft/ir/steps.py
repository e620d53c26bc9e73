"""Functions from the text of rules (see ir/codegen.py): compiled, or here already.

A rule's text for a signature is a few tries: a test, and a call of the rule's function if it
holds. Most are short and alike, whatever the rule; those that every kernel needs are written out
below, so that no process has to compile them. Texts that are equal but for the objects they
mention are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from opgraft.errors import RewriteError
from opgraft.ir.intern import lock
from opgraft.ir.pattern import holds
from opgraft.ir.rule import Rule, RuleFunction, checked, failure
from opgraft.ir.uop import UOp, exact_key

Function: TypeAlias = Callable[[UOp, Any], "UOp | None"]
Try: TypeAlias = tuple[str, str]
"""A test ("": none) and a call. `n` is the node, `s0`, `s1` .. are its sources."""
Failed: TypeAlias = Callable[[Exception, UOp], RewriteError]


class Text(NamedTuple):
    """The code of some rules for the nodes of one signature."""

    width: int | None
    """The number of sources; None: it is not known, and they have no names."""
    rules: tuple[tuple[Rule, tuple[Try, ...]], ...]
    objects: Mapping[str, Any]


def made_of(text: Text) -> Function:
    """The function that carries out a text."""
    tries = tuple([part for _, parts in text.rules for part in parts])
    names = [f"s{i}" for i in range(text.width or 0)]
    named = any(name in part for both in tries for part in both for name in names)
    width = text.width if named else None
    with lock:
        maker = _makers.get((width, tries))
        if maker is None:
            if len(_makers) >= _MOST_MAKERS:
                _makers.clear()
                _makers.update(_READY)
            maker = _makers[width, tries] = _compiled(width, tries, tuple(text.objects))
    first = _FIRST_LINE + (width is not None)
    return maker(*text.objects.values(), _failing(text.rules, first))


def sequence(steps: Sequence[Function], renew: Callable[[], Function]) -> Function:
    """What the first step makes that makes something; after `_MANY` calls what `renew` gives."""
    left = _MANY

    def match(n: UOp, ctx: Any) -> UOp | None:
        nonlocal left
        left -= 1
        if left < 0:
            return renew()(n, ctx)
        for step in steps:
            made = step(n, ctx)
            if made is not None:
                return made
        return None

    return match


_MANY: Final = 64
_MOST_MAKERS: Final = 4096


def _failing(rules: tuple[tuple[Rule, tuple[Try, ...]], ...], first: int) -> Failed:
    """What says which rule raised: its line tells, if the tries stand in lines from `first`."""

    def failed(error: Exception, n: UOp) -> RewriteError:
        rule = rules[0][0]
        if len(rules) > 1:
            where = error.__traceback__
            assert where is not None
            lines = [rule for rule, tries in rules for _ in tries]
            rule = lines[max(0, where.tb_lineno - first)]
        return failure(rule, n, error)

    return failed


def _compiled(width: int | None, tries: tuple[Try, ...], names: tuple[str, ...]) -> Maker:
    lines = [f"def make({', '.join((*names, 'failed'))}):", "  def match(n, ctx):", "    try:"]
    if width is not None:
        lines.append(f"      {''.join([f's{i}, ' for i in range(width)])}= n.src")
    for test, call in tries:
        fires = f"(r := {call}) is not None and r is not n: return checked(r)"
        lines.append(f"      if {test} and {fires}" if test else f"      if {fires}")
    lines += ["    except Exception as error:", "      raise failed(error, n) from error"]
    lines.append("  return match")
    found: dict[str, Any] = dict(_WORDS)
    exec(compile("\n".join(lines), "<rules of opgraft>", "exec"), found)
    made: Maker = found["make"]
    return made


_FIRST_LINE: Final = 4
_WORDS: Final = {"checked": checked, "exact_key": exact_key, "holds": holds}


# ---- what is here already

Maker: TypeAlias = Callable[..., Function]
"""Given the objects that a text mentions, in order, and what says which rule failed."""


def _of_node(f0: RuleFunction, failed: Failed) -> Function:
    def match(n: UOp, ctx: Any) -> UOp | None:
        try:
            r = f0(n)
            return None if r is None or r is n else checked(r)
        except Exception as error:
            raise failed(error, n) from error

    return match


def _of_node_and_sources(f0: RuleFunction, failed: Failed) -> Function:
    def match(n: UOp, ctx: Any) -> UOp | None:
        try:
            r = f0(n, *n.src)
            return None if r is None or r is n else checked(r)
        except Exception as error:
            raise failed(error, n) from error

    return match


def _of_first(f0: RuleFunction, failed: Failed) -> Function:
    def match(n: UOp, ctx: Any) -> UOp | None:
        try:
            r = f0(n.src[0])
            return None if r is None or r is n else checked(r)
        except Exception as error:
            raise failed(error, n) from error

    return match


def _of_second(f0: RuleFunction, failed: Failed) -> Function:
    def match(n: UOp, ctx: Any) -> UOp | None:
        try:
            r = f0(n.src[1])
            return None if r is None or r is n else checked(r)
        except Exception as error:
            raise failed(error, n) from error

    return match


def _of_one_and_node(f0: RuleFunction, failed: Failed) -> Function:
    def match(n: UOp, ctx: Any) -> UOp | None:
        try:
            r = f0(n.src[0], n)
            return None if r is None or r is n else checked(r)
        except Exception as error:
            raise failed(error, n) from error

    return match


def _of_equal_pair(f0: RuleFunction, failed: Failed) -> Function:
    def match(n: UOp, ctx: Any) -> UOp | None:
        try:
            first, second = n.src
            r = f0(first) if second is first else None
            return None if r is None or r is n else checked(r)
        except Exception as error:
            raise failed(error, n) from error

    return match


def _of_equal_choices(f0: RuleFunction, failed: Failed) -> Function:
    def match(n: UOp, ctx: Any) -> UOp | None:
        try:
            _, yes, no = n.src
            r = f0(yes) if no is yes else None
            return None if r is None or r is n else checked(r)
        except Exception as error:
            raise failed(error, n) from error

    return match


_READY: Final[dict[tuple[int | None, tuple[Try, ...]], Maker]] = {
    (None, (("", "f0(n)"),)): _of_node,
    (2, (("", "f0(n, s0, s1)"),)): _of_node_and_sources,
    (3, (("", "f0(n, s0, s1, s2)"),)): _of_node_and_sources,
    (2, (("", "f0(s0)"),)): _of_first,
    (2, (("", "f0(s1)"),)): _of_second,
    (1, (("", "f0(s0, n)"),)): _of_one_and_node,
    (2, (("s1 is s0", "f0(s0)"),)): _of_equal_pair,
    (3, (("s2 is s1", "f0(s1)"),)): _of_equal_choices,
}
_makers: Final = dict(_READY)
