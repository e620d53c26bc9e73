"""Walks over graphs of nodes: order, digests, open ranges. All without recursion."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from opgraft.ir.intern import AnyNode, Head, Node
from opgraft.ir.ops import Ops


def toposort(
    roots: Iterable[AnyNode], gate: Callable[[AnyNode], bool] | None = None
) -> list[AnyNode]:
    """All nodes reachable from the roots, sources first, each once, in a fixed order.

    Below a node for which `gate` is false nothing is visited.
    """
    seen: set[AnyNode] = set()
    entered: set[AnyNode] = set()
    result: list[AnyNode] = []
    stack = list(roots)
    stack.reverse()
    while stack:
        top = stack[-1]
        if top in seen:
            stack.pop()
            continue
        if top in entered or not top.src or (gate is not None and not gate(top)):
            stack.pop()
            seen.add(top)
            result.append(top)
            continue
        entered.add(top)
        stack.extend(source for source in reversed(top.src) if source not in seen)
    return result


_MASK: Final = (1 << 64) - 1


def order_of(root: Node) -> int:
    """The digest behind `UOp.order`, computed for all nodes below that lack it."""
    for source in root.src:
        if source._order == 0:
            break
    else:
        return _order_step(root)
    for below in toposort((root,), lambda n: n._order == 0):
        if below._order == 0:
            _order_step(below)
    return root._order


def _order_step(node: Node) -> int:
    head = node.head
    value = head.digest or _head_digest(head)
    for source in node.src:
        value = ((value ^ source._order) * 0x9E3779B97F4A7C15 + 0x7F4A7C15) & _MASK
        value ^= value >> 29
    node._order = value or 1
    return node._order


def _head_digest(head: Head) -> int:
    text = repr((head.op.name, head.dtype.name, head.arg, head.tag)).encode()
    made = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") | 1
    head.digest = made
    return made


def key_of(root: Node) -> str:
    """The digest behind `UOp.key`."""
    if root._memo is None or "key" not in root._memo:
        for below in toposort((root,), lambda n: n._memo is None or "key" not in n._memo):
            if below._memo is None or "key" not in below._memo:
                text = repr((below.op.name, below.dtype.name, below.arg, below.tag))
                parts = "".join([text, *(s._memo["key"] for s in below.src)])
                made = hashlib.blake2b(parts.encode(), digest_size=20).hexdigest()
                remember(below, "key", made)
    assert root._memo is not None
    return str(root._memo["key"])


def ranges_of(root: Node) -> tuple[Any, ...]:
    """The open ranges behind `UOp.ranges`."""
    if any(map(_unranged, root.src)):
        for below in toposort(root.src, _unranged):
            if _unranged(below):
                remember(below, "ranges", _open_ranges(below))
    remember(root, "ranges", _open_ranges(root))
    return _known_ranges(root)


def _unranged(node: Node) -> bool:
    memo = node._memo
    return memo is None or "ranges" not in memo


def remember(node: Node, name: str, value: Any) -> Any:
    """Keep a derived fact with the node, under a name that is its owner's alone."""
    memo = node._memo
    if memo is None:
        memo = node._memo = {}
    memo[name] = value
    return value


def _open_ranges(node: Node) -> tuple[Any, ...]:
    """What to remember of a node: its open ranges; of a RANGE those of its size alone.

    A RANGE that remembered itself would be in a circle of references, and never freed.
    """
    if not node.src:
        return ()
    opened = [_known_ranges(s) for s in node.src]
    if node.op in (Ops.REDUCE, Ops.END):
        closed = set(node.src[1:])
        return tuple(dict.fromkeys(r for rs in opened for r in rs if r not in closed))
    first = opened[0]
    if all(o is first or not o for o in opened[1:]):
        return first
    return tuple(dict.fromkeys(r for rs in opened for r in rs))


def _known_ranges(node: Node) -> tuple[Any, ...]:
    assert node._memo is not None
    known: tuple[Any, ...] = node._memo["ranges"]
    return (*known, node) if node.op is Ops.RANGE else known
