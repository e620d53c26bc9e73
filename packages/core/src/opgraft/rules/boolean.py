"""Truth values: AND, OR, XOR of bool, and what other ops mean on bool."""

from __future__ import annotations

from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat, bools, integers
from opgraft.ir.uop import UOp

_x: Final = UPat.var("x", bools)
_y: Final = UPat.var("y")
_same: Final = UPat.var("x")


def _not(pattern: UPat) -> UPat:
    return pattern ^ True


SIMPLE: Final = EqualitySet(
    [
        # x and true = x, x and false = false
        (_x & True, lambda x: x, "and_true"),
        (_x & False, lambda x: x.const_like(False), "and_false"),
        # x or false = x, x or true = true
        (_x | False, lambda x: x, "or_false"),
        (_x | True, lambda x: x.const_like(True), "or_true"),
        # x xor false = x
        (_x ^ False, lambda x: x, "xor_false"),
        # not not x = x
        (_not(_not(_x)), lambda x: x, "not_not"),
        # x and not x = false, x or not x = true
        (_x & _not(_same), lambda x: x.const_like(False), "and_not_itself"),
        (_x | _not(_same), lambda x: x.const_like(True), "or_not_itself"),
        # (x = true) = x, (x = false) = not x, and the same of !=
        (_x.eq(True), lambda x: x, "equal_true"),
        (_x.eq(False), lambda x: x ^ True, "equal_false"),
        (_x.ne(False), lambda x: x, "unequal_false"),
        (_x.ne(True), lambda x: x ^ True, "unequal_true"),
    ]
)


# How many clauses of a conjunction are compared with one another.
_CLAUSES: Final = 8


def clauses_of(op: Ops, x: UOp) -> list[UOp]:
    """The operands of a chain of `op`, from left to right; a long chain is cut off."""
    found: list[UOp] = []
    stack = [x]
    while stack:
        n = stack.pop()
        if n.op is op and len(found) + len(stack) < _CLAUSES:
            stack += (n.src[1], n.src[0])
        else:
            found.append(n)
    return found


def limit_of(x: UOp) -> tuple[UOp, bool, int] | None:
    """(y, is upper, limit) of a comparison with a constant: y <= limit or y >= limit."""
    if x.op is not Ops.CMPLT:
        return None
    a, b = x.src
    if not a.dtype.is_int:
        return None
    if b.is_const:
        return a, True, b.const_value - 1
    if a.is_const:
        return b, False, a.const_value + 1
    return None


def _combined(op: Ops, a: UOp, b: UOp) -> UOp | bool | None:
    """What `a op b` is if it is one of the two (that node) or constant (the value)."""
    if a is b:
        return a
    both = op is Ops.AND
    if _negates(a, b) or _negates(b, a):
        return not both
    one, other = limit_of(a), limit_of(b)
    if one is None or other is None or one[0] is not other[0]:
        return None
    if one[1] == other[1]:
        narrower = a if (one[2] < other[2]) == one[1] else b
        wider = b if narrower is a else a
        return narrower if both else wider
    upper, lower = (one[2], other[2]) if one[1] else (other[2], one[2])
    if both and upper < lower:
        return False
    return True if not both and upper >= lower - 1 else None


def _negates(a: UOp, b: UOp) -> bool:
    return a.op is Ops.XOR and a.src[0] is b and a.src[1].const_value is True


def merge_clause(x: UOp, a: UOp, b: UOp) -> UOp | None:
    for clause in clauses_of(x.op, a):
        found = _combined(x.op, clause, b)
        if isinstance(found, bool):
            return x.const_like(found)
        if found is clause:
            return a
        if found is not None:
            return _replaced(x.op, a, clause, b)
    return None


def _replaced(op: Ops, a: UOp, clause: UOp, by: UOp) -> UOp:
    parts = [by if c is clause else c for c in clauses_of(op, a)]
    made = parts[0]
    for part in parts[1:]:
        made = made.alu(op, part)
    return made


FORMS: Final = EqualitySet(
    [
        # of bool: x + y = x or y, max = or, x * y = x and y, min = and
        (UPat((Ops.ADD, Ops.MAX), src=(_x, _y)), lambda x, y: x | y, "add_is_or"),
        (UPat((Ops.MUL, Ops.MIN), src=(_x, _y)), lambda x, y: x & y, "multiply_is_and"),
        # of bool: x < y = not x and y
        (UPat(Ops.CMPLT, src=(_x, _y)), lambda x, y: (x ^ True) & y, "less_is_and"),
        # of bool: x != y = x xor y, x = y is its negation
        (UPat(Ops.CMPNE, src=(_x, _y)), lambda x, y: x ^ y, "unequal_is_xor"),
        (UPat(Ops.CMPEQ, src=(_x, _y)), lambda x, y: (x ^ y) ^ True, "equal_is_not_xor"),
        # not x and not y = not (x or y), not x or not y = not (x and y)
        (_not(_x) & _not(_y), lambda x, y: (x | y) ^ True, "and_of_nots"),
        (_not(_x) | _not(_y), lambda x, y: (x & y) ^ True, "or_of_nots"),
        # x and (x or y) = x, x or (x and y) = x, of integers bit by bit
        (
            UPat.var("x", bools | integers) & (_same | _y),
            lambda x, y: x,
            "absorb_or",
        ),
        (
            UPat.var("x", bools | integers) | (_same & _y),
            lambda x, y: x,
            "absorb_and",
        ),
        # x < 3 and x < 5 = x < 3, x < 3 and 4 < x = false, and the like of or
        (
            UPat((Ops.AND, Ops.OR), bools, src=(UPat.var("a"), UPat.var("b")), name="x"),
            merge_clause,
        ),
    ]
)
