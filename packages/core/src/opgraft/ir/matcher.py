"""`PatternMatcher`: an ordered list of rules, and which of them rewrites a node.

Rules are compiled as nodes come: for each signature (the kinds of a node and its sources) there
is a function that carries out just the rules that can match it (ir/codegen.py), at first one step
for each of them, later compiled as a whole. The interpreter of patterns says the same, slower: it
is the oracle in tests and serves tracing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary, ref

from opgraft.errors import RewriteError
from opgraft.ir.codegen import Generator
from opgraft.ir.intern import Kind, lock
from opgraft.ir.pattern import UPat
from opgraft.ir.rule import Rule, RuleFunction, failure
from opgraft.ir.steps import Function, made_of, sequence
from opgraft.ir.uop import UOp

RuleSpec: TypeAlias = "tuple[UPat, RuleFunction] | tuple[UPat, RuleFunction, str] | Rule"
Signature: TypeAlias = "Kind | tuple[Kind, ...]"

_WIDEST: Final = 4
"""Nodes with more sources than this are told apart by their own kind alone."""
_MOST_SIGNATURES: Final = 4096


def signature(node: UOp) -> Signature:
    """The key of a node in a table of functions."""
    src = node.src
    if len(src) == 2:
        return (node.kind, src[0].kind, src[1].kind)
    if len(src) > _WIDEST:
        return node.kind
    return (node.kind, *[source.kind for source in src])


class Table(dict[Signature, "Function | None"]):
    """The functions of one list of rules by signature; made when missing.

    None stands for signatures that no rule can match. When the table is full, further signatures
    are served by their node's own kind, which is slower but bounded.
    """

    __slots__ = ("__weakref__", "generator", "mark", "marks", "rules")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        super().__init__()
        self.generator: Final = Generator(rules)
        self.rules: Final = frozenset(rules)
        self.mark: int = 0
        """A bit of its own, for nodes on which none of these rules fires, nor on any below."""
        self.marks: int = 0
        """This bit and those of all that hold these rules and more."""

    def __missing__(self, key: Signature) -> Function | None:
        with lock:
            if key in self:
                return self[key]
            if not isinstance(key, Kind) and len(self) >= _MOST_SIGNATURES:
                return self[key[0]]
            steps = self.generator.steps(*_parts(key))
            made = steps[0] if steps else None
            if len(steps) > 1:
                # by a weak reference, or table and function would hold each other
                made = sequence(steps, partial(_compile, ref(self), key))
            self[key] = made
        return made


def _parts(key: Signature) -> tuple[Kind, tuple[Kind, ...] | None]:
    """The kind of a node and those of its sources; None: they are not known."""
    return (key, None) if isinstance(key, Kind) else (key[0], key[1:])


def _compile(table: ref[Table], key: Signature) -> Function:
    """The function of a signature in one piece; from now on the table has it."""
    found = table()
    assert found is not None  # who calls a function found it there
    with lock:
        made = found[key] = made_of(found.generator.text(*_parts(key)))
    return made


# Matchers of the same rules, such as the same sum built twice, share their functions.
_tables: Final[WeakValueDictionary[tuple[Rule, ...], Table]] = WeakValueDictionary()
# The tables that have a mark, in the order of their bits. A bit is not used twice, as nodes may
# outlive a table: programs that make matchers without end come to some that have none.
_marked: Final[list[ref[Table]]] = []
_MOST_MARKS: Final = 60


def _give_mark(table: Table) -> None:
    with lock:
        if table.mark or len(_marked) >= _MOST_MARKS:
            return
        mark = marks = 1 << len(_marked)
        for other in filter(None, [known() for known in _marked]):
            if other.rules <= table.rules:
                other.marks |= mark
            if table.rules <= other.rules:
                marks |= other.mark
        _marked.append(ref(table))
        table.marks = marks
        table.mark = mark


class PatternMatcher:
    """Rules in order of their precedence. `+` joins two lists.

    A rule is `(pattern, function)` or `(pattern, function, name)`. The function takes captured
    nodes by their names, and `ctx` if it wants the context of the rewrite; it returns the node
    that takes the place of the matched one, or None to decline.

    >>> x = UPat.var("x")
    >>> matcher = PatternMatcher([(x + 0, lambda x: x, "add zero")])
    >>> n = UOp.variable("n", 0, 9)
    >>> matcher.rewrite(n + 0) is n
    True
    """

    def __init__(self, rules: Iterable[RuleSpec]) -> None:
        self.rules: Final = tuple(r if isinstance(r, Rule) else Rule(*r) for r in rules)
        self._table: Table | None = None

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher((*self.rules, *other.rules))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.rules)} rules>"

    @property
    def table(self) -> Table:
        """The compiled functions, by signature; see `signature`."""
        found = self._table
        if found is None:
            with lock:
                found = _tables.get(self.rules)
                if found is None:
                    found = _tables[self.rules] = Table(self.rules)
            self._table = found
        return found

    @property
    def marks(self) -> tuple[int, int]:
        """The bit of nodes on which no rule fires, and all bits that say so; 0: it has none.

        Only where that depends on nothing but the node.
        """
        return 0, 0

    def rewrite(self, uop: UOp, ctx: Any = None) -> UOp | None:
        """What the first rule that fires makes of the node; None: no rule fires."""
        function = (self._table or self.table)[signature(uop)]
        return None if function is None else function(uop, ctx)

    def interpret(self, uop: UOp, ctx: Any = None) -> UOp | None:
        """As `rewrite`, by walking the patterns: the oracle of the compiled form."""
        found = self.trace(uop, ctx)
        return None if found is None else found[1]

    def trace(self, uop: UOp, ctx: Any = None) -> tuple[Rule, UOp] | None:
        """The first rule that fires, and what it makes of the node."""
        for rule in self.rules:
            try:
                made = rule.interpret(uop, ctx)
            except Exception as error:
                raise failure(rule, uop, error) from error
            if made is not None:
                return rule, made
        return None


class EqualitySet(PatternMatcher):
    """Rules whose two sides mean the same for every value: no context, no effect.

    Two of them add up to another; with a plain PatternMatcher the sum is a plain one.
    """

    def __init__(self, rules: Iterable[RuleSpec]) -> None:
        super().__init__(rules)
        for rule in self.rules:
            if rule.takes_ctx:
                raise RewriteError(
                    f"rule {rule} takes ctx, so what it makes depends on more than its pattern; "
                    "that is a lowering, not an equality",
                    remedy="put it in a PatternMatcher",
                )

    @property
    def marks(self) -> tuple[int, int]:
        """The bit of nodes on which no rule fires, and all bits that say so; 0: it has none."""
        table = self.table
        if not table.mark:
            _give_mark(table)
        return table.mark, table.marks

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        kind = EqualitySet if isinstance(other, EqualitySet) else PatternMatcher
        return kind((*self.rules, *other.rules))
