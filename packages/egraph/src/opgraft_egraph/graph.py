"""`EGraph`: an e-graph of nodes of the IR, and the rules that run on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from opgraft.api import EqualitySet, PatternMatcher, UOp, errors
from opgraft_egraph import codes
from opgraft_egraph.analysis import Analysis, values_of
from opgraft_egraph.arguments import a_function, a_node, an_effort, some_rules
from opgraft_egraph.callbacks import Callbacks, LearntError
from opgraft_egraph.codes import NONE, SWAPPED
from opgraft_egraph.conflicts import analysis_error, conflict_error
from opgraft_egraph.cost import Prices, checked, price_function, seed_cost
from opgraft_egraph.engine import Engine, EngineMaker, Fact, NodeRow, default_engine
from opgraft_egraph.exact import USUAL, Effort
from opgraft_egraph.extraction import CostKind, Extraction, choose
from opgraft_egraph.language import children, closed, decode, encode, key_of
from opgraft_egraph.patterns import describe
from opgraft_egraph.report import UNLIMITED, Report, Schedule, saturate
from opgraft_egraph.ruleset import RuleSet, ruleset_of
from opgraft_egraph.turns import in_turn

_EMPTY: Final = EqualitySet([])
_ENDLESS: Final = UNLIMITED.limits()
"""Of an engine that has not been run."""


def _nodes(root: Any) -> tuple[UOp, ...]:
    if isinstance(root, UOp) or not isinstance(root, Iterable):
        return (a_node(root, "a root"),)
    return tuple([a_node(one, "a root") for one in root])


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
        self.turn: Final = threading.RLock()
        """Held by the thread that is in one of the methods."""
        self.ruleset: Final[RuleSet] = ruleset_of(some_rules(rules))
        self.language: Final = self.ruleset.language
        self.analyses: Final = dict(analyses or {})
        self._values: Final[dict[str, dict[int, Any]]] = {}
        self.ctx: Final = self.analysis if analyses and ctx is None else ctx
        self.explain: Final = explain
        self._cost: Final = cost if cost is seed_cost else checked(a_function(cost, "cost"))
        self._power_of_two: Final = power_of_two
        self._make_engine: Final = engine or default_engine()
        self._running = False
        self._history: Final[list[tuple[UOp, UOp] | Schedule]] = []
        """Merges and runs, to be done again after a restart."""
        self.roots: Final = _nodes(root)
        self._begin()
        for one in self.roots:
            self.id_of(one)

    def _begin(self) -> None:
        """An empty engine, and nothing known about it."""
        power = self._power_of_two
        with self.language.lock:
            self.engine: Engine = self._make_engine(
                *(self.language.book, _ENDLESS if power < 0 else UNLIMITED.limits(power)),
                *(True, self.explain),
            )
        self._heads: dict[Any, int] = {}
        self._shown: list[UOp | None] = []
        """A node of each head; None: a constant."""
        self.ids: dict[UOp, int] = {}
        self._others: list[Any] = []
        """Values of constants that the engine cannot hold."""
        self._terms: dict[int, tuple[int, UOp]] = {}
        self._callbacks = Callbacks()
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
            self.id_of(uop)
        for item in self._history:
            if isinstance(item, Schedule):
                self._run(item)
            elif self.engine.unite(*map(self.id_of, item)) is None:
                raise self._conflict()

    # ---- growing

    @in_turn
    def add(self, uop: UOp) -> bool:
        """Put a node, and all below it, into the graph; whether it was not there before."""
        if a_node(uop, "what is added") in self.ids:
            return False
        self.id_of(uop)
        self._history.append((uop, uop))
        return True

    def __contains__(self, uop: object) -> bool:
        return uop in self.ids

    def id_of(self, uop: UOp) -> int:
        """The class (with explanations: the term) of a node, which is added if need be."""
        ids = self.ids
        found = ids.get(a_node(uop, "what an e-graph holds"))
        if found is not None:
            return found
        add, heads = self.engine.add, self._heads
        for n in uop.toposort(lambda n: n not in ids) if ids else uop.toposort():
            if n in ids:
                continue
            if n.is_const:
                ids[n] = self._constant(n)
                continue
            key = key_of(n)
            head = heads.get(key)
            if head is None:
                head = self._head(n, key)
            ids[n] = add(head, [ids[s] for s in children(n)])
        return ids[uop]

    def _constant(self, n: UOp) -> int:
        value = n.const_value
        encoded = encode(value)
        if encoded is None:
            if value not in self._others:
                self._others.append(value)
            encoded = codes.ELSEWHERE, self._others.index(value)
        dtype = self.language.dtype(n.dtype)
        self._refresh()
        return self.engine.constant(dtype, *encoded)

    def _head(self, n: UOp, key: Any) -> int:
        symbol = self.language.known_symbol(key)
        if symbol is not None:
            self._refresh()
            self.engine.symbol_head(symbol)
            self._sync()
            return self._heads[key]
        row = self.language.row(n, self._cost(n))
        selects = self.language.selects(n.op, n.dtype, n.arg)
        self._refresh()
        found = self.engine.head(row, selects)
        if found != len(self._shown):
            self._sync(found)
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
            for symbol in range(first, self._learnt) if self._heads else ():
                head = self._heads.get(key_of(symbols[symbol]))
                if head is not None:
                    engine.bind(symbol, head)
            engine.refresh()
            self._version = book.version

    def _sync(self, count: int = -1) -> None:
        """Learn of the heads, or the first `count`, that the engine has made by itself."""
        shown = self._shown
        if count < 0:
            count = self.engine.head_count()
        while len(shown) < count:
            symbol = self.engine.head_at(len(shown))[0]
            if symbol < 0:
                shown.append(None)
                continue
            n = self.language.symbols[symbol]
            self._heads[key_of(n)] = len(shown)
            shown.append(n)

    @in_turn
    def merge(self, a: UOp, b: UOp) -> bool:
        """Say that two nodes are equal; whether they were in two classes.

        It is refused, and the graph is as before, where that, or what follows from it, would put
        what cannot be one into one class.
        """
        united = self.engine.unite(self.id_of(a), self.id_of(b))
        if united is None:
            raise self._conflict()
        if not self.engine.rebuild():
            error = conflict_error(self, merged=(a, b))
            self._restart()
            raise error
        self._history.append((a, b))
        return united

    @in_turn
    def rebuild(self) -> None:
        """Let all that follows from what is equal be so; an error where that cannot be."""
        if not self.engine.rebuild():
            raise self._conflict()

    # ---- looking

    @in_turn
    def find(self, uop: UOp) -> UOp:
        """The representative of a node's class: of its members, the one that was added first."""
        return self._representatives()[self.engine.find(self.id_of(uop))]

    @in_turn
    def equal(self, a: UOp, b: UOp) -> bool:
        """Whether two nodes are in one class."""
        return self.engine.find(self.id_of(a)) == self.engine.find(self.id_of(b))

    @in_turn
    def fact(self, uop: UOp) -> Fact:
        """What is known of the values of a node's class."""
        return self.engine.fact(self.id_of(uop))

    def _representatives(self) -> dict[int, UOp]:
        found: dict[int, UOp] = {}
        for uop, cls in self.ids.items():
            found.setdefault(self.engine.find(cls), uop)
        return found

    @property
    @in_turn
    def classes(self) -> dict[UOp, dict[UOp, None]]:
        """The members of each class, by its representative, in the order in which they came.

        Besides the nodes that were added: those that rules made, on the cheapest sources.
        """
        self.rebuild()
        members: dict[int, dict[UOp, None]] = {}
        for uop, cls in self.ids.items():
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

    def number(self, fact: Fact) -> UOp:
        """The constant that a fact says a class is."""
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
                terms[c] = engine.term_stamp(c), self.number(fact)
                stack.pop()
                continue
            best = engine.best(c)[0]
            if best == NONE:
                # it was added after the last rebuild
                self.rebuild()
                best = engine.best(engine.find(c))[0]
            row = engine.node(best)
            missing = [k for k in row.kids if not self._is_current(k)]
            if missing:
                stack += missing
                continue
            terms[c] = engine.term_stamp(c), self.built(row, [terms[k][1] for k in row.kids])
            stack.pop()
        return terms[cls][1]

    def _is_current(self, cls: int) -> bool:
        known = self._terms.get(cls)
        return known is not None and known[0] == self.engine.term_stamp(cls)

    def built(self, row: NodeRow, kids: Sequence[UOp]) -> UOp:
        """A node of an engine's node, its children as they were written."""
        n = self.shown(row.head)
        if n is None:
            _, dtype, number, value = self.engine.head_at(row.head)
            return self.number(Fact(0, 0, number, value, 0, 0, dtype, False))
        if not row.kids:
            return n
        if row.flags & SWAPPED:
            kids = (kids[1], kids[0])
        return n.with_src((*kids, *closed(n)))

    def _node(self, row: NodeRow) -> UOp:
        return self.built(row, [self.term(k) for k in row.kids])

    # ---- running

    @in_turn
    def run(self, schedule: Schedule = UNLIMITED) -> Report:
        """Apply the rules until nothing is new or a limit of the schedule is reached.

        A function of a rule may add to the graph, merge and look, but not run it.
        """
        if self._running:
            raise errors.OpgraftError("this e-graph is being run already, by whom this was called")
        self._running = True
        try:
            if self.analyses:
                return self._run_analysed(schedule)
            report = self._run(schedule)
        finally:
            self._running = False
        self._history.append(schedule)
        return report

    def _run(self, schedule: Schedule) -> Report:
        while True:
            try:
                report = saturate(
                    *(self.engine, schedule, self._call_back, self.ruleset.names, self._conflict),
                    calls=self._callbacks.counts,
                    power_of_two=self._power_of_two,
                    prepare=self._refresh,
                )
            except LearntError:
                self._restart()
                continue
            return report

    def _call_back(self, matches: list[tuple[int, tuple[int, ...]]]) -> None:
        self._sync()
        self._callbacks.apply(self, matches)

    def _conflict(self) -> errors.RewriteError:
        return conflict_error(self)

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
        self.rebuild()
        rows = list(self.engine.dump())
        for name, analysis in self.analyses.items():
            before = self._values.get(name, {})
            made = values_of(name, analysis, rows, self._like, self._clash)
            self._values[name] = made
            for cls, value in made.items():
                if cls in before and before[cls] != value:
                    self.engine.touch(cls)

    @in_turn
    def check(self, name: str, analysis: Analysis) -> None:
        """Raise where an analysis says that a class, as it is now, holds different things."""
        self.rebuild()
        self._sync()
        values_of(name, analysis, list(self.engine.dump()), self._like, self._clash)

    def _clash(self, name: str, cls: int, problem: str) -> errors.RewriteError:
        return analysis_error(self, name, cls, problem)

    def _like(self, row: NodeRow) -> UOp:
        """A node of the head of an engine's node, whatever its sources."""
        n = self.shown(row.head)
        return self.built(row, ()) if n is None else n

    @in_turn
    def analysis(self, name: str, uop: UOp) -> Any:
        """The value that an analysis gave the class of a node, in the last round."""
        values = self._values[name]
        cls = self.id_of(uop)
        found = self.engine.find(cls)
        if found not in values:
            # it was joined with another since
            found = next((c for c in values if self.engine.find(c) == found), found)
        return values[found]

    # ---- answers

    @in_turn
    def extract(
        self,
        *roots: UOp,
        cost: CostKind = "dag",
        prices: Prices | None = None,
        effort: Effort = USUAL,
    ) -> tuple[UOp, ...]:
        """The cheapest equals of the roots: the terms of `extraction`, which see."""
        return self.extraction(*roots, cost=cost, prices=prices, effort=effort).terms

    @in_turn
    def extraction(
        self,
        *roots: UOp,
        cost: CostKind = "dag",
        prices: Prices | None = None,
        effort: Effort = USUAL,
    ) -> Extraction[UOp]:
        """The cheapest equals of the roots (those of the graph, if none are given), together.

        `cost`: by "dag" a node that is used twice is paid once, by "tree" twice. `prices` say what
        a node costs by itself: a function of it, a `CostModel`, or a table by operation (3 for
        those it lacks); without them, the function that the graph was made with. A function is
        shown nodes on their cheapest known sources.

        By "tree" the answer is the optimum. By "dag" it is never costlier than the cheapest trees
        and greedy choices, and the optimum where `proved` says so: how far that is looked for is
        the `effort`. `QUICK` only has the quick ones; `USUAL` proves what a second or so will do
        for; `THOROUGH` takes a minute if need be.

        >>> a, b, c = (UOp.variable(n, 0, 9) for n in "abc")
        >>> graph = EGraph(a * b + a * c)
        >>> graph.merge(a * b + a * c, a * (b + c))
        True
        >>> found = graph.extraction()
        >>> found.terms == (a * (b + c),), found.cost, found.proved
        (True, 3.0, True)
        """
        an_effort(effort)
        ids = [self.id_of(r) for r in roots or self.roots]
        self.rebuild()
        choice, rows = choose(self.engine, ids, self._prices(prices), cost, effort)
        done: dict[int, UOp] = {}
        for cls, row in rows.items():
            done[cls] = self.built(row, [done[k] for k in row.kids])
        return choice.of(tuple([done[self.engine.find(cls)] for cls in ids]))

    def _prices(self, prices: Prices | None) -> list[float] | None:
        """What each node of the engine costs, by its id; None: what its head does."""
        if prices is None:
            return None
        price = checked(price_function(prices))
        made = [0.0] * self.engine.counts().nodes
        for row in list(self.engine.dump()):
            made[row.id] = price(self._node(row))
        return made

    @in_turn
    def nodes(self) -> list[tuple[NodeRow, UOp]]:
        """Every node of the engine, and the node that it stands for on the cheapest sources."""
        self.rebuild()
        return [(row, self._node(row)) for row in list(self.engine.dump())]

    @in_turn
    def class_id(self, uop: UOp) -> int:
        """The number of a node's class: it stands until the next merge or round."""
        return self.engine.find(self.id_of(uop))

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

    @in_turn
    def __len__(self) -> int:
        """How many classes there are."""
        return self.engine.counts().classes
