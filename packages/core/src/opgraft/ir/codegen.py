"""Python code from rules: what is left of them for the nodes of one signature.

A signature is the kind of a node and the kinds of its sources. Most of what patterns ask is
decided by it, so the code holds just the rules that can still match, in order, with the tests
that are left; each way in which a pattern can match (orders of sources, alternatives) is one
`if`. What it does is what `Rule.interpret` does for these rules, one after another. How text
becomes a function is in ir/steps.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from opgraft.dtype import DType
from opgraft.ir.intern import Kind, kind_of
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import ANY, DTypeSet, UPat, holds
from opgraft.ir.rule import Rule, arity
from opgraft.ir.steps import Function, Text, Try, made_of
from opgraft.ir.uop import exact_key

_MOST_WAYS: Final = 24
"""A rule with more ways to match than this is interpreted."""


class Place:
    """A node seen from the matched one: how code reaches it and what is known about it."""

    __slots__ = ("kind", "known", "parts", "sources", "text", "width")

    def __init__(self, text: str, kind: Kind | None, known: Sequence[Kind | None] | None) -> None:
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

    def forget_names(self) -> None:
        """As new; to be called of the matched node."""
        self.sources = None
        for part in self.parts.values():
            if part.sources is not None:
                part.sources = None
                part.parts.clear()
        if self.known is None:
            self.parts.clear()


def _root(kind: Kind, known: Sequence[Kind] | None) -> Place:
    """The matched node."""
    place = Place("n", kind, known)
    if known:
        place.parts = {i: Place(f"s{i}", k, None) for i, k in enumerate(known)}
    return place


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
    """Marks for the objects that code mentions."""

    def __init__(self) -> None:
        self._marked: Final[dict[str, Any]] = {}
        self._known: Final[dict[object, str]] = {}

    def mark(self, letter: str, value: Any, key: object = None) -> str:
        key = (letter, key if key is not None else id(value))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = f"{{{letter}{len(self._known)}}}"
            self._marked[found] = value
        return found

    def text(self, width: int | None, rules: Iterable[tuple[Rule, tuple[Try, ...]]]) -> Text:
        """The code with names in the marks' place, numbered as they come: what was marked for code
        that was dropped again leaves no trace, so equal rules give equal text."""
        names: dict[str, str] = {}
        objects: dict[str, Any] = {}

        def named(found: re.Match[str]) -> str:
            mark = found[0]
            if mark not in names:
                names[mark] = name = f"{mark[1]}{len(names)}"
                objects[name] = self._marked[mark]
            return names[mark]

        sub = _MARK.sub
        named_rules = [
            (rule, tuple([(sub(named, test), sub(named, call)) for test, call in tries]))
            for rule, tries in rules
        ]
        return Text(width, tuple(named_rules), objects)


_MARK: Final = re.compile(r"\{[a-z][0-9]+\}")


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
        self._objects = Objects()
        self._steps: Final[dict[tuple[object, ...], Function | None]] = {}
        self._views: Final[dict[tuple[Rule, Kind | None], int]] = {}
        self._numbers: Final[dict[tuple[object, ...], int]] = {}
        self._members: Final[dict[DTypeSet, _Members]] = {}
        self._by_op: Final[dict[Ops, list[Rule]]] = {op: [] for op in Ops}
        self._by_kind: Final[dict[Kind, list[Rule]]] = {}
        self._names = itertools.count()
        for rule in rules:
            for op in _root_ops(rule.pattern):
                self._by_op[op].append(rule)

    # ---- what can match

    def steps(self, kind: Kind, known: Sequence[Kind] | None) -> list[Function]:
        """A function of each rule that may match a node of this kind with sources of the known
        kinds, in order. `known` is None where even the number of sources is open.

        A rule's function is made once for all signatures that look the same to its pattern.
        """
        found: list[Function] = []
        for rule in self._candidates(kind, known):
            key: tuple[object, ...] = (rule,)
            if not _is_settled(rule.pattern):
                kinds = (kind, None) if known is None else (kind, *known)
                key = (rule, *[self._view(rule, k) for k in kinds])
            if key in self._steps:
                step = self._steps[key]
            else:
                root = _root(kind, known)
                self._objects = Objects()
                tries = self._rule(rule, root)
                text = self._objects.text(root.width, [(rule, tries)])
                step = self._steps[key] = made_of(text) if tries else None
            if step is not None:
                found.append(step)
        return found

    def _view(self, rule: Rule, kind: Kind | None) -> int:
        """A number for what the pattern of a rule, and those of its sources, can tell about a kind:
        where that is the same for two kinds, so is all code. None is a kind that is not known."""
        found = self._views.get((rule, kind))
        if found is None:
            seen = () if kind is None else tuple(_facts(rule.pattern, kind))
            found = self._numbers.setdefault(seen, len(self._numbers))
            self._views[rule, kind] = found
        return found

    def text(self, kind: Kind, known: Sequence[Kind] | None) -> Text:
        """The code of all rules that may match a node of this kind with such sources."""
        root = _root(kind, known)
        self._objects = Objects()
        rules = [(rule, self._rule(rule, root)) for rule in self._candidates(kind, known)]
        return self._objects.text(root.width, [(rule, tries) for rule, tries in rules if tries])

    def _candidates(self, kind: Kind, known: Sequence[Kind] | None) -> list[Rule]:
        """The rules that may match, by a quick look."""
        found = self._by_kind.get(kind)
        if found is None:
            found = [r for r in self._by_op[kind.op] if _may_fit(r.pattern, kind)]
            self._by_kind[kind] = found
        if known is None or not found:
            return found
        return [rule for rule in found if _sources_may_fit(rule.pattern, known)]

    def _rule(self, rule: Rule, root: Place) -> tuple[Try, ...]:
        """The code of one rule; empty if it cannot match. Each names its parts from the start, so
        that equal rules give equal text."""
        self._names = itertools.count()
        root.forget_names()
        written: dict[Try, None] = {}
        try:
            for way in self._ways(((rule.pattern, root),), _Way((), {}, {})):
                written[self._call(rule, way)] = None
                if len(written) > _MOST_WAYS:
                    raise TooManyWays
        except TooManyWays:
            return (("", f"{self._objects.mark('r', rule)}.interpret(n, ctx)"),)
        return tuple(written)

    def _call(self, rule: Rule, way: _Way) -> Try:
        named = dict(way.named)
        given: list[str] = []
        by_place = True
        for name, placed in rule.parameters:
            if name != "ctx" and name not in way.bound:
                by_place = False
                continue
            value = "ctx" if name == "ctx" else _reach(way.bound[name], named)
            by_place = by_place and placed
            given.append(value if by_place else f"{name}={value}")
        function = self._objects.mark("f", rule.function)
        return " and ".join(way.tests), f"{function}({', '.join(given)})"

    def _ways(self, todo: tuple[tuple[UPat, Place], ...], way: _Way) -> Iterator[_Way]:
        """The ways to match all of `todo`, in the order of the interpreter."""
        while todo:
            (pattern, place), todo = todo[0], todo[1:]
            if pattern.name is not None:
                known = way.bound.get(pattern.name)
                if known is None:
                    way = _Way(way.tests, {**way.bound, pattern.name: place}, way.named)
                elif known is not place:
                    # in one order, so that both orders of equal sources are one way
                    first, other = sorted((known, place), key=lambda p: p.text)
                    test = f"{_reach(other, way.named)} is {_reach(first, way.named)}"
                    bound = {**way.bound, pattern.name: first}
                    way = _Way((*way.tests, test), bound, way.named)
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
            tests.append(f"{self._objects.mark('p', pattern.predicate)}({_reach(place, named)})")
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
                value = self._objects.mark("v", pattern.value, exact_key(pattern.value))
                node = self._name(place, named)
                tests.append(f"{node}.kind.constant")
                node = self._name(place, named)
                tests.append(f"holds({node}.dtype, {value}, {node}.const_value)")
        elif pattern.ops is not None:
            node = self._name(place, named)
            if len(pattern.ops) == 1:
                tests.append(f"{node}.op is {self._objects.mark('o', pattern.ops[0])}")
            else:
                tests.append(f"{node}.op in {self._objects.mark('o', frozenset(pattern.ops))}")
        if pattern.dtypes is not None:
            known = self._members.get(pattern.dtypes)
            if known is None:
                known = self._members[pattern.dtypes] = _Members(pattern.dtypes)
            members = self._objects.mark("d", known)
            tests.append(f"{members}[{self._name(place, named)}.dtype]")

    def _arg_test(self, arg: Any, reached: str) -> str:
        value = self._objects.mark("a", arg, exact_key(arg))
        if isinstance(arg, Ops) or arg is True or arg is False:
            return f"{reached} is {value}"
        if type(arg) is int or type(arg) is str:
            # True == 1, so the type is part of the test
            return f"{reached} == {value} and {reached}.__class__ is {type(arg).__name__}"
        key = self._objects.mark("k", exact_key(arg), exact_key(arg))
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


def _is_settled(pattern: UPat) -> bool:
    """Whether the kind alone decides: neither the node nor its sources are asked."""
    return (
        pattern.form == "anything"
        and not pattern.alternatives
        and pattern.value is ANY
        and pattern.arg is ANY
        and pattern.predicate is None
    )


def _facts(pattern: UPat, kind: Kind) -> Iterator[object]:
    """What a pattern and those of its sources tell about a kind, each of them. None: no match."""
    stack = [pattern, *pattern.src]
    for part in pattern.alternatives:
        stack += (part, *part.src)
    while stack:
        part = stack.pop()
        if part.alternatives:
            # those of the pattern itself are there
            stack += part.alternatives if part is not pattern else ()
            continue
        if not _may_be(part, kind):
            yield None
            continue
        test = "" if part.value is ANY else _value_test(part.value, kind)
        yield test and (test, kind.op), None if part.form == "anything" else arity(kind.op)


def _sources_may_fit(pattern: UPat, kinds: Sequence[Kind]) -> bool:
    """A quick look: False only where no node with sources of these kinds can match."""
    wanted = pattern.src
    if pattern.alternatives or pattern.form in ("anything", "repeated"):
        return True
    if len(kinds) != len(wanted) and not (pattern.rest and len(kinds) > len(wanted)):
        return False
    if pattern.form == "any order":
        return len(wanted) != 2 or _all_may_be(wanted, kinds) or _all_may_be(wanted, kinds[::-1])
    return _all_may_be(wanted, kinds)


def _all_may_be(patterns: tuple[UPat, ...], kinds: Sequence[Kind]) -> bool:
    return all(map(_may_be, patterns, kinds))


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
