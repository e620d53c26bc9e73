"""Statements in prefix form, as Halide's are published: `( <= ( min v0 8 ) ( + v1 1 ) )`."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from opgraft.api import Ops, UOp, dtypes, errors

FARTHEST: Final = 1 << 200
"""Variables are whole numbers without limits; nodes of the IR want some, so theirs are these."""

_TOKEN: Final = re.compile(r"[()]|[^\s()]+")
_NUMBER: Final = re.compile(r"[+-]?\d+")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def _not(a: UOp) -> UOp:
    return a ^ UOp.const(dtypes.bool, True)


_OPERATORS: Final[Mapping[tuple[str, int], Callable[..., UOp]]] = {
    ("+", 2): lambda a, b: a + b,
    ("-", 2): lambda a, b: a - b,
    ("-", 1): lambda a: a * -1,
    ("*", 2): lambda a, b: a * b,
    ("/", 2): lambda a, b: a // b,
    ("%", 2): lambda a, b: a % b,
    ("min", 2): lambda a, b: a.minimum(b),
    ("max", 2): lambda a, b: a.maximum(b),
    ("<", 2): lambda a, b: a < b,
    (">", 2): lambda a, b: b < a,
    ("<=", 2): lambda a, b: _not(b < a),
    (">=", 2): lambda a, b: _not(a < b),
    ("==", 2): lambda a, b: a.eq(b),
    ("!=", 2): lambda a, b: a.ne(b),
    ("&&", 2): lambda a, b: a & b,
    ("||", 2): lambda a, b: a | b,
    ("!", 1): _not,
    ("select", 3): lambda c, a, b: c.where(a, b),
}
_OF_TRUTHS: Final = frozenset({"&&", "||", "!"})


def parse_statement(text: str) -> UOp:
    """The node of a statement: `/` and `%` round down, and give 0 for a divisor of 0.

    >>> parse_statement("( < ( % v0 4 ) 4 )")
    <CMPLT bool: v0%4 < 4>
    """
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise errors.ParseError(f"a ) too many in {text!r}")
            stack[-2].append(_apply(stack.pop(), text))
        else:
            stack[-1].append(_leaf(token) if len(stack) == 1 or stack[-1] else token)
    if len(stack) != 1 or len(stack[0]) != 1:
        raise errors.ParseError(f"{text!r} is not one expression")
    made = stack[0][0]
    assert isinstance(made, UOp)
    made = _truth(made)
    if made.dtype is not dtypes.bool:
        raise errors.ParseError(f"{text!r} is a number; a statement is true or false")
    return made


def _leaf(token: str) -> UOp:
    if _NUMBER.fullmatch(token):
        return UOp.const(dtypes.index, int(token))
    if token in ("true", "false"):
        return UOp.const(dtypes.bool, token == "true")
    if _NAME.fullmatch(token):
        return UOp.variable(token, -FARTHEST, FARTHEST)
    raise errors.ParseError(f"{token!r} is no number and no variable")


def _truth(operand: UOp) -> UOp:
    """A number that stands where a truth is wanted: 0 is false, as in C. Of constants only."""
    if operand.is_const and operand.dtype is dtypes.index:
        return UOp.const(dtypes.bool, bool(operand.const_value))
    return operand


def _apply(parts: Sequence[Any], text: str) -> UOp:
    if not parts or not isinstance(parts[0], str):
        raise errors.ParseError(f"an operator is missing after ( in {text!r}")
    name, *operands = parts
    make = _OPERATORS.get((name, len(operands)))
    if make is None:
        raise errors.ParseError(f"no operator {name!r} of {len(operands)} operands is known")
    if name in _OF_TRUTHS:
        operands = [_truth(operand) for operand in operands]
    truths = [operand.dtype is dtypes.bool for operand in operands]
    if name == "select":
        fits = truths == [True, False, False]
    else:
        fits = all(truths) if name in _OF_TRUTHS else not any(truths)
    if not fits:
        raise errors.ParseError(f"{name!r} has an operand of the wrong kind in {text!r}")
    return make(*operands)


def read_statements(path: str | Path) -> Iterator[tuple[str, str]]:
    """(identifier, text) of each line of a CSV file with the columns ID and Expression."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames is None or not {"ID", "Expression"} <= set(rows.fieldnames):
                raise errors.ParseError(f"{path}: the columns ID and Expression are expected")
            for row in rows:
                # a line that is too short has none of the last columns
                yield row["ID"] or "", row["Expression"] or ""
    except OSError as error:
        raise errors.ParseError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise errors.ParseError(f"{path} is no CSV file in UTF-8: {error}") from error


def variables(statement: UOp) -> dict[str, UOp]:
    """The variables of a statement by name, in the order in which they stand."""
    return {n.arg[0]: n for n in statement.toposort() if n.op is Ops.VAR}
