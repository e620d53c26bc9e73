"""Nodes, unions, congruence, facts and proofs of the engine in plain Python."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from opgraft_egraph import codes
from opgraft_egraph.book import Book, HeadRow
from opgraft_egraph.codes import AGAINST, DEAD, NONE, SWAPPED
from opgraft_egraph.engine import Conflict, Limits, NodeRow, TermRow
from opgraft_egraph.reference_extraction import cheapest
from opgraft_egraph.reference_facts import fact_of
from opgraft_egraph.reference_known import Clash, Known, met, settled

_MOST_REFINED: Final = 64


class Stop(Exception):
    """A limit was reached, or a conflict found: the round ends."""


class RefNode:
    __slots__ = ("cls", "flags", "head", "id", "kids")

    def __init__(self, id: int, head: int, kids: list[int], cls: int, flags: int) -> None:
        self.id, self.head, self.kids, self.cls, self.flags = id, head, kids, cls, flags


class RefTerm:
    __slots__ = ("data", "head", "kids", "kind", "parent")

    def __init__(self, head: int, kids: tuple[int, ...]) -> None:
        self.head, self.kids = head, kids
        self.parent, self.kind, self.data = NONE, 0, 0


class ReferenceGraph:
    """What `ReferenceEngine` searches. See `NativeEngine` for what each method says."""

    def __init__(self, book: Book, limits: Limits, priced: bool, explain: bool) -> None:
        self.book: Final = book
        self.explain: Final = explain
        self._heads: Final[list[tuple[HeadRow, int]]] = []
        self._selects: Final[list[int]] = []
        self._symbols: Final[dict[int, int]] = {}
        self._prices: Sequence[float] = ()
        self._constants: Final[dict[tuple[int, int, int], int]] = {}
        self._nodes: Final[list[RefNode]] = []
        self._table: Final[dict[tuple[int, ...], RefNode]] = {}
        self._parent: Final[list[int]] = []
        self._facts: Final[list[Known]] = []
        self._refined: Final[list[int]] = []
        self._blame: Final[list[int]] = []
        self._touched: list[int] = []
        self._best: dict[int, tuple[float, int, int]] = {}
        self._numbers: set[int] = set()
        self._stamps: Final[dict[int, int]] = {}
        self._rows: dict[int, list[RefNode]] = {}
        self._terms: Final[list[RefTerm]] = []
        self._term_table: Final[dict[tuple[int, ...], int]] = {}
        self._node_term: Final[dict[int, int]] = {}
        self._buffer: list[tuple[int, tuple[int, ...]]] = []
        self._seen: Final[set[tuple[int, ...]]] = set()
        self._banned: Final[dict[int, int]] = {}
        self._bans: Final[dict[int, int]] = {}
        self._tallies: Final[dict[int, list[Any]]] = {}
        self._live = self._adds = self._unions = self._news = self._found = 0
        self._round = self._now = 0
        self._mark = self._built = -1
        self._rule = NONE
        self._slots: Sequence[int] = ()
        self._stop = codes.RUNNING
        self._conflict = Conflict(0, NONE, 0, 0, ())
        self.set_limits(limits)

    # ---- growing

    def refresh(self) -> None:
        """The book is read as it is; there is no copy."""

    def set_limits(self, limits: Limits) -> None:
        self._limits = limits
        self._deadline = time.perf_counter() + limits.seconds if limits.seconds > 0 else 0.0
        if self._stop != codes.CONFLICT:
            self._stop = codes.RUNNING

    def head(self, row: HeadRow, selects: int) -> int:
        return self._new_head(row, selects, -1)

    def _new_head(self, row: HeadRow, selects: int, symbol: int) -> int:
        self._heads.append((row, symbol))
        self._selects.append(selects)
        return len(self._heads) - 1

    def symbol_head(self, symbol: int) -> int:
        found = self._symbols.get(symbol)
        if found is None:
            row, selects = self.book.symbols[symbol]
            if symbol < len(self._prices):
                row = row._replace(cost=self._prices[symbol])
            found = self._symbols[symbol] = self._new_head(row, selects, symbol)
        return found

    def bind(self, symbol: int, head: int) -> None:
        self._symbols[symbol] = head

    def set_prices(self, prices: Sequence[float]) -> None:
        self._prices = prices

    def add(self, head: int, kids: Sequence[int]) -> int:
        if self.explain:
            return self._term_of(head, tuple(kids))
        return self._insert(head, kids, NONE)

    def constant(self, dtype: int, number: int, value: int) -> int:
        key = (dtype, number, value)
        head = self._constants.get(key)
        if head is None:
            row = HeadRow(codes.CONST, dtype, 0, False, number, value, 0, 0, 0.0)
            head = self._constants[key] = self._new_head(row, 0, -1)
        return self.add(head, ())

    def find(self, cls: int) -> int:
        parent = self._parent
        while parent[cls] != cls:
            parent[cls] = parent[parent[cls]]
            cls = parent[cls]
        return cls

    def _canonical(self, head: int, kids: Sequence[int]) -> tuple[list[int], int]:
        found = [self.find(k) for k in kids]
        if self._heads[head][0].commutative and found[0] > found[1]:
            return [found[1], found[0]], SWAPPED
        return found, 0

    def _insert(self, head: int, kids: Sequence[int], into: int) -> int:
        canonical, swapped = self._canonical(head, kids)
        known = self._table.get((head, *canonical))
        if known is not None:
            cls = self.find(known.cls)
            if into != NONE:
                self._unite(cls, into)
            return self.find(cls)
        fact = self._fact_of(head, canonical)
        cls = self._new_class(fact) if into == NONE else self.find(into)
        self._blame[cls] = self._rule
        node = RefNode(len(self._nodes), head, canonical, cls, swapped)
        self._nodes.append(node)
        self._table[head, *canonical] = node
        self._live += 1
        self._adds += 1
        if into != NONE:
            self._refine(cls, fact, cls)
        elif fact.number:
            self._touch(cls)
        return cls

    def _new_class(self, fact: Known) -> int:
        cls = len(self._parent)
        self._parent.append(cls)
        self._facts.append(fact)
        self._refined.append(0)
        self._blame.append(self._rule)
        return cls

    def _fact_of(self, head: int, kids: Sequence[int]) -> Known:
        known = [self._facts[k] for k in kids]
        return fact_of(self.book.dtypes, self._heads[head][0], kids, known)

    def _touch(self, cls: int) -> None:
        self._touched.append(cls)
        self._news += 1

    def touch(self, cls: int) -> None:
        self._touch(self.find(cls))

    def _refine(self, cls: int, fact: Known, other: int) -> None:
        own = self._facts[cls]
        try:
            both = met(own, fact)
        except Clash as clash:
            self._report(clash.kind, cls, other)
        if not own.number and not fact.number and self._refined[cls] >= _MOST_REFINED:
            return
        if both != own:
            self._facts[cls] = settled(self.book.dtypes[own.dtype], both)
            self._refined[cls] += 1
            self._touch(cls)

    def _report(self, kind: int, a: int, b: int) -> None:
        way, slots = self._rule, tuple(self._slots)
        if way == NONE:
            slots = ()
            way = self._blame[a] if self._blame[a] != NONE else self._blame[b]
        self._stop = codes.CONFLICT
        self._conflict = Conflict(kind, way, a, b, slots)
        raise Stop

    def _unite(self, a: int, b: int) -> bool:
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        if self._facts[a].dtype != self._facts[b].dtype:
            self._report(codes.DIFFERENT_DTYPES, a, b)
        a, b = min(a, b), max(a, b)
        self._refine(a, self._facts[b], b)
        if self._facts[a] != self._facts[b]:
            self._touch(a)
        self._parent[b] = a
        if self._rule != NONE:
            self._blame[a] = self._rule
        self._unions += 1
        return True

    def unite(
        self, a: int, b: int, rule: int = NONE, kind: int = codes.BY_CALLER, data: int = 0
    ) -> bool | None:
        if self._stop == codes.CONFLICT:
            return None
        before, self._rule, stop = self._rule, rule, self._stop
        try:
            united = self._unite(a, b)
        except Stop:
            if rule == NONE:
                self._conflict = self._conflict._replace(way=NONE)
                self._stop = stop
            return None
        finally:
            self._rule = before
        if united and self.explain:
            self._join(a, b, kind, data)
        if rule != NONE:
            self._tally(rule)[2] += united
        return united

    # ---- rebuilding

    def rebuild(self) -> bool:
        if self._stop == codes.CONFLICT:
            return False
        before, self._rule = self._rule, NONE
        try:
            self._rebuild()
        except Stop:
            return False
        finally:
            self._rule = before
        return True

    def _rebuild(self) -> None:
        self._now += 1
        while True:
            self._close()
            self._rows = {}
            for node in self._nodes:
                if not node.flags & DEAD:
                    self._rows.setdefault(node.cls, []).append(node)
            if not self._propagate():
                break
        self._price()
        self._built = self._progress()

    def _close(self) -> None:
        """Congruence: all nodes are looked at until none has a stale child or a twin."""
        changed = True
        while changed:
            changed = False
            for node in self._nodes:
                if node.flags & DEAD:
                    continue
                kids, swapped = self._canonical(node.head, node.kids)
                if kids == node.kids:
                    continue
                changed = True
                twin = self._table.get((node.head, *kids))
                if twin is not None and twin is not node:
                    node.flags |= DEAD
                    self._live -= 1
                    if self._unite(node.cls, twin.cls) and self.explain:
                        ends = self._node_term[node.id], self._node_term[twin.id]
                        self._join(*ends, codes.BY_CONGRUENCE, 0)
                else:
                    node.flags ^= swapped
                    node.kids = kids
                    self._table[node.head, *kids] = node
        for node in self._nodes:
            node.cls = self.find(node.cls)

    def _propagate(self) -> bool:
        """Facts to parents; a class of one value becomes one with that constant."""
        uses: dict[int, list[RefNode]] = {}
        for node in self._nodes:
            if not node.flags & DEAD:
                for kid in dict.fromkeys(node.kids):
                    uses.setdefault(kid, []).append(node)
        queue, constants = self._touched, []
        self._touched = []
        while queue:
            cls = self.find(queue.pop(0))
            constants.append(cls)
            for node in uses.get(cls, ()):
                own = self.find(node.cls)
                self._refine(own, self._fact_of(node.head, node.kids), own)
            queue += self._touched
            self._touched = []
        before = self._unions
        for cls in constants:
            fact = self._facts[self.find(cls)]
            if not fact.number or fact.number == codes.ELSEWHERE:
                continue
            number = self.constant(fact.dtype, fact.number, fact.value)
            if self.find(number) == self.find(cls):
                continue
            if self._unite(cls, number) and self.explain:
                self._join(cls, number, codes.BY_VALUE, 0)
        return self._unions != before or bool(self._touched)

    def _price(self) -> None:
        before = self._best
        rows = list(self._live_rows())
        prices = {row.id: self._price_of(row) for row in rows}
        self._best = cheapest(rows, prices.__getitem__)
        uses: dict[int, list[int]] = {}
        for cls, (_, _, node) in self._best.items():
            for kid in self._nodes[node].kids:
                uses.setdefault(kid, []).append(cls)
        # a class that has become a constant is shown as one, whatever its cheapest node
        numbers = {cls for cls in self._best if self._facts[cls].number}
        renewed = [
            cls
            for cls, best in self._best.items()
            if before.get(cls) != best or (cls in numbers and cls not in self._numbers)
        ]
        self._numbers = numbers
        count = 0
        while renewed:
            cls = renewed.pop()
            if self._stamps.get(cls) == self._now:
                continue
            self._stamps[cls] = self._now
            count += 1
            renewed += uses.get(cls, ())
        self._news += count

    def _price_of(self, row: NodeRow) -> float:
        head = self._heads[row.head][0]
        power = self._limits.power_of_two
        if head.meaning in (codes.IDIV, codes.MOD) and 0 <= power < head.cost:
            by = self._facts[row.kids[1]]
            if by.number == codes.NUMBER_INT and by.value > 0 and not by.value & (by.value - 1):
                return power
        return head.cost

    def _progress(self) -> int:
        return self._adds + self._unions + self._news

    def _tally(self, way: int) -> list[Any]:
        return self._tallies.setdefault(way, [0, 0, 0, 0.0, 0])

    def _live_rows(self) -> Iterator[NodeRow]:
        for n in self._nodes:
            if not n.flags & DEAD:
                kids = tuple(self.find(k) for k in n.kids)
                yield NodeRow(n.id, n.head, self.find(n.cls), n.flags, kids)

    # ---- proofs: see csrc/proof.c

    def term(self, term: int) -> TermRow:
        t = self._terms[term]
        return TermRow(t.head, t.parent, t.kind, t.data, t.kids)

    def _term_of(self, head: int, kids: tuple[int, ...]) -> int:
        found = self._term_table.get((head, *kids))
        if found is not None:
            return found
        before = len(self._nodes)
        cls = self._insert(head, kids, NONE)
        term = cls
        if len(self._nodes) == before:
            canonical, _ = self._canonical(head, kids)
            node = self._table[head, *canonical]
            term = self._new_class(replace(self._facts[cls]))
            self._terms.append(RefTerm(head, kids))
            self._join(term, self._node_term[node.id], codes.BY_CONGRUENCE, 0)
            self._parent[term] = cls
        else:
            self._node_term[before] = term
            self._terms.append(RefTerm(head, kids))
        self._term_table[head, *kids] = term
        return term

    def _join(self, a: int, b: int, kind: int, data: int) -> None:
        at, parent = a, b
        while at != NONE:
            t = self._terms[at]
            following = t.parent, t.kind ^ AGAINST, t.data
            t.parent, t.kind, t.data = parent, kind, data
            parent, at = at, following[0]
            kind, data = following[1:]
