"""Writes nodes as expressions, such as `(x*4 + 3)//4`; the `repr` of a node is made of it.

What is too long is cut. ir/expression.py reads such texts, ir/text.py holds whole graphs.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir import uop
from opgraft.ir.argument import format_argument
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp

CALLS: Final[dict[str, tuple[Ops, int]]] = {
    "min": (Ops.MIN, 2),
    "max": (Ops.MAX, 2),
    "sqrt": (Ops.SQRT, 1),
    "exp": (Ops.EXP, 1),
    "exp2": (Ops.EXP2, 1),
    "log2": (Ops.LOG2, 1),
    "sin": (Ops.SIN, 1),
    "trunc": (Ops.TRUNC, 1),
    "cdiv": (Ops.CDIV, 2),
    "cmod": (Ops.CMOD, 2),
    "mulacc": (Ops.MULACC, 3),
    "threefry": (Ops.THREEFRY, 2),
}
"""Operations that are written as calls, and their numbers of operands."""

_INFIX: Final[dict[Ops, tuple[str, int]]] = {
    Ops.CMPLT: ("<", 1),
    Ops.CMPEQ: ("==", 1),
    Ops.CMPNE: ("!=", 1),
    Ops.OR: ("|", 2),
    Ops.XOR: ("^", 3),
    Ops.AND: ("&", 4),
    Ops.SHL: ("<<", 5),
    Ops.SHR: (">>", 5),
    Ops.ADD: ("+", 6),
    Ops.MUL: ("*", 7),
    Ops.FDIV: ("/", 7),
    Ops.IDIV: ("//", 7),
    Ops.MOD: ("%", 7),
}
_NAMES: Final = {op: name for name, (op, _) in CALLS.items()}
_TIGHT: Final = 9


def to_expression(root: UOp, limit: int = 48) -> str:
    """`root` as an expression; what lies beyond `limit` nodes, counted from the root, is `...`.

    >>> to_expression((UOp.variable("x", 0, 9) * 4 + 3) // 4)
    '(x*4 + 3)//4'
    """
    # occurrences, breadth first: each is (node, the places of its sources)
    shown: list[tuple[UOp, list[int]]] = [(root, [])]
    for n, places in shown:
        if len(shown) + len(n.src) <= limit or n is root:
            kept = n.src if len(n.src) <= limit else n.src[:limit]
            for source in kept:
                places.append(len(shown))
                shown.append((source, []))
    texts: list[tuple[str, int]] = [("", 0)] * len(shown)
    for i in range(len(shown) - 1, -1, -1):
        n, places = shown[i]
        texts[i] = _written(n, [texts[p] for p in places])
    return texts[0][0]


def _written(n: UOp, parts: list[tuple[str, int]]) -> tuple[str, int]:
    """The text of a node from those of its sources, and how tightly it binds."""
    if not n.src:
        return _leaf(n), _TIGHT
    if not parts:
        return "...", _TIGHT
    if n.op in _INFIX:
        sign, level = _INFIX[n.op]
        left, right = (
            text if strength > level or (strength == level and first and level > 1) else f"({text})"
            for first, (text, strength) in zip((True, False), parts)
        )
        gap = "" if level == 7 else " "
        return f"{left}{gap}{sign}{gap}{right}", level
    texts = [text for text, _ in parts] + ["..."] * (len(parts) < len(n.src))
    if n.op is Ops.RANGE:
        return f"{n.arg[0]}", _TIGHT
    if n.op is Ops.CAST:
        return f"{n.dtype}({texts[0]})", _TIGHT
    if n.op is Ops.BITCAST:
        return f"bitcast({texts[0]}, {n.dtype})", _TIGHT
    name = _NAMES.get(n.op) or n.op.name.lower()
    arg = "" if n.arg is None else format_argument(n.arg)
    return f"{name}{arg}({', '.join(texts)})", _TIGHT


def _leaf(n: UOp) -> str:
    if n.op is Ops.CONST:
        return str(n.arg)
    if n.op is Ops.VAR:
        return str(n.arg[0])
    return n.op.name.lower() + ("" if n.arg is None else format_argument(n.arg))


def _repr(n: UOp) -> str:
    tag = "" if n.tag is None else f" tag{format_argument(n.tag)}"
    return f"<{n.op.name} {n.dtype}: {to_expression(n)}{tag}>"


uop._printer[0] = _repr
