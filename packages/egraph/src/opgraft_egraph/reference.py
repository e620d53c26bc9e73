"""`ReferenceEngine`: the engine in plain Python, with the same meaning as the one in C.

It searches every round from scratch and keeps no cleverness: it is the oracle of the tests, and
does the work where the C engine was not built.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final

from opgraft.api import errors
from opgraft_egraph import codes
from opgraft_egraph.book import Atom, Guard, Instruction, Path, Way
from opgraft_egraph.codes import EACH, LEAST, MOST, NONE
from opgraft_egraph.engine import Conflict, Counts, Fact, NodeRow, Tally
from opgraft_egraph.reference_extraction import choose
from opgraft_egraph.reference_graph import ReferenceGraph, RefNode, Stop
from opgraft_egraph.reference_known import Known


class ReferenceEngine(ReferenceGraph):
    """See `NativeEngine` for what each method says."""

    name: Final = "Python"

    # ---- running

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
            except Stop:
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
                raise Stop

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
            raise Stop
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

    def _accepts(self, atom: Atom, node: RefNode) -> bool:
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
                kids = [slots[k] for k in atom.kids]
                fixed = not self._heads[node.head][0].commutative
                if len(kids) == 2 and fixed and given[atom.kids[0]] != node.kids[0]:
                    kids.reverse()  # it was matched the other way round
                slots[atom.out] = self._term_of(node.head, tuple(kids))
        for q in path.instructions:
            made = self._instruct(q, slots)
            if made is None:
                return False
            slots[q.out] = made
        left, right = slots[pattern.root], slots[path.result]
        if self._unite(left, right) and self.explain:
            self._join(left, right, codes.BY_RULE, way)
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

    def chosen(self, choice: Sequence[int], roots: Sequence[int]) -> Iterator[NodeRow]:
        rows = {row.id: row for row in self._live_rows()}
        done: dict[int, None] = {}
        stack = [self.find(root) for root in reversed(roots)]
        while stack:
            cls = stack[-1]
            if cls not in done:
                if choice[cls] == NONE:
                    raise errors.OpgraftError(
                        f"class {cls} has no term: there is nothing to extract"
                    )
                row = rows[choice[cls]]
                missing = [kid for kid in row.kids if kid not in done]
                if missing:
                    stack += reversed(missing)
                    continue
                done[cls] = None
                yield row
            stack.pop()

    def bound(self, prices: Sequence[float] | None, roots: Sequence[int], best: float) -> float:
        return 0.0

    def node_prices(self) -> Sequence[float]:
        made = [0.0] * self.counts().nodes
        for row in self._live_rows():
            made[row.id] = self._price_of(row)
        return made

    def tally(self, way: int) -> Tally:
        return Tally(*self._tally(way))

    def blame(self, cls: int) -> int:
        return self._blame[self.find(cls)]

    def conflict(self) -> Conflict:
        return self._conflict


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
