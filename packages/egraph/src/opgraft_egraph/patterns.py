"""Patterns of the IR (`UPat`) as ways for the engines.

A pattern with alternatives, sources in any order or a variable number of sources can match in
several ways; each becomes a `Way`, and a `Part` tree that says how to read a match of it back as
nodes. What an engine cannot ask (a predicate, sources of a closing operation) is asked
afterwards, of the nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from opgraft.api import GroupOp, Ops, UPat
from opgraft_egraph import codes
from opgraft_egraph.book import Atom, Guard, Way
from opgraft_egraph.codes import CAPTURES, EACH, KIDS, SLOTS
from opgraft_egraph.language import ANY, BINDERS, Language, encode

_MOST_WAYS: Final = 32
"""A rule with more is looked for by its root alone, and asked afterwards."""


class Part:
    """A part of a pattern with its choices made."""

    __slots__ = (
        "each",
        "kids",
        "loose",
        "names",
        "open",
        "ops",
        "pattern",
        "row",
        "slot",
        "swap",
    )

    def __init__(
        self,
        pattern: UPat,
        names: tuple[str, ...] = (),
        ops: tuple[Ops, ...] | None = None,
        kids: tuple[Part, ...] | None = None,
        open: bool = False,
        each: bool = False,
        swap: bool = False,
        loose: bool = False,
    ) -> None:
        self.pattern: Final = pattern
        self.names = names
        self.ops: Final = ops
        self.kids = kids
        """None: any sources, of which nothing is asked."""
        self.open: Final = open
        self.each: Final = each
        self.swap: Final = swap
        self.loose: Final = loose
        """What the pattern asks of sources is asked afterwards."""
        self.slot = -1
        self.row = -1

    def copy(self) -> Part:
        """The same choices, without slots: one choice may stand in several ways."""
        kids = None if self.kids is None else tuple([kid.copy() for kid in self.kids])
        flags = (self.open, self.each, self.swap, self.loose)
        return Part(self.pattern, self.names, self.ops, kids, *flags)

    @property
    def is_node(self) -> bool:
        """Whether it asks for a node, not just for a class."""
        return not self.pattern.constant and (self.ops is not None or self.kids is not None)


class Match(NamedTuple):
    """How to read the slots of a way's match."""

    way: Way
    root: Part
    captures: dict[str, Part]
    predicates: tuple[Part, ...]
    loose: bool
    constants: frozenset[int]
    """Slots of classes that are known to be constants."""


def ways_of(pattern: UPat, language: Language, names: tuple[str, ...], terms: bool) -> list[Match]:
    """All ways in which a pattern can match. `names`: the captures that the rule asks for."""
    made: list[Match] = []
    try:
        for root in _choices(pattern):
            if len(made) == _MOST_WAYS:
                raise OverflowError
            made.append(_way(root, language, names, terms))
    except OverflowError:
        ops = _root_ops(pattern)
        return [_way(Part(pattern, (), ops, None, loose=True), language, names, terms)]
    return made


def _root_ops(pattern: UPat) -> tuple[Ops, ...] | None:
    if not pattern.alternatives:
        return pattern.ops
    each = [_root_ops(a) for a in pattern.alternatives]
    if any(ops is None for ops in each):
        return None
    return tuple(dict.fromkeys(op for ops in each if ops for op in ops))


# ---- choices


def _choices(pattern: UPat) -> Iterator[Part]:
    own = () if pattern.name is None else (pattern.name,)
    if pattern.alternatives:
        for alternative in pattern.alternatives:
            for part in _choices(alternative):
                part.names = (*part.names, *own)
                yield part
        return
    if pattern.constant:
        yield Part(pattern, own)
        return
    if pattern.form == "anything":
        yield Part(pattern, own, pattern.ops)
        return
    for ops in _alike(pattern.ops):
        yield from _with_sources(pattern, own, ops)


_FIXED: Final = (
    (1, GroupOp.UNARY | {Ops.BROADCAST, Ops.EXTRACT, Ops.HREDUCE}),
    (2, GroupOp.BINARY),
    (3, GroupOp.TERNARY),
)


def _arity(op: Ops) -> int | None:
    for count, ops in _FIXED:
        if op in ops:
            return count
    return None


def _alike(ops: tuple[Ops, ...] | None) -> list[tuple[Ops, ...] | None]:
    """The operations in groups whose children are matched the same way."""
    if ops is None:
        return [None]
    groups: dict[tuple[bool, bool, int | None], list[Ops]] = {}
    for op in ops:
        groups.setdefault((op in BINDERS, op in GroupOp.COMMUTATIVE, _arity(op)), []).append(op)
    return [tuple(group) for group in groups.values()]


def _with_sources(
    pattern: UPat, names: tuple[str, ...], ops: tuple[Ops, ...] | None
) -> Iterator[Part]:
    commutative = ops is not None and ops[0] in GroupOp.COMMUTATIVE
    if ops is not None and ops[0] in BINDERS:
        # the rest of its sources are ranges, and part of its head
        if pattern.form == "ordered" and pattern.src:
            for kid in _choices(pattern.src[0]):
                alone = len(pattern.src) == 1 and pattern.rest
                yield Part(pattern, names, ops, (kid,), loose=not alone)
        else:
            yield Part(pattern, names, ops, None, loose=True)
        return
    if pattern.form == "repeated":
        yield from _repeated(pattern, names, ops, commutative)
        return
    wanted = pattern.src
    arity = None if ops is None else _arity(ops[0])
    if arity is not None and arity != len(wanted) and not (pattern.rest and arity > len(wanted)):
        return
    if len(wanted) > KIDS:
        raise OverflowError
    if commutative and pattern.rest and len(wanted) == 1:
        wanted = (wanted[0], UPat())
    any_order = pattern.form == "any order"
    for kids in itertools.product(*(list(_choices(p)) for p in wanted)):
        if any_order and len(kids) > 2:
            for order in itertools.permutations(kids):
                yield Part(pattern, names, ops, _own(order), pattern.rest)
        else:
            swap = len(kids) == 2 and (any_order or commutative)
            yield Part(pattern, names, ops, _own(kids), pattern.rest, swap=swap)


def _repeated(
    pattern: UPat, names: tuple[str, ...], ops: tuple[Ops, ...] | None, commutative: bool
) -> Iterator[Part]:
    (source,) = pattern.src
    simple = source.ops is None or source.constant
    if simple and source.name is None and source.predicate is None and not source.alternatives:
        yield Part(pattern, names, ops, (), each=True)
        return
    arity = None if ops is None else _arity(ops[0])
    for count in (1, 2, 3, 4) if arity is None else (arity,):
        for kids in itertools.product(*[list(_choices(source))] * count):
            yield Part(pattern, names, ops, _own(kids), swap=commutative and count == 2)


def _own(kids: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple([kid.copy() for kid in kids])


# ---- ways


class _Slots:
    """Slots of one way. A name that comes twice is one slot."""

    def __init__(self, language: Language) -> None:
        self.language: Final = language
        self.count = 0
        self.named: Final[dict[str, int]] = {}
        self.parts: Final[dict[str, Part]] = {}
        self.guards: Final[list[Guard]] = []
        self.predicates: Final[list[Part]] = []
        self.constants: Final[set[int]] = set()
        self.loose = False

    def new(self) -> int:
        self.count += 1
        if self.count > SLOTS:
            raise OverflowError("a pattern with too many parts")
        return self.count - 1

    def place(self, part: Part) -> None:
        slots = [self.named[name] for name in part.names if name in self.named]
        part.slot = slots[0] if slots else self.new()
        for name in part.names:
            known = self.named.setdefault(name, part.slot)
            if known != part.slot:
                raise OverflowError("two names of one part that are two parts elsewhere")
            if name not in self.parts or (part.is_node and not self.parts[name].is_node):
                self.parts[name] = part
        self.loose |= part.loose
        if part.pattern.predicate is not None:
            self.predicates.append(part)
        if not part.is_node:
            self.guards.extend(self.guards_of(part.pattern, part.slot))
            if part.pattern.constant:
                self.constants.add(part.slot)

    def guards_of(self, pattern: UPat, slot: int) -> Iterator[Guard]:
        if pattern.constant:
            value = pattern.value
            if value is ANY:
                yield Guard(codes.GUARD_CONSTANT, slot)
            elif isinstance(value, float):
                encoded = encode(value)
                assert encoded is not None
                yield Guard(codes.GUARD_FLOAT, slot, number=encoded[1])
            elif isinstance(value, bool):
                yield Guard(codes.GUARD_BOOL, slot, number=int(value))
            elif codes.LEAST < value < codes.MOST:
                yield Guard(codes.GUARD_INT, slot, number=value)
            else:
                yield Guard(codes.GUARD_CONSTANT, slot)
                self.loose = True
        if pattern.dtypes is not None:
            found = self.language.set_of(pattern.dtypes)
            if found is None:
                self.loose = True
            else:
                yield Guard(codes.GUARD_DTYPE, slot, found)


def _way(root: Part, language: Language, names: tuple[str, ...], terms: bool) -> Match:
    slots = _Slots(language)
    slots.place(root)
    # where the root is not a node but a class, any of its nodes will do
    order: list[Part] = []
    todo = [root]
    while todo:
        part = todo.pop(0)
        order.append(part)
        for kid in part.kids or ():
            slots.place(kid)
            if kid.is_node:
                todo.append(kid)
    atoms: list[Atom] = []
    for part in order:
        part.row = slots.new()
        pattern = part.pattern
        dtypes = None if pattern.constant else pattern.dtypes
        selector = language.selector_of((part.ops, dtypes, pattern.arg))
        each: tuple[Guard, ...] = ()
        if part.each:
            each = tuple(slots.guards_of(pattern.src[0], EACH))
        kids = tuple(kid.slot for kid in part.kids or ())
        anything = part.kids is None
        atoms.append(
            Atom(
                *(selector, part.slot, part.row, kids),
                *(part.swap, part.open or anything, part.each, each),
            )
        )
    wanted = [n for n in names if n in slots.named]
    captures = tuple(dict.fromkeys(slots.named[n] for n in wanted))
    if len(captures) > CAPTURES:
        raise OverflowError("a pattern with too many captures")
    outs = {a.out for a in atoms}
    guarded = dict.fromkeys(g.slot for g in slots.guards)
    below = dict.fromkeys(k for a in atoms for k in a.kids if k not in outs)
    facts = tuple(below) if terms else tuple(s for s in guarded if s not in outs)
    way = Way(tuple(atoms), tuple(slots.guards), captures, slots.count, facts, terms)
    return Match(
        *(way, root, {n: slots.parts[n] for n in slots.named}, tuple(slots.predicates)),
        *(slots.loose, frozenset(slots.constants)),
    )


def with_facts(match: Match, slots: tuple[int, ...]) -> Match:
    """The same way, looked at anew when more is known of these classes too."""
    facts = tuple(dict.fromkeys((*match.way.facts, *slots)))
    return match._replace(way=match.way._replace(facts=facts))


def describe(value: Any) -> str:
    """A value in an error message, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
