"""`NativeEngine`: the C engine, called through cffi."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from opgraft.api import errors
from opgraft_egraph._engine import ffi, lib
from opgraft_egraph.book import Book, HeadRow, Variant
from opgraft_egraph.codes import NONE
from opgraft_egraph.engine import Conflict, Counts, Fact, Limits, NodeRow, Tally, TermRow

_EMPTY: Final = ffi.NULL
_LOOKS: Final = 1_000_000
"""Looks at a node that a bound may take: some ten milliseconds."""


def _array(kind: str, rows: Sequence[Any]) -> Any:
    return ffi.new(f"{kind}[]", list(rows) or 1)


class _Tables:
    """Flat arrays of a book, in the order in which the engine's structures point to them."""

    def __init__(self, book: Book) -> None:
        self.rules: list[Any] = []
        self.plans: list[Any] = []
        self.steps: list[Any] = []
        self.guards: list[Any] = []
        self.atoms: list[Any] = []
        self.variants: list[Any] = []
        self.paths: list[Any] = []
        self.tests: list[Any] = []
        self.instructions: list[Any] = []
        self.code: list[int] = []
        for way, plans, variants in zip(book.ways, book.plans, book.variants):
            first_plan, first_variant, first_atom = map(
                len, (self.plans, self.variants, self.atoms)
            )
            for plan in plans:
                first = len(self.steps)
                for step in plan:
                    self._step(step)
                self.plans.append((first, len(plan)))
            for variant in variants:
                self._variant(variant)
            for atom in reversed(way.atoms):
                self.atoms.append((atom.row, atom.out, len(atom.kids), 0, atom.kids))
            self.rules.append(
                (
                    *(first_plan, len(plans), way.slots, way.root, len(way.captures), way.terms),
                    *(way.captures, first_variant, len(variants), first_atom, len(way.atoms)),
                )
            )

    def _step(self, step: Any) -> None:
        atom, first = step.atom, len(self.guards)
        self.guards += step.guards
        guards = len(step.guards)
        if atom is None:
            row = (step.source, 0, 0, 0, 0, 0, step.slot, 0, (), 0, 0, guards, 0, 0, first)
        else:
            row = (
                *(step.source, step.old, atom.swap, atom.open, len(atom.kids), step.position),
                *(atom.out, atom.row, atom.kids, step.known, atom.each, guards, 0),
                *(atom.selector, first),
            )
        self.steps.append(row)

    def _variant(self, variant: Variant) -> None:
        first_path = len(self.paths)
        for path in variant.paths:
            first_test, first_instruction = len(self.tests), len(self.instructions)
            for test in path.tests:
                self.tests.append((len(self.code), len(test.code), test.expected))
                self.code += test.code
            for q in path.instructions:
                self.instructions.append(
                    (
                        *(q.kind, q.out, len(q.kids), q.number, q.kids, q.symbol, q.dtype, q.value),
                        *(len(self.code), len(q.code)),
                    )
                )
                self.code += q.code
            self.paths.append(
                (
                    *(first_test, len(path.tests), first_instruction, len(path.instructions)),
                    path.result,
                )
            )
        self.variants.append((variant.dtypes, first_path, len(variant.paths)))


class _Program:
    """A copy of a book in C. It lives as long as a graph uses it, whatever the book does."""

    def __init__(self, book: Book) -> None:
        tables, words = _Tables(book), book.words
        self.version: Final = book.version
        self.words: Final = words
        selects: list[int] = []
        for _, bits in book.symbols:
            selects += _words(bits, words)
        symbols = [_head(row, i) for i, (row, _) in enumerate(book.symbols)]
        self.parts: Final = [
            _array("Rule", tables.rules),
            _array("Plan", tables.plans),
            _array("Step", tables.steps),
            _array("Guard", tables.guards),
            _array("Atom", tables.atoms),
            _array("Variant", tables.variants),
            _array("Path", tables.paths),
            _array("Test", tables.tests),
            _array("Instruction", tables.instructions),
            _array("i64", tables.code),
            _array("DType", book.dtypes),
            _array("Head", symbols),
            _array("u64", selects),
        ]
        counts = (len(book.ways), len(book.symbols), len(book.dtypes), words)
        self.program: Final = ffi.new("Program *", (*self.parts, *counts))


def _words(bits: int, words: int) -> list[int]:
    return [bits >> 64 * i & 0xFFFFFFFFFFFFFFFF for i in range(words)]


def _head(row: HeadRow, symbol: int) -> tuple[Any, ...]:
    return (*row[:4], symbol, *row[4:])


def _program(book: Book) -> _Program:
    found: _Program | None = book.copies.get("native")
    if found is None or found.version != book.version:
        found = book.copies["native"] = _Program(book)
    return found


def _node_rows(numbers: list[int]) -> Iterator[NodeRow]:
    """Nodes of which each is [id, head, class, flags, arity, children...]."""
    at, room = 0, len(numbers)
    while at < room:
        end = at + 5 + numbers[at + 4]
        id, head, cls, flags = numbers[at : at + 4]
        yield NodeRow(id, head, cls, flags, tuple(numbers[at + 5 : end]))
        at = end


def held_bytes() -> int:
    """Bytes that all graphs of this process hold in C."""
    return int(lib.eg_held())


class NativeEngine:
    """An e-graph in C. Freed with this object."""

    name: Final = "C"

    def __init__(self, book: Book, limits: Limits, priced: bool, explain: bool) -> None:
        self.book: Final = book
        self._program = _program(book)
        g = lib.eg_new(self._program.program, ffi.new("Limits *", limits), priced, explain)
        if g == _EMPTY:
            raise MemoryError("no memory for an e-graph")
        self._g: Final = ffi.gc(g, lib.eg_free)
        self._out: Final = ffi.new("u32[]", 256)
        self._bits: Final = ffi.new("u64[]", self._program.words)

    # ---- growing

    def refresh(self) -> None:
        """Take what the book has learnt."""
        if self._program.version != self.book.version:
            self._program = _program(self.book)
            lib.eg_program(self._g, self._program.program)

    def set_limits(self, limits: Limits) -> None:
        lib.eg_limits(self._g, ffi.new("Limits *", limits))

    def head(self, row: HeadRow, selects: int) -> int:
        words = self._program.words
        bits = self._bits
        bits[0] = selects & 0xFFFFFFFFFFFFFFFF
        for i in range(1, words):
            bits[i] = selects >> 64 * i & 0xFFFFFFFFFFFFFFFF
        own = ffi.new("Head *", _head(row, -1))
        return self._made(lib.eg_head(self._g, own, bits))

    def symbol_head(self, symbol: int) -> int:
        """The head of a symbol of the book."""
        return self._made(lib.eg_symbol_head(self._g, symbol))

    def bind(self, symbol: int, head: int) -> None:
        """Say that a symbol, which the book has just learnt, has a head here already."""
        self.refresh()
        if not lib.eg_bind(self._g, symbol, head):
            raise MemoryError("no memory for the e-graph to grow")

    def set_prices(self, prices: Sequence[float]) -> None:
        """What the heads of symbols cost that are made from now on."""
        self._prices = ffi.new("double[]", list(prices) or 1)
        lib.eg_prices(self._g, self._prices, len(prices))

    def add(self, head: int, kids: Sequence[int]) -> int:
        made: int = lib.eg_add(self._g, head, kids)
        if made == NONE:
            raise MemoryError("no memory for the e-graph to grow")
        return made

    def constant(self, dtype: int, number: int, value: int) -> int:
        return self._made(lib.eg_constant(self._g, dtype, number, value))

    def _made(self, made: int) -> int:
        if made == NONE:
            raise MemoryError("no memory for the e-graph to grow")
        return made

    def find(self, cls: int) -> int:
        return int(lib.eg_find(self._g, cls))

    def unite(self, a: int, b: int, rule: int = NONE, kind: int = 2, data: int = 0) -> bool | None:
        """Whether they were two; None: they conflict, and if it is the caller's it is not made."""
        united = lib.eg_unite(self._g, a, b, rule, kind, data)
        if united < -1:
            raise MemoryError("no memory for the e-graph to grow")
        return None if united < 0 else bool(united)

    def touch(self, cls: int) -> None:
        lib.eg_touch(self._g, cls)

    def rebuild(self) -> bool:
        """Close the graph; False: two classes conflict, and it can be used no more."""
        rebuilt = lib.eg_rebuild(self._g)
        if rebuilt < 0:
            raise MemoryError("no memory for the e-graph to grow")
        return bool(rebuilt)

    # ---- running

    def run(self) -> int:
        return int(lib.eg_run(self._g))

    def over(self) -> int:
        return int(lib.eg_over(self._g))

    def buffer(self) -> list[tuple[int, tuple[int, ...]]]:
        """The matches that wait for the caller: (way, slots)."""
        count = ffi.new("u64 *")
        raw = lib.eg_buffer(self._g, count)
        numbers = ffi.unpack(raw, count[0]) if count[0] else []
        ways, made, at = self.book.ways, [], 0
        while at < len(numbers):
            way = numbers[at]
            end = at + 1 + ways[way].slots
            made.append((way, tuple(numbers[at + 1 : end])))
            at = end
        lib.eg_buffer_done(self._g)
        return made

    # ---- looking

    def counts(self) -> Counts:
        c = lib.eg_counts(self._g)
        return Counts(
            *(c.nodes, c.live, c.classes, c.ids, c.heads, c.round, c.stop, c.now),
            *(c.adds, c.unions, c.matches, c.bytes),
        )

    def fact(self, cls: int) -> Fact:
        f = lib.eg_fact(self._g, cls)
        return Fact(f.low, f.high, f.number, f.value, f.modulus, f.rest, f.dtype, bool(f.nonzero))

    def head_count(self) -> int:
        return int(lib.eg_heads(self._g))

    def head_at(self, head: int) -> tuple[int, int, int, int]:
        """(symbol or -1, dtype, kind of number, value) of a head."""
        h = lib.eg_head_at(self._g, head)
        return h.symbol, h.dtype, h.number, h.value

    def node(self, node: int) -> NodeRow:
        out = self._out
        needed = lib.eg_node(self._g, node, out, 256)
        if needed > 256:
            out = ffi.new("u32[]", needed)
            lib.eg_node(self._g, node, out, needed)
        return NodeRow(node, out[0], out[1], out[2], tuple(out[4:needed]))

    def dump(self) -> Iterator[NodeRow]:
        """All nodes, by id, with canonical classes."""
        room = lib.eg_dump(self._g, _EMPTY, 0)
        out = ffi.new("u32[]", room or 1)
        lib.eg_dump(self._g, out, room)
        return _node_rows(ffi.unpack(out, room) if room else [])

    def best(self, cls: int) -> tuple[int, float]:
        """The node that the cheapest term of a class begins with (or NONE), and its cost."""
        cost = ffi.new("double *")
        return lib.eg_best(self._g, cls, cost), cost[0]

    def term_stamp(self, cls: int) -> int:
        """A number that grows when the cheapest term of a class changes."""
        return int(lib.eg_term_stamp(self._g, cls))

    def extract(
        self, prices: Sequence[float] | None, roots: Sequence[int], dag: bool
    ) -> tuple[Sequence[int], float]:
        """A node (or NONE) for each class, and the cost of what they make of the roots."""
        choice = ffi.new("u32[]", lib.eg_ids(self._g) or 1)
        cost = ffi.new("double *")
        given = _EMPTY if prices is None else ffi.new("double[]", list(prices) or 1)
        if not lib.eg_extract(self._g, given, list(roots), len(roots), dag, choice, cost):
            raise MemoryError("no memory for the extraction")
        return choice, cost[0]

    def chosen(self, choice: Sequence[int], roots: Sequence[int]) -> Iterator[NodeRow]:
        """The chosen nodes that the roots need, each after those below it."""
        out = self._out
        room = lib.eg_chosen(self._g, choice, list(roots), len(roots), out, 256)
        if room > 256:
            out = ffi.new("u32[]", room)
            lib.eg_chosen(self._g, choice, list(roots), len(roots), out, room)
        if not room and roots:
            raise errors.OpgraftError(f"class {out[0]} has no term: there is nothing to extract")
        return _node_rows(ffi.unpack(out, room) if room else [])

    def bound(self, prices: Sequence[float] | None, roots: Sequence[int], best: float) -> float:
        """No choice of terms for the roots costs less than this, each node once.

        `best` is what one costs; it is as high as a bound gets.
        """
        given = _EMPTY if prices is None else ffi.new("double[]", list(prices) or 1)
        found: float = lib.eg_bound(self._g, given, list(roots), len(roots), best, _LOOKS)
        if found < 0:
            raise MemoryError("no memory for the extraction")
        return found

    def node_prices(self) -> Sequence[float]:
        """What each node costs by its head, by id."""
        count = lib.eg_counts(self._g).nodes
        made = ffi.new("double[]", count or 1)
        lib.eg_node_prices(self._g, made)
        prices: list[float] = ffi.unpack(made, count) if count else []
        return prices

    def term(self, term: int) -> TermRow:
        out = self._out
        needed = lib.eg_term(self._g, term, out, 256)
        if needed > 256:
            out = ffi.new("u32[]", needed)
            lib.eg_term(self._g, term, out, needed)
        return TermRow(out[0], out[1], out[2], out[3], tuple(out[5:needed]))

    def tally(self, way: int) -> Tally:
        t = lib.eg_tally(self._g, way)
        return Tally(t.matches, t.added, t.united, t.seconds, t.bans)

    def blame(self, cls: int) -> int:
        """The way by which a class last grew, or came to be; NONE: the caller."""
        return int(lib.eg_blame(self._g, cls))

    def conflict(self) -> Conflict:
        c = lib.eg_conflict(self._g)
        slots = tuple(c.slot)
        return Conflict(c.kind, c.rule, c.a, c.b, slots if slots[0] != NONE else ())
