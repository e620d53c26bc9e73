"""The engines: what they take and say, and which one is used."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from opgraft_egraph.book import Book, HeadRow


class Limits(NamedTuple):
    """0: no limit. `power_of_two`: the price of a division by one; below 0: as any other."""

    nodes: int = 0
    rounds: int = 0
    matches: int = 0
    ban_rounds: int = 3
    seconds: float = 0.0
    power_of_two: float = -1.0


class Counts(NamedTuple):
    nodes: int
    live: int
    classes: int
    ids: int
    heads: int
    round: int
    stop: int
    now: int
    adds: int
    unions: int
    matches: int
    bytes: int


class Fact(NamedTuple):
    """What is known of a class; see csrc/facts.c."""

    low: int
    high: int
    number: int
    value: int
    modulus: int
    rest: int
    dtype: int
    nonzero: bool


class NodeRow(NamedTuple):
    id: int
    head: int
    cls: int
    flags: int
    kids: tuple[int, ...]


class TermRow(NamedTuple):
    head: int
    parent: int
    kind: int
    data: int
    kids: tuple[int, ...]


class Tally(NamedTuple):
    matches: int
    added: int
    united: int
    seconds: float
    bans: int


class Conflict(NamedTuple):
    kind: int
    way: int
    a: int
    b: int
    slots: tuple[int, ...]


class Engine(Protocol):
    """An e-graph that knows heads and numbers, and no Python objects. See `NativeEngine`."""

    @property
    def name(self) -> str: ...

    @property
    def book(self) -> Book: ...

    def refresh(self) -> None: ...
    def set_limits(self, limits: Limits) -> None: ...
    def head(self, row: HeadRow, selects: int) -> int: ...
    def symbol_head(self, symbol: int) -> int: ...
    def bind(self, symbol: int, head: int) -> None: ...
    def set_prices(self, prices: Sequence[float]) -> None: ...
    def add(self, head: int, kids: Sequence[int]) -> int: ...
    def constant(self, dtype: int, number: int, value: int) -> int: ...
    def find(self, cls: int) -> int: ...
    def unite(
        self, a: int, b: int, rule: int = ..., kind: int = ..., data: int = ...
    ) -> bool | None: ...
    def touch(self, cls: int) -> None: ...
    def rebuild(self) -> bool: ...
    def run(self) -> int: ...
    def over(self) -> int: ...
    def buffer(self) -> list[tuple[int, tuple[int, ...]]]: ...
    def counts(self) -> Counts: ...
    def fact(self, cls: int) -> Fact: ...
    def head_count(self) -> int: ...
    def head_at(self, head: int) -> tuple[int, int, int, int]: ...
    def node(self, node: int) -> NodeRow: ...
    def dump(self) -> Iterator[NodeRow]: ...
    def best(self, cls: int) -> tuple[int, float]: ...
    def term_stamp(self, cls: int) -> int: ...
    def extract(
        self, prices: Sequence[float] | None, roots: Sequence[int], dag: bool
    ) -> tuple[Sequence[int], float]: ...
    def chosen(self, choice: Sequence[int], roots: Sequence[int]) -> Iterator[NodeRow]: ...
    def bound(self, prices: Sequence[float] | None, roots: Sequence[int], best: float) -> float: ...
    def node_prices(self) -> Sequence[float]: ...
    def term(self, term: int) -> TermRow: ...
    def tally(self, way: int) -> Tally: ...
    def blame(self, cls: int) -> int: ...
    def conflict(self) -> Conflict: ...


class EngineMaker(Protocol):
    def __call__(self, book: Book, limits: Limits, priced: bool, explain: bool) -> Engine: ...


@functools.cache
def default_engine() -> EngineMaker:
    """The C engine; where it was not built, the one in Python, after a line that says so.

    OPGRAFT_EGRAPH_ENGINE=python asks for the latter, without a word.
    """
    if os.environ.get("OPGRAFT_EGRAPH_ENGINE", "").lower() != "python":
        try:
            from opgraft_egraph.native import NativeEngine  # late: it may not be there
        except ImportError as error:
            print(
                f"opgraft-egraph: the C engine is missing ({error}); a slow Python one does its "
                "work. Install a wheel, or a C compiler and build again.",
                file=sys.stderr,
            )
        else:
            return NativeEngine
    from opgraft_egraph.reference import ReferenceEngine  # late: rarely needed

    return ReferenceEngine
