"""`ReferenceEngine`: the engine in plain Python, with the same meaning as the one in C.

It searches every round from scratch and keeps no cleverness: it is the oracle of the tests, and
does the work where the C engine was not built.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from opgraft_egraph import codes
from opgraft_egraph.book import Atom, Book, Guard, HeadRow, Instruction, Path, Way
from opgraft_egraph.codes import AGAINST, DEAD, EACH, LEAST, MOST, NONE, SWAPPED
from opgraft_egraph.engine import Conflict, Counts, Fact, Limits, NodeRow, Tally, TermRow
from opgraft_egraph.extraction import cheapest, choose
from opgraft_egraph.reference_facts import Clash, Known, fact_of, met, settled

_MOST_REFINED: Final = 64


class _Stop(Exception):
    """A limit was reached, or a conflict found: the round ends."""


class _Node:
    __slots__ = ("cls", "flags", "head", "id", "kids")

    def __init__(self, id: int, head: int, kids: list[int], cls: int, flags: int) -> None:
        self.id, self.head, self.kids, self.cls, self.flags = id, head, kids, cls, flags


class _Term:
    __slots__ = ("data", "head", "kids", "kind", "parent")

    def __init__(self, head: int, kids: tuple[int, ...]) -> None:
        self.head, self.kids = head, kids
        self.parent, self.kind, self.data = NONE, 0, 0


class ReferenceEngine:
    """See `NativeEngine` for what each method says."""

    name: Final = "Python"

    def __init__(self, book: Book, limits: Limits, priced: bool, explain: bool) -> None:
        self.book: Final = book
        self.explain: Final = explain
        self._heads: Final[list[tuple[HeadRow, int]]] = []
        self._selects: Final[list[int]] = []
        self._symbols: Final[dict[int, int]] = {}
        self._prices: Sequence[float] = ()
        self._constants: Final[dict[tuple[int, int, int], int]] = {}
        self._nodes: Final[list[_Node]] = []
        self._table: Final[dict[tuple[int, ...], _Node]] = {}
        self._parent: Final[list[int]] = []
        self._facts: Final[list[Known]] = []
        self._refined: Final[list[int]] = []
        self._blame: Final[list[int]] = []
        self._touched: list[int] = []
        self._best: dict[int, tuple[float, int, int]] = {}
        self._stamps: Final[dict[int, int]] = {}
        self._rows: dict[int, list[_Node]] = {}
        self._terms: Final[list[_Term]] = []
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
        node = _Node(len(self._nodes), head, canonical, cls, swapped)
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
        way = self._rule
        if way == NONE:
            way = self._blame[a] if self._blame[a] != NONE else self._blame[b]
        self._stop = codes.CONFLICT
        self._conflict = Conflict(kind, way, a, b, tuple(self._slots))
        raise _Stop

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
        before, self._rule = self._rule, rule
        try:
            if self.explain and self.find(a) != self.find(b):
                self._join(a, b, kind, data)
            united = self._unite(a, b)
        except _Stop:
            return None
        finally:
            self._rule = before
        if rule != NONE:
            self._tally(rule)[2] += united
        return united

    # ---- rebuilding

    def rebuild(self) -> None:
        before, self._rule = self._rule, NONE
        try:
            self._rebuild()
        except _Stop:
            pass
        finally:
            self._rule = before

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
                    if self.explain and self.find(node.cls) != self.find(twin.cls):
                        ends = self._node_term[node.id], self._node_term[twin.id]
                        self._join(*ends, codes.BY_CONGRUENCE, 0)
                    self._unite(node.cls, twin.cls)
                else:
                    node.flags ^= swapped
                    node.kids = kids
                    self._table[node.head, *kids] = node
        for node in self._nodes:
            node.cls = self.find(node.cls)

    def _propagate(self) -> bool:
        """Facts to parents; a class of one value becomes one with that constant."""
        uses: dict[int, list[_Node]] = {}
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
            if self.explain:
                self._join(cls, number, codes.BY_VALUE, 0)
            self._unite(cls, number)
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
        renewed = [cls for cls, best in self._best.items() if before.get(cls) != best]
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

    # ---- running

    def _progress(self) -> int:
        return self._adds + self._unions + self._news

    def run(self) -> int:
        while self._stop == codes.RUNNING:
            if self._round and self._progress() == self._mark and not self._recall():
                self._stop = codes.SATURATED
            elif self._limits.rounds and self._round >= self._limits.rounds:
                self._stop = codes.STOP_ROUNDS
            elif self._deadline and time.perf_counter() > self._deadline:
                self._stop = codes.STOP_SECONDS
            else:
                if self._progress() != self._built:
                    self.rebuild()
                if self._stop != codes.RUNNING:
                    break
                self._mark = self._progress()
                self._search_all()
                if self._buffer and self._stop == codes.RUNNING:
                    return codes.CALLBACKS
        if self._stop != codes.CONFLICT and self._progress() != self._built:
            self.rebuild()
        return self._stop

    def _recall(self) -> bool:
        waiting = [until for until in self._banned.values() if until > self._round]
        if not waiting:
            return False
        by = min(waiting) - self._round
        for way, until in self._banned.items():
            if until > self._round:
                self._banned[way] = until - by
        return True

    def _search_all(self) -> None:
        for way in range(len(self.book.ways)):
            if self._banned.get(way, 0) > self._round:
                continue
            begin = time.perf_counter()
            self._rule = way
            try:
                self._search(way)
            except _Stop:
                break
            finally:
                self._rule = NONE
                self._tally(way)[3] += time.perf_counter() - begin
        self._round += 1

    def _search(self, way: int) -> None:
        pattern = self.book.ways[way]
        found = [tuple(slots) for slots in self._matches(pattern)]
        fresh = 0
        for slots in found:
            key = (way, *slots)
            if key not in self._seen:
                self._seen.add(key)
                fresh += 1
                self._found += 1
                self._tally(way)[0] += 1
                bans = self._bans.get(way, 0)
                if self._limits.matches and fresh > self._limits.matches << bans:
                    self._bans[way] = min(bans + 1, 20)
                    self._tally(way)[4] = self._bans[way]
                    self._banned[way] = self._round + 1 + (self._limits.ban_rounds << bans)
                    return
            self._emit(way, pattern, slots)
            if self.over() != codes.RUNNING:
                raise _Stop

    def _tally(self, way: int) -> list[Any]:
        return self._tallies.setdefault(way, [0, 0, 0, 0.0, 0])

    # ---- matching

    def _matches(self, way: Way) -> Iterator[list[int]]:
        slots: list[int] = [NONE] * way.slots
        for cls in list(self._rows):
            slots[:] = [NONE] * way.slots
            slots[way.root] = cls
            if self._guarded(way, slots, {way.root}):
                yield from self._join_atoms(way, 0, slots, {way.root})

    def _join_atoms(
        self, way: Way, at: int, slots: list[int], bound: set[int]
    ) -> Iterator[list[int]]:
        if at == len(way.atoms):
            yield list(slots)
            return
        atom = way.atoms[at]
        if self._deadline and time.perf_counter() > self._deadline:
            self._stop = codes.STOP_SECONDS
            raise _Stop
        for node in self._rows.get(slots[atom.out], ()):
            if not self._accepts(atom, node):
                continue
            kids = node.kids[: len(atom.kids)]
            orders = [kids]
            if atom.swap and kids[0] != kids[1]:
                orders.append([kids[1], kids[0], *kids[2:]])
            for order in orders:
                before = list(slots)
                new: set[int] = set()
                fits = True
                for slot, kid in zip(atom.kids, order):
                    if slot in bound or slot in new:
                        fits = fits and slots[slot] == kid
                    else:
                        slots[slot] = kid
                        new.add(slot)
                if fits:
                    slots[atom.row] = node.id
                    if self._guarded(way, slots, new):
                        yield from self._join_atoms(way, at + 1, slots, bound | new)
                slots[:] = before

    def _accepts(self, atom: Atom, node: _Node) -> bool:
        if not self._selects[node.head] >> atom.selector & 1:
            return False
        if atom.each:
            return all(self._holds(g, k) for g in atom.guards if g.slot == EACH for k in node.kids)
        count = len(node.kids)
        return count == len(atom.kids) or (atom.open and count > len(atom.kids))

    def _guarded(self, way: Way, slots: list[int], new: set[int]) -> bool:
        return all(self._holds(g, slots[g.slot]) for g in way.guards if g.slot in new)

    def _holds(self, guard: Guard, cls: int) -> bool:
        fact = self._facts[self.find(cls)]
        match guard.kind:
            case codes.GUARD_DTYPE:
                return bool(self.book.dtypes[fact.dtype].sets >> guard.set & 1)
            case codes.GUARD_CONSTANT:
                return fact.number != codes.NO_NUMBER
            case codes.GUARD_NONZERO:
                return fact.nonzero
            case codes.GUARD_BOOL:
                return fact.number == codes.NUMBER_BOOL and fact.value == guard.number
            case codes.GUARD_FLOAT:
                return fact.number == codes.NUMBER_FLOAT and fact.value == guard.number
        return self._holds_int(guard.number, fact)

    def _holds_int(self, number: int, fact: Known) -> bool:
        if fact.number == codes.NUMBER_FLOAT:
            value: float = struct.unpack("<d", struct.pack("<q", fact.value))[0]
            return value == number and (number != 0 or fact.value == 0)
        if not fact.number or fact.number == codes.ELSEWHERE:
            return False
        d = self.book.dtypes[fact.dtype]
        if d.kind == codes.UNSIGNED and number < 0 and d.bits < 63:
            half = 1 << d.bits - 1
            return fact.value == number + 2 * half and number >= -half
        return fact.value == number

    # ---- applying

    def _emit(self, way: int, pattern: Way, slots: tuple[int, ...]) -> None:
        self._slots = slots
        dtypes = tuple(self._facts[slots[s]].dtype for s in pattern.captures)
        paths: tuple[Path, ...] = ()
        for variant in self.book.variants[way]:
            if variant.dtypes == dtypes:
                paths = variant.paths
                break
        for path in paths:
            passed = self._passes(path, slots)
            if passed is None:
                break
            if passed:
                if path.result >= 0 and not self._make(way, pattern, path, slots):
                    break
                return
        else:
            if paths:
                return
        self._buffer.append((way, slots))

    def _passes(self, path: Path, slots: Sequence[int]) -> bool | None:
        for test in path.tests:
            made = self._compute(test.code, slots)
            if made is None:
                return None
            if bool(made) != test.expected:
                return False
        return True

    def _make(self, way: int, pattern: Way, path: Path, given: tuple[int, ...]) -> bool:
        """Apply a right side; False where a number does not fit, so that the caller must."""
        slots = [*given, *[NONE] * codes.SLOTS]
        tally, adds, unions = self._tally(way), self._adds, self._unions
        if self.explain:
            nodes = {atom.out for atom in pattern.atoms}
            below = dict.fromkeys(k for atom in pattern.atoms for k in atom.kids if k not in nodes)
            for slot in below:
                fact = self._facts[self.find(slots[slot])]
                if fact.number and fact.number != codes.ELSEWHERE:
                    slots[slot] = self.constant(fact.dtype, fact.number, fact.value)
            for atom in reversed(pattern.atoms):
                node = self._nodes[slots[atom.row]]
                slots[atom.out] = self._term_of(node.head, tuple(slots[k] for k in atom.kids))
        for q in path.instructions:
            made = self._instruct(q, slots)
            if made is None:
                return False
            slots[q.out] = made
        left, right = slots[pattern.root], slots[path.result]
        if self.explain and self.find(left) != self.find(right):
            self._join(left, right, codes.BY_RULE, way)
        self._unite(left, right)
        tally[1] += self._adds - adds
        tally[2] += self._unions - unions
        return True

    def _instruct(self, q: Instruction, slots: Sequence[int]) -> int | None:
        if q.kind == codes.MAKE_CONSTANT:
            return self.constant(q.dtype, q.number, q.value)
        if q.kind == codes.MAKE_NODE:
            return self.add(self.symbol_head(q.symbol), [slots[k] for k in q.kids])
        number = self._compute(q.code, slots)
        d = self.book.dtypes[q.dtype]
        if number is None or d.kind == codes.FLOAT:
            return None
        if d.kind == codes.BOOL:
            return self.constant(q.dtype, codes.NUMBER_BOOL, int(number != 0))
        if d.kind != codes.INDEX:
            if d.kind == codes.UNSIGNED and d.bits >= 64 and number < 0:
                return None
            number &= (1 << d.bits) - 1
            if d.kind == codes.SIGNED and number >> (d.bits - 1):
                number -= 1 << d.bits
        return self.constant(q.dtype, codes.NUMBER_INT, number)

    def _compute(self, code: Sequence[int], slots: Sequence[int]) -> int | None:
        stack: list[int] = []
        at = 0
        while at < len(code):
            op = code[at]
            if op <= codes.PUSH_NONZERO:
                at += 1
                pushed = self._pushed(op, code[at], slots)
                if pushed is None:
                    return None
                stack.append(pushed)
            elif op == codes.N_NOT:
                stack[-1] = int(not stack[-1])
            elif op in (codes.N_NEG, codes.N_ABS):
                if stack[-1] in (LEAST, MOST):
                    return None
                stack[-1] = -stack[-1] if op == codes.N_NEG else abs(stack[-1])
            else:
                b, a = stack.pop(), stack.pop()
                made = _binary(op, a, b)
                if made is None:
                    return None
                stack.append(made)
            at += 1
        return stack[0]

    def _pushed(self, op: int, operand: int, slots: Sequence[int]) -> int | None:
        if op == codes.PUSH:
            return operand
        known = self._facts[self.find(slots[operand])]
        fact = known.fact()
        match op:
            case codes.PUSH_LOW:
                return fact.low
            case codes.PUSH_HIGH:
                return fact.high
            case codes.PUSH_VALUE:
                whole = fact.number in (codes.NUMBER_INT, codes.NUMBER_BOOL)
                return fact.value if whole else None
            case codes.PUSH_MODULUS:
                return fact.modulus
            case codes.PUSH_REST:
                return fact.rest
            case codes.PUSH_CONSTANT:
                return int(fact.number != codes.NO_NUMBER)
        return int(fact.nonzero)

    def over(self) -> int:
        if self._stop == codes.RUNNING:
            if self._limits.nodes and self._live > self._limits.nodes:
                self._stop = codes.STOP_NODES
            elif self._deadline and time.perf_counter() > self._deadline:
                self._stop = codes.STOP_SECONDS
        return self._stop

    def buffer(self) -> list[tuple[int, tuple[int, ...]]]:
        found, self._buffer = self._buffer, []
        return found

    # ---- looking

    def counts(self) -> Counts:
        classes = sum(self._parent[i] == i for i in range(len(self._parent)))
        return Counts(
            *(len(self._nodes), self._live, classes, len(self._parent), len(self._heads)),
            *(self._round, self._stop, self._now, self._adds, self._unions, self._found, 0),
        )

    def fact(self, cls: int) -> Fact:
        return self._facts[self.find(cls)].fact()

    def head_count(self) -> int:
        return len(self._heads)

    def head_at(self, head: int) -> tuple[int, int, int, int]:
        row, symbol = self._heads[head]
        return symbol, row.dtype, row.number, row.value

    def node(self, node: int) -> NodeRow:
        n = self._nodes[node]
        return NodeRow(n.id, n.head, n.cls, n.flags, tuple(n.kids))

    def _live_rows(self) -> Iterator[NodeRow]:
        for n in self._nodes:
            if not n.flags & DEAD:
                kids = tuple(self.find(k) for k in n.kids)
                yield NodeRow(n.id, n.head, self.find(n.cls), n.flags, kids)

    def dump(self) -> Iterator[NodeRow]:
        return self._live_rows()

    def best(self, cls: int) -> tuple[int, float]:
        found = self._best.get(cls)
        return (NONE, -1.0) if found is None else (found[2], found[0])

    def term_stamp(self, cls: int) -> int:
        return self._stamps.get(cls, 0)

    def extract(
        self, prices: Sequence[float] | None, roots: Sequence[int], dag: bool
    ) -> tuple[list[int], float]:
        rows = list(self._live_rows())
        price = {r.id: self._price_of(r) if prices is None else prices[r.id] for r in rows}
        chosen, cost = choose(rows, price.__getitem__, [self.find(r) for r in roots], dag)
        return [chosen.get(i, NONE) for i in range(len(self._parent))], cost

    def tally(self, way: int) -> Tally:
        return Tally(*self._tally(way))

    def blame(self, cls: int) -> int:
        return self._blame[self.find(cls)]

    def conflict(self) -> Conflict:
        return self._conflict

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
            self._terms.append(_Term(head, kids))
            self._join(term, self._node_term[node.id], codes.BY_CONGRUENCE, 0)
            self._parent[term] = cls
        else:
            self._node_term[before] = term
            self._terms.append(_Term(head, kids))
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


def _binary(op: int, a: int, b: int) -> int | None:
    match op:
        case codes.N_LESS:
            return int(a < b)
        case codes.N_EQUAL:
            return int(a == b)
        case codes.N_MAX:
            return max(a, b)
        case codes.N_MIN:
            return min(a, b)
    if a in (LEAST, MOST) or b in (LEAST, MOST):
        return None
    made = _arithmetic(op, a, b)
    return made if made is not None and LEAST < made < MOST else None


def _arithmetic(op: int, a: int, b: int) -> int | None:
    match op:
        case codes.N_ADD:
            return a + b
        case codes.N_SUB:
            return a - b
        case codes.N_MUL:
            return a * b
        case codes.N_DIV:
            return a // b if b else None
        case codes.N_MOD:
            return a % b if b else None
        case codes.N_AND:
            return a & b
        case codes.N_OR:
            return a | b
        case codes.N_XOR:
            return a ^ b
        case codes.N_SHL:
            return a << b if 0 <= b <= 62 else None
        case codes.N_SHR:
            return a >> b if 0 <= b <= 62 else None
        case codes.N_GCD:
            while b:
                a, b = b, a % b
            return abs(a)
    return None
