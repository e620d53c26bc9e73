"""Expressions as people write them: `(x*4 + 3)//4 where x in [0, 9]`.

`parse_expression` makes nodes of such a text. The way back is `to_expression` in ir/infix.py.

An expression is written as in Python: `+ - * / // % & | ^ << >> ~`, comparisons, `and`, `or`,
`not`, `a if c else b`, and calls: `min(a, b)`, `max(a, b)`, `sqrt(a)`, `exp`, `exp2`, `log2`,
`sin`, `trunc`, `where(c, a, b)`, `cdiv`, `cmod`, `mulacc(a, b, c)`, `threefry(a, b)`; a dtype's
name converts (`int8(x)`), `bitcast(x, int32)` reinterprets. A number takes the dtype of the other
operand, or its own: `3:uint8`. After `where`, each variable is declared: `x in [0, 9]` is an
index, `y:int8 in [-3, 3]` and `z:float32` have a dtype, and without a range any value of it.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from opgraft.dtype import DType, dtypes, to_dtype
from opgraft.errors import ParseError
from opgraft.ir.infix import CALLS
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp

_Value = UOp | bool | int | float


def parse_expression(text: str) -> UOp:
    """The node of an expression in the form above.

    Raises `ParseError` with the place and what is wrong.

    >>> parse_expression("(x*4 + 3)//4 where x in [0, 9]").vmax
    9
    """
    return _Reader(text).read()


_DECLARATION: Final = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w*)\s*(?::\s*(?P<dtype>\w+))?\s*"
    r"(?:in\s*\[(?P<least>[^,\]]+),(?P<greatest>[^\]]+)\])?\s*(?P<rest>,|$)"
)
_TYPED_NUMBER: Final = re.compile(
    r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|nan|True|False)\s*:\s*([a-z]\w*)"
)

_PYTHON: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.And: operator.and_,
    ast.Or: operator.or_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: lambda a, b: a.eq(b) if isinstance(a, UOp) else a == b,
    ast.NotEq: lambda a, b: a.ne(b) if isinstance(a, UOp) else a != b,
}
_NUMBERS: Final = {"inf": math.inf, "nan": math.nan}


class _Reader:
    """One text being read: its variables, and where the error is when there is one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.variables: dict[str, UOp] = {}

    def read(self) -> UOp:
        body, declarations = self.text, ""
        found = list(re.finditer(r"\bwhere\b(?!\s*\()", self.text))
        if found:
            body, declarations = self.text[: found[-1].start()], self.text[found[-1].end() :]
        self._declare(declarations)
        value = self._evaluate(self._tree(_TYPED_NUMBER.sub(r"\2(\1)", body)))
        return value if isinstance(value, UOp) else _constant(value)

    def fail(self, problem: str, remedy: str = "") -> NoReturn:
        text = self.text.strip()
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise ParseError(f"{problem} in {shown!r}", remedy=remedy)

    def _declare(self, text: str) -> None:
        place = 0
        while text[place:].strip():
            found = _DECLARATION.match(text, place)
            if found is None:
                self.fail(
                    f"no declaration: {text[place:].strip()!r}",
                    "write them as: where x in [0, 9], y:int8 in [-3, 3], z:float32",
                )
            place = found.end()
            dtype = self._dtype(found["dtype"] or "index")
            least, greatest = self._limits(found, dtype)
            try:
                made = UOp.variable(found["name"], least, greatest, dtype)
            except (ValueError, OverflowError) as problem:
                self.fail(f"variable {found['name']}: {problem}")
            self.variables[found["name"]] = made

    def _limits(self, found: re.Match[str], dtype: DType) -> tuple[Any, Any]:
        if found["least"] is None:
            if dtype.is_index:
                self.fail(f"{found['name']} has no range", f"write: {found['name']} in [0, 9]")
            return dtype.min, dtype.max
        limits = []
        for text in (found["least"], found["greatest"]):
            value = self._evaluate(self._tree(text))
            if isinstance(value, UOp):
                self.fail(f"the range of {found['name']} is not made of numbers")
            limits.append(value)
        return limits[0], limits[1]

    def _dtype(self, name: str) -> DType:
        try:
            return to_dtype(name)
        except TypeError as problem:
            self.fail(str(problem))

    def _tree(self, text: str) -> ast.expr:
        try:
            return ast.parse(text.strip(), mode="eval").body
        except SyntaxError as problem:
            self.fail(f"{problem.msg} at column {problem.offset}")
        except (RecursionError, MemoryError, ValueError) as problem:
            self.fail(f"too deep or malformed ({problem})", "larger graphs: ir/text.py's form")

    def _evaluate(self, root: ast.expr) -> Any:
        """Operands first, without recursion; a node that is met again has its operands done."""
        stack: list[tuple[ast.expr, bool]] = [(root, False)]
        values: list[Any] = []
        while stack:
            tree, ready = stack.pop()
            parts = self._parts(tree)
            if parts and not ready:
                stack.append((tree, True))
                stack.extend((part, False) for part in reversed(parts))
                continue
            operands = values[len(values) - len(parts) :]
            del values[len(values) - len(parts) :]
            values.append(self._value(tree, operands))
        return values[0]

    def _parts(self, tree: ast.expr) -> list[ast.expr]:
        match tree:
            case ast.BinOp(left, _, right):
                return [left, right]
            case ast.BoolOp(_, operands):
                return operands
            case ast.UnaryOp(_, operand):
                return [operand]
            case ast.Compare(left, _, others):
                return [left, *others]
            case ast.IfExp(test, body, orelse):
                return [test, body, orelse]
            case ast.Call(ast.Name(name), arguments, []):
                return arguments[:1] if name == "bitcast" else arguments
        return []

    def _value(self, tree: ast.expr, operands: list[Any]) -> Any:
        match tree:
            case ast.Constant(bool() | int() | float() as value):
                return value
            case ast.Name(name):
                return self._name(name)
            case ast.BinOp(_, kind, _):
                return self._apply(kind, *operands)
            case ast.BoolOp(kind, _):
                return self._chain(kind, operands)
            case ast.Compare(_, kinds, _):
                pairs = zip(kinds, operands, operands[1:])
                return self._chain(ast.And(), [self._apply(k, a, b) for k, a, b in pairs])
            case ast.UnaryOp(kind, _):
                return self._unary(kind, operands[0])
            case ast.IfExp():
                return self._select(*operands)
            case ast.Call(ast.Name(name), arguments, []):
                return self._call(name, arguments, operands)
            case _:
                return self.fail(f"{ast.unparse(tree)!r} has no meaning here")

    def _name(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        if name not in _NUMBERS:
            self.fail(f"{name} is not declared", f"add: where {name} in [0, 9]")
        return _NUMBERS[name]

    def _chain(self, kind: ast.AST, operands: list[Any]) -> Any:
        result = operands[0]
        for operand in operands[1:]:
            result = self._apply(kind, result, operand)
        return result

    def _apply(self, kind: ast.AST, *operands: Any) -> Any:
        function = _PYTHON.get(type(kind))
        if function is None or (isinstance(kind, ast.Pow) and _nodes(operands)):
            self.fail(f"the operator {type(kind).__name__} has no meaning here")
        self._alike(operands)
        if not isinstance(operands[0], UOp) and isinstance(kind, (ast.Eq, ast.NotEq)):
            operands = self._alike(operands)
        try:
            return function(*operands)
        except (ArithmeticError, ValueError) as problem:
            self.fail(str(problem))

    def _alike(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Numbers among nodes as constants of the nodes' one dtype."""
        nodes = _nodes(operands)
        if not nodes:
            return operands
        dtype = nodes[0].dtype
        for n in nodes[1:]:
            if n.dtype is not dtype:
                self.fail(f"{dtype} meets {n.dtype}", f"convert one: {dtype}(...)")
        made = []
        for value in operands:
            if isinstance(value, float) and not dtype.is_float:
                self.fail(f"{value} meets {dtype}", "convert to a float dtype: float32(...)")
            made.append(value if isinstance(value, UOp) else UOp.const(dtype, value))
        return tuple(made)

    def _unary(self, kind: ast.AST, value: Any) -> Any:
        if isinstance(kind, ast.UAdd):
            return value
        if isinstance(kind, ast.USub):
            if isinstance(value, UOp) and value.op is Ops.CONST and not value.dtype.is_bool:
                return value.const_like(-value.arg)
            return -value
        if isinstance(kind, ast.Not):
            return ~value if isinstance(value, UOp) else not value
        return ~value

    def _select(self, condition: Any, yes: Any, no: Any) -> Any:
        if not isinstance(condition, UOp):
            return yes if condition else no
        if not condition.dtype.is_bool:
            self.fail(f"the condition is {condition.dtype}, not bool")
        if not _nodes((yes, no)):
            yes = _constant(yes)
        yes, no = self._alike((yes, no))
        return condition.where(yes, no)

    def _call(self, name: str, arguments: list[ast.expr], operands: list[Any]) -> Any:
        if name == "where" and len(operands) == 3:
            return self._select(*operands)
        if name == "bitcast" and len(arguments) == 2 and isinstance(arguments[1], ast.Name):
            target = self._dtype(arguments[1].id)
            try:
                return _as_node(operands[0]).bitcast(target)
            except TypeError as problem:
                self.fail(str(problem))
        if name in CALLS:
            op, count = CALLS[name]
            if len(operands) != count:
                self.fail(f"{name} takes {count} operands, not {len(operands)}")
            first, *others = map(_as_node, self._alike(tuple(operands)))
            return first.alu(op, *others)
        if len(operands) != 1:
            self.fail(f"{name} with {len(operands)} operands has no meaning here")
        target = self._dtype(name)
        value = operands[0]
        return value.cast(target) if isinstance(value, UOp) else UOp.const(target, value)


def _nodes(values: tuple[Any, ...]) -> list[UOp]:
    return [v for v in values if isinstance(v, UOp)]


def _as_node(value: _Value) -> UOp:
    return value if isinstance(value, UOp) else _constant(value)


def _constant(value: bool | int | float) -> UOp:
    """A number that stands alone: bool, index or the default float."""
    if isinstance(value, bool):
        return UOp.const(dtypes.bool, value)
    return UOp.const(dtypes.default_float if isinstance(value, float) else dtypes.index, value)
