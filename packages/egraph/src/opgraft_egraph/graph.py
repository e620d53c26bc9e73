"""`EGraph`: an e-graph of nodes of the IR, and the rules that run on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from opgraft.api import EqualitySet, GroupOp, PatternMatcher, UOp, errors
from opgraft_egraph import codes
from opgraft_egraph.analysis import Analysis, values_of
from opgraft_egraph.codes import NONE, SWAPPED
from opgraft_egraph.cost import seed_cost
from opgraft_egraph.engine import Engine, EngineMaker, Fact, NodeRow, default_engine
from opgraft_egraph.language import children, closed, decode, encode, key_of
from opgraft_egraph.patterns import Match, Part, describe
from opgraft_egraph.report import UNLIMITED, Report, Schedule, saturate
from opgraft_egraph.ruleset import RuleSet, ruleset_of

_EMPTY: Final = EqualitySet([])
_BY_RULE: Final = codes.BY_RULE


def _passes(part: Part, node: UOp) -> bool:
    predicate = part.pattern.predicate
    return predicate is None or bool(predicate(node))


class _LearntError(Exception):
    """A function has been traced that the engine did not know: it is to begin again."""


class EGraph:
    """Classes of equal nodes. Two nodes are in one class if they were said to be equal, if a rule
    says so, or if they are the same operation on equal sources.

    >>> a, b = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)
    >>> graph = EGraph(a + b)
    >>> graph.merge(a, b), graph.merge(a, b)
    (True, False)
    >>> graph.add(a + a)
    True
    >>> graph.find(a + b) is graph.find(a + a)
    True
    """

    def __init__(
        self,
        root: UOp | Iterable[UOp] = (),
        rules: PatternMatcher = _EMPTY,
        *,
        ctx: Any = None,
        cost: Callable[[UOp], float] = seed_cost,
        explain: bool = False,
        power_of_two: float = -1.0,
        engine: EngineMaker | None = None,
        analyses: Mapping[str, Analysis] | None = None,
    ) -> None:
        self.ruleset: Final[RuleSet] = ruleset_of(rules)
        self.language: Final = self.ruleset.language
        self.analyses: Final = dict(analyses or {})
        self._values: Final[dict[str, dict[int, Any]]] = {}
        self.ctx: Final = self.analysis if analyses and ctx is None else ctx
        self.explain: Final = explain
        self._cost: Final = cost
        self._power_of_two: Final = power_of_two
        self._make_engine: Final = engine or default_engine()
        self._history: Final[list[tuple[UOp, UOp] | Schedule]] = []
        """Merges and runs, to be done again after a restart."""
        self.roots: Final = (root,) if isinstance(root, UOp) else tuple(root)
        self._begin()
        for one in self.roots:
            self._id(one)

    def _begin(self) -> None:
        """An empty engine, and nothing known about it."""
        with self.language.lock:
            self.engine: Engine = self._make_engine(
                self.language.book, UNLIMITED.limits(self._power_of_two), True, self.explain
            )
        self._heads: dict[Any, int] = {}
        self._shown: list[UOp | None] = []
        """A node of each head; None: a constant."""
        self._ids: dict[UOp, int] = {}
        self._others: list[Any] = []
        """Values of constants that the engine cannot hold."""
        self._terms: dict[int, tuple[int, UOp]] = {}
        self._made: dict[Any, UOp | None] = {}
        self._calls: dict[str, int] = {}
        self._learnt = 0
        self._version = -1
        self._refresh()

    def _restart(self) -> None:
        """Do it all again from the start, with what has been learnt about the rules.

        Otherwise the first graph of a process that meets a rule on some dtypes would go through
        other steps than the next one, and might come to another of several cheapest answers.
        """
        self._begin()
        for uop in self.roots:
            self._id(uop)
        for item in self._history:
            if isinstance(item, Schedule):
                self._run(item)
            elif self.engine.unite(*map(self._id, item)) is None:
                raise self._conflict()

    # ---- growing

    def add(self, uop: UOp) -> bool:
        """Put a node, and all below it, into the graph; whether it was not there before."""
        if uop in self._ids:
            return False
        self._id(uop)
        self._history.append((uop, uop))
        return True

    def __contains__(self, uop: object) -> bool:
        return uop in self._ids

    def _id(self, uop: UOp) -> int:
        """The class (with explanations: the term) of a node, which is added if need be."""
        ids = self._ids
        found = ids.get(uop)
        if found is not None:
            return found
        add, heads = self.engine.add, self._heads
        for n in uop.toposort(lambda n: n not in ids):
            if n in ids:
                continue
            if n.is_const:
                ids[n] = self._constant(n)
                continue
            head = heads.get(key_of(n))
            if head is None:
                head = self._head(n)
            ids[n] = add(head, [ids[s] for s in children(n)])
        return ids[uop]

    def _constant(self, n: UOp) -> int:
        self._sync()
        value = n.const_value
        encoded = encode(value)
        if encoded is None:
            if value not in self._others:
                self._others.append(value)
            encoded = codes.ELSEWHERE, self._others.index(value)
        dtype = self.language.dtype(n.dtype)
        self._refresh()
        made = self.engine.constant(dtype, *encoded)
        self._sync()
        return made

    def _head(self, n: UOp) -> int:
        self._sync()
        key = key_of(n)
        found = self._heads.get(key)
        if found is not None:
            return found
        symbol = self.language.known_symbol(key)
        row = self.language.row(n, self._cost(n))
        self._refresh()
        if symbol is not None:
            self.engine.symbol_head(symbol)
            self._sync()
            return self._heads[key]
        found = self.engine.head(row, self.language.selects(n.op, n.dtype, n.arg))
        self._heads[key] = found
        self._shown.append(n)
        return found

    def _refresh(self) -> None:
        """Take what the language has learnt: symbols that have a head here are not made again."""
        book, symbols, engine = self.language.book, self.language.symbols, self.engine
        if book.version == self._version:
            return
        with self.language.lock:
            first, self._learnt = self._learnt, len(symbols)
            if first < self._learnt:
                engine.set_prices([self._cost(n) for n in symbols])
            for symbol in range(first, self._learnt):
                head = self._heads.get(key_of(symbols[symbol]))
                if head is not None:
                    engine.bind(symbol, head)
            engine.refresh()
            self._version = book.version

    def _sync(self) -> None:
        """Learn which heads the engine has made for right sides and constants."""
        shown, count = self._shown, self.engine.head_count()
        while len(shown) < count:
            symbol = self.engine.head_at(len(shown))[0]
            if symbol < 0:
                shown.append(None)
                continue
            n = self.language.symbols[symbol]
            self._heads[key_of(n)] = len(shown)
            shown.append(n)

    def merge(self, a: UOp, b: UOp) -> bool:
        """Say that two nodes are equal; whether they were in two classes."""
        united = self.engine.unite(self._id(a), self._id(b))
        if united is None:
            raise self._conflict()
        self._history.append((a, b))
        self.engine.rebuild()
        return united

    # ---- looking

    def find(self, uop: UOp) -> UOp:
        """The representative of a node's class: of its members, the one that was added first."""
        return self._representatives()[self.engine.find(self._id(uop))]

    def equal(self, a: UOp, b: UOp) -> bool:
        """Whether two nodes are in one class."""
        return self.engine.find(self._id(a)) == self.engine.find(self._id(b))

    def fact(self, uop: UOp) -> Fact:
        """What is known of the values of a node's class."""
        return self.engine.fact(self._id(uop))

    def _representatives(self) -> dict[int, UOp]:
        found: dict[int, UOp] = {}
        for uop, cls in self._ids.items():
            found.setdefault(self.engine.find(cls), uop)
        return found

    @property
    def classes(self) -> dict[UOp, dict[UOp, None]]:
        """The members of each class, by its representative, in the order in which they came.

        Besides the nodes that were added: those that rules made, on the cheapest sources.
        """
        self.engine.rebuild()
        members: dict[int, dict[UOp, None]] = {}
        for uop, cls in self._ids.items():
            members.setdefault(self.engine.find(cls), {})[uop] = None
        for row in list(self.engine.dump()):
            members.setdefault(row.cls, {})[self._node(row)] = None
        return {next(iter(group)): group for group in members.values()}

    def shown(self, head: int) -> UOp | None:
        """A node of a head, with no matter what sources; None: of a constant."""
        if head >= len(self._shown):
            self._sync()
        return self._shown[head]

    # ---- terms

    def _number(self, fact: Fact) -> UOp:
        dtype = self.language.dtypes[fact.dtype]
        assert dtype is not None
        if fact.number == codes.ELSEWHERE:
            return UOp.const(dtype, self._others[fact.value])
        return UOp.const(dtype, decode(fact.number, fact.value))

    def term(self, cls: int) -> UOp:
        """The cheapest node that a class was known to equal at the last rebuild.

        `cls` was canonical then.
        """
        terms, engine = self._terms, self.engine
        stack = [cls]
        while stack:
            c = stack[-1]
            known = terms.get(c)
            if known is not None and known[0] == engine.term_stamp(c):
                stack.pop()
                continue
            fact = engine.fact(c)
            if fact.number:
                terms[c] = engine.term_stamp(c), self._number(fact)
                stack.pop()
                continue
            row = engine.node(engine.best(c)[0])
            missing = [k for k in row.kids if not self._is_current(k)]
            if missing:
                stack += missing
                continue
            terms[c] = engine.term_stamp(c), self._built(row, [terms[k][1] for k in row.kids])
            stack.pop()
        return terms[cls][1]

    def _is_current(self, cls: int) -> bool:
        known = self._terms.get(cls)
        return known is not None and known[0] == self.engine.term_stamp(cls)

    def _built(self, row: NodeRow, kids: Sequence[UOp]) -> UOp:
        """A node of an engine's node, its children as they were written."""
        n = self.shown(row.head)
        if n is None:
            _, dtype, number, value = self.engine.head_at(row.head)
            return self._number(Fact(0, 0, number, value, 0, 0, dtype, False))
        if not row.kids:
            return n
        if row.flags & SWAPPED:
            kids = (kids[1], kids[0])
        return n.with_src((*kids, *closed(n)))

    def _node(self, row: NodeRow) -> UOp:
        return self._built(row, [self.term(k) for k in row.kids])

    # ---- running

    def run(self, schedule: Schedule = UNLIMITED) -> Report:
        """Apply the rules until nothing is new or a limit of the schedule is reached."""
        if self.analyses:
            return self._run_analysed(schedule)
        report = self._run(schedule)
        self._history.append(schedule)
        return report

    def _run(self, schedule: Schedule) -> Report:
        while True:
            try:
                report = saturate(
                    *(self.engine, schedule, self._apply, self.ruleset.names, self._conflict),
                    calls=self._calls,
                    power_of_two=self._power_of_two,
                    prepare=self._refresh,
                )
            except _LearntError:
                self._restart()
                continue
            return report

    def _run_analysed(self, schedule: Schedule) -> Report:
        """Round by round, the analyses of one's own brought up to date between them."""
        begin = time.perf_counter()
        rounds = 0
        while True:
            self._analyse()
            left = schedule.seconds and schedule.seconds - (time.perf_counter() - begin)
            stop = "seconds" if left < 0 else "rounds"
            if left >= 0 and (not schedule.rounds or rounds < schedule.rounds):
                report = self._run(schedule._replace(rounds=1, seconds=left))
                rounds += report.rounds
                stop = report.stop
                if stop == "rounds":
                    continue
                self._analyse()
            else:
                report = self._run(schedule._replace(rounds=1, seconds=1e-9))
            return report._replace(stop=stop, rounds=rounds, seconds=time.perf_counter() - begin)

    def _analyse(self) -> None:
        self._refresh()
        self.engine.rebuild()
        rows = list(self.engine.dump())
        for name, analysis in self.analyses.items():
            before = self._values.get(name, {})
            made = values_of(name, analysis, rows, self._like, self._analysis_conflict)
            self._values[name] = made
            for cls, value in made.items():
                if cls in before and before[cls] != value:
                    self.engine.touch(cls)

    def _like(self, row: NodeRow) -> UOp:
        """A node of the head of an engine's node, whatever its sources."""
        n = self.shown(row.head)
        return self._built(row, ()) if n is None else n

    def analysis(self, name: str, uop: UOp) -> Any:
        """The value that an analysis gave the class of a node, in the last round."""
        values = self._values[name]
        cls = self._id(uop)
        found = self.engine.find(cls)
        if found not in values:
            # it was joined with another since
            found = next((c for c in values if self.engine.find(c) == found), found)
        return values[found]

    def _analysis_conflict(self, name: str, cls: int, problem: str) -> errors.RewriteError:
        way = self.engine.blame(cls)
        who = "the caller's merge" if way == NONE else f"rule {self.ruleset.rule_of[way]}"
        return errors.RewriteError(
            f"{who} put nodes into one class, {self._shown_class(cls)}, that analysis {name} "
            f"holds for different: {problem}"
        )

    def _apply(self, matches: list[tuple[int, tuple[int, ...]]]) -> None:
        """Matches that the engine handed over: their functions are called, with nodes."""
        ruleset, engine = self.ruleset, self.engine
        self._sync()
        self._learn(matches)
        for i, (way, slots) in enumerate(matches):
            if not i & 15 and engine.over():
                return
            match = ruleset.matches[way]
            made = self._call(way, match, slots)
            if made is None:
                continue
            before, result = made
            left = slots[match.way.root]
            if self.explain:
                # as the function saw it, so that it can be shown the same again
                left = self._id(before)
                if engine.find(left) != engine.find(slots[match.way.root]):
                    continue
            if engine.unite(left, self._id(result), way, _BY_RULE, way) is None:
                return

    def _learn(self, matches: list[tuple[int, tuple[int, ...]]]) -> None:
        """Have functions traced for the dtypes of these matches, if they were not yet."""
        ruleset, fact, new = self.ruleset, self.engine.fact, False
        for way, slots in matches:
            if ruleset.native[way]:
                captures = ruleset.matches[way].way.captures
                new |= ruleset.learn(way, tuple([fact(slots[s]).dtype for s in captures]))
        if new:
            raise _LearntError

    def _call(self, way: int, match: Match, slots: tuple[int, ...]) -> tuple[UOp, UOp] | None:
        """The matched node and what the rule makes of it; None: it declines."""
        rule = self.ruleset.rule_of[way]
        done: dict[int, UOp] = {}
        root = self._part(match.root, slots, done)
        names = match.captures
        captures = {n: self._part(names[n], slots, done) for n, _ in rule.parameters if n in names}
        key = (rule, root) if match.loose else (way, root, *captures.values())
        if not self.analyses and key in self._made:
            made = self._made[key]
            return None if made is None else (root, made)
        self._calls[rule.name] = self._calls.get(rule.name, 0) + 1
        try:
            if match.loose:
                made = rule.interpret(root, self.ctx)
            else:
                made = None
                if all(_passes(p, done[id(p)]) for p in match.predicates):
                    made = rule.apply(captures, self.ctx)
        except Exception as error:
            shown = ", ".join(f"{n}={describe(c)}" for n, c in captures.items())
            raise errors.RewriteError(
                f"rule {rule} failed on {describe(root)} ({shown}): {type(error).__name__}: {error}"
            ) from error
        if made is root:
            made = None
        self._made[key] = made
        return None if made is None else (root, made)

    def _part(self, part: Part, slots: tuple[int, ...], done: dict[int, UOp]) -> UOp:
        """The node that stands for a part of a pattern in a match."""
        found = done.get(id(part))
        if found is not None:
            return found
        cls = slots[part.slot]
        if part.row < 0:
            made = self.term(cls)
        else:
            row = self.engine.node(slots[part.row])
            if part.kids is None or part.each:
                made = self._built(row, [self.term(k) for k in row.kids])
            else:
                kids = [self._part(kid, slots, done) for kid in part.kids]
                if part.swap and slots[part.kids[0].slot] != row.kids[0]:
                    # matched the other way round: as it is, where that makes a difference
                    n = self.shown(row.head)
                    if n is not None and n.op not in GroupOp.COMMUTATIVE:
                        kids.reverse()
                kids += [self.term(k) for k in row.kids[len(kids) :]]
                n = self.shown(row.head)
                assert n is not None
                made = n.with_src((*kids, *closed(n))) if row.kids else n
        done[id(part)] = made
        return made

    def _conflict(self) -> errors.RewriteError:
        """The error where a class would hold what cannot be one."""
        c = self.engine.conflict()
        if c.way == NONE:
            who = "the caller's merge"
        else:
            rule = self.ruleset.rule_of[c.way]
            who = f"rule {rule}"
            match = self.ruleset.matches[c.way]
            parts = [f"{n}={self._shown_class(c.slots[p.slot])}" for n, p in match.captures.items()]
            if parts:
                who += f" on {', '.join(parts)}"
        a, b = self.engine.fact(c.a), self.engine.fact(c.b)
        what = {
            codes.DIFFERENT_CONSTANTS: "two constants",
            codes.DIFFERENT_DTYPES: "two dtypes",
            codes.DISJOINT_INTERVALS: "disjoint ranges of values",
            codes.DISJOINT_REMAINDERS: "different remainders",
        }[c.kind]
        return errors.RewriteError(
            f"{who} would put {what} into one class: {self._shown_class(c.a)} with "
            f"{self._shown_fact(a)}, and {self._shown_class(c.b)} with {self._shown_fact(b)}",
            remedy="It does not hold for every value, so it is no equality.",
        )

    def _shown_class(self, cls: int) -> str:
        for uop, known in self._ids.items():
            if known == cls:
                return describe(uop)
        root = self.engine.find(cls)
        for uop, known in self._ids.items():
            if self.engine.find(known) == root:
                return describe(uop)
        return f"class {cls}"

    def _shown_fact(self, fact: Fact) -> str:
        dtype = self.language.dtypes[fact.dtype]
        if fact.number:
            return f"the value {self._number(fact).const_value!r} of {dtype}"
        ends = [
            "-inf" if fact.low == codes.LEAST else fact.low,
            "inf" if fact.high == codes.MOST else fact.high,
        ]
        rest = f", {fact.rest} modulo {fact.modulus}" if fact.modulus > 1 else ""
        return f"values of {dtype} in [{ends[0]}, {ends[1]}]{rest}"

    # ---- answers

    def extract(
        self,
        *roots: UOp,
        cost: Callable[[UOp], float] | None = None,
        dag: bool = True,
    ) -> tuple[UOp, ...]:
        """The cheapest equals of the roots (those of the graph, if none are given), together.

        `cost` is the price of one node by itself; without it, the one that the graph was made
        with. With `dag` a node that is used twice is paid once.
        """
        wanted = roots or self.roots
        engine = self.engine
        ids = [self._id(r) for r in wanted]
        engine.rebuild()
        prices: list[float] | None = None
        if cost is not None:
            prices = [0.0] * engine.counts().nodes
            for row in list(engine.dump()):
                prices[row.id] = cost(self._node(row))
        ids = [engine.find(cls) for cls in ids]
        choice, _ = engine.extract(prices, ids, dag)
        done: dict[int, UOp] = {}
        for cls in ids:
            self._choose(cls, choice, done)
        return tuple([done[cls] for cls in ids])

    def _choose(self, cls: int, choice: Sequence[int], done: dict[int, UOp]) -> None:
        node, stack = self.engine.node, [cls]
        while stack:
            c = stack[-1]
            if c in done:
                stack.pop()
                continue
            row = node(choice[c])
            missing = [k for k in row.kids if k not in done]
            if missing:
                stack += missing
                continue
            done[c] = self._built(row, [done[k] for k in row.kids])
            stack.pop()

    def nodes(self) -> Iterator[tuple[NodeRow, UOp]]:
        """Every node of the engine, and the node that it stands for on the cheapest sources."""
        self.engine.rebuild()
        for row in list(self.engine.dump()):
            yield row, self._node(row)

    def class_id(self, uop: UOp) -> int:
        """The number of a node's class: it stands until the next merge or round."""
        return self.engine.find(self._id(uop))

    def label(self, row: NodeRow) -> str:
        """The operation of an engine's node, with its argument, in a few words."""
        n = self._like(row)
        if n.is_const:
            return f"{n.const_value!r}:{n.dtype}"
        arg = "" if n.arg is None else f" {describe(n.arg)}"
        return f"{n.op.name}:{n.dtype}{arg}"

    def price(self, row: NodeRow) -> float:
        """What an engine's node costs by itself."""
        return self._cost(self._like(row))

    def __len__(self) -> int:
        """How many classes there are."""
        return self.engine.counts().classes
