"""Elementwise operations of a tensor: arithmetic, comparison, logic, bits, functions, selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from opgraft.dtype import dtypes, promote
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import algebra, functions, graph
from opgraft_tensor.base import Base, Operand, is_scalar, scalar, weak_dtype
from opgraft_tensor.graph import elementwise

if TYPE_CHECKING:
    from typing import Self


class Elementwise(Base):
    """Operators and functions that work on each element; operands broadcast."""

    __slots__ = ()

    def _binary(
        self, function: Callable[[UOp, UOp], UOp], other: Operand, reverse: bool = False
    ) -> Self:
        a, b = self._pair(other)
        return self._new(function(b, a) if reverse else function(a, b))

    def _numbers(self, name: str, *nodes: UOp) -> None:
        if any(n.dtype.is_bool for n in nodes):
            raise TypeError(f"{name} of bool: cast to a number first, or use & | ^")

    def _whole(
        self, function: Callable[[UOp, UOp], UOp], other: Operand, reverse: bool = False
    ) -> Self:
        """`function` of division with a remainder, which bool has not."""
        self._numbers("the whole quotient", *self._pair(other))
        return self._binary(function, other, reverse)

    def _divided(
        self, function: Callable[[UOp, UOp], UOp], other: Operand, reverse: bool = False
    ) -> Self:
        """`function` of both operands as floats."""
        a, b = self._pair(other)
        dtype = a.dtype if a.dtype.is_float else dtypes.default_float
        a, b = graph.cast(a, dtype), graph.cast(b, dtype)
        return self._new(function(b, a) if reverse else function(a, b))

    def _bitwise(self, op: Ops, other: Operand, reverse: bool = False) -> Self:
        a, b = self._pair(other)
        shift = op in (Ops.SHL, Ops.SHR)
        if a.dtype.is_float or (shift and a.dtype.is_bool):
            raise TypeError(f"{op.name} is of integers{'' if shift else ' and bool'}: {a.dtype}")
        return self._new(elementwise(op, b, a) if reverse else elementwise(op, a, b))

    # ---- arithmetic

    def add(self, other: Operand) -> Self:
        return self._binary(algebra.add, other)

    def sub(self, other: Operand) -> Self:
        """The difference; bool has none (use `^`)."""
        self._numbers("the difference", *self._pair(other))
        return self._binary(algebra.sub, other)

    def mul(self, other: Operand) -> Self:
        return self._binary(algebra.mul, other)

    def div(self, other: Operand) -> Self:
        """The quotient, in floats; of integers in the default float dtype."""
        return self._divided(algebra.div, other)

    def floor_divide(self, other: Operand) -> Self:
        """The floor of the quotient; an integer divided by 0 gives 0."""
        return self._whole(algebra.floor_divide, other)

    def remainder(self, other: Operand) -> Self:
        """The remainder with the sign of the divisor; of an integer and 0 it is 0."""
        return self._whole(lambda a, b: elementwise(Ops.MOD, a, b), other)

    def pow(self, other: Operand) -> Self:
        """The power; of integers it wraps, and a negative exponent is refused, or gives 0."""
        return self._binary(functions.power, other)

    subtract, multiply, divide, mod = sub, mul, div, remainder

    def __add__(self, other: Operand) -> Self:
        return self.add(other)

    def __radd__(self, other: Operand) -> Self:
        return self._binary(algebra.add, other, True)

    def __sub__(self, other: Operand) -> Self:
        return self.sub(other)

    def __rsub__(self, other: Operand) -> Self:
        self._numbers("the difference", *self._pair(other))
        return self._binary(algebra.sub, other, True)

    def __mul__(self, other: Operand) -> Self:
        return self.mul(other)

    def __rmul__(self, other: Operand) -> Self:
        return self._binary(algebra.mul, other, True)

    def __truediv__(self, other: Operand) -> Self:
        return self.div(other)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._divided(algebra.div, other, True)

    def __floordiv__(self, other: Operand) -> Self:
        return self.floor_divide(other)

    def __rfloordiv__(self, other: Operand) -> Self:
        return self._whole(algebra.floor_divide, other, True)

    def __mod__(self, other: Operand) -> Self:
        return self.remainder(other)

    def __rmod__(self, other: Operand) -> Self:
        return self._whole(lambda a, b: elementwise(Ops.MOD, a, b), other, True)

    def __pow__(self, other: Operand) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Operand) -> Self:
        return self._binary(functions.power, other, True)

    def neg(self) -> Self:
        self._numbers("the negative", self._uop)
        return self._new(algebra.neg(self._uop))

    negative = neg

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self._new(self._uop)

    def abs(self) -> Self:
        return self._new(algebra.absolute(self._uop))

    def __abs__(self) -> Self:
        return self.abs()

    # ---- comparison

    def __lt__(self, other: Operand) -> Self:
        return self._binary(algebra.less, other)

    def __gt__(self, other: Operand) -> Self:
        return self._binary(algebra.less, other, True)

    def __le__(self, other: Operand) -> Self:
        return self._binary(algebra.less_equal, other)

    def __ge__(self, other: Operand) -> Self:
        return self._binary(algebra.less_equal, other, True)

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._binary(algebra.equal, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._binary(algebra.unequal, other)  # type: ignore[arg-type]

    __hash__ = object.__hash__

    less, greater, less_equal, greater_equal, equal, not_equal = (
        __lt__,
        __gt__,
        __le__,
        __ge__,
        __eq__,
        __ne__,
    )

    # ---- logic and bits

    def __and__(self, other: Operand) -> Self:
        return self._bitwise(Ops.AND, other)

    def __rand__(self, other: Operand) -> Self:
        return self._bitwise(Ops.AND, other, True)

    def __or__(self, other: Operand) -> Self:
        return self._bitwise(Ops.OR, other)

    def __ror__(self, other: Operand) -> Self:
        return self._bitwise(Ops.OR, other, True)

    def __xor__(self, other: Operand) -> Self:
        return self._bitwise(Ops.XOR, other)

    def __rxor__(self, other: Operand) -> Self:
        return self._bitwise(Ops.XOR, other, True)

    def __lshift__(self, other: Operand) -> Self:
        """A count outside 0 .. width-1 gives 0."""
        return self._bitwise(Ops.SHL, other)

    def __rlshift__(self, other: Operand) -> Self:
        return self._bitwise(Ops.SHL, other, True)

    def __rshift__(self, other: Operand) -> Self:
        """Arithmetic for signed integers; a count outside 0 .. width-1 gives 0 or the sign."""
        return self._bitwise(Ops.SHR, other)

    def __rrshift__(self, other: Operand) -> Self:
        return self._bitwise(Ops.SHR, other, True)

    def __invert__(self) -> Self:
        if self.dtype.is_float:
            raise TypeError(f"~ is of integers and bool: {self.dtype}")
        return self._new(algebra.negate_bits(self._uop))

    bitwise_and, bitwise_or, bitwise_xor, bitwise_invert = __and__, __or__, __xor__, __invert__
    bitwise_left_shift, bitwise_right_shift = __lshift__, __rshift__

    def _truth(self) -> UOp:
        return graph.cast(self._uop, dtypes.bool)

    def _logical(self, op: Ops, other: Operand) -> Self:
        right = (
            graph.full((), dtypes.bool, bool(other))
            if is_scalar(other)
            else graph.cast(self._as_node(other), dtypes.bool)
        )
        return self._new(elementwise(op, self._truth(), right))

    def logical_and(self, other: Operand) -> Self:
        return self._logical(Ops.AND, other)

    def logical_or(self, other: Operand) -> Self:
        return self._logical(Ops.OR, other)

    def logical_xor(self, other: Operand) -> Self:
        return self._logical(Ops.XOR, other)

    def logical_not(self) -> Self:
        return self._new(algebra.negate_bits(self._truth()))

    # ---- functions

    def _map(self, function: Callable[[UOp], UOp]) -> Self:
        """A function of floats; integers and bool become the default float dtype first."""
        return self._new(function(self._float()))

    def exp(self) -> Self:
        return self._map(functions.exp)

    def exp2(self) -> Self:
        return self._map(functions.exp2)

    def expm1(self) -> Self:
        return self._map(functions.expm1)

    def log(self) -> Self:
        return self._map(functions.log)

    def log2(self) -> Self:
        return self._map(functions.log2)

    def log10(self) -> Self:
        return self._map(functions.log10)

    def log1p(self) -> Self:
        return self._map(functions.log1p)

    def sqrt(self) -> Self:
        return self._map(functions.sqrt)

    def rsqrt(self) -> Self:
        return self._map(functions.rsqrt)

    def reciprocal(self) -> Self:
        return self._map(lambda a: algebra.div(algebra.like(a, 1), a))

    def sin(self) -> Self:
        return self._map(functions.sin)

    def cos(self) -> Self:
        return self._map(functions.cos)

    def tan(self) -> Self:
        return self._map(functions.tan)

    def tanh(self) -> Self:
        return self._map(functions.tanh)

    def sigmoid(self) -> Self:
        return self._map(functions.sigmoid)

    def erf(self) -> Self:
        return self._map(functions.erf)

    def gelu(self) -> Self:
        """x times the normal distribution function of x, by the error function."""
        return self._map(functions.gelu)

    def silu(self) -> Self:
        return self._map(functions.silu)

    def softplus(self) -> Self:
        return self._map(functions.softplus)

    def square(self) -> Self:
        return self._new(algebra.mul(self._uop, self._uop))

    def relu(self) -> Self:
        """max(x, 0); its derivative at 0 is 0."""
        return self._new(functions.relu(self._uop))

    def leaky_relu(self, slope: float = 0.01) -> Self:
        a = self._float()
        return self._new(
            algebra.choose(algebra.less(algebra.like(a, 0), a), a, algebra.scale(a, slope))
        )

    def sinh(self) -> Self:
        return self._map(functions.sinh)

    def cosh(self) -> Self:
        return self._map(functions.cosh)

    def logaddexp(self, other: Operand) -> Self:
        """log(exp(x) + exp(y)), without overflow."""
        return self._divided(functions.log_add_exp, other)

    def signbit(self) -> Self:
        """Whether the sign bit is set, of zeros and nan, too."""
        if not self.dtype.is_float:
            return self < 0
        bits = algebra.bits_of(self._uop)
        return self._new(algebra.less(bits, algebra.like(bits, 0)))

    def copysign(self, other: Operand) -> Self:
        """The magnitude of this with the sign of the other."""
        return self._divided(lambda a, b: algebra.copy_sign(algebra.absolute(a), b), other)

    def sign(self) -> Self:
        return self._new(algebra.sign(self._uop))

    def floor(self) -> Self:
        return self._new(algebra.floor(self._uop))

    def ceil(self) -> Self:
        return self._new(algebra.ceil(self._uop))

    def trunc(self) -> Self:
        return self._new(algebra.truncate(self._uop))

    def round(self) -> Self:
        """To the nearest integer, halves to the even one."""
        return self._new(algebra.round_even(self._uop))

    def isnan(self) -> Self:
        return self._new(algebra.is_nan(self._uop))

    def isinf(self) -> Self:
        return self._new(algebra.is_inf(self._uop))

    def isfinite(self) -> Self:
        return self._new(algebra.is_finite(self._uop))

    # ---- selection

    def maximum(self, other: Operand) -> Self:
        """The greater of two, nan if either is; of equals each gets half of a gradient."""
        return self._binary(algebra.maximum, other)

    def minimum(self, other: Operand) -> Self:
        """The lesser of two, nan if either is; of equals each gets half of a gradient."""
        return self._binary(algebra.minimum, other)

    def clip(self, low: Operand | None = None, high: Operand | None = None) -> Self:
        """Values below `low` become `low`, above `high` become `high`; nan stays."""
        result = self._new(self._uop) if low is None else self.maximum(low)
        return result if high is None else result.minimum(high)

    clamp = clip

    def where(self, yes: Operand, no: Operand) -> Self:
        """`yes` where this bool is true, else `no`; a branch not taken gets a gradient of zero."""
        if not self.dtype.is_bool:
            raise TypeError(f"where is asked of a bool tensor, not of {self.dtype}")
        nodes = [None if is_scalar(v) else self._as_node(v) for v in (yes, no)]
        known = [n.dtype for n in nodes if n is not None]
        dtype = promote(*known) if known else dtypes.bool
        for value, made in zip((yes, no), nodes):
            if made is None:
                dtype = weak_dtype(dtype, value)
        sides = []
        for value, made in zip((yes, no), nodes):
            if made is None:
                sides.append(scalar(value, dtype))
            else:
                sides.append(graph.cast(made, dtype))
        return self._new(graph.where(self._uop, *sides))
