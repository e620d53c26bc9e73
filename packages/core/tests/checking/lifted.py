"""Proofs by z3: the two graphs are equal for all values of their leaves, at any width.

A fixed-width integer is lifted to a mathematical one; a wrap is written only where the interval
of the exact result does not fit the dtype; a division is two fresh numbers q, r with
a = q*b + r. Graphs with general bit operations go to bit-vectors instead.
"""

from __future__ import annotations

from typing import Any

import z3

from opgraft.dtype import DType
from opgraft.ir import UOp
from opgraft.ir.intervals import product
from opgraft.ir.ops import Ops
from opgraft.ir.uop import toposort


class Unsupported(Exception):
    """The graph holds what this proof method does not know."""


def prove(before: UOp, after: UOp, effort: int = 400_000) -> str:
    """ "proved", "refuted: ...", "undecided" or "unsupported".

    `effort` is z3's own count of steps, not time: the answer is the same on a busy machine.
    """
    context, answered = z3.Context(), "unsupported"
    for method in (Lifted, Native, Vectors):
        try:
            proof = method(context)
            a, b = proof.value(before), proof.value(after)
        except Unsupported:
            continue
        solver = z3.SolverFor("QF_BV", ctx=context) if method is Vectors else z3.Solver(ctx=context)
        solver.set("rlimit", effort)
        solver.add(*proof.facts, a != b)
        answer = solver.check()
        if answer == z3.unsat:
            return "proved"
        if answer == z3.sat:
            return f"refuted: {before!r} against {after!r} at {solver.model()}"
        answered = "undecided"
    return answered


class Lifted:
    """Graphs over z3's integers."""

    def __init__(self, context: Any) -> None:
        self.context, self.count = context, 0
        self.facts: list[Any] = []
        self.done: dict[UOp, Any] = {}
        self.quotients: dict[Any, tuple[Any, Any]] = {}

    def value(self, root: UOp) -> Any:
        for n in toposort((root,), lambda n: n not in self.done):
            if n not in self.done:
                self.done[n] = self._value(n)
        return self.done[root]

    def _fresh(self, name: str = "t") -> Any:
        self.count += 1
        return z3.Int(f"{name}!{self.count}", self.context)

    def _between(self, x: Any, low: Any, high: Any) -> None:
        if low != float("-inf"):
            self.facts.append(x >= int(low))
        if high != float("inf"):
            self.facts.append(x <= int(high))

    def _value(self, n: UOp) -> Any:
        dtype, op = n.dtype, n.op
        if op is Ops.PARAM:
            return None
        if dtype.is_float or dtype.count != 1 or dtype.kind == "void":
            raise Unsupported
        if op is Ops.CONST:
            if dtype.is_bool:
                return z3.BoolVal(bool(n.arg), self.context)
            return z3.IntVal(n.arg, self.context)
        if op in (Ops.VAR, Ops.RANGE):
            if dtype.is_bool:
                return z3.Bool(str(n.arg[0]), self.context)
            made = z3.Int(str(n.arg[0]), self.context)
            self._between(made, n.vmin, n.vmax)
            if op is Ops.RANGE:
                self.facts.append(made < self.done[n.src[0]])
            return made
        if op is Ops.LOAD:
            return self._load(n)
        src = [self.done[s] for s in n.src]
        if op is Ops.WHERE:
            return z3.If(src[0], src[1], src[2])
        if op is Ops.CAST:
            return self._cast(n, src[0])
        if n.src and n.src[0].dtype.is_bool:
            return self._truth(op, src)
        if op is Ops.CMPLT:
            return src[0] < src[1]
        if op is Ops.CMPEQ:
            return src[0] == src[1]
        if op is Ops.CMPNE:
            return src[0] != src[1]
        if len(src) != 2:
            raise Unsupported
        return self._integer(n, *src)

    def _load(self, n: UOp) -> Any:
        if n.dtype.is_bool:
            raise Unsupported
        held = z3.Function(
            f"memory{n.src[0].arg[0]}", z3.IntSort(self.context), z3.IntSort(self.context)
        )
        value = held(self.done[n.src[1]])
        self._between(value, n.dtype.min, n.dtype.max)
        if len(n.src) == 4:
            value = z3.If(self.done[n.src[2]], value, self.done[n.src[3]])
        return value

    def _truth(self, op: Ops, src: list[Any]) -> Any:
        if len(src) != 2:
            raise Unsupported
        a, b = src
        if op in (Ops.AND, Ops.MUL, Ops.MIN):
            return z3.And(a, b)
        if op in (Ops.OR, Ops.ADD, Ops.MAX):
            return z3.Or(a, b)
        if op in (Ops.XOR, Ops.CMPNE):
            return z3.Xor(a, b)
        if op is Ops.CMPEQ:
            return a == b
        if op is Ops.CMPLT:
            return z3.And(z3.Not(a), b)
        raise Unsupported

    def _wrapped(self, dtype: DType, x: Any, low: Any, high: Any) -> Any:
        if dtype.min <= low and high <= dtype.max:
            return x
        turn = 1 << dtype.bits
        k, made = self._fresh("k"), self._fresh("w")
        self.facts.append(made == x - k * turn)
        self._between(made, dtype.min, dtype.max)
        return made

    def _cast(self, n: UOp, a: Any) -> Any:
        source, dtype = n.src[0].dtype, n.dtype
        if source.is_bool:
            if dtype.is_bool:
                return a
            return z3.If(a, z3.IntVal(1, self.context), z3.IntVal(0, self.context))
        if dtype.is_bool:
            return a != 0
        return self._wrapped(dtype, a, n.src[0].vmin, n.src[0].vmax)

    def _divided(self, a: Any, b: Any) -> tuple[Any, Any]:
        """(floor quotient, remainder) for b != 0; for b = 0 nothing is said."""
        key = (a.get_id(), b.get_id())
        found = self.quotients.get(key)
        if found is None:
            q, r = self._fresh("q"), self._fresh("r")
            zero = z3.IntVal(0, self.context)
            self.facts.append(
                z3.Or(
                    b == zero,
                    z3.And(a == q * b + r, b > zero, r >= zero, r < b),
                    z3.And(a == q * b + r, b < zero, r <= zero, r > b),
                )
            )
            found = self.quotients[key] = (q, r)
        return found

    def _integer(self, n: UOp, a: Any, b: Any) -> Any:
        op, dtype = n.op, n.dtype
        x, y = n.src
        if op is Ops.ADD:
            return self._wrapped(dtype, a + b, x.vmin + y.vmin, x.vmax + y.vmax)
        if op is Ops.MUL:
            low, high = product((x.vmin, x.vmax), (y.vmin, y.vmax))
            return self._wrapped(dtype, a * b, low, high)
        if op is Ops.IDIV:
            zero = z3.IntVal(0, self.context)
            quotient = z3.If(b == zero, zero, self._divided(a, b)[0])
            if not dtype.is_index and dtype.is_signed and x.vmin == dtype.min and y.vmin < 0:
                low = z3.IntVal(int(dtype.min), self.context)
                quotient = z3.If(z3.And(a == low, b == -1), low, quotient)
            return quotient
        if op is Ops.MOD:
            zero = z3.IntVal(0, self.context)
            return z3.If(b == zero, zero, self._divided(a, b)[1])
        if op is Ops.MAX:
            return z3.If(a < b, b, a)
        if op is Ops.MIN:
            return z3.If(a < b, a, b)
        number = y.const_value
        if op is Ops.AND and number is not None and number > 0 and number & (number + 1) == 0:
            return self._divided(a, z3.IntVal(number + 1, self.context))[1]
        if op is Ops.XOR and number == (-1 if dtype.is_signed else dtype.max):
            return (-1 if dtype.is_signed else int(dtype.max)) - a
        if op in (Ops.SHL, Ops.SHR) and number is not None:
            return self._shift(n, a, number)
        raise Unsupported

    def _shift(self, n: UOp, a: Any, count: int) -> Any:
        dtype, x = n.dtype, n.src[0]
        zero = z3.IntVal(0, self.context)
        if count >= 0 and (dtype.is_index or count < dtype.bits):
            if n.op is Ops.SHL:
                low, high = x.vmin * (1 << count), x.vmax * (1 << count)
                return self._wrapped(dtype, a * (1 << count), low, high)
            return self._divided(a, z3.IntVal(1 << count, self.context))[0]
        if n.op is Ops.SHL:
            return zero
        return z3.If(a < 0, z3.IntVal(-1, self.context), zero)


class Native(Lifted):
    """As Lifted, with z3's own division: better where the divisor is not constant."""

    def _divided(self, a: Any, b: Any) -> tuple[Any, Any]:
        # z3's remainder is never negative: the floor quotient is that by a positive divisor
        quotient = z3.If(b > 0, a / b, (-a) / (-b))
        return quotient, a - quotient * b


class Vectors:
    """Graphs over bit-vectors: fixed widths and bool, no index, no division."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.facts: list[Any] = []
        self.done: dict[UOp, Any] = {}

    def value(self, root: UOp) -> Any:
        for n in toposort((root,), lambda n: n not in self.done):
            if n not in self.done:
                self.done[n] = self._value(n)
        return self.done[root]

    def _value(self, n: UOp) -> Any:
        dtype, op = n.dtype, n.op
        if not (dtype.is_bool or (dtype.is_int and not dtype.is_index)) or dtype.count != 1:
            raise Unsupported
        if op is Ops.CONST:
            if dtype.is_bool:
                return z3.BoolVal(bool(n.arg), self.context)
            return z3.BitVecVal(n.arg, dtype.bits, self.context)
        if op is Ops.VAR:
            if dtype.is_bool:
                return z3.Bool(str(n.arg[0]), self.context)
            made = z3.BitVec(str(n.arg[0]), dtype.bits, self.context)
            if dtype.is_signed:
                self.facts += [made >= int(n.vmin), made <= int(n.vmax)]
            else:
                self.facts += [z3.UGE(made, int(n.vmin)), z3.ULE(made, int(n.vmax))]
            return made
        src = [self.done[s] for s in n.src]
        if op is Ops.WHERE:
            return z3.If(src[0], src[1], src[2])
        if op is Ops.CAST:
            return self._cast(n.src[0].dtype, dtype, src[0])
        if n.src and n.src[0].dtype.is_bool:
            return Lifted._truth(self, op, src)  # type: ignore[arg-type]
        if len(src) != 2:
            raise Unsupported
        return self._integer(n, *src)

    def _cast(self, source: DType, dtype: DType, a: Any) -> Any:
        if source.is_bool:
            if dtype.is_bool:
                return a
            one = z3.BitVecVal(1, dtype.bits, self.context)
            return z3.If(a, one, one - one)
        if dtype.is_bool:
            return a != 0
        if dtype.bits <= source.bits:
            return z3.Extract(dtype.bits - 1, 0, a)
        extend = z3.SignExt if source.is_signed else z3.ZeroExt
        return extend(dtype.bits - source.bits, a)

    def _integer(self, n: UOp, a: Any, b: Any) -> Any:
        op, signed, bits = n.op, n.src[0].dtype.is_signed, n.src[0].dtype.bits
        less = a < b if signed else z3.ULT(a, b)
        if op is Ops.CMPLT:
            return less
        if op is Ops.CMPEQ:
            return a == b
        if op is Ops.CMPNE:
            return a != b
        if op is Ops.ADD:
            return a + b
        if op is Ops.MUL:
            return a * b
        if op is Ops.MAX:
            return z3.If(less, b, a)
        if op is Ops.MIN:
            return z3.If(less, a, b)
        if op is Ops.AND:
            return a & b
        if op is Ops.OR:
            return a | b
        if op is Ops.XOR:
            return a ^ b
        inside = z3.ULT(b, bits)
        zero = z3.BitVecVal(0, bits, self.context)
        if op is Ops.SHL:
            return z3.If(inside, a << b, zero)
        if op is Ops.SHR:
            if signed:
                return z3.If(inside, a >> b, a >> (bits - 1))
            return z3.If(inside, z3.LShR(a, b), zero)
        number = n.src[1].const_value
        if op is Ops.MOD and number is not None and number > 0 and number & (number - 1) == 0:
            return a & (number - 1)
        raise Unsupported
