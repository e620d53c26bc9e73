"""The table of all nodes: what makes two equal nodes one object.

All nodes of one (op, dtype, arg, tag) share a `Head`, which owns the table from sources to node.
The table holds its nodes weakly: a node dies with its last user.

Looking up takes no lock. Making and forgetting take none either where they need not:
`dict.setdefault` and `dict.pop` with keys that hash and compare by identity are one step of the
interpreter. What needs several steps (an entry is replaced, a head is made or dropped) is done
under `lock`.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import GroupOp, Ops

lock: Final = threading.RLock()
"""Of all tables of the IR: nodes, heads, and the compiled functions of matchers."""
# a child must not inherit the lock held by a thread that it does not have
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )


class Node:
    """The slots of a node; `UOp` adds what one can do with it."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_final",
        "_memo",
        "_order",
        "_ranges",
        "arg",
        "dtype",
        "head",
        "kind",
        "op",
        "src",
    )

    op: Ops
    dtype: DType
    src: Any
    arg: Any
    head: Head
    kind: Kind
    _bounds: tuple[Any, Any] | None
    _final: int  # bits of the lists of rules of which none fires here or below: see ir/matcher.py
    _order: int
    _memo: dict[str, Any] | None
    _ranges: Any  # None: not known yet; see ir/graph.py

    @property
    def tag(self) -> Any:
        """What a pass has marked the node with; part of its identity."""
        return self.head.tag  # rarely asked for: not worth a slot in each node


AnyNode = TypeVar("AnyNode", bound=Node)


class Kind:
    """What rules can tell about a node at a glance: op, dtype, and of a constant its class.

    `value` is 0, 1 or -1 (all bits set, of unsigned integers) for a constant of that value in
    its dtype, None for any other. A BROADCAST of a constant is a constant. One object per kind.
    """

    __slots__ = ("constant", "dtype", "op", "value")

    def __init__(self, op: Ops, dtype: DType, constant: bool, value: int | None) -> None:
        self.op: Final = op
        self.dtype: Final = dtype
        self.constant: Final = constant
        self.value: Final = value

    def __repr__(self) -> str:
        shown = f" {'other' if self.value is None else self.value}" if self.constant else ""
        return f"{self.op.name}:{self.dtype}{shown}"


_kinds: Final[dict[tuple[Ops, DType, bool, int | None], Kind]] = {}


def kind_of(op: Ops, dtype: DType, constant: bool = False, value: Any = None) -> Kind:
    """The kind of nodes of this op and dtype, and of a constant with this number."""
    place = _class_of(dtype.scalar, value) if constant else None
    key = (op, dtype, constant, place)
    return _kinds.get(key) or _kinds.setdefault(key, Kind(*key))


def _class_of(dtype: DType, value: Any) -> int | None:
    if value == 0:
        return None if math.copysign(1.0, value) < 0 else 0
    if value == 1:
        return 1
    return -1 if dtype.kind != "bool" and value == dtype.const(-1) else None


class Family(dict[Ops, "Head"]):
    """The heads without arg and tag of what operators make from operands of one dtype.

    `whole` and `real` find the heads of scalar constants by the int or float they were asked
    for. They are caches: 0.0 and nan are not in them, since a dict takes 0.0 for -0.0.
    """

    __slots__ = ("dtype", "real", "whole")

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self.dtype: Final = dtype
        self.whole: Final[dict[int, Head]] = {}
        self.real: Final[dict[float, Head]] = {}

    def __missing__(self, op: Ops) -> Head:
        dtype = dtypes.bool.vec(self.dtype.count) if op in GroupOp.COMPARISON else self.dtype
        return self.setdefault(op, head_of(op, dtype))


def family_of(dtype: DType) -> Family:
    found = _families.get(dtype)
    return _families.setdefault(dtype, Family(dtype)) if found is None else found


class Head:
    """What the nodes of one (op, dtype, arg, tag) have in common, and their table."""

    __slots__ = (
        "add",
        "arg",
        "digest",
        "dtype",
        "family",
        "forget",
        "get",
        "kind",
        "op",
        "table",
        "tag",
    )

    op: Ops
    dtype: DType
    arg: Any
    tag: Any
    table: dict[tuple[Any, ...], Ref]
    get: Callable[[tuple[Any, ...]], Ref | None]
    add: Callable[[tuple[Any, ...], Ref], Ref]
    forget: Callable[[Ref], None]  # called when a node of this head dies
    family: Family
    kind: Kind | None  # None: it depends on the sources
    digest: int  # of op, dtype, arg and tag; the same in every process; 0: not computed yet

    def __init__(self, op: Ops, dtype: DType, arg: Any, tag: Any) -> None:
        self.op, self.dtype, self.arg, self.tag = op, dtype, arg, tag
        self.table = {}
        self.get = self.table.get
        self.add = self.table.setdefault
        self.forget = _forgetting(self.table)
        self.digest = 0
        self.family = family_of(dtype)
        if op is Ops.BROADCAST:
            self.kind = None
        else:
            self.kind = kind_of(op, dtype, op is Ops.CONST, arg)


class Ref(weakref.ref[Any]):
    """A weak reference that knows the key under which its table holds it."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_REPLACED: Final[tuple[Any, ...]] = (object(),)
"""The key of a reference that is in no table: it was not taken in, or has a successor."""


def _forgetting(table: dict[tuple[Any, ...], Ref]) -> Callable[[Ref], None]:
    """What is called when a node of this table dies: its entry leaves, unless it was replaced.

    It takes no lock, as it is half the price of a node's death: from reading the key to removing
    its entry the interpreter runs nothing else. Who replaces an entry takes its key away first,
    and then looks whether it came in time (`_settle`).
    """
    pop = table.pop

    def forget(ref: Ref) -> None:
        pop(ref.key, None)

    return forget


def _dropping(key: object, table: dict[tuple[Any, ...], Ref]) -> Callable[[Ref], None]:
    """The same for a head whose arg holds memory: it goes with its last node, not some day."""
    # by names of its own: at the end of the process those of the module are gone before the nodes
    held, heads, references, idle = lock, _heads, sys.getrefcount, _idle

    def forget(ref: Ref) -> None:
        with held:
            table.pop(ref.key, None)
            if table:
                return
            head = heads.pop(key, None)
            # the dying node still refers to it; whoever else does may be about to make a node
            if head is not None and (head.table or references(head) > idle + 1):
                heads[key] = head

    return forget


_families: Final[dict[DType, Family]] = {}
# Heads without arg and tag are few and stay. The others come and go with programs: those that
# have no nodes are dropped whenever the number of heads has doubled since the last look.
_plain: Final[dict[tuple[Ops, DType], Head]] = {}
_heads: Final[dict[object, Head]] = {}
_limit: Final = [1 << 14]


def exact_key(value: object) -> object:
    """A key that tells apart what `==` joins: 0.0 and -0.0, True and 1 and 1.0; nan is itself."""
    kind = type(value)
    if kind is int or kind is str:
        return value
    if kind is float:
        return (float, struct.pack("<d", math.nan if value != value else value))
    if kind is tuple:
        return (tuple, *map(exact_key, value))  # type: ignore[call-overload]
    return (kind, value)


def head_of(op: Ops, dtype: DType, arg: Any = None, tag: Any = None) -> Head:
    """The head of these four, made on first use."""
    if arg is None and tag is None:
        found = _plain.get((op, dtype))
        if found is None:
            if op is Ops.CONST:
                raise TypeError("a CONST needs its value as arg")
            found = _plain.setdefault((op, dtype), Head(op, dtype, None, None))
        return found
    key = (op, dtype, exact_key(arg), exact_key(tag))
    found = _heads.get(key)
    if found is None:
        with lock:
            found = _heads.get(key)
            if found is None:
                if len(_heads) >= _limit[0]:
                    _drop_idle_heads()
                    _limit[0] = max(1 << 14, 2 * len(_heads))
                found = Head(op, dtype, arg, tag)
                if op is Ops.BUFFER:
                    found.forget = _dropping(key, found.table)
                _heads[key] = found
    return found


def _drop_idle_heads() -> None:
    """Drop heads that have no nodes and that no thread is about to make a node with.

    Called under the lock, so no rival of a head can be made while it is out of the table.
    """
    for family in list(_families.values()):
        family.whole.clear()
        family.real.clear()
    for key in list(_heads):
        head = _heads.pop(key)
        if head.table or sys.getrefcount(head) > _idle:
            _heads[key] = head


def _idle_references() -> int:
    """What `sys.getrefcount` says of an object that only a local name holds."""
    alone = {0: object()}
    held = alone.pop(0)
    return sys.getrefcount(held)


_idle: Final = _idle_references()


def constant_head(dtype: DType, value: Any) -> Head:
    """The head of the constant `value` (anything Python or NumPy calls a number) of a dtype."""
    family = family_of(dtype)
    kind = value.__class__
    if kind is int:
        found = family.whole.get(value)
    elif kind is float and value:
        found = family.real.get(value)
    else:
        found = None
    if found is None:
        number = dtype.scalar.const(value)
        if number != number:
            number = math.nan
        elif number.__class__ not in (bool, int, float):  # a NumPy float is a float
            number = float(number)
        found = head_of(Ops.CONST, dtype, number)
        if dtype.base is not None:
            pass  # vectors of constants are BROADCASTs, and must not be found by their number
        elif kind is int:
            _remember_head(family.whole, value, found)
        elif kind is float and value and value == value:
            _remember_head(family.real, value, found)
    return found


def _remember_head(cache: dict[Any, Head], number: float, head: Head) -> None:
    if len(cache) >= 1 << 12:
        cache.clear()
    cache[number] = head


Maker: TypeAlias = "Callable[[Head, tuple[AnyNode, ...]], AnyNode]"


def interner(cls: type[AnyNode]) -> tuple[Maker[AnyNode], Maker[AnyNode]]:
    """Two functions for nodes of class `cls`: one that finds or makes, one that makes.

    The second is for callers that have looked already; it too makes no duplicate.
    """
    new = object.__new__

    def node(head: Head, src: tuple[AnyNode, ...]) -> AnyNode:
        """The node of this head and these sources: found in the table, or made."""
        ref = head.get(src)
        if ref is not None:
            found: AnyNode | None = ref()
            if found is not None:
                return found
        return make(head, src)

    def make(head: Head, src: tuple[AnyNode, ...]) -> AnyNode:
        made = new(cls)
        made.head = head
        made.op = head.op
        made.dtype = head.dtype
        made.src = src
        made.arg = head.arg
        made.kind = head.kind or _broadcast_kind(head, src)
        made._bounds = None
        made._final = 0
        made._order = 0
        made._memo = None
        made._ranges = None
        ref = Ref(made, head.forget)
        ref.key = src
        rival = head.add(src, ref)
        return made if rival is ref else _settle(head, src, made, ref)

    return node, make


def _broadcast_kind(head: Head, src: tuple[Any, ...]) -> Kind:
    inside: Node | None = src[0] if src else None
    if inside is not None and inside.op is Ops.CONST:
        return kind_of(head.op, head.dtype, True, inside.arg)
    return kind_of(head.op, head.dtype)


def _settle(head: Head, src: tuple[Any, ...], made: AnyNode, ref: Ref) -> AnyNode:
    """There is an entry already: of another thread's node, or of a node that is just dying."""
    table = head.table
    with lock:
        while True:
            rival = head.add(src, ref)
            if rival is ref:
                return made
            found: AnyNode | None = rival()
            if found is not None:
                ref.key = _REPLACED  # `made` dies at once, and its entry is not there
                return found
            rival.key = _REPLACED  # from here on its entry is ours to remove
            if table.get(src) is rival:
                table[src] = ref
                return made


def live_nodes() -> int:
    """How many nodes exist now, in all threads."""
    with lock:
        return sum(len(h.table) for h in (*_heads.values(), *_plain.values()))
