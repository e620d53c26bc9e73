"""E-graphs of terms over any operators, written as S-expressions: `(+ x (* 2 y))`.

For rule systems that have nothing to do with opgraft's IR. A name that begins with `?` is a
variable of a pattern. Operators mean nothing here, but with `numbers`, `+`, `-`, `*` of integers
are worked out, and rules can ask whether a class is a number or cannot be 0.

>>> rules = [Rewrite("commute", "(+ ?a ?b)", "(+ ?b ?a)"), Rewrite("zero", "(+ ?a 0)", "?a")]
>>> graph = TermGraph(rules)
>>> sum_ = graph.add("(+ 0 (+ x 0))")
>>> graph.run().stop, graph.extract(sum_)
('saturated', 'x')
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from opgraft.api import errors
from opgraft_egraph import codes
from opgraft_egraph.book import (
    Atom,
    Book,
    DTypeRow,
    Guard,
    HeadRow,
    Instruction,
    Path,
    Variant,
    Way,
)
from opgraft_egraph.codes import NONE
from opgraft_egraph.engine import EngineMaker, Fact, default_engine
from opgraft_egraph.exact import USUAL, Effort
from opgraft_egraph.extraction import CostKind, Extraction, choose
from opgraft_egraph.proofs import flat
from opgraft_egraph.report import UNLIMITED, Report, Schedule, saturate
from opgraft_egraph.turns import in_turn

Tree: TypeAlias = "str | tuple[Tree, ...]"
_TOKEN: Final = re.compile(r"[()]|[^\s()]+")
_NUMBER: Final = re.compile(r"-?\d+")
_DIGITS: Final = 40
"""More than the largest number has; Python refuses to read some thousands of them."""


def parse_term(text: str) -> Tree:
    """The tree of an S-expression: a name, or a tuple of an operator's name and its arguments."""
    stack: list[list[Tree]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise errors.ParseError(f"a ) too many in {text!r}")
            done = tuple(stack.pop())
            if not done or not isinstance(done[0], str):
                raise errors.ParseError(f"an operator's name is missing after ( in {text!r}")
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1:
        raise errors.ParseError(f"{text!r} is not one term")
    return stack[0][0]


def print_term(tree: Tree) -> str:
    """The text of a tree. Without recursion."""
    parts: list[str] = []
    stack: list[Tree] = [tree]
    while stack:
        t = stack.pop()
        if isinstance(t, str):
            # no space before ) and after (
            if t != ")" and parts and not parts[-1].endswith("("):
                parts.append(" ")
            parts.append(t)
            continue
        if parts and not parts[-1].endswith("("):
            parts.append(" ")
        parts.append("(")
        stack.append(")")
        stack.extend(reversed(t))
    return "".join(parts)


Condition: TypeAlias = "Callable[[TermGraph, Mapping[str, int]], bool]"


@dataclass(frozen=True)
class Rewrite:
    """`left` may be written as `right`, where `when` allows it.

    `constant`, `nonzero`: variables of which the class must be a number, or not 0. `when` gets
    the graph and the classes by variable; it is called back for each match.
    """

    name: str
    left: str
    right: str
    when: Condition | None = None
    constant: tuple[str, ...] = ()
    nonzero: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bound = set(_variables(parse_term(self.left)))
        for name in [*_variables(parse_term(self.right)), *self.constant, *self.nonzero]:
            if name not in bound:
                raise errors.RewriteError(f"rule {self.name} uses {name}, which {self.left} lacks")

    def __str__(self) -> str:
        return f"{self.name} ({self.left} -> {self.right})"


def both_ways(name: str, left: str, right: str) -> list[Rewrite]:
    """The rule and its reverse."""
    return [Rewrite(name, left, right), Rewrite(f"{name}-reversed", right, left)]


def _variables(tree: Tree) -> Iterator[str]:
    if isinstance(tree, str):
        if tree.startswith("?"):
            yield tree
    else:
        for part in tree[1:]:
            yield from _variables(part)


def _operators(tree: Tree) -> Iterator[tuple[Tree, ...]]:
    if not isinstance(tree, str):
        yield tree
        for part in tree[1:]:
            yield from _operators(part)


_MEANINGS: Final = {"+": codes.ADD, "*": codes.MUL}


class TermGraph:
    """An e-graph of such terms under a list of rules.

    `commutative`: operators whose two arguments are kept sorted; they need no rule that turns
    them round, and no nodes for it.
    """

    def __init__(
        self,
        rules: Iterable[Rewrite],
        *,
        numbers: bool = False,
        commutative: Iterable[str] = (),
        explain: bool = False,
        engine: EngineMaker | None = None,
        schedule: Schedule = UNLIMITED,
    ) -> None:
        self.turn: Final = threading.RLock()
        """Held by the thread that is in one of the methods."""
        self.rules: Final = tuple(rules)
        self.numbers: Final = numbers
        self.schedule: Final = schedule
        self._commutative: Final = frozenset(commutative)
        self._heads: Final[dict[tuple[str, int], int]] = {}
        self._names: Final[list[tuple[str, int] | None]] = []
        self._keys: Final[dict[tuple[str, int], int]] = {}
        self._symbols: Final[dict[tuple[str, int], int]] = {}
        self._captures: Final[list[dict[str, int]]] = []
        self.book: Final = Book()
        self._dtype = 0
        if numbers:
            self._dtype = self.book.add_dtype(DTypeRow(codes.INDEX, 0, 0, 0, 1, 0))
        for rule in self.rules:
            self._compile(rule)
        self.book.selectors = max(1, len(self._keys))
        for i, key in enumerate(self._symbols):
            row, _ = self.book.symbols[i]
            self.book.symbols[i] = (row, self._selects(key))
        self.engine: Final = (engine or default_engine())(
            self.book, schedule.limits(), True, explain
        )

    # ---- rules

    def _selector(self, name: str, arity: int) -> int:
        return self._keys.setdefault((name, arity), len(self._keys))

    def _selects(self, key: tuple[str, int]) -> int:
        place = self._keys.get(key)
        return 0 if place is None else 1 << place

    def _row(self, name: str, arity: int, cost: float = 1.0) -> HeadRow:
        meaning = _MEANINGS.get(name, codes.OPAQUE) if self.numbers and arity == 2 else codes.OPAQUE
        commutative = arity == 2 and name in self._commutative
        return HeadRow(meaning, self._dtype, arity, commutative, cost=cost)

    def _is_number(self, name: str) -> bool:
        """Whether an engine can hold it as a number: larger ones are names like any other."""
        return (
            self.numbers
            and _NUMBER.fullmatch(name) is not None
            and len(name) <= _DIGITS
            and codes.LEAST < int(name) < codes.MOST
        )

    def _compile(self, rule: Rewrite) -> None:
        slots: dict[str, int] = {}
        count = 0
        atoms: list[Atom] = []
        guards: list[Guard] = []

        def slot(name: str | None = None) -> int:
            nonlocal count
            if name is not None and name in slots:
                return slots[name]
            count += 1
            if name is not None:
                slots[name] = count - 1
            return count - 1

        left = parse_term(rule.left)
        if isinstance(left, str) and left.startswith("?"):
            raise errors.RewriteError(f"rule {rule}: its left side matches everything")
        todo: list[tuple[Tree, int]] = [(left, slot())]
        while todo:
            tree, out = todo.pop(0)
            name, parts = (tree, ()) if isinstance(tree, str) else (tree[0], tree[1:])
            assert isinstance(name, str)
            kids: list[int] = []
            self._check_arity(rule, parts)
            for part in parts:
                if isinstance(part, str) and part.startswith("?"):
                    kids.append(slot(part))
                elif isinstance(part, str) and self._is_number(part):
                    kids.append(slot())
                    guards.append(Guard(codes.GUARD_INT, kids[-1], number=int(part)))
                else:
                    kids.append(slot())
                    todo.append((part, kids[-1]))
            swap = len(kids) == 2 and name in self._commutative
            selector = self._selector(name, len(kids))
            atoms.append(Atom(selector, out, 0, tuple(kids), swap))
        atoms = [Atom(a.selector, a.out, count + i, a.kids, a.swap) for i, a in enumerate(atoms)]
        count += len(atoms)
        guards += [Guard(codes.GUARD_CONSTANT, slots[n]) for n in rule.constant]
        guards += [Guard(codes.GUARD_NONZERO, slots[n]) for n in rule.nonzero]
        facts = tuple(dict.fromkeys(g.slot for g in guards))
        instructions: list[Instruction] = []
        for part in _operators(parse_term(rule.right)):
            self._check_arity(rule, part[1:])
        result, count = self._build(parse_term(rule.right), slots, instructions, count)
        way = self.book.add_way(
            Way(tuple(atoms), tuple(guards), (), max(count, 1), facts, rule.when is not None)
        )
        self._captures.append(dict(slots))
        path = Path((), tuple(instructions), result)
        self.book.add_variant(way, Variant((), () if rule.when else (path,)))

    @staticmethod
    def _check_arity(rule: Rewrite, parts: Sequence[Tree]) -> None:
        if len(parts) > codes.KIDS:
            raise errors.RewriteError(
                f"rule {rule} has an operator of {len(parts)} arguments; at most {codes.KIDS} "
                "are supported in rules (terms may have any number)"
            )

    def _build(
        self, tree: Tree, slots: Mapping[str, int], made: list[Instruction], count: int
    ) -> tuple[int, int]:
        if isinstance(tree, str) and tree in slots:
            return slots[tree], count
        name, parts = (tree, ()) if isinstance(tree, str) else (tree[0], tree[1:])
        assert isinstance(name, str)
        if not parts and self._is_number(name):
            made.append(
                Instruction(
                    codes.MAKE_CONSTANT,
                    *(count, (), 0, self._dtype, codes.NUMBER_INT, int(name)),
                )
            )
            return count, count + 1
        kids: list[int] = []
        for part in parts:
            kid, count = self._build(part, slots, made, count)
            kids.append(kid)
        key = (name, len(kids))
        if key not in self._symbols:
            self._symbols[key] = self.book.add_symbol(self._row(*key), 0)
        made.append(Instruction(codes.MAKE_NODE, count, tuple(kids), self._symbols[key]))
        return count, count + 1

    # ---- terms

    def _head(self, name: str, arity: int) -> int:
        key = (name, arity)
        found = self._heads.get(key)
        if found is None:
            self._sync()
            found = self._heads.get(key)
        if found is None:
            symbol = self._symbols.get(key)
            if symbol is not None:
                found = self.engine.symbol_head(symbol)
            else:
                found = self.engine.head(self._row(name, arity), self._selects(key))
            self._heads[key] = found
            self._names.append(key)
        return found

    def _sync(self) -> None:
        """Learn the names of heads that the engine has made."""
        keys = list(self._symbols)
        for head in range(len(self._names), self.engine.head_count()):
            symbol, _, _, value = self.engine.head_at(head)
            if symbol >= 0:
                self._heads[keys[symbol]] = head
                self._names.append(keys[symbol])
            else:
                self._names.append((str(value), 0))

    @in_turn
    def add(self, term: str | Tree) -> int:
        """The class of a term."""
        tree = parse_term(term) if isinstance(term, str) else term
        made: list[int] = []
        stack: list[tuple[Tree, bool]] = [(tree, False)]
        while stack:
            t, ready = stack.pop()
            name, parts = (t, ()) if isinstance(t, str) else (t[0], t[1:])
            assert isinstance(name, str)
            if parts and not ready:
                stack.append((t, True))
                stack.extend((part, False) for part in reversed(parts))
                continue
            kids = made[len(made) - len(parts) :] if parts else []
            if parts:
                del made[len(made) - len(parts) :]
            if not parts and self._is_number(name):
                self._sync()
                made.append(self.engine.constant(self._dtype, codes.NUMBER_INT, int(name)))
            else:
                made.append(self.engine.add(self._head(name, len(kids)), kids))
        return made[0]

    @in_turn
    def union(self, a: int, b: int) -> bool:
        """Say that two classes are equal; whether they were two."""
        united = self.engine.unite(a, b)
        if united is None:
            raise self._conflict()
        return united

    @in_turn
    def rebuild(self) -> None:
        """Let all that follows from what is equal be so; an error where that cannot be."""
        if not self.engine.rebuild():
            raise self._conflict()

    @in_turn
    def equal(self, a: int, b: int) -> bool:
        return self.engine.find(a) == self.engine.find(b)

    @in_turn
    def fact(self, cls: int) -> Fact:
        """What is known of a class."""
        return self.engine.fact(cls)

    def name_of(self, head: int) -> tuple[str, int]:
        """Name and arity of a head."""
        if head >= len(self._names):
            self._sync()
        found = self._names[head]
        assert found is not None
        return found

    # ---- running

    @in_turn
    def run(self, rounds: int = 0, schedule: Schedule | None = None) -> Report:
        """Rounds until nothing is new, or so many, or to the limits of a schedule."""
        plan = schedule or self.schedule
        if rounds:
            plan = Schedule(plan.nodes, rounds, plan.seconds, plan.matches, plan.ban_rounds)
        names = [rule.name for rule in self.rules]
        return saturate(self.engine, plan, self._apply, names, self._conflict)

    def _apply(self, matches: list[tuple[int, tuple[int, ...]]]) -> None:
        for way, slots in matches:
            if self.engine.over():
                return
            rule, names = self.rules[way], self._captures[way]
            match = {name: slots[place] for name, place in names.items()}
            if rule.when is None or rule.when(self, match):
                made = self._instantiate(parse_term(rule.right), match)
                self.engine.unite(slots[self.book.ways[way].root], made, way, codes.BY_RULE, way)

    def _instantiate(self, tree: Tree, match: Mapping[str, int]) -> int:
        if isinstance(tree, str) and tree in match:
            return match[tree]
        name, parts = (tree, ()) if isinstance(tree, str) else (tree[0], tree[1:])
        assert isinstance(name, str)
        if not parts and self._is_number(name):
            return self.engine.constant(self._dtype, codes.NUMBER_INT, int(name))
        return self.engine.add(
            self._head(name, len(parts)), [self._instantiate(part, match) for part in parts]
        )

    def _conflict(self) -> Exception:
        c = self.engine.conflict()
        rule = "the caller's union" if c.way == NONE else f"rule {self.rules[c.way]}"
        what = {
            codes.DIFFERENT_CONSTANTS: "two different numbers",
            codes.DISJOINT_INTERVALS: "numbers of two ranges that do not meet",
            codes.DISJOINT_REMAINDERS: "numbers of two different remainders",
        }.get(c.kind, "two dtypes")
        return errors.RewriteError(f"{rule} would make {what} equal: it does not hold")

    # ---- answers

    @in_turn
    def extract(
        self,
        cls: int,
        prices: Callable[[str], float] | None = None,
        cost: CostKind = "tree",
        effort: Effort = USUAL,
    ) -> str:
        """The cheapest term of a class, the first of `extraction`."""
        return self.extraction(cls, prices=prices, cost=cost, effort=effort).terms[0]

    @in_turn
    def extraction(
        self,
        *classes: int,
        prices: Callable[[str], float] | None = None,
        cost: CostKind = "tree",
        effort: Effort = USUAL,
    ) -> Extraction[str]:
        """The cheapest terms of some classes, together; see `EGraph.extraction`.

        `prices` is what an operator costs, by its name; without it each costs 1.
        """
        given: list[float] | None = None
        self.rebuild()
        if prices is not None:
            given = [0.0] * self.engine.counts().nodes
            for row in self.engine.dump():
                given[row.id] = prices(self.name_of(row.head)[0])
        choice, rows = choose(self.engine, classes, given, cost, effort)
        done: dict[int, Tree] = {}
        for c, row in rows.items():
            name = self.name_of(row.head)[0]
            done[c] = (name, *[done[k] for k in row.kids]) if row.kids else name
        return choice.of(tuple([print_term(done[self.engine.find(c)]) for c in classes]))

    @in_turn
    def explain(self, a: str, b: str) -> list[str]:
        """The rules by which a term becomes an equal one, in order; "<-" marks those that are
        used from right to left. The graph must have been made with `explain=True`."""
        first, last = self.add(a), self.add(b)
        self.rebuild()
        if not self.equal(first, last):
            raise errors.OpgraftError(f"{a} and {b} are not equal in this e-graph")
        found: list[str] = []
        for _, link in flat(self.engine, first, last):
            if link.kind == codes.BY_RULE:
                found.append(("" if link.forward else "<-") + self.rules[link.data].name)
            elif link.kind == codes.BY_CALLER:
                found.append("caller")
        return found

    @in_turn
    def classes(self) -> dict[int, list[tuple[str, tuple[int, ...]]]]:
        """The nodes of each class, as (operator, classes of the arguments)."""
        found: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
        for row in self.engine.dump():
            found.setdefault(row.cls, []).append((self.name_of(row.head)[0], row.kids))
        return found


def chain(operator: str, leaves: Sequence[Any]) -> Tree:
    """`(op a (op b (op c d)))` of leaves a, b, c, d."""
    tree: Tree = str(leaves[-1])
    for leaf in reversed(leaves[:-1]):
        tree = (operator, str(leaf), tree)
    return tree
