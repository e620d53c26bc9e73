"""Python code from rules: one function for the nodes of one signature.

A signature is the kind of a node and the kinds of its sources. Most of what patterns ask is
decided by it, so the function holds just the rules that can still match, in order, with the
tests that are left; each way in which a pattern can match (orders of sources, alternatives) is
one `if`. What it does is what `Rule.interpret` does for these rules, one after another.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias

from opgraft.dtype import DType
from opgraft.errors import RewriteError
from opgraft.ir.intern import Kind, kind_of
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import ANY, DTypeSet, UPat, holds
from opgraft.ir.rule import Rule, arity, checked, failure
from opgraft.ir.uop import UOp, exact_key

Function: TypeAlias = Callable[[UOp, Any], "UOp | None"]

_RETURN: Final = "if r is not None and r is not n: return r if r.__class__ is UOp else checked(r)"
_MOST_WAYS: Final = 24
"""A rule with more ways to match than this is interpreted."""


class Place:
    """A node seen from the matched one: how code reaches it and what is known about it."""

    __slots__ = ("kind", "known", "parts", "sources", "text", "width")

    def __init__(self, text: str, kind: Kind | None, known: list[Kind | None] | None) -> None:
        self.text = text  # a name, or an expression that reaches the node
        self.kind = kind  # None: unknown
        self.known = known  # of its sources; None: not even their number
        self.width: int | None = len(known) if known is not None else None
        if self.width is None and kind is not None:
            self.width = arity(kind.op)
        self.parts: dict[int, Place] = {}
        self.sources: str | None = None  # the name that holds the tuple of sources

    def source(self, i: int, tuple_name: str) -> Place:
        found = self.parts.get(i)
        if found is None:
            kind = self.known[i] if self.known is not None and i < len(self.known) else None
            found = self.parts[i] = Place(f"{tuple_name}[{i}]", kind, None)
        return found


class _Way:
    """One way to match, as far as it is worked out. Never changed, only extended by copies."""

    __slots__ = ("bound", "named", "tests")

    def __init__(
        self, tests: tuple[str, ...], bound: dict[str, Place], named: dict[Place, str]
    ) -> None:
        self.tests, self.bound, self.named = tests, bound, named


class TooManyWays(Exception):
    """The rule is better interpreted."""


class Objects:
    """Names for the objects that generated code mentions."""

    def __init__(self) -> None:
        self.names: Final[dict[str, Any]] = {}
        self._known: Final[dict[object, str]] = {}

    def name(self, letter: str, value: Any, key: object = None) -> str:
        key = (letter, key if key is not None else id(value))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = f"{letter}{len(self._known)}"
            self.names[found] = value
        return found

    def op(self, op: Ops) -> str:
        self.names[op.name] = op
        return op.name


class _Members(dict[DType, bool]):
    """Whether a dtype is in a set, remembered."""

    def __init__(self, dtypes: DTypeSet) -> None:
        super().__init__()
        self.dtypes: Final = dtypes

    def __missing__(self, dtype: DType) -> bool:
        return self.setdefault(dtype, dtype in self.dtypes)


class Generator:
    """Writes the functions of one list of rules."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules: Final = rules
        self.objects: Final = Objects()
        self.objects.names.update(
            UOp=UOp, exact_key=exact_key, failed=self._failed, holds=holds, checked=checked
        )
        self._functions: Final[dict[str, Function]] = {}
        self._rules_of: Final[dict[CodeType, tuple[list[int], list[Rule]]]] = {}
        self._by_op: Final[dict[Ops, list[Rule]]] = {op: [] for op in Ops}
        self._by_kind: Final[dict[Kind, list[Rule]]] = {}
        self._names = itertools.count()
        for rule in rules:
            for op in _root_ops(rule.pattern):
                self._by_op[op].append(rule)

    # ---- what can match

    def function(self, kind: Kind, known: list[Kind | None] | None) -> Function | None:
        """The function for nodes of this kind with sources of the known kinds.

        None: no rule can match. `known` is None where even the number of sources is open.
        """
        head: list[str] = []
        if known:
            names = [f"s{i}" for i in range(len(known))]
            head.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = n.src")
        root = Place("n", kind, known)
        if known:
            root.parts = {i: Place(f"s{i}", k, None) for i, k in enumerate(known)}
        body: list[tuple[str, Rule]] = []
        for rule in self._candidates(kind):
            if known is not None and not _sources_may_fit(rule.pattern, known):
                continue
            lines = self._rule(rule, root)
            if lines:
                body += [(line, rule) for line in lines]
            self._forget_names(root)
        return self._compile(head, body) if body else None

    def _candidates(self, kind: Kind) -> list[Rule]:
        """The rules that may match a node of this kind, whatever its sources."""
        found = self._by_kind.get(kind)
        if found is None:
            fitting = [r for r in self._by_op[kind.op] if _may_fit(r.pattern, kind)]
            found = self._by_kind[kind] = fitting
        return found

    def _forget_names(self, root: Place) -> None:
        """Let each rule name its parts from the start, so that equal rules give equal text."""
        self._names = itertools.count()
        root.sources = None
        for part in root.parts.values():
            if part.sources is not None:
                part.sources = None
                part.parts.clear()
        if root.known is None:
            root.parts.clear()

    def _rule(self, rule: Rule, root: Place) -> list[str]:
        """The code of one rule; empty if it cannot match."""
        written: dict[str, None] = {}
        try:
            for way in self._ways(((rule.pattern, root),), _Way((), {}, {})):
                written[self._call(rule, way)] = None
                if len(written) > _MOST_WAYS:
                    raise TooManyWays
        except TooManyWays:
            name = self.objects.name("r", rule)
            return [f"r = {name}.interpret(n, ctx)\n    {_RETURN}"]
        return list(written)

    def _call(self, rule: Rule, way: _Way) -> str:
        tests, named = list(way.tests), dict(way.named)
        given: list[str] = []
        by_place = True
        for name, placed in rule.parameters:
            if name != "ctx" and name not in way.bound:
                by_place = False
                continue
            value = "ctx" if name == "ctx" else _reach(way.bound[name], named)
            by_place = by_place and placed
            given.append(value if by_place else f"{name}={value}")
        call = f"r = {self.objects.name('f', rule.function)}({', '.join(given)})"
        if not tests:
            return f"{call}\n    {_RETURN}"
        return f"if {' and '.join(tests)}:\n        {call}\n        {_RETURN}"

    def _ways(self, todo: tuple[tuple[UPat, Place], ...], way: _Way) -> Iterator[_Way]:
        """The ways to match all of `todo`, in the order of the interpreter."""
        while todo:
            (pattern, place), todo = todo[0], todo[1:]
            if pattern.name is not None:
                known = way.bound.get(pattern.name)
                if known is None:
                    way = _Way(way.tests, {**way.bound, pattern.name: place}, way.named)
                elif known is not place:
                    named = dict(way.named)
                    test = f"{_reach(place, named)} is {_reach(known, named)}"
                    way = _Way((*way.tests, test), way.bound, named)
            if pattern.alternatives:
                for alternative in pattern.alternatives:
                    yield from self._ways(((alternative, place), *todo), way)
                return
            fitting = self._fits(pattern, place, way)
            if fitting is None:
                return
            way = fitting
            if pattern.form == "anything":
                continue
            opened = self._open(pattern, place, way)
            if opened is None:
                return
            way, sources = opened
            if pattern.form != "any order":
                patterns = pattern.src * len(sources) if pattern.form == "repeated" else pattern.src
                todo = (*zip(patterns, sources), *todo)
                continue
            if len(sources) > 4:
                raise TooManyWays
            for order in itertools.permutations(sources):
                yield from self._ways((*zip(pattern.src, order), *todo), way)
            return
        yield way

    # ---- what a node must be

    def _fits(self, pattern: UPat, place: Place, way: _Way) -> _Way | None:
        """`way` with the tests of the node itself that its kind leaves open; None: it can't fit."""
        tests: list[str] = []
        named = dict(way.named)
        kind = place.kind
        if kind is not None:
            if pattern.ops is not None and kind.op not in pattern.ops:
                return None
            if pattern.dtypes is not None and kind.dtype not in pattern.dtypes:
                return None
            if pattern.constant and not kind.constant:
                return None
            if pattern.value is not ANY:
                test = _value_test(pattern.value, kind)
                if test is None:
                    return None
                if test:
                    number = ".arg" if kind.op is Ops.CONST else ".src[0].arg"
                    tests.append(test.replace("?", f"{_reach(place, named)}{number}"))
        else:
            self._unknown(pattern, place, tests, named)
        if pattern.arg is not ANY:
            tests.append(self._arg_test(pattern.arg, f"{_reach(place, named)}.arg"))
        if pattern.predicate is not None:
            tests.append(f"{self.objects.name('p', pattern.predicate)}({_reach(place, named)})")
        return _Way((*way.tests, *tests), way.bound, named) if tests else way

    def _unknown(
        self, pattern: UPat, place: Place, tests: list[str], named: dict[Place, str]
    ) -> None:
        if pattern.constant:
            if pattern.value is ANY:
                tests.append(f"{self._name(place, named)}.kind.constant")
            elif type(pattern.value) is int and -1 <= pattern.value <= 1:
                tests.append(f"{self._name(place, named)}.kind.value == {pattern.value}")
            else:
                value = self.objects.name("v", pattern.value, exact_key(pattern.value))
                node = self._name(place, named)
                tests.append(f"{node}.kind.constant")
                node = self._name(place, named)
                tests.append(f"holds({node}.dtype, {value}, {node}.const_value)")
        elif pattern.ops is not None:
            node = self._name(place, named)
            if len(pattern.ops) == 1:
                tests.append(f"{node}.op is {self.objects.op(pattern.ops[0])}")
            else:
                tests.append(f"{node}.op in {self.objects.name('o', frozenset(pattern.ops))}")
        if pattern.dtypes is not None:
            members = self.objects.name("d", _Members(pattern.dtypes), pattern.dtypes)
            tests.append(f"{members}[{self._name(place, named)}.dtype]")

    def _arg_test(self, arg: Any, reached: str) -> str:
        value = self.objects.name("a", arg, exact_key(arg))
        if isinstance(arg, Ops) or arg is True or arg is False:
            return f"{reached} is {value}"
        if type(arg) is int or type(arg) is str:
            # True == 1, so the type is part of the test
            return f"{reached} == {value} and {reached}.__class__ is {type(arg).__name__}"
        key = self.objects.name("k", exact_key(arg), exact_key(arg))
        return f"exact_key({reached}) == {key}"

    def _open(self, pattern: UPat, place: Place, way: _Way) -> tuple[_Way, list[Place]] | None:
        """The sources of a node that fits; None: their number is wrong."""
        width = place.width
        if width is None and pattern.ops is not None:
            widths = {arity(op) for op in pattern.ops}
            width = widths.pop() if len(widths) == 1 else None
        wanted = len(pattern.src)
        if pattern.form == "repeated":
            if width is None:
                if _anything(pattern.src[0]):
                    return way, []
                raise TooManyWays
            if width == 0 and pattern.src[0].captures():
                return None
            wanted = width
        elif width is not None and width != wanted and not (pattern.rest and width > wanted):
            return None
        if place.known:
            return way, [place.parts[i] for i in range(wanted)]
        tests: tuple[str, ...] = way.tests
        named = dict(way.named)
        if place.sources is None:
            place.sources = f"t{next(self._names)}"
        if width is None:
            reached = f"{_reach(place, named)}.src"
            sign = ">=" if pattern.rest else "=="
            tests = (*tests, f"len({place.sources} := {reached}) {sign} {wanted}")
        elif not wanted or all(_anything(p) for p in pattern.src):
            return way, []
        else:
            reached = f"{_reach(place, named)}.src"
            tests = (*tests, f"({place.sources} := {reached})")
        return _Way(tests, way.bound, named), [
            place.source(i, place.sources) for i in range(wanted)
        ]

    def _name(self, place: Place, named: dict[Place, str]) -> str:
        """As `_reach`, and the node gets a name of its own at the first mention."""
        if place not in named and "[" in place.text:
            name = f"u{next(self._names)}"
            named[place] = name
            return f"({name} := {place.text})"
        return _reach(place, named)

    # ---- text to function

    def _compile(self, head: list[str], body: list[tuple[str, Rule]]) -> Function:
        lines = ["def match(n, ctx):", "  try:", *(f"    {line}" for line in head)]
        starts: list[int] = []
        for text, _ in body:
            starts.append(len(lines) + 1)
            lines += f"    {text}".split("\n")
        lines += ["  except Exception as error:", "    raise failed(error, n) from error"]
        source = "\n".join(lines)
        found = self._functions.get(source)
        if found is None:
            code = compile(source, "<rules of opgraft>", "exec")
            exec(code, self.objects.names)
            found = self.objects.names.pop("match")
            assert isinstance(found, FunctionType)
            self._rules_of[found.__code__] = (starts, [rule for _, rule in body])
            self._functions[source] = found
        return found

    def _failed(self, error: Exception, node: UOp) -> RewriteError:
        """The error of a rule that raised: its line in the generated code says which it was."""
        where = error.__traceback__
        assert where is not None
        starts, rules = self._rules_of[where.tb_frame.f_code]
        return failure(rules[max(0, bisect_right(starts, where.tb_lineno) - 1)], node, error)


def _root_ops(pattern: UPat) -> Iterable[Ops]:
    """The ops of nodes that may match, each once."""
    if pattern.alternatives:
        return dict.fromkeys(op for part in pattern.alternatives for op in _root_ops(part))
    return Ops if pattern.ops is None else pattern.ops


def _may_fit(pattern: UPat, kind: Kind) -> bool:
    """Whether a node of this kind may match, its sources aside."""
    if pattern.alternatives:
        return any(_may_fit(alternative, kind) for alternative in pattern.alternatives)
    return (
        (pattern.ops is None or kind.op in pattern.ops)
        and (pattern.dtypes is None or kind.dtype in pattern.dtypes)
        and (not pattern.constant or kind.constant)
    )


def _sources_may_fit(pattern: UPat, kinds: list[Kind | None]) -> bool:
    """A quick look: False only where no node with sources of these kinds can match."""
    wanted = pattern.src
    if pattern.alternatives or pattern.form in ("anything", "repeated"):
        return True
    if len(kinds) != len(wanted) and not (pattern.rest and len(kinds) > len(wanted)):
        return False
    if pattern.form == "any order":
        return len(wanted) != 2 or _all_may_be(wanted, kinds) or _all_may_be(wanted, kinds[::-1])
    return _all_may_be(wanted, kinds)


def _all_may_be(patterns: tuple[UPat, ...], kinds: list[Kind | None]) -> bool:
    for pattern, kind in zip(patterns, kinds):
        if kind is not None and not _may_be(pattern, kind):
            return False
    return True


def _may_be(pattern: UPat, kind: Kind) -> bool:
    """As `_may_fit`; of a constant the number too, where its kind says it."""
    if not _may_fit(pattern, kind):
        return False
    if pattern.alternatives or kind.value is None or pattern.value is ANY:
        return True
    return _value_test(pattern.value, kind) is not None


def _reach(place: Place, named: dict[Place, str]) -> str:
    return named.get(place, place.text)


def _anything(pattern: UPat) -> bool:
    """Whether the pattern matches every node and captures none."""
    return (
        pattern.name is None
        and not pattern.alternatives
        and pattern.ops is None
        and pattern.dtypes is None
        and pattern.arg is ANY
        and pattern.predicate is None
        and (pattern.form == "anything")
    )


def _value_test(value: Any, kind: Kind) -> str | None:
    """The test of a constant's number "?" that its kind leaves open: "" none, None: hopeless."""
    scalar = kind.dtype.scalar
    if scalar.kind == "void":
        return None
    if kind.value is not None:
        return "" if holds(kind.dtype, value, scalar.const(kind.value)) else None
    try:
        number = scalar.const(value)
    except OverflowError:  # an infinity as an index
        return None
    if not holds(kind.dtype, value, number):
        return None
    if kind_of(kind.op, kind.dtype, True, number).value is not None:
        return None  # its kind would say so
    if number != number:
        return "? != ?"
    return f"? == {number!r}".replace("inf", "1e999")
