"""`Symbol`: what a rule's function is shown in the place of a node, so that what it does is noted.

Numbers that the engines know (constants, bounds) are `Number`s, comparisons of them `Truth`s. What
only nodes can answer raises `Untraceable`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from opgraft.api import DType, GroupOp, Ops, UOp, dtypes
from opgraft_egraph import codes
from opgraft_egraph.book import Test

Code: TypeAlias = "tuple[int, ...]"

MOST_PATHS: Final = 12
_MOST_CODE: Final = 48
PLACE: Final = UOp.variable("?", 0, 0)
"""Stands for sources in the nodes that show the heads of right sides."""


class Untraceable(Exception):
    """The function asks for what only nodes can answer."""


class Trace:
    """One call of the function: the answers so far, and those that were given in advance."""

    def __init__(self, given: tuple[bool, ...]) -> None:
        self.given: Final = given
        self.tests: Final[list[Test]] = []
        self.known: Final[dict[Code, bool]] = {}

    def decide(self, code: Code) -> bool:
        answer = self.known.get(code)
        if answer is None:
            place = len(self.tests)
            if place >= MOST_PATHS or len(code) > _MOST_CODE:
                raise Untraceable("too many comparisons")
            answer = self.given[place] if place < len(self.given) else True
            self.known[code] = answer
            self.tests.append(Test(code, answer))
        return answer


class Truth:
    """A comparison of numbers that are not known yet. Asking for it chooses a path."""

    __slots__ = ("code", "trace")

    def __init__(self, trace: Trace, code: Code) -> None:
        self.trace: Final = trace
        self.code: Final = code

    def __bool__(self) -> bool:
        return self.trace.decide(self.code)


def _opposite(x: Truth) -> Truth:
    return Truth(x.trace, (*x.code, codes.N_NOT))


class Number:
    """A number that the engine will know: a constant, a bound, or computed of them."""

    __slots__ = ("code", "trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, code: Code) -> None:
        if len(code) > _MOST_CODE:
            raise Untraceable("a long computation")
        self.trace: Final = trace
        self.code: Final = code

    def _code(self, other: Any) -> Code:
        if isinstance(other, Number):
            return other.code
        if isinstance(other, float):
            if math.isinf(other):
                return (codes.PUSH, codes.LEAST if other < 0 else codes.MOST)
            raise Untraceable("a float")
        if isinstance(other, int):  # bool too
            if not codes.LEAST < other < codes.MOST:
                raise Untraceable("a large number")
            return (codes.PUSH, int(other))
        raise Untraceable(f"a number with {other!r}")

    def _binary(self, op: int, other: Any) -> Number:
        return Number(self.trace, (*self.code, *self._code(other), op))

    def _reflected(self, op: int, other: Any) -> Number:
        return Number(self.trace, (*self._code(other), *self.code, op))

    def __add__(self, other: Any) -> Number:
        return self._binary(codes.N_ADD, other)

    def __radd__(self, other: Any) -> Number:
        return self._reflected(codes.N_ADD, other)

    def __sub__(self, other: Any) -> Number:
        return self._binary(codes.N_SUB, other)

    def __rsub__(self, other: Any) -> Number:
        return self._reflected(codes.N_SUB, other)

    def __mul__(self, other: Any) -> Number:
        return self._binary(codes.N_MUL, other)

    def __rmul__(self, other: Any) -> Number:
        return self._reflected(codes.N_MUL, other)

    def __floordiv__(self, other: Any) -> Number:
        return self._binary(codes.N_DIV, other)

    def __rfloordiv__(self, other: Any) -> Number:
        return self._reflected(codes.N_DIV, other)

    def __mod__(self, other: Any) -> Number:
        return self._binary(codes.N_MOD, other)

    def __rmod__(self, other: Any) -> Number:
        return self._reflected(codes.N_MOD, other)

    def __and__(self, other: Any) -> Number:
        return self._binary(codes.N_AND, other)

    def __or__(self, other: Any) -> Number:
        return self._binary(codes.N_OR, other)

    def __xor__(self, other: Any) -> Number:
        return self._binary(codes.N_XOR, other)

    def __lshift__(self, other: Any) -> Number:
        return self._binary(codes.N_SHL, other)

    def __rlshift__(self, other: Any) -> Number:
        return self._reflected(codes.N_SHL, other)

    def __rshift__(self, other: Any) -> Number:
        return self._binary(codes.N_SHR, other)

    def __neg__(self) -> Number:
        return Number(self.trace, (*self.code, codes.N_NEG))

    def __abs__(self) -> Number:
        return Number(self.trace, (*self.code, codes.N_ABS))

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.trace, (*self.code, *self._code(other), codes.N_LESS))

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.trace, (*self._code(other), *self.code, codes.N_LESS))

    def __le__(self, other: Any) -> Truth:
        return _opposite(self > other)

    def __ge__(self, other: Any) -> Truth:
        return _opposite(self < other)

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.trace, (*self.code, *self._code(other), codes.N_EQUAL))

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return _opposite(self == other)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        raise Untraceable("a number that must be known now")

    __int__ = __float__ = __round__ = __index__


def _forward(op: Ops) -> Callable[[Symbol, Any], Symbol]:
    return lambda self, other: self.alu(op, other)


def _reflected(op: Ops) -> Callable[[Symbol, Any], Symbol]:
    return lambda self, other: self.reflected(op, other)


def _unary(op: Ops) -> Callable[[Symbol], Symbol]:
    return lambda self: self.alu(op)


class Symbol:
    """What a node will be: a capture (`slot`), or an operation on others."""

    __slots__ = ("_arg", "_op", "_src", "constant", "dtype", "slot", "trace")

    def __init__(
        self,
        trace: Trace,
        dtype: DType,
        slot: int = -1,
        op: Ops | None = None,
        src: tuple[Any, ...] = (),
        arg: Any = None,
        constant: bool = False,
    ) -> None:
        self.trace: Final = trace
        self.dtype: Final = dtype
        self.slot: Final = slot
        self._op: Final = op
        self._src: Final = src
        self._arg: Final = arg
        self.constant: Final = constant

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"{name} of a capture")

    # ---- facts

    def _fact(self, push: int) -> Number:
        slot = self.slot
        if slot < 0 or self.dtype.is_float:
            raise Untraceable("a fact of what is not a capture, or of floats")
        return Number(self.trace, (push, slot))

    @property
    def vmin(self) -> Number:
        return self._fact(codes.PUSH_LOW)

    @property
    def vmax(self) -> Number:
        return self._fact(codes.PUSH_HIGH)

    @property
    def is_const(self) -> Any:
        if self.constant:
            return True
        slot = self.slot
        if slot < 0:
            raise Untraceable("whether what is made is constant")
        return Truth(self.trace, (codes.PUSH_CONSTANT, slot))

    @property
    def const_value(self) -> Number:
        if not self.constant:
            raise Untraceable("the number of what may not be constant")
        return self._fact(codes.PUSH_VALUE)

    # ---- making nodes

    def const_like(self, value: Any) -> Any:
        return constant_of(self.trace, self.dtype, value)

    def _operand(self, value: Any) -> Any:
        if isinstance(value, (Symbol, UOp)):
            return value
        return constant_of(self.trace, self.dtype, value)

    def alu(self, op: Ops, *others: Any) -> Symbol:
        operands = (self, *map(self._operand, others))
        dtype = operands[-1].dtype
        if op in GroupOp.COMPARISON:
            dtype = dtypes.bool.vec(dtype.count)
        return Symbol(self.trace, dtype, op=op, src=operands)

    def reflected(self, op: Ops, other: Any) -> Symbol:
        """`other op self`."""
        first = self._operand(other)
        dtype = dtypes.bool.vec(self.dtype.count) if op in GroupOp.COMPARISON else self.dtype
        return Symbol(self.trace, dtype, op=op, src=(first, self))

    __add__ = _forward(Ops.ADD)
    __radd__ = _reflected(Ops.ADD)
    __mul__ = _forward(Ops.MUL)
    __rmul__ = _reflected(Ops.MUL)
    __truediv__ = _forward(Ops.FDIV)
    __rtruediv__ = _reflected(Ops.FDIV)
    __floordiv__ = _forward(Ops.IDIV)
    __rfloordiv__ = _reflected(Ops.IDIV)
    __mod__ = _forward(Ops.MOD)
    __rmod__ = _reflected(Ops.MOD)
    __and__ = _forward(Ops.AND)
    __rand__ = _reflected(Ops.AND)
    __or__ = _forward(Ops.OR)
    __ror__ = _reflected(Ops.OR)
    __xor__ = _forward(Ops.XOR)
    __rxor__ = _reflected(Ops.XOR)
    __lshift__ = _forward(Ops.SHL)
    __rlshift__ = _reflected(Ops.SHL)
    __rshift__ = _forward(Ops.SHR)
    __rrshift__ = _reflected(Ops.SHR)
    __lt__ = _forward(Ops.CMPLT)
    __gt__ = _reflected(Ops.CMPLT)
    eq = _forward(Ops.CMPEQ)
    ne = _forward(Ops.CMPNE)
    maximum = _forward(Ops.MAX)
    minimum = _forward(Ops.MIN)
    sqrt = _unary(Ops.SQRT)
    exp = _unary(Ops.EXP)
    exp2 = _unary(Ops.EXP2)
    log2 = _unary(Ops.LOG2)
    sin = _unary(Ops.SIN)
    trunc = _unary(Ops.TRUNC)

    def __neg__(self) -> Symbol:
        made: Symbol = self ^ True if self.dtype.is_bool else self * -1
        return made

    def __sub__(self, other: Any) -> Symbol:
        opposite = -other
        if not isinstance(other, (Symbol, UOp)):
            opposite = constant_of(self.trace, self.dtype, opposite)
        return self.alu(Ops.ADD, opposite)

    def __rsub__(self, other: Any) -> Symbol:
        return (-self).reflected(Ops.ADD, other)

    def __invert__(self) -> Symbol:
        return self ^ (True if self.dtype.is_bool else -1)

    def __le__(self, other: Any) -> Symbol:
        if self.dtype.is_float:
            raise Untraceable("an order of floats")
        made: Symbol = self.reflected(Ops.CMPLT, other) ^ True
        return made

    def __ge__(self, other: Any) -> Symbol:
        if self.dtype.is_float:
            raise Untraceable("an order of floats")
        return self.alu(Ops.CMPLT, other) ^ True

    def cast(self, dtype: DType | str) -> Any:
        target = PLACE.cast(dtype).dtype if isinstance(dtype, str) else dtype
        if self.dtype.count != 1 and target.count == 1:
            target = target.vec(self.dtype.count)
        return self if target is self.dtype else Symbol(self.trace, target, -1, Ops.CAST, (self,))

    def where(self, yes: Any, no: Any) -> Symbol:
        if not isinstance(yes, (Symbol, UOp)):
            if not isinstance(no, (Symbol, UOp)):
                raise Untraceable("a choice between numbers")
            yes = constant_of(self.trace, no.dtype, yes)
        elif not isinstance(no, (Symbol, UOp)):
            no = constant_of(self.trace, yes.dtype, no)
        return Symbol(self.trace, yes.dtype, op=Ops.WHERE, src=(self, yes, no))

    def __bool__(self) -> bool:
        raise Untraceable("the truth of a node")

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise Untraceable("whether nodes are the same")


class Computed(Symbol):
    """A constant whose number the engine computes."""

    __slots__ = ("number",)

    def __init__(self, trace: Trace, dtype: DType, number: Number) -> None:
        super().__init__(trace, dtype)
        self.number = number


def constant_of(trace: Trace, dtype: DType, value: Any) -> Any:
    if isinstance(value, Number):
        if dtype.is_float:
            raise Untraceable("a float of a computed number")
        return Computed(trace, dtype, value)
    if isinstance(value, Truth):
        return Computed(trace, dtype, Number(trace, value.code))
    if isinstance(value, Symbol):
        raise Untraceable("a node as a number")
    return UOp.const(dtype, value)
