"""Walks over graphs of nodes: order, digests, open ranges. All without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from opgraft.digest import blake2b
from opgraft.ir.intern import AnyNode, Head, Node, lock
from opgraft.ir.ops import Ops


def toposort(
    roots: Iterable[AnyNode], gate: Callable[[AnyNode], bool] | None = None
) -> list[AnyNode]:
    """All nodes reachable from the roots, sources first, each once, in a fixed order.

    Below a node for which `gate` is false nothing is visited.
    """
    # a walk over every node of every graph that is realized or rewritten: written for speed
    done: dict[AnyNode, None] = {}
    passed: set[AnyNode] = set()  # the gate
    stack = list(roots)
    stack.reverse()
    pop, push = stack.pop, stack.append
    while stack:
        top = pop()
        if top in done:
            continue
        while True:
            src = top.src
            if src and gate is not None and top not in passed:
                if not gate(top):
                    break
                passed.add(top)
            if len(src) == 2:
                first, second = src
                if first not in done:
                    push(top)
                    if second not in done:
                        push(second)
                    top = first
                elif second not in done:
                    push(top)
                    top = second
                else:
                    break
            elif src:
                below = len(stack)
                push(top)
                for source in reversed(src):
                    if source not in done:
                        push(source)
                top = pop()
                if len(stack) == below:
                    break
            else:
                break
        done[top] = None
    return list(done)


def _fill(root: AnyNode, lacks: Callable[[Node], bool], derive: Callable[[Node], object]) -> None:
    """Derive a fact of `root` and of all below it that lack it, sources first.

    A node that has the fact is the mark of having been visited: no sets are needed.
    """
    stack: list[Node] = [root]
    while stack:
        top = stack[-1]
        if lacks(top):
            missing = [source for source in top.src if lacks(source)]
            if missing:
                stack += missing
                continue
            derive(top)
        stack.pop()


_MASK: Final = (1 << 64) - 1


def order_of(root: Node) -> int:
    """The digest behind `UOp.order`, computed for all nodes below that lack it."""
    stack: list[Node] = [root]
    while stack:
        top = stack[-1]
        if not top._order:
            head = top.head
            value = head.digest or _head_digest(head)
            ready = True
            for source in top.src:
                if not source._order:
                    ready = False
                    stack.append(source)
                    continue
                value = ((value ^ source._order) * 0x9E3779B97F4A7C15 + 0x7F4A7C15) & _MASK
                value ^= value >> 29
            if not ready:
                continue
            top._order = value or 1
        stack.pop()
    return root._order


def _head_digest(head: Head) -> int:
    text = repr((head.op.name, head.dtype.name, head.arg, head.tag)).encode()
    made = int.from_bytes(blake2b(text, digest_size=8).digest(), "little") | 1
    head.digest = made
    return made


def key_of(root: Node) -> str:
    """The digest behind `UOp.key`."""
    _fill(root, _unkeyed, _key_step)
    assert root._memo is not None
    return str(root._memo["key"])


def _unkeyed(node: Node) -> bool:
    memo = node._memo
    return memo is None or "key" not in memo


def _key_step(node: Node) -> None:
    text = repr((node.op.name, node.dtype.name, node.arg, node.tag))
    parts = "".join([text, *(s._memo["key"] for s in node.src)])
    remember(node, "key", blake2b(parts.encode(), digest_size=20).hexdigest())


def ranges_of(root: Node) -> tuple[Any, ...]:
    """The open ranges behind `UOp.ranges`, found for all nodes below that lack them."""
    stack = [root]
    pop, push = stack.pop, stack.append
    while stack:
        top = stack[-1]
        if top._ranges is None:
            src = top.src
            waiting = len(stack)
            for source in src:
                if source._ranges is None:
                    push(source)
            if len(stack) > waiting:
                continue
            top._ranges = _open_ranges(top) if src else ()
        pop()
    return _known_ranges(root)


def remember(node: Node, name: str, value: Any) -> Any:
    """Keep a derived fact with the node, under a name that is its owner's alone."""
    memo = node._memo
    if memo is None:
        with lock:  # two threads must not make two: what one remembers would be lost
            memo = node._memo
            if memo is None:
                memo = node._memo = {}
    memo[name] = value
    return value


def _open_ranges(node: Node) -> tuple[Any, ...]:
    """What to keep with a node: its open ranges; with a RANGE those of its size alone.

    A RANGE that held itself would be in a circle of references, and never freed.
    """
    opened: list[tuple[Any, ...]] = []  # each once
    for source in node.src:
        known = source._ranges
        if source.op is Ops.RANGE:
            known = (*known, source)
        if known and known not in opened:
            opened.append(known)
    if node.op is Ops.REDUCE or node.op is Ops.END:
        closed = set(node.src[1:])
        return tuple(dict.fromkeys([r for rs in opened for r in rs if r not in closed]))
    if len(opened) < 2:
        return opened[0] if opened else ()
    return tuple(dict.fromkeys([r for rs in opened for r in rs]))


def _known_ranges(node: Node) -> tuple[Any, ...]:
    known: tuple[Any, ...] = node._ranges
    return (*known, node) if node.op is Ops.RANGE else known
