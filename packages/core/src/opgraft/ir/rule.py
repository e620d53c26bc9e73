"""`Rule`: a pattern and the function that makes what replaces it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any, Final, TypeAlias

from opgraft.errors import RewriteError
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import ANY, Captures, UPat, holds, reachable
from opgraft.ir.uop import UOp

RuleFunction: TypeAlias = Callable[..., UOp | None]


class Rule:
    """A pattern, a function, and a name with a source line. Checked when made.

    The function takes the nodes that the pattern captured, by their names, and `ctx` if it wants
    the context of the rewrite. It returns a node, or None to decline: then the next way to match
    is tried, and then the next rule. To return the matched node itself is to decline.
    """

    __slots__ = ("file", "function", "line", "name", "parameters", "pattern", "takes_ctx")

    def __init__(self, pattern: UPat, function: RuleFunction, name: str | None = None) -> None:
        self.pattern: Final = pattern
        self.function: Final = function
        code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
        self.file: Final[str] = code.co_filename if code is not None else "?"
        self.line: Final[int] = code.co_firstlineno if code is not None else 0
        given = getattr(function, "__name__", type(function).__name__)
        self.name: Final[str] = name or ("rule" if given == "<lambda>" else given)
        if not isinstance(pattern, UPat):
            raise RewriteError(f"rule {self}: its pattern is {pattern!r}, not a UPat")
        for fault in faults(pattern):
            raise RewriteError(f"rule {self} can never match: {fault}")
        # (name, whether it can be handed over by place), in the order of the function
        self.parameters: Final[list[tuple[str, bool]]] = []
        captured = pattern.captures()
        for name_, optional, by_place in _parameters(self, captured):
            self._take(name_, optional, by_place, captured)
        self.takes_ctx: Final = any(n == "ctx" for n, _ in self.parameters)

    def _take(self, name: str, optional: bool, by_place: bool, captured: dict[str, bool]) -> None:
        if name == "ctx" or captured.get(name) or (name in captured and optional):
            self.parameters.append((name, by_place))
        elif not optional:
            which = "only some alternatives of" if name in captured else "no part of"
            raise RewriteError(
                f"rule {self} takes {name!r}, which {which} its pattern captures; "
                f"captured: {', '.join(captured) or 'nothing'}",
                remedy="name a part of the pattern, or give the parameter a default",
            )

    def __str__(self) -> str:
        return f"{self.name} ({os.path.basename(self.file)}:{self.line})"

    def __repr__(self) -> str:
        return f"<rule {self}: {self.pattern!r}>"

    def apply(self, captures: Captures, ctx: Any) -> UOp | None:
        """What the function makes of these captures; None: it declines."""
        given: dict[str, Any] = {n: captures[n] for n, _ in self.parameters if n in captures}
        if self.takes_ctx:
            given["ctx"] = ctx
        return checked(self.function(**given))

    def interpret(self, node: UOp, ctx: Any) -> UOp | None:
        """What the rule makes of a node, by walking its pattern."""
        for captures in self.pattern.matches(node):
            made = self.apply(captures, ctx)
            if made is not None and made is not node:
                return made
        return None


def _parameters(rule: Rule, captured: dict[str, bool]) -> Iterator[tuple[str, bool, bool]]:
    """Of each parameter: its name, whether it has a default, whether it may be given by place."""
    function = rule.function
    if type(function) is FunctionType and not function.__dict__:
        code = function.__code__
        if not code.co_posonlyargcount and not code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
            # the same as below, many times faster: rules are made at import
            names, count = code.co_varnames, code.co_argcount
            required = count - len(function.__defaults__ or ())
            for i, name in enumerate(names[:count]):
                yield name, i >= required, True
            for name in names[count : count + code.co_kwonlyargcount]:
                yield name, name in (function.__kwdefaults__ or ()), False
            return
    taken: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise RewriteError(
                f"rule {rule}: captured nodes are handed over by name, "
                f"and {parameter} cannot take one"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from ((name, True, False) for name in captured if name not in taken)
        else:
            taken.add(parameter.name)
            by_place = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            yield parameter.name, parameter.default is not parameter.empty, by_place


def checked(made: UOp | None) -> UOp | None:
    if made is not None and made.__class__ is not UOp:
        raise TypeError(f"a rule returns a UOp or None, not {made!r}")
    return made


def failure(rule: Rule, node: UOp, error: Exception) -> RewriteError:
    """The error that says which rule failed on which node."""
    return RewriteError(f"rule {rule} failed on {brief(node)}: {type(error).__name__}: {error}")


def brief(node: UOp) -> str:
    """A node and its sources in one line, whatever hangs below."""
    sources = ", ".join(_one(source) for source in node.src[:4])
    more = ", ..." if len(node.src) > 4 else ""
    return f"{_one(node)}({sources}{more})" if node.src else _one(node)


def _one(node: UOp) -> str:
    arg = "" if node.arg is None else f" {node.arg!r}"
    return f"{node.op.name}:{node.dtype}{arg}"


_ARITY: Final = (
    dict.fromkeys(GroupOp.UNARY, 1)
    | dict.fromkeys(GroupOp.BINARY, 2)
    | dict.fromkeys(GroupOp.TERNARY, 3)
    | {Ops.CONST: 0, Ops.VAR: 0, Ops.PARAM: 0, Ops.LOCAL: 0, Ops.IOTA: 0, Ops.SPECIAL: 0}
    | {Ops.BROADCAST: 1, Ops.EXTRACT: 1, Ops.HREDUCE: 1, Ops.RANGE: 1, Ops.SCAN: 2}
)


def arity(op: Ops) -> int | None:
    """How many sources a node of this op has; None: it differs."""
    return _ARITY.get(op)


def faults(pattern: UPat) -> list[str]:
    """Why no node can match, if so."""
    found: list[str] = []
    stack = [pattern]
    while stack:
        part = stack.pop()
        stack += part.src
        stack += part.alternatives or ()
        if part.ops is not None and not part.ops:
            found.append("a set of operations in it is empty")
        if part.dtypes is not None and not part.dtypes:
            found.append("a set of dtypes in it is empty")
        if part.form in ("ordered", "any order") and part.ops:
            wanted = len(part.src)
            known = [_ARITY.get(op, -1) for op in part.ops]
            if all(k >= 0 and (k < wanted or (k > wanted and not part.rest)) for k in known):
                names = "|".join(op.name for op in part.ops)
                found.append(f"{names} has {known[0]} sources, the pattern {part!r} has {wanted}")
        if part.dtypes is None:
            continue
        compares = part.ops and GroupOp.COMPARISON.issuperset(part.ops)
        if compares and not reachable(part.dtypes, "bool"):
            found.append(f"{part!r} is a comparison, whose dtype is bool, not {part.dtypes!r}")
        if part.value is not ANY and not part.dtypes.kinds:
            members = part.dtypes.members
            if not any(holds(d, part.value, d.scalar.const(part.value)) for d in members):
                found.append(f"no constant of {part.dtypes!r} is {part.value!r}")
    return found
