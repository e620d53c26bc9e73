"""`Language`: the IR as heads, dtypes and selectors, the numbers that engines work with.

One per list of rules, shared by all graphs that use them. It only grows.

A node's head is its op, dtype, argument and tag; its children are its sources. Three things are
otherwise, so that no class ever has to stand for them:

- A RANGE is a leaf, with its size in its head.
- The ranges that REDUCE, SCAN and END close belong to their heads: a loop of one iteration is
  equal to 0, but what closes it must still name the loop.
- A constant, scalar or in every lane of a vector, is a leaf of its dtype and value.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final, TypeAlias

from opgraft.api import DType, ForkLock, GroupOp, Ops, UOp, UPat
from opgraft_egraph import codes
from opgraft_egraph.book import Book, DTypeRow, HeadRow

ANY: Final = UPat().arg
"""What a pattern that asks for no argument holds as its `arg`."""

BINDERS: Final = frozenset({Ops.REDUCE, Ops.SCAN, Ops.END})
"""Operations of which all sources but the first are ranges that they close."""

_KINDS: Final = {
    "void": codes.VOID,
    "bool": codes.BOOL,
    "int": codes.SIGNED,
    "uint": codes.UNSIGNED,
    "index": codes.INDEX,
    "float": codes.FLOAT,
}

_MEANINGS: Final = {
    Ops.ADD: codes.ADD,
    Ops.MUL: codes.MUL,
    Ops.FDIV: codes.FDIV,
    Ops.IDIV: codes.IDIV,
    Ops.MOD: codes.MOD,
    Ops.CDIV: codes.CDIV,
    Ops.CMOD: codes.CMOD,
    Ops.MAX: codes.MAX,
    Ops.MIN: codes.MIN,
    Ops.AND: codes.AND,
    Ops.OR: codes.OR,
    Ops.XOR: codes.XOR,
    Ops.SHL: codes.SHL,
    Ops.SHR: codes.SHR,
    Ops.CMPLT: codes.LESS,
    Ops.CMPNE: codes.UNEQUAL,
    Ops.CMPEQ: codes.EQUAL,
    Ops.WHERE: codes.WHERE,
    Ops.CAST: codes.CAST,
    Ops.SQRT: codes.SQRT,
    Ops.TRUNC: codes.TRUNC,
    Ops.BROADCAST: codes.SAME,
    Ops.EXTRACT: codes.SAME,
    Ops.STACK: codes.LANES,
}
_LEAVES: Final = frozenset({Ops.VAR, Ops.RANGE, Ops.SPECIAL, Ops.IOTA})

HeadKey: TypeAlias = "tuple[Any, ...]"
Selector: TypeAlias = "tuple[tuple[Ops, ...] | None, Any, Any]"
"""Ops (None: any), a set of dtypes (None: any), the argument."""


def children(n: UOp) -> tuple[UOp, ...]:
    """The sources of a node that are its children in an e-graph."""
    if n.op is Ops.RANGE or n.is_const:
        return ()
    return n.src[:1] if n.op in BINDERS else n.src


def closed(n: UOp) -> tuple[UOp, ...]:
    """The sources of a node that belong to its head."""
    return n.src[1:] if n.op in BINDERS else ()


def key_of(n: UOp) -> HeadKey:
    """What tells the head of a node from others. Not for constants."""
    if n.op is Ops.RANGE:
        return (n,)
    if n.op in BINDERS:
        return (n.head, 1, *n.src[1:])
    return (n.head, len(n.src))


def encode(value: Any) -> tuple[int, int] | None:
    """(kind, number) of a constant for the engines; None: they cannot hold it."""
    if isinstance(value, bool):
        return codes.NUMBER_BOOL, int(value)
    if isinstance(value, float):
        bits: int = struct.unpack("<q", struct.pack("<d", math.nan if value != value else value))[0]
        return codes.NUMBER_FLOAT, bits
    if codes.LEAST < value < codes.MOST:
        return codes.NUMBER_INT, value
    return None


def decode(number: int, value: int) -> Any:
    """The Python number of an encoded constant."""
    if number == codes.NUMBER_BOOL:
        return bool(value)
    if number == codes.NUMBER_FLOAT:
        return struct.unpack("<d", struct.pack("<q", value))[0]
    return value


class Language:
    """Numbers for the dtypes, operations and selectors of one list of rules."""

    def __init__(self) -> None:
        self.book: Final = Book()
        self.lock: Final = ForkLock()
        self._dtypes: Final[dict[DType, int]] = {}
        self.dtypes: Final[list[DType | None]] = [None]
        self._sets: Final[list[Any]] = []
        self._selectors: Final[dict[object, int]] = {}
        self._plain: Final[list[tuple[int, Selector]]] = []
        self._arguments: Final[list[tuple[int, Selector]]] = []
        self._selected: Final[dict[tuple[Ops, DType], int]] = {}
        self._symbols: Final[dict[object, int]] = {}
        self._rows: Final[dict[tuple[Any, int], HeadRow]] = {}
        """Of heads without an argument, which are few and stay."""
        self.symbols: Final[list[UOp]] = []
        """A node of each symbol, with no matter what sources."""

    # ---- while the rules are read

    def set_of(self, dtypes: Any) -> int | None:
        """The number of a set of dtypes; None: there are too many, so the caller must ask."""
        if dtypes in self._sets:
            return self._sets.index(dtypes)
        if len(self._sets) == 64:
            return None
        self._sets.append(dtypes)
        return len(self._sets) - 1

    def selector_of(self, selector: Selector) -> int:
        ops, dtypes, arg = selector
        key = (ops, dtypes, None if arg is ANY else (type(arg), repr(arg)))
        found = self._selectors.get(key)
        if found is None:
            found = self._selectors[key] = len(self._selectors)
            self.book.selectors = found + 1
            (self._plain if arg is ANY else self._arguments).append((found, selector))
        return found

    # ---- as graphs meet them

    def dtype(self, dtype: DType) -> int:
        found = self._dtypes.get(dtype)
        if found is None:
            with self.lock:
                found = self._dtypes.get(dtype)
                if found is None:
                    sets = sum(1 << i for i, s in enumerate(self._sets) if dtype in s)
                    row = DTypeRow(
                        *(_KINDS[dtype.kind], dtype.bits, dtype.exponent, dtype.mantissa),
                        *(dtype.count, sets),
                    )
                    found = self.book.add_dtype(row)
                    self.dtypes.append(dtype)
                    self._dtypes[dtype] = found
        return found

    def selects(self, op: Ops, dtype: DType, arg: Any) -> int:
        """The selectors that accept such a head, as bits."""
        found = self._selected.get((op, dtype))
        if found is None:
            found = 0
            for place, (ops, dtypes, _) in self._plain:
                if (ops is None or op in ops) and (dtypes is None or dtype in dtypes):
                    found |= 1 << place
            self._selected[op, dtype] = found
        for place, (ops, dtypes, wanted) in self._arguments:
            if (
                (ops is None or op in ops)
                and (dtypes is None or dtype in dtypes)
                and type(wanted) is type(arg)
                and wanted == arg
            ):
                found |= 1 << place
        return found

    def row(self, n: UOp, cost: float) -> HeadRow:
        """What the engines are told of the head of a node."""
        known = self._rows.get((n.head, len(n.src)))
        if known is not None:
            return HeadRow(*known[:-1], cost)
        op, dtype = n.op, self.dtype(n.dtype)
        kids = children(n)
        if not kids:
            if op in _LEAVES and n.dtype.kind not in ("float", "void"):
                low, high = n.vmin, n.vmax
                return HeadRow(
                    *(codes.LEAF, dtype, 0, False, 0, 0),
                    *(_limit(low, codes.LEAST), _limit(high, codes.MOST), cost),
                )
            return HeadRow(codes.OPAQUE, dtype, 0, cost=cost)
        meaning = _MEANINGS.get(op, codes.OPAQUE)
        commutative = op in GroupOp.COMMUTATIVE and len(kids) == 2
        made = HeadRow(meaning, dtype, len(kids), commutative, cost=cost)
        if n.arg is None:
            self._rows[n.head, len(n.src)] = made
        return made

    def symbol(self, n: UOp) -> int:
        """The number of the head of a node that right sides make."""
        key = key_of(n)
        found = self._symbols.get(key)
        if found is None:
            with self.lock:
                found = self._symbols.get(key)
                if found is None:
                    row = self.row(n, 1.0)
                    found = self.book.add_symbol(row, self.selects(n.op, n.dtype, n.arg))
                    self.symbols.append(n)
                    self._symbols[key] = found
        return found

    def known_symbol(self, key: HeadKey) -> int | None:
        return self._symbols.get(key)


def _limit(value: Any, otherwise: int) -> int:
    if codes.LEAST < value < codes.MOST:
        return int(value)
    return codes.LEAST if value < 0 else codes.MOST if value > 0 else otherwise
